"""MLPerf LoadGen's detail log of the run, as ``mlperf_log_detail.txt`` has it: settings and results, one JSON entry a line."""

from __future__ import annotations

from plimsoll.reports.format import Format
from plimsoll.reports.mlperf.log import detail
from plimsoll.reports.report import Report


def render(report: Report) -> bytes:
    """The file, UTF-8; a run that is none of MLPerf's says only that it is INVALID."""
    return ("\n".join(detail(report.mlperf)) + "\n").encode()


FORMAT = Format("mlperf-detail", ".mlperf-detail.txt", "MLPerf LoadGen's detail log (mlperf_log_detail.txt)", render)
