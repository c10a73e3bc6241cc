"""The time of a search: what a probe and the fresh runs after it take, whether the budget holds them, and what to say if not.

Reckoned from what probes so far took beside their own length. It reads no clock and ends no search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.harness.series.search.question import Question
from plimsoll.reports.search.search_parts import ProbePart
from plimsoll.reports.wording import units
from plimsoll.scenarios.text.durations import format_duration
from plimsoll.slo.search.loads import below
from plimsoll.slo.search.probe import Answer, Next
from plimsoll.slo.search.search import decide

#: From a probe's preparation to its end beside its own length, where none was made yet: starting workers, sealing, judging.
_AROUND_NS = 4_000_000_000
_SECOND_NS = 1_000_000_000
_MINUTE_NS = 60 * _SECOND_NS


@dataclass(frozen=True, slots=True)
class Short:
    """The first probe that the budget did not hold, and how long the search would have lasted with it and its fresh runs."""

    wanted: Next
    total_ns: int


def needed_ns(question: Question, probes: Sequence[ProbePart], wanted: Next) -> int:
    """A probe and the fresh runs after it."""
    each = _each_ns(question, probes)
    return sum(question.length_ns(length) + each for length in (wanted.length, *wanted.then))


def _each_ns(question: Question, probes: Sequence[ProbePart]) -> int:
    usual = _AROUND_NS + question.job.scenario.warmup_ns
    around = max((part.took_ns - part.length_ns for part in probes if not part.cut), default=usual)
    return max(around, 0) + question.cooldown_ns


def too_short(question: Question) -> list[str]:
    """What is wrong with a budget in which not even the first probe and its fresh runs end: nothing could be said then."""
    first = decide(question.settings, [])
    if question.budget_ns is None or not isinstance(first, Next):
        return []
    least = needed_ns(question, [], first)
    if least <= question.budget_ns:
        return []
    around, wanted = units.seconds(_each_ns(question, [])), _named(question, first)
    confirm = ", or --no-confirm" if first.then else ""
    return [
        f"--budget {format_duration(question.budget_ns)}: too short for any answer, so nothing was sent. {wanted[0].upper()}{wanted[1:]} would "
        f"take {units.seconds(least)}, with about {around} around each. Give --budget {_whole(least, _SECOND_NS)} or more, a shorter "
        f"--probe{confirm}"
    ]


def left_no_room(question: Question, short: Short, probes: Sequence[ProbePart], answer: Answer) -> str:
    """Why the search ended where it did, and what to change."""
    step_ns = _SECOND_NS if short.total_ns < 2 * _MINUTE_NS else _MINUTE_NS
    give = "search into a new folder with" if answer.hurried else "give"
    lowest = min((part.load for part in probes), default=question.settings.start)
    lower, anew = below(question.settings, lowest), ""
    if answer.best is None and any(part.outcome == "FAIL" for part in probes) and lower < lowest:
        anew = f", or search into a new folder with --start {lower:g}"
    return (
        f"the budget of {units.seconds(question.budget_ns or 0)} left no room for {_named(question, short.wanted)}: {give} --budget "
        f"{_whole(short.total_ns, step_ns)} or more{anew}"
    )


def _named(question: Question, wanted: Next) -> str:
    fresh = "fresh run" if wanted.purpose in ("confirm", "ceiling") else "probe"
    at = f"{wanted.load:g}/s" if question.settings.variable == "rate" else f"{wanted.load:g} in flight"
    said = f"a {fresh} of {units.seconds(question.length_ns(wanted.length))} at {at}"
    if not wanted.then:
        return said
    longest = units.seconds(question.length_ns(max(wanted.then)))
    return f"{said} and the fresh runs after it ({len(wanted.then)} of up to {longest})"


def _whole(time_ns: int, step_ns: int) -> str:
    """Rounded up to whole steps: a flag's value."""
    return format_duration(-(-time_ns // step_ns) * step_ns)
