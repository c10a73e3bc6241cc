"""THE HOT LOOP: a plan shard, a client and a clock become exchanges.

Open loop: each query is sent at its absolute due time and nothing is waited for; late means sent at once with the
original due time kept. At a configured ceiling the run is aborted as INVALID, it is not held back. Closed loop: a
query is due the moment its slot comes free. Warm-up queries run before t0 on the same slots and are marked.

Nothing here parses, logs or does I/O; it runs as well in virtual time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import BACKOFF_NS, Client
from plimsoll.scenarios.plan.blocks import Blocks, joined
from plimsoll.scenarios.plan.plan import IntArray, Plan
from plimsoll.slo.records.records import Phase, Status
from plimsoll.slo.records.trace_ids import TraceIds

if TYPE_CHECKING:
    from plimsoll.harness.generator.sessions import Turns

_WARMUP, _MEASURE = int(Phase.WARMUP), int(Phase.MEASURE)
_NEVER = 1 << 62
_CONNECT = int(Status.CONNECT)
#: The error of a request that was dropped because the plan said so: one text, however long it had lived.
CANCELLED = "cancelled on purpose (the scenario's cancel)"
#: So many rows of a lane are ready as lists, made so many at a time; a closed loop of so few has all of them at hand.
AHEAD, SLICE, AT_HAND = 1 << 14, 1 << 10, 1 << 18
#: After so many queries in a row a loop lets others work: status lines go out, and orders come in.
TURN = 1 << 9
#: Making a slice takes less than this: nothing should be due meanwhile.
FEED_NS = 500_000


def never(piece: Plan) -> None:
    """Of a plan of which no query is cancelled."""


class Supply(Protocol):
    """A lane's rows, piece by piece."""

    @property
    def next(self) -> Plan | None:
        """The piece that ``take`` gives next, ready or not; None: all are taken."""
        ...

    def take(self) -> tuple[Plan, Sequence[Any] | None] | None:
        """The next piece and the requests of its samples (None: they are the load's, by payload). None: it isn't ready,
        or all are taken.
        """
        ...

    def unready(self, late_ns: int, came: bool) -> None:
        """Rows came so long after they were due, or are due so long and have not come."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """What one worker sends: its shard of the plan and, per payload index, the encoded request; ``fed``: by phase,
    where requests come with their rows instead.

    ``outstanding_limit`` is the open loop's ceiling; ``run_id`` goes into every request id. ``cancel_ns(piece)`` gives
    for each row of a piece of the plan how long after it was taken up its query is cancelled, -1 for never (None: no
    query is). ``turns``: of sessions, whose first turns it feeds; ``first_query``: what the ids of its queries begin at
    on the wire; ``traces``: the trace context of each (None: none).
    """

    plan: Blocks
    warmup: Blocks | None
    requests: Sequence[Any]
    run_id: str
    outstanding_limit: int = 100_000
    cancel_ns: Callable[[Plan], IntArray | None] = never
    fed: Mapping[int, Supply] = field(default_factory=dict)
    turns: Turns | None = None
    first_query: int = 0
    traces: TraceIds | None = None


class Pieces:
    """A supply of rows alone."""

    def __init__(self, pieces: Iterator[Plan]) -> None:
        self._pieces = pieces
        self.next = next(pieces, None)

    def take(self) -> tuple[Plan, None] | None:
        piece, self.next = self.next, next(self._pieces, None)
        return None if piece is None else (piece, None)

    def unready(self, late_ns: int, came: bool) -> None:
        """Lag says it."""


def missed_since(piece: Plan, t0_ns: int, waits_ns: int) -> int:
    """Since when a lane that has had no rows since ``waits_ns`` misses this piece: due without a slot is in time."""
    if piece.cyclic:
        return waits_ns
    due_ns = int(piece.due_ns[0]) + t0_ns
    return due_ns if piece.max_in_flight is None else max(due_ns, waits_ns)


def too_many_outstanding(outstanding: int, ceiling: int) -> str:
    """Why an open loop was given up."""
    return (
        f"{outstanding} requests were in flight at once (ceiling {ceiling}): the endpoint fell ever further behind the "
        "offered rate. Lower the rate, or raise target.options.max_outstanding"
    )


class Issuer:
    """Runs one worker's load. ``on_finished(exchange)`` hears of every exchange that ended."""

    def __init__(self, load: Load, client: Client, clock: Clock, on_finished: Callable[[Exchange], None]) -> None:
        self._load = load
        self._client = client
        self._clock = clock
        self._on_finished = on_finished
        self._lanes: list[_OpenLane | _ClosedLane] = []
        self._flying: set[Exchange] = set()
        self.t0_ns = 0
        self.ahead_ns = 0
        self.sent = 0
        self.stopped = False
        self.aborted: str | None = None
        self.max_duration_hit = False

    def start(self, t0_ns: int) -> None:
        """Begin: the first warm-up query may be due at once, the first measured one at ``t0_ns``."""
        self.t0_ns = t0_ns
        load = self._load
        main: _OpenLane | _ClosedLane | None = None
        if load.turns is not None:
            load.turns.begin(self)
        if load.turns is None or not load.turns.slots:
            main = (_ClosedLane if load.plan.head.cyclic else _OpenLane)(self, load.plan, _MEASURE, load.cancel_ns)
            self._lanes = [main]
        if load.warmup is not None:
            if load.warmup.head.cyclic:
                lane = _ClosedLane(self, load.warmup, _WARMUP, ends_ns=t0_ns)
                if isinstance(main, _ClosedLane):
                    lane.successor = main
                    main.predecessor = lane
                self._lanes.append(lane)
                self._clock.wake_at(self._clock.now_ns(), lane.begin)
            else:
                before = _OpenLane(self, load.warmup, _WARMUP)
                self._lanes.append(before)
                before.begin()
        if isinstance(main, _OpenLane):
            main.begin()
        elif main is not None:
            self._clock.wake_at(t0_ns, main.begin)
        limit = load.plan.head.stop.max_duration_ns
        if limit is not None:
            self._clock.wake_at(t0_ns + limit, self._max_duration)

    @property
    def in_flight(self) -> int:
        return len(self._flying)

    @property
    def issued_all(self) -> bool:
        """Nothing more will be sent."""
        turns = self._load.turns
        return self.stopped or (all(lane.finished for lane in self._lanes) and (turns is None or turns.finished))

    def feed(self) -> None:
        """Make rows ready that will be due: a few each time, where nothing is due at once."""
        for lane in self._lanes:
            if lane.rows.low or lane.next_due_ns - self._clock.now_ns() > FEED_NS:
                lane.go_on()
                lane.rows.fill(1)

    def next_due_ns(self) -> int:
        """The next appointment, absolute: work that can wait must be over by then."""
        first = min((lane.next_due_ns for lane in self._lanes), default=_NEVER)
        turns = self._load.turns
        return _NEVER if self.stopped else first if turns is None else min(first, turns.next_due_ns)

    def stop(self) -> None:
        """Send nothing more. What is in flight goes on."""
        self.stopped = True

    def give_up(self, status: Status, error: str) -> None:
        """End everything that is still in flight with this status."""
        self.stop()
        for exchange in list(self._flying):
            self._client.cancel(exchange, int(status), error)

    # -- the hot path -------------------------------------------------------------------------------------------

    def send(
        self,
        query_id: int,
        sample_ix: int,
        payload_ix: int,
        due_ns: int,
        request: Any,
        phase: int,
        done: Any,
        cancel_ns: int = -1,
    ) -> None:
        """Take one sample up and hand it to the client. ``due_ns`` is absolute, ``cancel_ns`` from now (-1: never)."""
        exchange = Exchange(query_id, sample_ix, payload_ix, due_ns, request)
        exchange.phase = phase
        exchange.on_done = done
        run = self._load.run_id
        number = query_id + self._load.first_query
        request_id = f"{run}-{number}-{sample_ix}" if phase == _MEASURE else f"{run}w-{number}-{sample_ix}"
        if self._load.traces is not None:
            exchange.traceparent = self._load.traces.header(number, sample_ix, phase != _MEASURE)
        flying = self._flying
        flying.add(exchange)
        self.sent += 1
        exchange.ready_ns = self._clock.now_ns()
        self._client.send(exchange, request_id.encode())
        if cancel_ns >= 0:
            self._clock.wake_at(exchange.ready_ns + cancel_ns, lambda: self._cancel(exchange))
        if len(flying) > self._load.outstanding_limit and self.aborted is None:
            self.abort(too_many_outstanding(len(flying), self._load.outstanding_limit))

    def turn(self, query_id: int, payload_ix: int, due_ns: int, request: Any, cancel_ns: int) -> None:
        """A turn of a session, which is due."""
        self.send(query_id, 0, payload_ix, due_ns, request, _MEASURE, self.done, cancel_ns)

    def done(self, exchange: Exchange) -> None:
        """An exchange is over (for lanes: call this first)."""
        self._flying.discard(exchange)
        if self._load.turns is not None and exchange.phase == _MEASURE:
            self._load.turns.ended(exchange)
        self._on_finished(exchange)

    def _cancel(self, exchange: Exchange) -> None:
        """Its time has come: unless it is over, done or failed, it is dropped."""
        if exchange in self._flying:
            self._client.cancel(exchange, int(Status.CANCELLED), CANCELLED)

    def abort(self, why: str) -> None:
        """The run makes no sense any more."""
        self.aborted = why
        self.stop()

    def _max_duration(self) -> None:
        if not self.issued_all:
            self.max_duration_hit = True
            self.stop()


#: Consecutive rows as ``_samples`` or ``_lists`` gives them.
_Lists = tuple[list[Any], ...]


class _Rows:
    """The rows of a lane in their order, made ready ahead of time. ``low``: few are."""

    def __init__(self, supply: Supply, made: Callable[[Plan, Sequence[Any] | None], Iterator[_Lists]]) -> None:
        self.supply, self._made = supply, made
        self._coming: Iterator[_Lists] = iter(())
        self._ready: deque[_Lists] = deque()
        self._dry = False
        self.fill(AHEAD // SLICE)

    @property
    def over(self) -> bool:
        return self._dry and not self._ready

    @property
    def low(self) -> bool:
        return not self._dry and len(self._ready) < AHEAD // SLICE // 4

    def fill(self, slices: int) -> None:
        """At most so many slices more, and no more than ``AHEAD`` rows ready."""
        while slices and not self._dry and len(self._ready) < AHEAD // SLICE:
            made = next(self._coming, None)
            if made is not None:
                self._ready.append(made)
                slices -= 1
            elif (taken := self.supply.take()) is not None:
                self._coming = self._made(*taken)
            else:
                self._dry = self.supply.next is None
                return

    def take(self) -> _Lists | None:
        """The next slice; None: that was all, or it isn't ready."""
        if not self._ready:
            self.fill(1)
        return self._ready.popleft() if self._ready else None


def _samples(
    load: Load, cancel_ns: Callable[[Plan], IntArray | None], t0_ns: int, piece: Plan, own: Sequence[Any] | None
) -> Iterator[_Lists]:
    """Of an open loop, of each sample: its query, its due time (absolute), its place, its payload, after how long it is
    cancelled, and its request, of ``own`` or (None) the load's by payload. A query may have more samples than anybody
    wants in lists.
    """
    cancel = cancel_ns(piece)
    for begin in range(0, piece.n_samples, SLICE):
        at = slice(begin, min(begin + SLICE, piece.n_samples))
        row: Any = at
        if piece.n_samples != piece.n_queries:
            row = np.searchsorted(piece.offsets, np.arange(at.start, at.stop), side="right") - 1
        payload = piece.payload_ix[at].tolist()
        yield (
            piece.query_id[row].tolist(),
            (piece.due_ns[row] + t0_ns).tolist(),
            piece.sample_ix[at].tolist(),
            payload,
            [-1] * (at.stop - at.start) if cancel is None else cancel[row].tolist(),
            [load.requests[ix] for ix in payload] if own is None else [*own[at]],
        )


def _lists(
    load: Load,
    cancel_ns: Callable[[Plan], IntArray | None],
    piece: Plan,
    own: Sequence[Any] | None,
    most: int = SLICE,
) -> Iterator[_Lists]:
    """Of a closed loop: ids, where the samples of each row begin and end, the samples, their payloads, after how long
    each row is cancelled, and the samples' requests.
    """
    cancel = cancel_ns(piece)
    for row in range(0, piece.n_queries, most):
        rows = slice(row, row + most)
        offsets = piece.offsets[row : row + most + 1]
        samples = slice(int(offsets[0]), int(offsets[-1]))
        payload = piece.payload_ix[samples].tolist()
        yield (
            piece.query_id[rows].tolist(),
            (offsets - offsets[0]).tolist(),
            piece.sample_ix[samples].tolist(),
            payload,
            [-1] * (len(offsets) - 1) if cancel is None else cancel[rows].tolist(),
            [load.requests[ix] for ix in payload] if own is None else [*own[samples]],
        )


class _OpenLane:
    """Due times are absolute; nothing is waited for, except that an offline plan bounds samples on the wire."""

    def __init__(
        self, issuer: Issuer, plan: Blocks, phase: int, cancel_ns: Callable[[Plan], IntArray | None] = never
    ) -> None:
        self._issuer = issuer
        self._clock = issuer._clock
        self._phase = phase
        self._limit = plan.head.max_in_flight or _NEVER
        load = issuer._load
        supply = load.fed.get(phase) or Pieces(iter(plan))
        self.rows = _Rows(supply, partial(_samples, load, cancel_ns, issuer.t0_ns))
        self._lists: _Lists = ([],) * 6
        self._row = 0
        self._full = False
        self._flying = 0
        self._hungry_ns = 0
        self.next_due_ns = _NEVER

    @property
    def finished(self) -> bool:
        return self._row >= len(self._lists[0]) and self.rows.over

    def begin(self) -> None:
        if self._turn():
            self._wait()

    def go_on(self) -> None:
        """With rows that were not ready when they were looked for."""
        supply, waits_ns = self.rows.supply, self._hungry_ns
        if waits_ns and supply.next is not None:
            late_ns = self._clock.now_ns() - missed_since(supply.next, self._issuer.t0_ns, waits_ns)
            came = self._turn()
            if late_ns > 0 and self._flying < self._limit:
                supply.unready(late_ns, came)
            if came:
                self._wait()

    def _turn(self) -> bool:
        """The next rows at hand. False: there are none."""
        while (lists := self.rows.take()) is not None:
            self._lists, self._row, self._hungry_ns = lists, 0, 0
            if lists[0]:
                return True
        self._hungry_ns = 0 if self.rows.over else self._hungry_ns or self._clock.now_ns()
        return False

    def _wait(self) -> None:
        self.next_due_ns = self._lists[1][self._row]
        self._clock.wake_at(self.next_due_ns, self._tick)

    def _tick(self) -> None:
        issuer = self._issuer
        now_ns = self._clock.now_ns
        ids, due, sample, payload, cancel, requests = self._lists
        n = len(due)
        while self._row < n and due[self._row] <= now_ns():
            if issuer.stopped:
                return
            if self._flying >= self._limit:
                self._full, self.next_due_ns = True, _NEVER
                return
            at = self._row
            self._row = at + 1
            self._flying += 1
            issuer.send(ids[at], sample[at], payload[at], due[at], requests[at], self._phase, self._done, cancel[at])
        # Also between two slices that are due both: other work has its turn.
        if self._row < n or self._turn():
            self._wait()
        else:
            self.next_due_ns = _NEVER

    def _done(self, exchange: Exchange) -> None:
        self._flying -= 1
        self._issuer.done(exchange)
        if self._hungry_ns and self._flying + 1 == self._limit:
            self._hungry_ns = self._clock.now_ns()  # only now a slot waits
        if self._full:
            self._full = False
            self._clock.wake_at(0, self._tick)


def rows_of(plan: Blocks) -> tuple[Plan | None, Iterator[Plan]]:
    """The rows of a shard of a closed loop: all of them, of which query k takes number k modulo theirs; of more than
    ``AT_HAND``, None and those of its own queries in their order, without end.
    """
    pieces: list[Plan] = []
    n = 0
    for piece in plan:
        pieces.append(piece)
        n += piece.n_queries
        if n > AT_HAND:
            return None, in_order(plan)
    return joined(pieces), iter(())


def in_order(plan: Blocks) -> Iterator[Plan]:
    """The rows of a closed loop's own queries, without end."""
    query_id = 0
    while True:
        for piece in plan:
            begun = np.arange(query_id, query_id + piece.n_queries) - piece.first_id
            query_id += piece.n_queries
            mine = np.flatnonzero((begun >= 0) & (begun % piece.id_step == 0))
            if len(mine):
                yield piece.select(mine, piece.max_in_flight)


class _ClosedLane:
    """A fixed number of slots; a query is due the moment its slot comes free (LoadGen: scheduled = issued = now)."""

    def __init__(
        self,
        issuer: Issuer,
        plan: Blocks,
        phase: int,
        cancel_ns: Callable[[Plan], IntArray | None] = never,
        ends_ns: int | None = None,
    ) -> None:
        self._issuer = issuer
        self._clock = issuer._clock
        self._phase = phase
        self._plan = plan.head
        load = issuer._load
        fed = load.fed.get(phase)
        whole, pieces = (None, iter(())) if fed else rows_of(plan)
        self._at_hand = whole is not None
        self.rows = _Rows(fed or Pieces(pieces), partial(_lists, load, cancel_ns))
        self._lists: _Lists = ([],) * 6
        if whole is not None:
            self._lists = next(_lists(load, cancel_ns, whole, None, whole.n_queries))
        self._row = 0
        self._waits_ns = 0
        self._slots = self._plan.max_in_flight or 1
        self._ends_ns = ends_ns
        self._next_id = self._plan.first_id
        self._last_due_ns = 0
        self._missing: dict[int, int] = {}
        self._free = 0
        self._pumping = False
        self.issued = 0
        self.busy = 0
        self.begun = False
        self.next_due_ns = _NEVER  # a closed loop has no appointments
        self.finished = False
        self.successor: _ClosedLane | None = None
        self.predecessor: _ClosedLane | None = None

    def begin(self) -> None:
        self.begun = True
        taken = self.predecessor.busy if self.predecessor is not None else 0
        self._free += self._slots - taken
        self._pump()

    def slot_free(self) -> None:
        self._free += 1
        self._pump()

    def _pump(self) -> None:
        # A client may finish an exchange inside send (the null client does): no recursion, one loop, and other work
        # has its turn now and then.
        if self._pumping:
            return
        self._pumping = True
        for _ in range(TURN):
            if not self._free or self._over() or not self._has_row():
                self._pumping = False
                return
            self._free -= 1
            self._issue()
        self._clock.wake_at(0, self._resume)

    def _resume(self) -> None:
        self._pumping = False
        self._pump()

    def _has_row(self) -> bool:
        while not self._at_hand and self._row >= len(self._lists[0]):
            lists = self.rows.take()
            if lists is None:
                self._waits_ns = self._waits_ns or self._clock.now_ns()
                return False
            self._lists, self._row = lists, 0
        return True

    def go_on(self) -> None:
        """With rows that were not ready when a slot was free."""
        if self._waits_ns and not self._over():  # a warm-up ends whether they come or not
            late_ns, came = self._clock.now_ns() - self._waits_ns, self._has_row()
            self.rows.supply.unready(late_ns, came)
            if came:
                self._waits_ns = 0
                self._pump()

    def _over(self) -> bool:
        if self.finished or self._issuer.stopped:
            return True
        stop = self._plan.stop
        if stop.max_queries is not None and self.issued >= stop.max_queries:
            self.finished = True
        elif self._ends_ns is not None:
            self.finished = self._clock.now_ns() >= self._ends_ns
        else:
            # LoadGen judges the issue time of the last query, so one query is issued at or after the minimum.
            elapsed = self._last_due_ns - self._issuer.t0_ns
            self.finished = 0 < self.issued >= stop.min_queries and elapsed >= stop.min_duration_ns
        return self.finished

    def _issue(self) -> None:
        query_id = self._next_id
        self._next_id = query_id + self._plan.id_step
        self.issued += 1
        self.busy += 1
        ids, offsets, sample, payload, cancel, requests = self._lists
        if self._at_hand:
            row = query_id % len(ids)
        else:
            row = self._row
            self._row += 1
        first, last = offsets[row], offsets[row + 1]
        if last - first > 1:
            self._missing[query_id] = last - first
        due = self._last_due_ns = self._clock.now_ns()
        for ix in range(first, last):
            self._issuer.send(
                query_id, sample[ix], payload[ix], due, requests[ix], self._phase, self._done, cancel[row]
            )

    def _done(self, exchange: Exchange) -> None:
        self._issuer.done(exchange)
        left = self._missing.get(exchange.query_id)
        if left is not None:
            if left > 1:
                self._missing[exchange.query_id] = left - 1
                return
            del self._missing[exchange.query_id]
        if exchange.status == _CONNECT:
            # A dead endpoint refuses in microseconds: without a pause a slot would make 100,000 error rows a second.
            self._clock.wake_at(self._clock.now_ns() + BACKOFF_NS, self._release)
        else:
            self._release()

    def _release(self) -> None:
        self.busy -= 1
        successor = self.successor
        if successor is not None and self._over():
            if successor.begun:
                successor.slot_free()
            return
        self.slot_free()
