"""AssemblyAI's live recognition (streaming v3, ``/v3/ws``): turns whose transcripts only grow.

The service takes frames of 50 to 1000 ms and hangs up on whoever sends faster than real time, so frames are whole and never sent
in a burst. With ``format_turns`` two messages end a turn: the first is the endpoint, the second, formatted, the final text; both
are kept as final transcripts.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, model_validator

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.hearing import (
    OVERLOADED,
    Endpoint,
    Event,
    Transcript,
    after_speech,
    conclude,
    fault_in,
    kind_of,
    member,
    ns_of,
    put_transcripts,
    read,
    text_at,
    while_open,
)
from plimsoll.harness.protocols._speech.sending import (
    DEFAULT_FRAME_NS,
    AudioOptions,
    FrameRules,
    LiveAudio,
    at_rate,
    audio_problems,
    clip_of,
    live_audio,
    padded,
)
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.harness.wire.tokens import Fault
from plimsoll.scenarios.samples.clip import NS, Clip
from plimsoll.scenarios.samples.payload import Payload

API_VERSION = "2025-05-12"
#: The service does not say how much faster than real time is too fast; late frames are made up for a little at a time.
RULES = FrameRules("AssemblyAI", min_ms=50, max_ms=1000, max_catch_up=1.25)
#: Too many sessions at once, or new ones too fast; 4029 is what older ones said.
_SHED = OVERLOADED | {1008, 3009, 4029}
_CODECS = {"pcm_s16le": "pcm16", "pcm_mulaw": "mulaw", "opus": "opus", "ogg_opus": "ogg-opus"}
_END_OF_TURN = re.compile(rb'"end_of_turn"\s*:\s*true')
_FORCE, _TERMINATE = Message(b'{"type":"ForceEndpoint"}', True), Message(b'{"type":"Terminate"}', True)
_MORE_NS, _MAX_SILENCE_MS = 1_500_000_000, 2400
_SENT_IF_GIVEN = (
    "speech_model",
    "format_turns",
    "min_turn_silence",
    "max_turn_silence",
    "end_of_turn_confidence_threshold",
    "inactivity_timeout",
)


class AssemblyAiOptions(Options):
    """Options of ``assemblyai``."""

    audio: AudioOptions = AudioOptions()
    encoding: Literal["pcm_s16le", "pcm_mulaw", "opus", "ogg_opus"] = "pcm_s16le"
    sample_rate: int | None = Field(default=None, ge=8000, le=48_000)
    speech_model: str | None = None
    format_turns: bool | None = None
    min_turn_silence: int | None = Field(default=None, ge=0, le=60_000)
    max_turn_silence: int | None = Field(default=None, ge=0, le=60_000)
    end_of_turn_confidence_threshold: float | None = Field(default=None, ge=0, le=1)
    inactivity_timeout: int | None = Field(default=None, ge=5, le=3600)
    finish: Literal["endpoint", "force", "terminate"] = "endpoint"
    auth: Literal["bare", "bearer"] = "bare"
    api_version: str = API_VERSION
    query: dict[str, str | int | float | bool | list[str]] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _together(self) -> AssemblyAiOptions:
        taken = sorted(self.query.keys() & type(self).model_fields.keys())
        if taken:
            raise ValueError(f"query has {', '.join(taken)}. Give them as options of their own")
        return self

    @property
    def rate(self) -> int:
        if self.sample_rate is not None:
            return self.sample_rate
        return 8000 if self.encoding == "pcm_mulaw" else 16_000

    @property
    def silence_ns(self) -> int:
        """Silence after the clip by which a turn that can end has ended."""
        if self.finish != "endpoint":
            return 0
        return (self.max_turn_silence or _MAX_SILENCE_MS) * 1_000_000 + _MORE_NS


def whole_frames(clip: Clip, options: AudioOptions, rate: int, silence_ns: int) -> AudioOptions:
    """The options with just so much trailing silence that the last frame is a full one: a shorter one would be refused."""
    span_ms = (options.frame or DEFAULT_FRAME_NS) / 1e6
    quiet_ns = silence_ns if options.trailing_silence is None else options.trailing_silence
    spoken = len(at_rate(clip, rate).pcm)
    quiet = padded(spoken + round(quiet_ns * rate / NS), rate, span_ms) - spoken
    return options.model_copy(update={"trailing_silence": round(quiet * NS / rate)})


class AssemblyAiDialogue:
    """What the options say, ready to use."""

    __slots__ = ("_headers", "_options", "_path")

    def __init__(self, target: Target) -> None:
        options = self._options = accept(AssemblyAiOptions, target.options)
        self._headers = handshake_headers(target.headers, options.auth, {"AssemblyAI-Version": options.api_version})
        given = {name: getattr(options, name) for name in _SENT_IF_GIVEN}
        query: dict[str, Value] = {
            "sample_rate": options.rate,
            "encoding": options.encoding,
            **given,
            "speech_model": options.speech_model or target.model or None,
            **options.query,
        }
        self._path = request_target(target.url, "/v3/ws", options.path, query)

    def encode(self, payload: Payload) -> Script:
        options = self._options
        live = self._live(clip_of(payload, "assemblyai"))
        return Script(
            path=self._path,
            headers=self._headers,
            waits=True,
            closing=(_FORCE, _TERMINATE) if options.finish == "force" else (_TERMINATE,),
            n_in=payload.n_in,
            **live.script([Message(frame) for frame in live.frames]),
        )

    def _live(self, clip: Clip) -> LiveAudio:
        options = self._options
        audio = whole_frames(clip, options.audio, options.rate, options.silence_ns)
        return live_audio(clip, audio, _CODECS[options.encoding], options.rate, rules=RULES)

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        kind = kind_of(message) if text else b""
        if kind == b"Turn":
            ended = _END_OF_TURN.search(message) is not None
            return ENDPOINT if ended and after_speech(exchange) else NOTHING
        if kind == b"Begin":
            return READY
        return DONE if kind == b"Error" else NOTHING

    def settle(self, exchange: Exchange) -> None:
        said, script = read(exchange), exchange.request.script
        events: list[Event] = []
        ended: set[int] = set()
        fault: Fault | None = None
        for t_ns, message in said.messages:
            if isinstance(message, bytes):
                continue
            kind = text_at(message, "type")
            if kind == "Turn":
                events += _heard(t_ns, message, ended)
            elif kind == "Error" or (not kind and "error" in message):
                fault = fault or fault_in(message, ("error", "message"), ("error_code", "code"), ("concurren",))
        if exchange.session is not None and exchange.session.open_ns >= 0:
            put_transcripts(exchange, script.clip, while_open(exchange, events), self._options.audio.normaliser)
        conclude(exchange, said, fault, _SHED)


def _heard(t_ns: int, message: dict[str, Any], ended: set[int]) -> list[Event]:
    """One Turn message. ``ended``: turns that have had their endpoint; the formatted text comes after it."""
    order = message.get("turn_order")
    turn = order if type(order) is int else 0
    over = message.get("end_of_turn") is True
    cursor = ns_of(member(message, "words", -1, "end"), 1_000_000)
    found: list[Event] = [Transcript(t_ns, turn, text_at(message, "transcript"), over, cursor)]
    if over and turn not in ended:
        ended.add(turn)
        found.append(Endpoint(t_ns))
    return found


def _mistakes(given: AssemblyAiOptions) -> list[str]:
    found = audio_problems(given.audio, _CODECS[given.encoding], given.rate, RULES)
    return [text.replace("target.options.rate:", "target.options.sample_rate:", 1) for text in found]


PROTOCOLS = (
    ProtocolSpec(
        "assemblyai",
        "AssemblyAI live recognition, streaming v3",
        over_websocket(AssemblyAiDialogue),
        AssemblyAiOptions,
        mistakes=_mistakes,
        source="audio",
    ),
)
