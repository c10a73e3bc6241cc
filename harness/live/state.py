"""Status lines to intervals: what the live page shows, kept in bounded memory however long the run is.

A status line is worker by worker, cumulative and a quarter of a second apart; its counts are spread over the time since
the line before, so that a rate by interval doesn't depend on where the lines fall. Where there would be more than
``MOST`` intervals, neighbours are put together two by two, which keeps every count. Nothing here reads a clock: every
time is handed to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from plimsoll.harness.generator.recorder import FRESH, spreads_of
from plimsoll.harness.live.served import Said
from plimsoll.harness.run.tally import Tally
from plimsoll.harness.run.watcher import Beginning
from plimsoll.reports.documents import live
from plimsoll.reports.documents.live import BurnPart, LiveReport, Percentiles, RunPart, Stage, VerdictPart
from plimsoll.scenarios.plan.blocks import Extent
from plimsoll.slo.objectives.objective import Objective

#: A picture has a pixel or four for each of so many; memory is bounded by it.
MOST = 240
FIRST_NS = 1_000_000_000

#: n, and then p50, p90, p99 in ns; None is infinite, or nothing where n is 0.
Found = tuple[int, tuple[int | None, int | None, int | None]]
#: An interval is shown when it has been over for so long: the last status lines on it have come then.
SETTLED_NS = 600_000_000
#: The rate of the moment is over so many intervals.
_RECENT = 3


class Interval:
    """What happened in one stretch of time.

    ``sent``, ``done``: requests, fractions of one where a status line spans a boundary. ``failed``: of all, ``lost``:
    of the measured ones. ``in_flight``: the most seen, None when nobody looked. ``spreads``: by name, bin -> count.
    ``counts``: by objective, n and how many were bad. ``served``: by name, the largest that the server said and 0, or
    what was counted and in how many seconds; NaN: unknown.
    """

    __slots__ = ("_found", "counts", "done", "failed", "in_flight", "lost", "sent", "served", "spreads")

    def __init__(self, objectives: int) -> None:
        self.sent = 0.0
        self.done = 0.0
        self.failed = 0
        self.lost = 0
        self.in_flight: int | None = None
        self.spreads: dict[str, dict[int, int]] = {}
        self.counts = [(0, 0)] * objectives
        self.served: dict[str, tuple[float, float]] = {}
        self._found: dict[str, Found] = {}

    def add(self, name: str, histogram: Mapping[str, int] | Mapping[int, int]) -> None:
        """Values of one kind by bin."""
        if not histogram:
            return
        bins = self.spreads.setdefault(name, {})
        for key, count in histogram.items():
            bins[int(key)] = bins.get(int(key), 0) + count
        self._found.clear()

    def flying(self, number: int) -> None:
        """So many were in flight at one look."""
        self.in_flight = number if self.in_flight is None else max(self.in_flight, number)
        self._found.clear()

    def judged(self, index: int, n: int, bad: int) -> None:
        """Of the objective at ``index``, ``n`` more ended and ``bad`` of them broke the limit."""
        n_before, bad_before = self.counts[index]
        self.counts[index] = (n_before + n, bad_before + bad)

    def serve(self, name: str, value: float, seconds: float) -> None:
        """The server said this of itself."""
        before, lasted = self.served.get(name, (0.0 if seconds else -math.inf, 0.0))
        both = before + value if seconds or math.isnan(before + value) else max(before, value)
        self.served[name] = both, lasted + seconds

    def merge(self, other: Interval) -> None:
        """Take up the interval after this one."""
        self.sent += other.sent
        self.done += other.done
        self.failed += other.failed
        self.lost += other.lost
        if other.in_flight is not None:
            self.flying(other.in_flight)
        for name, bins in other.spreads.items():
            self.add(name, bins)
        for index, (n, bad) in enumerate(other.counts):
            self.judged(index, n, bad)
        for name, (value, seconds) in other.served.items():
            self.serve(name, value, seconds)
        self._found.clear()

    def percentiles(self, name: str) -> Found:
        """Of the values of this kind; measured failures are infinite, as in the report."""
        found = self._found.get(name)
        if found is None:
            bins = self.spreads.get(name, {})
            found = self._found[name] = (sum(bins.values()) + self.lost, live.percentiles(bins, self.lost))
        return found


class Intervals:
    """All intervals from ``start_ns`` (the beginning of the warm-up, or t0) on."""

    def __init__(self, start_ns: int, objectives: int) -> None:
        self.start_ns = start_ns
        self.width_ns = FIRST_NS
        self._objectives = objectives
        self._all: list[Interval] = []

    def __len__(self) -> int:
        return len(self._all)

    def at(self, time_ns: int) -> Interval:
        """The interval that holds a time; what came before the first one is counted to it."""
        index = max(0, (time_ns - self.start_ns) // self.width_ns)
        while index >= MOST:
            self._fold()
            index = max(0, (time_ns - self.start_ns) // self.width_ns)
        while index >= len(self._all):
            self._all.append(Interval(self._objectives))
        return self._all[index]

    def spread(self, from_ns: int, to_ns: int, sent: int, done: int) -> None:
        """Requests sent and done at some time between the two, taken as evenly spread."""
        span = to_ns - from_ns
        if span <= 0:
            here = self.at(to_ns)
            here.sent += sent
            here.done += done
            return
        self.at(to_ns)  # fold first: the width stays the same below
        begin = from_ns
        while begin < to_ns:
            edge = max(self.start_ns, begin + self.width_ns - (begin - self.start_ns) % self.width_ns)
            end = min(edge, to_ns)
            here = self.at(begin)
            here.sent += sent * (end - begin) / span
            here.done += done * (end - begin) / span
            begin = end

    def shown(self, settled_ns: int | None, now_ns: int) -> Sequence[Interval]:
        """Those that are over by ``settled_ns``; all up to ``now_ns`` when that is None.

        All of them: less than half an interval at the end is put to the one before, so that its rates say something.
        """
        if settled_ns is None:
            self.at(max(now_ns - 1, self.start_ns))
            left_ns = now_ns - self.start_ns - (len(self._all) - 1) * self.width_ns
            if len(self._all) < 2 or 2 * left_ns >= self.width_ns:
                return tuple(self._all)
            last = Interval(self._objectives)
            for part in self._all[-2:]:
                last.merge(part)
            return (*self._all[:-2], last)
        return tuple(self._all[: max(0, (settled_ns - self.start_ns) // self.width_ns)])

    def _fold(self) -> None:
        if len(self._all) % 2:
            self._all.append(Interval(self._objectives))
        for left, right in zip(self._all[::2], self._all[1::2], strict=True):
            left.merge(right)
        self._all = self._all[::2]
        self.width_ns *= 2


class LiveState:
    """All that is known of one run. ``objectives``: what it will be judged against; ``others``: names of what else."""

    def __init__(self, run: RunPart, objectives: Sequence[Objective], others: Sequence[str] = ()) -> None:
        self._run = run
        self._tally = Tally(objectives)
        followed = {str(count.objective) for count in self._tally.counts()}
        # A limit on a single request has no budget of its own: it is part of what ratio(good) counts.
        unfollowed = [str(one) for one in objectives if one.scope == "run" and str(one) not in followed]
        self._unfollowed = [*unfollowed, *others]
        self._counted = [(0, 0)] * len(followed)
        self._latest: dict[int, tuple[int, Mapping[str, Any]]] = {}
        self._totals = Interval(len(followed))
        self._due: _Due | None = None
        self._intervals: Intervals | None = None
        self._t0_ns = 0
        self._over_ns: int | None = None
        self._events: dict[str, int] = {}
        self._verdict: VerdictPart | None = None

    def begin(self, beginning: Beginning, now_ns: int) -> None:
        """t0 is known. ``now_ns`` here and below: on the clock of ``t0_ns``."""
        self._run = self._run.model_copy(update={"id": beginning.run_id})
        self._t0_ns = beginning.t0_ns
        self._due = _Due(beginning.plan)
        warmup_ns = beginning.scenario.warmup_ns
        self._intervals = Intervals(-warmup_ns, len(self._counted))

    def heard(self, worker: int, message: Mapping[str, Any], now_ns: int) -> None:
        """Take one worker's status line."""
        if self._intervals is None:
            return
        at = now_ns - self._t0_ns
        before_at, before = self._latest.get(worker, (at, {}))
        self._latest[worker] = (at, message)
        change = {key: int(message[key]) - int(before.get(key, 0)) for key in ("sent", "done", "failed", "bad")}
        self._intervals.spread(before_at, at, change["sent"], change["done"])
        here = self._intervals.at((before_at + at) // 2)
        flying = self._sum("in_flight")
        for interval in (here, self._totals):
            interval.failed += change["failed"]
            interval.lost += change["bad"]
            interval.flying(flying)
            for name, bins in spreads_of(message):
                interval.add(name, bins)
        self._tally.add(worker, message)
        counted = [(count.n, count.bad) for count in self._tally.counts()]
        for index, ((n, bad), (n_before, bad_before)) in enumerate(zip(counted, self._counted, strict=True)):
            here.judged(index, n - n_before, bad - bad_before)
        self._counted = counted

    def served(self, said: Iterable[Said]) -> None:
        """Take what the server says of itself; what it said before the warm-up is not shown."""
        for one in said:
            if self._intervals is not None and one.at_ns >= self._intervals.start_ns:
                self._intervals.at(one.at_ns).serve(one.name, one.value, one.seconds)
                self._totals.served[one.name] = (0.0, 0.0)

    def happened(self, event: Mapping[str, Any]) -> None:
        """An event of the scenario began, or ended."""
        self._events[str(event["name"])] = int(event["begun_ns"])

    def end(self, now_ns: int) -> None:
        """The last worker is done or dead: the picture stays as it is."""
        self._over_ns = now_ns

    def judged(self, verdict: VerdictPart) -> None:
        """The sealed run has a verdict."""
        self._verdict = verdict

    @property
    def over(self) -> bool:
        """Whether nothing more will come, except for the verdict."""
        return self._over_ns is not None

    def report(self, now_ns: int) -> LiveReport:
        """One look at it."""
        if self._intervals is None or self._due is None:
            stage: Stage = "over" if self.over else "preparing"
            return LiveReport(run=self._run, stage=stage, unfollowed=self._unfollowed, verdict=self._verdict)
        at = (self._over_ns or now_ns) - self._t0_ns
        shown = self._intervals.shown(None if self.over else at - SETTLED_NS, at)
        total = {key: self._sum(key) for key in ("sent", "done", "failed", "in_flight")}
        left_ns, fraction = (0, 1.0) if self.over else self._due.ahead(at, total["done"])
        series = self._series(shown, at)
        return LiveReport(
            run=self._run.model_copy(update={"workers": max(self._run.workers, len(self._latest))}),
            stage=self._stage(at, left_ns, fraction),
            elapsed_ns=at,
            left_ns=left_ns,
            fraction=None if fraction is None else round(fraction, 6),
            sent=total["sent"],
            done=total["done"],
            failed=total["failed"],
            in_flight=total["in_flight"],
            planned=self._due.total,
            planned_so_far=self._due.until(at) if self._due.total is not None else None,
            planned_per_s=_last(series.planned_per_s),
            sent_per_s=_last(series.sent_per_s),
            metrics={name: _overall(bins, self._totals.lost) for name, bins in self._totals.spreads.items()},
            objectives=self._burns(shown),
            unfollowed=self._unfollowed,
            intervals=series,
            verdict=self._verdict,
            events=dict(self._events),
            spreads={name: dict(bins) for name, bins in self._totals.spreads.items()},
        )

    def _sum(self, key: str) -> int:
        return sum(int(message[key]) for _, message in self._latest.values())

    def _stage(self, at: int, left_ns: int | None, fraction: float | None) -> Stage:
        if self.over:
            return "over"
        if at < 0:
            # The workers are told of a time that is yet to come; a run without a warm-up has none.
            assert self._intervals is not None
            return "warm-up" if at >= self._intervals.start_ns and self._intervals.start_ns < 0 else "preparing"
        return "draining" if left_ns == 0 and fraction == 1.0 else "running"

    def _series(self, shown: Sequence[Interval], at: int) -> live.Intervals:
        assert self._intervals is not None
        assert self._due is not None
        width, start = self._intervals.width_ns, self._intervals.start_ns
        edges = [start + index * width for index in range(len(shown))]
        end = max(at, start + 1) if self.over else start + len(shown) * width
        seconds = [(right - left) / 1e9 for left, right in pairwise([*edges, end])]
        there = self._totals.spreads
        names = [*(name for name in FRESH if name in there), *sorted(there.keys() - {*FRESH})]
        return live.Intervals(
            interval_ns=width,
            start_ns=start,
            end_ns=end,
            planned_per_s=self._due.rates([*edges, end]) if self._due.total is not None else None,
            sent_per_s=[i.sent / s for i, s in zip(shown, seconds, strict=True)],
            done_per_s=[i.done / s for i, s in zip(shown, seconds, strict=True)],
            failed=[i.failed for i in shown],
            in_flight_max=[i.in_flight for i in shown],
            bands={name: _band([i.percentiles(name) for i in shown]) for name in names},
            served={name: _course([i.served.get(name) for i in shown]) for name in self._totals.served},
        )

    def _burns(self, shown: Sequence[Interval]) -> list[BurnPart]:
        assert self._due is not None
        found = []
        for index, count in enumerate(self._tally.counts()):
            objective, allowed = count.objective, float(count.limit)
            found.append(
                BurnPart(
                    objective=str(objective),
                    indicator=objective.indicator,
                    threshold_ns=round(objective.threshold) if objective.unit == "ns" else None,
                    allowed=allowed,
                    n=count.n,
                    bad=count.bad,
                    burn=count.burn if count.n else None,
                    spent=count.bad / (allowed * self._due.total) if self._due.total else None,
                    interval_n=[interval.counts[index][0] for interval in shown],
                    interval_bad=[interval.counts[index][1] for interval in shown],
                )
            )
        return found


class _Due:
    """How many requests were due by a time. ``total``: of the whole plan; None of a closed loop."""

    def __init__(self, plan: Extent) -> None:
        self._timeline = plan.timeline
        self.total = None if plan.cyclic else plan.n_samples
        self._exactly = plan.cyclic and plan.stop.max_queries is not None
        self._needed = plan.stop.max_queries or plan.stop.min_queries
        self._span_ns = plan.stop.min_duration_ns if plan.cyclic else max(0, plan.last_ns)

    def ahead(self, at_ns: int, done: int) -> tuple[int | None, float | None]:
        """The time until the last query is due, and the share of the run that is over; None when nobody can tell.

        A closed loop lasts as long as it must and has as many requests as it must: whichever is further off counts.
        """
        if not self._span_ns or self._exactly:  # all at once, or a number of requests and no more
            needed = self.total or self._needed
            return None, min(1.0, done / needed) if needed else None
        by_time = min(1.0, max(0.0, at_ns / self._span_ns))
        by_count = 1.0 if self.total is not None or not self._needed else min(1.0, done / self._needed)
        if by_count < by_time:
            return None, by_count
        return max(0, self._span_ns - max(0, at_ns)), by_time

    def until(self, at_ns: int) -> int:
        """Requests due before ``at_ns`` after t0."""
        return int(self._timeline.until(at_ns))

    def rates(self, edges_ns: Sequence[int]) -> list[float]:
        """Requests due per second between each two edges."""
        found = self._timeline.until(edges_ns)
        seconds = np.maximum(np.diff(edges_ns), 1) / 1e9
        return [float(rate) for rate in np.diff(found) / seconds]


def _overall(bins: Mapping[int, int], lost: int) -> Percentiles:
    p50, p90, p99 = live.percentiles(bins, lost)
    return Percentiles(n=sum(bins.values()), failed=lost, p50=p50, p90=p90, p99=p99)


def _course(found: Sequence[tuple[float, float] | None]) -> list[float | None]:
    """What was said in each interval; one in which nothing was said has what was said before it, the last ones none."""
    shown: list[float | None] = []
    said = [at for at, one in enumerate(found) if one is not None]
    for at, one in enumerate(found):
        if one is not None:
            shown.append(None if math.isnan(one[0]) else one[0] / (one[1] or 1.0))
        else:
            shown.append(shown[-1] if shown and at < said[-1] else None)
    return shown


def _band(found: Sequence[tuple[int, tuple[int | None, int | None, int | None]]]) -> live.Band:
    return live.Band(
        n=[n for n, _ in found],
        p50=[of[0] for _, of in found],
        p90=[of[1] for _, of in found],
        p99=[of[2] for _, of in found],
    )


def _last(rates: Sequence[float] | None) -> float | None:
    recent = list(rates or ())[-_RECENT:]
    return sum(recent) / len(recent) if recent else None
