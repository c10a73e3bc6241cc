"""``settle`` of every dialect under attack:

JSON of the right shape with anything in every place, any headers, any marks.
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
from plimsoll.harness.protocols.http import HttpDialect
from plimsoll.harness.protocols.kserve import KserveDialect
from plimsoll.harness.protocols.openai import EmbeddingDialect, GenerationDialect
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.http.dialect import Dialect
from plimsoll.slo.records.records import Status
from tests.finished import finished

URL = "http://127.0.0.1:1"
KEY = "sk-do-not-show-me"
HEADERS = (("authorization", f"Bearer {KEY}"),)
HTTP_OPTIONS: list[dict[str, Any]] = [
    {"prompt_tokens_path": "usage.prompt_tokens", "output_tokens_path": "$[0].n", "error_path": "$"},
    {"framing": "sse", "text_path": ["choices[0].delta", "$"], "reasoning_path": "choices.0", "done_path": "$.done"},
    {"framing": "ndjson", "text_path": "9" * 5000, "error_path": "error.message", "done": "{"},
    {"framing": "ndjson", "reasoning_path": "choices[-1].text", "success_codes": [200, 429]},
]
DIALECTS: dict[str, Dialect] = {
    "chat": GenerationDialect(Target(URL, "openai-chat", "m", HEADERS), chat=True),
    "completions": GenerationDialect(Target(URL, "openai-completions", "m", HEADERS), chat=False),
    "embeddings": EmbeddingDialect(Target(URL, "openai-embeddings", "m", HEADERS)),
    "kserve": KserveDialect(Target(URL, "kserve-v2", "m", HEADERS, options={"outputs": ["x", "y"]})),
    **{
        f"http {i}": HttpDialect(Target(URL, "http", "m", HEADERS, options=options))
        for i, options in enumerate(HTTP_OPTIONS)
    },
}

numbers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 1, -1, 2**53, 2**63])
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
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
documents = shaped(
    choices=st.lists(shaped(delta=delta, text=anything, finish_reason=anything, index=anything), max_size=2) | anything,
    usage=shaped(prompt_tokens=anything, completion_tokens=anything),
    data=st.lists(shaped(embedding=anything), max_size=2) | anything,
    outputs=st.lists(tensor, max_size=3) | anything,
    error=shaped(message=anything | st.just(f"bad key {KEY}"), type=anything, code=anything, detail=anything),
    error_type=anything,
    object=st.just("error") | anything,
    done=anything,
)
deep = st.integers(1, 1500).map(lambda n: b'{"error":' * n + b"1" + b"}" * n)
texts = documents.map(orjson.dumps) | deep | st.binary(max_size=8) | st.sampled_from([b"[DONE]", b"", KEY.encode()])
pieces = st.builds(
    lambda begin, text, end: begin + text + end,
    st.sampled_from([b"", b"", b"data: ", b"data:", b"event: error\ndata: ", b": ", b"error: ", b"\xef\xbb\xbfdata: "]),
    texts,
    st.sampled_from([b"", b"\n", b"\n\n", b"\r\n\r\n", b"\r", b"\r\r"]),
)
header_values = st.binary(max_size=8) | st.sampled_from(
    [b"text/event-stream", b"application/json; charset=utf-8", b"application/x-ndjson", b"gzip", b"identity"]
)
header_values |= st.sampled_from(
    [b"", b";", b"3", b"0", b"-1", b"\xb2", b"9" * 11, b"9" * 5000, b"http://elsewhere/" + KEY.encode()]
)
header_names = st.binary(max_size=4) | st.sampled_from(
    [b"content-type", b"content-encoding", b"location", b"server-timing", b"inference-header-content-length"]
)


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    """What a transport may leave behind: any bytes, headers and code; marks that cover the body or only a part of
    it.
    """
    x = finished(draw(st.lists(pieces, max_size=5)), draw(st.integers(-1, 600) | st.just(200)), None)
    x.headers = draw(st.lists(st.tuples(header_names, header_values), max_size=6))
    x.status = int(draw(st.sampled_from([s for s in Status if s is not Status.UNSENT]) | st.just(Status.OK)))
    x.error = None if x.status == Status.OK else "as the transport said"
    for _ in range(draw(st.integers(0, len(x.mark_end)))):  # bytes that came and left no mark
        x.mark_end.pop()
        x.mark_ns.pop()
    step = draw(st.sampled_from([0, 1, 2**40]))  # all reads at one time, or days apart
    for i in range(len(x.mark_ns)):
        x.mark_ns[i] = i * step
    return x


@pytest.mark.parametrize("name", sorted(DIALECTS))
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
    assert x.n_chunks == len(x.chunk_ns)
    chunks = np.array(x.chunk_ns, dtype=np.int64)
    assert set(chunks.tolist()) <= marks
    assert (np.diff(chunks) >= 0).all()
    assert all(-1 <= count < 2**53 for count in (x.n_in, x.n_out))


@given(st.lists(numbers, min_size=1, max_size=600), st.lists(st.integers(0, 9), max_size=3))
@example([2**63] * 400, [1])
@example([1] * (MAX_DIMENSIONS + 1), [1])
def test_a_tensor_of_any_shape_is_judged_with_a_short_text(shape: list[int], data: list[int]) -> None:
    answer = {"outputs": [{"name": "x", "datatype": "FP32", "shape": shape, "data": data}]}
    x = finished([orjson.dumps(answer)], content_type="application/json")
    KserveDialect(Target(URL, "kserve-v2", "m")).settle(x)
    fits = len(shape) <= MAX_DIMENSIONS and min(shape) >= 0 and int(np.prod(shape, dtype=object)) == len(data)
    assert (x.status == Status.OK) is fits
    assert len(x.error or "") < 2000


@pytest.mark.parametrize("body", [b'data: {"error": {"message": " \\n "}}\n\n', b"error:  \n\n"])
def test_an_error_whose_text_is_blank_is_still_explained(body: bytes) -> None:
    x = finished([body])
    DIALECTS["chat"].settle(x)
    assert (x.status, x.error) == (Status.HTTP, "the server reported an error, and its text is empty")
