"""The highest load within the objectives, found by three-valued verdicts: which probe to make next, or the answer.

A pure function of the settings and the probes made so far: resuming is replaying, and the same probes always lead to the
same next one. It sends nothing, reads no clock and judges no run.

First the line is bracketed (loads grow by a factor while they pass, shrink while they fail), then the bracket is halved
at its geometric mean. A probe that decides nothing runs again, longer. A load that even the longest probe does not
decide lies near the line: the search then closes in on it from both sides, and the answer's interval holds it.

An outcome that the search picked out of many is better than the truth (the winner's curse), so neither end of the answer
rests on one: each gets a run of its own with a fresh seed and a length fixed beforehand, looked at once. Where the run does
not say what was hoped, the end moves outwards and gets another. A run at a load below the line says FAIL, and one above
it PASS, with a chance of at most a = 1 - c each, c being the confidence of the objectives; so both ends are right together
with at least 1 - k a after k such runs (Bonferroni), which is 1 - 2 a if the first two agree.

Nothing here takes for granted that a lower load is an easier one. A PASS above a FAIL is said, and the answer stays below.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

from slo.capacity.book import Book, Stopped
from slo.capacity.loads import above, below, closed, middle, stepped_down, stepped_up
from slo.capacity.probe import Answer, Next, Probe, Purpose, Settings, probe_seed

__all__ = ["Answer", "Next", "Probe", "Settings", "decide", "most_probes", "probe_seed"]

#: So many times the start is beyond any endpoint: where the search ends without a highest load.
MOST_TIMES = 2.0**40
#: Most runs for one end of the answer; their steps grow, so eight of them span a factor of three at a resolution of 2 %.
MOST_CONFIRMATIONS = 8
#: A run as long as n_needed says decides about every other time, because the share it was reckoned from is an estimate.
ALLOWANCE = 1.25

Steps = Generator[Next, Probe, None]
Run = Generator[Next, Probe, Probe]


def decide(settings: Settings, probes: Sequence[Probe], out_of_time: bool = False) -> Next | Answer:
    """What to do after these probes. ``out_of_time``: the answer that they give, with no more to come.

    Raises ValueError for probes that are not those which a search with these settings asks for.
    """
    book = Book(settings)
    steps = _search(book)
    wanted = next(steps)
    for place, probe in enumerate(probes):
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
    return book.cut_short() if out_of_time else wanted


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
        yield from _bracket(book)
        yield from _close_in(book)
        if book.settings.confirm:
            length = _fresh_length(book)
            yield from _confirm(book, length)
            yield from _ceiling(book, length)
    except Stopped as stopped:
        book.stopped = stopped


def _bracket(book: Book) -> Steps:
    """Find a load that passes, downwards, and one that fails, upwards."""
    settings = book.settings
    yield from _judge(book, "bracket", settings.start, 1.0)
    while book.low is None and min(book.marks) > settings.lowest:
        yield from _judge(book, "bracket", below(settings, min(book.marks)), 1.0)
    top = _top(settings)
    while book.high is None and max(book.marks) < top:
        yield from _judge(book, "bracket", min(top, above(settings, max(book.marks))), 1.0)


def _top(settings: Settings) -> float:
    return settings.start * MOST_TIMES if settings.highest is None else settings.highest


def _close_in(book: Book) -> Steps:
    """Halve the gap between PASS and FAIL; around what is undecided, the one below it first, because it holds the answer."""
    while (gap := _gap(book)) is not None:
        # A load between two that took long to decide takes at least as long as the easier of them.
        length = min(book.marks[end].length for end in gap)
        yield from _judge(book, "bisect", middle(book.settings, *gap), length)


def _gap(book: Book) -> tuple[float, float] | None:
    low, high = book.low, book.high
    if low is None or high is None:
        return None
    edges = [low, *book.undecided, high]
    for gap in ((edges[0], edges[1]), (edges[-2], edges[-1])):
        if not closed(book.settings, *gap):
            return gap
    return None


def _judge(book: Book, purpose: Purpose, load: float, length: float) -> Steps:
    """Probe a load until it is decided, or undecided at the longest."""
    probe = yield from _run(book, purpose, load, length)
    while probe.outcome == "INCONCLUSIVE" and probe.length < book.settings.longest:
        probe = yield from _run(book, "longer", load, _longer(probe, book.settings.longest))
    book.mark(probe)


def _longer(probe: Probe, longest: float) -> float:
    needed = 0.0
    if probe.n_needed is not None and probe.n > 0:
        needed = probe.length * probe.n_needed / probe.n * ALLOWANCE
    return min(longest, max(2 * probe.length, float(math.ceil(needed))))


def _run(book: Book, purpose: Purpose, load: float, length: float) -> Run:
    """One look at a load: a probe, and again with a fresh seed while the generator does not keep its promise."""
    wanted = purpose
    for _ in range(1 + book.settings.repeats):
        number = len(book.probes) + 1
        probe = yield Next(number, wanted, load, length, probe_seed(book.settings.seed, number))
        if probe.outcome == "UNREACHABLE":
            raise Stopped("UNREACHABLE", probe)
        if probe.outcome != "INVALID":
            return probe
        wanted = "repeat"
    raise Stopped("INVALID", probe)


def _fresh_length(book: Book) -> float:
    """Twice the longest that any load took: a PASS that was picked for being one needs more the next time.

    Fixed beforehand and looked at once: to run on until a run says what was hoped would be to pick again.
    """
    return min(book.settings.longest, 2.0 * max(mark.length for mark in book.marks.values()))


def _confirm(book: Book, length: float) -> Steps:
    """A fresh run at the highest load that passed; where it does not pass, at one below."""
    settings, load = book.settings, book.low
    for attempt in range(MOST_CONFIRMATIONS):
        if load is None:
            return
        probe = yield from _fresh(book, "confirm", load, length)
        if probe.outcome == "PASS":
            book.confirmed = probe
            return
        if probe.outcome == "FAIL":
            book.ceiling = probe  # as fresh as any
        load = stepped_down(settings, load, attempt, book.loads("PASS"))


def _ceiling(book: Book, length: float) -> Steps:
    """A fresh run at the lowest load that failed; where it does not fail, at one above."""
    settings, load = book.settings, book.high
    for attempt in range(MOST_CONFIRMATIONS):
        if load is None or book.ceiling is not None:
            return
        probe = yield from _fresh(book, "ceiling", load, length)
        if probe.outcome == "FAIL":
            book.ceiling = probe
            return
        load = stepped_up(settings, load, attempt, book.loads("FAIL"))


def _fresh(book: Book, purpose: Purpose, load: float, length: float) -> Run:
    probe = yield from _run(book, purpose, load, length)
    book.fresh += 1
    book.mark(probe)
    return probe
