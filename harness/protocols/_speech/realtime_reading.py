"""What the server's events of one realtime session said: transcripts of the input, the answer's sound or text, how it ended.

GA names; the beta's are read as the same. Nothing is judged here and nothing raises: what is no event of the API is passed over.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from typing import Any

from plimsoll.harness.protocols._speech.codecs import BrokenAudio, decoder
from plimsoll.harness.protocols._speech.events import Endpoint, Event, Sound, Transcript
from plimsoll.harness.protocols._speech.live_messages import Said, member, ns_of, text_at
from plimsoll.harness.protocols._speech.realtime_options import FORMATS
from plimsoll.harness.protocols._speech.realtime_vllm import error_of
from plimsoll.harness.wire.tokens import Fault, timing_of, usage_of

#: Beta names of events whose content is that of the GA name.
_BETA = {
    "response.audio.delta": "response.output_audio.delta",
    "response.audio_transcript.delta": "response.output_audio_transcript.delta",
    "response.text.delta": "response.output_text.delta",
}
_HEARD = "conversation.item.input_audio_transcription."


@dataclass(slots=True)
class Reading:
    """The session so far. ``text``, ``text_ns`` and ``sounds`` belong to the latest answer: one that was cut short by speech is void.

    ``segments``: item id -> (place among the items, transcript so far). ``status`` is that of the latest response.done.
    """

    events: list[Event] = field(default_factory=list)
    sounds: list[Sound] = field(default_factory=list)
    text_ns: list[int] = field(default_factory=list)
    text: str = ""
    segments: dict[str, tuple[int, str]] = field(default_factory=dict)
    status: str = ""
    n_in: int = -1
    n_out: int = -1
    timing: str = ""
    fault: Fault | None = None
    broken: str = ""


def read_events(said: Said, output_encoding: str) -> Reading:
    """All that the messages said."""
    reading = Reading()
    codec, rate = FORMATS[output_encoding]
    play = decoder(codec, rate)
    for t_ns, event in said.messages:
        if isinstance(event, bytes):
            continue
        kind = text_at(event, "type")
        kind = _BETA.get(kind, kind)
        if kind == "response.output_audio.delta":
            try:
                samples = play.feed(base64.b64decode(text_at(event, "delta"), validate=True))
                reading.sounds.append(Sound(t_ns, samples, rate))
            except (binascii.Error, BrokenAudio, ValueError) as error:
                reading.broken = reading.broken or f"the answer's audio can't be decoded: {error}"
        elif kind == "response.output_audio_transcript.delta":
            reading.text += text_at(event, "delta")
        elif kind == "response.output_text.delta":
            if text_at(event, "delta"):
                reading.text_ns.append(t_ns)
                reading.text += text_at(event, "delta")
        elif kind.startswith("response."):
            _answer(reading, kind, event)
            if kind == "response.created":
                play = decoder(codec, rate)
        elif kind == "error":
            reading.fault = reading.fault or error_of(event)
        else:
            _input(reading, t_ns, kind, event)
    return reading


def _answer(reading: Reading, kind: str, event: dict[str, Any]) -> None:
    if kind == "response.created":
        reading.sounds, reading.text_ns, reading.text, reading.status = [], [], "", ""
    elif kind == "response.done":
        reading.status = text_at(event, "response", "status")
        reading.n_in, reading.n_out = usage_of(member(event, "response", "usage"))
        reading.timing = timing_of(event.get("server_timing"))
        if reading.status == "failed":
            details = member(event, "response", "status_details")
            told = error_of(details) if isinstance(details, dict) else Fault("")
            reading.fault = reading.fault or Fault(told.message or "the response failed", told.overloaded)


def _input(reading: Reading, t_ns: int, kind: str, event: dict[str, Any]) -> None:
    item = text_at(event, "item_id")
    if kind == "input_audio_buffer.speech_stopped":
        reading.events.append(Endpoint(t_ns, ns_of(event.get("audio_end_ms"), 1_000_000)))
    elif kind.startswith(_HEARD):
        place, text = reading.segments.get(item, (len(reading.segments), ""))
        final = kind == f"{_HEARD}completed"
        if final:
            text = text_at(event, "transcript")
        elif kind == f"{_HEARD}delta":
            text += text_at(event, "delta")
        else:
            if kind == f"{_HEARD}failed":
                reading.fault = reading.fault or error_of(event)
            return
        reading.segments[item] = place, text
        reading.events.append(Transcript(t_ns, place, text, final))
    if item and kind in ("input_audio_buffer.speech_started", "input_audio_buffer.committed"):
        reading.segments.setdefault(item, (len(reading.segments), ""))
