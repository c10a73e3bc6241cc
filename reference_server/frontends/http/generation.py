"""One generated text over HTTP, streamed or whole, whatever the dialect: a writer says what the bytes are, this file when they go.

An answer's anatomy is complete only at its end, so a stream has it in its last message and a whole answer in its header.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from aiohttp import web

from plimsoll.reference_server.frontends.http.calls import Call
from plimsoll.reference_server.frontends.shared.stream import Stopped, StopSink, TextSink
from plimsoll.reference_server.frontends.shared.text_request import TextRequest
from plimsoll.reference_server.seams.answers import Answer, Ask, Finish, Sink, TextModel
from plimsoll.reference_server.service.accounting import obey
from plimsoll.reference_server.values.errors import RequestError, StreamFailure
from plimsoll.reference_server.values.stages import POSTPROCESS, PREPROCESS, Stages


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


async def generate(call: Call, model: TextModel, asked: TextRequest, writer: Writer) -> web.StreamResponse:
    """Answer a request. Raises RequestError before the first byte."""
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
        sink.event(writer.failure(_in_stream(failure)))
    else:
        ended_ns = time.monotonic_ns()
        _count(call, finish, call.row.before_ns[0] if call.row.before_ns else -1, stages)
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


def _in_stream(failure: StreamFailure | RequestError) -> RequestError:
    if isinstance(failure, RequestError):
        return failure
    return RequestError(failure.status, str(failure), kind="server_error", code=failure.code)


def _count(call: Call, finish: Finish, first_ns: int, stages: Stages) -> None:
    ttft_s = (first_ns - call.row.received_ns) / 1e9 if first_ns >= 0 else -1.0
    call.service.metrics.answer(call.row.model, finish.n_new, ttft_s)
    call.count_stages(stages)
