"""Azure Speech as seen from a client: recognition and synthesis in its own framing.

Wants a subscription key or a bearer token.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from typing import Any

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, Refused, chunks, main, tone

_TICKS = 10_000  # a ms


def _admitted(conversation: Conversation) -> None:
    headers = conversation.request.headers
    if "ocp-apim-subscription-key" not in headers and not headers.get("authorization", "").startswith("Bearer "):
        raise Refused(401, "no key")


def _parted(message: str | bytes) -> tuple[dict[str, str], bytes]:
    if isinstance(message, str):
        head, _, body = message.encode().partition(b"\r\n\r\n")
    else:
        length = struct.unpack_from(">H", message)[0]
        head, body = message[2 : 2 + length], message[2 + length :]
    pairs = (line.partition(":") for line in head.decode().splitlines() if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}, body


def _say(
    conversation: Conversation,
    path: str,
    turn: str,
    body: dict[str, Any],
    kind: str,
    after_ms: float = 0.0,
    **facts: Any,
) -> None:
    head = f"X-RequestId:{turn}\r\nContent-Type:application/json; charset=utf-8\r\nPath:{path}\r\n\r\n"
    conversation.say(head + json.dumps(body), kind, after_ms, **facts)


async def recognition(conversation: Conversation) -> None:
    knobs = conversation.knobs
    _admitted(conversation)
    detailed = conversation.request.query.get("format") == "detailed"
    await conversation.open()
    audio_ms, began_ms, said, told, rate, turn, ended, over = 0.0, 0.0, 0, 0, 0, "", False, False
    seen: list[str] = []
    async for message in conversation.messages():
        headers, body = _parted(message)
        path = headers.get("path", "").lower()
        seen.append(path)
        if path != "audio":
            json.loads(body)
            continue
        if "speech.config" not in seen:
            conversation.violation("audio before speech.config")
        if headers.get("x-requestid") != turn:  # the SDK asks again about audio that no phrase reached
            rate, over, told, began_ms = 0, False, said, audio_ms
        if over:
            continue
        if not rate:
            if body[:4] != b"RIFF" or len(body) < 44:
                conversation.violation("the first audio is no RIFF header")
            turn, rate = headers["x-requestid"], struct.unpack_from("<I", body, 24)[0]
            if not re.fullmatch("[0-9a-f]{32}", turn):
                conversation.violation("X-RequestId is not 32 hexadecimal digits")
            body = body[44:]
            _say(
                conversation,
                "turn.start",
                turn,
                {"context": {"serviceTag": "fake"}},
                "turn.start",
                knobs.ready_delay_ms,
            )
            if not body:
                continue
        audio_ms += len(body) / 2 * 1000 / rate
        if knobs.words_by(audio_ms) > said:
            said = knobs.words_by(audio_ms)
            text = " ".join(knobs.words[:said])
            hypothesis = {"Text": text, "Offset": 0, "Duration": int(knobs.end_ms(said - 1) * _TICKS)}
            _say(conversation, "speech.hypothesis", turn, hypothesis, "partial", knobs.partial_delay_ms, text=text)
        silent = said == len(knobs.words) and audio_ms >= knobs.speech_end_ms + knobs.endpoint_ms
        if silent and not ended:
            ended = True
            _say(conversation, "speech.endDetected", turn, {"Offset": int(audio_ms * _TICKS)}, "endpoint")
        if not body:
            over = True
            text = " ".join(knobs.words[told:said])
            phrase: dict[str, Any] = {"RecognitionStatus": "Success" if text else "NoMatch", "Offset": 0}
            phrase["Duration"] = int((knobs.end_ms(said - 1) if text else audio_ms - began_ms) * _TICKS)
            phrase |= {"NBest": [{"Confidence": 0.9, "Display": text}]} if detailed else {"DisplayText": text}
            _say(conversation, "speech.phrase", turn, phrase, "final", knobs.final_delay_ms, text=text)
            _say(conversation, "turn.end", turn, {}, "done")


async def speech(conversation: Conversation) -> None:
    knobs = conversation.knobs
    _admitted(conversation)
    await conversation.open()
    rate = 24_000
    async for message in conversation.messages():
        headers, body = _parted(message)
        path, turn = headers["path"].lower(), headers.get("x-requestid", "")
        if path == "synthesis.context":
            shape = json.loads(body)["synthesis"]["audio"]["outputFormat"]
            rate = int(shape.split("-")[1].removesuffix("khz")) * 1000
        if path != "ssml":
            continue
        words = re.sub("<[^>]*>", " ", body.decode()).split()
        conversation.log("text", text=" ".join(words))
        stream = {"context": {"serviceTag": "fake"}}
        _say(conversation, "turn.start", turn, stream, "turn.start", knobs.ready_delay_ms)
        inline = {"context": {}, "audio": {"type": "inline", "streamId": "a"}}
        _say(conversation, "response", turn, inline, "response")
        head = f"X-RequestId:{turn}\r\nX-StreamId:a\r\nPath:audio\r\n".encode()
        samples = tone(knobs.audio_per_word_ms * len(words), rate, knobs.leading_silence_ms)
        for i, part in enumerate(chunks(samples, rate, knobs.chunk_ms)):
            after_ms = conversation.behind_ms() + (knobs.chunk_every_ms if i else 0.0)
            data = struct.pack(">H", len(head)) + head + part.tobytes()
            conversation.say(data, "audio", after_ms, samples=len(part))
        conversation.say(struct.pack(">H", len(head)) + head, "audio_end")
        _say(conversation, "turn.end", turn, {}, "done")


async def error(conversation: Conversation) -> None:
    """The service closes with a code and a reason."""
    await conversation.close(4429, "Too many requests")


def build(knobs: Knobs) -> Fake:
    routes = {
        f"/speech/recognition/{mode}/cognitiveservices/v1": recognition
        for mode in ("interactive", "conversation", "dictation")
    }
    return Fake({**routes, "/tts/cognitiveservices/websocket/v1": speech}, error, knobs)


if __name__ == "__main__":
    main(build, sys.argv[1:])
