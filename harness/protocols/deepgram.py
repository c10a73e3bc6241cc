"""Deepgram over WebSocket: recognition (``deepgram-listen``), by turns (``deepgram-flux``), and voice
(``deepgram-speak``).

Interim results revise the window since the last final one, final ones are frozen; a turn of Flux is cumulative and
final at ``EndOfTurn``. The answer to a Finalize that we sent is no endpoint. No KeepAlive is sent: frames of silence do
that, and a frozen upload would freeze the server's endpointer too.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

import orjson
from pydantic import Field, model_validator

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.codecs import BrokenAudio, decoder
from plimsoll.harness.protocols._speech.hearing import (
    Account,
    Sound,
    Transcript,
    after_speech,
    conclude,
    fault_in,
    heard_out,
    kind_of,
    member,
    ns_of,
    number_of,
    put_sounds,
    read,
    recognised,
    text_at,
)
from plimsoll.harness.protocols._speech.sending import EncodedOptions, fed, feed, no_option_in_query, text_of
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.harness.wire.tokens import Fault, timing_of
from plimsoll.scenarios.samples.payload import Payload

#: Deepgram's names for encodings, and ours.
CODECS = {
    "linear16": "pcm16",
    "linear32": "float32",
    "mulaw": "mulaw",
    "alaw": "alaw",
    "opus": "opus",
    "ogg-opus": "ogg-opus",
}
Encoding = Literal["linear16", "linear32", "mulaw", "alaw", "opus", "ogg-opus"]
_ERROR_TEXT, _ERROR_CODE = ("description", "message", "err_msg"), ("code", "err_code")
_SPEECH_FINAL = re.compile(rb'"speech_final"\s*:\s*true')
_END_OF_TURN = re.compile(rb'"event"\s*:\s*"EndOfTurn"')
_WINDOW_END = re.compile(rb'"audio_window_end"\s*:\s*(\d{1,9}(?:\.\d{1,12})?)')
_FINALIZE, _CLOSE_STREAM = Message(b'{"type":"Finalize"}', True), Message(b'{"type":"CloseStream"}', True)
_FLUSH, _CLOSE = Message(b'{"type":"Flush"}', True), Message(b'{"type":"Close"}', True)
#: Silence that follows the clip beyond what the endpointer needs, in ns.
_MORE_NS, _FLUX_MORE_NS = 1_500_000_000, 500_000_000
_FLUX_EOT_TIMEOUT_MS = 5000  # the service's own default
_MOST_CHARACTERS = 2000  # of one Speak message


# -- /v1/listen -----------------------------------------------------------------------------------------------------


class ListenOptions(EncodedOptions):
    """Options of ``deepgram-listen``."""

    codecs = CODECS

    encoding: Encoding = "linear16"
    language: str | None = None
    interim_results: bool = True
    endpointing: int | bool | None = None
    utterance_end_ms: int | None = Field(default=None, ge=1000, le=5000)
    vad_events: bool | None = None
    punctuate: bool | None = None
    smart_format: bool | None = None
    no_delay: bool | None = None
    finish: Literal["endpoint", "finalize", "close"] = "endpoint"
    auth: Literal["token", "bearer"] = "token"
    query: dict[str, str | int | float | bool | list[str]] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _together(self) -> ListenOptions:
        if self.utterance_end_ms is not None and not self.interim_results:
            raise ValueError("utterance_end_ms needs interim_results. Set interim_results: true, or remove it")
        if self.finish == "endpoint" and self.endpointing is False and self.utterance_end_ms is None:
            raise ValueError("endpointing: false leaves no endpoint to wait for. Set finish: finalize or close")
        no_option_in_query(type(self), self.query)
        return self

    @property
    def silence_ns(self) -> int:
        if self.finish != "endpoint":
            return 0
        waited_ms = max(self.utterance_end_ms or 0, 0 if isinstance(self.endpointing, bool) else self.endpointing or 0)
        return waited_ms * 1_000_000 + _MORE_NS


_LISTEN_QUERY = (
    "interim_results", "language", "endpointing", "utterance_end_ms", "vad_events", "punctuate", "smart_format",
    "no_delay",
)  # fmt: skip


class ListenDialogue:
    """``/v1/listen``: results piece by piece; all final ones together are the transcript."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(ListenOptions, target.options)
        self._headers = handshake_headers(target.headers, options.auth)
        query: dict[str, Value] = {
            "model": target.model or None,
            "encoding": options.encoding,
            "sample_rate": options.sent_as[1],
            "channels": 1,
            **{name: getattr(options, name) for name in _LISTEN_QUERY},
            **options.query,
        }
        self._path = request_target(target.url, "/v1/listen", options.path, query)

    def encode(self, payload: Payload) -> Script:
        return Script(
            path=self._path,
            headers=self._headers,
            closing=(_FINALIZE, _CLOSE_STREAM) if self._options.finish == "finalize" else (_CLOSE_STREAM,),
            n_in=payload.n_in,
            **self._options.live(payload, "deepgram-listen").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if not text:
            return NOTHING
        kind = kind_of(message)
        if kind == b"Results":
            if _SPEECH_FINAL.search(message) is None:
                return NOTHING
            start, duration = number_of(message, "start"), number_of(message, "duration")
            known = start >= 0 and duration >= 0
            last = heard_out(exchange, 1000 * (start + duration)) if known else after_speech(exchange)
            return ENDPOINT if last else NOTHING
        if kind == b"UtteranceEnd":
            return ENDPOINT if after_speech(exchange) else NOTHING
        return DONE if kind == b"Error" else NOTHING

    def settle(self, exchange: Exchange) -> None:
        recognised(exchange, _tell_result, self._options.audio.normaliser)


def _tell_result(account: Account, t_ns: int, said: Any) -> None:
    kind = text_at(said, "type")
    if kind == "Results" and member(said, "channel_index", 0) in (0, None):
        start, duration = ns_of(said.get("start")), ns_of(said.get("duration"))
        cursor_ns = start + duration if start >= 0 and duration >= 0 else -1
        text = text_at(said, "channel", "alternatives", 0, "transcript")
        account.heard(t_ns, text, said.get("is_final") is True, cursor_ns)
        if said.get("speech_final") is True and said.get("from_finalize") is not True:
            account.ended(t_ns, cursor_ns)
    elif kind == "UtteranceEnd":
        account.ended(t_ns)
    elif kind == "Metadata":
        account.timing = timing_of(said.get("server_timing"))
    elif kind == "Error":
        account.fault = fault_in(said, _ERROR_TEXT, _ERROR_CODE)


# -- /v2/listen -----------------------------------------------------------------------------------------------------


class FluxOptions(EncodedOptions):
    """Options of ``deepgram-flux``."""

    codecs = CODECS
    frame_ns: ClassVar[int] = 80_000_000  # what the service advises

    encoding: Encoding = "linear16"
    eot_threshold: float | None = Field(default=None, ge=0.5, le=0.9)
    eager_eot_threshold: float | None = Field(default=None, ge=0.3, le=0.9)
    eot_timeout_ms: int | None = Field(default=None, ge=500, le=60_000)
    auth: Literal["token", "bearer"] = "token"
    query: dict[str, str | int | float | bool | list[str]] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _together(self) -> FluxOptions:
        no_option_in_query(type(self), self.query)
        eager, eot = self.eager_eot_threshold, self.eot_threshold
        if eager is not None and eot is not None and eager > eot:
            raise ValueError("eager_eot_threshold is above eot_threshold. Lower it")
        return self

    @property
    def silence_ns(self) -> int:
        return (self.eot_timeout_ms or _FLUX_EOT_TIMEOUT_MS) * 1_000_000 + _FLUX_MORE_NS


class FluxDialogue:
    """``/v2/listen``: the model itself says when a turn is over; an eager end is a guess, and counts as none."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(FluxOptions, target.options)
        self._headers = handshake_headers(target.headers, options.auth)
        query: dict[str, Value] = {
            "model": target.model or "flux-general-en",
            "encoding": options.encoding,
            "sample_rate": options.sent_as[1],
            "eot_threshold": options.eot_threshold,
            "eager_eot_threshold": options.eager_eot_threshold,
            "eot_timeout_ms": options.eot_timeout_ms,
            **options.query,
        }
        self._path = request_target(target.url, "/v2/listen", options.path, query)

    def encode(self, payload: Payload) -> Script:
        return Script(
            path=self._path,
            headers=self._headers,
            waits=True,
            closing=(_CLOSE_STREAM,),
            n_in=payload.n_in,
            **self._options.live(payload, "deepgram-flux").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        kind = kind_of(message) if text else b""
        if kind == b"TurnInfo":
            if _END_OF_TURN.search(message) is None:
                return NOTHING
            end = _WINDOW_END.search(message)
            last = after_speech(exchange) if end is None else heard_out(exchange, 1000 * float(end[1]))
            return ENDPOINT if last else NOTHING
        if kind == b"Connected":
            return READY
        return DONE if kind == b"Error" else NOTHING

    def settle(self, exchange: Exchange) -> None:
        recognised(exchange, _tell_turn, self._options.audio.normaliser)


def _tell_turn(account: Account, t_ns: int, said: Any) -> None:
    kind = text_at(said, "type")
    if kind == "TurnInfo":
        turn, over = said.get("turn_index"), said.get("event") == "EndOfTurn"
        cursor_ns = ns_of(said.get("audio_window_end"))
        number = turn if type(turn) is int else 0
        account.events.append(Transcript(t_ns, number, text_at(said, "transcript"), over, cursor_ns))
        if over:
            account.ended(t_ns, cursor_ns)
    elif kind == "Error":
        account.fault = fault_in(said, _ERROR_TEXT, _ERROR_CODE)


# -- /v1/speak ------------------------------------------------------------------------------------------------------


class SpeakOptions(Options):
    """Options of ``deepgram-speak``."""

    encoding: Literal["linear16", "mulaw", "alaw"] = "linear16"
    sample_rate: int | None = Field(default=None, ge=8000, le=48_000)
    words_per_second: float | None = Field(default=None, gt=0, le=1000)
    finish: Literal["flush", "close"] = "flush"
    auth: Literal["token", "bearer"] = "token"
    query: dict[str, str | int | float | bool | list[str]] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def rate(self) -> int:
        return self.sample_rate or (24_000 if self.encoding == "linear16" else 8000)


class SpeakDialogue:
    """``/v1/speak``: text is spoken at Flush, and ``Flushed`` says that all audio of the text before it was sent.

    A session without audio, or without that word, has failed, whatever the close code says.
    """

    def __init__(self, target: Target) -> None:
        options = self._options = accept(SpeakOptions, target.options)
        self._headers = handshake_headers(target.headers, options.auth)
        query: dict[str, Value] = {
            "model": target.model or None,
            "encoding": options.encoding,
            "sample_rate": options.rate,
            **options.query,
        }
        self._path = request_target(target.url, "/v1/speak", options.path, query)

    def encode(self, payload: Payload) -> Script:
        options = self._options
        pieces = feed(text_of(payload, "deepgram-speak"), options.words_per_second, _MOST_CHARACTERS)
        return Script(
            path=self._path,
            headers=self._headers,
            closing=(_FLUSH, _CLOSE) if options.finish == "close" else (_FLUSH,),
            ends_on_close=options.finish == "close",
            n_in=payload.n_in,
            **fed(pieces, lambda text: Message(orjson.dumps({"type": "Speak", "text": text}), True)),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if not text:
            return NOTHING
        kind = kind_of(message)
        if kind == b"Error" or (kind == b"Flushed" and self._options.finish == "flush"):
            return DONE
        return NOTHING

    def settle(self, exchange: Exchange) -> None:
        said = read(exchange)
        play = decoder(CODECS[self._options.encoding], self._options.rate)
        sounds: list[Sound] = []
        fault: Fault | None = None
        flushed, broken, warning = False, "", ""
        for t_ns, message in said.messages:
            if isinstance(message, bytes):
                try:
                    sounds.append(Sound(t_ns, play.feed(message), self._options.rate))
                except BrokenAudio as error:
                    broken = broken or f"the audio can't be decoded: {error}"
                continue
            kind = text_at(message, "type")
            if kind == "Flushed":
                flushed = True
                exchange.server_timing = timing_of(message.get("server_timing")) or exchange.server_timing
            elif kind == "Warning":
                warning = warning or fault_in(message, _ERROR_TEXT, _ERROR_CODE).message
            elif kind == "Error":
                fault = fault or fault_in(message, _ERROR_TEXT, _ERROR_CODE)
        put_sounds(exchange, sounds)
        conclude(exchange, said, fault)
        if broken:
            outcome.fail(exchange, outcome.PROTOCOL, broken)
        elif not exchange.n_chunks and warning:
            outcome.fail_by(exchange, Fault(f"no audio came: {warning}"))
        elif not exchange.n_chunks or not flushed:
            missing = "no audio came" if not exchange.n_chunks else "the session ended without Flushed"
            outcome.fail(exchange, outcome.PROTOCOL, missing)


PROTOCOLS = (
    ProtocolSpec(
        "deepgram-listen",
        "Deepgram live recognition, /v1/listen",
        over_websocket(ListenDialogue),
        ListenOptions,
        bundled=True,
        bundled_model="recogniser",
        source="audio",
    ),
    ProtocolSpec(
        "deepgram-flux",
        "Deepgram turn-taking recognition, /v2/listen",
        over_websocket(FluxDialogue),
        FluxOptions,
        source="audio",
    ),
    ProtocolSpec(
        "deepgram-speak",
        "Deepgram live voice, /v1/speak",
        over_websocket(SpeakDialogue),
        SpeakOptions,
        bundled=True,
        bundled_model="synthesiser",
        sessions=True,
    ),
)
