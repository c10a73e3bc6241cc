"""The way of a request to one replica and of its answer back: HTTP/1.1, streams, upgrades, and gRPC by connection.

A read from a replica is one write to the client, so events keep their times. Nothing is sent twice but to a replica
that could not be reached, and nothing is hidden: an answer that breaks off is seen to break off. ``log`` has what the
router itself cost each request.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from http import HTTPStatus
from typing import cast

from plimsoll.reference_server.routing.framing import ENDLESS, MAX_HEAD, BadMessage, Body, Head, body_of, body_of_answer
from plimsoll.reference_server.routing.policies import Replica, Route, prompt_key
from plimsoll.reference_server.transports.http_calls import NO_LINGER, error_body
from plimsoll.reference_server.values.errors import RequestError, unavailable

_OWN = (b"/fleet", b"/admin", b"/metrics", b"/truth", b"/health")
"""Paths that the fleet answers itself."""
_HTTP2 = b"PRI"
"""The first word of a connection of HTTP/2: what follows is one replica's until it ends."""
_LOG = 200_000


class Router:
    """The replicas, the policy and the log."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.own = Replica("router")
        """Where the fleet answers for itself."""
        self.replicas: list[Replica] = []
        self.fronts: set[Front] = set()
        self.log: deque[tuple[str, str, int, int, int, int, int, int]] = deque(maxlen=_LOG)
        """Id, replica, status; when the head was whole, was sent on, answered, answered on, and when all was over."""
        self.n_elsewhere = 0
        """Requests sent to another replica because the first could not be reached."""
        self.n_nobody = 0

    def choose(self, head: Head, body: bytes, peer: bytes, tried: list[Replica]) -> Replica | None:
        """Who takes a request, or a whole connection of gRPC; None when nobody can."""
        if head.start[1].startswith(_OWN):
            return None if tried else self.own
        now_ns = time.monotonic_ns()
        able = [one for one in self.replicas if one.state == "up" and one.breaker.lets_through(now_ns)]
        if tried or head.start[0] == _HTTP2:
            able = [one for one in able if one not in tried and (one.grpc_port or head.start[0] != _HTTP2)]
        if not able:
            self.n_nobody += 1
            return None
        by_prompt = self.route.name == "prefix-hash"
        chosen = self.route.choose(able, prompt_key(body) if by_prompt else head.fields.get(self.route.header, peer))
        chosen.breaker.sent(now_ns)
        return chosen


class Upstream(asyncio.Protocol):
    """One connection to a replica."""

    transport: asyncio.Transport

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.front: Front | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.front is None:
            self.transport.close()  # nobody asked
        else:
            self.front.answered(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._replica.idle:
            self._replica.idle.remove(self)
        if self.front is not None:
            self.front.lost(exc)

    def pause_writing(self) -> None:
        if self.front is not None:
            self.front.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.front is not None:
            self.front.transport.resume_reading()


class Front(asyncio.Protocol):
    """One client's connection: its requests, one after another, each to one replica and back."""

    transport: asyncio.Transport
    _head: Head
    _asked: Body
    _body: Body | None

    def __init__(self, router: Router) -> None:
        self._router = router
        self._input = bytearray()
        self._busy = False
        self._upstream: Upstream | None = None
        self._replica: Replica | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._peer = tuple(str(part).encode() for part in (transport.get_extra_info("peername") or "??")[:2])
        self._router.fronts.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._router.fronts.discard(self)
        if self._busy:
            self._end(-1)

    def data_received(self, data: bytes) -> None:
        self._input += data
        self._advance()

    def _advance(self) -> None:
        try:
            while self._input and not self.transport.is_closing():
                if not self._busy:
                    if not self._begin():
                        return
                elif self._tunnel or not self._asked.over:
                    n = len(self._input) if self._tunnel else self._asked.take(self._input)
                    self._forward(bytes(self._input[:n]))
                    del self._input[:n]
                else:
                    self.transport.pause_reading()  # the next request waits
                    return
        except BadMessage as error:
            self._refuse(RequestError(400, f"this is no request whose end is certain: {error}", code="invalid_http"))

    def _begin(self) -> bool:
        end = self._input.find(b"\r\n\r\n") + 4
        if end < 4:
            if len(self._input) > MAX_HEAD:
                raise BadMessage("its head is too long")
            return False
        head = self._head = Head(bytes(self._input[:end]))
        if not head.start[0].isalpha() or not head.start[1].isascii():
            raise BadMessage("its first line is no METHOD PATH")
        self._asked = body_of(head, 0)
        n = self._asked.take(self._input, end)
        self._first = bytes(self._input[end:n])
        del self._input[:n]
        self._unsent = [head.raw[:-2], b"x-forwarded-for: " + self._peer[0] + b"\r\n\r\n", self._first]
        self._busy, self._tunnel, self._closes = True, False, head.closes
        self._answer, self._body, self._status = b"", None, 0
        if head.start[0] == _HTTP2:
            self._tunnel, self._unsent, self._body, self._status = True, [head.raw], Body(ENDLESS), 200
        self._tried: list[Replica] = []
        self._received_ns = time.monotonic_ns()
        self._sent_ns = self._answered_ns = self._written_ns = -1
        self._dispatch()
        return True

    def _dispatch(self) -> None:
        """Find a replica, and a connection to it."""
        replica = self._replica = self._router.choose(self._head, self._first, b":".join(self._peer), self._tried)
        if replica is None:
            why = "no replica takes requests now: see /fleet. Start one, or wait until one is up"
            self._refuse(unavailable(why, "no_replica"))
            return
        self._count(replica, 1)
        while replica.idle and not self._tunnel:
            upstream = replica.idle.pop()
            if not upstream.transport.is_closing():
                self._send_by(upstream)
                return
        self._connecting = asyncio.get_running_loop().create_task(self._connect(replica))

    async def _connect(self, replica: Replica) -> None:
        begun_ns = self._received_ns
        try:
            port = (replica.grpc_port or 0) if self._tunnel else replica.port
            made = await asyncio.get_running_loop().create_connection(lambda: Upstream(replica), replica.host, port)
        except OSError:
            made = None
        if not self._busy or self._received_ns != begun_ns:  # the client has left meanwhile
            if made is not None:
                made[0].close()
        elif made is not None:
            self._send_by(made[1])
        else:
            self._count(replica, -1)
            replica.breaker.ended(0, time.monotonic_ns())
            replica.state = "down" if replica.state == "up" else replica.state
            self._tried.append(replica)
            self._router.n_elsewhere += 1
            self._dispatch()

    def _send_by(self, upstream: Upstream) -> None:
        upstream.front, self._upstream = self, upstream
        self._sent_ns = time.monotonic_ns()
        upstream.transport.write(b"".join(self._unsent))

    def _forward(self, data: bytes) -> None:
        if self._upstream is None:
            self._unsent.append(data)
        else:
            self._upstream.transport.write(data)

    def answered(self, data: bytes) -> None:
        """Bytes from the replica."""
        if self._answered_ns < 0:
            self._answered_ns = time.monotonic_ns()
        try:
            out = self._headed(data) if self._body is None else data[: self._body.take(data)]
        except BadMessage as error:
            self._broken(f"a replica's answer can't be followed: {error}")
            return
        if out:
            if self._written_ns < 0:
                self._written_ns = time.monotonic_ns()
            self.transport.write(out)
        if self._body is not None and self._body.over:
            self._end(self._status, keep=not self._closes and self._asked.over)

    def _headed(self, data: bytes) -> bytes:
        """What the client gets of an answer whose head was not whole before, the replica's name in it."""
        self._answer += data
        out = b""
        while self._body is None:
            end = self._answer.find(b"\r\n\r\n") + 4
            if end < 4:
                if len(self._answer) > MAX_HEAD:
                    raise BadMessage("its head is too long")
                return out
            head, self._answer = Head(self._answer[:end]), self._answer[end:]
            self._status = int(head.start[1]) if head.start[1].isdigit() else 0
            out += head.raw
            if 100 <= self._status < 200 and self._status != 101:
                continue
            self._tunnel = self._status == 101
            self._body = body_of_answer(head, self._head.start[0])
            self._closes = self._closes or head.closes or self._body.endless
            if b"x-served-by" not in head.fields and self._replica is not None:
                out = out[:-2] + b"x-served-by: " + self._replica.name.encode() + b"\r\n\r\n"
        return out + self._answer[: self._body.take(self._answer)]

    def lost(self, exc: Exception | None) -> None:
        """The replica's connection ended: as the end of its answer, or before it."""
        if exc is None and self._body is not None and self._body.endless:
            self._end(self._status)
        else:
            self._broken("the replica's connection broke before its answer", reset=isinstance(exc, ConnectionError))

    def _broken(self, why: str, *, reset: bool = False) -> None:
        if self._written_ns < 0:
            self._refuse(RequestError(502, f"{why}. See /fleet", kind="server_error", code="replica_lost"))
            return
        if reset and (connection := self.transport.get_extra_info("socket")) is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            self.transport.abort()
        self._end(0)

    def _refuse(self, error: RequestError) -> None:
        """The router's own words, in the dialect of the path asked for; the connection ends with them."""
        body = error_body(self._head.start[1].decode("latin-1") if self._busy else "", error)
        retry = f"retry-after: {error.retry_after_s}\r\n" if error.retry_after_s is not None else ""
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-served-by: router\r\n{retry}connection: close\r\n\r\n"
        )
        self._written_ns = time.monotonic_ns()
        self.transport.write(head.encode() + body)
        if self._busy:
            self._end(error.status)
        self.transport.close()

    def _end(self, status: int, *, keep: bool = False) -> None:
        """The answer is out, or never will be. ``keep``: both connections are as good as new."""
        now_ns, replica, upstream = time.monotonic_ns(), self._replica, self._upstream
        self._busy, self._replica, self._upstream = False, None, None
        if replica is not None:
            self._count(replica, -1)
            replica.breaker.ended(status, now_ns)
            if status >= 0:
                replica.answers[status] = replica.answers.get(status, 0) + 1
        if upstream is not None:
            upstream.front = None
            if keep and replica is not None and replica.state != "gone":
                upstream.transport.resume_reading()
                replica.idle.append(upstream)
            else:
                upstream.transport.close()
        if replica is not self._router.own:
            request_id = self._head.fields.get(b"x-request-id", b"").decode("latin-1")
            times = (self._received_ns, self._sent_ns, self._answered_ns, self._written_ns, now_ns)
            self._router.log.append((request_id, replica.name if replica is not None else "", status, *times))
        if not keep:
            self.transport.close()
        else:
            self.transport.resume_reading()
            if self._input:
                asyncio.get_running_loop().call_soon(self._advance)

    def _count(self, replica: Replica, n: int) -> None:
        if self._head.start[0] == _HTTP2:
            replica.n_channels += n
        else:
            replica.n_in_flight += n

    def pause_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.transport.resume_reading()
