"""Both ends of a conversation without a network: a client that follows a script, and speech models that do as they are
told.

The listener hears text: each sample's value, times 1000, is a character of what is being said, 0 is silence. So a test
says what is heard by the audio it sends, and times follow from the sample rate.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plimsoll.reference_server.seams.models import Audio, Heard, Word
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.transports.websocket import Conversation, Ending
from plimsoll.reference_server.values.durations import INFERENCE, Stages, Startup
from plimsoll.reference_server.values.errors import RequestError

RATE = 8000
LATE = "late"
"""In a script: nothing comes before the deadline."""
Step = str | bytes | dict[str, Any] | None | Callable[[], object]


@dataclass
class ScriptedPeer:
    """Sends the messages of a script, and keeps what it is sent; audio is kept as bytes."""

    script: list[Step]
    row: TruthRow = field(default_factory=lambda: TruthRow("r1", "", 0))
    got: list[Any] = field(default_factory=list)
    deadlines_ns: list[int] = field(default_factory=list)

    async def receive(self, deadline_ns: int = -1) -> str | bytes | None:
        self.deadlines_ns.append(deadline_ns)
        while self.script and callable(self.script[0]):
            step = self.script.pop(0)
            assert callable(step)
            while not step():  # a condition on what came so far: let the others run until it holds
                await asyncio.sleep(0)
        message = self.script.pop(0) if self.script else None
        assert not callable(message)
        if message == LATE:
            raise TimeoutError
        return json.dumps(message) if isinstance(message, dict) else message

    def send(self, message: Mapping[str, Any]) -> None:
        self.got.append(json.loads(json.dumps(message)))

    def send_audio(self, data: bytes) -> None:
        self.got.append(data)

    async def room(self) -> None:
        await asyncio.sleep(0)

    def of(self, name: str) -> list[dict[str, Any]]:
        """The messages of a type."""
        return [message for message in self.got if isinstance(message, dict) and message["type"] == name]

    def saw(self, name: str, times: int = 1) -> Callable[[], bool]:
        """A step of a script: go on when so many messages of that type came."""
        return lambda: len(self.of(name)) >= times

    @property
    def names(self) -> list[str]:
        """The types of all messages, in order; runs of the same are one."""
        found = ["audio" if isinstance(message, bytes) else message["type"] for message in self.got]
        return [name for index, name in enumerate(found) if index == 0 or found[index - 1] != name]


def talk(conversation: Conversation, peer: ScriptedPeer) -> Ending | None:
    """Run a conversation to its end."""

    async def main() -> Ending | None:
        try:
            return await asyncio.wait_for(conversation.hold(peer), 10)
        finally:
            conversation.close()

    return asyncio.run(main())


def saying(text: str, *, then_s: float = 0.0, rate: int = RATE) -> Audio:
    """The audio of a text, a character a millisecond, and silence after it."""
    characters = np.array([ord(c) / 1000 for c in text], np.float32).repeat(rate // 1000)
    return np.concatenate((characters, np.zeros(round(then_s * rate), np.float32)))


class FakeListener:
    """Hears what ``saying`` says. A space ends a word; so many milliseconds of silence end an utterance."""

    def __init__(self, endpointing_ms: int, *, single: bool, rate: int = RATE) -> None:
        self._step = rate // 1000
        self.stages = Stages()
        self.closed = 0
        self._endpointing_s = float("inf") if single else endpointing_ms / 1000
        self._at_s = self._quiet_s = self._began_s = 0.0
        self._text = ""
        self._rest = np.zeros(0, np.float32)

    async def feed(self, audio: Audio) -> Sequence[Heard]:
        await asyncio.sleep(0)
        self.stages.add(INFERENCE, 1_000_000)
        news: list[Heard] = []
        step = self._step
        audio = np.concatenate((self._rest, audio))
        whole = len(audio) - len(audio) % step
        self._rest = audio[whole:]
        for value in audio[:whole:step]:
            self._at_s = round(self._at_s + 0.001, 6)
            news += self._millisecond(chr(round(float(value) * 1000)))
        return news

    async def flush(self) -> Sequence[Heard]:
        return self._end()

    async def finish(self) -> Sequence[Heard]:
        return self._end()

    def close(self) -> None:
        self.closed += 1

    def _millisecond(self, character: str) -> list[Heard]:
        if character == "\0":
            self._quiet_s += 0.001
            return self._end() if self._text and self._quiet_s >= self._endpointing_s - 1e-9 else []
        news = []
        if not self._text:
            self._began_s = self._at_s - 0.001
            news.append(Heard("speech_started", self._began_s, self._began_s))
        self._quiet_s = 0.0
        self._text += character
        if character == " ":
            news.append(Heard("partial", self._began_s, self._at_s, self._words()))
        return news

    def _end(self) -> list[Heard]:
        if not self._text:
            return []
        words = self._words()
        self._text, self._quiet_s = "", 0.0
        ended = Heard("speech_ended", self._began_s, words[-1].end_s if words else self._began_s)
        return [ended, Heard("final", self._began_s, self._at_s, words)] if words else [ended]

    def _words(self) -> tuple[Word, ...]:
        words, at_s = [], self._began_s
        for text in self._text.split(" "):
            if text.strip("~"):  # tildes are noise without words
                words.append(Word(text, round(at_s, 6), round(at_s + len(text) / 1000, 6)))
            at_s += (len(text) + 1) / 1000
        return tuple(words)


@dataclass
class FakeRecogniser:
    """Opens listeners, at most ``limit`` at a time."""

    limit: int = 8
    name: str = "recogniser"
    listeners: list[FakeListener] = field(default_factory=list)
    asked: list[tuple[int, bool, int, bool]] = field(default_factory=list)

    def listen(
        self, sample_rate: int, *, interim: bool = True, endpointing_ms: int = 300, single_utterance: bool = False
    ) -> FakeListener:
        if sum(not listener.closed for listener in self.listeners) >= self.limit:
            raise RequestError(503, "full", kind="server_error", code="too_many_streams", retry_after_s=1)
        self.asked.append((sample_rate, interim, endpointing_ms, single_utterance))
        self.listeners.append(FakeListener(endpointing_ms, single=single_utterance, rate=sample_rate))
        return self.listeners[-1]

    async def start(self, startup: Startup) -> None: ...

    async def stop(self) -> None: ...


@dataclass
class FakeSynthesiser:
    """Speaks a piece of audio per character, the character's code as its only sample; '#' can't be said, '!' fails."""

    name: str = "synthesiser"
    n_open: int = 0
    speeds: list[float] = field(default_factory=list)

    async def speak(
        self, text: str, *, sample_rate: int = 24_000, speed: float = 1.0, stages: Stages | None = None
    ) -> AsyncIterator[Audio]:
        if "#" in text:
            raise RequestError(400, "character '#' can't be said", param="input", code="unsayable_character")
        if "!" in text:
            raise RequestError(503, "full", kind="server_error", code="too_many_streams")
        self.speeds.append(speed)
        self.n_open += 1
        try:
            for character in text:
                await asyncio.sleep(0)
                if stages is not None:
                    stages.add(INFERENCE, 2_000_000)
                yield np.full(1, ord(character) / 32768, np.float32)
        finally:
            self.n_open -= 1

    async def start(self, startup: Startup) -> None: ...

    async def stop(self) -> None: ...
