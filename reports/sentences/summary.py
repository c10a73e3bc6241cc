"""A report in a few plain lines, or one, for where there is neither width nor colour: pytest, a CI log, ``gate --quiet``.

Every objective has a line that begins with its outcome.
"""

from __future__ import annotations

from plimsoll.reports.parts.parts import ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.reports.sections import attempts
from plimsoll.reports.sentences import words
from plimsoll.reports.wording import units


def lines(report: Report) -> list[str]:
    """The outcome with its reasons, then a line for each objective."""
    found = [f"{report.verdict.outcome} {words.headline(report)}"]
    found += [text] if (text := attempts.said(report.attempts)) else []
    found += [one_line(result) for result in report.verdict.objectives]
    done, counts = report.throughput, report.counts
    found.append(
        f"{units.rate(done.requests_per_s)} completed, {units.count(counts.failed)} of "
        f"{units.many(counts.ok + counts.failed, 'request')} failed; generator {report.validity.outcome}"
    )
    return found


def verdict_line(report: Report) -> str:
    """``FAIL p99(ttft) <= 200ms: what decided it  runs/x``: the whole verdict on one line."""
    word = report.verdict.outcome
    one = deciding(report)
    if word == "INVALID" or one is None:
        text = next(iter(report.verdict.reasons), "no reason given")
    else:
        text = f"{one.objective}: {words.explain(one)}"
    return "  ".join(part for part in (" ".join(f"{word} {text}".split()).rstrip("."), report.run.directory) if part)


def deciding(report: Report) -> ObjectiveResult | None:
    """The objective that the outcome hangs on."""
    return next((one for one in report.verdict.objectives if one.objective == report.verdict.decides), None)


def one_line(result: ObjectiveResult) -> str:
    """``PASS p99(ttft) <= 200ms: 0 of 357 requests later than 200 ms where 1 % may be; p99 52 ms``."""
    return f"{result.outcome} {result.objective}: {words.explain(result)}"
