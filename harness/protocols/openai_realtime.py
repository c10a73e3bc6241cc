"""OpenAI's realtime WebSocket (``/v1/realtime``): live transcription, and conversations in speech or text.

A session is one turn: settings, the input, and whatever the server makes of it. Audio goes out as a microphone would give it; turns end
by the server's turn detection, in the silence that follows the clip, or by a commit at its true end. The answer's audio comes faster
than it plays, so what is stamped is arrival; when it could be heard is worked out from that. It plays no tools and interrupts nobody.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import replace
from typing import Any

import orjson

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept, checked
from plimsoll.harness.protocols._http.model_name import first_model
from plimsoll.harness.protocols._speech.feeding import text_of
from plimsoll.harness.protocols._speech.live import audio_problems, clip_of, live_audio
from plimsoll.harness.protocols._speech.live_messages import after_speech, conclude, heard_out, kind_of, read
from plimsoll.harness.protocols._speech.realtime_options import FORMATS, RealtimeOptions, session_object
from plimsoll.harness.protocols._speech.realtime_reading import Reading, read_events
from plimsoll.harness.protocols._speech.realtime_vllm import RATE, VllmDialogue, append_of
from plimsoll.harness.protocols._speech.recognition import put_transcripts
from plimsoll.harness.protocols._speech.synthesis import put_sounds
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Dialogue, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.harness.transport.live.live_client import websocket_built
from plimsoll.harness.wire.tokens import Fault
from plimsoll.scenarios.samples.payload import Payload

_COMMIT, _ANSWER = (
    Message(orjson.dumps({"type": name}), True) for name in ("input_audio_buffer.commit", "response.create")
)
_ITEM = b"conversation.item.input_audio_transcription."
_STARTED, _COMMITTED = b'"input_audio_buffer.speech_started"', b'"input_audio_buffer.committed"'
_TURN_END = re.compile(rb'"audio_end_ms"\s*:\s*(\d{1,9})')
_CANCELLED = re.compile(rb'"status"\s*:\s*"cancelled"')


class RealtimeDialogue:
    """OpenAI's dialect with the options' settings."""

    __slots__ = ("_headers", "_model", "_options", "_path")

    def __init__(self, target: Target, options: RealtimeOptions) -> None:
        self._options = options
        self._model = target.model
        self._headers = handshake_headers(target.headers, "bearer")
        talks = options.mode == "conversation"
        query: dict[str, Value] = {"model": self._model or None} if talks else {"intent": "transcription"}
        self._path = request_target(target.url, "/v1/realtime", options.path, {**query, **options.query})

    def encode(self, payload: Payload) -> Script:
        options = self._options
        heard = options.mode == "transcription" or "clip" in payload.data
        session = session_object(options, self._model, payload.max_output_tokens, heard)
        common: dict[str, Any] = {
            "path": self._path,
            "headers": self._headers,
            "opening": (Message(orjson.dumps({"type": "session.update", "session": session}), True),),
            "waits": True,
            "ends_on_close": False,
            "n_in": payload.n_in,
        }
        if not heard:
            said = {"type": "input_text", "text": text_of(payload, "openai-realtime")}
            item = {"type": "message", "role": "user", "content": [said]}
            asked = Message(orjson.dumps({"type": "conversation.item.create", "item": item}), True)
            return Script(**common, frames=(asked, _ANSWER), due_ns=(0, 0))
        codec, rate = FORMATS[options.encoding]
        live = live_audio(
            clip_of(payload, "openai-realtime"), options.audio, codec, rate, silence_ns=options.silence_ns
        )
        closing: tuple[Message, ...] = ()
        if options.turn_detection == "none":
            closing = (_COMMIT, _ANSWER) if options.mode == "conversation" else (_COMMIT,)
        return Script(**common, closing=closing, **live.script([append_of(frame) for frame in live.frames]))

    # -- while it is on -----------------------------------------------------------------------------------------

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if not text:
            return NOTHING
        kind = kind_of(message)
        if kind == b"error":
            return DONE  # the socket would stay open, and the answer never come
        if kind in (b"session.updated", b"transcription_session.updated"):
            return READY
        if kind == b"input_audio_buffer.speech_stopped":
            return ENDPOINT if _heard_out(exchange) else NOTHING
        if kind == b"response.done":
            return self._answered(exchange, message)
        if self._options.mode == "transcription" and kind.startswith(_ITEM):
            if kind.endswith(b".failed"):
                return DONE
            return DONE if kind.endswith(b".completed") and self._transcribed(exchange) else NOTHING
        return NOTHING

    def _answered(self, exchange: Exchange, message: bytes) -> int:
        """The answer to the whole of the input is over: not one that our own speech interrupted, nor one to its first half."""
        by_vad = exchange.media_ns >= 0 and self._options.turn_detection != "none"
        if by_vad and (_CANCELLED.search(message) or self._speaking(exchange) or not _heard_out(exchange)):
            return NOTHING
        return DONE

    def _transcribed(self, exchange: Exchange) -> bool:
        """Every item has its transcript, and the input is over."""
        body = exchange.body
        done = sum(body.count(b'"' + _ITEM + end + b'"') for end in (b"completed", b"failed"))
        if done < body.count(_COMMITTED):
            return False
        return self._options.turn_detection == "none" or not (self._speaking(exchange) or not _heard_out(exchange))

    @staticmethod
    def _speaking(exchange: Exchange) -> bool:
        """Speech has begun that no item holds yet."""
        return exchange.body.count(_STARTED) > exchange.body.count(_COMMITTED)

    # -- after it -----------------------------------------------------------------------------------------------

    def settle(self, exchange: Exchange) -> None:
        options, said, script = self._options, read(exchange), exchange.request.script
        reading = read_events(said, options.output_encoding)
        wanted = options.mode == "transcription" or options.transcription_model is not None
        if script.clip is not None and exchange.session is not None and exchange.session.open_ns >= 0:
            put_transcripts(exchange, script.clip if wanted else None, reading.events, options.audio.normaliser)
            if not wanted:
                exchange.session.heard = None  # nobody was asked to write it down
        if options.mode == "conversation":
            _put_answer(exchange, reading)
        exchange.server_timing = reading.timing or None
        conclude(exchange, said, reading.fault)
        if options.mode == "conversation":
            self._judge_answer(exchange, reading)

    def _judge_answer(self, exchange: Exchange, reading: Reading) -> None:
        if reading.broken:
            outcome.fail(exchange, outcome.PROTOCOL, reading.broken)
        elif reading.status == "cancelled":
            outcome.fail_by(exchange, Fault("the response was cancelled"))
        elif reading.status not in ("completed", "incomplete"):
            said = f"its status is {reading.status[:40]!r}" if reading.status else "its status is missing"
            outcome.fail(exchange, outcome.PROTOCOL, f"the answer ended without a finish reason: {said}")
        elif not (reading.sounds if self._options.output == "audio" else reading.text_ns):
            outcome.fail(exchange, outcome.PROTOCOL, f"the answer holds no {self._options.output}")


def _heard_out(exchange: Exchange) -> bool:
    """The latest turn reaches the true end of the speech, by the server's own position in the audio where it gives one."""
    found = _TURN_END.search(exchange.body, max(0, exchange.body.rfind(b'"input_audio_buffer.speech_stopped"')))
    return after_speech(exchange) if found is None else heard_out(exchange, int(found[1]))


def _put_answer(exchange: Exchange, reading: Reading) -> None:
    """The answer's chunks are the row's chunks: in speech those of audio, in text those of text."""
    if reading.sounds:
        put_sounds(exchange, reading.sounds)
        if exchange.session is not None:
            exchange.session.chunk_cursor_ns = array("q")  # positions in the input are no positions of these chunks
    elif reading.text_ns:
        outcome.put_chunks(exchange, array("q", reading.text_ns), reading.text_ns[0])
    if exchange.session is not None and exchange.media_ns < 0:
        exchange.session.heard = reading.text
    outcome.count_tokens(exchange, reading.n_in, reading.n_out, exchange.status == outcome.OK)


def _dialogue(target: Target) -> Dialogue:
    options = accept(RealtimeOptions, target.options)
    return VllmDialogue(target, options) if options.dialect == "vllm" else RealtimeDialogue(target, options)


async def _prepare(target: Target) -> Target:
    """vLLM insists on a model's name, and lists its own first; OpenAI's list says nothing about who transcribes."""
    if target.model or accept(RealtimeOptions, target.options).dialect != "vllm":
        return target
    return replace(target, model=await first_model(target) or "")


def _mistakes(given: RealtimeOptions) -> list[str]:
    codec, rate = ("pcm16", RATE) if given.dialect == "vllm" else FORMATS[given.encoding]
    return audio_problems(given.audio, codec, rate)


PROTOCOLS = (
    ProtocolSpec(
        "openai-realtime",
        "OpenAI realtime, /v1/realtime: live transcription (also vLLM's), voice to voice, text to voice",
        websocket_built(_dialogue),
        checked(RealtimeOptions, _mistakes),
        streaming=True,
        bundled=True,
        options=RealtimeOptions,
        bundled_model="recogniser",
        source="audio",
        prepare=_prepare,
    ),
)
