"""What the numbers of a cold start are called and how they are said, the same in every format."""

from __future__ import annotations

from types import MappingProxyType

from plimsoll.reports.coldstart.coldstart_parts import ColdstartReport, RepeatPart, SpreadPart
from plimsoll.reports.wording import units

SYMBOLS = MappingProxyType(
    {"MEASURED": "●", "PASS": "✓", "FAIL": "✗", "INVALID": "⊘", "INTERRUPTED": "?", "UNREACHABLE": "✗", "STOPPED": "?"}
)
TITLES = MappingProxyType(
    {
        "port": "port open",
        "ready": "ready",
        "first_ttft": "first request, TTFT",
        "first_latency": "first request, latency",
        "first_answer": "spawn to first answer",
        "steady": "steady",
        "steady_level": "steady latency",
        "excess": "warm-up excess",
    }
)


def headline(report: ColdstartReport) -> str:
    """The result in a sentence."""
    by_name = {part.quantity: part for part in report.spreads}
    if "ready" not in by_name:
        return "No start was measured to its end."
    said = [f"Ready {_typical(by_name['ready'])} after it was spawned"]
    if "first_answer" in by_name:
        said.append(f"first answer after {_typical(by_name['first_answer'])}")
    if "steady" in by_name:
        at_once = all(part.steady_after == 0 for part in report.repeats if part.complete)
        said.append("steady from the first request on" if at_once else f"steady after {_typical(by_name['steady'])}")
    n = by_name["ready"].n
    return ", ".join(said) + (f" (median of {n} starts)." if n > 1 else " (one start).")


def _typical(part: SpreadPart) -> str:
    return units.human(part.median, "ns")


def interval(part: SpreadPart, report: ColdstartReport) -> str:
    """Of the median, or why there is none."""
    if part.interval is None:
        return units.NOTHING
    return f"{units.human(part.interval[0], 'ns')} to {units.human(part.interval[1], 'ns')}"


def certainty(report: ColdstartReport) -> str:
    """What an interval takes, where there are too few repeats for one."""
    n = max((part.n for part in report.spreads), default=0)
    if n == 0 or all(part.interval is not None for part in report.spreads):
        return ""
    needed = (
        f"an interval of the median at {units.percent(report.confidence)} takes {report.repeats_for_interval} repeats"
    )
    if n == 1:
        return f"One start says nothing about the next: {needed}."
    share = units.percent(max(part.range_confidence for part in report.spreads), 3)
    return f"Least to greatest of {n} holds the median of such starts with {share} confidence; {needed}."


def steady(part: RepeatPart) -> str:
    """From which request on a repeat was steady."""
    if part.steady_after is None:
        return units.NOTHING
    return "from the first" if part.steady_after == 0 else f"from request {part.steady_after + 1}"


def late(part: RepeatPart) -> str:
    """By how much ready may have been noticed too late."""
    return f"at most {units.duration(part.ready_late_ns)} late" if part.ready_late_ns else ""
