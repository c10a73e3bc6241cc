"""HdrHistogram interval log: one interval over the whole run for each metric, tagged with its name.

Other HdrHistogram tools read, merge and plot it. It holds finite values only: the format has no infinity, so failed
requests are in a comment line, never in a bucket.
"""

from plimsoll.reports.format import Format
from plimsoll.reports.report import Report
from plimsoll.slo.statistics.distribution import Interval, Log, decode, write

_NS_PER_S = 1e9


def render(report: Report) -> bytes:
    """The log; printed maxima are in milliseconds, values in nanoseconds as recorded."""
    length_s = report.throughput.span_ns / _NS_PER_S
    intervals = []
    notes = []
    for name, blob in report.histograms.items():
        counts, config = decode(blob)
        intervals.append(Interval(0.0, length_s, counts, config, tag=name))
        failed = report.metrics[name].failed if name in report.metrics else 0
        if failed:
            notes.append(f"#{name}: {failed} more values are infinite (failed requests) and in no histogram")
    start = (report.run.started_at_epoch_ns or 0) / _NS_PER_S
    head, rest = write(Log(start, tuple(intervals))).split("\n", 1)
    return "\n".join([head, *notes, rest]).encode()


FORMAT = Format("hdrlog", ".hlog", "HdrHistogram interval log, one histogram per metric", render)
