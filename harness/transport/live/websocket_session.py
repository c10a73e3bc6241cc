"""One WebSocket session: a connection on the stamped stream, framed by the ``websockets`` library's sans-I/O protocol.

Hot world. Frames are masked and framed before t0, so that sending one is a write. What arrives is split into messages
by the library and kept with one mark a message (the arrival of its last fragment); what a message means is the
dialogue's business, after the session, but for the few bytes that say "ready" and "over".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import OPEN

from plimsoll.harness.clock import Clock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.secrecy.redaction import cut
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import Endpoint, was_reset
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, READY, Converser, Dialogue, Message, Script
from plimsoll.harness.transport.live.player import Player
from plimsoll.harness.transport.stream import Readers, Stream
from plimsoll.slo.records.records import Status

_OK, _HTTP, _CONNECT = int(Status.OK), int(Status.HTTP), int(Status.CONNECT)
_PROTOCOL, _REFUSED = int(Status.PROTOCOL), int(Status.REFUSED)
#: Close codes with which a server ends a session in good order (RFC 6455 section 7.4.1); 1005: a close without a code.
_ORDERLY = (1000, 1005)
#: All messages of one session together, and how many: a server that says more would take the worker's memory with it.
MAX_BODY, MAX_MESSAGES = 256 * 1024 * 1024, 1 << 18
#: Pongs that the server asks for and doesn't take.
_MAX_PONGS = 1024 * 1024
#: Close codes that say "too much, not now".
_OVERLOADED = (1013,)


class Owner(Protocol):
    """What a session needs of the client that it belongs to."""

    target: Target
    clock: Clock
    dialogue: Dialogue
    readers: Readers
    endpoint: Endpoint

    def protocol(self, script: Script) -> ClientProtocol:
        """The library's half of a new session."""
        ...

    def headers(self, script: Script, exchange: Exchange) -> list[tuple[str, str]]:
        """What the handshake carries besides its own headers."""
        ...

    def begun(self, exchange: Exchange) -> None:
        """The session is ready and its script begins."""
        ...

    def turned(self, exchange: Exchange, heard_ns: int) -> None:
        """A turn of a conversation: its answer came and takes so long to be heard; 0: it is over."""
        ...

    def gone(self, session: Session) -> None:
        """A connection that nobody waits for is no more."""
        ...

    def over(self, session: Session, exchange: Exchange) -> None:
        """The session has ended; status, error and stamps are on the exchange."""
        ...


class Talk:
    """A conversation of several turns: the connection that holds it, None while there is none."""

    __slots__ = ("session",)

    def __init__(self) -> None:
        self.session: Session | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A session ready to play: the script, and its messages as wire bytes.

    Masks are random, so only scripts compare. ``talk``: the conversation that it is a turn of, if any; ``cut_ns``: so
    long after the first sound of its answer the next turn speaks over it (-1: it hears the answer out).
    """

    script: Script = field(repr=False)
    opening: bytes = field(repr=False, compare=False)
    frames: tuple[bytes, ...] = field(repr=False, compare=False)
    closing: bytes = field(repr=False, compare=False)
    talk: Talk | None = field(default=None, repr=False, compare=False)
    cut_ns: int = -1

    @property
    def n_in(self) -> int:
        return self.script.n_in

    @property
    def media_ns(self) -> int:
        return self.script.media_ns


def frame_of(message: Message) -> bytes:
    """One message as one masked frame (RFC 6455 section 5)."""
    opcode = Opcode.TEXT if message.text else Opcode.BINARY
    return Frame(opcode, message.data).serialize(mask=True, extensions=[])


class Session:
    """One session: a stream, the library's protocol, a player and the exchange that it is all for."""

    __slots__ = (
        "_answered",
        "_between",
        "_client",
        "_closed",
        "_first_sound_ns",
        "_fragment_text",
        "_fragments",
        "_fresh",
        "_headers",
        "_opening_ns",
        "_player",
        "_pongs",
        "_prepared",
        "_protocol",
        "_sounding_ns",
        "_stream",
        "_taken_ns",
        "connected",
        "deadline_ns",
        "exchange",
        "lost",
        "upgraded",
    )

    def __init__(self, client: Owner, exchange: Exchange, now_ns: int) -> None:
        self._client = client
        self.exchange: Exchange | None = exchange
        self._prepared: Prepared = exchange.request
        self._stream = Stream(client.readers, client.endpoint, self, duplex=True)
        self._protocol = client.protocol(self._prepared.script)
        self._opening_ns = now_ns
        self.deadline_ns = now_ns + client.target.connect_timeout_ns // len(client.endpoint.addresses)
        self._player: Player | None = None
        self._fragments = bytearray()
        self._fragment_text = False
        self._closed = False
        self._pongs = 0  # bytes of them since everything written was last taken
        self.connected = False
        self.upgraded = False
        self.lost: tuple[int, str] | None = None  # how the connection ended between two turns
        self._headers: list[tuple[bytes, bytes]] = []
        self._taken_ns = 0  # audio written in the turns before
        #: What comes after a turn was cut short and before the next one is there.
        self._between: list[tuple[bytes, bool]] = []
        # Of the answer to this turn: whether it has begun, its first sound, when it will have been played, and whether
        # all of it came.
        self._fresh, self._first_sound_ns, self._sounding_ns, self._answered = True, -1, -1, False
        if self._prepared.talk is not None:
            self._prepared.talk.session = self

    def connect(self) -> None:
        self._stream.connect()

    def try_next_address(self, now_ns: int) -> bool:
        """This address does not answer: try the host's next one, if it has one."""
        self.deadline_ns = now_ns + self._client.target.connect_timeout_ns // len(self._client.endpoint.addresses)
        return self._stream.try_next_address()

    # -- what the stream says -----------------------------------------------------------------------------------

    def on_open(self, t_ns: int) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self.connected = True
        exchange.connect_ns = t_ns - self._opening_ns
        protocol = self._protocol
        request = protocol.connect()
        for name, value in self._client.headers(self._prepared.script, exchange):
            request.headers[name] = value
        protocol.send_request(request)
        exchange.sent_ns = self._write(b"".join(protocol.data_to_send()))

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None:
        exchange = self.exchange
        if self._is_closed():
            return
        if exchange is not None:
            # A server that speaks first, such as one of gRPC: no answer is older than what it answers.
            t_ns = max(t_ns, exchange.sent_ns)
            if not kernel:
                exchange.stamp = 1
            if exchange.first_byte_ns < 0:
                exchange.first_byte_ns = t_ns
            exchange.bytes_in += len(data)
        protocol = self._protocol
        protocol.receive_data(bytes(data))
        answers = protocol.data_to_send()  # pongs, and the echo of a close
        if answers:
            self._answer(b"".join(answers), t_ns)
            if self._is_closed():
                return
        for event in protocol.events_received():
            if self._is_closed():
                return
            if type(event) is Frame:
                self._on_frame(event, t_ns)
            else:
                self._on_response(event, t_ns)
        if not self._is_closed() and self.upgraded and protocol.parser_exc is not None:
            self._broke(_PROTOCOL, f"broken WebSocket framing: {protocol.parser_exc}", t_ns)
        if not self._is_closed() and not self.upgraded and protocol.handshake_exc is not None:
            self._end(_PROTOCOL, f"no answer to a WebSocket handshake: {protocol.handshake_exc}", t_ns)

    def _is_closed(self) -> bool:
        return self._closed

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None:
        if self._closed:
            return
        if not connected:
            self._end(_CONNECT, reason or "the connection was closed", t_ns)
            return
        if not self.upgraded:
            self._protocol.receive_eof()  # a refusal whose body ends with the connection
            for event in self._protocol.events_received():
                if type(event) is Response and self.exchange is not None:
                    self._on_response(event, t_ns)
            if self.exchange is None:
                return
        where = "in the middle of the session" if self.upgraded else "before the upgrade"
        status = _CONNECT if was_reset(reason) else _PROTOCOL
        self._broke(status, f"connection closed {where}" + (f": {reason}" if reason else ""), t_ns)

    # -- what the server says -----------------------------------------------------------------------------------

    def _on_response(self, event: Any, t_ns: int) -> None:
        exchange = self.exchange
        if exchange is None or type(event) is not Response:
            return
        exchange.code = event.status_code
        exchange.headers_ns = t_ns
        exchange.headers = [(name.lower().encode(), value.encode()) for name, value in event.headers.raw_items()]
        self._headers = exchange.headers
        failure = self._protocol.handshake_exc
        if failure is not None:  # the state says less: a close may have come in the same read
            self._refused(event, failure, t_ns)
            return
        self.upgraded = True
        script = self._prepared.script
        if self._prepared.opening:
            self._write(self._prepared.opening)
        if not script.waits:
            self._begin(t_ns)

    def _refused(self, response: Response, failure: Exception | None, t_ns: int) -> None:
        code = response.status_code
        if isinstance(failure, InvalidStatus):
            text = cut(" ".join(bytes(response.body or b"")[:2400].decode("utf-8", "replace").split()), 300)
            status = _REFUSED if code in (429, 503) else _HTTP
            self._end(
                status,
                f"the handshake was refused: HTTP {code} {response.reason_phrase}" + (f": {text}" if text else ""),
                t_ns,
            )
        else:
            what = failure if isinstance(failure, InvalidHandshake) else "it is no WebSocket upgrade"
            self._end(_PROTOCOL, f"the handshake was answered wrongly: {what}", t_ns)

    def _begin(self, t_ns: int) -> None:
        """The session is ready: the microphone starts now."""
        exchange = self.exchange
        if exchange is None or exchange.session is None:
            return
        stamps, script, client = exchange.session, self._prepared.script, self._client
        stamps.open_ns = t_ns
        client.begun(exchange)
        start, links = client.clock.now_ns(), client.readers.uplinks
        if script.frame_ns >= 0:
            stamps.media_start_ns = start
            clip = script.clip
            if clip is not None and clip.onset_ns >= 0:
                stamps.speech_start_ns = start + clip.onset_ns
                stamps.speech_end_ns = start + clip.offset_ns
        self._player = Player(
            client.clock,
            self._prepared.frames,
            script.due_ns,
            len(script.frames) if script.needed is None else script.needed,
            self._prepared.closing,
            script.closing_ns,
            self._write,
            self._stream.untaken,
            script.gap_ns,
            links.copies(exchange, len(script.frames)) if links is not None and script.frame_ns >= 0 else (),
        )
        self._player.start(start)

    def _on_frame(self, frame: Frame, t_ns: int) -> None:
        opcode = frame.opcode
        if opcode is Opcode.TEXT or opcode is Opcode.BINARY:
            text = opcode is Opcode.TEXT
            if frame.fin:
                self._on_message(bytes(frame.data), text, t_ns)
            else:
                self._fragments += frame.data
                self._fragment_text = text
        elif opcode is Opcode.CONT:
            self._fragments += frame.data
            if frame.fin:
                message, self._fragments = bytes(self._fragments), bytearray()
                self._on_message(message, self._fragment_text, t_ns)
        elif opcode is Opcode.CLOSE:
            self._on_close(t_ns)

    def _on_message(self, message: bytes, text: bool, t_ns: int) -> None:
        exchange = self.exchange
        if exchange is None and self._fresh and not self._answered and len(self._between) < MAX_MESSAGES:
            self._between.append((message, text))
        if exchange is None or exchange.session is None:
            return
        exchange.body += message
        exchange.mark_ns.append(t_ns)
        exchange.mark_end.append(len(exchange.body))
        exchange.session.texts.append(text)
        if len(exchange.body) > MAX_BODY or len(exchange.mark_end) > MAX_MESSAGES:
            text_of = f"more than {MAX_BODY >> 20} MiB or {MAX_MESSAGES} messages"
            self._end(_PROTOCOL, f"the server sent {text_of} in one session", t_ns)
            return
        said = self._client.dialogue.hear(exchange, message, text)
        if self._prepared.talk is not None and text:
            self._listen(exchange, message, t_ns)
        if said == DONE:
            self._end(_OK, None, t_ns) if self._prepared.talk is None else self._hear_out(exchange, t_ns)
        elif said == READY:
            if self._player is None:
                self._begin(t_ns)
        elif said == ENDPOINT and self._player is not None and t_ns >= exchange.session.speech_end_ns:
            self._player.cut()  # an endpoint inside speech is false: it ends nothing

    def _on_close(self, t_ns: int) -> None:
        received = self._protocol.close_rcvd
        code, reason = (received.code, received.reason) if received is not None else (1005, "")
        said_all = self.exchange is None or (self._player is not None and self._player.finished)
        if self.exchange is not None and code in _ORDERLY and self._prepared.script.ends_on_close and said_all:
            self._end(_OK, None, t_ns)
            return
        when = "" if said_all else " before everything was sent"
        text = f"the server closed the session{when}: {code}" + (f" {reason}" if reason else "")
        self._broke(_REFUSED if code in _OVERLOADED else _PROTOCOL, text, t_ns)

    # -- a conversation: turns on one connection ------------------------------------------------------------------

    def take(self, exchange: Exchange) -> None:
        """The next turn: the microphone is on at once."""
        self.exchange, self._prepared, exchange.context = exchange, exchange.request, self
        exchange.code, exchange.headers = 101, self._headers
        stamps = exchange.session
        assert stamps is not None
        now = self._client.clock.now_ns()
        stamps.follows, stamps.taken_before_ns = True, self._taken_ns
        if self._sounding_ns > now or (self._first_sound_ns >= 0 and not self._answered):
            stamps.sounding_ns, stamps.under_way = self._sounding_ns, not self._answered
        self._fresh, self._first_sound_ns, self._sounding_ns, self._answered = False, -1, -1, False
        exchange.sent_ns = now
        self._begin(now)
        stamps.open_ns = -1  # it was open
        between, self._between = self._between, []
        for message, text in between:
            self._on_message(message, text, now)

    def _listen(self, exchange: Exchange, message: bytes, t_ns: int) -> None:
        """Play what comes, as it comes."""
        sound_ns, stamps = cast(Converser, self._client.dialogue).sounds(message), exchange.session
        if sound_ns < 0:
            self._fresh, self._first_sound_ns, self._sounding_ns = True, -1, -1
        elif sound_ns and self._fresh and stamps is not None:
            if self._first_sound_ns < 0 and t_ns >= stamps.speech_end_ns:  # an answer to half a question is none
                self._first_sound_ns = t_ns
                if self._prepared.cut_ns >= 0:
                    self._client.clock.wake_at(t_ns + self._prepared.cut_ns, lambda: self._cut(exchange, t_ns))
            self._sounding_ns = max(self._sounding_ns, t_ns) + sound_ns

    def _cut(self, exchange: Exchange, first_ns: int) -> None:
        """The user speaks over the answer that began then: for this turn it is over."""
        if self.exchange is exchange and exchange.session is not None and self._first_sound_ns == first_ns:
            exchange.session.cut = True
            self._end(_OK, None, first_ns + self._prepared.cut_ns)

    def _hear_out(self, exchange: Exchange, t_ns: int) -> None:
        """All of the answer came: the turn is over once it has been played."""
        end_ns = max(t_ns, self._sounding_ns)
        if self._answered:
            return
        self._answered = True
        if end_ns == t_ns:
            self._end(_OK, None, t_ns)
            return
        self._client.turned(exchange, end_ns - t_ns)
        self._client.clock.wake_at(end_ns, lambda: self._end(_OK, None, end_ns) if self.exchange is exchange else None)

    def _broke(self, status: int, error: str, t_ns: int) -> None:
        """The connection is no more: that ends the turn, but for one whose answer has come; then it is the next one's
        trouble.
        """
        if self.exchange is not None and not self._answered:
            self._end(status, error, t_ns)
            return
        self.lost = status, f"{error} (between two turns)"
        if self.exchange is not None:
            self._put_sending(self.exchange)
        self.close()
        self._client.gone(self)

    # -- ending -------------------------------------------------------------------------------------------------

    def _answer(self, data: bytes, t_ns: int) -> None:
        self._write(data)
        self._pongs = self._pongs + len(data) if self._stream.unsent else 0
        if self._pongs > _MAX_PONGS:
            self._end(_PROTOCOL, "the server sends pings and does not read the answers", t_ns)

    def _write(self, data: bytes) -> int:
        exchange = self.exchange
        if exchange is not None:
            exchange.bytes_out += len(data)
        return self._stream.write(data)

    def _end(self, status: int, error: str | None, t_ns: int) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self.exchange = None
        exchange.context = None
        exchange.status = status
        exchange.error = error
        exchange.done_ns = t_ns
        self._put_sending(exchange)
        if status == _OK and self._prepared.talk is not None:
            self._player = None
            self._client.turned(exchange, 0)
            return
        if self._prepared.talk is not None:
            self._prepared.talk.session = None
        self.close()
        self._client.over(self, exchange)

    def _put_sending(self, exchange: Exchange) -> None:
        player, stamps = self._player, exchange.session
        if player is None or stamps is None:
            return
        player.stop()
        stamps.input_end_ns = player.ended_ns
        stamps.unsent_bytes = player.most_unsent
        script = self._prepared.script
        if script.frame_ns >= 0:
            stamps.frame_lag_ns = player.lag_ns
            came = len(player.lag_ns) - player.lost + player.twice
            self._taken_ns += min(came * script.frame_ns, script.closing_ns)
        if (links := self._client.readers.uplinks) is not None:
            links.sent(exchange, player.lost, player.twice)

    def close(self) -> None:
        """Say goodbye if a session stands, and close at once: nothing stays open, and nothing is held in a circle."""
        if self._closed:
            return
        self._closed = True
        self._fragments = bytearray()  # a session's timers outlive it
        if self._player is not None:
            self._player.stop()
            self._player = None  # it holds us
        if self.upgraded and self._protocol.state is OPEN:
            self._protocol.send_close(1000)
            self._stream.write(b"".join(self._protocol.data_to_send()))
        self._stream.close()
        # The library's parser and the errors that it keeps hold their protocol, and the collector is off during a run.
        failure: BaseException | None = self._protocol.handshake_exc or self._protocol.parser_exc
        while failure is not None:
            failure.__traceback__, failure.args = None, ()
            vars(failure).clear()
            failure = failure.__cause__
        vars(self._protocol).clear()

    def cancel(self, status: int, error: str, now_ns: int) -> None:
        self._end(status, error, now_ns)
