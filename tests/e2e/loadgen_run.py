"""One run of the real MLPerf LoadGen against a stub, in a process of its own: ``python loadgen_run.py SPEC FOLDER``.

SPEC is JSON: ``settings`` (fields of LoadGen's TestSettings), ``samples`` (in the data set) and the stub's service
times. ``slow``: {"every": n, "ms": t} lets each n-th query of a server run wait for t ms and answers all others at
once. ``paced``: {"us": a, "more_us": b} answers the samples of query k one after another, each after a + (37 k mod 100)
/ 100 b. LoadGen leaves its logs and its trace in FOLDER. Nothing here judges them.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import mlperf_loadgen as lg


class Stub:
    """A system under test that computes nothing."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.slow = spec.get("slow")
        self.paced = spec.get("paced")
        self.issued = 0

    def issue(self, samples: Any) -> None:
        query, self.issued = self.issued, self.issued + 1
        ids = [sample.id for sample in samples]
        if self.slow is not None:
            if query % self.slow["every"] == self.slow["every"] - 1:
                threading.Timer(self.slow["ms"] / 1e3, answer, [ids]).start()
            else:
                answer(ids)
            return
        pace_s = (self.paced["us"] + query * 37 % 100 / 100 * self.paced["more_us"]) / 1e6
        for one in ids:
            time.sleep(pace_s)
            answer([one])


def answer(ids: list[int]) -> None:
    lg.QuerySamplesComplete([lg.QuerySampleResponse(one, 0, 0) for one in ids])


def main() -> None:
    spec, folder = json.loads(sys.argv[1]), sys.argv[2]
    settings = lg.TestSettings()
    settings.mode = lg.TestMode.PerformanceOnly
    for name, value in spec["settings"].items():
        setattr(settings, name, getattr(lg.TestScenario, value) if name == "scenario" else value)
    stub = Stub(spec)
    sut = lg.ConstructSUT(stub.issue, lambda: None)
    qsl = lg.ConstructQSL(spec["samples"], spec["samples"], lambda samples: None, lambda samples: None)
    output = lg.LogOutputSettings()
    output.outdir = folder
    output.copy_summary_to_stdout = False
    logs = lg.LogSettings()
    logs.log_output = output
    logs.enable_trace = True
    lg.StartTestWithLogSettings(sut, qsl, settings, logs, "")
    lg.DestroyQSL(qsl)
    lg.DestroySUT(sut)


if __name__ == "__main__":
    main()
