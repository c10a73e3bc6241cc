"""What a Realtime session answers: an echo that a caller can check word for word, or what a text model makes of the conversation.

The session's model says which. ``recogniser`` (the default) answers ``you said`` and the words that it heard; a text model's name has that
model continue the conversation, with its timing and its noise. Words come one by one, brought down to what can be spoken where they
will be.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from plimsoll.reference_server.frontends.websocket.realtime_wire import Item
from plimsoll.reference_server.frontends.websocket.spoken_words import SpokenWords
from plimsoll.reference_server.seams.answers import Ask, Script, TextModel
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError, StreamFailure
from plimsoll.reference_server.values.stages import Stages

DEFAULT_TOKENS = 24
"""Tokens of a text model's answer when nobody says how many."""
NOTHING = "i heard nothing"


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
        """Pass on the last word."""
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
            service.metrics.answer(model.name, finish.n_new, (sink.first_ns - ask.row.received_ns) / 1e9)
        except StreamFailure as failure:
            raise RequestError(failure.status, str(failure), kind="server_error", code=failure.code) from None
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
