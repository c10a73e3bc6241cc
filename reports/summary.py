"""A report in a few plain lines, for where there is neither width nor colour: pytest, a CI log.

Every objective has a line that begins with its outcome.
"""

from __future__ import annotations

from reports import units, words
from reports.parts import ObjectiveResult
from reports.report import Report


def lines(report: Report) -> list[str]:
    """The outcome with its reasons, then a line for each objective."""
    found = [f"{report.verdict.outcome} {words.headline(report)}"]
    found += [one_line(result) for result in report.verdict.objectives]
    done, counts = report.throughput, report.counts
    found.append(
        f"{units.rate(done.requests_per_s)} completed, {units.count(counts.failed)} of "
        f"{units.many(counts.ok + counts.failed, 'request')} failed; generator {report.validity.outcome}"
    )
    return found


def one_line(result: ObjectiveResult) -> str:
    """``PASS p99(ttft) <= 200ms: 0 of 357 requests later than 200 ms where 1 % may be; p99 52 ms``."""
    return f"{result.outcome} {result.objective}: {words.explain(result)}"
