"""Cartesia as seen from a client: ``/stt/websocket``, ``/stt/turns/websocket`` and ``/tts/websocket``. Wants a bearer
key (or ``X-API-Key``) and ``cartesia-version``.
"""

from __future__ import annotations

import base64
import json
import sys
from array import array
from typing import Any

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, Refused, chunks, main, tone

_WIDTHS = {"pcm_s16le": 2, "pcm_f32le": 4, "pcm_mulaw": 1, "pcm_alaw": 1}


def _admitted(conversation: Conversation) -> None:
    headers, query = conversation.request.headers, conversation.request.query
    key = headers.get("authorization", "").startswith("Bearer ") or "x-api-key" in headers or "api_key" in query
    if not key:
        raise Refused(401, "no key")
    if "cartesia-version" not in headers and "cartesia_version" not in query:
        raise Refused(400, "no cartesia-version")


async def recognition(conversation: Conversation) -> None:
    knobs, query = conversation.knobs, conversation.request.query
    _admitted(conversation)
    per_ms = int(query["sample_rate"]) * _WIDTHS[query["encoding"]] / 1000
    await conversation.open()
    audio_ms, said, final = 0.0, 0, 0

    def transcript(is_final: bool, after_ms: float) -> None:
        text = " " * (final > 0) + " ".join(knobs.words[final:said])  # it goes on where the final text before it ended
        ends_s = [knobs.end_ms(i) / 1000 for i in range(said)]
        words = {"words": list(knobs.words[:said]), "start": [0.0, *ends_s[:-1]], "end": ends_s}
        conversation.say(
            {
                "type": "transcript",
                "is_final": is_final,
                "text": text,
                "request_id": "r",
                "duration": audio_ms / 1000,
                "words": [words] if said else [],
            },
            "final" if is_final else "partial",
            after_ms,
            text=text,
        )

    async for message in conversation.messages():
        if isinstance(message, bytes):
            audio_ms += len(message) / per_ms
            if knobs.words_by(audio_ms) > said:
                said = knobs.words_by(audio_ms)
                transcript(False, knobs.partial_delay_ms)
            continue
        if message not in ("finalize", "close", "done"):
            conversation.violation(f"unknown command {message!r}")
            await error(conversation)
            return
        if said > final:
            transcript(True, knobs.final_delay_ms)
            final = said
        if message == "finalize":
            conversation.say({"type": "flush_done", "request_id": "r"}, "flush_done")
        else:
            conversation.say({"type": "done", "request_id": "r"}, "done")
            await conversation.close()
            return


async def turns(conversation: Conversation) -> None:
    knobs, query = conversation.knobs, conversation.request.query
    _admitted(conversation)
    per_ms = int(query["sample_rate"]) * _WIDTHS[query["encoding"]] / 1000
    await conversation.open()
    conversation.say({"type": "connected", "request_id": "r"}, "ready", knobs.ready_delay_ms)
    audio_ms, said, over = 0.0, 0, False
    async for message in conversation.messages():
        if isinstance(message, str):
            command: dict[str, Any] = json.loads(message)
            if command["type"] == "close":
                await conversation.close()
                return
            if command["type"] != "config":
                conversation.violation(f"unknown command {command['type']!r}")
                await error(conversation)
                return
            continue
        audio_ms += len(message) / per_ms
        heard = knobs.words_by(audio_ms)
        if heard and not said:
            conversation.say({"type": "turn.start", "request_id": "r"}, "turn.start")
        if heard > said:
            said = heard
            text = " ".join(knobs.words[:said])
            conversation.say(
                {"type": "turn.update", "request_id": "r", "transcript": text},
                "partial",
                knobs.partial_delay_ms,
                text=text,
            )
        if not over and said == len(knobs.words) and audio_ms >= knobs.speech_end_ms + knobs.endpoint_ms:
            over = True
            text = " ".join(knobs.words)
            conversation.say({"type": "turn.eager_end", "request_id": "r", "transcript": text}, "eager")
            conversation.say(
                {"type": "turn.end", "request_id": "r", "transcript": text}, "final", knobs.final_delay_ms, text=text
            )


async def speech(conversation: Conversation) -> None:
    knobs = conversation.knobs
    _admitted(conversation)
    await conversation.open()
    texts: dict[str, str] = {}
    async for message in conversation.messages():
        asked: dict[str, Any] = json.loads(message)
        context, shape = asked["context_id"], asked["output_format"]
        voice = asked["voice"]
        if (
            not (voice if isinstance(voice, str) else voice["id"])
            or shape["container"] != "raw"
            or not asked["model_id"]
        ):
            conversation.violation("a request that is not of the interface")
            await error(conversation)
            return
        conversation.log("text", text=asked["transcript"])
        texts[context] = texts.get(context, "") + asked["transcript"]
        if asked.get("continue"):
            continue
        rate = shape["sample_rate"]
        samples = tone(knobs.audio_per_word_ms * len(texts[context].split()), rate, knobs.leading_silence_ms)
        for i, part in enumerate(chunks(samples, rate, knobs.chunk_ms)):
            after_ms = knobs.chunk_every_ms if i else knobs.ready_delay_ms
            conversation.say(
                {
                    "type": "chunk",
                    "data": base64.b64encode(_encoded(part, shape["encoding"])).decode(),
                    "done": False,
                    "status_code": 206,
                    "step_time": 1.0,
                    "context_id": context,
                },
                "audio",
                conversation.behind_ms() + after_ms,
                samples=len(part),
            )
        conversation.say({"type": "done", "done": True, "status_code": 200, "context_id": context}, "done")


def _encoded(part: array[int], encoding: str) -> bytes:
    if encoding == "pcm_f32le":
        return array("f", [value / 32768 for value in part]).tobytes()
    return part.tobytes() if encoding == "pcm_s16le" else bytes(len(part))


async def error(conversation: Conversation) -> None:
    message: dict[str, Any] = {
        "type": "error",
        "title": "Too many requests",
        "message": "concurrency limit reached",
        "status_code": 429,
        "error_code": "concurrency_limited",
    }
    if conversation.request.path == "/tts/websocket":
        message["done"] = True
    conversation.say(message, "error")
    await conversation.close(1000)


def build(knobs: Knobs) -> Fake:
    routes = {"/stt/websocket": recognition, "/stt/turns/websocket": turns, "/tts/websocket": speech}
    return Fake(routes, error, knobs)


if __name__ == "__main__":
    main(build, sys.argv[1:])
