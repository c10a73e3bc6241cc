"""ElevenLabs as seen from a client:

Scribe realtime and stream-input. Wants an ``xi-api-key``; anything else is refused with 401.
"""

from __future__ import annotations

import base64
import json
import sys
from array import array
from typing import Any

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, Refused, chunks, main, tone


def _key(conversation: Conversation) -> None:
    if not conversation.request.headers.get("xi-api-key"):
        raise Refused(401, "missing xi-api-key")


async def scribe(conversation: Conversation) -> None:
    knobs, query = conversation.knobs, conversation.request.query
    _key(conversation)
    audio_format = query.get("audio_format", "pcm_16000")
    rate, width = int(audio_format.partition("_")[2]), 1 if audio_format.startswith("ulaw") else 2
    vad, timed = query.get("commit_strategy") == "vad", query.get("include_timestamps") == "true"
    if "model_id" not in query:
        raise Refused(400, "missing model_id")
    await conversation.open()
    conversation.say(
        {"message_type": "session_started", "session_id": "s1", "config": {"sample_rate": rate}},
        "ready",
        knobs.ready_delay_ms,
    )
    audio_ms, said, committed = 0.0, 0, 0
    async for message in conversation.messages():
        chunk: dict[str, Any] = json.loads(message)
        if chunk.get("message_type") != "input_audio_chunk" or chunk.get("sample_rate") != rate:
            conversation.violation(f"not an audio chunk at {rate} Hz")
            await error(conversation)
            return
        data = base64.b64decode(chunk["audio_base_64"], validate=True)
        if len(data) % width:
            conversation.violation("half a sample")
        audio_ms += len(data) * 1000 / width / rate
        heard = knobs.words_by(audio_ms)
        if heard > said:
            said = heard
            text = " ".join(knobs.words[committed:said])
            conversation.say(
                {"message_type": "partial_transcript", "text": text}, "partial", knobs.partial_delay_ms, text=text
            )
        silent = vad and said == len(knobs.words) and audio_ms >= knobs.speech_end_ms + knobs.endpoint_ms
        if (chunk["commit"] or silent) and committed < len(knobs.words):
            text = " ".join(knobs.words[committed:said])
            committed = said
            conversation.say(
                {"message_type": "committed_transcript", "text": text}, "final", knobs.final_delay_ms, text=text
            )
            if timed:
                words = [
                    {"text": word, "start": 0.0, "end": knobs.end_ms(i) / 1000, "type": "word"}
                    for i, word in enumerate(knobs.words[:said])
                ]
                conversation.say(
                    {
                        "message_type": "committed_transcript_with_timestamps",
                        "text": text,
                        "language_code": "en",
                        "words": words,
                    },
                    "final_timed",
                )


async def speech(conversation: Conversation) -> None:
    knobs, query = conversation.knobs, conversation.request.query
    _key(conversation)
    await conversation.open()
    rate = int(query.get("output_format", "pcm_24000").split("_")[1])
    opened, text = False, ""
    async for message in conversation.messages():
        piece: dict[str, Any] = json.loads(message)
        if not opened:
            opened = True
            if piece.get("text") != " ":
                conversation.violation("the first message's text is not one space")
            continue
        if piece["text"]:
            conversation.log("text", text=piece["text"])
            if not piece["text"].endswith(" "):
                conversation.violation("text that does not end in a space")
            text += piece["text"]
            continue
        samples = tone(knobs.audio_per_word_ms * len(text.split()), rate, knobs.leading_silence_ms)
        for i, part in enumerate(chunks(samples, rate, knobs.chunk_ms)):
            _speak(conversation, part, knobs.chunk_every_ms if i else knobs.ready_delay_ms)
        conversation.say({"audio": None, "isFinal": True}, "final")
        await conversation.close()
        return


def _speak(conversation: Conversation, part: array[int], after_ms: float) -> None:
    # Each chunk waits for the one before it.
    audio = base64.b64encode(part.tobytes()).decode()
    conversation.say(
        {"audio": audio, "isFinal": None, "alignment": None, "normalizedAlignment": None},
        "audio",
        conversation.behind_ms() + after_ms,
        samples=len(part),
    )


async def error(conversation: Conversation) -> None:
    """Scribe names errors in ``message_type``, stream-input closes with 1008."""
    if "speech-to-text" in conversation.request.path:
        conversation.say({"message_type": "rate_limited", "error": "slow down"}, "error")
        await conversation.close(1000)
    else:
        conversation.say({"message": "no characters left", "error": "quota_exceeded", "code": 1008}, "error")
        await conversation.close(1008, "quota_exceeded")


def build(knobs: Knobs) -> Fake:
    routes = {"/v1/speech-to-text/realtime": scribe, "/v1/text-to-speech/{voice}/stream-input": speech}
    return Fake(routes, error, knobs)


if __name__ == "__main__":
    main(build, sys.argv[1:])
