"""``settle`` of every dialect over HTTP under attack: JSON of the right shape with anything in every place, in any
framing, with any headers and any marks, cut anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._kserve import MAX_DIMENSIONS
from plimsoll.harness.protocols.anthropic import messages_dialect
from plimsoll.harness.protocols.http import HttpDialect
from plimsoll.harness.protocols.kserve import KserveDialect
from plimsoll.harness.protocols.llamacpp import llamacpp_dialect
from plimsoll.harness.protocols.ollama import ollama_dialect
from plimsoll.harness.protocols.openai import EmbeddingDialect, GenerationDialect
from plimsoll.harness.protocols.openai_responses import responses_dialect
from plimsoll.harness.protocols.tfserving import TfServingDialect
from plimsoll.harness.protocols.tgi import tgi_dialect
from plimsoll.harness.protocols.torchserve import TorchServeDialect
from plimsoll.harness.protocols.triton_generate import triton_dialect
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.http.dialect import Dialect
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import finished

KEY = "sk-do-not-show-me"


def target(**options: Any) -> Target:
    return Target("http://127.0.0.1:1", "x", "m", (("authorization", f"Bearer {KEY}"),), options)


HTTP_OPTIONS: dict[str, dict[str, Any]] = {
    "whole": {},
    "odd paths": {"prompt_tokens_path": "usage.prompt_tokens", "output_tokens_path": "$[0].n", "error_path": "$"},
    "sse": {"framing": "sse"},
    "sse with paths": {
        "framing": "sse", "text_path": ["choices[0].delta", "$"], "reasoning_path": "choices.0", "done_path": "$.done",
    },
    "sse until done": {"framing": "sse", "text_path": "choices[0].delta.content", "done": "[DONE]"},
    "typed": {
        "framing": "sse", "text_path": "delta.text if type == content_block_delta", "finish_path": "delta.stop_reason",
    },
    "endless path": {"framing": "ndjson", "text_path": "9" * 5000, "error_path": "error.message", "done": "{"},
    "ndjson": {"framing": "ndjson", "reasoning_path": "choices[-1].text", "success_codes": [200, 429]},
    "counted": {
        "framing": "ndjson", "text_path": "t", "output_tokens_path": "usage.completion_tokens", "done_path": "done",
    },
    "rule": {"success_if": "status == ok and not error.message"},
    "prefixed": {"framing": "length-prefixed", "text_path": "$"},
    "lines": {"framing": "lines", "done": "[DONE]"},
}  # fmt: skip
DIALECTS: dict[str, Dialect] = {
    "chat": GenerationDialect(target(), chat=True),
    "completions": GenerationDialect(target(), chat=False),
    "embeddings": EmbeddingDialect(target()),
    "kserve": KserveDialect(target(outputs=["x", "y"])),
    "responses": responses_dialect(target()),
    "anthropic": messages_dialect(target()),
    "tgi": tgi_dialect(target()),
    "tgi whole": tgi_dialect(target(stream=False)),
    "triton": triton_dialect(target()),
    "llamacpp": llamacpp_dialect(target()),
    "ollama generate": ollama_dialect(target(), chat=False),
    "ollama chat": ollama_dialect(target(stream=False), chat=True),
    "torchserve": TorchServeDialect(target()),
    "torchserve stream": TorchServeDialect(target(stream=True)),
    "tfserving": TfServingDialect(target()),
    **{f"http {name}": HttpDialect(target(**options)) for name, options in HTTP_OPTIONS.items()},
}
each = pytest.mark.parametrize("name", sorted(DIALECTS))

numbers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 1, -1, 2**53, 2**63])
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def shaped(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of these keys, or anything at all."""
    return st.fixed_dictionaries({}, optional=optional) | anything


tensor = shaped(
    name=st.sampled_from(["x", "y", ""]) | anything,
    datatype=st.sampled_from(["FP32", "BYTES"]) | anything,
    shape=st.lists(numbers, max_size=4) | st.just([2**63] * 400) | anything,
    data=st.lists(anything, max_size=3) | anything,
)
delta = shaped(content=anything, refusal=anything, reasoning=anything, tool_calls=anything, function_call=anything)
answers = shaped(
    choices=st.lists(shaped(delta=delta, text=anything, finish_reason=anything, index=anything), max_size=2) | anything,
    usage=shaped(prompt_tokens=anything, completion_tokens=anything),
    data=st.lists(shaped(embedding=anything), max_size=2) | anything,
    outputs=st.lists(tensor, max_size=3) | anything,
    error=shaped(message=anything | st.just(f"bad key {KEY}"), type=anything, code=anything, detail=anything),
    error_type=anything,
    object=st.just("error") | anything,
    done=anything,
)
types = st.sampled_from(
    ["message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta", "message", "ping",
     "error", "response.created", "response.output_text.delta", "response.reasoning_text.delta", "response.failed",
     "response.completed", "response.incomplete", "response.output_item.added"]
)  # fmt: skip
usage = shaped(input_tokens=numbers, output_tokens=numbers, cache_read_input_tokens=anything)
events = shaped(
    type=types | anything,
    sequence_number=numbers | anything,
    delta=shaped(text=anything, thinking=anything, partial_json=anything, stop_reason=anything) | anything,
    content_block=shaped(type=st.sampled_from(["text", "tool_use", "redacted_thinking"]), name=anything, data=anything),
    message=shaped(usage=usage, content=anything, thinking=anything, tool_calls=anything),
    usage=usage,
    response=shaped(status=st.sampled_from(["completed", "failed", "queued"]) | anything, error=anything, usage=usage),
    item=shaped(type=st.just("function_call") | anything, name=anything),
    status=anything | st.just("ok"),
    error=anything | st.just({"message": f"bad key {KEY}"}),
    token=shaped(text=anything, special=anything),
    generated_text=anything,
    details=shaped(generated_tokens=numbers, input_length=numbers),
    text_output=anything,
    content=anything,
    stop=anything,
    timings=shaped(prompt_ms=anything, predicted_ms=anything, predicted_n=numbers),
    tokens_evaluated=anything,
    tokens_predicted=anything,
    response_text=anything,
    done=anything,
    load_duration=anything,
    eval_duration=anything,
    eval_count=anything,
    predictions=anything,
)


def dumped(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a lone surrogate, or a number beyond 64 bits
        return b"{"


#: A value that nobody can print, in the place of one that is usually a word.
deep = st.builds(
    lambda around, depth: around.replace(b"@", b"[" * depth + b"]" * depth),
    st.sampled_from(
        [b"@", b'{"type":@}', b'{"type":"content_block_start","content_block":{"type":@,"name":"f"}}',
         b'{"type":"response.output_item.added","item":{"type":@,"name":"f"}}', b'{"object":"response","status":@}',
         b'{"type":"response.failed","response":{"status":"failed","error":@}}', b'{"delta":{"stop_reason":@}}',
         b'{"type":"error","error":{"message":@}}', b'{"error":@}', b'{"stop":true,"tokens_predicted":@}',
         b'{"status":"ok","error":{"message":@}}', b'{"predictions":@}', b'{"predictions":[NaN],"error":@}']
    ),
    st.integers(1, 1100),
)  # fmt: skip
nested = st.integers(1, 1500).map(lambda n: b'{"error":' * n + b"1" + b"}" * n)
texts = (
    answers.map(dumped)
    | events.map(dumped)
    | deep
    | nested
    | st.binary(max_size=8)
    | st.sampled_from([b"[DONE]", b"", b"NaN", b'{"predictions":[NaN]}', KEY.encode()])
)
#: Most are as a server means them, so that what is said is read; the others are framed in any way.
pieces = st.builds(b"data: %b\n\n".__mod__, texts) | st.builds(
    lambda begin, text, end: begin + text + end,
    st.sampled_from([b"", b"data:", b"event: error\ndata: ", b": ", b"error: ", b"\xef\xbb\xbfdata: ", b"\0\0\0\x02"]),
    texts,
    st.sampled_from([b"", b"\n", b"\n\n", b"\r\n\r\n", b"\r", b"\r\r"]),
)
media = st.sampled_from(["text/event-stream", "application/json", "application/x-ndjson", "text/plain", None])
header_values = st.binary(max_size=8) | st.sampled_from(
    [b"text/event-stream", b"application/json; charset=utf-8", b"application/x-ndjson", b"gzip", b"identity"]
)
header_values |= st.sampled_from(
    [b"", b";", b"3", b"0", b"12", b"-1", b"\xb2", b"9" * 11, b"9" * 5000, b"http://elsewhere/" + KEY.encode()]
)
header_names = st.binary(max_size=4) | st.sampled_from(
    [b"content-type", b"content-encoding", b"location", b"server-timing", b"inference-header-content-length",
     b"x-queue-time", b"x-prompt-tokens", b"x-generated-tokens"]
)  # fmt: skip


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    """What a transport may leave behind: any bytes, headers and code; marks that cover the body or only a part of
    it.
    """
    x = finished(
        draw(st.lists(pieces, max_size=5)),
        draw(st.just(200) | st.sampled_from([200, 400, 429, 503, 529]) | st.integers(-1, 600)),
        draw(media),
    )
    x.headers += draw(st.lists(st.tuples(header_names, header_values), max_size=6))
    ended = st.sampled_from([s for s in Status if s is not Status.UNSENT])
    x.status = int(draw(st.just(Status.OK) | st.sampled_from([Status.OK, Status.PROTOCOL]) | ended))
    x.error = None if x.status == Status.OK else "as the transport said"
    for _ in range(draw(st.integers(0, len(x.mark_end)))):  # bytes that came and left no mark
        x.mark_end.pop()
        x.mark_ns.pop()
    step = draw(st.sampled_from([0, 1, 2**40]))  # all reads at one time, or days apart
    for i in range(len(x.mark_ns)):
        x.mark_ns[i] = i * step
    return x


def state(x: Exchange) -> dict[str, Any]:
    return {name: getattr(x, name) for name in Exchange.__slots__ if hasattr(x, name)}


@each
@given(x=exchanges())
def test_settle_survives_anything_and_says_why_it_failed(name: str, x: Exchange) -> None:
    before, marks = x.status, set(x.mark_ns)
    DIALECTS[name].settle(x)
    if x.status != Status.OK:
        assert x.error
        x.error.encode()  # it goes to a file
        assert KEY not in x.error
        assert len(x.error) < 3000
    # A connection that was reset after an answer had begun may be explained by what the server said in it.
    reset = before == Status.CONNECT and x.code >= 0 and x.status in (Status.HTTP, Status.REFUSED)
    assert x.status == before or before in (Status.OK, Status.PROTOCOL) or reset
    assert before != Status.PROTOCOL or x.status in (Status.PROTOCOL, Status.HTTP, Status.REFUSED)
    chunks = np.array(x.chunk_ns, dtype=np.int64)
    assert x.n_chunks == len(chunks)
    assert set(chunks.tolist()) <= marks
    assert (np.diff(chunks) >= 0).all()
    assert (x.first_token_ns, x.last_token_ns) == ((chunks[0], chunks[-1]) if len(chunks) else (-1, -1))
    assert x.first_answer_ns == -1 or x.first_answer_ns in chunks
    most = 2**54 if name == "anthropic" else 2**53  # its input is a sum of two counts
    assert all(-1 <= count < most for count in (x.n_in, x.n_out))
    assert (x.n_out == -1) is (x.tokens_from == TokensFrom.NONE)
    once = state(x)
    DIALECTS[name].settle(x)
    assert state(x) == once


@each
@given(written=st.lists(pieces, min_size=1, max_size=6), cuts=st.lists(st.integers(1, 400), max_size=6), kind=media)
def test_what_a_stream_says_does_not_depend_on_how_it_was_read(
    name: str, written: list[bytes], cuts: list[int], kind: str | None
) -> None:
    body = b"".join(written)
    if name == "torchserve stream" or not body:
        return  # its chunks are the reads
    ends = sorted({cut for cut in cuts if cut < len(body)} | {len(body)})
    one = finished([body], 200, kind)
    many = finished([body[begin:end] for begin, end in zip([0, *ends], ends, strict=False)], 200, kind)
    for x in (one, many):
        DIALECTS[name].settle(x)
    same = ("status", "error", "n_in", "n_out", "n_chunks", "tokens_from", "server_timing")
    assert [getattr(one, member) for member in same] == [getattr(many, member) for member in same]


@given(st.lists(numbers, min_size=1, max_size=600), st.lists(st.integers(0, 9), max_size=3))
@example([2**63] * 400, [1])
@example([1] * (MAX_DIMENSIONS + 1), [1])
def test_a_tensor_of_any_shape_is_judged_with_a_short_text(shape: list[int], data: list[int]) -> None:
    answer = {"outputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": data}]}
    x = finished([orjson.dumps(answer)], content_type="application/json")
    KserveDialect(target()).settle(x)
    fits = len(shape) <= MAX_DIMENSIONS and min(shape) >= 0 and int(np.prod(shape, dtype=object)) == len(data)
    assert (x.status == Status.OK) is fits
    assert len(x.error or "") < 2000


@pytest.mark.parametrize("body", [b'data: {"error": {"message": " \\n "}}\n\n', b"error:  \n\n"])
def test_an_error_whose_text_is_blank_is_still_explained(body: bytes) -> None:
    x = finished([body])
    DIALECTS["chat"].settle(x)
    assert (x.status, x.error) == (Status.HTTP, "the server reported an error, and its text is empty")
