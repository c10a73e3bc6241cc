"""The vendors' dialects under attack: events of the right shape with anything in every place, in any framing, cut
anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols.anthropic import messages_dialect
from plimsoll.harness.protocols.http import HttpDialect
from plimsoll.harness.protocols.llamacpp import llamacpp_dialect
from plimsoll.harness.protocols.ollama import ollama_dialect
from plimsoll.harness.protocols.openai_responses import responses_dialect
from plimsoll.harness.protocols.tfserving import TfServingDialect
from plimsoll.harness.protocols.tgi import tgi_dialect
from plimsoll.harness.protocols.torchserve import TorchServeDialect
from plimsoll.harness.protocols.triton_generate import triton_dialect
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.http.dialect import Dialect
from plimsoll.slo.records.records import Status
from tests.finished import finished

KEY = "sk-do-not-show-me"


def target(**options: Any) -> Target:
    return Target("http://127.0.0.1:1", "x", "m", (("authorization", f"Bearer {KEY}"),), options)


DIALECTS: dict[str, Dialect] = {
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
    "http typed": HttpDialect(
        target(framing="sse", text_path="delta.text if type == content_block_delta", finish_path="delta.stop_reason")
    ),
    "http rule": HttpDialect(target(success_if="status == ok and not error.message")),
    "http prefixed": HttpDialect(target(framing="length-prefixed", text_path="$")),
    "http lines": HttpDialect(target(framing="lines", done="[DONE]")),
}
NAMES = sorted(DIALECTS)

numbers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 1, -1, 2**53, 2**63])
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def shaped(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=optional) | anything


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
texts = deep | events.map(dumped) | st.sampled_from([b"[DONE]", b"", b"NaN", b'{"predictions":[NaN]}', KEY.encode()])
pieces = st.builds(
    lambda begin, text, end: begin + text + end,
    st.sampled_from([b"data: ", b"data:", b"event: error\ndata: ", b"", b"error: ", b"\0\0\0\x02"]),
    texts,
    st.sampled_from([b"\n\n", b"\n", b"\r\n\r\n", b""]),
)
headers = st.lists(
    st.tuples(
        st.sampled_from([b"x-queue-time", b"x-prompt-tokens", b"x-generated-tokens", b"content-encoding"]),
        st.sampled_from([b"12", b"-1", b"9" * 30, b"\xff", b"identity", b"gzip", b""]),
    ),
    max_size=3,
)
media = st.sampled_from(["text/event-stream", "application/json", "application/x-ndjson", "text/plain", None])
codes = st.sampled_from([200, 200, 200, 200, 400, 429, 500, 503, 529])
outcomes = st.sampled_from([Status.OK, Status.OK, Status.OK, Status.PROTOCOL, Status.TIMEOUT, Status.CANCELLED])


def state(x: Exchange) -> dict[str, Any]:
    return {name: getattr(x, name) for name in Exchange.__slots__ if hasattr(x, name)}


@given(st.sampled_from(NAMES), st.lists(pieces, max_size=8), codes, media, headers, outcomes)
def test_settle_survives_anything_and_says_why_it_failed(
    name: str, reads: list[bytes], code: int, kind: str | None, given_headers: list[tuple[bytes, bytes]], before: Status
) -> None:
    x = finished(reads, code, kind, given_headers, before, None if before == Status.OK else "before")
    DIALECTS[name].settle(x)
    if x.status != Status.OK:
        assert x.error
        x.error.encode()  # it goes to a file
        assert KEY not in x.error
        assert len(x.error) < 3000
    assert x.status == before or before in (Status.OK, Status.PROTOCOL)
    assert before != Status.PROTOCOL or x.status in (Status.PROTOCOL, Status.HTTP, Status.REFUSED)
    assert x.n_chunks == len(x.chunk_ns)
    chunks = np.array(x.chunk_ns, dtype=np.int64)
    assert set(chunks.tolist()) <= set(x.mark_ns)
    assert (np.diff(chunks) >= 0).all()
    assert x.first_answer_ns == -1 or x.first_answer_ns in chunks
    assert all(-1 <= count < 2**54 for count in (x.n_in, x.n_out))
    once = state(x)
    DIALECTS[name].settle(x)
    assert state(x) == once


@given(
    st.sampled_from(NAMES), st.lists(pieces, min_size=1, max_size=6), st.lists(st.integers(1, 400), max_size=6), media
)
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
