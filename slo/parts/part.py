"""One part of a run, where its rows are: it answers questions about them in few bytes, and no row leaves it.

What it answers is counts, sums and extremes, the values in a narrow range, and a few windows of values in order of due
time. They add up over parts (``plimsoll.slo.parts.wire``), however the rows were dealt to them; a query's samples are
in one part. It reads no clock and no file but what its records read when they are asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import cached_property

import numpy as np

from plimsoll.slo.metrics.indicator import Extent as Lists
from plimsoll.slo.metrics.indicator import catalogue, extent, measure_part, succeeded, successes
from plimsoll.slo.objectives.goodput import goodput, span_ns, throughput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.parts.wire import Digest, Of, Question
from plimsoll.slo.records import cancelled
from plimsoll.slo.records.records import BoolArray, IntArray, Records, Stamp, Status
from plimsoll.slo.statistics.distribution import at_most
from plimsoll.slo.statistics.order import Entries, buckets, values_of
from plimsoll.slo.statistics.share import LEVELS, Beyond
from plimsoll.slo.validity import bracket, lateness
from plimsoll.slo.validity.bracket import LowerEnd
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.counts import SUMS, count, errors_of, kinds_of, shape_of

#: Buckets of a histogram to each doubling of a value are 2^BITS, and values below 2^-UNDER in size share one.
BITS, UNDER = 10, 20
#: The bucket of infinite values alone.
INFINITE = ((54 + UNDER) << BITS) + 1
#: Error texts that a part tells apart, the most frequent ones.
MOST_TEXTS = 256
#: Kinds of failure of which it tells, and so much of a text.
MOST_KINDS, MOST_CHARACTERS = 64, 300
#: How late requests are of a stretch of time in which none left.
NEVER = -(1 << 62)
#: So many sets of values are kept for the next question.
_KEPT = 6


def bins_of(times: IntArray, edges: IntArray) -> IntArray:
    """int64[n]: which of ``edges`` = (first, last, number) equal stretches of time each is in; none lies outside."""
    first, last, number = edges.tolist()
    return np.asarray(np.clip((times - first) * number // (last - first + 1), 0, number - 1))


def cells_of(times: IntArray, edges: IntArray) -> IntArray:
    """int64[n]: between which two of the edges, ascending, each time is; none lies outside."""
    return np.asarray(np.searchsorted(edges[1:-1], times, side="right"))


def _one(number: int) -> IntArray:
    return np.array([number], np.int64)


class Part:
    """Some rows of a run; ``facts``: of the generator that sent them, ``objectives``: what the run is judged by."""

    def __init__(self, records: Records, facts: GeneratorFacts, objectives: Sequence[Objective] = ()) -> None:
        self._records, self._facts, self._objectives = records, facts, tuple(objectives)
        self._lower: dict[bool, LowerEnd] = {}
        self._kept: dict[Of, Entries] = {}

    def answer(self, question: bytes) -> bytes:
        """The digest that answers. Raises ValueError for what is no question, or asks for what is not there."""
        asked = Question.from_bytes(question)
        try:
            return self.digest(asked).to_bytes()
        except (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError) as error:
            raise ValueError(f"{asked.kind!r:.60} can't be answered so ({type(error).__name__}: {error})") from error

    def digest(self, asked: Question) -> Digest:
        """The same, of what is no bytes."""
        if asked.kind not in _ANSWERS:
            raise ValueError(f"nobody here answers {asked.kind!r}: use one version of Plimsoll everywhere")
        return _ANSWERS[asked.kind](self, asked)

    @cached_property
    def _again(self) -> Records:
        found = bracket.as_failures(self._records)
        return self._records if found is None else found

    def rows(self, of: Of) -> Records:
        """The records that a question is about."""
        base = self._again if of.again else self._records
        if not of.end:
            return base
        if of.again not in self._lower:
            raise ValueError("asked for the lower end before it was told: this part began anew, so ask from the start")
        low = self._lower[of.again]
        return low.chunks if of.end == "chunks" else low.times if of.end == "times" else low.failures

    def values(self, of: Of) -> Entries:
        """The values that a question is about, made once for the next few."""
        if of not in self._kept:
            while len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[of] = self._values(of)
        return self._kept[of]

    def _values(self, of: Of) -> Entries:
        kind, _, rest = of.name.partition("/")
        records = self.rows(of)
        if kind == "severity":
            rows = np.flatnonzero(records.in_measure)
            return Entries((goodput(records, self._objectives).severity[rows], rows))
        if kind == "due":
            rows, _ = self.marked(of._replace(name=rest))
            return Entries((records["due_ns"][rows].astype(np.float64), rows))
        if rest and kind in ("lag", "took"):  # else a metric may have the name
            issued, taken, left = self.sent
            if rest == "sent":
                lag = left["sent_ns"] - left["due_ns"]
            elif kind == "lag":
                first = lateness.first_of_each_query(taken)
                lag = first["ready_ns"] - first["due_ns"]
            else:  # of what was due after one moment and up to another
                since, until = map(int, rest.split("/"))
                due, done = issued["due_ns"], issued["done_ns"]
                took = np.where(done == -1, np.inf, (done - due).astype(np.float64))
                return Entries((took[(due > since) & (due <= until)], None))
            return Entries((lag.astype(np.float64), None))
        indicator = catalogue()[kind]
        found = measure_part(indicator, records, Lists(*of.extent) if of.extent else None)
        return found if not of.alone else successes(indicator, records, found) or found

    @cached_property
    def sent(self) -> tuple[Records, Records, Records]:
        """Of the planned load: rows issued, taken up, and sent."""
        rows = cancelled.planned(self._records).without_chunks()
        issued = rows.select(rows["status"] != Status.UNSENT)
        taken = issued.select(issued["ready_ns"] != -1)
        return issued, taken, issued.select(issued["sent_ns"] != -1)

    def marked(self, of: Of) -> tuple[IntArray, BoolArray]:
        """(rows ascending, bad): what counts against a share; of a metric the requests with a value, those that have
        the worst.
        """
        records = self.rows(of)
        if of.name in ("error", "good", "severity"):
            rows = np.flatnonzero(records.in_measure)
            if of.name == "error":
                return rows, ~records.ok[rows]
            good = goodput(records, self._objectives)
            return rows, ~good.good[rows] if of.name == "good" else np.isinf(good.severity[rows])
        has, bad = np.zeros(len(records), np.bool_), np.zeros(len(records), np.bool_)
        for values, row in self.values(of).slabs():
            has[row] = True
            bad[row[values == catalogue()[of.name].worst]] = True
        rows = np.flatnonzero(has)
        return rows, bad[rows]

    def late(self, again: bool) -> tuple[Records, IntArray, IntArray]:
        """(records, rows that were sent, by how much each left late)."""
        records = self.rows(Of(again=again))
        rows = np.flatnonzero(records.columns["status"] != Status.UNSENT)
        return records, rows, lateness.own(records, self._facts.pool_waits > 0)[rows]


# -- what the run did --------------------------------------------------------------------------------------------------


def _tally(part: Part, asked: Question) -> Digest:
    """How requests ended, what was good, and when: all that adds up at once."""
    records = part.rows(asked.of)
    found, good, done = count(records), goodput(records, part._objectives), throughput(records)
    rows = records.in_measure
    due, over = records["due_ns"][rows], records["done_ns"][rows]
    arrays: dict[str, IntArray] = {f"+{name}": _one(getattr(found, name)) for name in SUMS}
    arrays |= {f"+status/{name}": _one(number) for name, number in found.by_status.items()}
    arrays |= {f"+text/{text}": _one(0) for text in records.errors[:MOST_TEXTS]}
    for one in errors_of(records, MOST_TEXTS):
        arrays[f"+error/{one.status}/{one.text}"] = _one(one.count)
    tokens = [
        (total or 0, total is not None) for total in (done.output_tokens, done.input_tokens, done.input_tokens_planned)
    ]
    counting = ((records["n_out"] >= 0) | ~records.ok) & rows
    undone = over == -1
    arrays |= {
        "+rows": _one(len(records)),
        "+other_400": _one(bool(found.measured) and not found.all_empty_400),
        "+good": np.array([int(good.good.sum()), *(one.met for one in good.attainment)], np.int64),
        "+tokens": np.array(tokens, np.int64),
        "+counting": _one(int(np.count_nonzero(counting))),
        "+repeated": _one(int((bracket.repeated(records) & records.ok).sum())),
        "+live": _one(records.session is not None),
        "+together": _one(int(np.count_nonzero(records["sample_ix"] > 0))),
        "+flying": np.array([int((over - due)[~undone].clip(0).sum()), int(undone.sum()), int(due[undone].sum())]),
        ">span": _one(span_ns(records)),
    }
    if len(due):
        arrays |= {
            "<due": _one(int(due.min())),
            ">due": _one(int(due.max())),
            ">over": _one(max(int(over.max()), int(due.max()))),
            ">sent": _one(int(records["sent_ns"][rows].max())),
        }
    return Digest(arrays)


def _rows(part: Part, asked: Question) -> Digest:
    """Measured requests by stretches of due time."""
    records = part.rows(asked.of)
    place = bins_of(records["due_ns"][records.in_measure], asked.arrays["edges"])
    return Digest({"+rows": np.bincount(place, minlength=int(asked.arrays["edges"][2]))})


def _timeline(part: Part, asked: Question) -> Digest:
    """Measured requests by stretches of time: due, sent, answered and failed in each, how long all were in flight
    together, and how late the latest left.
    """
    rows, edges = part.rows(asked.of).without_chunks().measured(), asked.arrays["edges"]
    due, ready, sent, done = (rows[name] for name in ("due_ns", "ready_ns", "sent_ns", "done_ns"))
    left, begun, ended = sent >= 0, ready >= 0, np.where(done >= 0, done, edges[-1])
    failed = ~rows.ok & (rows["status"] != Status.UNSENT)
    counts = [
        np.bincount(cells_of(times, edges), minlength=len(edges) - 1)
        for times in (due, sent[left], ended[rows.ok], ended[failed])
    ]
    flying = np.zeros(len(edges), np.int64)
    for sign, times in ((1, np.sort(ready[begun])), (-1, np.sort(np.maximum(ended, ready)[begun]))):
        before = np.searchsorted(times, edges, "right")
        flying += sign * (before * edges - np.append(0, np.cumsum(times))[before])
    late = np.full(len(edges) - 1, NEVER)
    np.maximum.at(late, cells_of(due[left], edges), (sent - due)[left])
    return Digest({"+counts": np.stack(counts), "+flying": np.diff(flying), ">late": late})


def _failures(part: Part, asked: Question) -> Digest:
    """Measured failures by kind, the most frequent ones: how many, in which steps of time, from when to when, after how
    many first tokens, from which workers, and an example of the text.
    """
    records = part.rows(asked.of).without_chunks()
    records = records.select(np.flatnonzero(records.in_measure & ~records.ok))
    if not len(records):
        return Digest()
    kind, (start, step, steps) = kinds_of(records, np.arange(len(records))), asked.arrays["steps"].tolist()
    when = np.where(records["done_ns"] >= 0, records["done_ns"], records["due_ns"])
    arrays: dict[str, IntArray] = {}
    for one in np.argsort(-np.bincount(kind), kind="stable")[:MOST_KINDS].tolist():
        mine = records.select(np.flatnonzero(kind == one))
        texts, at, workers = np.bincount(mine["error"] + 1), when[kind == one], mine["worker"]
        first = int(np.argmax(texts)) - 1
        name = f"{Status(int(mine['status'][0])).name}/{int(mine['code'][0])}/{shape_of(records, first).hex()}"
        early = np.bincount(np.minimum(np.maximum(at - start, 0) // step, steps - 1), minlength=steps)
        text = records.errors[first][:MOST_CHARACTERS] if first >= 0 else ""
        arrays |= {
            f"+kinds/{name}": np.array([len(mine), int(np.count_nonzero(mine["first_token_ns"] >= 0)), *early]),
            f"+text/{name}/{text}": _one(int(texts.max())),
            f"<first/{name}": _one(int(at.min())),
            f">last/{name}": np.array([int(at.max()), int(np.count_nonzero(texts))]),
            f"&workers/{name}": np.unique(workers[workers >= 0]),
        }
    return Digest(arrays)


# -- values and their order --------------------------------------------------------------------------------------------


def _extent(part: Part, asked: Question) -> Digest:
    longest, had, failed = extent(catalogue()[asked.of.name], part.rows(asked.of))
    return Digest({">longest": _one(longest), "+had": _one(had), "+failed": _one(failed)})


def _histogram(part: Part, asked: Question) -> Digest:
    entries, total = part.values(asked.of), 0.0
    counts: dict[int, int] = {}
    for values, _ in entries.slabs():
        place = buckets(values, BITS, UNDER)
        place[values == np.inf] = INFINITE
        cells, number = np.unique(place, return_counts=True)
        for cell, times in zip(cells.tolist(), number.tolist(), strict=True):
            counts[cell] = counts.get(cell, 0) + times
        total += float(values.sum())
    cells = np.array(sorted(counts.items()), np.int64).reshape(-1, 2).T
    valued = entries.n - getattr(entries, "failed", 0)
    if asked.of.extent:
        valued = asked.of.extent[1]
    elif not valued and entries.n and asked.of.name in catalogue():
        records = part.rows(asked.of)
        valued = int((catalogue()[asked.of.name].compute(records)[1] & records.in_measure).any())
    told = {"+n": entries.n, "+missing": getattr(entries, "missing", 0), "+failed": getattr(entries, "failed", 0)}
    arrays = {name: _one(number) for name, number in (told | {"+valued": valued}).items()}
    return Digest({"#cells": cells, "+sum": np.array([total]), **arrays})


def _below(part: Part, asked: Question) -> Digest:
    return Digest({"+below": part.values(asked.of).ordered.searchsorted(values_of(asked.arrays["keys"]), "left")})


def _inside(part: Part, asked: Question) -> Digest:
    """The values from each first key on and before each second one."""
    ordered = part.values(asked.of).ordered
    first, last = (ordered.searchsorted(values_of(keys), "left") for keys in asked.arrays["keys"])
    ranks = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
    return Digest({"&values": np.asarray(ordered[ranks], np.float64)})


def _squares(part: Part, asked: Question) -> Digest:
    centre = float(asked.arrays["centre"][0])
    found = sum(float(np.square(values - centre).sum()) for values, _ in part.values(asked.of).slabs())
    return Digest({"+squares": np.array([found])})


def _failing(part: Part, asked: Question) -> Digest:
    """Values of requests that failed, beyond a limit where one is given."""
    records, found = part.rows(asked.of), 0
    good = succeeded(catalogue()[asked.of.name], records)
    for values, row in part.values(asked.of).slabs():
        bad = ~good[row]
        if asked.text:
            bad &= Beyond(asked.text, float(asked.arrays["limit"][0])).of(values)  # type: ignore[arg-type]
        found += int(np.count_nonzero(bad))
    return Digest({"+failing": _one(found)})


def _crowd(part: Part, asked: Question) -> Digest:
    """Of requests with several values: how the bad ones lie in them."""
    bad, entries = Beyond(asked.text, float(asked.arrays["limit"][0])), part.values(asked.of)  # type: ignore[arg-type]
    assert entries.sizes is not None
    counts = np.zeros(len(entries.sizes), np.int64)
    for values, row in entries.slabs():
        np.add.at(counts, row[bad.of(values)], 1)
    most = int(np.count_nonzero(2 * counts > entries.sizes))
    pairs = [int((counts * counts).sum()), int((counts * entries.sizes).sum()), int(np.square(entries.sizes).sum())]
    return Digest({"+crowd": np.array([int(counts.sum()), *pairs, most], np.int64)})


def _marks(part: Part, asked: Question) -> Digest:
    """Entries and bad ones before moments of due time, and up to them."""
    rows, bad = part.marked(asked.of)
    due = part.rows(asked.of)["due_ns"][rows]
    order = np.argsort(due, kind="stable")
    due, so_far = due[order], np.append(0, np.cumsum(bad[order]))
    places = [np.searchsorted(due, asked.arrays["at"], side) for side in ("left", "right")]
    return Digest({"+marks": np.stack([place for one in places for place in (one, so_far[one])])})


# -- values in order of due time ---------------------------------------------------------------------------------------


def _windowed(due: IntArray, asked: Question) -> BoolArray:
    """Which moments lie in one of the windows that are asked for, ascending and apart."""
    begins, ends = asked.arrays["windows"]
    place = np.searchsorted(begins, due, side="right") - 1
    return np.asarray((place >= 0) & (due < ends[np.maximum(place, 0)]))


def _knots(part: Part, asked: Question) -> Digest:
    """The values of the requests that were due in some windows."""
    mine = _windowed(part.rows(asked.of)["due_ns"], asked)
    return Digest(
        {
            "&values": np.concatenate(
                [np.empty(0), *(values[mine[row]] for values, row in part.values(asked.of).slabs())]
            )
        }
    )


def _series(part: Part, asked: Question) -> Digest:
    """Ranks among some knots: their sums by cells of due time, their squares, and those of requests in windows."""
    records, entries, knots = part.rows(asked.of), part.values(asked.of), asked.arrays["knots"]
    n = len(records)
    twice, above = np.zeros(n), np.zeros((len(LEVELS), n))
    sizes, squares = np.zeros(n), 0.0
    for values, row in entries.slabs():
        rank = np.searchsorted(knots, values, "left") + np.searchsorted(knots, values, "right")
        np.add.at(twice, row, rank)
        np.add.at(sizes, row, 1)
        squares += float(np.square(rank.astype(np.float64)).sum())
        for level, counts in zip(LEVELS, above, strict=True):
            np.add.at(counts, row[rank > 2 * level * len(knots)], 1)
    rows = np.flatnonzero(sizes)
    due, twice, sizes, above = records["due_ns"][rows], twice[rows], sizes[rows], above[:, rows]
    edges = asked.arrays["edges"]
    place = cells_of(due, edges)
    bins = [np.bincount(place, weights, minlength=len(edges) - 1) for weights in (None, sizes, twice)]
    crowds = [[float((one * other).sum()) for other in (np.ones(len(one)), one, sizes)] for one in above]
    mine = _windowed(due, asked)
    return Digest(
        {
            "+bins": np.stack(bins).astype(np.int64),
            "+squares": np.array(
                [squares, *(float((twice * one).sum()) for one in (twice, sizes)), float(sizes @ sizes)]
            ),
            "+crowds": np.array(crowds),
            "&due": due[mine],
            "&twice": twice[mine].astype(np.int64),
            "&sizes": sizes[mine].astype(np.int64),
        }
    )


# -- the generator -----------------------------------------------------------------------------------------------------


def _late(part: Part, asked: Question) -> Digest:
    """Without stretches: from when to when something was under way; with: the greatest lateness in each, and in which
    something was.
    """
    records, rows, own = part.late(asked.of.again)
    due, done = records["due_ns"][rows], records["done_ns"][rows]
    if "edges" not in asked.arrays:
        if not own.any():
            return Digest()
        return Digest(
            {
                "<first": _one(int(due.min())),
                ">last": _one(int(max(due.max(), done.max()))),
                ">own": _one(int(own.max())),
            }
        )
    edges = asked.arrays["edges"]
    most, change = np.zeros(int(edges[2]), np.int64), np.zeros(int(edges[2]) + 1, np.int64)
    place = bins_of(due, edges)
    np.maximum.at(most, place, own)
    never = (done == -1) | bracket.one_of(records.columns["status"][rows], bracket.GIVEN_UP)
    ends = np.where(never, edges[2] - 1, bins_of(done, edges))
    np.add.at(change, place, 1)
    np.add.at(change, np.maximum(ends, place) + 1, -1)
    return Digest({">own": most, ">busy": (np.cumsum(change)[:-1] > 0).astype(np.int64)})


def _end(part: Part, asked: Question) -> Digest:
    """Hear how late the whole generator was, and what that leaves of these rows at the least: the lower end. It errs on
    the side of more lateness (docs/decisions/distributed.md).
    """
    records, rows, own = part.late(asked.of.again)
    edges, (upto, during) = asked.arrays["edges"], asked.arrays["late"]
    due, done, status = (records[name][rows] for name in ("due_ns", "done_ns", "status"))
    reach, doubtful, bunched = np.zeros(len(records), np.int64), *(np.zeros(len(records), np.bool_) for _ in range(2))
    reach[rows] = upto[np.where(done == -1, edges[2] - 1, bins_of(done, edges))]
    waited = np.maximum(records["ready_ns"][rows] - due, 0)
    timed_out = (status == Status.TIMEOUT) & (records["ready_ns"][rows] != -1) & (reach[rows] > waited)
    away = bracket.one_of(status, bracket.OVERLOAD) & (during[bins_of(due, edges)] > 0)
    doubtful[rows] = (timed_out | away) & (done != -1)
    doubtful &= records.in_measure
    bunched[rows] = own >= lateness.LAG_FLOOR_NS
    part._lower[asked.of.again] = LowerEnd(records, reach, doubtful, bunched)
    for of in [one for one in part._kept if one.end and one.again == asked.of.again]:
        del part._kept[of]
    most = int(reach[records.in_measure].max(initial=0))
    return Digest({"+doubtful": _one(int(doubtful.sum())), ">reach": _one(most)})


def _health(part: Part, asked: Question) -> Digest:
    """What the generator of this part kept of its promises, and what it planned, sent and stamped."""
    facts = replace(part._facts, min_queries=0, min_duration_ns=0, agents=0)
    if facts.process == "constant":  # a part of it, dealt by lot, has no constant gaps
        facts = replace(facts, process="constant, by lot")
    found = assess(part._records, facts, part._objectives, judged=asked.text == "judged")
    issued, taken, left = part.sent
    stamps = issued["stamp"][issued["first_byte_ns"] != -1]
    counts = {
        "rows": len(cancelled.planned(part._records)), "sent": found.sent, "taken": len(taken), "left": len(left),
        "queries": len(lateness.firsts(issued["query_id"])), "stamps": len(stamps),
        "kernel": int(np.count_nonzero(stamps == Stamp.KERNEL)), "paced": found.paced, "pooled": found.pooled,
    }  # fmt: skip
    arrays = {f"+{name}": _one(int(number)) for name, number in counts.items()}
    for check in found.checks:
        if check.name not in ("steady", "all sent", "min_queries", "min_duration"):
            told = f"+kept/{check.name}" if check.ok else f"+broken/{json.dumps(astuple(check))}"
            arrays[told] = _one(1)
    unsaid = found.unstable is not None  # of the backlog the whole is judged
    arrays |= {f"+warning/{text}": _one(1) for text in found.warnings[unsaid:]}
    gathered = found.merged_chunks
    arrays |= {"+chunks": _one(gathered.chunks), "+merged": _one(gathered.merged)}
    if gathered.uncertainty_p99_ns is not None:
        arrays[">uncertainty"] = _one(gathered.uncertainty_p99_ns)
    if found.arrivals is not None:
        arrays[f"+arrivals/{json.dumps(astuple(found.arrivals))}"] = _one(1)
    planned = cancelled.planned(part._records).without_chunks()
    planned = planned.select(planned["due_ns"] != -1)
    for name, rows, stamp in (("due", planned, "due_ns"), ("issued", issued, "due_ns"), ("sent", left, "sent_ns")):
        arrays[f"+{name}_n"] = _one(len(rows))
        if len(rows):
            times, first = rows[stamp], int(rows["due_ns"].min())
            arrays |= {f"<{name}_ns": _one(int(times.min())), f">{name}_ns": _one(int(times.max()))}
            arrays[f"<{name}_first"] = _one(first)
    done = part._records["done_ns"]
    return Digest(arrays | ({"<over": _one(int(done[done > 0].min()))} if bool((done > 0).any()) else {}))


def _flying(part: Part, asked: Question) -> Digest:
    """Requests due, and over, by some moments; and those of the plan, and of what was sent, that began together."""
    issued, _, left = part.sent
    due, done, at = issued["due_ns"], issued["done_ns"], asked.arrays["at"]
    over = at_most(np.where(done == -1, np.iinfo(np.int64).max, done), at)
    planned = cancelled.planned(part._records)["due_ns"]
    begun = []
    for rows, first in zip((planned[planned != -1], left["due_ns"]), asked.arrays["first"].tolist(), strict=True):
        freed = np.count_nonzero(rows < asked.arrays["over"])
        begun.append([int(np.count_nonzero(rows == first)), int(freed)])
    return Digest({"+due": at_most(due, at), "+over": over, "+begun": np.array(begun)})


_ANSWERS: Mapping[str, Callable[[Part, Question], Digest]] = {
    "tally": _tally, "rows": _rows, "extent": _extent, "histogram": _histogram, "below": _below, "inside": _inside,
    "squares": _squares, "failing": _failing, "crowd": _crowd, "marks": _marks, "knots": _knots, "series": _series,
    "late": _late, "end": _end, "health": _health, "flying": _flying, "timeline": _timeline,
    "failures": _failures,
}  # fmt: skip
