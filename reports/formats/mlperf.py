"""MLPerf LoadGen's summary of the run, as ``mlperf_log_summary.txt`` has it. It is no MLPerf submission, and is not one's start."""

from __future__ import annotations

from plimsoll.reports.format import Format
from plimsoll.reports.mlperf.mlperf_summary import summary, without
from plimsoll.reports.report import Report


def render(report: Report) -> bytes:
    """The file, UTF-8."""
    part = report.mlperf
    lines = without(report.run.scenario.kind) if part is None else summary(part)
    return ("\n".join(" ".join(line.splitlines()) if "\n" in line else line for line in lines) + "\n").encode()


FORMAT = Format("mlperf", ".mlperf.txt", "MLPerf LoadGen's summary (mlperf_log_summary.txt)", render)
