"""Request bodies are checked by field; answers have the exact bytes that clients of the protocol expect."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_server.answers import Finish
from reference_server.errors import RequestError
from reference_server.frontends.http import kserve_wire
from reference_server.frontends.http.fields import Fields
from reference_server.frontends.http.openai_wire import (
    ChunkWriter,
    embeddings,
    parse_chat,
    parse_completion,
    parse_embedding,
)
from reference_server.tokenizer import Bytes

CHAT: dict[str, Any] = {"model": "llm", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [7]}, "messages[0]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": "9"}, "max_completion_tokens"),
        ({"n": 2}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"stop": ["\n"]}, "stop"),
        ({"tools": [{}]}, "tools"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"model": None}, "model"),
        ({"plimsoll": {"tfft_ms": 5}}, "plimsoll.tfft_ms"),
        ({"plimsoll": {"status": 200}}, "plimsoll.status"),
        ({"plimsoll": {"ttft_ms": -1}}, "plimsoll.ttft_ms"),
    ],
)
def test_a_bad_chat_request_is_a_400_that_names_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_chat(Fields({**CHAT, **change}), Bytes())
    assert (caught.value.status, caught.value.param) == (400, field)
    assert field in caught.value.message


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        Fields.parse(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


NAMES = [
    "messages",
    "role",
    "content",
    "model",
    "input",
    "inputs",
    "prompt",
    "shape",
    "data",
    "datatype",
    "name",
    "plimsoll",
    "stream",
    "stream_options",
]
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=20,
)


@given(GARBAGE)
def test_garbage_raises_only_the_documented_error(value: Any) -> None:
    if not isinstance(value, dict):
        value = {"messages": value, "prompt": value, "input": value, "inputs": value, "model": "llm"}
    for parse in (
        *(partial(p, tokenizer=Bytes()) for p in (parse_chat, parse_completion, parse_embedding)),
        kserve_wire.parse_inputs,
    ):
        with contextlib.suppress(RequestError):
            parse(Fields(value))


def writer(*, chat: bool, usage: bool) -> ChunkWriter:
    options = {"stream": True, "stream_options": {"include_usage": usage}}
    request = parse_chat(Fields({**CHAT, **options}), Bytes())
    return ChunkWriter(request, chat=chat, answer_id="a-1", created_s=7)


def payload(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return dict(json.loads(event[6:]))


@given(text=st.text(), chat=st.booleans(), usage=st.booleans())
def test_a_token_frame_is_one_event_with_exactly_the_text(text: str, chat: bool, usage: bool) -> None:
    frame = payload(writer(chat=chat, usage=usage).token(text))
    choice = frame["choices"][0]
    assert (choice["delta"]["content"] if chat else choice["text"]) == text
    assert choice["finish_reason"] is None
    assert ("usage" in frame) == usage
    assert frame.get("usage") is None


def test_the_frames_of_a_chat_have_the_canonical_shape() -> None:
    chunks = writer(chat=True, usage=True)
    role, finish, usage = map(payload, (chunks.role(), chunks.finish("stop"), chunks.usage(Finish("stop", 5, 16))))
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (finish["choices"][0]["delta"], finish["choices"][0]["finish_reason"]) == ({}, "stop")
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}
    assert {frame["object"] for frame in (role, finish, usage)} == {"chat.completion.chunk"}
    assert writer(chat=False, usage=True).role() == b""


def test_base64_embeddings_are_little_endian_float32() -> None:
    asked = parse_embedding(Fields({"model": "llm", "input": ["a", "bc"], "encoding_format": "base64"}), Bytes())
    reply = json.loads(embeddings(asked, [[1.0, -0.5], [0.25, 2.0]]))
    assert struct.unpack("<2f", base64.b64decode(reply["data"][1]["embedding"])) == (0.25, 2.0)
    assert reply["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


def tensor(**change: Any) -> Fields:
    return Fields({"inputs": [{"name": "a", "datatype": "INT8", "shape": [2, 2], "data": [[1, 2], [3, 4]], **change}]})


def test_tensors_are_read_in_row_major_order() -> None:
    (read,) = kserve_wire.parse_inputs(tensor())
    assert (read.data, read.shape) == ([1, 2, 3, 4], (2, 2))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"datatype": "INT7"}, "inputs[0].datatype"),
        ({"shape": [3]}, "inputs[0].data"),
        ({"shape": [-1]}, "inputs[0].shape"),
        ({"data": [1, 2, 3, 128]}, "inputs[0].data"),
        ({"data": [1, 2, 3, True]}, "inputs[0].data"),
        ({"data": None}, "inputs[0].data"),
        ({"name": 3}, "inputs[0].name"),
    ],
)
def test_a_bad_tensor_is_a_400_that_names_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        kserve_wire.parse_inputs(tensor(**change))
    assert (caught.value.status, caught.value.param) == (400, field)
