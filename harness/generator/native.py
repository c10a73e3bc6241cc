"""The compiled engine as a worker sees it: it takes a plan's shard and gives settled rows.

``harness/generator/engine/*.c`` sends, stamps and frames cleartext HTTP/1.1 in a thread without the interpreter lock.
This module gives it the load, turns its results into exchanges for the dialect to settle, and names its errors in the
words of ``harness/transport/http/http_pool.py``. Where it can't send (not compiled, TLS, no HTTP) ``attach`` says None
and ``why_not`` the reason: ``issuer.py`` and ``http_pool.py`` do the same work in Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.issuer import (
    CANCELLED,
    Load,
    Pieces,
    Supply,
    missed_since,
    never,
    rows_of,
    too_many_outstanding,
)
from plimsoll.harness.generator.recorder import SEGMENT_NS, SEGMENT_ROWS, Recorder
from plimsoll.harness.transport.client import OPENING, Target
from plimsoll.harness.transport.endpoint import Endpoint, explain, origin_of
from plimsoll.harness.transport.held import budget, highest_fd, too_much, waiting
from plimsoll.harness.transport.http.http_pool import HttpClient, Prepared
from plimsoll.scenarios.plan.blocks import Blocks, Extent
from plimsoll.scenarios.plan.plan import IntArray, Plan
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.records import Phase, Status

if TYPE_CHECKING:
    from plimsoll.harness.generator._engine import Engine
    from plimsoll.harness.generator.sessions import Turns

#: The columns of a row as engine.h's Row has them.
ROW = (
    "query_id", "sample_ix", "payload_ix", "due_ns", "ready_ns", "sent_ns", "headers_ns", "first_byte_ns", "done_ns",
    "connect_ns", "bytes_out", "bytes_in", "code", "status", "stamp", "phase", "attempts", "settled",
    "head_len", "body_len",
    "n_marks", "error", "detail",
)  # fmt: skip
_SHARED = ROW[: ROW.index("settled")]
_TIMES = frozenset(name for name in _SHARED if name.endswith("_ns") and name != "connect_ns")
_PAYLOAD = ROW.index("payload_ix")
#: Why an exchange failed, as engine.h numbers it.
_TIMEOUT, _CONNECT, _CONNECT_TIMEOUT, _CLOSED_EARLY, _CLOSED_MIDDLE, _WIRE, _GIVEN_UP, _CANCELLED, _TOO_MUCH = range(
    1, 10
)
#: One turn of settling: then the worker looks at its messages again.
TURN_NS = 50_000_000
#: How long the engine's thread may take to give everything up.
FINISH_NS = 10_000_000_000
#: The longest wait that is spent awake, and the largest share of a core that such waits may cost.
SPIN_NS = 50_000
SPIN_SHARE = 0.25
#: Samples that the engine has before it needs them: more than it can send while nobody looks.
AHEAD, AHEAD_FED = 1 << 17, 16
#: Turns of sessions are built so long before they are due, where somebody thinks that long: Python may be busy.
TURN_AHEAD_NS = 100_000_000
#: So long are they built in a row; and so many ended exchanges may wait to be recorded meanwhile.
HEAR_NS, BACKLOG = 5_000_000, 1_000
#: Responses taken over at once: what waits stays in the engine, where it is held only once.
SLICE_BYTES = 4_000_000

_NOT_HTTP = "target.options.engine: the native engine speaks HTTP only. Leave this option out for this protocol"

Matrix = npt.NDArray[np.int64]


def available() -> bool:
    """Whether the extension was compiled on this machine."""
    try:
        import plimsoll.harness.generator._engine  # noqa: F401
    except ImportError:
        return False
    return True


async def attach(client: object, load: Load, wanted: str = "auto", answers: bool = False) -> NativeRun | None:
    """The compiled engine for this load, or None where the Python engine has to do it.

    ``wanted``: ``auto``, ``native`` or ``python``. ``answers``: every response is handed over, for its content. Raises
    HarnessFault if the target's host can't be resolved, and if ``native`` can't be had.
    """
    reason = why_not(client.target) if isinstance(client, HttpClient) else _NOT_HTTP
    if wanted == "native" and reason is not None:
        raise HarnessFault(reason)
    hurried = wanted == "auto" and load.turns is not None and load.turns.hurried  # two threads wake for such a turn
    if wanted == "python" or reason is not None or hurried or not isinstance(client, HttpClient):
        return None
    return NativeRun(client, await client.find(), load, answers)


def why_not(target: Target, http: bool = True) -> str | None:
    """Why the compiled engine can't drive this target, in words that end with the next step; None: it can.

    ``http``: its protocol is of the HTTP family.
    """
    if not available():
        return (
            "target.options.engine: the native engine is not compiled here. Install a C compiler and the headers of "
            "Python and install Plimsoll again, or leave this option out"
        )
    if not http:
        return _NOT_HTTP
    if target.fresh:
        return (
            "target.options.engine: the native engine keeps its connections, and client.connections is fresh. Leave "
            "one of them out"
        )
    if target.impair is not None:
        return (
            "target.options.engine: the native engine writes straight to its sockets, and impair puts a bad network "
            "before them. Leave one of them out"
        )
    if origin_of(target.url).tls:
        return "target.options.engine: the native engine speaks no TLS. Give an http:// URL, or leave this option out"
    return None


class NativeRun:
    """One worker's load in the compiled engine. The same questions may be asked of it as of an ``Issuer``."""

    ahead_ns = TURN_AHEAD_NS

    def __init__(self, client: HttpClient, endpoint: Endpoint, load: Load, answers: bool = False) -> None:
        from plimsoll.harness.generator import _engine

        self._client = client
        self._load = load
        self._wire_errors = _engine.WIRE_ERRORS
        target = client.target
        self._budget, self._waiting = budget(), waiting()
        self._engine: Engine = _engine.Engine(
            addresses=endpoint.numeric(),
            run_id=load.run_id.encode(),
            timeout_ns=target.timeout_ns,
            connect_timeout_ns=target.connect_timeout_ns // len(endpoint.addresses),
            max_connections=target.max_connections or 0,
            outstanding_limit=load.outstanding_limit,
            send_request_id=target.send_request_id,
            stamping=target.stamps == "kernel",
            spin_ns=spin_of(load.plan.extent()) if target.spin_ns is None else target.spin_ns,
            held_limit=self._budget,
            waiting_limit=self._waiting,
            highest_fd=highest_fd(),
            first_query=load.first_query,
            traces=None if load.traces is None else astuple(load.traces),
        )
        #: Of a load that is fed: payload and request of each sample that the engine has, by the number it was given.
        self._known: dict[int, tuple[int, Prepared]] = {}
        self._given = 0
        self._turns = turns = load.turns
        if load.fed:
            self._engine.set_requests(self._known)
        if not load.fed or turns is not None:  # of sessions the warm-up is not fed
            self._engine.set_requests([r and _words(r) for r in load.requests])
        plain = None if answers or turns is not None else client.plain()
        if plain is not None:
            success = bytes(code in plain.success for code in range(1000))
            self._engine.set_plain(success, list(plain.needles))
        self._feeds: list[_Feed] = []
        self._bell = -1 if turns is None else self._engine.bell()
        self._turning = turns is not None
        self._ended: deque[Exchange] = deque()
        self.t0_ns = 0
        if turns is None or not turns.slots:
            self._add(load.plan, Phase.MEASURE)
        if load.warmup is not None:
            self._add(load.warmup, Phase.WARMUP)
        self._n_in = np.array([r.n_in if r else -1 for r in load.requests], dtype=np.int64)
        self._media = np.array([r.media_ns if r else -1 for r in load.requests], dtype=np.int64)
        self._given_up = ""
        self._unsettled: Iterator[Exchange] = iter(())
        self._kept: list[Matrix] = []
        self._kept_ns = 0
        self._begun: tuple[int, int, int] | None = None

    def _add(self, plan: Blocks, phase: Phase) -> None:
        head = plan.head
        supply = self._load.fed.get(int(phase))
        if supply is None:
            whole, pieces = rows_of(plan) if head.cyclic else (None, iter(plan))
            supply = Pieces(iter((whole,)) if whole is not None else pieces)
        feed = _Feed(self._engine, phase, supply, self._cancel_of(phase), self._keep)
        first, stop = feed.first, head.stop
        rows = first.offsets, first.sample_ix, feed.payload
        if head.cyclic:
            self._engine.closed_lane(
                int(phase), *rows, head.max_in_flight or 1, head.first_id, head.id_step, phase == Phase.WARMUP,
                -1 if stop.max_queries is None else stop.max_queries, stop.min_queries, stop.min_duration_ns,
                feed.cancel, feed.whole, feed.requests,
            )  # fmt: skip
        else:
            limit = -1 if head.max_in_flight is None else head.max_in_flight
            given = first.due_ns, first.query_id, *rows, limit, feed.cancel, feed.whole, feed.requests
            self._engine.open_lane(int(phase), *given)
        feed.more()
        self._feeds.append(feed)

    def _keep(self, piece: Plan, requests: Sequence[Prepared]) -> tuple[IntArray, list[_Words]]:
        """A number for each sample, and what the engine writes: bytes that are ours until the sample's row is back."""
        begin, self._given = self._given, self._given + piece.n_samples
        pairs = zip(piece.payload_ix.tolist(), requests, strict=True)
        self._known.update(zip(range(begin, self._given), pairs, strict=True))
        return np.arange(begin, self._given), [*map(_words, requests)]

    def _cancel_of(self, phase: Phase) -> Callable[[Plan], IntArray | None]:
        return self._load.cancel_ns if phase == Phase.MEASURE else never

    def feed(self) -> None:
        """Give the engine rows that will be due."""
        for feed in self._feeds:
            feed.more()

    async def open(self, connections: int) -> None:
        """Open connections ahead of t0, ``OPENING`` at a time; wait for them at most the connect timeout."""
        give_up_ns = time.monotonic_ns() + self._client.target.connect_timeout_ns
        connecting = 0
        self._engine.open(0)  # its thread begins, whether or not there is anything to open
        while (connections or connecting) and time.monotonic_ns() < give_up_ns:
            # While the engine takes an order up, both of its counters hold it: "connecting" may be twice OPENING for a
            # moment.
            more = max(0, min(connections, OPENING - connecting))
            self._engine.open(more)
            connections -= more
            await asyncio.sleep(0.001)
            connecting = self._count("connecting")

    def start(self, t0_ns: int) -> None:
        limit = self._load.plan.head.stop.max_duration_ns
        self.t0_ns = t0_ns
        for feed in self._feeds:
            feed.t0_ns = t0_ns
        if self._turns is not None:
            self._turns.begin(self)
            asyncio.get_running_loop().add_reader(self._bell, self._rung)
        self._engine.go(t0_ns, -1 if limit is None else limit)

    def watch(self) -> None:
        """What ``vitals`` says begins now: just before t0, so that a warm-up is not in it."""
        self._begun = self._vital_signs()

    # -- what a worker asks of an issuer ------------------------------------------------------------------------

    def _count(self, name: str) -> int:
        value = self._engine.counters()[name]
        assert isinstance(value, int)
        return value

    @property
    def sent(self) -> int:
        return self._count("sent")

    @property
    def in_flight(self) -> int:
        return self._engine.state()[1]

    @property
    def issued_all(self) -> bool:
        return bool(self._engine.state()[0])

    @property
    def max_duration_hit(self) -> bool:
        return bool(self._count("max_duration_hit"))

    @property
    def aborted(self) -> str | None:
        if self._count("over_memory"):
            return (
                f"this worker ran out of memory for responses (at most {self._waiting >> 20} MiB may wait to be taken "
                "apart). Lower the rate or the concurrency, or add workers"
            )
        outstanding = self._count("aborted")
        return too_many_outstanding(outstanding, self._load.outstanding_limit) if outstanding else None

    def stop(self) -> None:
        """Send nothing more. What is in flight goes on."""
        self._engine.stop()

    def give_up(self, status: Status, error: str) -> None:
        """End everything that is still in flight with this status."""
        if not self._given_up:
            self._given_up = error
            self._engine.give_up(int(status))

    def close(self) -> None:
        if self._turns is not None:
            asyncio.get_running_loop().remove_reader(self._bell)
        self._engine.close()

    # -- sessions: what is said next -----------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """No turn is sent any more."""
        return self.issued_all  # while turns may come that is so for no other reason

    def turn(self, query_id: int, payload_ix: int, due_ns: int, request: Prepared, cancel_ns: int) -> None:
        """A turn of a session, which is sent when it is due."""
        number, self._given = self._given, self._given + 1
        self._known[number] = payload_ix, request
        self._engine.turn(query_id, 0, number, due_ns, cancel_ns, _words(request))

    def _rung(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 8)  # before anything is looked at: what ends meanwhile rings again
        if self._hear():
            asyncio.get_running_loop().call_soon(self._rung)

    def _hear(self) -> bool:
        """Take over what has ended, and hand on the turns after it, first those that are due first. True: there is more
        to do.
        """
        turns, until = self._turns, time.monotonic_ns() + HEAR_NS
        assert turns is not None
        while len(self._ended) < BACKLOG:
            more = self._collect()
            if not turns.step() and not more:
                if self._turning and turns.finished:
                    self._turning = False
                    self._engine.turned()
                return False
            if time.monotonic_ns() > until:
                return True
        return False

    # -- what came back -----------------------------------------------------------------------------------------

    def work(self, recorder: Recorder) -> bool:
        """Settle and keep what has finished, one turn of it. False when there is nothing more for now."""
        until = time.monotonic_ns() + TURN_NS
        while (exchange := self._next()) is not None:
            recorder.keep(exchange)
            if time.monotonic_ns() > until:
                return True
        more = self._turns is None and self._collect()
        self._cut(recorder)
        return more

    def _next(self) -> Exchange | None:
        """The next that is to be recorded. Turns that follow come first."""
        if self._turns is None:
            return next(self._unsettled, None)
        self._hear()
        return self._ended.popleft() if self._ended else None

    def _collect(self) -> bool:
        """Take over what has finished. False: there is nothing to take apart."""
        settled, rows, blob = self._engine.collect(SLICE_BYTES)
        if settled:
            self._kept.append(np.frombuffer(settled, dtype=np.int64).reshape(-1, len(ROW)))
        if rows:
            found = self._exchanges(np.frombuffer(rows, dtype=np.int64).reshape(-1, len(ROW)), blob)
            if self._turns is None:
                self._unsettled = found
            else:
                self._ended_of(self._turns, found)
        return bool(rows)

    def _ended_of(self, turns: Turns, found: Iterator[Exchange]) -> None:
        for exchange in found:
            self._ended.append(exchange)
            if exchange.phase == Phase.MEASURE:
                turns.ended(exchange)

    def finish(self, recorder: Recorder) -> None:
        """Everything that has finished or was given up, however long it takes: the run is over."""
        give_up_ns = time.monotonic_ns() + FINISH_NS
        while True:
            more = self.in_flight > 0 and time.monotonic_ns() < give_up_ns
            if not self.work(recorder) and not more:  # in this order: what was in flight is collected
                break
            if more:
                time.sleep(0.0005)  # what was given up is on its way: the engine's thread hands it over
        self._cut(recorder, whatever=True)

    def _cut(self, recorder: Recorder, whatever: bool = False) -> None:
        now = time.monotonic_ns()
        n = sum(map(len, self._kept))
        if n and (whatever or n >= SEGMENT_ROWS or now - self._kept_ns > SEGMENT_NS):
            recorder.keep_records(self._records(np.concatenate(self._kept), recorder.t0_ns, recorder.worker))
            self._kept = []
        if not self._kept:
            self._kept_ns = now

    def _records(self, matrix: Matrix, t0_ns: int, worker: int) -> rec.Records:
        """Rows that need no settling, as records. ``matrix`` int64[n, len(ROW)], absolute times."""
        # Turned once: a column that lies together is worked on at memory speed.
        columns: dict[str, Any] = dict(zip(_SHARED, np.ascontiguousarray(matrix[:, : len(_SHARED)].T), strict=True))
        for name in _TIMES:
            np.subtract(columns[name], t0_ns, out=columns[name], where=columns[name] >= 0)
        payload = matrix[:, _PAYLOAD]
        if self._load.fed:
            sent = [*map(self._known.pop, payload.tolist())]
            columns["payload_ix"] = np.array([ix for ix, _ in sent], np.int64)
            n_in = np.array([request.n_in for _, request in sent], np.int64)
            media = np.array([request.media_ns for _, request in sent], np.int64)
        else:
            n_in, media = self._n_in[payload], self._media[payload]
        columns |= {"n_in": n_in, "media_ns": media, "worker": worker}
        # What is kept without a look into it was counted by nobody.
        columns["n_in_from"] = np.where(n_in >= 0, rec.TokensFrom.PLAN, rec.TokensFrom.NONE).astype(np.int8)
        return rec.from_columns(len(matrix), **columns)

    def _exchanges(self, matrix: Matrix, blob: bytes) -> Iterator[Exchange]:
        """Rows whose responses have to be taken apart, one by one: an exchange needs some memory."""
        at = 0
        for row in matrix:
            at, exchange = self._exchange(row.tolist(), blob, at)
            yield exchange

    def _exchange(self, row: list[int], blob: bytes, at: int) -> tuple[int, Exchange]:
        (query_id, sample_ix, payload_ix, due_ns, ready, sent, headers, first, done, connect, bytes_out, bytes_in, code,
         status, stamp, phase, attempts, _, head_len, body_len, n_marks, error, detail) = row  # fmt: skip
        if phase in self._load.fed:
            payload_ix, request = self._known.pop(payload_ix)
        else:
            request = self._load.requests[payload_ix]
        exchange = Exchange(query_id, sample_ix, payload_ix, due_ns, request)
        exchange.ready_ns, exchange.sent_ns, exchange.headers_ns = ready, sent, headers
        exchange.first_byte_ns, exchange.done_ns, exchange.connect_ns = first, done, connect
        exchange.bytes_out, exchange.bytes_in, exchange.code = bytes_out, bytes_in, code
        exchange.status, exchange.stamp, exchange.phase, exchange.attempts = status, stamp, phase, attempts
        exchange.n_in, exchange.media_ns = request.n_in, request.media_ns
        end = at + head_len
        exchange.headers = header_list(blob[at:end]) if head_len else []
        at, end = end, end + body_len
        exchange.body = blob[at:end]  # type: ignore[assignment]  # nothing is added to it any more
        marks = array("q", blob[end : end + 16 * n_marks])  # of each read its time and where it ended in the body
        exchange.mark_ns, exchange.mark_end = marks[0::2], marks[1::2]
        end += 16 * n_marks
        if error:
            exchange.error = self._explain(error, detail)
        return end, exchange

    def _explain(self, error: int, detail: int) -> str:
        """An error in words, the same as the Python engine's."""
        target = self._client.target
        if error == _TIMEOUT:
            return f"no complete response after {target.timeout_ns / 1e9:g} s (timeout)"
        if error == _CONNECT_TIMEOUT:
            return f"no connection after {target.connect_timeout_ns / 1e9:g} s (connect timeout)"
        if error == _WIRE:
            return self._wire_errors[detail]
        if error == _GIVEN_UP:
            return self._given_up
        if error == _CANCELLED:
            return CANCELLED
        if error == _TOO_MUCH:
            return too_much(self._budget)
        reason = explain(OSError(detail, "")) if detail else ""
        if error == _CONNECT:
            return reason or "the connection was closed"
        where = "in the middle of the response" if error == _CLOSED_MIDDLE else "before any answer"
        return f"connection closed {where}" + (f": {reason}" if reason else "")

    # -- facts --------------------------------------------------------------------------------------------------

    def _wanted_ns(self) -> int:
        """Nanoseconds that the engine's thread has run or was ready to and had no core."""
        try:
            text = Path(f"/proc/self/task/{self._count('tid')}/schedstat").read_text(encoding="ascii")
            ran, waited, _ = text.split()
        except (OSError, ValueError):
            return 0
        return int(ran) + int(waited)

    def _vital_signs(self) -> tuple[int, int, int]:
        """Now, and what the engine's thread has used and wanted of a core so far, in ns."""
        return time.monotonic_ns(), self._count("cpu_ns"), self._wanted_ns()

    def vitals(self) -> dict[str, Any]:
        """As ``Vitals.end``, of the engine's thread: a pause of Python's delays nothing there."""
        counters = self._engine.counters()
        now, *spent = self._vital_signs()
        begun, *before = self._begun or (now, *spent)
        watched = now - begun
        cpu, wanted = ((after - since) / max(1, watched) for after, since in zip(spent, before, strict=True))
        stalls = {name: counters[f"stall_{name}"] for name in ("p99_ns", "max_ns", "count", "total_ns")}
        return {
            "stalls": stalls,
            "gc": {"count": 0, "max_ns": 0, "total_ns": 0},
            "engine_cpu": cpu,
            "core_wanted": wanted,
            "watched_ns": watched,
        }

    def stats(self) -> Mapping[str, Any]:
        """As ``HttpClient.stats``."""
        counters = self._engine.counters()
        exhausted = counters["exhausted"]
        assert isinstance(exhausted, dict)
        return {
            "engine": "native",
            "connections_opened": counters["opened"],
            "retried_on_stale_connection": counters["retried"],
            "pool_waits": counters["pool_waits"],
            "pool_wait_p99_ns": counters["pool_wait_p99_ns"],
            "kernel_reads": counters["kernel_reads"],
            "user_reads": counters["user_reads"],
            "clock_steps": counters["clock_steps"],
            "stamps_refused": counters["refused"],
            "exhausted": {explain(OSError(code, "")): count for code, count in exhausted.items()},
        }


def spin_of(plan: Extent, most_ns: int = SPIN_NS, workers: int = 1) -> int:
    """How long before a due time to stay awake: enough to hide a timer's wake-up, for at most a quarter of a core.

    ``most_ns`` if it costs no more than that: each of ``workers`` has so many of the plan's queries (of a shard: 1).
    It takes the median lag from about 30 us to none, and keeps requests that are due together from leaving together: a
    wake-up 30 us late sends whatever became due meanwhile at once.
    """
    span = plan.last_ns - plan.first_ns if plan.open_loop else 0
    return min(most_ns, int(SPIN_SHARE * workers * span / plan.n_queries)) if span else 0


#: What the engine writes for a request, with the request's id in between, and whether it asks for a head.
_Words = tuple[bytes, bytes, bool]


def _words(request: Prepared) -> _Words:
    return request.prefix, request.suffix, request.head


class _Feed:
    """What one lane of the engine is given before it needs it: rows of ``AHEAD`` samples, and of those with requests of
    their own ``AHEAD_FED`` pieces. ``first``, ``payload``, ``requests``, ``cancel``, ``whole``: what it begins with.
    ``keep`` gives numbers for samples and what the engine writes for their requests.
    """

    def __init__(
        self,
        engine: Engine,
        phase: Phase,
        supply: Supply,
        cancel_ns: Callable[[Plan], IntArray | None],
        keep: Callable[[Plan, Sequence[Prepared]], tuple[IntArray, list[_Words]]],
    ) -> None:
        self._engine, self._phase, self._supply, self._cancel_ns = engine, int(phase), supply, cancel_ns
        self._keep = keep
        taken = supply.take()
        assert taken is not None  # a plan has a piece, and its requests were waited for
        self.first = taken[0]
        self.payload, self.requests = self._numbers(*taken)
        self.cancel = cancel_ns(self.first)
        self.whole = supply.next is None
        self.t0_ns = 0
        ahead = AHEAD // max(1, self.first.n_samples // max(1, self.first.n_queries))
        self._ahead = ahead if self.requests is None else min(ahead, AHEAD_FED * self.first.n_queries)
        self._given = self._last = self.first.n_queries

    def _numbers(self, piece: Plan, requests: Sequence[Prepared] | None) -> tuple[IntArray, list[_Words] | None]:
        return (piece.payload_ix, None) if requests is None else self._keep(piece, requests)

    def more(self) -> None:
        """As many pieces as are missing and ready."""
        while (piece := self._supply.next) is not None:
            used, waits_ns = self._engine.used(self._phase)
            left = self._given - used
            if left >= self._ahead and left > self._last:
                return
            taken = self._supply.take()
            if waits_ns and self.t0_ns and left <= self._last:  # it is at the last piece, and that is used up
                now = time.monotonic_ns()
                if piece.cyclic and self._phase == Phase.WARMUP:  # it ends whether they come or not
                    now = min(now, self.t0_ns)
                if (late_ns := now - missed_since(piece, self.t0_ns, waits_ns)) > 0:
                    self._supply.unready(late_ns, taken is not None)
            if taken is None:
                return
            payload, requests = self._numbers(*taken)
            due, ids = (None, None) if piece.cyclic else (piece.due_ns, piece.query_id)
            rows, whole = (piece.offsets, piece.sample_ix, payload), self._supply.next is None
            self._engine.more(self._phase, due, ids, *rows, self._cancel_ns(piece), whole, requests)
            self._given, self._last = self._given + piece.n_queries, piece.n_queries


def header_list(head: bytes) -> list[tuple[bytes, bytes]]:
    """(name in lower case, value) of each line of a raw response head, in its order."""
    found = []
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            found.append((name.lower(), value.strip(b" \t")))
    return found
