"""A fake of vLLM's transcription under ``/v1/realtime``: no turns, deltas while audio comes, the rest after the last
commit.

It insists on what vLLM insists on: the model before the first commit, a commit before there is any text, base64 audio,
known events.

OpenAI's SDK knows no such events: it follows vLLM's sources of the route and vLLM's example client.

python -m tests.fakes.openai_realtime_vllm --port 0
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from typing import Any

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, main

RATE = 16_000


class Transcription:
    """One session's audio and what was said of it."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.model = ""
        self.generating = False
        self.audio_ms = 0.0
        self.n_said = 0

    def append(self, encoded: Any) -> bool:
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            return False
        self.audio_ms += len(data) * 1000 / 2 / RATE
        self.say_on(self.conversation.knobs.words_by(self.audio_ms), self.conversation.knobs.partial_delay_ms)
        return True

    def say_on(self, n_words: int, after_ms: float) -> None:
        if not self.generating:
            return
        for i in range(self.n_said, n_words):
            delta = f"{' ' if i else ''}{self.conversation.knobs.words[i]}"
            self.conversation.say({"type": "transcription.delta", "delta": delta}, "delta", after_ms)
        self.n_said = max(self.n_said, n_words)

    def finish(self) -> None:
        knobs = self.conversation.knobs
        self.say_on(knobs.words_by(self.audio_ms), knobs.final_delay_ms)
        text = " ".join(knobs.words[: self.n_said])
        usage = {"prompt_tokens": round(self.audio_ms / 80), "completion_tokens": self.n_said, "total_tokens": 0}
        done = {"type": "transcription.done", "text": text, "usage": usage}
        self.conversation.say(done, "done", knobs.final_delay_ms)


async def realtime(conversation: Conversation) -> None:
    await conversation.open()
    created = {"type": "session.created", "id": "sess-1", "created": round(time.time())}
    conversation.say(created, "created", conversation.knobs.ready_delay_ms)
    state = Transcription(conversation)
    async for message in conversation.messages():
        try:
            event = json.loads(message)
        except ValueError:
            wrong(conversation, "invalid_json", "the event is not JSON")
            continue
        kind = event.get("type")
        if kind == "session.update":
            state.model = str(event.get("model") or "")
        elif kind == "input_audio_buffer.append":
            if not state.append(event.get("audio")):
                wrong(conversation, "invalid_audio", "the audio is not base64")
        elif kind == "input_audio_buffer.commit":
            if not state.model:
                wrong(conversation, "model_not_validated", "Model not validated. Send session.update first.")
            elif event.get("final"):
                state.finish()
            else:
                state.generating = True
        else:
            wrong(conversation, "unknown_event", f"Unknown event type: {kind}")


def wrong(conversation: Conversation, code: str, text: str) -> None:
    conversation.violation(text)
    conversation.say({"type": "error", "error": text, "code": code}, "error")


async def error(conversation: Conversation) -> None:
    conversation.say({"type": "error", "error": "told to fail", "code": "processing_error"}, "error")
    await conversation.close(1011, "told to fail")


def build(knobs: Knobs) -> Fake:
    return Fake({"/v1/realtime": realtime}, error, knobs)


if __name__ == "__main__":
    main(build)
