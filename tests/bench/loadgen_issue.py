"""MLPerf LoadGen's issue loop, in a process of its own: ``python -m tests.bench.loadgen_issue SCENARIO QUERIES``.

The system under test is a stub that answers inside the call, so what is left is LoadGen and its Python binding. Prints
the queries that were issued, the seconds between the first and the last, and the processor time of the whole test.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import mlperf_loadgen as lg

#: More than any issue loop reaches: the Server scenario is then limited by the loop alone.
RATE_PER_S = 2_000_000


class Stub:
    """Answers at once, and keeps when it was first and last asked."""

    def __init__(self) -> None:
        self.queries = 0
        self.first_ns = 0
        self.last_ns = 0

    def issue(self, samples: Any) -> None:
        self.last_ns = time.monotonic_ns()
        self.first_ns = self.first_ns or self.last_ns
        self.queries += 1
        lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0) for sample in samples])


def main() -> None:
    scenario, queries = sys.argv[1], int(sys.argv[2])
    settings = lg.TestSettings()
    settings.mode = lg.TestMode.PerformanceOnly
    settings.scenario = getattr(lg.TestScenario, scenario)
    settings.min_query_count = settings.max_query_count = queries
    settings.min_duration_ms = 0
    settings.server_target_qps = RATE_PER_S
    settings.single_stream_expected_latency_ns = 1000
    stub = Stub()
    sut = lg.ConstructSUT(stub.issue, lambda: None)
    qsl = lg.ConstructQSL(16, 16, lambda samples: None, lambda samples: None)
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-loadgen-") as folder:
        output = lg.LogOutputSettings()
        output.outdir = folder
        output.copy_summary_to_stdout = False
        logs = lg.LogSettings()
        logs.log_output = output
        logs.enable_trace = False
        begun = time.process_time()
        lg.StartTestWithLogSettings(sut, qsl, settings, logs, "")
        cpu_s = time.process_time() - begun
    lg.DestroyQSL(qsl)
    lg.DestroySUT(sut)
    print(json.dumps({"queries": stub.queries, "seconds": (stub.last_ns - stub.first_ns) / 1e9, "cpu_s": cpu_s}))


if __name__ == "__main__":
    main()
