"""What is known of some rows of a run that lie in parts: the evidence that ``plimsoll.slo.judge`` takes from records.

Each thing is asked of all parts when somebody needs it, and once. Nothing is judged here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from plimsoll.slo.metrics.indicator import Measured, catalogue
from plimsoll.slo.objectives.goodput import Attainment, Goodput, Throughput, per_second
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.objective_verdict import Evidence, beyond, distance
from plimsoll.slo.parts.asked import Ask, Asked
from plimsoll.slo.parts.course import CELLS, PARTS, Frame, frame_of, knots_of, memory_of
from plimsoll.slo.parts.part import INFINITE
from plimsoll.slo.parts.wire import Digest, Of, Question
from plimsoll.slo.records.records import Status
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.memory import Blocks, block_edges
from plimsoll.slo.statistics.order import Entries
from plimsoll.slo.statistics.share import Beyond, Course, Crowd, Series
from plimsoll.slo.verdict.counts import SUMS, Counts, ErrorCount, alike

T = TypeVar("T")


class Rows:
    """The rows of all parts that ``of`` names: as measured, or at one end of the generator's lateness.

    ``planned``, ``growing`` and ``offered_per_s`` as of ``plimsoll.slo.statistics.share.course``.
    """

    def __init__(
        self,
        ask: Ask,
        of: Of,
        limits: Sequence[Objective],
        planned: bool = False,
        growing: bool = False,
        offered_per_s: float = 0.0,
    ) -> None:
        self.ask, self.of, self._limits = ask, of, [one for one in limits if one.scope == "request"]
        self._planned, self._growing, self._offered = planned, growing, offered_per_s
        self._known: dict[object, object] = {}

    def _once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]  # type: ignore[return-value]

    @cached_property
    def tally(self) -> Digest:
        return self.ask(Question("tally", self.of))

    @property
    def counts(self) -> Counts:
        """As ``plimsoll.slo.verdict.counts.count``."""
        told = self.tally
        place = {text: i for i, text in enumerate(told.named("+text/"))}
        named = [(name.partition("/"), n) for name, n in told.named("+error/").items()]
        found = [ErrorCount(text, status, n) for (status, _, text), n in named]
        found.sort(key=lambda one: (-one.count, Status[one.status], place.get(one.text, len(place))))
        errors = alike(found)
        statuses = told.named("+status/")
        numbers = {name: told.whole(f"+{name}") for name in SUMS}
        return Counts(
            **numbers,
            by_status={status.name: statuses[status.name] for status in Status if statuses.get(status.name)},
            errors=errors,
            other_errors=numbers["failed"] - sum(error.count for error in errors),
            all_empty_400=bool(numbers["measured"]) and not told.whole("+other_400"),
        )

    @property
    def goodput(self) -> Goodput:
        """As ``plimsoll.slo.objectives.goodput.goodput``, without the rows' own marks."""
        n, span = self.tally.whole("+measured"), self._span
        good, *met = self.tally["+good"].tolist()
        attainment = tuple(Attainment(one, number, n) for one, number in zip(self._limits, met, strict=True))
        return Goodput(
            np.empty(0, np.bool_), n, good / n if n else 0.0, per_second(good, span), span, attainment, np.empty(0)
        )

    @property
    def _span(self) -> int:
        return int(self.tally[">span"][0])

    @property
    def throughput(self) -> Throughput:
        """As ``plimsoll.slo.objectives.goodput.throughput``."""
        out, given, planned = (total if known else None for total, known in self.tally["+tokens"].tolist())
        out_rate, in_rate = (None if total is None else per_second(total, self._span) for total in (out, given))
        requests = per_second(self.tally.whole("+ok"), self._span)
        return Throughput(requests, out_rate, in_rate, out, given, self._span, planned)

    @cached_property
    def course(self) -> Course:
        """As ``plimsoll.slo.statistics.share.course``, without the rows' own places."""
        n, (took, undone, due) = self.tally.whole("+measured"), self.tally["+flying"].tolist()
        last = int(self.tally[">over"][0]) if n else 0
        span = last - int(self.tally["<due"][0]) if n else 0
        under_way = float(took + undone * last - due)
        sending = round(n / self._offered * 1e9) if self._offered > 0 else span
        nowhere = np.empty(0, np.int64)
        return Course(nowhere, n, under_way / span if span > 0 else 0.0, sending, None, self._growing)

    @cached_property
    def frame(self) -> Frame:
        n, told = self.tally.whole("+measured"), self.tally
        first, last = int(told["<due"][0]), int(told[">due"][0])
        edges = np.array([first, last, min(CELLS, n - n % PARTS or n)])
        return frame_of(first, last, self.ask(Question("rows", self.of, {"edges": edges}))["+rows"], self._planned)

    # -- values --------------------------------------------------------------------------------------------------------

    def of_name(self, name: str) -> Of:
        """These rows' values of what has this name."""
        indicator = catalogue().get(name)
        if indicator is None or indicator.scope == "request":
            return self.of._replace(name=name)

        def sized() -> tuple[int, ...]:
            told = self.ask(Question("extent", self.of._replace(name=name)))
            return int(told[">longest"][0]), told.whole("+had"), told.whole("+failed")

        return self.of._replace(name=name, extent=self._once(("extent", name), sized))

    def order(self, of: Of) -> tuple[Digest, Asked]:
        """(the counts of some values, what stands for their order)."""

        def counted() -> tuple[Digest, Asked]:
            told = self.ask(Question("histogram", of))
            return told, Asked(self.ask, of, told)

        return self._once(of, counted)

    def measured(self, name: str, judged: bool = True) -> Measured:
        """As ``plimsoll.slo.metrics.indicator.measure``: values that no array holds."""
        told, ordered = self.order(self.of_name(name))
        strict = judged and bool(self.tally.whole("+failed"))
        ok = self.tally.whole("+ok")
        if not told.whole("+n") or not (strict or told.whole("+valued") or not (ok or catalogue()[name].live)):
            missing = told.whole("+missing") if not told.whole("+n") else ok
            return Measured(Entries((np.empty(0), None)), missing, 0)
        return Measured(Entries(folded=ordered), told.whole("+missing"), told.whole("+failed"))

    def alone(self, measured: Measured, name: str) -> Entries | None:
        """The values of successes alone; None: all are."""
        if not measured.failed and not self.tally.whole("+failed"):
            return None
        told, ordered = self.order(self.of_name(name)._replace(alone=True))
        return None if told.whole("+n") == measured.n else Entries(folded=ordered)

    def failing(self, name: str, bad: Beyond | None) -> int:
        """Values of failed requests, beyond a limit where one is given."""
        limit = {} if bad is None else {"limit": np.array([bad.limit])}
        said = Question("failing", self.of_name(name), limit, "" if bad is None else bad.operator)
        return self.ask(said).whole("+failing")

    def series(self, name: str) -> Series:
        """Values of a metric, one at least, or how many times over their limits requests are (``severity``)."""
        return self._once(("series", name), lambda: self._series(name))

    def _series(self, name: str) -> Series:
        of, (told, ordered) = self.of_name(name), self.order(self.of_name(name))
        entries, frame = Entries(folded=ordered), self.frame
        some = frame.some(entries.n / max(self.tally.whole("+measured"), 1))
        knots = knots_of(self.ask(Question("knots", of, {"windows": some}))["&values"])
        if not len(knots):
            knots = np.asarray(ordered[np.arange(0, entries.n, max(entries.n // 64, 1))])
        asked = {"knots": knots, "edges": frame.edges, "windows": frame.windows}
        heard = self.ask(Question("series", of, asked))
        memory = memory_of(heard, len(knots), frame, self.course.in_flight)
        size = np.broadcast_to(np.int64(1), (int(heard["+bins"][0].sum()),))
        found = Series(entries, None, size, memory, self._growing, None, lambda bad: self._crowd(of, bad, len(size)))
        failed = told.whole("+failed") if name != "severity" else 0
        return replace(found, errors=self.blocks(name)) if failed else found

    def _crowd(self, of: Of, bad: Beyond, requests: int) -> Crowd:
        told = self.ask(Question("crowd", of, {"limit": np.array([bad.limit])}, bad.operator))
        k, squared, crossed, pairs, most = told["+crowd"].tolist()
        share = k / max(self.order(of)[0].whole("+n"), 1)
        return Crowd(most, (squared - 2 * share * crossed + share * share * pairs) / requests)

    def evidence(self, objective: Objective) -> Measured | Evidence:
        """As ``plimsoll.slo.objectives.objective_verdict.evidence_of``."""
        indicator, measured = catalogue()[objective.indicator], self.measured(objective.indicator)
        if not measured.n:
            return measured
        laid, bad = self.series(objective.indicator), beyond(objective)
        failed = laid.errors if bool(bad.of(np.array([indicator.worst]))[0]) else None
        return Evidence(measured, laid, laid.beyond(bad, failed), distance(objective, measured.ordered, laid))

    def severity(self) -> tuple[Series, Blocks | None]:
        """How many times over their hardest limit requests are, and which failed, where some did."""
        laid, (told, _) = self.series("severity"), self.order(self.of._replace(name="severity"))
        return laid, self.blocks("severity") if INFINITE in told["#cells"][0] else None

    def blocks(self, name: str) -> Blocks:
        """Which requests count against a share, or have the worst value of a metric, in blocks of equal counts by due
        time. Those of one moment are in an order by lot.
        """
        return self._once(("blocks", name), lambda: self._blocks(name))

    def _blocks(self, name: str) -> Blocks:
        of = self.of_name(name)
        _, ordered = self.order(of._replace(name=f"due/{name}"))
        edges = block_edges(len(ordered))
        at = np.asarray(ordered[np.append(edges[1:-1], -1)] if len(ordered) else np.empty(0)).astype(np.int64)
        below, bad_below, upto, bad_upto = self.ask(Question("marks", of, {"at": at}))["+marks"].tolist()
        rng, found = np.random.default_rng(2), [0]
        taken, drawn, moment = 0, 0, None
        for i, edge in enumerate(edges[1:-1].tolist()):
            if at[i] != moment:
                taken, drawn, moment = 0, 0, at[i]
            more, bad_left = edge - below[i] - taken, bad_upto[i] - bad_below[i] - drawn
            good_left = upto[i] - below[i] - taken - bad_left
            drawn += int(rng.hypergeometric(bad_left, good_left, more)) if more and bad_left else 0
            taken += more
            found.append(bad_below[i] + drawn)
        found.append(bad_upto[-1] if len(at) else 0)
        bad = np.array([b - a for a, b in itertools.pairwise(found)], np.float64)
        return Blocks(bad, np.diff(edges).astype(np.float64))

    def shares(self, name: str) -> share.Counted:
        """The evidence on a share of which nothing is known but what counts against it."""
        return share.counted_in(self.blocks(name), self._growing)
