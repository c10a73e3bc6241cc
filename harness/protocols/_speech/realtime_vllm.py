"""vLLM's transcription under OpenAI's realtime path: PCM at 16 kHz, and events of its own.

The model is named in session.update before anything else (or the commit fails), ``commit`` without ``final`` starts the
generation, the one with ``final: true`` at the clip's true end asks for the rest. There are no turns and no endpoints.
"""

from __future__ import annotations

import base64

import orjson

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._speech.events import Event, Transcript
from plimsoll.harness.protocols._speech.live import clip_of, live_audio
from plimsoll.harness.protocols._speech.live_messages import conclude, fault_in, kind_of, read, text_at
from plimsoll.harness.protocols._speech.realtime_options import RealtimeOptions
from plimsoll.harness.protocols._speech.recognition import put_transcripts
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import handshake_headers, request_target
from plimsoll.harness.wire.tokens import Fault, usage_of
from plimsoll.scenarios.samples.payload import Payload

RATE = 16_000
_CODES = {b"session.created": READY, b"transcription.done": DONE, b"error": DONE}


class VllmDialogue:
    """What the options say, ready to use."""

    __slots__ = ("_headers", "_model", "_options", "_path")

    def __init__(self, target: Target, options: RealtimeOptions) -> None:
        self._options = options
        self._model = target.model
        self._headers = handshake_headers(target.headers, "bearer")
        self._path = request_target(target.url, "/v1/realtime", options.path, options.query)

    def encode(self, payload: Payload) -> Script:
        clip = clip_of(payload, "openai-realtime")
        live = live_audio(clip, self._options.audio, "pcm16", RATE)
        return Script(
            path=self._path,
            headers=self._headers,
            opening=(_event("session.update", model=self._model), _event("input_audio_buffer.commit", final=False)),
            waits=True,
            closing=(_event("input_audio_buffer.commit", final=True),),
            ends_on_close=False,
            n_in=payload.n_in,
            **live.script([append_of(frame) for frame in live.frames]),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        return _CODES.get(kind_of(message), NOTHING) if text else NOTHING

    def settle(self, exchange: Exchange) -> None:
        said, script = read(exchange), exchange.request.script
        events: list[Event] = []
        fault: Fault | None = None
        text, n_in, n_out = "", -1, -1
        for t_ns, message in said.messages:
            kind = text_at(message, "type")
            if isinstance(message, bytes):
                continue
            if kind == "transcription.delta":
                text += text_at(message, "delta")
                events.append(Transcript(t_ns, 0, text, False))
            elif kind == "transcription.done":
                text = text_at(message, "text") or text
                events.append(Transcript(t_ns, 0, text, True))
                n_in, n_out = usage_of(message.get("usage"))
            elif kind == "error":
                fault = fault or error_of(message)
        if exchange.session is not None and exchange.session.open_ns >= 0:
            put_transcripts(exchange, script.clip, events, self._options.audio.normaliser)
        outcome.count_usage(exchange, n_in, n_out)
        conclude(exchange, said, fault)


def append_of(frame: bytes) -> Message:
    """One frame of audio as an event."""
    return Message(b'{"type":"input_audio_buffer.append","audio":"' + base64.b64encode(frame) + b'"}', True)


def error_of(message: dict[str, object]) -> Fault:
    """The error that an event reports: a mapping as OpenAI has it, or a text beside its code."""
    error = message.get("error")
    if isinstance(error, dict):
        return fault_in(error, ("message",), ("type", "code"))
    return fault_in(message, ("error", "message"), ("code",))


def _event(name: str, **fields: object) -> Message:
    return Message(orjson.dumps({"type": name, **fields}), True)
