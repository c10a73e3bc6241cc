"""The highest load within the objectives, found by three-valued verdicts: which probe to make next, or the answer.

It is a pure function of the settings and the probes made so far: resuming is replaying, and the same probes always lead
to the same next one. The line is bracketed, then the bracket is halved at its geometric mean; a probe that decides
nothing runs again, longer, and a load that even the longest does not decide is closed in on from both sides. Each end
of the answer rests on a fresh run of its own, looked at once, because the best of many probes is better than the truth;
with a = 1 - confidence both ends are right together with at least 1 - k a after k such runs (Bonferroni). They are
never left out for want of time. docs/guide/search.md and docs/decisions/series.md say more.

It sends nothing, reads no clock, judges no run, and does not take for granted that a lower load is an easier one: a
PASS above a FAIL is said, and the answer stays below.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

from plimsoll.slo.search.probe import Answer, AnswerOutcome, Next, Probe, Purpose, Settings, probe_seed

#: So many times the start is beyond any endpoint: where the search ends without a highest load.
MOST_TIMES = 2.0**40
#: Most runs for one end of the answer; their steps double, so six of them span a factor of three at a resolution of 2
#: %.
MOST_CONFIRMATIONS = 6
#: A generator's own limit is found to this root of the growth factor and no finer: it is not what was asked for.
COARSE = 4
_STAGES = {"confirm": 1, "ceiling": 2}

Steps = Generator[Next, Probe, None]
Run = Generator[Next, Probe, Probe]


class ShortOfTime(Exception):
    """Thrown into the search: go on to the fresh runs, or to the next of the two ends."""


def decide(
    settings: Settings,
    probes: Sequence[Probe],
    out_of_time: bool = False,
    fits: Callable[[Next], bool] = lambda _: True,
) -> Next | Answer:
    """What to do after these probes. ``out_of_time``: the answer that they give, with no more to come.

    ``fits``: whether there is time for a probe and for the fresh runs after it (``Next.then``). Where there is none the
    search goes on to those, and where none of them fits either it is out of time. Raises ValueError for probes that are
    not those which a search with these settings asks for.
    """
    book = Book(settings)
    steps = _search(book)
    wanted = next(steps)
    for place, probe in enumerate(probes):
        try:
            while _stage(probe) > _stage(wanted):  # time was short then
                wanted = steps.throw(ShortOfTime())
        except (StopIteration, ShortOfTime):
            _same(wanted, probe)
        _same(wanted, probe)
        book.probes.append(probe)
        try:
            wanted = steps.send(probe)
        except StopIteration:
            if place + 1 < len(probes):
                raise ValueError(
                    f"the search was over after probe {probe.number}: the {len(probes) - place - 1} after it are of "
                    "another one. Search into a new folder"
                ) from None
            return book.answer()
    try:
        while not (out_of_time or fits(wanted)):
            wanted = steps.throw(ShortOfTime())
    except (StopIteration, ShortOfTime):
        out_of_time = True
    return book.cut_short() if out_of_time else wanted


def _stage(one: Next | Probe) -> int:
    return _STAGES.get(one.purpose, 0)


def _same(wanted: Next, probe: Probe) -> None:
    for name in ("number", "purpose", "load", "length", "seed"):
        asked, made = getattr(wanted, name), getattr(probe, name)
        if asked != made:
            raise ValueError(
                f"probe {probe.number} has {name} {made}, where these settings ask for {asked}: it is of another "
                "search. Search into a new folder, or with the settings of the first time"
            )


def _search(book: Book) -> Steps:
    try:
        yield from _find(book)
        if book.settings.confirm:
            yield from _confirm(book)
            yield from _ceiling(book)
    except Stopped as stopped:
        book.stopped = stopped


def _find(book: Book) -> Steps:
    try:
        yield from _bracket(book)
        yield from _close_in(book)
    except ShortOfTime:
        if not book.settings.confirm or book.low is None:  # without a load that holds there is nothing to confirm
            raise
        book.hurried = True


def _bracket(book: Book) -> Steps:
    """Find a load that passes, downwards, and one that fails, upwards, as far as the generator goes."""
    settings = book.settings
    yield from _judge(book, "bracket", settings.start, 1.0)
    while book.low is None and min(book.marks) > settings.lowest:
        yield from _judge(book, "bracket", below(settings, min(book.marks)), 1.0)
    top = settings.start * MOST_TIMES if settings.highest is None else settings.highest
    while book.high is None and (most := max(book.marks)) < top and book.marks[most].outcome != "INVALID":
        yield from _judge(book, "bracket", min(top, above(settings, most)), 1.0)


def _close_in(book: Book) -> Steps:
    """Halve the gap between PASS and FAIL; around what is undecided the wider of the two."""
    while (gap := _gap(book)) is not None:
        # A load between two that took long to decide takes at least as long as the easier of them.
        length = min(book.marks[end].length for end in gap)
        yield from _judge(book, "bisect", middle(book.settings, *gap), length)


def _gap(book: Book) -> tuple[float, float] | None:
    low, high, settings = book.low, book.high, book.settings
    if low is None:
        return None
    if high is None:
        high = next((load for load in book.loads("INVALID") if load > low), None)
        if high is None:
            return None
        # Below the generator's limit the line may lie; that limit itself was not asked for.
        settings = replace(settings, resolution=max(settings.resolution, settings.growth ** (1 / COARSE) - 1))
    edges = [low, *(load for load in book.undecided if load < high), high]
    gaps = [gap for gap in (edges[:2], edges[-2:]) if not closed(settings, *gap)]
    widest = max(gaps, key=lambda gap: gap[1] / gap[0], default=None)
    return None if widest is None else (widest[0], widest[1])


def _judge(book: Book, purpose: Purpose, load: float, length: float) -> Steps:
    """Probe a load until it is decided, or undecided at the longest."""
    probe = yield from _run(book, purpose, load, length)
    while probe.outcome == "INCONCLUSIVE" and probe.length < book.settings.seeking:
        probe = yield from _run(book, "longer", load, _longer(probe, book.settings.seeking))
    book.mark(probe)


def _longer(probe: Probe, longest: float) -> float:
    needed = 0.0
    if probe.n_needed is not None and probe.n > 0:
        needed = probe.length * probe.n_needed / probe.n
    return min(longest, max(2 * probe.length, float(math.ceil(needed))))


def _run(book: Book, purpose: Purpose, load: float, length: float, then: tuple[float, ...] | None = None) -> Run:
    """One look at a load: a probe, and again with a fresh seed while the generator does not keep its promise.

    ``then``: the fresh runs that come after it; where not given, one at each end, for which this run might be the
    longest.
    """
    if then is None:
        ends = [max(_fresh_length(book, end), _twice(book, length)) for end in (book.low, book.high)]
        then = (*ends, max(ends)) if book.settings.confirm else ()
    wanted = purpose
    for _ in range(1 + book.settings.repeats):
        number = len(book.probes) + 1
        probe = yield Next(number, wanted, load, length, probe_seed(book.settings.seed, number), then)
        if probe.outcome == "UNREACHABLE":
            raise Stopped(probe)
        if probe.outcome != "INVALID":
            return probe
        wanted = "repeat"
    return probe


def _fresh_length(book: Book, end: float | None) -> float:
    """Twice what the load took: a run that was picked for what it said needs more the next time."""
    return 0.0 if end is None else _twice(book, book.marks[end].length)


def _twice(book: Book, length: float) -> float:
    return min(book.settings.longest, 2.0 * length)


def _confirm(book: Book) -> Steps:
    """A fresh run at the highest load that passed; where it does not pass, at one below."""
    settings, load = book.settings, book.low
    length = _fresh_length(book, load)
    then: tuple[float, ...] = ()
    for attempt in range(MOST_CONFIRMATIONS):
        if load is None:
            return
        try:
            probe = yield from _fresh(book, "confirm", load, length, then)
        except ShortOfTime:
            book.hurried = True
            return
        if probe.outcome == "PASS":
            book.confirmed = probe
            return
        if probe.outcome == "FAIL":
            book.ceiling = probe  # as fresh as any
        load = below(settings, load, _step(settings, attempt)) if load > settings.lowest else None
        length = _longer(probe, settings.longest)
        then = () if book.ceiling is not None or book.high is None else (_fresh_length(book, book.high),)


def _ceiling(book: Book) -> Steps:
    """A fresh run at the lowest load that failed; where it does not fail, at one above."""
    settings, load = book.settings, book.high
    length = _fresh_length(book, load)
    for attempt in range(MOST_CONFIRMATIONS):
        if load is None or book.ceiling is not None:
            return
        probe = yield from _fresh(book, "ceiling", load, length, ())
        if probe.outcome == "FAIL":
            book.ceiling = probe
            return
        highest = math.inf if settings.highest is None else settings.highest
        load = above(settings, load, _step(settings, attempt)) if load < highest else None
        length = _longer(probe, settings.longest)


def _fresh(book: Book, purpose: Purpose, load: float, length: float, then: tuple[float, ...]) -> Run:
    probe = yield from _run(book, purpose, load, length, then)
    book.fresh += probe.outcome != "INVALID"
    book.mark(probe)
    return probe


# -- which load comes next --------------------------------------------------------------------------------------------


def _tidy(settings: Settings, load: float) -> float:
    """Two digits more than the resolution can tell, four at least; whole numbers of a concurrency."""
    if settings.variable == "concurrency":
        return float(round(load))
    digits = max(4, math.ceil(-math.log10(settings.resolution)) + 2)
    return float(f"{load:.{digits}g}")


def above(settings: Settings, load: float, factor: float | None = None) -> float:
    """The next load up while bracketing, or the one that is ``factor`` times as great."""
    far = _tidy(settings, load * (factor or settings.growth))
    far = max(far, load + 1) if settings.variable == "concurrency" else far
    return far if settings.highest is None else min(far, settings.highest)


def below(settings: Settings, load: float, factor: float | None = None) -> float:
    """The same downwards."""
    far = _tidy(settings, load / (factor or settings.growth))
    return max(min(far, load - 1) if settings.variable == "concurrency" else far, settings.lowest)


def closed(settings: Settings, low: float, high: float) -> bool:
    """Whether two loads are as near to each other as the search is asked to tell apart."""
    width = high - low
    if settings.variable == "concurrency" and width <= 1:
        return True
    return width <= settings.resolution * low * (1 + 1e-9)


def middle(settings: Settings, low: float, high: float) -> float:
    """The geometric mean of two loads whose gap is not closed, strictly between them."""
    mean = _tidy(settings, math.sqrt(low * high))
    if settings.variable == "concurrency":
        return min(max(mean, low + 1), high - 1)
    return mean if low < mean < high else math.sqrt(low * high)


def _step(settings: Settings, attempt: int) -> float:
    """A factor that is 1, 2, 4 and so on resolutions away from 1."""
    return 1 + settings.resolution * 2.0**attempt


# -- what a search knows so far ----------------------------------------------------------------------------------------

# The mark of each load, the runs that confirmed an end, and the answer in words. The book chooses no load.


class Stopped(Exception):
    """The search can't go on: nobody answered."""

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe.outcome)
        self.probe = probe


@dataclass(frozen=True, slots=True)
class Mark:
    """What the last look at a load said (INCONCLUSIVE, INVALID: at the longest, with repeats), and how long it took."""

    outcome: str
    length: float


@dataclass(slots=True)
class Book:
    """The search's memory while it replays. ``fresh``: valid runs made to confirm an end, whatever they said;
    ``hurried``: time was short, so the ends were confirmed before they were as near to each other as asked.
    """

    settings: Settings
    probes: list[Probe] = field(default_factory=list)
    marks: dict[float, Mark] = field(default_factory=dict)
    fresh: int = 0
    confirmed: Probe | None = None
    ceiling: Probe | None = None
    hurried: bool = False
    stopped: Stopped | None = None
    _ascending: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def mark(self, probe: Probe) -> None:
        """Keep the last word on a load."""
        before = self.marks.get(probe.load)
        if before is not None:
            self._ascending[before.outcome].remove(probe.load)
        insort(self._ascending[probe.outcome], probe.load)
        self.marks[probe.load] = Mark(probe.outcome, probe.length)

    @property
    def high(self) -> float | None:
        return next(iter(self.loads("FAIL")), None)

    @property
    def low(self) -> float | None:
        """The highest load that passed below every one that failed."""
        passed, high = self.loads("PASS"), self.high
        below = len(passed) if high is None else bisect_left(passed, high)
        return passed[below - 1] if below else None

    @property
    def undecided(self) -> list[float]:
        """Loads between the two that no probe decided, ascending."""
        low, high = self.low or 0.0, math.inf if self.high is None else self.high
        return sorted(load for load in (*self.loads("INCONCLUSIVE"), *self.loads("INVALID")) if low < load < high)

    def loads(self, outcome: str) -> list[float]:
        """The loads of which this was the last word, ascending."""
        return self._ascending[outcome]

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
        """The lowest load that the generator could not make, where none below it failed: none above it was tried."""
        found = next(iter(self.loads("INVALID")), None)
        return None if found is None or (self.high is not None and self.high < found) else found

    def _reasons(self, best: float | None, high: float | None) -> tuple[str, ...]:
        found = [*self._invalid(high), *self._edges(best, high), *self._in_haste(), *self._fresh_runs()]
        return (*found, *self._undecided(best, high), *self._crooked())

    def _invalid(self, high: float | None) -> list[str]:
        """Loads at which the generator, and not the endpoint, was the limit."""
        last = {probe.load: probe for probe in self.probes if probe.outcome == "INVALID"}
        loads = [load for load in self.loads("INVALID") if high is None or load < high]
        if not loads:
            return []
        probe = last[loads[0]]
        said = "; ".join(probe.reasons) or "no reason given"
        return [
            f"{1 + self.settings.repeats} runs at {self._show(probe.load)} were INVALID: the generator, and not the "
            f"endpoint, is the limit there. The last one (probe {probe.number}): {said}"
        ]

    def _in_haste(self) -> list[str]:
        if not self.hurried:
            return []
        if self.confirmed is None or self.ceiling is None:
            return ["time was short, so the search ended before both ends were found: a longer budget goes further"]
        return [
            f"time was short, so the ends were confirmed before they were within {self.settings.resolution:.3g} of "
            "each other: a longer budget closes in further"
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
                    f"the fresh run at {self._show(probe.load)} (probe {probe.number}) was to say {hoped} and said "
                    f"{probe.outcome}: that end of the interval was moved outwards"
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
        loads = [load for load in self.loads("INCONCLUSIVE") if low < load < top]
        if not loads:
            return []
        where = self._show(loads[0]) if len(loads) == 1 else f"{self._show(loads[0])} to {self._show(loads[-1])}"
        lengths = [self.marks[load].length for load in loads]
        most = max(lengths)
        if min(lengths) >= self.settings.seeking > 1:
            by = f", even by the longest probes that seek ({self.settings.seeking:g} times the shortest)"
        else:
            by = f" by probes of at most {most:g} times the shortest" if most > 1 else " by the shortest probes"
        return [f"undecided at {where}{by}: near the line only longer ones decide"]

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
            f"PASS at {self._show(highest.load)} (probe {highest.number}), but FAIL at {self._show(lowest.load)} "
            f"(probe {lowest.number}): by chance, or the endpoint does better under more load. The answer is the "
            "cautious one, below"
        ]

    def _show(self, load: float) -> str:
        return f"{load:.6g}/s" if self.settings.variable == "rate" else f"{load:g} at a time"
