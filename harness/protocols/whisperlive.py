"""WhisperLive: float32 in, a rolling window of segments back.

The list in each message holds the last few segments; a completed one never changes and its start names it, the one
behind them is still being heard. The server completes a segment only after it has read the same words several times,
and what it has not said when ``END_OF_AUDIO`` comes is lost: so silence follows the clip until the last segment is
completed, and only then the end is said.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal
from uuid import NAMESPACE_URL, uuid5

import orjson
from pydantic import Field

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.hearing import (
    LIVE_PACES,
    Account,
    fault_in,
    heard_out,
    ns_of,
    objects_in,
    path_below,
    recognised,
    text_at,
    value_of,
)
from plimsoll.harness.protocols._speech.sending import LiveOptions, clip_of, parse_pace
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import handshake_headers, request_target
from plimsoll.harness.wire.tokens import Fault
from plimsoll.scenarios.samples.payload import Payload

_RATE = 16_000
_END = re.compile(rb'"?(\d{1,7}(?:\.\d{1,9})?)')


class WhisperLiveOptions(LiveOptions):
    """Options of ``whisperlive``."""

    frame_ns: ClassVar[int] = 4096 * 1_000_000_000 // _RATE  # as the project's own client sends them

    language: str | None = "en"
    task: Literal["transcribe", "translate"] = "transcribe"
    use_vad: bool = True
    send_last_n_segments: int = Field(default=10, ge=1)
    no_speech_thresh: float = Field(default=0.45, ge=0, le=1)
    clip_audio: bool = False
    same_output_threshold: int = Field(default=10, ge=1)
    audio_format: Literal["float32", "int16"] = "float32"
    options: dict[str, Any] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def sent_as(self) -> tuple[str, int]:
        return "pcm16" if self.audio_format == "int16" else "float32", _RATE

    @property
    def silence_ns(self) -> int:
        return 15_000_000_000

    def mistakes(self) -> list[str]:
        found = super().mistakes()
        if parse_pace(self.audio.pace).code not in LIVE_PACES:
            found.append(
                f"target.options.audio.pace: {self.audio.pace}: the server drops what it has not heard when the audio "
                "ends. Use capture or eager"
            )
        return found


class WhisperLiveDialogue:
    """The settings, then audio and silence until the last segment is completed."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(WhisperLiveOptions, target.options)
        self._headers = handshake_headers(target.headers, "bearer")
        self._path = request_target(target.url, "/", options.path or path_below(target.url, "/"), {})
        self._first: dict[str, Any] = {
            "language": options.language,
            "task": options.task,
            "model": target.model or "small",
            "use_vad": options.use_vad,
            "send_last_n_segments": options.send_last_n_segments,
            "no_speech_thresh": options.no_speech_thresh,
            "clip_audio": options.clip_audio,
            "same_output_threshold": options.same_output_threshold,
            **({} if options.audio_format == "float32" else {"audio_format": options.audio_format}),
            **options.options,
        }

    def encode(self, payload: Payload) -> Script:
        clip = clip_of(payload, "whisperlive")
        # The server only repeats it: it tells its clients apart by their connections.
        uid = str(uuid5(NAMESPACE_URL, f"{payload.id} {len(clip.pcm)}"))
        return Script(
            self._path,
            self._headers,
            opening=(Message(orjson.dumps({"uid": uid, **self._first}), True),),
            waits=True,
            closing=(Message(b"END_OF_AUDIO"),),
            **self._options.live(payload, "whisperlive").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if b'"segments"' in message:
            last = message[message.rfind(b'"completed"') :]
            if not value_of(last, b'"completed"').startswith(b"true"):
                return NOTHING
            # What a slow server completes of the first half of a clip must not cut off the second.
            end = _END.match(value_of(message[message.rfind(b'"end"') :], b'"end"'))
            return ENDPOINT if end is not None and heard_out(exchange, float(end[1]) * 1000) else NOTHING
        said = value_of(message, b'"message"')
        if said.startswith(b'"SERVER_READY"'):
            return READY
        if said.startswith(b'"DISCONNECT"') or value_of(message, b'"status"').startswith((b'"WAIT"', b'"ERROR"')):
            return DONE
        return NOTHING

    def settle(self, exchange: Exchange) -> None:
        window = _Window()
        recognised(exchange, window.tell, self._options.audio.normaliser)


class _Window:
    """The rolling list: which segments are completed, by their start."""

    def __init__(self) -> None:
        self.completed: set[str] = set()
        self.hanging = False

    def tell(self, account: Account, t_ns: int, said: Any) -> None:
        if not isinstance(said, dict):
            return
        status = text_at(said, "status")
        if status == "WAIT":
            minutes = said.get("message")
            known = type(minutes) in (int, float)
            wait = f"wait {minutes:.1f} minutes" if known else "wait"
            account.fault = Fault(f"the server is full: {wait}", overloaded=True)
        elif status == "ERROR":
            account.fault = fault_in(said, ("message",), ("status",))
        elif "segments" in said:
            self._segments(account, t_ns, objects_in(said, "segments"))

    def _segments(self, account: Account, t_ns: int, segments: list[dict[str, Any]]) -> None:
        open_texts, reached, completed = [], -1, False
        for segment in segments:
            text, end_ns = text_at(segment, "text"), _ns(segment.get("end"))
            if segment.get("completed") is not True:
                open_texts.append(text)
                reached = end_ns
            elif (start := str(segment.get("start"))) not in self.completed:
                self.completed.add(start)
                account.heard(t_ns, text, True, end_ns)
                completed, self.hanging = True, False
        text = " ".join(each.strip() for each in open_texts if each.strip())
        if text or self.hanging:
            account.heard(t_ns, text, False, reached)
            self.hanging = bool(text)
        elif completed:  # and nothing is being said behind it
            account.ended(t_ns)


def _ns(value: Any) -> int:
    """Times come as text; older servers gave numbers."""
    if isinstance(value, str):
        try:
            return ns_of(float(value))
        except ValueError:
            return -1
    return ns_of(value)


PROTOCOLS = (
    ProtocolSpec(
        "whisperlive",
        "WhisperLive: live speech to text, rolling segments",
        over_websocket(WhisperLiveDialogue),
        WhisperLiveOptions,
        source="audio",
        servers=("whisper",),
    ),
)
