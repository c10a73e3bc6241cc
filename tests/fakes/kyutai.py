"""moshi-server as seen from a client: ``/api/asr-streaming`` and ``/api/tts_streaming``, MessagePack at 24 kHz.

A Marker comes back when all audio before it was heard, and the model hears ``endpoint_ms`` ahead: only more audio
brings it.

No small SDK speaks to it: it follows moshi-server's Rust sources and the clients in Kyutai's repository of
delayed-streams models.
"""

from __future__ import annotations

import sys
from typing import Any

import msgpack

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, Refused, chunks, main, tone

_RATE = 24_000


def _say(conversation: Conversation, said: dict[str, Any], kind: str, after_ms: float = 0.0, **facts: Any) -> None:
    conversation.say(msgpack.packb(said, use_single_float=True), kind, after_ms, **facts)


def _admitted(conversation: Conversation) -> None:
    if "kyutai-api-key" not in conversation.request.headers and "auth_id" not in conversation.request.query:
        raise Refused(401, "unauthorized")


async def recognition(conversation: Conversation) -> None:
    knobs = conversation.knobs
    _admitted(conversation)
    await conversation.open()
    _say(conversation, {"type": "Ready"}, "ready", knobs.ready_delay_ms)
    audio_ms, said, step = 0.0, 0, 0
    markers: list[tuple[float, int]] = []
    async for message in conversation.messages():
        asked: dict[str, Any] = msgpack.unpackb(message)
        if asked["type"] == "Marker":
            markers.append((audio_ms + knobs.endpoint_ms, asked["id"]))
            conversation.log("marker_asked")
            continue
        if asked["type"] != "Audio":
            conversation.violation(f"unknown message {asked['type']!r}")
            await error(conversation)
            return
        if len(asked["pcm"]) != 1920:
            conversation.log("short_frame", samples=len(asked["pcm"]))
        audio_ms += len(asked["pcm"]) * 1000 / _RATE
        step += 1
        pause = 0.9 if audio_ms >= knobs.speech_end_ms + knobs.endpoint_ms else 0.1
        _say(conversation, {"type": "Step", "step_idx": step, "prs": [0.0, 0.0, pause, 0.0], "buffered_pcm": 0}, "step")
        while said < knobs.words_by(audio_ms):
            word, end_s = knobs.words[said], knobs.end_ms(said) / 1000
            said += 1
            text = " ".join(knobs.words[:said])
            _say(
                conversation,
                {"type": "Word", "text": word, "start_time": end_s - 0.05},
                "word",
                knobs.partial_delay_ms,
                text=text,
            )
            _say(conversation, {"type": "EndWord", "stop_time": end_s}, "end_word")
        while markers and audio_ms >= markers[0][0]:
            _say(conversation, {"type": "Marker", "id": markers.pop(0)[1]}, "done", knobs.final_delay_ms)


async def speech(conversation: Conversation) -> None:
    knobs = conversation.knobs
    _admitted(conversation)
    if conversation.request.query.get("format") != "PcmMessagePack":
        raise Refused(400, "this fake speaks PcmMessagePack only")
    await conversation.open()
    _say(conversation, {"type": "Ready"}, "ready", knobs.ready_delay_ms)
    words: list[str] = []
    async for message in conversation.messages():
        asked: dict[str, Any] = msgpack.unpackb(message)
        if asked["type"] == "Text":
            conversation.log("text", text=asked["text"])
            if not asked["text"].strip() or " " in asked["text"].strip():
                conversation.violation("not one word")
            words.append(asked["text"])
            continue
        if asked["type"] != "Eos":
            conversation.violation(f"unknown message {asked['type']!r}")
        samples = tone(knobs.audio_per_word_ms * len(words), _RATE, knobs.leading_silence_ms)
        for i, part in enumerate(chunks(samples, _RATE, knobs.chunk_ms)):
            after_ms = conversation.behind_ms() + (knobs.chunk_every_ms if i else knobs.ready_delay_ms)
            pcm = [value / 32768 for value in part]
            _say(conversation, {"type": "Audio", "pcm": pcm}, "audio", after_ms, samples=len(part))
        await conversation.close()
        return


async def error(conversation: Conversation) -> None:
    _say(conversation, {"type": "Error", "message": "no free channels"}, "error")
    await conversation.close(1000)


def build(knobs: Knobs) -> Fake:
    return Fake({"/api/asr-streaming": recognition, "/api/tts_streaming": speech}, error, knobs, b"\xc1")


if __name__ == "__main__":
    main(build, sys.argv[1:])
