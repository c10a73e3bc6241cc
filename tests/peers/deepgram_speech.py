"""Drives the server at the given address with Deepgram's SDK: text is spoken, and what was spoken is heard; prints one
JSON object.

Run by tests/e2e/test_reference_websocket.py in .venv-peers; not imported by the suite.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Text
from websockets.exceptions import InvalidStatus

RATE = 16_000
FRAME_S = 0.1


def client(url: str) -> DeepgramClient:
    live = url.replace("http://", "ws://")
    there = DeepgramClientEnvironment(base=url, production=live, agent=live, agent_rest=url)
    return DeepgramClient(api_key="none", environment=there, timeout=20.0)


def speak(deepgram: DeepgramClient, texts: list[str], **options: Any) -> dict[str, Any]:
    """The audio of each text, flushed one by one on one connection."""
    audio, messages = [b""], []
    with deepgram.speak.v1.connect(model="synthesiser", **options) as live:
        for text in texts:
            live.send_text(SpeakV1Text(type="Speak", text=text))
            live.send_flush()
        live.send_close()
        for message in live:
            if isinstance(message, bytes):
                audio[-1] += message
            else:
                messages.append(message.type)
                audio += [b""] if message.type == "Flushed" else []
    return {"messages": messages, "audio": audio[:-1], "close": live._websocket.close_code}


def listen(
    deepgram: DeepgramClient, audio: bytes, *, width: int, finalize: bool = False, **options: Any
) -> dict[str, Any]:
    """Every message of one live recognition."""
    step = round(FRAME_S * options["sample_rate"]) * width
    got: list[Any] = []
    with deepgram.listen.v1.connect(model="recogniser", **options) as live:
        live.send_keep_alive()
        for at in range(0, len(audio), step):
            live.send_media(audio[at : at + step])
        if finalize:
            live.send_finalize()
        live.send_close_stream()
        got += [json.loads(message.model_dump_json()) | {"class": type(message).__name__} for message in live]
    return {"messages": got, "close": live._websocket.close_code}


def refused(deepgram: DeepgramClient) -> int:
    """The status of a handshake that asks for what can't be."""
    try:
        with deepgram.listen.v1.connect(model="nova-3", encoding="linear16", sample_rate=RATE):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def main(url: str, *texts: str) -> None:
    deepgram = client(url)
    spoken = speak(deepgram, list(texts), encoding="linear16", sample_rate=RATE)
    silence = bytes(round(1.3 * RATE) * 2)
    narrow = speak(deepgram, [texts[0]], encoding="mulaw", sample_rate=8000)
    options = {"encoding": "linear16", "sample_rate": RATE, "interim_results": "true", "smart_format": "true"}
    events = {"vad_events": "true", "utterance_end_ms": 1000}
    live = listen(deepgram, b"".join(audio + silence for audio in spoken["audio"]), width=2, **options, **events)
    final = listen(deepgram, spoken["audio"][0], width=2, finalize=True, **options)
    telephone = listen(deepgram, narrow["audio"][0], width=1, encoding="mulaw", sample_rate=8000)
    whole = b"".join(deepgram.speak.v1.audio.generate(text=texts[0], container="wav", encoding="linear16"))
    recorded = deepgram.listen.v1.media.transcribe_file(request=whole, model="recogniser")
    result = {
        "spoken": {"messages": spoken["messages"], "close": spoken["close"]},
        "live": live,
        "finalized": final,
        "telephone": telephone,
        "recorded": recorded.results.channels[0].alternatives[0].transcript,
        "refused": refused(deepgram),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
