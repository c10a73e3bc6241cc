"""ElevenLabs' SDK against the server at the given address: Scribe in real time, and speech from text in pieces; prints
one JSON object.

Run by tests/e2e/test_fakes_by_sdk.py in .venv-vendors; not imported by the suite.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Iterator
from typing import Any, get_args

from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError
from elevenlabs.realtime.connection import RealtimeEvents
from elevenlabs.realtime.scribe import AudioFormat, CommitStrategy, ScribeRealtime
from elevenlabs.v_1_speech_to_text_realtime.types.receive_transcription import ReceiveTranscription
from typed import show, wrong

RATE = 16_000
FRAME = base64.b64encode(bytes(RATE // 10 * 2)).decode()
#: The class of each message, by its name.
CLASSES: dict[str, Any] = {one.model_fields["message_type"].default: one for one in get_args(ReceiveTranscription)}


async def listen(url: str, strategy: CommitStrategy, frames: int, frame: str = FRAME) -> list[tuple[str, Any]]:
    """(event, its data) in order, up to the committed transcript with its times or to an error."""
    scribe = ScribeRealtime(api_key="key", base_url=url.replace("http://", "ws://"))
    options: Any = {
        "model_id": "scribe_v2_realtime",
        "audio_format": AudioFormat.PCM_16000,
        "sample_rate": RATE,
        "commit_strategy": strategy,
        "include_timestamps": True,
    }
    live = await scribe.connect(options)
    got: list[tuple[str, Any]] = []
    over = asyncio.Event()

    def keep(event: RealtimeEvents) -> Any:
        def on_event(data: Any = None) -> None:
            got.append((event.value, data))
            if event in (
                RealtimeEvents.COMMITTED_TRANSCRIPT_WITH_TIMESTAMPS,
                RealtimeEvents.ERROR,
                RealtimeEvents.CLOSE,
            ):
                over.set()

        return on_event

    for event in RealtimeEvents:
        live.on(event, keep(event))
    for _ in range(frames):
        await live.send({"audio_base_64": frame})
    if strategy is CommitStrategy.MANUAL:
        await live.commit()
    await asyncio.wait_for(over.wait(), 5)
    await live.close()
    return got


def faults(events: list[tuple[str, Any]]) -> list[str]:
    """What is wrong with messages by the SDK's own classes of them."""
    said = [data for _, data in events if isinstance(data, dict) and "message_type" in data]
    unnamed = [f"{data['message_type']}: no class" for data in said if data["message_type"] not in CLASSES]
    known = [CLASSES[data["message_type"]] for data in said if data["message_type"] in CLASSES]
    built = [one.model_construct(**data) for one, data in zip(known, said, strict=True)] if not unnamed else []
    return unnamed + [fault for one in built for fault in wrong(one)]


def speak(url: str, pieces: list[str], voice: str = "a-voice") -> dict[str, Any]:
    """The audio of a text in pieces, and the error if there is one."""
    client = ElevenLabs(api_key="key", base_url=url).text_to_speech
    client._ws_base_url = url.replace("http://", "ws://")  # the SDK insists on TLS

    def text() -> Iterator[str]:
        yield from pieces

    chunks: list[bytes] = []
    try:
        chunks += client.convert_realtime(voice, text=text(), model_id="eleven_flash_v2_5", output_format="pcm_16000")
    except ApiError as error:
        return {"error": [error.status_code, error.body], "bytes": sum(map(len, chunks))}
    return {"chunks": len(chunks), "bytes": sum(map(len, chunks))}


def main(url: str, failing: str) -> None:
    by_hand = asyncio.run(listen(url, CommitStrategy.MANUAL, 5))
    by_silence = asyncio.run(listen(url, CommitStrategy.VAD, 7))
    failed = asyncio.run(listen(failing, CommitStrategy.VAD, 4))
    result = {
        "by_hand": by_hand,
        "by_silence": by_silence,
        "spoken": speak(url, ["one ", "two ", "three"]),
        "heard_failing": failed,
        "spoken_failing": speak(failing, ["one ", "two ", "three ", "four "]),
        "wrong": faults(by_hand + by_silence + failed),
    }
    show(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
