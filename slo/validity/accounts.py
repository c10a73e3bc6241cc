"""The books of a run: what was sent is what is recorded, and the rows are those that were written.

Workers count what they send, and add up a hash of each row that they record. The sums are of rows in any order, so a
worker, the coordinator that gathers its segments and the reader of a sealed directory come to the same ones. A row that
is gone, there twice or altered in any column moves them. Nothing is signed: whoever rewrites rows and sums together is
not found out.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.columns import blocks
from plimsoll.slo.records.labels import NO_LABELS, column_of, number_of
from plimsoll.slo.records.records import (
    COLUMNS,
    RAGGED,
    SESSION_COLUMNS,
    BoolArray,
    IntArray,
    Phase,
    Records,
    Stamp,
    Status,
)
from plimsoll.slo.validity.generator import Check, GeneratorFacts

#: Errors of rows that were made in place of what a worker sent and nobody recorded, or somebody took away.
DIED = "its worker died before it was recorded"
GONE = "its worker recorded it, and its row is gone"
LOST = (DIED, GONE)
_AT_ONCE = 1 << 16
_TEXTS = ("error", "server_timing", "slice")

_ODD = np.uint64(0x9E3779B97F4A7C15)

Hashes = npt.NDArray[np.uint64]


class Sums:
    """The sums of rows that come a part at a time, in any order; ``digests``: those of the rows that are counted."""

    def __init__(self) -> None:
        self._found: dict[str, int] = {}
        self.digests: dict[int, int] = {}

    def add(self, records: Records, counted: BoolArray | None = None, added: Collection[str] = ()) -> None:
        """These rows too. ``counted`` bool[n]: what their workers' digests are of; None: of none. ``added``: labels
        that those knew nothing of.
        """
        beyond = {*map(column_of, added)}
        for begin, end in blocks(records.chunk_offsets):
            total = None if counted is None else np.zeros(end - begin, np.uint64)
            for name, terms in _terms(records, begin, end):
                self._found[name] = (self._found.get(name, 0) + int(terms.sum())) % (1 << 64)
                if total is not None and name not in beyond:
                    total += terms
            if total is not None and counted is not None:
                here = counted[begin:end]
                self.add_digests(_by_worker(records["worker"][begin:end][here], total[here]))

    def add_digests(self, more: Mapping[int, int]) -> None:
        """Those of rows that were left out."""
        _add(self.digests, more)

    def texts(self) -> dict[str, str]:
        """Per column and list the sum of the hashes of its values, each with its query, sample and phase: 16 hex
        digits.
        """
        return {name: f"{value:016x}" for name, value in self._found.items()}


def sums(records: Records) -> dict[str, str]:
    """``Sums`` of all of these rows."""
    found = Sums()
    found.add(records)
    return found.texts()


def digests(records: Records) -> dict[int, int]:
    """worker -> the sum over all columns of its rows. Those of parts add up, modulo 2^64, to that of the whole."""
    found: dict[int, int] = {}
    for begin, end in blocks(records.chunk_offsets):
        total = np.zeros(end - begin, np.uint64)
        for _, terms in _terms(records, begin, end):
            total += terms
        _add(found, _by_worker(records["worker"][begin:end], total))
    return found


def _add(found: dict[int, int], more: Mapping[int, int]) -> None:
    for worker, total in more.items():
        found[worker] = (found.get(worker, 0) + total) % (1 << 64)


def _by_worker(worker: IntArray, total: Hashes) -> dict[int, int]:
    if not len(worker):
        return {}
    if bool((worker == worker[0]).all()):
        return {int(worker[0]): int(total.sum())}
    order = np.argsort(worker.astype(COLUMNS["worker"]), kind="stable")
    ordered = worker[order]
    begins = np.flatnonzero(np.append(True, np.diff(ordered) != 0))
    return dict(zip(ordered[begins].tolist(), np.add.reduceat(total[order], begins).tolist(), strict=True))


def altered(now: Mapping[str, str], sealed: Mapping[str, str], held: Collection[str] = ()) -> list[str]:
    """Names of the columns whose sums ``now`` are not those of when the run was sealed, and of those among ``held``
    that had none.

    ``held``: the columns that the files have. A column that is younger than the files is neither in them nor among the
    sums.
    """
    unknown = [name for name in now if name in held and name not in sealed]
    return unknown + [name for name, value in sealed.items() if now.get(name, f"{0:016x}") != value]


def check(records: Records, facts: GeneratorFacts) -> Check:
    """Everything sent has a row, and every row was sent: one line with all the counts."""
    status, phase = records.columns["status"], records.columns["phase"]
    warm, planned = phase == Phase.WARMUP, records.planned
    taken = status != Status.UNSENT
    n_planned, warmed = int(np.count_nonzero(planned)), int(np.count_nonzero(warm & taken))
    attempts = int(np.count_nonzero(phase == Phase.ATTEMPT))
    mine = taken & planned
    here_too, answered, cancelled = (
        int(np.count_nonzero(rows))
        for rows in (mine, mine & (status == Status.OK), mine & (status == Status.CANCELLED))
    )
    held = _lost_rows(records, mine)
    failed, lost = here_too - answered - cancelled - held, held + facts.lost
    here = here_too - held
    sent = here + lost if facts.sent < 0 else facts.sent - warmed - attempts
    parts = f"answered {answered:,} + failed {failed:,} + cancelled {cancelled:,} + lost {lost:,}"
    closes = sent == here + lost
    detail = f"sent {sent:,} = {parts}" if closes else f"sent {sent:,} is not {parts}, which is {here + lost:,}"
    detail += f"; recorded {here:,}; warm-up {warmed:,}; retried {facts.retried:,}"
    if facts.open_loop:
        unsent, never = n_planned - here_too, facts.unreached - facts.lost  # turns that were sent and lost have no rows
        detail += f"; planned {max(facts.planned, facts.plan_samples) + facts.unreached:,}, unsent {unsent:,}"
        detail += f", never due {never:,}" if never > 0 else ""
        detail += f", and {-never:,} of the lost not of the plan (warm-up, attempts)" if never < 0 else ""
    detail += f"; rows of single attempts {attempts:,}" if attempts else ""
    if facts.account_faults:
        detail += f". {'; '.join(facts.account_faults)}"
    fix = "Measure again, and let nothing touch the run directory until the run is over; see worker.log"
    return Check("accounting", closes and not lost and not facts.account_faults, detail, fix)


def _lost_rows(records: Records, mask: npt.NDArray[np.bool_]) -> int:
    """How many of these rows stand for requests that nobody recorded."""
    texts = [place for place, text in enumerate(records.errors) if text in LOST]
    if not texts:
        return 0
    rows = np.flatnonzero(mask & (records.columns["status"] == Status.UNFINISHED))
    return int(np.isin(records.columns["error"][rows], texts).sum())


def _terms(records: Records, begin: int, end: int) -> Iterator[tuple[str, Hashes]]:
    """Per column and list: uint64[end - begin], the hash of each value with its row's identity.

    Of what only sessions have, "did not happen" is 0: rows without a session may have blank columns of one, or none.
    """
    rows = slice(begin, end)
    key, found, spare = (np.zeros(end - begin, np.uint64) for _ in range(3))
    for name in ("query_id", "sample_ix", "phase"):
        key += _whole(records.columns[name][rows])
        if name != "query_id":
            _mix(key, spare)

    def hashed(name: str, values: Hashes) -> Hashes:
        if len(values) and values[0] == values[-1] and bool((values == values[0]).all()):
            np.bitwise_xor(_mix(values[:1] + _seed(name)), key, out=found)
        else:
            np.add(values, _seed(name), out=found)
            np.bitwise_xor(_mix(found, spare), key, out=found)
        return _mix(found, spare)

    for name in COLUMNS:
        column = records.columns[name][rows]
        yield name, hashed(name, _of_texts(records.table(name), column) if name in _TEXTS else _whole(column))
    some = records.chunks.part(begin, end)
    yield "chunk_ns", _of_lists("chunk_ns", some, records.chunk_offsets[begin : end + 1], key)
    labels = records.labels or NO_LABELS
    for label, places in labels.columns.items():
        column, words = places[rows], labels.texts.get(label)
        terms = hashed(column_of(label), _whole(column) if words is None else _of_texts(words, column, numbers=True))
        yield column_of(label), np.where(column == -1, np.uint64(0), terms)
    if records.session is None:
        return
    for name in SESSION_COLUMNS:
        column = records.session.columns[name][rows]
        terms = hashed(name, _of_texts(records.table(name), column) if name in _TEXTS else _whole(column))
        yield name, np.where(column == -1, np.uint64(0), terms)
    for name in RAGGED:
        listed, offsets = records.session.ragged[name]
        bounds = offsets[begin : end + 1]
        yield name, _of_lists(name, listed[bounds[0] : bounds[-1]], bounds, key)


def _of_lists(name: str, values: IntArray, offsets: IntArray, key: Hashes) -> Hashes:
    """One hash a list, of its values and their places; 0 for an empty one.

    Of chunks the place is known: their times never fall.
    """
    lengths, starts = np.diff(offsets), offsets - offsets[0]
    each = _whole(values) * _ODD
    if name != "chunk_ns":
        each = _mix(each + _whole(np.arange(len(each)) - np.repeat(starts[:-1], lengths)))
    each ^= each >> np.uint64(32)
    each *= _ODD
    so_far = np.zeros(len(each) + 1, np.uint64)
    np.cumsum(each, out=so_far[1:])
    added = so_far[starts[1:]] - so_far[starts[:-1]]
    return np.where(lengths == 0, np.uint64(0), _mix(_mix(added + _whole(lengths) + _seed(name)) ^ key))


def _whole(values: npt.NDArray[Any]) -> Hashes:
    return values.astype(np.int64, copy=False).view(np.uint64)


def _of_texts(texts: Sequence[str], column: npt.NDArray[Any], numbers: bool = False) -> Hashes:
    """A hash of each row's text, 0 for none and for an index outside the table.

    Of texts as files hold them: see ``plimsoll.slo.records.tables``. ``numbers``: one that is a number counts as that,
    for workers keep texts where a run may have a column of numbers.
    """
    place = np.where((column >= 0) & (column < len(texts)), column, -1)
    used = [*range(len(texts)), -1]
    if len(texts) > len(place):  # of texts that differ from row to row only the rows' own
        found, place = np.unique(place, return_inverse=True)
        used = found.tolist()
    each = [_eight(texts[i], numbers) if i >= 0 else bytes(8) for i in used]
    return np.frombuffer(b"".join(each), "<u8").astype(np.uint64)[place]


def _eight(text: str, numbers: bool) -> bytes:
    if numbers and (number := number_of(text)) >= 0:
        return number.to_bytes(8, "little")
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()


@cache
def _seed(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"))


def _mix(values: Hashes, spare: Hashes | None = None) -> Hashes:
    """The finaliser of SplitMix64, in place: each bit of the input moves half of the output's.

    ``spare``: room for as many.
    """
    spare = np.empty_like(values) if spare is None else spare
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        np.right_shift(values, np.uint64(shift), out=spare)
        np.bitwise_xor(values, spare, out=values)
        if factor != 1:
            np.multiply(values, np.uint64(factor), out=values)
    return values


# -- contradictions: what no honest recorder can have written ---------------------------------------------------------

# Only the measured rows are looked at: warm-up rows came before t0, where -1 and a time can't be told apart.

#: Kernel arrival stamps come from another clock than user stamps; comparing the two is good to this.
CLOCK_TOLERANCE_NS = 20_000

#: (earlier, later, compares a user stamp with an arrival): where both happened, the later may not come first.
_ORDER = (
    ("due_ns", "ready_ns", False),
    ("ready_ns", "sent_ns", False),
    ("sent_ns", "first_byte_ns", True),
    ("first_byte_ns", "headers_ns", False),
    ("first_byte_ns", "first_token_ns", False),
    ("first_token_ns", "first_answer_ns", False),
    ("first_token_ns", "last_token_ns", False),
    ("first_answer_ns", "last_token_ns", False),
    ("first_byte_ns", "done_ns", True),
    ("last_token_ns", "done_ns", True),
    ("sent_ns", "done_ns", True),
)

_TIMES = tuple(dict.fromkeys(name for early, late, _ in _ORDER for name in (early, late)))


class _Contradictions:
    """Rows of each kind of contradiction, counted block by block; kinds in the order in which they are looked for."""

    def __init__(self, records: Records) -> None:
        self.records, self.begin, self.rows = records, 0, np.empty(0, np.bool_)
        self.found: dict[str, tuple[int, int]] = {}

    def begin_block(self, begin: int, end: int) -> bool:
        """Whether any of these rows are looked at: the measured ones."""
        self.begin, self.rows = begin, np.asarray(self.records.columns["phase"][begin:end] == Phase.MEASURE)
        return bool(self.rows.any())

    def __getitem__(self, name: str) -> IntArray:
        column = self.records.columns[name][self.begin : self.begin + len(self.rows)]
        return np.asarray(column.astype(np.int64, copy=False))

    def report(self, bad: BoolArray, what: str) -> None:
        """``bad`` bool[rows of the block]"""
        bad = bad & self.rows
        count, first = self.found.setdefault(what, (0, -1))
        if more := int(np.count_nonzero(bad)):
            self.found[what] = count + more, first if count else self.begin + int(bad.argmax())

    def texts(self) -> list[str]:
        """One text a kind."""
        query, sample = self.records.columns["query_id"], self.records.columns["sample_ix"]
        return [
            f"{count} rows: {what} (first: query {query[first]} sample {sample[first]})"
            for what, (count, first) in self.found.items()
            if count
        ]


def contradictions(records: Records) -> list[str]:
    """One text per kind of contradiction, with the number of rows and the first of them; empty: none."""
    offsets = records.chunk_offsets
    if offsets[0] != 0 or offsets[-1] != len(records.chunk_ns) or not bool((offsets[1:] >= offsets[:-1]).all()):
        return ["the offsets of chunk_ns do not partition it"]
    rows = _Contradictions(records)
    for begin, end in blocks(offsets):
        if rows.begin_block(begin, end):
            _orders(rows)
            _statuses(rows)
            if not records.chunks.dropped:
                _chunks(rows, records.chunks.part(begin, end), offsets[begin : end + 1])
            for name, table in (("error", records.errors), ("server_timing", records.timings)):
                column = rows[name]
                rows.report((column < -1) | (column >= len(table)), f"{name} points outside its table")
    repeated, first = _repeated(records)
    if repeated:
        rows.found["the same query and sample has more than one row"] = repeated, first
    return rows.texts()


def _orders(rows: _Contradictions) -> None:
    """What comes before what."""
    times = {name: rows[name] for name in _TIMES}
    happened = {name: column != -1 for name, column in times.items()}
    slack = np.where(rows["stamp"] == Stamp.KERNEL, CLOCK_TOLERANCE_NS, 0)
    for early, late, clocks_differ in _ORDER:
        after = times[late] + slack if clocks_differ else times[late]
        rows.report((after < times[early]) & happened[early] & happened[late], f"{late} is earlier than {early}")
    for name, column in times.items():
        rows.report(column < -1, f"{name} is before t0 in a measured row")


def _statuses(rows: _Contradictions) -> None:
    """What a status says must have happened, or not."""
    status = rows["status"]
    sent, done = rows["sent_ns"] != -1, rows["done_ns"] != -1
    rows.report((status < 0) | (status >= len(Status)), "status is not a known one")
    rows.report((status == Status.OK) & ~sent, "status is OK but nothing was sent")
    rows.report((status == Status.OK) & ~done, "status is OK but there is no done_ns")
    rows.report((status == Status.UNSENT) & sent, "status is UNSENT but sent_ns is set")
    rows.report(~sent & (rows["first_byte_ns"] != -1), "an answer arrived but nothing was sent")
    rows.report((rows["attempts"] > 0) != sent, "attempts and sent_ns disagree on whether it was sent")
    rows.report(rows["due_ns"] == -1, "due_ns is missing")


def _chunks(rows: _Contradictions, times: IntArray, offsets: IntArray) -> None:
    """What their own chunks say."""
    rows.report(rows["n_chunks"] != np.diff(offsets), "n_chunks is not the number of chunk_ns")
    falls = np.zeros(len(rows.rows), bool)
    down = np.flatnonzero(times[1:] < times[:-1]) + 1 + offsets[0]
    owner = np.searchsorted(offsets, down, side="right") - 1
    falls[owner[offsets[owner] != down]] = True
    rows.report(falls, "chunk_ns goes back in time")


def _repeated(records: Records) -> tuple[int, int]:
    """How many measured rows have the query_id and sample_ix of an earlier one, and the first of them."""
    measured = records.measured()
    query, sample = measured["query_id"], measured["sample_ix"]
    order: IntArray | None = None  # a sealed run has its rows by query and sample
    for ids, samples in _pairs(query, sample):
        if bool((ids[1:] < ids[:-1]).any()) or bool(((ids[1:] == ids[:-1]) & (samples[1:] < samples[:-1])).any()):
            order = np.lexsort((sample, query))
            query, sample = query[order], sample[order]
            break
    count, first, begin = 0, len(query), 1
    for ids, samples in _pairs(query, sample):
        again = np.flatnonzero((ids[1:] == ids[:-1]) & (samples[1:] == samples[:-1])) + begin
        again = again if order is None else order[again]
        count, first, begin = count + len(again), min(first, int(again.min(initial=first))), begin + _AT_ONCE
    return count, int(np.flatnonzero(records.in_measure)[first]) if count else -1


def _pairs(query: IntArray, sample: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Both a part at a time, each with the first entry of the next."""
    for begin in range(0, len(query), _AT_ONCE):
        yield query[begin : begin + _AT_ONCE + 1], sample[begin : begin + _AT_ONCE + 1]
