"""What a search knows so far: the mark of each load, the runs that confirmed an end, and the answer that follows.

It holds what ``plimsoll.slo.search.search`` found and puts it into words; it chooses no load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from plimsoll.slo.search.probe import Answer, AnswerOutcome, Probe, Settings


class Stopped(Exception):
    """The search can't go on: nobody answered."""

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe.outcome)
        self.probe = probe


@dataclass(frozen=True, slots=True)
class Mark:
    """What the last look at a load said (INCONCLUSIVE: undecided at the longest; INVALID: so were its repeats), and how long it took."""

    outcome: str
    length: float


@dataclass(slots=True)
class Book:
    """The search's memory while it replays. ``fresh``: valid runs made to confirm an end, whatever they said; ``hurried``: time
    was short, so the ends were confirmed before they were as near to each other as asked.
    """

    settings: Settings
    probes: list[Probe] = field(default_factory=list)
    marks: dict[float, Mark] = field(default_factory=dict)
    fresh: int = 0
    confirmed: Probe | None = None
    ceiling: Probe | None = None
    hurried: bool = False
    stopped: Stopped | None = None

    def mark(self, probe: Probe) -> None:
        """Keep the last word on a load."""
        self.marks[probe.load] = Mark(probe.outcome, probe.length)

    @property
    def high(self) -> float | None:
        """The lowest load that failed."""
        return min(self.loads("FAIL"), default=None)

    @property
    def low(self) -> float | None:
        """The highest load that passed below every one that failed."""
        top = math.inf if self.high is None else self.high
        return max((load for load in self.loads("PASS") if load < top), default=None)

    @property
    def undecided(self) -> list[float]:
        """Loads between the two that no probe decided, ascending."""
        low, high = self.low or 0.0, math.inf if self.high is None else self.high
        return sorted(load for load in (*self.loads("INCONCLUSIVE"), *self.loads("INVALID")) if low < load < high)

    def loads(self, outcome: str) -> list[float]:
        """The loads of which this was the last word."""
        return [load for load, mark in self.marks.items() if mark.outcome == outcome]

    def answer(self) -> Answer:
        """The answer of a search that came to its end."""
        if self.stopped is not None:
            probe, said = self.stopped.probe, "; ".join(self.stopped.probe.reasons) or "no reason given"
            why = f"nobody answered at {self._show(probe.load)} (probe {probe.number}): {said}"
            return self._unconfirmed("UNREACHABLE", why)
        if not self.settings.confirm:
            return self._unconfirmed(self._outcome(self.low, self.high))
        best = None if self.confirmed is None else self.confirmed.load
        high = None if self.ceiling is None else self.ceiling.load
        confidence = max(0.0, round(1 - self.fresh * self.settings.alpha, 12)) if self.fresh else None
        return Answer(
            self._outcome(best, high),
            best,
            best or 0.0,
            math.inf if high is None else high,
            confidence,
            self._reasons(best, high),
            None if self.confirmed is None else self.confirmed.number,
            self.hurried,
        )

    def cut_short(self) -> Answer:
        """The answer where time ran out: what there is, and that it is not all."""
        self.hurried = False  # it goes on from here, if there is time
        outcome: AnswerOutcome = "OPEN" if self.low is not None and self.high is None else "INCONCLUSIVE"
        return self._unconfirmed(outcome, "time ran out before the search was over: give it more, or resume it")

    def _unconfirmed(self, outcome: AnswerOutcome, why: str | None = None) -> Answer:
        """Ends as the search left them. Where one was confirmed it stays, but both together were not."""
        best = self.low if self.confirmed is None else self.confirmed.load
        reasons = self._reasons(best, self.high)
        return Answer(
            outcome,
            best,
            best or 0.0,
            math.inf if self.high is None else self.high,
            None,
            reasons if why is None else (why, *reasons),
            None if self.confirmed is None else self.confirmed.number,
            self.hurried,
        )

    def _outcome(self, best: float | None, high: float | None) -> AnswerOutcome:
        if best is not None and high is not None:
            return "FOUND"
        if best is None and high is not None and high <= self.settings.lowest:
            return "NONE"
        if self.limit is not None:
            return "INVALID"
        return "INCONCLUSIVE" if best is None else "OPEN"

    @property
    def limit(self) -> float | None:
        """The lowest load that the generator could not make, where nothing below it failed: nothing above it was tried."""
        found = min(self.loads("INVALID"), default=None)
        return None if found is None or (self.high is not None and self.high < found) else found

    def _reasons(self, best: float | None, high: float | None) -> tuple[str, ...]:
        found = [*self._invalid(high), *self._edges(best, high), *self._in_haste(), *self._fresh_runs()]
        return (*found, *self._undecided(best, high), *self._crooked())

    def _invalid(self, high: float | None) -> list[str]:
        """Loads at which the generator, and not the endpoint, was the limit."""
        last = {probe.load: probe for probe in self.probes if probe.outcome == "INVALID"}
        loads = sorted(load for load in self.loads("INVALID") if high is None or load < high)
        if not loads:
            return []
        probe = last[loads[0]]
        said = "; ".join(probe.reasons) or "no reason given"
        return [
            f"{1 + self.settings.repeats} runs at {self._show(probe.load)} were INVALID: the generator, and not the endpoint, is the limit there. The last "
            f"one (probe {probe.number}): {said}"
        ]

    def _in_haste(self) -> list[str]:
        if not self.hurried:
            return []
        if self.confirmed is None or self.ceiling is None:
            return ["time was short, so the search ended before both ends were found: a longer budget goes further"]
        return [
            f"time was short, so the ends were confirmed before they were within {self.settings.resolution:.3g} of each other: a longer "
            "budget closes in further"
        ]

    def _edges(self, best: float | None, high: float | None) -> list[str]:
        settings, found = self.settings, []
        if best is None and high is not None and high <= settings.lowest:
            found.append(f"not even {self._show(settings.lowest)}, the lowest load asked for, keeps the objectives")
        elif best is None and self.marks and min(self.marks) <= settings.lowest:
            found.append(
                f"no load down to {self._show(settings.lowest)}, the lowest asked for, was shown to keep the objectives"
            )
        if high is None and self.high is None and self.marks:
            most = max(self.marks)
            asked = "the highest asked for" if most == settings.highest else "the highest tried"
            found.append(f"no load up to {self._show(most)}, {asked}, was shown to break the objectives")
        return found

    def _fresh_runs(self) -> list[str]:
        """Runs for an end that did not say what was hoped."""
        found = []
        for probe, purpose in self._in_place_of():
            hoped = "PASS" if purpose == "confirm" else "FAIL"
            if probe.outcome in ("PASS", "FAIL", "INCONCLUSIVE") and probe.outcome != hoped:
                found.append(
                    f"the fresh run at {self._show(probe.load)} (probe {probe.number}) was to say {hoped} and said {probe.outcome}: that end of the "
                    "interval was moved outwards"
                )
        return found

    def _in_place_of(self) -> list[tuple[Probe, str]]:
        """Each confirming probe with its purpose, also where it repeats an INVALID one."""
        found, purpose = [], ""
        for probe in self.probes:
            purpose = probe.purpose if probe.purpose != "repeat" else purpose
            if purpose in ("confirm", "ceiling"):
                found.append((probe, purpose))
        return found

    def _undecided(self, best: float | None, high: float | None) -> list[str]:
        low, top = best or 0.0, math.inf if high is None else high
        loads = sorted(load for load in self.loads("INCONCLUSIVE") if low < load < top)
        if not loads:
            return []
        where = self._show(loads[0]) if len(loads) == 1 else f"{self._show(loads[0])} to {self._show(loads[-1])}"
        return [
            f"undecided at {where}, even by the longest probes ({self.settings.longest:g} times the shortest): near the line only longer ones decide"
        ]

    def _crooked(self) -> list[str]:
        """A PASS above a FAIL, or on one: noise, or an endpoint that does better under more load."""
        failed = [probe for probe in self.probes if probe.outcome == "FAIL"]
        if not failed:
            return []
        lowest = min(failed, key=lambda probe: probe.load)
        passed = [probe for probe in self.probes if probe.outcome == "PASS" and probe.load >= lowest.load]
        if not passed:
            return []
        highest = max(passed, key=lambda probe: probe.load)
        return [
            f"PASS at {self._show(highest.load)} (probe {highest.number}), but FAIL at {self._show(lowest.load)} (probe {lowest.number}): by chance, or the "
            "endpoint does better under more load. The answer is the cautious one, below"
        ]

    def _show(self, load: float) -> str:
        return f"{load:.6g}/s" if self.settings.variable == "rate" else f"{load:g} at a time"
