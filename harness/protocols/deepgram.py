"""Deepgram's live recognition (``/v1/listen``), as Deepgram and its imitators speak it.

Audio goes out in binary messages as a microphone would give it; results come back piece by piece. Interim results revise the
window since the last final one, final ones are frozen, and all final ones together are the transcript. An endpoint is
``speech_final`` or ``UtteranceEnd``, but not the answer to a Finalize that we sent. It sends no KeepAlive: frames of silence do
that, and a frozen upload would freeze the server's endpointer too.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, model_validator

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.hearing import (
    Endpoint,
    Event,
    Transcript,
    after_speech,
    conclude,
    fault_in,
    heard_out,
    kind_of,
    member,
    ns_of,
    number_of,
    put_transcripts,
    read,
    text_at,
    while_open,
)
from plimsoll.harness.protocols._speech.sending import AudioOptions, audio_problems, clip_of, live_audio
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, Message, Script
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
#: What an error message of any of Deepgram's live services is read from.
ERROR_TEXT, ERROR_CODE = ("description", "message", "err_msg"), ("code", "err_code")
_SPEECH_FINAL = re.compile(rb'"speech_final"\s*:\s*true')
_FINALIZE, _CLOSE = Message(b'{"type":"Finalize"}', True), Message(b'{"type":"CloseStream"}', True)
#: Silence that follows the clip beyond what the endpointer needs, in ns.
_MORE_NS = 1_500_000_000


def rate_of(sample_rate: int | None, encoding: str) -> int:
    """The rate that is sent: G.711 is telephone speech unless told otherwise."""
    if sample_rate is not None:
        return sample_rate
    return 8000 if encoding in ("mulaw", "alaw") else 16_000


class ListenOptions(Options):
    """Options of ``deepgram-listen``."""

    audio: AudioOptions = AudioOptions()
    encoding: Encoding = "linear16"
    sample_rate: int | None = Field(default=None, ge=8000, le=48_000)
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
        taken = sorted(self.query.keys() & type(self).model_fields.keys())
        if taken:
            raise ValueError(f"query has {', '.join(taken)}. Give them as options of their own")
        return self

    @property
    def rate(self) -> int:
        return rate_of(self.sample_rate, self.encoding)

    @property
    def silence_ns(self) -> int:
        """Silence after the clip by which any endpointer that works has answered."""
        if self.finish != "endpoint":
            return 0
        waited_ms = max(self.utterance_end_ms or 0, 0 if isinstance(self.endpointing, bool) else self.endpointing or 0)
        return waited_ms * 1_000_000 + _MORE_NS


class ListenDialogue:
    """What the options say, ready to use."""

    __slots__ = ("_headers", "_options", "_path")

    def __init__(self, target: Target) -> None:
        options = self._options = accept(ListenOptions, target.options)
        self._headers = handshake_headers(target.headers, options.auth)
        query: dict[str, Value] = {
            "model": target.model or None,
            "encoding": options.encoding,
            "sample_rate": options.rate,
            "channels": 1,
            "interim_results": options.interim_results,
            **{name: getattr(options, name) for name in _SENT_IF_GIVEN},
            **options.query,
        }
        self._path = request_target(target.url, "/v1/listen", options.path, query)

    def encode(self, payload: Payload) -> Script:
        options = self._options
        live = live_audio(
            clip_of(payload, "deepgram-listen"),
            options.audio,
            CODECS[options.encoding],
            options.rate,
            silence_ns=options.silence_ns,
        )
        return Script(
            path=self._path,
            headers=self._headers,
            closing=(_FINALIZE, _CLOSE) if options.finish == "finalize" else (_CLOSE,),
            n_in=payload.n_in,
            **live.script([Message(frame) for frame in live.frames]),
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
        said, script = read(exchange), exchange.request.script
        events: list[Event] = []
        fault: Fault | None = None
        segment = 0
        for t_ns, message in said.messages:
            kind = text_at(message, "type")
            if isinstance(message, bytes):
                continue
            if kind == "Results" and member(message, "channel_index", 0) in (0, None):
                events += _heard(t_ns, segment, message)
                segment += message.get("is_final") is True
            elif kind == "UtteranceEnd":
                events.append(Endpoint(t_ns))
            elif kind == "Metadata":
                exchange.server_timing = timing_of(message.get("server_timing")) or None
            elif kind == "Error":
                fault = fault or fault_in(message, ERROR_TEXT, ERROR_CODE)
        if exchange.session is not None and exchange.session.open_ns >= 0:
            put_transcripts(exchange, script.clip, while_open(exchange, events), self._options.audio.normaliser)
        conclude(exchange, said, fault)


_SENT_IF_GIVEN = (
    "language",
    "endpointing",
    "utterance_end_ms",
    "vad_events",
    "punctuate",
    "smart_format",
    "no_delay",
)


def _heard(t_ns: int, segment: int, message: dict[str, Any]) -> list[Event]:
    """One Results message: what the segment reads now, and the endpoint if it is one."""
    start, duration = ns_of(message.get("start")), ns_of(message.get("duration"))
    cursor = start + duration if start >= 0 and duration >= 0 else -1
    text = text_at(message, "channel", "alternatives", 0, "transcript")
    found: list[Event] = [Transcript(t_ns, segment, text, message.get("is_final") is True, cursor)]
    if message.get("speech_final") is True and message.get("from_finalize") is not True:
        found.append(Endpoint(t_ns, cursor))
    return found


def renamed(problems: list[str]) -> list[str]:
    """Errors of the codec with the names that the vendors' options have."""
    return [text.replace("target.options.rate:", "target.options.sample_rate:", 1) for text in problems]


def _mistakes(given: ListenOptions) -> list[str]:
    return renamed(audio_problems(given.audio, CODECS[given.encoding], given.rate))


PROTOCOLS = (
    ProtocolSpec(
        "deepgram-listen",
        "Deepgram live recognition, /v1/listen",
        over_websocket(ListenDialogue),
        ListenOptions,
        mistakes=_mistakes,
        bundled=True,
        bundled_model="recogniser",
        source="audio",
    ),
)
