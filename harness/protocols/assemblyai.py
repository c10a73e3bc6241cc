"""AssemblyAI's live recognition (streaming v3, ``/v3/ws``): turns whose transcripts only grow.

The service takes frames of 50 to 1000 ms and hangs up on whoever sends faster than real time, so frames are whole and
never sent in a burst. With ``format_turns`` two messages end a turn: the first is the endpoint, the second, formatted,
the final text; both are kept as final transcripts.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.hearing import (
    OVERLOADED,
    Account,
    Transcript,
    after_speech,
    fault_in,
    kind_of,
    member,
    ns_of,
    recognised,
    text_at,
)
from plimsoll.harness.protocols._speech.sending import (
    EncodedOptions,
    FrameRules,
    LiveAudio,
    at_rate,
    clip_of,
    live_audio,
    no_option_in_query,
    padded,
)
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.scenarios.samples.clip import NS
from plimsoll.scenarios.samples.payload import Payload

API_VERSION = "2025-05-12"
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


class AssemblyAiOptions(EncodedOptions):
    """Options of ``assemblyai``. How much faster than real time is too fast the service does not say: late frames are
    made up for a little at a time.
    """

    codecs = _CODECS
    rules: ClassVar[FrameRules] = FrameRules("AssemblyAI", min_ms=50, max_ms=1000, max_catch_up=1.25)

    encoding: Literal["pcm_s16le", "pcm_mulaw", "opus", "ogg_opus"] = "pcm_s16le"
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
        no_option_in_query(type(self), self.query)
        return self

    @property
    def silence_ns(self) -> int:
        if self.finish != "endpoint":
            return 0
        return (self.max_turn_silence or _MAX_SILENCE_MS) * 1_000_000 + _MORE_NS

    def live(self, payload: Payload, protocol: str) -> LiveAudio:
        """With just enough trailing silence to fill the last frame: the service refuses a shorter one."""
        clip, (codec, rate) = clip_of(payload, protocol), self.sent_as
        quiet_ns = self.silence_ns if self.audio.trailing_silence is None else self.audio.trailing_silence
        spoken = len(at_rate(clip, rate).pcm)
        quiet = padded(spoken + round(quiet_ns * rate / NS), rate, (self.audio.frame or self.frame_ns) / 1e6) - spoken
        audio = self.audio.model_copy(update={"trailing_silence": round(quiet * NS / rate)})
        return live_audio(clip, audio, codec, rate, rules=self.rules)


class AssemblyAiDialogue:
    """``/v3/ws``."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(AssemblyAiOptions, target.options)
        self._headers = handshake_headers(target.headers, options.auth, {"AssemblyAI-Version": options.api_version})
        given = {name: getattr(options, name) for name in _SENT_IF_GIVEN}
        query: dict[str, Value] = {
            "sample_rate": options.sent_as[1],
            "encoding": options.encoding,
            **given,
            "speech_model": options.speech_model or target.model or None,
            **options.query,
        }
        self._path = request_target(target.url, "/v3/ws", options.path, query)

    def encode(self, payload: Payload) -> Script:
        options = self._options
        return Script(
            path=self._path,
            headers=self._headers,
            waits=True,
            closing=(_FORCE, _TERMINATE) if options.finish == "force" else (_TERMINATE,),
            n_in=payload.n_in,
            **options.live(payload, "assemblyai").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        kind = kind_of(message) if text else b""
        if kind == b"Turn":
            ended = _END_OF_TURN.search(message) is not None
            return ENDPOINT if ended and after_speech(exchange) else NOTHING
        if kind == b"Begin":
            return READY
        return DONE if kind == b"Error" else NOTHING

    def settle(self, exchange: Exchange) -> None:
        recognised(exchange, partial(_tell, set()), self._options.audio.normaliser, overloaded=_SHED)


def _tell(ended: set[int], account: Account, t_ns: int, said: Any) -> None:
    """``ended``: turns that have had their endpoint; the formatted text comes after it."""
    if isinstance(said, bytes):
        return
    kind = text_at(said, "type")
    if kind == "Turn":
        order = said.get("turn_order")
        turn = order if type(order) is int else 0
        over = said.get("end_of_turn") is True
        cursor_ns = ns_of(member(said, "words", -1, "end"), 1_000_000)
        account.events.append(Transcript(t_ns, turn, text_at(said, "transcript"), over, cursor_ns))
        if over and turn not in ended:
            ended.add(turn)
            account.ended(t_ns)
    elif kind == "Error" or (not kind and "error" in said):
        account.fault = fault_in(said, ("error", "message"), ("error_code", "code"), ("concurren",))


PROTOCOLS = (
    ProtocolSpec(
        "assemblyai",
        "AssemblyAI live recognition, streaming v3",
        over_websocket(AssemblyAiDialogue),
        AssemblyAiOptions,
        source="audio",
    ),
)
