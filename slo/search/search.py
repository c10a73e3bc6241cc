"""The highest load within the objectives, found by three-valued verdicts: which probe to make next, or the answer.

A pure function of the settings and the probes made so far: resuming is replaying, and the same probes always lead to the
same next one. It sends nothing, reads no clock and judges no run.

First the line is bracketed (loads grow by a factor while they pass, shrink while they fail), then the bracket is halved
at its geometric mean. A probe that decides nothing runs again, longer. A load that even the longest probe does not
decide lies near the line: the search then closes in on it from both sides, the wider gap first, and the answer's interval
holds it. A load at which the generator does not keep its promise is undecided too, and nothing above it is tried.

What the answer claims rests on the fresh runs at its end, so they are never left out for want of time: ``Next.then`` says
how long they still take, and where a probe and they do not fit any more the search goes straight to them. Its interval is wide then.
Before any load has held there is nothing to confirm: it is out of time then, and can go on with more.

An outcome that the search picked out of many is better than the truth (the winner's curse), so neither end of the answer
rests on one: each gets a run of its own with a fresh seed and a length fixed beforehand, looked at once. Where the run does
not say what was hoped, the end moves outwards and gets another. A run at a load below the line says FAIL, and one above
it PASS, with a chance of at most a = 1 - c each, c being the confidence of the objectives; so both ends are right together
with at least 1 - k a after k such runs (Bonferroni), which is 1 - 2 a if the first two agree. Where a fresh run goes, and how long
it lasts, may follow from any run before it: it is looked at once whatever they were.

Nothing here takes for granted that a lower load is an easier one. A PASS above a FAIL is said, and the answer stays below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from plimsoll.slo.search.book import Book, Stopped
from plimsoll.slo.search.probe import Answer, Next, Probe, Purpose, Settings, probe_seed

#: So many times the start is beyond any endpoint: where the search ends without a highest load.
MOST_TIMES = 2.0**40
#: Most runs for one end of the answer; their steps double, so six of them span a factor of three at a resolution of 2 %.
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
    search goes on to those, and where none of them fits either it is out of time. Raises ValueError for probes that are not
    those which a search with these settings asks for.
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
                    f"the search was over after probe {probe.number}: the {len(probes) - place - 1} after it are of another one. "
                    "Search into a new folder"
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


def most_probes(settings: Settings) -> int:
    """No sequence of outcomes leads to more probes than this."""
    looks = 1 + math.ceil(math.log2(settings.longest))
    up = _steps(settings, _top(settings) / settings.start)
    down = _steps(settings, settings.start / settings.lowest)
    # Each halving shortens one of two gaps, below and above what is undecided; rounding of loads may cost one more each.
    halvings = math.ceil(math.log2(math.log(settings.growth) / math.log1p(settings.resolution)) + 1)
    loads = 1 + up + down + 2 * max(1, halvings + 2)
    confirmations = 2 * MOST_CONFIRMATIONS if settings.confirm else 0
    return (loads * looks + confirmations) * (1 + settings.repeats)


def _steps(settings: Settings, factor: float) -> int:
    # One more for the last, shortened one; rounded loads are at most 0.05 % nearer to each other.
    return math.ceil(math.log(factor) / (math.log(settings.growth) - 5e-4)) + 1


def _same(wanted: Next, probe: Probe) -> None:
    for name in ("number", "purpose", "load", "length", "seed"):
        asked, made = getattr(wanted, name), getattr(probe, name)
        if asked != made:
            raise ValueError(
                f"probe {probe.number} has {name} {made}, where these settings ask for {asked}: it is of another search. "
                "Search into a new folder, or with the settings of the first time"
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
    top = _top(settings)
    while book.high is None and (most := max(book.marks)) < top and book.marks[most].outcome != "INVALID":
        yield from _judge(book, "bracket", min(top, above(settings, most)), 1.0)


def _top(settings: Settings) -> float:
    return settings.start * MOST_TIMES if settings.highest is None else settings.highest


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
        high = min((load for load in book.loads("INVALID") if load > low), default=None)
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

    ``then``: the fresh runs that come after it; where not given, one at each end, for which this run might be the longest.
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
        load = stepped_down(settings, load, attempt)
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
        load = stepped_up(settings, load, attempt)
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


def above(settings: Settings, load: float) -> float:
    """The next load up while bracketing."""
    grown = max(_tidy(settings, load * settings.growth), _next_whole(settings, load))
    return grown if settings.highest is None else min(grown, settings.highest)


def below(settings: Settings, load: float) -> float:
    """The next load down while bracketing."""
    shrunk = _tidy(settings, load / settings.growth)
    return max(min(shrunk, load - 1) if settings.variable == "concurrency" else shrunk, settings.lowest)


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


def stepped_down(settings: Settings, load: float, attempt: int) -> float | None:
    """A load below, 1, 2, 4 and so on resolutions away; None at the lowest."""
    if load <= settings.lowest:
        return None
    far = _tidy(settings, load / (1 + settings.resolution * 2.0**attempt))
    return max(min(far, load - 1) if settings.variable == "concurrency" else far, settings.lowest)


def stepped_up(settings: Settings, load: float, attempt: int) -> float | None:
    """The same upwards; None at the highest."""
    top = math.inf if settings.highest is None else settings.highest
    if load >= top:
        return None
    far = _tidy(settings, load * (1 + settings.resolution * 2.0**attempt))
    return min(max(far, load + 1) if settings.variable == "concurrency" else far, top)


def _next_whole(settings: Settings, load: float) -> float:
    return load + 1 if settings.variable == "concurrency" else load
