"""A report in a few plain lines, or one, for where there is neither width nor colour: pytest, a CI log, ``gate --quiet``.

Every objective has a line that begins with its outcome.
"""

from __future__ import annotations

from reports import attempts, units, words
from reports.parts import ObjectiveResult
from reports.report import Report


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
        text = decided_by(one)
    return "  ".join(part for part in (" ".join(f"{word} {text}".split()).rstrip("."), report.run.directory) if part)


def deciding(report: Report) -> ObjectiveResult | None:
    """The objective that the outcome hangs on: of those that failed the surest; of the others the one nearest to another outcome."""
    results = [one for one in report.verdict.objectives if one.outcome == report.verdict.outcome]
    if report.verdict.outcome == "FAIL":
        return min(results, key=lambda one: 0.0 if one.p_fail is None else one.p_fail, default=None)
    return max(results, key=lambda one: 0.0 if one.p_pass is None else one.p_pass, default=None)


def decided_by(result: ObjectiveResult) -> str:
    """One objective with its count and its size, in the verdict's own words."""
    return f"{result.objective}: {result.reason}"


def one_line(result: ObjectiveResult) -> str:
    """``PASS p99(ttft) <= 200ms: 52 ms observed, 44 to 64 ms, n 357``."""
    observed = words.observed(result)
    text = f"{result.outcome} {result.objective}: {observed}, {words.interval(result)}, n {units.count(result.n)}"
    if result.outcome == "INCONCLUSIVE" and result.n_needed:
        text += f"; about {units.count(result.n_needed)} needed"
    return text
