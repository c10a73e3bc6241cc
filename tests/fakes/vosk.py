"""vosk-server as seen from a client: one reply for each message of audio, the final one for the exact string ``{"eof" :
1}``.

No SDK speaks to it: it follows the server's script (asr_server.py) and the sample client in the vosk-server repository.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, main


async def recognition(conversation: Conversation) -> None:
    knobs = conversation.knobs
    await conversation.open()
    rate, audio_ms, final = 8000.0, 0.0, 0

    def result(last: int) -> dict[str, Any]:
        words = [
            {"word": word, "start": 0.0, "end": knobs.end_ms(i) / 1000, "conf": 1.0}
            for i, word in enumerate(knobs.words[:last])
            if i >= final
        ]
        text = " ".join(knobs.words[final:last])
        return {"result": words, "text": text} if words else {"text": text}

    async for message in conversation.messages():
        if isinstance(message, str):
            if message == '{"eof" : 1}':
                said = result(knobs.words_by(audio_ms))
                conversation.say(said, "final", knobs.final_delay_ms, text=said["text"])
                await conversation.close()
                return
            if "config" in message:
                rate = float(json.loads(message)["config"]["sample_rate"])
                continue
            conversation.violation(f"text that is no message: {message[:40]}")
            continue
        audio_ms += len(message) / 2 * 1000 / rate
        last = knobs.words_by(audio_ms)
        if last == len(knobs.words) > final and audio_ms >= knobs.speech_end_ms + knobs.endpoint_ms:
            said = result(last)
            final = last
            conversation.say(said, "final", knobs.partial_delay_ms, text=said["text"])
        else:
            text = " ".join(knobs.words[final:last])
            conversation.say({"partial": text}, "partial" if text else "empty", knobs.partial_delay_ms, text=text)


async def error(conversation: Conversation) -> None:
    """The server has no message for errors: its handler dies, and the library says 1011."""
    await conversation.close(1011, "")


def build(knobs: Knobs) -> Fake:
    return Fake({"/": recognition}, error, knobs)


if __name__ == "__main__":
    main(build, sys.argv[1:])
