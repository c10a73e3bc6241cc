"""Generated text over HTTP: what all dialects ask of a text model, and when the bytes of a writer go.

What the server can't do is refused by name. Sampling settings are checked, but decoding is greedy whatever they say.
The stages of an answer are complete at its end: a stream has them in its last message, a whole answer in its header.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from plimsoll.reference_server.engine.scheduler import PRIORITIES
from plimsoll.reference_server.seams.models import Answer, Ask, Finish, Script, Sink, TextModel
from plimsoll.reference_server.service.service import Service, obey
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.http_calls import Call, inference
from plimsoll.reference_server.transports.stream import Stopped, StopSink, TextSink
from plimsoll.reference_server.values.durations import POSTPROCESS, PREPROCESS, Stages
from plimsoll.reference_server.values.errors import RequestError, StreamFailure, invalid
from plimsoll.reference_server.values.tokenizer import Tokenizer

MAX_STOPS = 4
_MAX_STOP_LENGTH = 256


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A request for text, checked."""

    model: str
    prompt: list[int]
    max_new: int
    min_new: int = 0
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    """Usage so far in every frame, as vLLM has it."""
    stops: tuple[str, ...] = ()
    priority: int = 0
    script: Script = field(default_factory=Script)


def stops(fields: Fields, name: str = "stop") -> tuple[str, ...]:
    """The texts that end an answer and are not part of it."""
    texts = fields.strings(name)
    if len(texts) > MAX_STOPS:
        raise invalid(name, f"must hold at most {MAX_STOPS} strings")
    if not all(0 < len(text) <= _MAX_STOP_LENGTH for text in texts):
        raise invalid(name, f"must hold strings of 1 to {_MAX_STOP_LENGTH} characters")
    return tuple(texts)


def priority(fields: Fields) -> int:
    """Lower goes first; 0 when it isn't given. Checked for every model, also for one that has no use for it."""
    return fields.integer("priority", 0, low=PRIORITIES[0], high=PRIORITIES[-1])


def text_request(fields: Fields, options: Fields, prompt: list[int], max_new: int, **more: bool) -> TextRequest:
    """What every dialect says in the same words; ``options`` hold its sampling settings. Raises RequestError 400."""
    options.number("temperature", 1.0, low=0.0, high=2.0)
    options.number("top_p", 1.0, low=0.0, high=1.0)
    return TextRequest(
        model=fields.text("model"),
        prompt=prompt,
        max_new=max_new,
        min_new=options.integer("min_tokens", 0, low=0),
        ignore_eos=options.flag("ignore_eos"),
        stops=stops(options),
        priority=priority(options),
        script=fields.script(),
        **more,
    )


def refuse(fields: Fields, names: tuple[str, ...]) -> None:
    """Raise RequestError 400 for the first of the fields that asks for something."""
    for name in names:
        if fields.values.get(name) not in (None, False, [], {}, ""):
            raise invalid(name, "is not supported by this server. Leave it out")


def messages(fields: Fields, name: str = "messages", kinds: tuple[str, ...] = ("text",)) -> list[tuple[str, str]]:
    said = []
    for index, message in enumerate(fields.items(name)):
        where = f"{name}[{index}]"
        if not isinstance(message, dict):
            raise invalid(where, "must be an object")
        role = Fields(message, f"{where}.").text("role")
        said.append((role, _content(message.get("content"), where, kinds)))
    return said


def tokens(value: object, where: str, tokenizer: Tokenizer) -> list[int]:
    if isinstance(value, str):
        return tokenizer.encode(value)
    if isinstance(value, list) and value and all(type(token) is int for token in value):
        if not all(0 <= token < tokenizer.vocabulary for token in value):
            raise invalid(where, f"token ids must lie between 0 and {tokenizer.vocabulary - 1}")
        return tokenizer.begin(value)
    raise invalid(where, "must be a string or a list of token ids")


def _content(content: object, where: str, kinds: tuple[str, ...]) -> str:
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise invalid(f"{where}.content", "must be a string or a list of text parts")
    parts = []
    for index, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") not in kinds or not isinstance(part.get("text"), str):
            raise invalid(f"{where}.content[{index}]", f'must be {{"type": "{kinds[0]}", "text": "..."}}')
        parts.append(part["text"])
    return "".join(parts)


class Writer(Protocol):
    """The bytes of one answer in one dialect. Pure."""

    @property
    def content_type(self) -> str:
        """Of a stream; whole answers are application/json."""

    def opening(self) -> Sequence[bytes]:
        """Messages before the first token."""

    def token(self, text: str, n_new: int) -> bytes:
        """The message for more text; ``n_new`` tokens have come with it."""

    def failure(self, error: RequestError) -> bytes:
        """The last message of a stream that failed."""

    def closing(self, finish: Finish, stages: Stages, elapsed_ns: int) -> Sequence[bytes]:
        """Messages after the last token."""

    def whole(self, text: str, finish: Finish, stages: Stages, elapsed_ns: int) -> bytes:
        """The answer in one piece."""


def answering(
    service: Service,
    parse: Callable[[Fields, Tokenizer], TextRequest],
    writer: Callable[[Call, Fields, TextRequest], Writer],
    *,
    any_type: bool = False,
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The route of a dialect: how it reads a body, of JSON's or ``any_type``, and who writes its answer."""

    async def respond(call: Call) -> web.StreamResponse:
        fields = call.fields(any_type=any_type)
        model = service.model(fields.text("model"))
        call.row.model = model.name
        asked = parse(fields, model.tokenizer)
        return await _generate(call, model, asked, writer(call, fields, asked))

    return inference(service, respond)


async def _generate(call: Call, model: TextModel, asked: TextRequest, writer: Writer) -> web.StreamResponse:
    row = call.row
    obey(asked.script)
    call.service.check(model, len(asked.prompt), asked.max_new, asked.script)
    ask = Ask(
        asked.prompt,
        asked.max_new,
        row,
        min_new=asked.min_new,
        ignore_eos=asked.ignore_eos,
        script=asked.script,
        priority=asked.priority,
        deadline_ns=call.deadline_ns,
    )
    ask.stages.add(PREPROCESS, time.monotonic_ns() - row.received_ns)
    answer = model.ask(ask)
    try:
        async with call.deadline():
            await answer.ready()
        if asked.stream:
            return await _stream(call, asked, answer, writer, ask.stages)
        return await _whole(call, asked, answer, writer, ask.stages)
    finally:
        answer.close()


async def _whole(call: Call, asked: TextRequest, answer: Answer, writer: Writer, stages: Stages) -> web.StreamResponse:
    error_at, cut_at = call.account.limits(asked.script)
    sink = TextSink(error_at=error_at, cut_at=cut_at)
    async with call.deadline():
        finish = await _play(answer, asked, sink)
    ended_ns = time.monotonic_ns()
    body = writer.whole(sink.text, finish, stages, ended_ns - call.row.received_ns)
    stages.add(POSTPROCESS, time.monotonic_ns() - ended_ns)
    _count(call, finish, sink.first_ns, stages)
    return await call.reply(body, server_timing=stages.server_timing())


async def _stream(call: Call, asked: TextRequest, answer: Answer, writer: Writer, stages: Stages) -> web.StreamResponse:
    response = await call.begin(writer.content_type, stages)

    def render(text: str) -> bytes:
        return writer.token(text, sink.n_tokens)

    sink = call.sink(render, call.account.limits(asked.script))
    for message in writer.opening():
        sink.event(message)
    try:
        async with call.deadline():
            finish = await _play(answer, asked, sink)
    except (StreamFailure, RequestError) as failure:
        call.failed = True
        sink.event(writer.failure(failure.refusal() if isinstance(failure, StreamFailure) else failure))
    else:
        ended_ns = time.monotonic_ns()
        _count(call, finish, call.row.first_token_ns, stages)
        stages.add(POSTPROCESS, time.monotonic_ns() - ended_ns)
        for message in writer.closing(finish, stages, ended_ns - call.row.received_ns):
            sink.event(message)
    await response.write_eof()
    return response


async def _play(answer: Answer, asked: TextRequest, sink: Sink) -> Finish:
    if not asked.stops:
        return await answer.play(sink)
    stops = StopSink(sink, asked.stops)
    try:
        finish = await answer.play(stops)
    except Stopped:
        return Finish("stop", stops.n_tokens, -1)
    stops.flush()
    return finish


def _count(call: Call, finish: Finish, first_ns: int, stages: Stages) -> None:
    call.service.metrics.answer(call.row.model, call.row, finish.n_new, first_ns)
    call.count_stages(stages)
