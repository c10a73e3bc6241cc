"""This client of the issuer opens one WebSocket connection for each session, as many at once as it is asked for.

Hot world. permessage-deflate is never offered: it would put our processor into the server's latency. A session pays for
its own connection and handshake; both are on its row.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any

from websockets.client import ClientProtocol
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from plimsoll.harness.clock import Clock, WallMap
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.process.vitals import Durations
from plimsoll.harness.secrecy.redaction import redact
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import Endpoint, locate, origin_of
from plimsoll.harness.transport.live.dialogue import Dialogue, Script
from plimsoll.harness.transport.live.flights import Flights
from plimsoll.harness.transport.live.websocket_session import MAX_BODY, Prepared, Session, Talk, frame_of
from plimsoll.harness.transport.stream import Readers
from plimsoll.harness.transport.uplink import Uplinks
from plimsoll.harness.wire.headers import header_error
from plimsoll.scenarios.samples.payload import Payload


class WebSocketClient:
    """Plays a dialogue's scripts, one connection each. See ``plimsoll.harness.transport.client.Client``."""

    def __init__(self, target: Target, clock: Clock, dialogue: Dialogue) -> None:
        errors = [text for name, value in target.headers if (text := header_error(name, value))]
        if errors:
            raise HarnessFault(errors)
        self.target = target
        self.clock = clock
        self.dialogue = dialogue
        self._origin = origin_of(target.url)
        self._flights = Flights(clock, self.cancel)
        self._sessions: set[Session] = set()
        self._waiting: deque[Exchange] = deque()
        self._limit = target.max_connections or (1 << 30)
        self._opened = 0
        self._waits = Durations()
        self.readers: Readers
        self.endpoint: Endpoint

    def encode(self, payload: Payload) -> Prepared:
        script = self.dialogue.encode(payload)
        return Prepared(
            script,
            b"".join(map(frame_of, script.opening)),
            tuple(map(frame_of, script.frames)),
            b"".join(map(frame_of, script.closing)),
        )

    async def open(self, connections: int) -> None:
        """Resolve the host. Nothing is connected ahead: a session's connection is part of it."""
        self.readers = Readers(
            asyncio.get_running_loop(), WallMap(), self.target.stamps == "kernel", self._flights.relieve,
            Uplinks.of(self.clock, self.target.impair),
        )  # fmt: skip
        self.endpoint = await locate(self.target)

    def send(self, exchange: Exchange, request_id: bytes) -> None:
        script: Script = exchange.request.script
        exchange.request_id = request_id if self.target.send_request_id else b""
        exchange.n_in, exchange.media_ns = script.n_in, script.media_ns
        stamps = exchange.session = SessionStamps()
        stamps.pace, stamps.frame_ns = (script.pace, script.frame_ns) if script.frame_ns >= 0 else (-1, -1)
        if script.clip is not None:
            stamps.slice = script.clip.slice
        self._flights.add(exchange, self.target.timeout_ns)
        talk: Talk | None = exchange.request.talk
        if talk is not None and talk.session is not None:
            self._go_on(talk, talk.session, exchange)
        elif len(self._sessions) < self._limit:
            self._start(exchange)
        else:
            self._waiting.append(exchange)

    # -- conversations: turns that follow each other on one connection ----------------------------------------------

    @property
    def converses(self) -> bool:
        return getattr(self.dialogue, "converses", False)

    def follow(self, request: Prepared, before: Exchange | None, cut_ns: int) -> Prepared:
        """The request as the turn after ``before`` (None: the first one), whose own answer is spoken over ``cut_ns``
        after its first sound (-1: it is heard out).
        """
        return replace(request, talk=Talk() if before is None else before.request.talk, cut_ns=cut_ns)

    def leave(self, exchange: Exchange) -> None:
        """No turn comes after this one."""
        talk: Talk = exchange.request.talk
        session, talk.session = talk.session, None
        if session is not None and session in self._sessions:
            session.close()
            self.gone(session)

    def _go_on(self, talk: Talk, session: Session, exchange: Exchange) -> None:
        if session.lost is None:
            session.take(exchange)
            return
        talk.session = None
        self.cancel(exchange, *session.lost)

    def turned(self, exchange: Exchange, heard_ns: int) -> None:
        """A turn is over, or its answer takes so long to be heard, which is not the server's time either."""
        if heard_ns:
            self._flights.allow(exchange, heard_ns)
        else:
            self._flights.land(exchange)

    def gone(self, session: Session) -> None:
        """A connection is no more: the longest waiting exchanges get its place."""
        self._sessions.discard(session)
        while self._waiting and len(self._sessions) < self._limit:
            waiting = self._waiting.popleft()
            if waiting.on_wire:
                self._waits.add(self.clock.now_ns() - waiting.ready_ns)
                self._start(waiting)

    def _start(self, exchange: Exchange) -> None:
        session = Session(self, exchange, self.clock.now_ns())
        exchange.context = session
        self._sessions.add(session)
        self._opened += 1
        session.connect()
        self.clock.wake_at(session.deadline_ns, lambda: self._connect_timed_out(session))

    def _connect_timed_out(self, session: Session) -> None:
        if session not in self._sessions or session.connected:
            return
        now = self.clock.now_ns()
        if session.try_next_address(now):
            self.clock.wake_at(session.deadline_ns, lambda: self._connect_timed_out(session))
            return
        session.on_lost(f"no connection after {self.target.connect_timeout_ns / 1e9:g} s (connect timeout)", now, False)

    def protocol(self, script: Script) -> ClientProtocol:
        """The library's half of a new session."""
        origin = self._origin
        path, _, query = script.path.partition("?")
        uri = WebSocketURI(origin.tls, origin.host, origin.port, path, query)
        subprotocols = [Subprotocol(name) for name in script.subprotocols] or None
        return ClientProtocol(uri, subprotocols=subprotocols, extensions=None, max_size=MAX_BODY)

    def headers(self, script: Script, exchange: Exchange) -> list[tuple[str, str]]:
        """What the handshake carries besides its own headers."""
        found = list(script.headers)
        if exchange.request_id:
            found.append(("x-request-id", exchange.request_id.decode()))
        if exchange.traceparent:
            found.append(("traceparent", exchange.traceparent.decode()))
        return found

    def begun(self, exchange: Exchange) -> None:
        """The session is ready: what it takes to say is not the server's time."""
        self._flights.allow(exchange, exchange.request.script.closing_ns)

    def over(self, session: Session, exchange: Exchange) -> None:
        """A session ended."""
        self._flights.land(exchange)
        self.gone(session)

    def settle(self, exchange: Exchange) -> None:
        self.dialogue.settle(exchange)
        if exchange.error:  # a server may say back what it was given, in a refusal or as it closes
            exchange.error = redact(exchange.error)

    def cancel(self, exchange: Exchange, status: int, error: str) -> None:
        if not exchange.on_wire:
            return
        session = exchange.context
        if session is not None:
            session.cancel(status, error, self.clock.now_ns())
            return
        exchange.status, exchange.error, exchange.done_ns = status, error, self.clock.now_ns()
        self._flights.land(exchange)

    async def close(self) -> None:
        for session in list(self._sessions):
            session.close()
        self._sessions.clear()
        if hasattr(self, "readers"):  # it was opened
            self.readers.close()
        await asyncio.sleep(0)

    def stats(self) -> dict[str, Any]:
        """Counters for generator.json."""
        readers = self.readers
        return {
            "engine": "python",
            "connections_opened": self._opened,
            "retried_on_stale_connection": 0,
            "pool_waits": self._waits.count,
            "pool_wait_p99_ns": self._waits.p99_ns(),
            "kernel_reads": readers.kernel_reads,
            "user_reads": readers.user_reads,
            "clock_steps": readers.wall.steps,
            "stamps_refused": readers.wall.refused,
            "exhausted": dict(readers.exhausted),
            **({} if readers.uplinks is None else {"uplink": readers.uplinks.counts}),
        }
