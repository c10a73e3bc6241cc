"""Cartesia over WebSocket: Ink with a client that finalizes (``cartesia-stt``), Ink that takes turns
(``cartesia-turns``), and Sonic (``cartesia-tts``).

Audio goes in as binary messages and comes out as base64 in JSON. A turn's text grows until ``turn.end``; an eager end
is a guess that may be taken back, so it is no endpoint. A session has one context of its own: many contexts on one
connection would share its queue, and their latencies would be each other's.
"""

from __future__ import annotations

from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

import orjson
from pydantic import Field

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.codecs import decoder
from plimsoll.harness.protocols._speech.hearing import (
    Account,
    Transcript,
    after_speech,
    fault_in,
    kind_of,
    ns_of,
    objects_in,
    recognised,
    synthesised,
    text_at,
    value_of,
)
from plimsoll.harness.protocols._speech.sending import EncodedOptions, fed, feed, text_of
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.scenarios.samples.payload import Payload

#: The version of the interface that these messages are of.
VERSION = "2026-03-01"
CODECS = {"pcm_s16le": "pcm16", "pcm_f32le": "float32", "pcm_mulaw": "mulaw", "pcm_alaw": "alaw"}
Encoding = Literal["pcm_s16le", "pcm_f32le", "pcm_mulaw", "pcm_alaw"]
_ERROR_TEXT, _ERROR_CODE = ("message", "title", "error"), ("error_code", "status_code")
_SHED = ("concurrency", "quota")
_MOST_CHARACTERS = 4000


class _AudioOptions(EncodedOptions):
    codecs = CODECS

    encoding: Encoding = "pcm_s16le"
    sample_rate: int = Field(default=16_000, ge=8000, le=48_000)


class RecognitionOptions(_AudioOptions):
    """Options of ``cartesia-stt``."""

    language: str | None = None
    finish: list[Literal["finalize", "close", "done"]] = Field(default=["close"], min_length=1)
    version: str = VERSION
    settings: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")


class TurnOptions(_AudioOptions):
    """Options of ``cartesia-turns``."""

    turn: dict[str, Any] | None = None
    version: str = VERSION
    settings: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def silence_ns(self) -> int:
        return 3_000_000_000


class SpeechOptions(Options):
    """Options of ``cartesia-tts``."""

    voice: str = Field(default="694f9389-aac1-45b6-b726-9d9369183238", min_length=1)
    encoding: Encoding = "pcm_s16le"
    sample_rate: int = Field(default=24_000, ge=8000, le=48_000)
    language: str | None = "en"
    words_per_second: float | None = Field(default=None, gt=0, le=1000)
    max_buffer_delay_ms: int | None = Field(default=None, ge=0, le=5000)
    add_timestamps: bool = False
    generation: dict[str, Any] = Field(default={}, description="further members of each request")
    version: str = VERSION
    path: str | None = Field(default=None, pattern=r"^/")


def _fault(account: Account, said: Any) -> bool:
    """Note a message ``error``: true if it was one."""
    if text_at(said, "type") != "error":
        return False
    account.fault = fault_in(said, _ERROR_TEXT, _ERROR_CODE, _SHED)
    return True


def _cursor_ns(said: Any) -> int:
    """Where the last word ends: the SDK knows lists of times, the service's pages a time for each word."""
    words = objects_in(said, "words")
    end = words[-1].get("end") if words else None
    return ns_of(end[-1] if isinstance(end, list) and end else end)


class RecognitionDialogue:
    """``/stt/websocket``: text is final when the client says so, or when the service will not change it any more."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(RecognitionOptions, target.options)
        self._headers = handshake_headers(target.headers, "bearer", {"cartesia-version": options.version})
        query: dict[str, Value] = {
            "model": target.model or "ink-2",
            "encoding": options.encoding,
            "sample_rate": options.sample_rate,
            "language": options.language,
            **options.settings,
        }
        self._path = request_target(target.url, "/stt/websocket", options.path, query)

    def encode(self, payload: Payload) -> Script:
        options = self._options
        return Script(
            self._path,
            self._headers,
            closing=tuple(Message(command.encode(), True) for command in options.finish),
            ends_on_close=options.finish[-1] == "finalize",
            **options.live(payload, "cartesia-stt").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        return DONE if kind_of(message) in (b"done", b"error") else NOTHING

    def settle(self, exchange: Exchange) -> None:
        recognised(exchange, self._tell, self._options.audio.normaliser)

    @staticmethod
    def _tell(account: Account, t_ns: int, said: Any) -> None:
        if _fault(account, said) or text_at(said, "type") != "transcript":
            return
        # A text goes on where the final text before it ended, to the character: spaces are in it, and it may begin in a
        # word.
        events = account.events
        kept = next((e.text for e in reversed(events) if isinstance(e, Transcript) and e.final), "")
        final = said.get("is_final") is True
        events.append(Transcript(t_ns, 0, kept + text_at(said, "text"), final, _cursor_ns(said)))


class TurnDialogue:
    """``/stt/turns/websocket``: the service hears when the speaker has finished."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(TurnOptions, target.options)
        self._headers = handshake_headers(target.headers, "bearer", {"cartesia-version": options.version})
        query: dict[str, Value] = {
            "model": target.model or "ink-2",
            "encoding": options.encoding,
            "sample_rate": options.sample_rate,
            **options.settings,
        }
        self._path = request_target(target.url, "/stt/turns/websocket", options.path, query)
        config = {"type": "config", "turn": options.turn}
        self._opening = () if options.turn is None else (Message(orjson.dumps(config), True),)

    def encode(self, payload: Payload) -> Script:
        return Script(
            self._path,
            self._headers,
            opening=self._opening,
            waits=True,
            closing=(Message(b'{"type":"close"}', True),),
            **self._options.live(payload, "cartesia-turns").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        kind = kind_of(message)
        if kind == b"connected":
            return READY
        if kind == b"turn.end":
            return ENDPOINT if after_speech(exchange) else NOTHING
        return DONE if kind in (b"done", b"error") else NOTHING

    def settle(self, exchange: Exchange) -> None:
        recognised(exchange, self._tell, self._options.audio.normaliser)

    @staticmethod
    def _tell(account: Account, t_ns: int, said: Any) -> None:
        kind = text_at(said, "type")
        if _fault(account, said) or kind not in ("turn.update", "turn.eager_end", "turn.end"):
            return
        account.heard(t_ns, text_at(said, "transcript"), kind == "turn.end", _cursor_ns(said))
        if kind == "turn.end":
            account.ended(t_ns)


class SpeechDialogue:
    """``/tts/websocket``: one context, fed until ``continue`` is false."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(SpeechOptions, target.options)
        self._headers = handshake_headers(target.headers, "bearer", {"cartesia-version": options.version})
        self._path = request_target(target.url, "/tts/websocket", options.path, {})
        self._request: dict[str, Any] = {
            "model_id": target.model or "sonic-3",
            "voice": {"mode": "id", "id": options.voice},
            "output_format": {"container": "raw", "encoding": options.encoding, "sample_rate": options.sample_rate},
            **({"language": options.language} if options.language is not None else {}),
            **({} if options.max_buffer_delay_ms is None else {"max_buffer_delay_ms": options.max_buffer_delay_ms}),
            **({"add_timestamps": True} if options.add_timestamps else {}),
            **options.generation,
        }

    def encode(self, payload: Payload) -> Script:
        text = text_of(payload, "cartesia-tts")
        pieces = feed(text, self._options.words_per_second, _MOST_CHARACTERS)
        context = str(uuid5(NAMESPACE_URL, text))
        spread = len(pieces) > 1
        return Script(
            self._path,
            self._headers,
            closing=(self._piece(context, "", goes_on=False),) if spread else (),
            ends_on_close=False,
            n_in=payload.n_in,
            **fed(pieces, lambda piece: self._piece(context, piece, goes_on=spread)),
        )

    def _piece(self, context: str, text: str, goes_on: bool) -> Message:
        return Message(
            orjson.dumps({"context_id": context, "transcript": text, "continue": goes_on, **self._request}), True
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if value_of(message, b'"done"').startswith(b"true"):
            return DONE
        return DONE if value_of(message, b'"type"').startswith((b'"error"', b'"done"')) else NOTHING

    def settle(self, exchange: Exchange) -> None:
        play = decoder(CODECS[self._options.encoding], self._options.sample_rate)

        def tell(account: Account, t_ns: int, said: Any) -> None:
            if not _fault(account, said) and text_at(said, "type") == "chunk":
                account.sounded_base64(t_ns, said.get("data"), play)

        synthesised(exchange, tell)


PROTOCOLS = (
    ProtocolSpec(
        "cartesia-stt",
        "Cartesia speech to text, finalized by the client",
        over_websocket(RecognitionDialogue),
        RecognitionOptions,
        source="audio",
    ),
    ProtocolSpec(
        "cartesia-turns",
        "Cartesia speech to text that detects turns",
        over_websocket(TurnDialogue),
        TurnOptions,
        source="audio",
    ),
    ProtocolSpec(
        "cartesia-tts",
        "Cartesia text to speech, one context a session",
        over_websocket(SpeechDialogue),
        SpeechOptions,
        sessions=True,
    ),
)
