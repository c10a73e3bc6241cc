"""Deepgram's live voice (Aura, ``/v1/speak`` on a WebSocket): text in, all at once or word by word, audio back as it is made.

Text is spoken at Flush; ``Flushed`` says that all audio of the text before it was sent. A session without audio, or without that
word, has failed, whatever the close code says.
"""

from __future__ import annotations

from typing import Literal

import orjson
from pydantic import Field

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.codecs import BrokenAudio, decoder
from plimsoll.harness.protocols._speech.hearing import Sound, conclude, fault_in, kind_of, put_sounds, read, text_at
from plimsoll.harness.protocols._speech.sending import feed, text_of
from plimsoll.harness.protocols.deepgram import ERROR_CODE, ERROR_TEXT
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.harness.wire.tokens import Fault, timing_of
from plimsoll.scenarios.samples.payload import Payload

_CODECS = {"linear16": "pcm16", "mulaw": "mulaw", "alaw": "alaw"}
_MOST_CHARACTERS = 2000  # of one Speak message
_FLUSH, _CLOSE = Message(b'{"type":"Flush"}', True), Message(b'{"type":"Close"}', True)


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
        if self.sample_rate is not None:
            return self.sample_rate
        return 24_000 if self.encoding == "linear16" else 8000


class SpeakDialogue:
    """What the options say, ready to use."""

    __slots__ = ("_headers", "_options", "_path")

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
        fed = feed(text_of(payload, "deepgram-speak"), options.words_per_second, _MOST_CHARACTERS)
        return Script(
            path=self._path,
            headers=self._headers,
            frames=tuple(Message(orjson.dumps({"type": "Speak", "text": piece}), True) for _, piece in fed),
            due_ns=tuple(due_ns for due_ns, _ in fed),
            closing=(_FLUSH, _CLOSE) if options.finish == "close" else (_FLUSH,),
            closing_ns=fed[-1][0],
            ends_on_close=options.finish == "close",
            n_in=payload.n_in,
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
        play = decoder(_CODECS[self._options.encoding], self._options.rate)
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
                warning = warning or fault_in(message, ERROR_TEXT, ERROR_CODE).message
            elif kind == "Error":
                fault = fault or fault_in(message, ERROR_TEXT, ERROR_CODE)
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
        "deepgram-speak",
        "Deepgram live voice, /v1/speak",
        over_websocket(SpeakDialogue),
        SpeakOptions,
        bundled=True,
        bundled_model="synthesiser",
    ),
)
