"""The books of a run: what was sent is what is recorded, and the rows are those that were written.

Workers count what they send, and add up a hash of each row that they record. The sums are of rows in any order, so a
worker, the coordinator that gathers its segments and the reader of a sealed directory come to the same ones. A row that
is gone, there twice or altered in any column moves them. Nothing is signed: whoever rewrites rows and sums together is
not found out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

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
#: What is worked on at once, a row counting as eight stamps of chunks: it stays in the processor's cache.
_BLOCK = 1 << 18
_TEXTS = ("error", "server_timing", "slice")

_ODD = np.uint64(0x9E3779B97F4A7C15)

Hashes = npt.NDArray[np.uint64]


def sums(records: Records) -> dict[str, str]:
    """Per column and list the sum of the hashes of its values, each with its query, sample and phase: 16 hex digits."""
    found: dict[str, int] = {}
    for rows in _blocks(records):
        for name, terms in _terms(records, *rows):
            found[name] = (found.get(name, 0) + int(terms.sum())) % (1 << 64)
    return {name: f"{value:016x}" for name, value in found.items()}


def digests(records: Records) -> dict[int, int]:
    """worker -> the sum over all columns of its rows. Those of parts add up, modulo 2^64, to that of the whole."""
    found: dict[int, int] = {}
    for begin, end in _blocks(records):
        total = np.zeros(end - begin, np.uint64)
        for _, terms in _terms(records, begin, end):
            total += terms
        worker = records["worker"][begin:end]
        for one in np.unique(worker).tolist():
            found[one] = (found.get(one, 0) + int(total[worker == one].sum())) % (1 << 64)
    return found


class Books:
    """``sums`` and ``digests`` of rows that come block by block; of a row both are made at once."""

    def __init__(self) -> None:
        self.digests: dict[int, int] = {}
        self._sums: dict[str, int] = {}

    def add(self, records: Records, counted: BoolArray | None = None) -> None:
        """The next rows. Digests are of those that are ``counted`` bool[n]; None: of all."""
        for begin, end in _blocks(records):
            total = np.zeros(end - begin, np.uint64)
            for name, terms in _terms(records, begin, end):
                self._sums[name] = (self._sums.get(name, 0) + int(terms.sum())) % (1 << 64)
                total += terms
            worker = records["worker"][begin:end]
            if counted is not None:
                worker, total = worker[counted[begin:end]], total[counted[begin:end]]
            self._count(worker, total)

    def _count(self, worker: IntArray, total: Hashes) -> None:
        if not len(worker):
            return
        order = np.argsort(worker.astype(COLUMNS["worker"]), kind="stable")
        ordered = worker[order]
        begins = np.flatnonzero(np.append(True, np.diff(ordered) != 0))
        self.add_digests(
            dict(zip(ordered[begins].tolist(), np.add.reduceat(total[order], begins).tolist(), strict=True))
        )

    def add_digests(self, more: Mapping[int, int]) -> None:
        """Those of rows that were left out."""
        for worker, total in more.items():
            self.digests[worker] = (self.digests.get(worker, 0) + total) % (1 << 64)

    @property
    def sums(self) -> dict[str, str]:
        """Of all rows so far, as ``sums`` has them."""
        return {name: f"{value:016x}" for name, value in self._sums.items()}


def altered(records: Records, sealed: dict[str, str], held: Collection[str] = ()) -> list[str]:
    """Names of the columns whose sums are not those of ``sums`` when the run was sealed, and of those among ``held``
    that have none.

    ``held``: the columns that the files have. A column that is younger than the files is neither in them nor among the
    sums.
    """
    now = sums(records)
    unknown = [name for name in now if name in held and name not in sealed]
    return unknown + [name for name, value in sealed.items() if now.get(name, f"{0:016x}") != value]


def check(records: Records, facts: GeneratorFacts) -> Check:
    """Everything sent has a row, and every row was sent: one line with all the counts."""
    warm = records["phase"] == Phase.WARMUP
    status = records["status"]
    taken = status != Status.UNSENT
    mine = status[~warm & taken]
    ended = np.bincount(mine[(mine >= 0) & (mine < len(Status))], minlength=len(Status))
    held = _lost_rows(records, ~warm & taken)
    answered, cancelled = int(ended[Status.OK]), int(ended[Status.CANCELLED])
    failed, lost, warmed = len(mine) - answered - cancelled - held, held + facts.lost, int((warm & taken).sum())
    here = len(mine) - held
    sent = here + lost if facts.sent < 0 else facts.sent - warmed
    parts = f"answered {answered:,} + failed {failed:,} + cancelled {cancelled:,} + lost {lost:,}"
    closes = sent == here + lost
    detail = f"sent {sent:,} = {parts}" if closes else f"sent {sent:,} is not {parts}, which is {here + lost:,}"
    detail += f"; recorded {here:,}; warm-up {warmed:,}; retried {facts.retried:,}"
    if facts.open_loop:
        unsent = int((~warm & ~taken).sum())
        detail += f"; planned {max(facts.planned, facts.plan_samples):,}, unsent {unsent:,}"
    if facts.account_faults:
        detail += f". {'; '.join(facts.account_faults)}"
    fix = "Measure again, and let nothing touch the run directory until the run is over; see worker.log"
    return Check("accounting", closes and not lost and not facts.account_faults, detail, fix)


def _lost_rows(records: Records, mask: npt.NDArray[np.bool_]) -> int:
    """How many of these rows stand for requests that nobody recorded."""
    texts = [place for place, text in enumerate(records.errors) if text in LOST]
    if not texts:
        return 0
    return int((mask & np.isin(records["error"], texts) & (records["status"] == Status.UNFINISHED)).sum())


def _blocks(records: Records) -> Iterator[tuple[int, int]]:
    """(begin, end) of rows."""
    n = len(records)
    weight = 8 * np.arange(n + 1) + records.chunk_offsets
    begin = 0
    while begin < n:
        end = max(begin + 1, int(np.searchsorted(weight, weight[begin] + _BLOCK, side="right")) - 1)
        yield begin, min(end, n)
        begin = end


def _terms(records: Records, begin: int, end: int) -> Iterator[tuple[str, Hashes]]:
    """Per column and list: uint64[end - begin], the hash of each value with its row's identity.

    Of what only sessions have, "did not happen" is 0: rows without a session may have blank columns of one, or none.
    """
    rows = slice(begin, end)
    key = _whole(records["query_id"][rows])
    for name in ("sample_ix", "phase"):
        key = _mix(key + _whole(records[name][rows]))
    for name in COLUMNS:
        values = _of_texts(records, name, rows) if name in _TEXTS else _whole(records[name][rows])
        yield name, _mix(_mix(values + _seed(name)) ^ key)
    yield "chunk_ns", _of_lists("chunk_ns", records.chunk_ns, records.chunk_offsets[begin : end + 1], key)
    if records.session is None:
        return
    for name in SESSION_COLUMNS:
        column = records[name][rows]
        values = _of_texts(records, name, rows) if name in _TEXTS else _whole(column)
        yield name, np.where(column == -1, np.uint64(0), _mix(_mix(values + _seed(name)) ^ key))
    for name in RAGGED:
        listed, offsets = records.session.ragged[name]
        yield name, _of_lists(name, listed, offsets[begin : end + 1], key)


def _of_lists(name: str, values: IntArray, offsets: IntArray, key: Hashes) -> Hashes:
    """One hash a list, of its values and their places; 0 for an empty one.

    Of chunks the place is known: their times never fall.
    """
    lengths = np.diff(offsets)
    each = _whole(values[offsets[0] : offsets[-1]]) * _ODD
    if name != "chunk_ns":
        each = _mix(each + _whole(np.arange(len(each)) - np.repeat(offsets[:-1] - offsets[0], lengths)))
    each ^= each >> np.uint64(32)
    each *= _ODD
    so_far = np.zeros(len(each) + 1, np.uint64)
    np.cumsum(each, out=so_far[1:])
    ends = offsets - offsets[0]
    added = so_far[ends[1:]] - so_far[ends[:-1]]
    return np.where(lengths == 0, np.uint64(0), _mix(_mix(added + _whole(lengths) + _seed(name)) ^ key))


def _whole(values: IntArray) -> Hashes:
    return np.ascontiguousarray(values, np.int64).view(np.uint64)


def _of_texts(records: Records, name: str, rows: slice) -> Hashes:
    """A hash of each row's text, 0 for none and for an index outside the table.

    Of texts as files hold them: see ``plimsoll.slo.records.tables``.
    """
    texts: Sequence[str] = records.table(name)
    each = [blake2b(text.encode("utf-8", "replace"), digest_size=8).digest() for text in texts]
    table = np.frombuffer(b"".join([*each, bytes(8)]), "<u8").astype(np.uint64)
    place = records[name][rows]
    return table[np.where((place >= 0) & (place < len(texts)), place, -1)]


@cache
def _seed(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"))


def _mix(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64: each bit of the input moves half of the output's."""
    found = values ^ (values >> np.uint64(30))
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found


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


def contradictions(records: Records) -> list[str]:
    """One text per kind of contradiction, with the number of rows and the first of them; empty: none."""
    lengths = np.diff(records.chunk_offsets)
    if records.chunk_offsets[0] != 0 or records.chunk_offsets[-1] != len(records.chunk_ns) or (lengths < 0).any():
        return ["the offsets of chunk_ns do not partition it"]
    rows = records.in_measure
    found: list[str] = []

    def report(bad: BoolArray, what: str) -> None:
        at = np.flatnonzero(bad & rows)
        if len(at):
            first = int(at[0])
            where = f"query {records['query_id'][first]} sample {records['sample_ix'][first]}"
            found.append(f"{len(at)} rows: {what} (first: {where})")

    slack = np.where(records["stamp"] == Stamp.KERNEL, CLOCK_TOLERANCE_NS, 0)
    for early, late, clocks_differ in _ORDER:
        before, after = records[early], records[late]
        both = (before != -1) & (after != -1)
        report(both & (after + (slack if clocks_differ else 0) < before), f"{late} is earlier than {early}")
    for name in _TIMES:
        report(records[name] < -1, f"{name} is before t0 in a measured row")
    _statuses(records, report)
    report(records["n_chunks"] != lengths, "n_chunks is not the number of chunk_ns")
    falls = np.zeros(len(records), bool)
    down = np.flatnonzero(np.diff(records.chunk_ns) < 0) + 1
    owner = np.searchsorted(records.chunk_offsets, down, side="right") - 1
    falls[owner[records.chunk_offsets[owner] != down]] = True
    report(falls, "chunk_ns goes back in time")
    for name, table in (("error", records.errors), ("server_timing", records.timings)):
        report((records[name] < -1) | (records[name] >= len(table)), f"{name} points outside its table")
    report(_repeated(records), "the same query and sample has more than one row")
    return found


def _statuses(records: Records, report: Callable[[BoolArray, str], None]) -> None:
    """What a status says must have happened, or not."""
    status = records["status"]
    sent, done = records["sent_ns"] != -1, records["done_ns"] != -1
    report((status < 0) | (status >= len(Status)), "status is not a known one")
    report((status == Status.OK) & ~sent, "status is OK but nothing was sent")
    report((status == Status.OK) & ~done, "status is OK but there is no done_ns")
    report((status == Status.UNSENT) & sent, "status is UNSENT but sent_ns is set")
    report(~sent & (records["first_byte_ns"] != -1), "an answer arrived but nothing was sent")
    report((records["attempts"] > 0) != sent, "attempts and sent_ns disagree on whether it was sent")
    report(records["due_ns"] == -1, "due_ns is missing")


def _repeated(records: Records) -> BoolArray:
    """bool[n]: an earlier measured row has this row's query_id and sample_ix."""
    again = np.zeros(len(records), bool)
    rows = np.flatnonzero(records["phase"] == Phase.MEASURE)
    query, sample = records["query_id"][rows], records["sample_ix"][rows]
    order = np.lexsort((sample, query))
    same = (np.diff(query[order]) == 0) & (np.diff(sample[order]) == 0)
    again[rows[order[1:][same]]] = True
    return again
