"""Finished exchanges become columns: ``Recorder`` settles them when the loop has nothing more urgent to do.

It appends one value to each column and hands full segments on. Every exchange becomes one row, whatever its client's
parser does.
"""

from __future__ import annotations

import traceback
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.secrecy.redaction import cut, redact
from plimsoll.harness.transport.held import WORST, oversized, reading, text_cost, waiting
from plimsoll.harness.transport.outcome import LONGEST, REFUSED, keep_retry_after
from plimsoll.slo.records.labels import LabelTable, number_of
from plimsoll.slo.records.records import (
    COLUMNS,
    PACE_CAPTURE,
    PACE_EAGER,
    RAGGED,
    SESSION_COLUMNS,
    SESSION_TIMES,
    Phase,
    Records,
    SessionTable,
    Status,
    TokensFrom,
    freeze,
)

SEGMENT_ROWS = 20_000
#: A row is on disk a second after it ended: the segment is cut at this age, the rest is for its way there.
SEGMENT_NS = 700_000_000
#: One slice of settling: short, so that the loop sees its sockets again.
SLICE_NS = 1_000_000
#: Settling stops this long before the next due time: twice what one exchange took lately, within these bounds.
MARGIN_NS = (20_000, 2_000_000)
#: With this many exchanges unsettled (or more bytes in them than may wait), memory comes before the schedule; with
#: twice as many it comes before sending, of a loop that has no time to settle.
BACKLOG = 20_000

_FIELDS = tuple(name for name in COLUMNS if name not in ("worker", "error", "server_timing"))
_RELATIVE = frozenset(name for name in _FIELDS if name.endswith("_ns") and name not in ("connect_ns", "media_ns"))
_OK, _ATTEMPT = int(Status.OK), int(Phase.ATTEMPT)
_NOBODY, _PLAN = int(TokensFrom.NONE), int(TokensFrom.PLAN)
#: Of a Server-Timing value are kept so many characters and entries, and of all those of a run together about so many
#: characters.
TIMING_LENGTH, TIMING_ENTRIES, TIMING_CHARS = 1024, 32, 64 << 20
#: Of the error texts of a run so many different ones are kept, and so many characters of them; every later one is
#: ``OTHER``.
ERROR_TEXTS, ERROR_CHARS = 10_000, 4 << 20
OTHER = (
    f"(other texts): a run keeps {ERROR_TEXTS:,} different error texts, of {ERROR_CHARS >> 20} million characters "
    "together"
)
#: Texts of a segment that are recognised without being redacted again.
_RECOGNISED = 2000
#: What the live display counts as no error: a success, and what was given up on purpose.
_UNFAILED = (_OK, int(Status.CANCELLED))


#: What the live display shows, in this order: names of metrics.
FRESH = ("ttft", "tpot", "first_partial", "finalization", "voice_to_voice", "first_audio", "latency")
_LIVE = (PACE_CAPTURE, PACE_EAGER)


class SessionRows:
    """The session columns of rows under construction, made once a row has some."""

    __slots__ = ("_ends", "_lists", "_table", "_values")

    def __init__(self, rows_before: int) -> None:
        self._values = {name: array("q", [-1]) * rows_before for name in SESSION_COLUMNS}
        self._lists = {name: array("q") for name in RAGGED}
        self._ends = {name: array("q", [0]) * rows_before for name in RAGGED}
        self._table: dict[str, int] = {}

    def append(self, stamps: SessionStamps | None) -> None:
        for name, column in self._values.items():
            if name == "slice":
                column.append(_intern(self._table, (stamps.slice or None) if stamps is not None else None))
            else:
                column.append(getattr(stamps, name) if stamps is not None else -1)
        for name, values in self._lists.items():
            if stamps is not None:
                values.extend(getattr(stamps, name))
            self._ends[name].append(len(values))

    def to_table(self, t0_ns: int) -> SessionTable:
        columns = {name: np.array(column, dtype=np.int64) for name, column in self._values.items()}
        for name in SESSION_TIMES:
            columns[name][columns[name] >= 0] -= t0_ns
        ragged = {
            name: (np.array(values, np.int64), np.concatenate(([0], np.array(self._ends[name], np.int64))))
            for name, values in self._lists.items()
        }
        return freeze(columns, ragged, tuple(self._table))


class LabelRows:
    """The labels of rows under construction: of each label the rows that have one, and its values.

    A label whose first value is a number has numbers only.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, tuple[array[int], array[int], dict[str, int] | None]] = {}

    def add(self, row: int, labels: Mapping[str, str | int | None]) -> None:
        for label, value in labels.items():
            if label not in self._found:
                self._found[label] = array("q"), array("q"), None if isinstance(value, int) else {}
            if value is None:
                continue
            rows, places, table = self._found[label]
            rows.append(row)
            if table is not None:
                places.append(table.setdefault(str(value), len(table)))
            else:
                places.append(value if isinstance(value, int) else number_of(value))

    def to_table(self, n: int) -> LabelTable:
        columns = {}
        for label, (rows, places, _) in self._found.items():
            columns[label] = np.full(n, -1)
            columns[label][np.array(rows, np.int64)] = places
        texts = {label: tuple(table) for label, (*_, table) in self._found.items() if table is not None}
        return LabelTable(columns, texts, n)


class Texts:
    """A string table of what peers said, under construction: each text redacted and of a sane length."""

    __slots__ = ("_seen", "_shown", "chars", "table")

    def __init__(self, shown: Callable[[str], str]) -> None:
        self._shown = shown
        self._seen: dict[str, int] = {}
        self.table: dict[str, int] = {}
        self.chars = 0

    def place(self, text: str | None) -> int:
        """Its place in the table, -1 for None."""
        if text is None:
            return -1
        known = self._seen.get(text)
        if known is not None:
            return known
        shown = self._shown(text)
        before = len(self.table)
        place = self.table.setdefault(shown, before)
        self.chars += len(shown) if place == before else 0
        if len(text) <= LONGEST and len(self._seen) < _RECOGNISED:
            self._seen[text] = place
        return place


class ErrorTexts:
    """The error texts of one worker's rows: redacted, cut, and no more of them than its share of the run's."""

    __slots__ = ("_known", "chars", "full", "left")

    def __init__(self) -> None:
        self._known: set[str] = set()
        self.left, self.chars = ERROR_TEXTS, ERROR_CHARS
        self.full = False

    def share(self, workers: int) -> None:
        """One of so many workers: before the first text."""
        self.left, self.chars = max(1, ERROR_TEXTS // workers), ERROR_CHARS // workers

    def shown(self, text: str) -> str:
        """An error text as a row may hold it."""
        shown = cut(text, LONGEST)
        if shown in self._known:
            return shown
        if self.left <= 0 or self.chars <= 0:
            self.full = True
            return OTHER
        self.left -= 1
        self.chars -= len(shown)
        self._known.add(shown)
        return shown


def shown_timing(text: str) -> str:
    """A Server-Timing value as a row may hold it: redacted, of whole entries only (half a number would be a lie), at
    most 32 of them and 1 KiB.
    """
    shown = redact(text[: 8 * TIMING_LENGTH])
    if len(text) > 8 * TIMING_LENGTH or len(shown) > TIMING_LENGTH:
        shown = shown[:TIMING_LENGTH]
        whole, comma, last = shown.rpartition(",")
        shown = whole if comma else last.rpartition(";")[0]
    return ",".join(shown.split(",", TIMING_ENTRIES)[:TIMING_ENTRIES])


class Columns:
    """Rows under construction. Times are absolute until the segment is cut. ``timed``: with stage times."""

    __slots__ = (
        "_timed", "chunk_ends", "chunks", "error", "errors", "labels", "session", "timing", "timings", "values",
    )  # fmt: skip

    def __init__(self, said: ErrorTexts | None = None, timed: bool = True) -> None:
        self.values = {name: array("q") for name in _FIELDS}
        self.error = array("q")
        self.timing = array("q")
        self.errors = Texts((said or ErrorTexts()).shown)
        self.timings = Texts(shown_timing)
        self._timed = timed
        self.chunks = array("q")
        self.chunk_ends = array("q")
        self.session: SessionRows | None = None
        self.labels: LabelRows | None = None

    def __len__(self) -> int:
        return len(self.error)

    def append(self, exchange: Exchange) -> None:
        if exchange.session is not None and self.session is None:
            self.session = SessionRows(len(self))
        if self.session is not None:
            self.session.append(exchange.session)
        if exchange.labels is not None:
            self.labels = self.labels or LabelRows()
            self.labels.add(len(self), exchange.labels)
        for name, column in self.values.items():
            column.append(getattr(exchange, name))
        self.error.append(self.errors.place(exchange.error))
        self.timing.append(self.timings.place(exchange.server_timing) if self._timed else -1)
        self.chunks.extend(exchange.chunk_ns)
        self.chunk_ends.append(len(self.chunks))

    def to_records(self, t0_ns: int, worker: int) -> Records:
        n = len(self)
        columns: dict[str, npt.NDArray[Any]] = {}
        for name, column in self.values.items():
            values = np.frombuffer(column, dtype=np.int64).copy() if n else np.empty(0, np.int64)
            if name in _RELATIVE:
                values[values >= 0] -= t0_ns
            columns[name] = values.astype(COLUMNS[name], copy=False)
        # What no server counted is the plan's: said here once for all rows, not on each.
        columns["n_in_from"][(columns["n_in"] >= 0) & (columns["n_in_from"] == _NOBODY)] = _PLAN
        columns["attempts"][columns["sent_ns"] == -1] = 0
        columns["worker"] = np.full(n, worker, dtype=COLUMNS["worker"])
        columns["error"] = np.array(self.error, dtype=COLUMNS["error"])
        columns["server_timing"] = np.array(self.timing, dtype=COLUMNS["server_timing"])
        offsets = np.concatenate(([0], np.array(self.chunk_ends, dtype=np.int64))).astype(np.int64)
        chunks = np.array(self.chunks, dtype=np.int64) - t0_ns
        session = None if self.session is None else self.session.to_table(t0_ns)
        labels = None if self.labels is None else self.labels.to_table(n)
        texts = tuple(self.errors.table), tuple(self.timings.table)
        return Records(columns, chunks, offsets, *texts, session, None, labels)


def _intern(table: dict[str, int], text: str | None) -> int:
    return -1 if text is None else table.setdefault(text, len(table))


class Fresh:
    """For the live display: the values in ns of rows settled lately, of each only where there is one.

    Of audio sent at 1x there is no latency: it is mostly the time that somebody spoke. ``others``: what the metrics of
    outside packages had, segment by segment.
    """

    __slots__ = (*FRESH, "others")

    def __init__(self) -> None:
        self.ttft = array("q")
        self.tpot = array("q")
        self.first_partial = array("q")
        self.finalization = array("q")
        self.voice_to_voice = array("q")
        self.first_audio = array("q")
        self.latency = array("q")
        self.others: dict[str, array[float]] = {}

    def add(self, exchange: Exchange) -> None:
        """One measured row."""
        due, stamps = exchange.due_ns, exchange.session
        if exchange.first_token_ns >= 0:
            self.ttft.append(exchange.first_token_ns - due)
        if exchange.n_out > 1 and exchange.last_token_ns >= 0:
            self.tpot.append((exchange.last_token_ns - exchange.first_token_ns) // (exchange.n_out - 1))
        if stamps is not None and stamps.pace in _LIVE:
            for values, began, came in (
                (self.first_partial, stamps.speech_start_ns, stamps.first_partial_ns),
                (self.finalization, stamps.speech_end_ns, stamps.final_ns),
                (self.voice_to_voice, stamps.speech_end_ns, stamps.audible_ns),
            ):
                if began >= 0 and came >= 0:
                    values.append(came - began)
            return
        if stamps is not None and stamps.first_audio_ns >= 0:
            self.first_audio.append(stamps.first_audio_ns - due)
        if exchange.status == _OK:
            self.latency.append(exchange.done_ns - due)


class Recorder:
    """Settles and keeps every finished exchange of one worker.

    ``settle`` is the client's; ``next_due_ns()`` says how long there is before the next appointment. ``take_fresh``
    gives the rows since it was last asked (for live progress).
    """

    def __init__(
        self,
        clock: Clock,
        settle: Callable[[Exchange], None],
        next_due_ns: Callable[[], int],
        put: Callable[[Records], None],
        worker: int,
    ) -> None:
        self._clock = clock
        self._settle = settle
        self._next_due_ns = next_due_ns
        self._put = put
        self.worker = worker
        self._pending: deque[Exchange] = deque()
        self._held = 0  # bytes in them
        self._waiting = waiting()
        self._reading = reading()
        self._small = self._reading // WORST
        self._scheduled = False
        self.said = ErrorTexts()
        self._full_told = False
        #: What taking an answer apart costs; None: most aren't taken apart, and the client sees to the others.
        self.cost: Callable[[Exchange], int] | None = text_cost
        self._columns = Columns(self.said)
        self._begun_ns = 0
        self._cost_ns = 50_000
        self.t0_ns = 0
        self.rows = 0
        self.attempts = 0  # rows of single attempts, beside those of requests
        self.failed = 0
        self.measured = 0
        self.bad = 0
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.timing_chars = TIMING_CHARS
        self._fresh = Fresh()
        #: What metrics of outside packages find in a segment; None: there are none.
        self.others: Callable[[Records], Mapping[str, npt.NDArray[np.float64]]] | None = None

    def finished(self, exchange: Exchange) -> None:
        """Hot: keep a finished exchange; its response is taken apart later."""
        self._pending.append(exchange)
        self._held += exchange.bytes_in
        if not self._scheduled:
            self._scheduled = True
            self._clock.wake_at(0, self._work)
        elif len(self._pending) > 2 * BACKLOG:
            self._next()
            self._next()
            self._cut_if_due(self._clock.now_ns())

    def _work(self) -> None:
        now = self._clock.now_ns()
        until = now + SLICE_NS
        pending = self._pending
        due = self._next_due_ns()
        while pending:
            margin = min(max(2 * self._cost_ns, MARGIN_NS[0]), MARGIN_NS[1])
            crowded = self._held > self._waiting or len(pending) >= BACKLOG
            if now > due - margin and not crowded and now - pending[0].done_ns < SEGMENT_NS:
                self._clock.wake_at(due + 1, self._work)
                return
            self._next()
            before, now = now, self._clock.now_ns()
            self._cost_ns += (now - before - self._cost_ns) // 8
            if now > until and self._held <= self._waiting:
                break
        self._cut_if_due(now)
        if pending:
            self._clock.wake_at(0, self._work)
        else:
            self._scheduled = False

    def _next(self) -> None:
        exchange = self._pending.popleft()
        self._held -= exchange.bytes_in
        self._keep(exchange)

    def _keep(self, exchange: Exchange) -> None:
        try:
            if len(exchange.body) > self._small and self.cost is not None:
                oversized(exchange, self._reading, self.cost)
            self._settle(exchange)
        except Exception:  # noqa: BLE001 - a bug in a client must cost its parsing, not the measured row
            text = traceback.format_exc(limit=3)
            exchange.status = int(Status.PROTOCOL)
            exchange.error = f"Plimsoll could not take the response apart (a bug): {text.splitlines()[-1]}"
            if len(self.faults) < 5:
                self.faults.append(f"settling query {exchange.query_id} failed: {text}")
        if exchange.status == REFUSED:
            keep_retry_after(exchange)
        if exchange.phase == _ATTEMPT:
            self.attempts += 1
        else:
            self.rows += 1
            if exchange.status not in _UNFAILED:
                self.failed += 1
                self.bad += exchange.phase == 0
        if exchange.phase == 0:
            self.measured += 1
            self._fresh.add(exchange)
        if not len(self._columns):
            self._begun_ns = self._clock.now_ns()
        self._columns.append(exchange)

    def keep(self, exchange: Exchange) -> None:
        """Settle and keep one exchange now: for an engine that finishes them on its own thread."""
        self._keep(exchange)
        self._cut_if_due(self._clock.now_ns())

    def keep_records(self, records: Records) -> None:
        """Keep rows that are ready as they are: all of them succeeded and none has tokens."""
        self.rows += len(records)
        measured = records.measured()
        self.measured += len(measured)
        self._fresh.latency.frombytes((measured["done_ns"] - measured["due_ns"]).tobytes())
        self._whole(records)

    def tick(self) -> None:
        """Some times a second, whether or not anything ends: the last rows before a silence go to disk too."""
        self._cut_if_due(self._clock.now_ns())

    def _cut_if_due(self, now: int) -> None:
        if len(self._columns) >= SEGMENT_ROWS or (len(self._columns) and now - self._begun_ns > SEGMENT_NS):
            self._cut()

    def _cut(self) -> None:
        self._whole(self._columns.to_records(self.t0_ns, self.worker))
        left, self.timing_chars = self.timing_chars, self.timing_chars - self._columns.timings.chars
        if self.timing_chars <= 0 < left:
            self.notes.append(
                f"worker {self.worker}: the stages of later requests (Server-Timing) were not kept: all of them so far "
                "are more than "
                f"{TIMING_CHARS >> 20} million characters. Have the server say less, or run for a shorter time"
            )
        self._columns = Columns(self.said, timed=self.timing_chars > 0)

    def _whole(self, records: Records) -> None:
        if self.others is not None:
            for name, values in self.others(records).items():
                self._fresh.others.setdefault(name, array("d")).frombytes(values.tobytes())
        self._put(records)

    def take_fresh(self) -> Fresh:
        """What the measured rows settled since the last call had."""
        fresh, self._fresh = self._fresh, Fresh()
        return fresh

    def flush(self) -> None:
        """Settle and cut everything, however long it takes: the run is over."""
        while self._pending:
            self._next()
            if len(self._columns) >= SEGMENT_ROWS:
                self._cut()
        if len(self._columns):
            self._cut()
        if self.said.full and not self._full_told:
            self._full_told = True
            self.notes.append(
                f"worker {self.worker}: the error texts of some failed requests were not kept: more different ones "
                f"came than a run keeps ({ERROR_TEXTS:,}, or {ERROR_CHARS >> 20} million characters). Each row has its "
                "status and code; the server's log says the rest"
            )


def spreads_of(message: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The histograms of a worker's status line by metric: ours, then those of outside packages."""
    yield from ((name, message[name]) for name in FRESH)
    yield from message.get("others", {}).items()


def spread(values: Sequence[float]) -> dict[str, Any]:
    """A coarse mergeable histogram for live display: {bin: count}, 32 bins an octave (2.2 % wide)."""
    if not len(values):
        return {}
    bins = np.floor(np.log2(np.maximum(np.array(values, dtype=np.float64), 1.0)) * 32).astype(np.int64)
    keys, counts = np.unique(bins, return_counts=True)
    return {str(key): int(count) for key, count in zip(keys.tolist(), counts.tolist(), strict=True)}


def spread_quantile(histogram: dict[str, int], p: float) -> float:
    """The quantile of a merged live histogram, in ns (the middle of its bin); nan if it is empty."""
    total = sum(histogram.values())
    if not total:
        return float("nan")
    left = p * total
    for key in sorted(histogram, key=int):
        left -= histogram[key]
        if left <= 0:
            return float(2.0 ** ((int(key) + 0.5) / 32))
    return float("nan")
