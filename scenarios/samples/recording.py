"""A recording in order of time, any part of which can be read. More than a megabyte of it lies in a file without a
name, so that memory does not grow with it. Only one that was not in order of time is sorted, in 32 bytes a row.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from plimsoll.scenarios.plan.plan import IntArray

#: Bytes that stay in memory, and rows that are put in order at a time.
KEPT, STEP = 1 << 20, 1 << 16
#: A row of a file, of one that may have ids of blocks, and of a run.
FILE = np.dtype([("at_ns", "<i8"), ("n_in", "<i4"), ("n_out", "<i4")])
BLOCKS = np.dtype([*FILE.descr, ("ids", "<i8"), ("ids_len", "<i8")])
RUN = np.dtype([(name, "<i8") for name in ("at_ns", "n_in", "n_out", "query_id", "sample_ix", "payload_ix")])
#: Tokens of the prompt that one of Mooncake's hash ids stands for.
BLOCK_TOKENS = 512
#: What some files know of a request beside that, each -1 where it is not known of one. ``parent`` is gone when sealed.
OPTIONAL = {
    **{"session": "<i8", "parent": "<i8", "turn": "<i4", "think_ns": "<i8", "status": "i1", "gave_up_ns": "<i8"},
    **{"barge_in_ns": "<i8"},
    **{"latency_ns": "<i8", "ttft_ns": "<i8", "images": "<i4", "attempt": "<i4", "bytes_in": "<i8", "bytes_out": "<i8"},
}
#: Where the words of a request are, of a file that has some.
_SAID = ("said", "said_len")
#: How a request ended, by the numbers that the records of a run of ours have for it.
STATUSES = ("ok", "http", "grpc", "timeout", "connect", "protocol", "refused", "cancelled", "unfinished", "unsent")
OK, FAILED, TIMEOUT, CONNECT, REFUSED, CANCELLED = 0, 1, 3, 4, 6, 7
#: A label of more values is refused: they are held in memory.
MOST_VALUES = 1 << 16
#: Before any time.
_NEVER = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Trace:
    """Consecutive requests, in order of time.

    ``at_ns`` int64[n] from the recording's first request, which is at 0 (of one that is not ``timed``: as the file has
    it); ``n_in`` and ``n_out`` int64[n] in tokens, -1 unknown; ``query`` int64[n]: rows with the same one belong to one
    query (of several samples); ``payload_ix`` int64[n]: the sample of its source that a run of ours sent, else None;
    ``blocks``: per row the ids of its prompt's blocks, else None.

    The rest is None where the file knows it of no request, and -1 where not of this one: ``session`` (numbered by
    first appearance) and ``turn`` of it (from 1), ``think_ns`` from the end of the turn before, ``status`` as records
    have it, ``gave_up_ns`` after its start, when the client cancelled, ``barge_in_ns`` after the first sound of the
    answer before, when its user spoke over that, ``latency_ns`` and ``ttft_ns`` as measured then,
    ``images`` in the prompt, ``attempt`` (from 0), ``bytes_in`` and ``bytes_out`` of the bodies; ``labels``: name ->
    what each row has of the texts, and the texts.
    """

    at_ns: IntArray
    n_in: IntArray
    n_out: IntArray
    query: IntArray
    payload_ix: IntArray | None = None
    blocks: tuple[tuple[int, ...], ...] | None = None
    session: IntArray | None = None
    turn: IntArray | None = None
    think_ns: IntArray | None = None
    status: IntArray | None = None
    gave_up_ns: IntArray | None = None
    barge_in_ns: IntArray | None = None
    latency_ns: IntArray | None = None
    ttft_ns: IntArray | None = None
    images: IntArray | None = None
    attempt: IntArray | None = None
    bytes_in: IntArray | None = None
    bytes_out: IntArray | None = None
    labels: Mapping[str, tuple[IntArray, tuple[str, ...]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.at_ns)


class Spool:
    """Bytes that are added at the end and read anywhere."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._file: IO[bytes] | None = None
        self.size = 0

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, data: bytes) -> None:
        self._held += data
        self.size += len(data)
        if self.size > KEPT:
            self._file = self._file or tempfile.TemporaryFile(prefix="plimsoll-")  # noqa: SIM115 - it lives as long as this
            self._file.write(self._held)
            self._file.flush()
            self._held.clear()

    def read(self, begin: int, n: int) -> bytes:
        if self._file is None:
            return bytes(self._held[begin : begin + n])
        return os.pread(self._file.fileno(), n, begin)

    def mapped(self, row: np.dtype[Any]) -> npt.NDArray[Any]:
        return np.frombuffer(self._held, row) if self._file is None else np.memmap(self._file, row, "r")


class Recording:
    """Rows are added, then ``sealed``, then read. Raises OSError where there is no room for them.

    ``timed``: each request says when it came; else they are in the file's order, and times count from their session's
    start. ``waits``: only first turns do, and a later one comes when nobody needs time to answer. ``carries``: what its
    requests have that not every protocol has. ``cumulative``: ``n_in`` of a turn contains the turns before it.
    ``block_tokens``: what one id of a block stands for. ``form``: the format that it was read from. ``origin_ns``: of a
    class of a run, when the run's first request came. ``resent``: attempts that have no rows.
    ``worded``: some say their own words.
    """

    def __init__(self, row: np.dtype[Any] = FILE, columns: Sequence[str] = (), labels: Sequence[str] = ()) -> None:
        self.blocks, self.grouped = row == BLOCKS, row == RUN  # rows of a run may share a query
        self._said = Spool() if "said" in columns else None
        more = [*(name for name in columns if name != "said"), *(_SAID if self._said is not None else ())]
        self._row = np.dtype([*row.descr, *((name, OPTIONAL.get(name, "<i8")) for name in more)])
        self._rows, self._ids = Spool(), Spool()
        self._keys = ("at_ns", "query_id", "sample_ix") if self.grouped else ("at_ns",)
        self._in_order = True
        self.texts: dict[str, dict[str, int]] = {}
        self.label(labels)
        self._first_ns = 0
        self._known: set[str] = set()
        self.last_ns = self.n_payloads = self.n_sessions = 0
        self.timed, self.cumulative, self.block_tokens, self.form = True, False, BLOCK_TOKENS, ""
        self.waits, self.carries = False, set[str]()
        self.origin_ns: int | None = None
        self.resent, self.worded = 0, False

    def __len__(self) -> int:
        return self._rows.size // self._row.itemsize

    def knows(self, column: str) -> bool:
        """Some request has it."""
        return column in self._known

    def label(self, names: Sequence[str]) -> None:
        """Room for labels, before the first row."""
        self._row = np.dtype([*self._row.descr, *((f"label:{name}", "<i4") for name in names)])
        self._last = np.empty(0, self._row)
        self.texts |= {name: {} for name in names}

    def add(
        self, columns: Mapping[str, Any], ids: Sequence[Sequence[int]] = (), said: Sequence[bytes | None] = ()
    ) -> None:
        """The next rows, ids of their blocks, and what they say; texts of labels and keys of sessions are numbers."""
        if self._said is not None and any(said):
            lengths = np.array([len(one or b"") for one in said])
            at = np.where(lengths, self._said.size + np.cumsum(lengths) - lengths, -1)
            columns = {**columns, "said": at, "said_len": lengths}
            self._said.add(b"".join(one or b"" for one in said))
        rows = np.empty(len(columns["at_ns"]), self._row)
        for name in rows.dtype.names or ():
            if name not in ("ids", "ids_len"):
                rows[name] = columns.get(name, -1)
                if name not in FILE.names and (rows[name] > (0 if name == "images" else -1)).any():  # type: ignore[operator]
                    self._known.add(name)
        if ids:
            texts = [" ".join(map(str, some)).encode() for some in ids]
            rows["ids_len"] = sizes = [*map(len, texts)]
            rows["ids"] = self._ids.size + np.cumsum(sizes) - sizes
            self._ids.add(b"".join(texts))
        if not len(rows):
            return
        known = np.concatenate((self._last, rows))
        self._in_order &= _ascends([known[key] for key in self._keys])
        self._last = rows[-1:]
        if self.grouped:
            self.n_payloads = max(self.n_payloads, int(rows["payload_ix"].max()) + 1)
        self._rows.add(rows.tobytes())

    def codes(self, label: str, values: Sequence[str | None]) -> list[int]:
        """What these texts of a label are written as. Raises ValueError for too many different ones."""
        known = self.texts[label]
        found = [-1 if not value else known.setdefault(value, len(known)) for value in values]
        if len(known) > MOST_VALUES:
            raise ValueError(f"{label} has more than {MOST_VALUES:,} different values. Leave it out: columns.ignore.")
        return found

    def sealed(self) -> Recording:
        """All rows are there: at least one. Raises ValueError for turns that come before themselves."""
        if self.waits:
            self.waits = self.timed = self._follows()
        if self.timed and not self._in_order:
            found, rows = self._rows.mapped(self._row), Spool()
            order = np.lexsort([found[key] for key in reversed(self._keys)])
            for begin in range(0, len(found), STEP):
                rows.add(found[order[begin : begin + STEP]].tobytes())
            self._rows = rows
        if "session" in self._known:
            self._number()
        if self.timed:
            self._first_ns = int(self._read(0, 1)["at_ns"][0]) if self.origin_ns is None else self.origin_ns
            self.last_ns = int(self._read(len(self) - 1, len(self))["at_ns"][0]) - self._first_ns
        return self

    def _number(self) -> None:
        """Sessions get numbers, their turns too where the file has none, and thinking the time that it took."""
        linked = "parent" in self._known
        keys = self._keys_in(("session", "parent")[: 1 + linked])
        roots = self._roots(keys) if linked else None
        number, turns, ended = (scratch(len(keys)) for _ in range(3))
        number[:], turns[:], ended[:] = -1, 0, _NEVER
        numbered, count = Spool(), "turn" in (self._row.names or ()) and "turn" not in self._known
        for rows in self._each():
            some = np.flatnonzero(rows["session"] != -1)
            of = np.searchsorted(keys, rows["session"][some])
            of = of if roots is None else roots[of]
            new, first = np.unique(of[number[of] < 0], return_index=True)
            number[new[np.argsort(first)]] = np.arange(len(new)) + self.n_sessions
            self.n_sessions += len(new)
            rows["session"][some] = number[of]
            if len(some):
                order = np.argsort(of, kind="stable")
                self._follow(rows, some[order], of[order], turns if count else None, ended)
            numbered.add(rows.tobytes())
        self._rows = numbered
        self._known |= {"turn"} if count else set()

    def _keys_in(self, names: Sequence[str]) -> IntArray:
        """All that these columns hold, each once, sorted."""
        keys = scratch(len(self) * len(names))
        for n, rows in enumerate(self._each()):
            for k, name in enumerate(names):
                begin = k * len(self) + n * STEP
                keys[begin : begin + len(rows)] = rows[name]
        keys.sort()  # in the file, as all of this: memory does not grow with it
        return _distinct(keys)

    def _follows(self) -> bool:
        """Each turn without a time (-1) comes when its user has thought, if nobody needs time to answer; False: some
        first turn has no time either.
        """
        keys, made = self._keys_in(("session",)), Spool()
        last = scratch(len(keys))
        last[:] = _NEVER
        for rows in self._each():
            of = np.searchsorted(keys, rows["session"])
            order = np.argsort(of, kind="stable")
            of, at, waits = of[order], rows["at_ns"][order], np.maximum(rows["think_ns"][order], 0)
            fresh = np.append(True, of[1:] != of[:-1])
            begins = np.flatnonzero(fresh | (at != -1))
            if (last[of[fresh & (at == -1)]] == _NEVER).any():
                return False
            before = np.where(at == -1, last[of] + waits, at)
            total = np.cumsum(waits)
            begin = np.repeat(begins, np.diff(np.append(begins, len(of))))
            rows["at_ns"][order] = at = before[begin] + total - total[begin]
            last[of[np.append(fresh[1:], True)]] = at[np.append(fresh[1:], True)]
            made.add(rows.tobytes())
        self._rows, self._in_order = made, False
        return True

    def _follow(
        self, rows: npt.NDArray[Any], at: IntArray, of: IntArray, turns: IntArray | None, ended: IntArray
    ) -> None:
        """The rows ``at``, session by session ``of``: which turn, and how long after the one before."""
        begins = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
        sizes = np.diff(np.append(begins, len(of)))
        if turns is not None:
            rows["turn"][at] = turns[of] + np.arange(1, len(of) + 1) - np.repeat(begins, sizes)
            turns[of[begins]] += sizes
        if "think_ns" in (rows.dtype.names or ()) and "latency_ns" in self._known:
            latency, due = rows["latency_ns"][at], rows["at_ns"][at]
            ends = np.where(latency >= 0, due + latency, _NEVER)
            before = np.append(_NEVER, ends[:-1])
            before[begins] = ended[of[begins]]
            known = (before != _NEVER) & (due >= before) & (rows["think_ns"][at] < 0)
            rows["think_ns"][at[known]] = (due - before)[known]
            self._known |= {"think_ns"} if known.any() else set()
            ended[of[begins]] = ends[begins + sizes - 1]

    def _roots(self, keys: IntArray) -> IntArray:
        """Of each key the place of the one with which its session began."""
        root = scratch(len(keys))
        root[:] = np.arange(len(keys))
        changed = True
        while changed:
            changed = False
            for rows in self._each():
                has = rows["parent"] != -1
                own, of = (np.searchsorted(keys, rows[name][has]) for name in ("session", "parent"))
                for _ in range(len(own) + 1):
                    if (root[own] == root[of]).all():
                        break
                    root[own] = root[of]
                    changed = True
                else:
                    raise ValueError("some turns come before themselves by their parents. Give a file that is whole.")
        return root

    def _each(self) -> Iterator[npt.NDArray[Any]]:
        for begin in range(0, len(self), STEP):
            yield self._read(begin, min(begin + STEP, len(self))).copy()

    def _read(self, begin: int, end: int) -> npt.NDArray[Any]:
        size = self._row.itemsize
        return np.frombuffer(self._rows.read(begin * size, (end - begin) * size), self._row)

    def lengths(self, rows: IntArray) -> IntArray:
        """``n_in`` of these rows, in any order."""
        found: IntArray = self._rows.mapped(self._row)["n_in"][rows].astype(np.int64)
        return found

    def rows(self, begin: int = 0, end: int | None = None) -> Trace:
        """This part of it."""
        found = self._read(begin, len(self) if end is None else min(end, len(self)))
        at_ns, n_in, n_out = (found[name].astype(np.int64) for name in ("at_ns", "n_in", "n_out"))
        more: dict[str, Any] = {
            name: found[name].astype(np.int64) for name in OPTIONAL if name != "parent" and name in self._known
        }
        labels = {
            name: (found[f"label:{name}"].astype(np.int64), (*texts,)) for name, texts in self.texts.items() if texts
        }
        if self.grouped:
            more |= {"query": found["query_id"].copy(), "payload_ix": found["payload_ix"].copy()}
        else:
            more["query"] = np.arange(begin, begin + len(found))
        if self._ids.size:
            where = zip(found["ids"].tolist(), found["ids_len"].tolist(), strict=True)
            more["blocks"] = tuple(tuple(map(int, self._ids.read(at, n).split())) for at, n in where)
        return Trace(at_ns - self._first_ns, n_in, n_out, labels=labels, **more)

    def said(self, row: int) -> Mapping[str, Any]:
        """What this request says: ``messages`` or ``prompt``, and ``fields``; nothing where nobody kept it."""
        if self._said is None:
            return {}
        at, n = (int(self.column(name, row, row + 1)[0]) for name in _SAID)
        return {} if at < 0 else dict(json.loads(self._said.read(at, n)))

    def times(self, begin: int, end: int) -> IntArray:
        """When these rows came."""
        return self.column("at_ns", begin, end) - self._first_ns

    def column(self, name: str, begin: int, end: int) -> IntArray:
        """What these rows have in a column that the file ``knows``, as it is written; -1 where it knows none."""
        if name not in (*FILE.names, *self._known):  # type: ignore[misc]
            return np.full(min(end, len(self)) - begin, -1)
        return np.asarray(self._read(begin, min(end, len(self)))[name].astype(np.int64))

    def before(self, at_ns: int) -> int:
        """How many rows are earlier."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if int(self._read(middle, middle + 1)["at_ns"][0]) - self._first_ns < at_ns:
                low = middle + 1
            else:
                high = middle
        return low

    def queries(self, begin: int, end: int, most: int) -> Iterator[tuple[int, Trace, IntArray]]:
        """Whole queries of this part, of about so many rows each time: where its rows begin, they, and where among them
        queries do.
        """
        step = most
        while begin < end:
            stop = min(begin + step, end)
            rows = self.rows(begin, stop)
            begins = np.flatnonzero(np.append(True, rows.query[1:] != rows.query[:-1]))
            if self.grouped and stop < end:  # the last may go on
                if len(begins) == 1:
                    step *= 2
                    continue
                stop = begin + int(begins[-1])
                rows, begins = self.rows(begin, stop), begins[:-1]
            yield begin, rows, begins
            begin, step = stop, most


def _ascends(keys: Sequence[IntArray]) -> bool:
    """No row is before its neighbour, by the first key and among equals by the next."""
    falls, equal = np.zeros(len(keys[0]) - 1, np.bool_), True
    for key in keys:
        falls |= equal & (key[1:] < key[:-1])
        equal = equal & (key[1:] == key[:-1])
    return not bool(falls.any())


def key_of(value: object) -> int:
    """A session's name as a number; two of ten million names get the same one by a chance of 1 in 10^5."""
    if value is None or value == "":
        return -1
    if type(value) is int and 0 <= value < 1 << 62:
        return value
    digest = hashlib.blake2b(str(value).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def scratch(n: int) -> IntArray:
    """Room for so many numbers, in a file without a name where they are many."""
    if n * 8 <= KEPT:
        return np.empty(n, np.int64)
    with tempfile.TemporaryFile(prefix="plimsoll-") as file:
        return np.asarray(np.memmap(file, np.int64, "w+", shape=(n,)))


def _distinct(keys: IntArray) -> IntArray:
    """Sorted ones, each once, in the same place."""
    kept = 0
    for begin in range(0, len(keys), STEP):
        some = np.unique(keys[begin : begin + STEP])
        some = some[1:] if kept and some[0] == keys[kept - 1] else some
        keys[kept : kept + len(some)] = some
        kept += len(some)
    return keys[:kept]
