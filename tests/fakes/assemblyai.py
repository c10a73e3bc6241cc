"""A fake of AssemblyAI's streaming v3 (``/v3/ws``): one turn by audio time, and the service's police.

A message of audio outside 50 to 1000 ms, or audio that comes faster than real time, ends the session with 3007; a
message that is no command ends it with 3006; a key with a scheme in front of it is no key (401). With
``format_turns=true`` the turn ends in two messages.

python -m tests.fakes.assemblyai --port 0
"""

from __future__ import annotations

import json
import time

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, Refused, main

WIDTHS = {"pcm_s16le": 2, "pcm_mulaw": 1}
SHORTEST_MS, LONGEST_MS = 50.0, 1000.0
#: Audio that may be ahead of the clock.
AHEAD_MS = 600.0
COMMANDS = ("Terminate", "ForceEndpoint", "UpdateConfiguration", "KeepAlive")


def admit(conversation: Conversation) -> tuple[int, int]:
    """(bytes of a sample, samples a second). Raises Refused."""
    query, key = conversation.request.query, conversation.request.headers.get("Authorization", "")
    if (not key or " " in key.strip()) and "token" not in query:
        raise Refused(401, "Not authorized")
    if query.get("encoding", "pcm_s16le") not in WIDTHS or not query.get("sample_rate", "").isdigit():
        raise Refused(400, "sample_rate and encoding don't fit")
    return WIDTHS[query.get("encoding", "pcm_s16le")], int(query["sample_rate"])


class Turn:
    """The one turn that the knobs' words make."""

    def __init__(self, conversation: Conversation, formatted: bool) -> None:
        self.conversation = conversation
        self.formatted = formatted
        self.audio_ms = 0.0
        self.n_words = 0
        self.over = False

    def message(self, over: bool, formatted: bool, after_ms: float) -> None:
        knobs = self.conversation.knobs
        words = knobs.words[: self.n_words]
        text = " ".join(words)
        if formatted and text:
            text = text[0].upper() + text[1:] + "."
        message = {
            "type": "Turn",
            "turn_order": 0,
            "turn_is_formatted": formatted,
            "end_of_turn": over,
            "transcript": text,
            "end_of_turn_confidence": 0.9 if over else 0.1,
            "words": [
                {
                    "text": word,
                    "start": round(knobs.end_ms(i) - knobs.word_ms),
                    "end": round(knobs.end_ms(i)),
                    "confidence": 0.9,
                    "word_is_final": True,
                }
                for i, word in enumerate(words)
            ],
        }
        self.conversation.say(message, "Turn", after_ms, end_of_turn=over, formatted=formatted)

    def hear(self, ms: float) -> None:
        knobs = self.conversation.knobs
        self.audio_ms += ms
        n_words = knobs.words_by(self.audio_ms)
        if n_words > self.n_words:
            self.n_words = n_words
            self.message(False, False, knobs.partial_delay_ms)
        if n_words == len(knobs.words) and self.audio_ms >= knobs.speech_end_ms + knobs.endpoint_ms:
            self.end()

    def end(self) -> None:
        knobs = self.conversation.knobs
        if self.over or not self.n_words:
            return
        self.over = True
        self.message(True, False, knobs.final_delay_ms)
        if self.formatted:
            self.message(True, True, 2 * knobs.final_delay_ms)


async def stream(conversation: Conversation) -> None:
    width, rate = admit(conversation)
    await conversation.open()
    begin = {"type": "Begin", "id": "aai-1", "expires_at": round(time.time()) + 10_800}
    conversation.say(begin, "Begin", conversation.knobs.ready_delay_ms)
    turn = Turn(conversation, conversation.request.query.get("format_turns", "").lower() == "true")
    began = time.monotonic()
    async for message in conversation.messages():
        if isinstance(message, bytes):
            ms = len(message) * 1000 / width / rate
            if not SHORTEST_MS <= ms <= LONGEST_MS:
                await hang_up(
                    conversation, 3007, f"Input Duration Violation: {ms:.1f} ms. Expected between 50 and 1000 ms"
                )
                return
            if turn.audio_ms + ms > (time.monotonic() - began) * 1000 + AHEAD_MS:
                await hang_up(conversation, 3007, "Audio Transmission Rate Exceeded: sent faster than real time")
                return
            turn.hear(ms)
        elif not await obey(conversation, turn, message, began):
            return


async def obey(conversation: Conversation, turn: Turn, message: str, began: float) -> bool:
    """False when the session is over."""
    try:
        kind = json.loads(message).get("type")
    except (ValueError, AttributeError):
        kind = None
    if kind not in COMMANDS:
        await hang_up(conversation, 3006, "Invalid Message Type")
        return False
    if kind == "ForceEndpoint":
        turn.end()
    if kind == "Terminate":
        turn.end()
        termination = {
            "type": "Termination",
            "audio_duration_seconds": round(turn.audio_ms / 1000),
            "session_duration_seconds": round(time.monotonic() - began),
        }
        conversation.say(termination, "Termination", 1.0)
        await conversation.close()
        return False
    return True


async def hang_up(conversation: Conversation, code: int, text: str) -> None:
    conversation.violation(text)
    conversation.say({"type": "Error", "error_code": code, "error": text}, "Error")
    await conversation.close(code, text)


async def error(conversation: Conversation) -> None:
    conversation.say({"type": "Error", "error_code": 3005, "error": "Server error: told to fail"}, "Error")
    await conversation.close(3005, "Server error")


def build(knobs: Knobs) -> Fake:
    return Fake({"/v3/ws": stream}, error, knobs)


if __name__ == "__main__":
    main(build)
