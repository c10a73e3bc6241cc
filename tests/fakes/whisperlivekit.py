"""WhisperLiveKit's ``/asr`` as seen from a client, with ``mode=full`` and ``mode=diff``.

No SDK speaks to it: it follows the server's sources in the WhisperLiveKit package.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, main

_RATE = 16_000


async def recognition(conversation: Conversation) -> None:
    knobs = conversation.knobs
    mode = conversation.request.query.get("mode", "full")
    await conversation.open()
    conversation.say({"type": "config", "useAudioWorklet": True, "mode": mode}, "ready", knobs.ready_delay_ms)
    audio_ms, said, committed, sequence = 0.0, 0, 0, 0
    sent: list[dict[str, Any]] = []

    def state(kind: str, after_ms: float) -> None:
        nonlocal sequence, sent
        sequence += 1
        lines = [{"speaker": 1, "text": word, "start": "0:00:00", "end": "0:00:01"} for word in knobs.words[:committed]]
        update: dict[str, Any] = {
            "status": "active_transcription",
            "buffer_transcription": " ".join(knobs.words[committed:said]),
            "buffer_diarization": "",
            "remaining_time_transcription": 0.1,
        }
        if mode == "full":
            update["lines"] = lines
        elif sequence == 1:
            update |= {"type": "snapshot", "seq": sequence, "lines": lines}
        else:
            update |= {"type": "diff", "seq": sequence, "n_lines": len(lines), "new_lines": lines[len(sent) :]}
        sent = lines
        conversation.say(update, kind, after_ms, text=" ".join(knobs.words[:said]), committed=committed)

    async for message in conversation.messages():
        if not isinstance(message, bytes) or len(message) % 2:
            conversation.violation("not PCM16")
            continue
        if not message:
            if committed < said:
                committed = said
                state("final", knobs.final_delay_ms)
            conversation.say({"type": "ready_to_stop"}, "done")
            continue
        audio_ms += len(message) / 2 * 1000 / _RATE
        if knobs.words_by(audio_ms) > said:
            # What was in the buffer is committed when the next word comes.
            committed, said = said, knobs.words_by(audio_ms)
            state("partial", knobs.partial_delay_ms)


async def error(conversation: Conversation) -> None:
    conversation.say({"status": "error", "error": "FFmpeg failed", "lines": [], "buffer_transcription": ""}, "error")
    await conversation.close(1011)


def build(knobs: Knobs) -> Fake:
    return Fake({"/asr": recognition}, error, knobs)


if __name__ == "__main__":
    main(build, sys.argv[1:])
