"""One run of the real MLPerf LoadGen in token mode, in a process of its own: ``python loadgen_tokens.py SPEC FOLDER``.

SPEC is JSON: ``settings`` as for ``loadgen_run.py`` and ``slow`` (``ttft``, ``tpot`` or null): what each 20th query is
late with. Query k answers with 2 + k mod 9 tokens. LoadGen leaves its logs and its trace in FOLDER. Nothing here judges
them.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg

LATE_S = 0.05


class Stub:
    """Answers its first token after about 1 ms and the last one after 1 ms more; each 20th query is 50 ms late with
    one.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        self.server = spec["settings"]["scenario"] == "Server"
        self.offline = spec["settings"]["scenario"] == "Offline"
        self.slow = spec.get("slow")
        self.issued = 0

    def issue(self, samples: Any) -> None:
        for sample in samples:
            query, self.issued = self.issued, self.issued + 1
            late = self.slow if query % 20 == 19 else None
            ttft_s = 0.001 + (LATE_S if late == "ttft" else 0)
            rest_s = 0.001 + (LATE_S if late == "tpot" else 0)
            if self.server:
                threading.Timer(ttft_s, self.first, [sample.id, query, rest_s]).start()
            else:
                time.sleep(0.0002)
                self.first(sample.id, query, rest_s)

    def first(self, sample_id: int, query: int, rest_s: float) -> None:
        if not self.offline:
            lg.FirstTokenComplete([lg.QuerySampleResponse(sample_id, 0, 0)])
        if self.server:
            threading.Timer(rest_s, self.last, [sample_id, query]).start()
        else:
            time.sleep(0.0002)
            self.last(sample_id, query)

    def last(self, sample_id: int, query: int) -> None:
        lg.QuerySamplesComplete([lg.QuerySampleResponse(sample_id, 0, 0, 2 + query % 9)])


def main() -> None:
    spec, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    settings = lg.TestSettings()
    settings.mode = lg.TestMode.PerformanceOnly
    settings.use_token_latencies = True
    for name, value in spec["settings"].items():
        setattr(settings, name, getattr(lg.TestScenario, value) if name == "scenario" else value)
    stub = Stub(spec)
    sut = lg.ConstructSUT(stub.issue, lambda: None)
    qsl = lg.ConstructQSL(50, 50, lambda samples: None, lambda samples: None)
    output = lg.LogOutputSettings()
    output.outdir = str(folder)
    output.copy_summary_to_stdout = False
    logs = lg.LogSettings()
    logs.log_output = output
    logs.enable_trace = True
    lg.StartTestWithLogSettings(sut, qsl, settings, logs, "")
    lg.DestroyQSL(qsl)
    lg.DestroySUT(sut)


if __name__ == "__main__":
    main()
