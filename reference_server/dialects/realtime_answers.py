"""One response of a Realtime session: its words, their audio, and what both took.

The session's model says which words: ``recogniser`` (the default) echoes ``you said`` and what it heard, so that a
caller can check it word for word; a text model continues the conversation with its timing and its noise. Audio goes as
fast as it is made and read, ahead of its playing, as the real service does.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.reference_server.dialects.realtime_wire import Events, Item, Settings
from plimsoll.reference_server.seams.models import Ask, Script, TextModel
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.speech.speaking import Synthesiser, encoded
from plimsoll.reference_server.speech.tones import sayable
from plimsoll.reference_server.transports.websocket import Peer
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError, StreamFailure

DEFAULT_TOKENS = 24
"""Tokens of a text model's answer when nobody says how many."""
NOTHING = "i heard nothing"
_AUDIO_TOKENS_PER_S = 20
"""Of answers; of what is heard it is half as many."""


class SpokenWords:
    """A text model's tokens as the words that will be heard, each as soon as it is whole."""

    def __init__(self) -> None:
        self._open = ""

    def feed(self, text: str) -> list[str]:
        *whole, self._open = (self._open + text).split(" ")
        return self._said(whole)

    def flush(self) -> list[str]:
        rest, self._open = self._open, ""
        return self._said([rest])

    @staticmethod
    def _said(whole: Sequence[str]) -> list[str]:
        return [word for given in whole for word in sayable(given).split()]


@dataclass(slots=True)
class Cost:
    """What an answer took; complete once all of its words came."""

    stages: Stages = field(default_factory=Stages)
    n_input: int = 0
    """Tokens of the prompt; of an echo, words."""
    n_cached: int = 0
    n_output: int = 0
    cut_short: bool = False
    """It ended because of the limit that the client had set."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer in words."""

    words: AsyncGenerator[str, None]
    cost: Cost
    separator: str = " "
    """What stands between two of the words."""


def echo(conversation: Sequence[Item]) -> Reply:
    """The last thing that the user said, said again."""
    said = next((item.said for item in reversed(conversation) if item.role == "user"), "")
    words = f"you said {said}".split() if said.strip() else NOTHING.split()

    async def one_by_one() -> AsyncGenerator[str, None]:
        for word in words:
            yield word

    return Reply(one_by_one(), Cost(n_input=len(said.split()), n_output=len(words)))


def continued(
    service: Service,
    model: TextModel,
    conversation: Sequence[Item],
    instructions: str,
    limit: int | None,
    *,
    spoken: bool,
) -> Reply:
    """What the model continues the conversation with; the oldest items go first when it is too long.

    Raises RequestError when even the last item is too long, or the model refuses.
    """
    max_new = limit or DEFAULT_TOKENS
    items = list(conversation)
    prompt = _prompt(model, items, instructions)
    while len(prompt) + max_new > model.max_context and len(items) > 1:
        items.pop(0)
        prompt = _prompt(model, items, instructions)
    service.check(model, len(prompt), max_new, Script())
    ask = Ask(prompt, max_new, TruthRow("", model.name, time.monotonic_ns()))
    cost = Cost(ask.stages, n_input=len(prompt))
    return Reply(
        _played(service, model, ask, cost, limited=limit is not None, spoken=spoken), cost, " " if spoken else ""
    )


def _prompt(model: TextModel, items: Sequence[Item], instructions: str) -> list[int]:
    said = [("system", instructions)] if instructions else []
    return model.tokenizer.chat([*said, *((item.role, item.said) for item in items)])


class _WordSink:
    """Tokens into a queue of words."""

    def __init__(self, put: Callable[[str], None], *, spoken: bool) -> None:
        self._put = put
        self._words = SpokenWords() if spoken else None
        self.first_ns = -1

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        """Pass on the words that are whole, or the text as it stands where nobody speaks it."""
        if self.first_ns < 0:
            self.first_ns = time.monotonic_ns()
        for word in [text] if self._words is None else self._words.feed(text):
            self._put(word)

    def end(self) -> None:
        for word in self._words.flush() if self._words is not None else ():
            self._put(word)


async def _played(
    service: Service, model: TextModel, ask: Ask, cost: Cost, *, limited: bool, spoken: bool
) -> AsyncGenerator[str, None]:
    queue: asyncio.Queue[str | None] = asyncio.Queue()
    sink = _WordSink(queue.put_nowait, spoken=spoken)
    answer = model.ask(ask)

    async def play() -> None:
        try:
            await answer.ready()
            finish = await answer.play(sink)
            sink.end()
            cost.n_output, cost.n_cached = finish.n_new, finish.n_cached
            cost.cut_short = limited and finish.reason == "length"
            service.metrics.answer(model.name, ask.row, finish.n_new, sink.first_ns)
        except StreamFailure as failure:
            raise failure.refusal() from None
        finally:
            answer.close()
            queue.put_nowait(None)

    playing = asyncio.create_task(play())
    try:
        while (word := await queue.get()) is not None:
            yield word
        await playing
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


@dataclass(slots=True, eq=False)
class Answering:
    """One response. ``kept`` is false for one outside the conversation."""

    peer: Peer
    events: Events
    settings: Settings
    reply: Reply
    synthesiser: Synthesiser | None
    item: Item
    count: Callable[[Stages], None]
    """Has the stages of the turn counted."""
    previous_item_id: str | None
    n_audio_in: int = 0
    """Tokens of the audio that is answered."""
    heard: Mapping[str, int] = field(default_factory=dict)
    """Nanoseconds of the recogniser's stages for it."""
    metadata: Mapping[str, str] | None = None
    kept: bool = True
    paced: bool = False
    """Audio goes out as it plays, not ahead of it."""
    stopped: str = ""
    """Why it was cancelled: turn_detected or client_cancelled."""
    response_id: str = ""
    over: bool = False
    _said: list[str] = field(default_factory=list)
    _audio_s: float = 0.0
    _spoken: Stages = field(default_factory=Stages)

    def begin(self) -> None:
        """Say that an answer is under way."""
        self.response_id = self.events.new_id("resp")
        self._send("response.created", response=self._shown("in_progress", None))
        self.item.status = "in_progress"
        empty = {**self.item.shown(), "content": []}
        self._send("response.output_item.added", **self._at(content=False), item=empty)
        if self.kept:
            self._send("conversation.item.added", previous_item_id=self.previous_item_id, item=empty)
        self._send("response.content_part.added", **self._at(), part=self._part(""))

    async def run(self) -> None:
        """Answer. Ends with ``response.done``, whatever comes; only what breaks the session is raised."""
        try:
            status, details = await self._answer()
        except asyncio.CancelledError:
            if not self.stopped:
                raise
            self.end_stopped()
        else:
            self._end(status, details)

    def end_stopped(self) -> None:
        """End as cancelled, unless it is over already."""
        if not self.over:
            self._end("cancelled", {"type": "cancelled", "reason": self.stopped})

    async def _answer(self) -> tuple[str, Mapping[str, Any] | None]:
        """Words and audio; how it ended."""
        try:
            await self._words()
            if self.settings.spoken:
                await self._speak()
        except RequestError as error:
            failure = {"type": error.kind, "code": error.code, "message": error.message}
            return "failed", {"type": "failed", "error": failure}
        finally:
            await self.reply.words.aclose()
        if self.reply.cost.cut_short:
            return "incomplete", {"type": "incomplete", "reason": "max_output_tokens"}
        return "completed", None

    @property
    def text(self) -> str:
        return self.reply.separator.join(self._said)

    async def _words(self) -> None:
        kind = "output_audio_transcript" if self.settings.spoken else "output_text"
        async for word in self.reply.words:
            delta = f"{self.reply.separator}{word}" if self._said else word
            self._said.append(word)
            self._send(f"response.{kind}.delta", **self._at(), delta=delta)
            await self.peer.room()

    async def _speak(self) -> None:
        if self.synthesiser is None or not self.text:
            return
        output = self.settings.output
        wanted = output.encoding, output.sample_rate, self.settings.speed
        async with contextlib.aclosing(encoded(self.synthesiser, self.text, *wanted, self._spoken)) as pieces:
            begun_s = time.monotonic()
            async for data in pieces:
                if self.paced:
                    await asyncio.sleep(begun_s + self._audio_s - time.monotonic())
                self._audio_s += len(data) / output.sample_rate / (2 if output.encoding == "linear16" else 1)
                self._send("response.output_audio.delta", **self._at(), delta=base64.b64encode(data).decode())
                await self.peer.room()

    def _end(self, status: str, details: Mapping[str, Any] | None) -> None:
        self.over = True
        text = self.item.said = self.text
        self.item.status = "completed" if status == "completed" else "incomplete"
        if self.settings.spoken:
            self._send("response.output_audio.done", **self._at())
            self._send("response.output_audio_transcript.done", **self._at(), transcript=text)
        else:
            self._send("response.output_text.done", **self._at(), text=text)
        self._send("response.content_part.done", **self._at(), part=self._part(text))
        if self.kept:
            self._send("conversation.item.done", previous_item_id=self.previous_item_id, item=self.item.shown())
        self._send("response.output_item.done", **self._at(content=False), item=self.item.shown())
        stages = self._stages()
        self.count(stages)
        response = self._shown(status, details)
        self._send("response.done", response=response, server_timing=stages.server_timing())

    def _send(self, name: str, **fields: Any) -> None:
        self.peer.send(self.events.event(name, **fields))

    def _at(self, *, content: bool = True) -> dict[str, Any]:
        place: dict[str, Any] = {"response_id": self.response_id, "output_index": 0}
        return place | {"item_id": self.item.item_id, "content_index": 0} if content else place

    def _part(self, text: str) -> dict[str, str]:
        return {"type": "audio", "transcript": text} if self.settings.spoken else {"type": "text", "text": text}

    def _shown(self, status: str, details: Mapping[str, Any] | None) -> dict[str, Any]:
        settings, done = self.settings, status != "in_progress"
        return {
            "object": "realtime.response",
            "id": self.response_id,
            "status": status,
            "status_details": details,
            "output": [self.item.shown()] if done else [],
            "conversation_id": "conv_1" if self.kept else None,
            "output_modalities": ["audio" if settings.spoken else "text"],
            "max_output_tokens": settings.max_output_tokens or "inf",
            "audio": {"output": {"format": settings.output.shown(), "voice": settings.voice}},
            "usage": self._usage() if done else None,
            "metadata": dict(self.metadata) if self.metadata is not None else None,
        }

    def _usage(self) -> dict[str, Any]:
        cost, n_audio_out = self.reply.cost, round(self._audio_s * _AUDIO_TOKENS_PER_S)
        n_in, n_out = cost.n_input + self.n_audio_in, cost.n_output + n_audio_out
        return {
            "total_tokens": n_in + n_out,
            "input_tokens": n_in,
            "output_tokens": n_out,
            "input_token_details": {
                "text_tokens": cost.n_input,
                "audio_tokens": self.n_audio_in,
                "cached_tokens": cost.n_cached,
            },
            "output_token_details": {"text_tokens": cost.n_output, "audio_tokens": n_audio_out},
        }

    def _stages(self) -> Stages:
        """Each stage of the turn as a whole, then the share of each model as a part of it."""
        shares = (
            ("recogniser", self.heard),
            (self.settings.model, self.reply.cost.stages.spans_ns),
            ("synthesiser", self._spoken.spans_ns),
        )
        whole, parts = Stages(), Stages()
        for model, spans in shares:
            for name, ns in spans.items():
                if "." not in name:
                    whole.add(name, ns)
                    parts.add(f"{name}.{model}", ns)
        for name, ns in parts.spans_ns.items():
            whole.add(name, ns)
        return whole


def audio_tokens(seconds: float) -> int:
    """What hearing so much audio counts as."""
    return round(seconds * _AUDIO_TOKENS_PER_S / 2)
