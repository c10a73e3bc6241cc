"""A fake of Deepgram's Flux (``/v2/listen``): turns by audio time, no interim results, no Finalize.

It refuses what the service refuses: a key in no known scheme (401), a model of another family or parameters of
/v1/listen (400), text messages that are no command of Flux. The end of the stream does not end a turn: only silence
does.

python -m tests.fakes.deepgram_flux --port 0
"""

from __future__ import annotations

import json

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, Refused, main

V1_ONLY = ("interim_results", "endpointing", "utterance_end_ms", "vad_events", "punctuate", "smart_format", "channels")
WIDTHS = {"linear16": 2, "linear32": 4, "mulaw": 1, "alaw": 1}
#: Audio between two updates of a turn that goes on.
UPDATE_MS = 240.0


def admit(conversation: Conversation) -> tuple[int, int]:
    """(bytes of a sample, samples a second). Raises Refused."""
    query, key = conversation.request.query, conversation.request.headers.get("Authorization", "")
    if not key.startswith(("Token ", "Bearer ", "token ")):
        raise Refused(401, "INVALID_AUTH: no credentials")
    if not query.get("model", "").startswith("flux-"):
        raise Refused(400, "model: /v2/listen serves flux models only")
    wrong = sorted(set(V1_ONLY) & set(query))
    if wrong:
        raise Refused(400, f"{', '.join(wrong)}: no parameter of /v2/listen")
    if query.get("encoding") not in WIDTHS or not query.get("sample_rate", "").isdigit():
        raise Refused(400, "encoding and sample_rate are needed for audio without a container")
    return WIDTHS[query["encoding"]], int(query["sample_rate"])


class Turn:
    """The one turn that the knobs' words make."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.audio_ms = 0.0
        self.sequence = 0
        self.n_words = 0
        self.updated_ms = 0.0
        self.over = False

    def event(self, name: str, after_ms: float) -> None:
        knobs = self.conversation.knobs
        words = knobs.words[: self.n_words]
        self.sequence += 1
        message = {
            "type": "TurnInfo",
            "request_id": "flux-1",
            "sequence_id": self.sequence,
            "event": name,
            "turn_index": 0,
            "audio_window_start": 0.0,
            "audio_window_end": round(self.audio_ms / 1000, 4),
            "transcript": " ".join(words),
            "words": [{"word": word, "confidence": 0.9} for word in words],
            "end_of_turn_confidence": 0.95 if name == "EndOfTurn" else 0.1,
        }
        self.conversation.say(message, name, after_ms, audio_ms=self.audio_ms)

    def hear(self, ms: float) -> None:
        knobs = self.conversation.knobs
        self.audio_ms += ms
        if self.over:
            return
        n_words = knobs.words_by(self.audio_ms)
        if n_words > self.n_words:
            first, self.n_words = self.n_words == 0, n_words
            self.updated_ms = self.audio_ms
            self.event("StartOfTurn" if first else "Update", knobs.partial_delay_ms)
        elif self.n_words and self.audio_ms - self.updated_ms >= UPDATE_MS:
            self.updated_ms = self.audio_ms
            self.event("Update", knobs.partial_delay_ms)
        if n_words == len(knobs.words) and self.audio_ms >= knobs.speech_end_ms + knobs.endpoint_ms:
            self.over = True
            self.event("EndOfTurn", knobs.final_delay_ms)


async def listen(conversation: Conversation) -> None:
    width, rate = admit(conversation)
    await conversation.open()
    connected = {"type": "Connected", "request_id": "flux-1", "sequence_id": 0}
    conversation.say(connected, "Connected", conversation.knobs.ready_delay_ms)
    turn = Turn(conversation)
    async for message in conversation.messages():
        if isinstance(message, bytes):
            turn.hear(len(message) * 1000 / width / rate)
            continue
        try:
            kind = json.loads(message).get("type")
        except (ValueError, AttributeError):
            kind = None
        if kind == "CloseStream":
            await conversation.close()
            return
        if kind == "Configure":
            conversation.say({"type": "ConfigureSuccess", "request_id": "flux-1"}, "ConfigureSuccess")
            continue
        conversation.violation(f"{kind} is no message of Flux")
        await error(conversation, "UNPARSABLE_CLIENT_MESSAGE", "the message could not be deserialized", 1008)
        return


async def error(
    conversation: Conversation, code: str = "INTERNAL_SERVER_ERROR", text: str = "told to fail", close: int = 1011
) -> None:
    said = {"type": "Error", "sequence_id": 99, "code": code, "description": text}
    conversation.say(said, "Error")
    await conversation.close(close, code)


def build(knobs: Knobs) -> Fake:
    return Fake({"/v2/listen": listen}, error, knobs)


if __name__ == "__main__":
    main(build)
