"""This module holds what recognisers over gRPC share (a configuration, paced audio, half-close), and what voices share.

A vendor's file configures its service and reads one message; frames, stamps and failures are here. Nothing is sent, and
no vendor is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols._grpc.descriptors import Method
from plimsoll.harness.protocols._grpc.protobuf_json import read
from plimsoll.harness.protocols._speech.codecs import decoder
from plimsoll.harness.protocols._speech.hearing import (
    LIVE_PACES,
    Account,
    Endpoint,
    after_speech,
    put_sounds,
    put_transcripts,
)
from plimsoll.harness.protocols._speech.sending import LiveOptions, feed, text_of
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import ENDPOINT, NOTHING
from plimsoll.harness.transport.rpc.call import GrpcOptions, GrpcRequest, messages_of, metadata_of
from plimsoll.harness.transport.rpc.rpc_outcome import GRPC
from plimsoll.scenarios.samples.payload import Payload

#: Silence after the clip beyond what the endpointer needs, in ns: by then any that works has answered.
PATIENCE_NS = 1_500_000_000
#: Tells one message: (account, arrival ns, message).
Teller = Callable[[Account, int, Any], None]


class LiveCallOptions(LiveOptions, GrpcOptions):
    """Options of a streaming recogniser."""


class Recognition:
    """The dialect of a streaming recogniser: ``config`` first, then each frame in the field ``audio``, then the
    half-close.

    ``ends``: a message is the service's word that the speaker has finished. With ``until_closed`` (a final transcript
    is that word) it counts only before everything was sent: later it is the answer to our half-close.
    """

    def __init__(
        self,
        target: Target,
        options: LiveCallOptions,
        method: Method,
        config: Any,
        field: str,
        tell: Teller,
        ends: Callable[[Any], bool],
        *,
        until_closed: bool = False,
        metadata: dict[str, str] | None = None,
    ) -> None:
        self._name, self._options, self._method, self._field = target.protocol, options, method, field
        self.response = method.response
        self._config = _bytes(config)
        self._tell, self._ends, self._until_closed = tell, ends, until_closed
        self._metadata = metadata_of(target, metadata)
        silence_ns = options.audio.trailing_silence
        if options.audio.until_endpoint and (options.silence_ns if silence_ns is None else silence_ns):
            self.hear = self._hear  # only where there are frames to be saved

    def encode(self, payload: Payload) -> GrpcRequest:
        live = self._options.live(payload, self._name)
        kind, field = self._method.request, self._field
        return GrpcRequest(
            self._method.path,
            (self._config, *(kind(**{field: frame}).SerializeToString() for frame in live.frames)),
            due_ns=(0, *live.due_ns),
            closing_due_ns=live.closing_ns,
            opening=1,
            needed=live.needed,
            client_streaming=True,
            server_streaming=True,
            metadata=self._metadata,
            deadline_ns=self._options.deadline_ns,
            n_in=payload.n_in,
            media_ns=live.clip.duration_ns,
            clip=live.clip,
            pace=live.pace,
            frame_ns=live.frame_ns,
        )

    def _hear(self, exchange: Exchange, message: bytes) -> int:
        # A message costs half a microsecond to read; needles would find a flag's two bytes in any transcript.
        said = read(self._method.response, message)
        return ENDPOINT if said is not None and self._ends(said) and after_speech(exchange) else NOTHING

    def settle(self, exchange: Exchange) -> None:
        """Transcripts and endpoints onto the exchange, then its failure if there was one."""
        account, stamps = Account(), exchange.session
        self._read(exchange, account)
        if stamps is not None and stamps.open_ns >= 0:
            clip = exchange.request.call.clip
            put_transcripts(exchange, clip, account.events, self._options.audio.normaliser)
        fail_by_account(exchange, account)

    def _read(self, exchange: Exchange, account: Account) -> None:
        stamps, kind = exchange.session, self._method.response
        for i, (t_ns, data) in enumerate(zip(exchange.mark_ns, messages_of(exchange), strict=True)):
            message: Any = read(kind, data)
            if message is None:
                account.broken = f"message {i + 1} is no {kind.DESCRIPTOR.full_name}"
                return
            self._tell(account, t_ns, message)
            if account.fault is not None or account.broken is not None:
                return
            if stamps is None or stamps.pace not in LIVE_PACES:
                continue
            if self._ends(message) and not (self._until_closed and 0 <= stamps.input_end_ns < t_ns):
                account.events.append(Endpoint(t_ns))


class Synthesis:
    """The dialect of a voice: ``opening`` messages, then the text (by ``write``), whole or word by word; audio comes
    back.

    ``audio_of`` takes the audio out of a message, ``most`` is the longest text of a message in characters.
    """

    def __init__(
        self,
        target: Target,
        options: GrpcOptions,
        method: Method,
        write: Callable[[str], Any],
        audio_of: Callable[[Any], bytes],
        sounds_as: tuple[str, int],
        *,
        opening: Sequence[Any] = (),
        words_per_s: float | None = None,
        most: int = 1 << 30,
        metadata: dict[str, str] | None = None,
        timing_of: Callable[[Any], str] = lambda message: "",
    ) -> None:
        self._name, self._method, self._opening = target.protocol, method, tuple(map(_bytes, opening))
        self._write, self._audio_of, self._sounds_as = write, audio_of, sounds_as
        self._words_per_s, self._most, self._timing_of = words_per_s, most, timing_of
        self._deadline_ns = options.deadline_ns
        self._metadata, self.response = metadata_of(target, metadata), method.response

    def encode(self, payload: Payload) -> GrpcRequest:
        fed = feed(text_of(payload, self._name), self._words_per_s, self._most)
        spread = (*(0 for _ in self._opening), *(due_ns for due_ns, _ in fed)) if self._words_per_s is not None else ()
        return GrpcRequest(
            self._method.path,
            (*self._opening, *(_bytes(self._write(piece)) for _, piece in fed)),
            due_ns=spread,
            opening=len(self._opening),
            client_streaming=self._method.client_streaming,
            server_streaming=True,
            metadata=self._metadata,
            deadline_ns=self._deadline_ns,
            n_in=payload.n_in,
        )

    def settle(self, exchange: Exchange) -> None:
        """Sounds onto the exchange, then its failure; a success without any sound is one."""
        account, play, kind = Account(), decoder(*self._sounds_as), self._method.response
        for i, (t_ns, data) in enumerate(zip(exchange.mark_ns, messages_of(exchange), strict=True)):
            message: Any = read(kind, data)
            if message is None:
                account.broken = f"message {i + 1} is no {kind.DESCRIPTOR.full_name}"
                break
            account.sounded(t_ns, self._audio_of(message), play)
            exchange.server_timing = self._timing_of(message) or exchange.server_timing
            if account.broken is not None:
                break
        if exchange.session is None and exchange.sent_ns >= 0:  # all was written at once
            exchange.session = SessionStamps()
            exchange.session.open_ns = exchange.session.input_end_ns = exchange.sent_ns
        if exchange.session is not None:
            put_sounds(exchange, account.sounds)
        fail_by_account(exchange, account)
        if not account.sounds:
            outcome.fail(exchange, outcome.PROTOCOL, "the call ended without any audio")


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def fail_by_account(exchange: Exchange, account: Account) -> None:
    """Record the failure that was told in the messages, if one was."""
    if account.fault is not None:
        text = outcome.shown(account.fault.message)
        outcome.fail(exchange, outcome.REFUSED if account.fault.overloaded else GRPC, text)
    elif account.broken is not None:
        outcome.fail(exchange, outcome.PROTOCOL, account.broken)


def told_results(account: Account, t_ns: int, results: Sequence[Any], cursor: Callable[[Any], int]) -> None:
    """Results as Google, Riva and their kind send them: final ones each end a segment; what the others say together is
    the segment under way. ``cursor`` gives how far a result reaches, in ns (-1: it doesn't say).
    """
    under_way: list[str] = []
    reached = -1
    for result in results:
        text = result.alternatives[0].transcript if result.alternatives else ""
        if result.is_final:
            account.heard(t_ns, text, True, cursor(result))
        else:
            under_way.append(text)
            reached = max(reached, cursor(result))
    if under_way:
        account.heard(t_ns, "".join(under_way), False, reached)


def duration_ns(duration: Any) -> int:
    """A google.protobuf.Duration in ns; -1 for what can't be a position."""
    found = int(duration.seconds) * 1_000_000_000 + int(duration.nanos)
    return found if 0 <= found < 1 << 62 else -1
