"""Every kind of answer, as bytes with arrival times: the cases behind the tables of docs/reference/metrics.md.

``exchange(name)`` is what the transport leaves behind for a case; no clock and no socket is involved. The tables say
what each case means, and tests/spine/verdict/test_metric_conformance.py holds the two together.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.recorder import Columns
from plimsoll.harness.protocols.openai import GenerationDialect
from plimsoll.harness.transport.client import Target
from plimsoll.slo.records.records import Phase, Records, Status

_PAGE = (Path(__file__).parent.parent / "docs/reference/metrics.md").read_text(encoding="utf-8")
#: The part of the page that is a specification: its tables are what the tests expect, each cell to the nanosecond.
SPECIFICATION = _PAGE[_PAGE.index("## Every kind of answer") : _PAGE.index("## Percentile")]
MS = 1_000_000
#: When the run began, by the clock that stamps: nothing may depend on it.
T0 = 77_000_000_000
SSE, JSON = "text/event-stream", "application/json"
ROLE: dict[str, Any] = {"role": "assistant", "content": ""}
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Case:
    """``reads``: (ms after t0, bytes of the body). ``status`` and ``error``: what the transport itself found."""

    reads: tuple[tuple[float, bytes], ...] = ()
    code: int = 200
    media: str = SSE
    status: Status = Status.OK
    error: str | None = None
    sent: bool = True
    ready: bool = True
    answered: bool = True
    connect_ms: int = -1


def event(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return event(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
    )


def text(value: str | None, **more: Any) -> bytes:
    return chunk({"content": value}, **more)


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}


def used(tokens: int) -> bytes:
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage(tokens)})


def finish(tokens: int | None = 3, done: bool = True) -> tuple[float, bytes]:
    """What comes at 60: the finish reason, usage and the end."""
    return 60, chunk({}, "stop") + (b"" if tokens is None else used(tokens)) + (DONE if done else b"")


def stream(*reads: tuple[float, bytes], tokens: int | None = 3, done: bool = True) -> Case:
    return Case((*reads, finish(tokens, done)))


A, B, C = (20, text("a")), (30, text("b")), (50, text("c"))


def whole(tokens: int | None, reason: str | None = "stop") -> Case:
    answer: dict[str, Any] = {"choices": [{"index": 0, "message": {"content": "abc"}, "finish_reason": reason}]}
    if tokens is not None:
        answer["usage"] = usage(tokens)
    return Case(((60, json.dumps(answer).encode()),), media=JSON)


def reasoning(value: str) -> bytes:
    return chunk({"reasoning_content": value})


def called(**function: str) -> bytes:
    return chunk({"tool_calls": [{"index": 0, "function": function}]})


def broken(*reads: tuple[float, bytes], status: Status = Status.OK, error: str | None = None) -> Case:
    return Case(reads, status=status, error=error)


ANSWERS: dict[str, Case] = {
    "plain": stream(A, B, C),
    "role_only": stream((12, chunk(ROLE)), A, B, C),
    "empty_chunk": stream((12, text("")), A, (25, text("")), B, C, (55, text(None))),
    "keep_alive": stream((12, b": ping\n\n"), A, B, (40, b": ping\n\n"), C),
    "no_choices": stream((12, event({"choices": [], "prompt_filter_results": [{"prompt_index": 0}]})), A, B, C),
    "several_tokens": stream((20, text("a b")), (50, text("c d")), tokens=4),
    "one_read": stream((50, A[1] + B[1] + C[1])),
    "reasoning_first": stream((20, reasoning("a")), (30, reasoning("b")), C),
    "reasoning_only": stream((20, reasoning("a")), (30, reasoning("b")), (50, reasoning("c"))),
    "tool_call": stream((20, called(name="f")), (30, called(arguments="{")), (50, called(arguments="}"))),
    "refusal": stream(*((at, chunk({"refusal": word})) for at, word in ((20, "I"), (30, "can"), (50, "not")))),
    "usage_says_more": stream(A, B, C, tokens=7),
    "usage_says_none": stream(A, B, C, tokens=0),
    "usage_missing": stream(A, B, C, tokens=None),
    "usage_on_each": stream(
        (20, text("a", usage=usage(1))), (30, text("b", usage=usage(2))), (50, text("c", usage=usage(3))), tokens=None
    ),
    "one_token": stream(A, tokens=1),
    "zero_tokens": stream((12, chunk(ROLE)), tokens=0),
    "one_chunk": stream((20, text("a b c d")), tokens=4),
    "no_done": stream(A, B, C, done=False),
    "not_streamed": whole(3),
    "not_streamed_no_usage": whole(None),
}
FAILURES: dict[str, Case] = {
    "cancelled": broken(A, B, status=Status.CANCELLED, error="given up"),
    "timed_out": broken(A, B, status=Status.TIMEOUT, error="no end within the limit"),
    "timed_out_early": Case(status=Status.TIMEOUT, error="no answer within the limit", answered=False),
    "cut": broken(A, B, status=Status.PROTOCOL, error="connection closed"),
    "cut_cleanly": broken(A, B),
    "error_event": broken(A, B, (60, event({"error": {"message": "boom"}}))),
    "error_overloaded": broken(A, (60, event({"error": "overloaded", "error_type": "overloaded"}))),
    "no_reason": broken(A, B, (60, used(3).replace(b'"completion_tokens": 3', b'"completion_tokens": 2') + DONE)),
    "no_reason_whole": whole(3, None),
    "given_up_whole": whole(3, "abort"),
    "two_choices": broken(A, (30, text("b").replace(b'"index": 0', b'"index": 1')), (60, chunk({}, "stop") + DONE)),
    "given_up": broken(A, B, (60, chunk({}, "error") + DONE)),
    "empty_stream": broken((60, DONE)),
    "not_json": broken(A, (60, b"data: {oops\n\n")),
    "http_error": Case(((60, b'{"error": "x"}'),), code=500, media=JSON),
    "refused": Case(((60, b'{"error": "busy"}'),), code=429, media=JSON),
    "no_connection": Case(status=Status.CONNECT, error="connection refused", sent=False, answered=False),
    "connect_then_error": Case(((60, b"oops"),), code=500, media=JSON, connect_ms=3),
    "unfinished": broken(A, B, status=Status.UNFINISHED, error="still in flight"),
    "unsent": Case(status=Status.UNSENT, error="not sent", sent=False, ready=False, answered=False),
}


def events(*values: Any) -> bytes:
    return b"".join(event(value) for value in values)


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def one(value: Any) -> bytes:
    return json.dumps(value).encode()


@dataclass(frozen=True, slots=True)
class End:
    """How one protocol ends an answer: the bytes of a whole one, and of one that is cut though it is as politely
    ended.
    """

    whole: bytes
    cut: bytes
    media: str = SSE
    options: tuple[tuple[str, Any], ...] = ()


def _chat_like(delta: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    choice = {"index": 0, **delta}
    return {"choices": [choice | {"finish_reason": None}]}, {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    }


_SAID, _STOP = _chat_like({"delta": {"content": "a"}})
_TEXT = {"choices": [{"index": 0, "text": "a", "finish_reason": None}]}
_ANTHROPIC = (
    {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
)
_TOKEN = {"index": 1, "token": {"id": 1, "text": "a", "special": False}, "generated_text": None, "details": None}
_DETAILS = {"finish_reason": "length", "generated_tokens": 1, "input_length": 1}
_MESSAGE = {"type": "message", "content": [{"type": "text", "text": "a"}]}


def _anthropic(reason: str | None) -> bytes:
    return events(*_ANTHROPIC, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"})


def _responses(*last: dict[str, Any]) -> bytes:
    return events({"type": "response.output_text.delta", "delta": "a"}, *last)


def _http(**more: Any) -> tuple[tuple[str, Any], ...]:
    return tuple({"body_text": "x", "finish_path": "end", **more}.items())


_WHOLE = (("stream", False),)
_EVENTS: dict[str, Any] = {"framing": "sse", "text_path": "t", "done": "[DONE]"}
#: protocol -> its answers, whole and cut; several ways of one protocol are told apart by what follows the space.
ENDS: dict[str, End] = {
    "openai-chat": End(events(_SAID, _STOP) + DONE, events(_SAID) + DONE),
    "openai-chat whole": End(
        one({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}),
        one({"choices": [{"message": {"content": "a"}, "finish_reason": None}]}), JSON, _WHOLE,
    ),
    "openai-completions": End(events(_TEXT, _STOP) + DONE, events(_TEXT) + DONE),
    "openai-responses": End(
        _responses({"type": "response.completed", "response": {"status": "completed"}}), _responses() + DONE
    ),
    "openai-responses whole": End(one({"object": "response", "status": "incomplete"}), one({"object": "response",
        "status": "in_progress"}), JSON, _WHOLE),
    "anthropic-messages": End(_anthropic("end_turn"), _anthropic(None)),
    "anthropic-messages whole": End(one({**_MESSAGE, "stop_reason": "end_turn"}), one({**_MESSAGE,
        "stop_reason": None}), JSON, _WHOLE),
    "ollama-chat": End(
        lines({"message": {"content": "a"}, "done": False}, {"done": True, "done_reason": "length"}),
        lines({"message": {"content": "a"}, "done": False}, {"done": True}), "application/x-ndjson",
    ),
    "ollama-generate": End(
        lines({"response": "a", "done": False}, {"done": True, "done_reason": "stop"}),
        lines({"response": "a", "done": False}, {"done": True}), "application/x-ndjson",
    ),
    "tgi-generate": End(
        events(_TOKEN, _TOKEN | {"generated_text": "aa", "details": _DETAILS}),
        events(_TOKEN, _TOKEN | {"generated_text": "aa", "details": {**_DETAILS, "finish_reason": None}}),
    ),
    "tgi-generate whole": End(one({"generated_text": "a", "details": _DETAILS}), one({"generated_text": "a",
        "details": {}}), JSON, _WHOLE),
    "llamacpp-completion": End(
        events({"content": "a", "stop": False}, {"content": "", "stop": True, "stop_type": "limit"}),
        events({"content": "a", "stop": False}, {"content": "", "stop": True, "stop_type": "none"}),
    ),
    "llamacpp-completion older": End(
        events({"content": "a", "stop": False}, {"content": "", "stop": True, "stopped_eos": True,
            "stopped_word": False}),
        events({"content": "a", "stop": False}, {"content": "", "stop": True, "stopped_eos": False,
            "stopped_word": False}),
    ),
    "http": End(events({"t": "a"}, {"end": "stop"}) + DONE, events({"t": "a"}) + DONE, SSE, _http(**_EVENTS)),
    "http whole": End(one({"t": "a", "end": "stop"}), one({"t": "a"}), JSON, _http()),
    "openai-transcriptions": End(
        events({"type": "transcript.text.delta", "delta": "a"}, {"type": "transcript.text.done", "text": "a"}),
        events({"type": "transcript.text.delta", "delta": "a"}) + DONE, SSE, (("stream", True),),
    ),
    "openai-transcriptions chunks": End(events(_SAID, _STOP) + DONE, events(_SAID) + DONE, SSE, (("stream", True),)),
    "triton-generate": End(events({"text_output": "a"}), events({"model_name": "m"})),
}  # fmt: skip


def exchange(case: Case, query_id: int = 0, phase: Phase = Phase.MEASURE) -> Exchange:
    """The case as the transport leaves it: due at t0, taken up at 1 ms, sent at 2 ms, head at 10 ms, over at 60 ms."""

    def at(ms: float) -> int:
        return T0 + round(ms * MS)

    found = Exchange(query_id, 0, 0, T0, None)
    found.phase = int(phase)
    found.status, found.error = int(case.status), case.error
    found.ready_ns = at(1) if case.ready else -1
    found.sent_ns = at(2) if case.sent else -1
    found.done_ns = at(60) if case.ready else -1
    found.connect_ns = case.connect_ms * MS if case.connect_ms >= 0 else -1
    if case.answered:
        found.code = case.code
        found.first_byte_ns = found.headers_ns = at(10)
        found.headers = [(b"content-type", case.media.encode())]
    for ms, data in case.reads:
        found.body += data
        found.mark_ns.append(at(ms))
        found.mark_end.append(len(found.body))
    found.bytes_out, found.bytes_in = 300, 900
    return found


def recorded(*exchanges: Exchange, settle: Callable[[Exchange], None] | None = None) -> Records:
    """Rows of exchanges that the OpenAI dialect took apart, as a segment has them."""
    take_apart = settle or GenerationDialect(Target("http://h:1", "openai-chat", "m"), chat=True).settle
    columns = Columns()
    for one in exchanges:
        if one.ready_ns >= 0:
            take_apart(one)
        columns.append(one)
    return columns.to_records(T0, 0)
