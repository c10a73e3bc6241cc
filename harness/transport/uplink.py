"""A bad network between a client and its socket: what is written leaves late, slowly, twice or not at all.

Bytes of a connection keep their order, as they do in TCP. A write is cut into segments. Each takes its time on the line
(``bits_per_s``), then its delay; a lost one is sent again after ``RETRANSMIT_NS``, twice as long each further time, and
what was written behind it waits. Where frames of live audio are sent they are what gets lost and comes twice, whole, as
in a call over UDP, and segments aren't lost beside them. Nothing that comes back is touched.

Time stamps of a write are those of the client: what the line costs is part of the latency and never of the schedule
lag.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange

#: What TCP over Ethernet carries in a segment, and the headers of IP and TCP before it.
SEGMENT, HEADERS = 1_460, 40
#: Linux's least retransmission timeout. A request of few segments is shorter than what fast retransmission needs.
RETRANSMIT_NS = 200_000_000


class Uplinks:
    """The uplinks of one client's connections, and what they did. Drawn from the seed: the fate of frames by query,
    all else in the order of this process's writes.
    """

    def __init__(self, clock: Clock, model: Mapping[str, Any]) -> None:
        self.clock, self.live, self.seed = clock, bool(model["live"]), int(model["seed"])
        self._loss, self._twice = float(model["loss"]), float(model["duplicate"])
        self._delay_ns, self._jitter_ns = int(model["delay_ns"]), int(model["jitter_ns"])
        self._ns_per_byte = 8e9 / model["bits_per_s"] if model["bits_per_s"] else 0.0
        self._random = Random(f"{self.seed} {model['shard']}")
        self._cut = SEGMENT if self._ns_per_byte or (self._loss and not self.live) else 1 << 62
        self.counts = {"frames_lost": 0, "frames_twice": 0, "segments_lost": 0, "writes": 0}

    @staticmethod
    def of(clock: Clock, model: Mapping[str, Any] | None) -> Uplinks | None:
        """None: the network is left as it is."""
        return None if model is None else Uplinks(clock, model)

    def copies(self, exchange: Exchange, frames: int) -> list[int]:
        """How often each frame of a session is sent; empty: each once."""
        if not self.live or not (self._loss or self._twice):
            return []
        draw = Random(f"{self.seed} {exchange.query_id} {exchange.sample_ix}").random
        return [0 if draw() < self._loss else 1 + (draw() < self._twice) for _ in range(frames)]

    def sent(self, exchange: Exchange, lost: int, twice: int) -> None:
        """A session's frames are out: its row says what became of them."""
        if self.live:
            exchange.labels = {**(exchange.labels or {}), "frames_lost": lost, "frames_twice": twice}
            self.counts["frames_lost"] += lost
            self.counts["frames_twice"] += twice

    def line_ns(self, size: int) -> int:
        """How long a segment takes to leave."""
        return round((size + HEADERS) * self._ns_per_byte)

    def way_ns(self) -> int:
        """How long the next segment is under way."""
        found = self._delay_ns
        if self._jitter_ns:
            found += round(self._random.uniform(-self._jitter_ns, self._jitter_ns))
        again_ns = RETRANSMIT_NS
        while not self.live and self._loss and self._random.random() < self._loss:
            self.counts["segments_lost"] += 1
            found += again_ns
            again_ns *= 2
        return found

    def segments(self, data: bytes) -> list[bytes]:
        """What a write is sent in."""
        return [data[i : i + self._cut] for i in range(0, len(data), self._cut)]


class Uplink:
    """The way of one connection's bytes to ``send``."""

    __slots__ = ("_free_ns", "_last_ns", "_links", "_queue", "_send", "emptied", "held")

    def __init__(self, links: Uplinks, send: Callable[[bytes], None]) -> None:
        """``held``: bytes that are under way. ``emptied`` is called, if set, when none is left."""
        self._links, self._send = links, send
        self._queue: deque[tuple[int, bytes]] = deque()
        self._free_ns = self._last_ns = 0
        self.held = 0
        self.emptied: Callable[[], None] | None = None

    def put(self, data: bytes) -> None:
        """Write: it leaves later."""
        links = self._links
        now_ns = links.clock.now_ns()
        links.counts["writes"] += 1
        waits = bool(self._queue)
        for segment in links.segments(data):
            self._free_ns = max(self._free_ns, now_ns) + links.line_ns(len(segment))
            self._last_ns = max(self._last_ns, self._free_ns + links.way_ns())
            self._queue.append((self._last_ns, segment))
        self.held += len(data)
        if not waits and self._queue:
            links.clock.wake_at(self._queue[0][0], self._due)

    def drop(self) -> None:
        """The connection is no more, and what was under way with it."""
        self._queue.clear()
        self.held, self.emptied = 0, None

    def _due(self) -> None:
        queue, now_ns = self._queue, self._links.clock.now_ns()
        ready = bytearray()
        while queue and queue[0][0] <= now_ns:
            ready += queue.popleft()[1]
        self.held -= len(ready)
        if ready:
            self._send(bytes(ready))
        if queue:
            self._links.clock.wake_at(queue[0][0], self._due)
        elif self.emptied is not None:
            emptied, self.emptied = self.emptied, None
            emptied()
