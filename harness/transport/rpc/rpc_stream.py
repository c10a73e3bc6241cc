"""One gRPC call is one HTTP/2 stream: this module writes when it is due and stamps what arrives.

Hot world: frame boundaries and message prefixes are all that is looked at while a call is on. Header blocks are kept as
they came, under an empty name in ``exchange.headers``, and decoded when the exchange is settled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT
from plimsoll.harness.transport.live.player import Player
from plimsoll.harness.transport.outcome import EXCERPT
from plimsoll.harness.transport.rpc.call import GrpcRequest, Hearing
from plimsoll.harness.transport.rpc.rpc_outcome import reset_status
from plimsoll.harness.transport.uplink import Uplinks
from plimsoll.harness.wire.grpc_messages import MessageError, MessageReader
from plimsoll.harness.wire.hpack_blocks import literal
from plimsoll.harness.wire.http2 import Sending, Session
from plimsoll.harness.wire.http2_frames import CANCEL, REFUSED_STREAM
from plimsoll.slo.records.records import Status

_OK, _PROTOCOL = int(Status.OK), int(Status.PROTOCOL)
#: An answer has its headers, its trailers, and perhaps a few interim ones.
MAX_BLOCKS = 32
#: What the player is given to say "half-close": it is told apart by identity.
_HALF_CLOSE = bytes(bytearray(b"half-close"))
#: The request id's header up to its length, as a literal without indexing.
_REQUEST_ID = b"\x00\x0cx-request-id"
_TRACEPARENT = b"\x00\x0btraceparent\x37"  # 55 bytes follow


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call ready to write. ``block`` and the request id's literal make the headers; it may hold credentials.

    ``opening`` is written with them; ``frames`` follow on the schedule of ``call``, whose messages are left out.
    ``whole``: there are no frames, so the call half-closes at once. ``live``: it has a schedule or carries speech.
    """

    call: GrpcRequest
    block: bytes = field(repr=False)
    opening: bytes = field(repr=False)
    frames: tuple[bytes, ...] = field(repr=False)
    due_ns: tuple[int, ...]
    gap_ns: tuple[int, ...]
    whole: bool
    live: bool
    timeout_ns: int


def start_media(stamps: SessionStamps, call: GrpcRequest, start_ns: int) -> None:
    """The call is written: from now on its frames are due, and its clip is spoken."""
    stamps.open_ns = stamps.input_end_ns = start_ns
    if call.frame_ns >= 0 or call.clip is not None:
        stamps.media_start_ns = start_ns
        stamps.pace, stamps.frame_ns = call.pace, call.frame_ns
    if call.clip is not None:
        stamps.slice = call.clip.slice
        if call.clip.onset_ns >= 0:
            stamps.speech_start_ns = start_ns + call.clip.onset_ns
            stamps.speech_end_ns = start_ns + call.clip.offset_ns


def end_media(stamps: SessionStamps, player: Player) -> None:
    """Keep how the frames went out."""
    stamps.input_end_ns, stamps.unsent_bytes = player.ended_ns, player.most_unsent
    stamps.frame_lag_ns = player.lag_ns


class Line(Protocol):
    """What a call needs of its connection. ``kernel``: the bytes being read carry the kernel's stamp."""

    session: Session
    kernel: bool
    heard: Hearing | None

    def now_ns(self) -> int: ...

    def untaken(self) -> int:
        """Bytes that the peer has not taken."""
        ...

    @property
    def uplinks(self) -> Uplinks | None:
        """The bad network before it."""
        ...

    def is_page(self, exchange: Exchange) -> bool:
        """The answer's headers are not those of gRPC."""
        ...

    def call_over(self, call: Call, exchange: Exchange) -> None:
        """The exchange is finished: hand it back."""
        ...

    def call_refused(self, call: Call, exchange: Exchange, t_ns: int) -> None:
        """The server did not begin this call, and says so."""
        ...


class Call:
    """One call under way."""

    __slots__ = ("_channel", "_messages", "_player", "_raw", "_sending", "before", "exchange")

    def __init__(self, channel: Line, exchange: Exchange, limit: int, before: int) -> None:
        """``before``: bytes that the kernel had taken before it, on a connection that had carried calls and carries no
        other now; -1 on any other.
        """
        self._channel = channel
        self.exchange: Exchange | None = exchange
        self._messages = MessageReader(exchange, limit)
        self._player: Player | None = None
        self._raw = False  # the body is a web server's page
        self._sending: Sending | None = None
        self.before = before

    @property
    def number(self) -> int:
        """Its stream's id."""
        return self._sending.id if self._sending is not None else 0

    def begin(self, session: Session, clock: Clock) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        prepared: Prepared = exchange.request
        block = prepared.block
        if exchange.request_id:
            size = len(exchange.request_id)
            block += (
                _REQUEST_ID + bytes((size,)) + exchange.request_id
                if size < 127
                else literal("x-request-id", exchange.request_id)
            )
        if exchange.traceparent:
            block += _TRACEPARENT + exchange.traceparent
        self._sending, stamp, exchange.bytes_out = session.begin(self, block, prepared.opening, prepared.whole)
        if exchange.sent_ns < 0:
            exchange.sent_ns = stamp
        else:
            exchange.attempts += 1
        if exchange.session is not None:
            start_media(exchange.session, prepared.call, stamp)
        if not prepared.whole:
            self._play(exchange, clock, stamp)

    def _play(self, exchange: Exchange, clock: Clock, start: int) -> None:
        prepared: Prepared = exchange.request
        call = prepared.call
        frames, due_ns = prepared.frames, prepared.due_ns
        closing_ns = max(call.closing_due_ns, due_ns[-1] if due_ns else 0)
        needed = len(frames) if call.needed is None else call.needed
        links = self._channel.uplinks
        self._player = Player(
            clock, frames, due_ns, needed, _HALF_CLOSE, closing_ns, self._write, self._channel.untaken, prepared.gap_ns,
            links.copies(exchange, len(frames)) if links is not None and call.frame_ns >= 0 else (),
        )  # fmt: skip
        self._player.start(start)

    def _write(self, data: bytes) -> int:
        """Write a frame or the half-close. What a window holds back has the time at which we were ready to write it."""
        sending, exchange, session = self._sending, self.exchange, self._channel.session
        stamp = -1
        if sending is not None and exchange is not None:
            if data is _HALF_CLOSE:
                stamp = session.send(sending, b"", True)
            else:
                exchange.bytes_out += len(data) + 9
                stamp = session.send(sending, data, False)
        return stamp if stamp >= 0 else self._channel.now_ns()

    @property
    def unsent(self) -> int:
        """Bytes that the peer's window holds back."""
        return self._sending.queued if self._sending is not None else 0

    # -- what the server says -----------------------------------------------------------------------------------

    def on_headers(self, block: bytes, end: bool, t_ns: int) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self._arrived(exchange, len(block) + 9, t_ns)
        if exchange.headers_ns < 0:
            exchange.headers_ns = t_ns
        exchange.headers.append((b"", block))
        if len(exchange.headers) > MAX_BLOCKS:
            self._abandon()
            self.finish(_PROTOCOL, f"the server sent more than {MAX_BLOCKS} header blocks for one call", t_ns)
        elif end:
            self._ended(exchange, t_ns)
        elif exchange.watch is not None:
            exchange.watch(exchange)

    def on_data(self, data: memoryview, end: bool, t_ns: int) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self._arrived(exchange, len(data) + 9, t_ns)
        if self._raw:
            self._keep_raw(exchange, data)
        else:
            heard = self._channel.heard
            before = len(exchange.mark_end) if heard is not None else 0
            try:
                self._messages.feed(data, t_ns)
            except MessageError as error:
                self._not_grpc(exchange, data, str(error), t_ns)
            if heard is not None:
                self._hear(exchange, heard, before, t_ns)
        if end and self.exchange is not None:
            self._ended(exchange, t_ns)
        elif exchange.watch is not None and self.exchange is not None:
            exchange.watch(exchange)

    def _arrived(self, exchange: Exchange, size: int, t_ns: int) -> None:
        exchange.bytes_in += size
        if exchange.first_byte_ns < 0:
            exchange.first_byte_ns = t_ns
        if not self._channel.kernel:
            exchange.stamp = 1

    def _hear(self, exchange: Exchange, heard: Hearing, i: int, t_ns: int) -> None:
        ends, body = exchange.mark_end, exchange.body
        while i < len(ends) and self.exchange is not None:
            said = heard(exchange, bytes(body[ends[i - 1] if i else 0 : ends[i]]))
            i += 1
            if said == DONE:
                self._abandon()
                exchange.headers.append((b"grpc-status", b"0"))  # ours: it gave what it was called for
                self.finish(_OK, None, t_ns)
            elif said == ENDPOINT and self._player is not None:
                self._player.cut()

    def _not_grpc(self, exchange: Exchange, data: memoryview, why: str, t_ns: int) -> None:
        """The body holds no messages that we can take.

        A web server's page is kept for the error; anything else is the end.
        """
        if exchange.mark_end or not self._channel.is_page(exchange):
            self._abandon()
            self.finish(_PROTOCOL, why, t_ns)
            return
        exchange.body[:] = self._messages.cut()
        self._raw = True
        self._keep_raw(exchange, data)

    def _keep_raw(self, exchange: Exchange, data: memoryview) -> None:
        if len(exchange.body) < 8 * EXCERPT:
            exchange.body += data

    def _ended(self, exchange: Exchange, t_ns: int) -> None:
        """The server half-closed. Whether that is a success its trailers say, later."""
        if not self._messages.between and not self._raw:
            if not self._channel.is_page(exchange):
                self.finish(_PROTOCOL, "the call ended in the middle of a message", t_ns)
                return
            exchange.body += self._messages.cut()
            self._raw = True
        self.finish(_OK, None, t_ns)

    def on_reset(self, code: int, t_ns: int) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        if code == REFUSED_STREAM and exchange.first_byte_ns < 0:
            self.take()
            self._channel.call_refused(self, exchange, t_ns)
        else:
            status, exchange.code, text = reset_status(code)
            if not self._channel.kernel:
                exchange.stamp = 1
            self.finish(status, text, t_ns)

    # -- ending -------------------------------------------------------------------------------------------------

    def _abandon(self) -> None:
        if self._sending is not None:
            self._channel.session.reset(self._sending, CANCEL)

    def cancel(self, status: int, error: str, t_ns: int) -> None:
        """Give it up: the server is told, and nothing stays open."""
        self._abandon()
        self.finish(status, error, t_ns)

    def withdraw(self, session: Session) -> Exchange | None:
        """The server will not begin this call: take the exchange off it, unfinished."""
        if self._sending is not None:
            session.forget(self._sending)
        return self.take()

    def finish(self, status: int, error: str | None, t_ns: int) -> None:
        exchange = self.take()
        if exchange is not None:
            exchange.status = status
            exchange.error = error
            exchange.done_ns = t_ns
            self._channel.call_over(self, exchange)

    def take(self) -> Exchange | None:
        """Take the exchange off the call."""
        exchange = self.exchange
        if exchange is None:
            return None
        self.exchange = None
        exchange.context = None
        if not self._raw:
            self._messages.close()
        player, stamps = self._player, exchange.session
        # The garbage collector is off while we measure: both of these hold this call.
        self._player = self._sending = None
        if player is not None:
            player.stop()
            if stamps is not None:
                end_media(stamps, player)
            if (links := self._channel.uplinks) is not None:
                links.sent(exchange, player.lost, player.twice)
        return exchange
