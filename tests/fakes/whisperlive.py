"""WhisperLive as seen from a client: options first, then float32 in; a rolling window of segments whose times are
strings.

The last segment is completed after its words were the same for ``endpoint_ms`` of audio; what is not completed when
``END_OF_AUDIO`` comes is never said, and the server closes.

Its own client needs a sound card: this follows the server's and client's sources in the WhisperLive repository.
"""

from __future__ import annotations

import json
import sys
from array import array
from typing import Any

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, main

_RATE = 16_000


async def recognition(conversation: Conversation) -> None:
    knobs = conversation.knobs
    await conversation.open()
    options: dict[str, Any] = {}
    audio_ms, said, completed = 0.0, 0, 0
    split = max(1, len(knobs.words) // 2)  # the first half becomes a segment of its own

    def window(kind: str, after_ms: float) -> None:
        segments = []
        if completed:
            segments.append(_segment(0, split, knobs, True))
        if completed > split:
            segments.append(_segment(split, len(knobs.words), knobs, True))
        if said > completed:
            segments.append(_segment(completed, said, knobs, False))
        texts = [segment["text"] for segment in segments]
        reply = {"uid": options["uid"], "segments": segments[-options["send_last_n_segments"] :]}
        conversation.say(reply, kind, after_ms, text=" ".join(texts))

    async for message in conversation.messages():
        if isinstance(message, str):
            options = json.loads(message)
            if not {"uid", "language", "task", "model", "use_vad"} <= options.keys():
                conversation.violation("options are missing")
            ready = {"uid": options["uid"], "message": "SERVER_READY", "backend": "faster_whisper"}
            conversation.say(ready, "ready", knobs.ready_delay_ms)
            continue
        if message == b"END_OF_AUDIO":
            await conversation.close()
            return
        samples = array("f", message)
        if any(abs(sample) > 1 for sample in samples):
            conversation.violation("samples beyond full scale")
        audio_ms += len(samples) * 1000 / _RATE
        heard = knobs.words_by(audio_ms)
        if heard > said:
            said = heard
            if said > split and not completed:
                completed = split
            window("partial", knobs.partial_delay_ms)
        elif said == len(knobs.words) > completed and audio_ms >= knobs.speech_end_ms + knobs.endpoint_ms:
            completed = said
            window("final", knobs.final_delay_ms)


def _segment(begin: int, end: int, knobs: Knobs, completed: bool) -> dict[str, Any]:
    start_ms = knobs.end_ms(begin - 1) if begin else 0.0
    return {
        "start": f"{start_ms / 1000:.3f}",
        "end": f"{knobs.end_ms(end - 1) / 1000:.3f}",
        "text": " " + " ".join(knobs.words[begin:end]),
        "completed": completed,
    }


async def error(conversation: Conversation) -> None:
    """The server is full."""
    conversation.say({"uid": "x", "status": "WAIT", "message": 2.5}, "error")
    await conversation.close()


def build(knobs: Knobs) -> Fake:
    return Fake({"/": recognition}, error, knobs)


if __name__ == "__main__":
    main(build, sys.argv[1:])
