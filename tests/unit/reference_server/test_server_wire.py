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

from plimsoll.reference_server.dialects import ollama
from plimsoll.reference_server.dialects.kserve_http import parse_inputs
from plimsoll.reference_server.dialects.ollama import LineWriter
from plimsoll.reference_server.dialects.openai_audio import parse_speech
from plimsoll.reference_server.dialects.openai_responses import parse_response
from plimsoll.reference_server.dialects.openai_text import (
    ChunkWriter,
    embeddings,
    parse_chat,
    parse_completion,
    parse_embedding,
)
from plimsoll.reference_server.seams.models import Finish
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tokenizer import Bytes

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
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": 7}, "stop"),
        ({"stop": ["x" * 257]}, "stop"),
        ({"priority": 1.5}, "priority"),
        ({"priority": 101}, "priority"),
        ({"priority": -101}, "priority"),
        ({"temperature": 10**400}, "temperature"),
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


HOSTILE = [
    b"",
    b"{",
    b"[]",
    b"\xff",
    b'{"a": "\xff"}',
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'{"a": 1' + b"0" * 5000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    "{}".encode("utf-16"),
    b'{"a": 1}{"b": 2}',
]


@pytest.mark.parametrize("body", HOSTILE)
def test_a_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        Fields.parse(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


NAMES = [
    *(
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
    ),
    *(
        "stream",
        "stream_options",
        "stop",
        "priority",
        "options",
        "instructions",
        "text",
        "format",
        "type",
        "max_tokens",
        "n",
    ),
]
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=20,
)
SANE: dict[str, Any] = {
    "model": "llm",
    "messages": [{"role": "user", "content": "hi"}],
    "prompt": "hi",
    "input": "hi",
    "max_tokens": 4,
    "max_completion_tokens": 4,
    "max_output_tokens": 4,
    "min_tokens": 0,
    "ignore_eos": False,
    "n": 1,
    "best_of": 1,
    "temperature": 0.5,
    "top_p": 0.5,
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "stop": ["x"],
    "priority": 0,
    "plimsoll": {"ttft_ms": 1, "status": 503, "omit_done": True},
    "instructions": "be short",
    "text": {"format": {"type": "text"}},
    "options": {"num_predict": 4, "stop": "x"},
    "voice": "one",
    "response_format": "wav",
    "stream_format": "sse",
    "speed": 1.0,
    "encoding_format": "float",
}
PARSERS = (
    *(
        partial(parse, tokenizer=Bytes())
        for parse in (
            parse_chat,
            parse_completion,
            parse_embedding,
            parse_response,
            ollama.parse_generate,
            ollama.parse_chat,
        )
    ),
    parse_speech,
    parse_inputs,
)


REFUSED_BY = {PARSERS[3]: ("prompt",), parse_speech: ("instructions",)}
"""Fields that one dialect has and another refuses."""


@given(GARBAGE)
def test_garbage_raises_only_the_documented_error(value: Any) -> None:
    if not isinstance(value, dict):
        value = {"messages": value, "prompt": value, "input": value, "inputs": value, "model": "llm"}
    for parse in PARSERS:
        with contextlib.suppress(RequestError):
            parse(Fields(value))


@given(field=st.sampled_from(sorted(SANE)), value=GARBAGE)
def test_one_field_of_any_type_in_a_sane_request_is_read_or_refused_by_name(field: str, value: Any) -> None:
    for parse in PARSERS[:-1]:
        sane = {name: given for name, given in SANE.items() if name not in REFUSED_BY.get(parse, ())}
        parse(Fields(sane))
        refused = refusal_of(parse, {**sane, field: value})
        if refused is not None:
            assert refused.status == 400
            assert (refused.param or "").startswith(
                field
            ) or field == "stream"  # without which stream_options is refused


def refusal_of(parse: Any, values: dict[str, Any]) -> RequestError | None:
    try:
        parse(Fields(values))
    except RequestError as error:
        return error
    return None


def writer(*, chat: bool, usage: bool, continuous: bool = False) -> ChunkWriter:
    options = {"include_usage": usage, "continuous_usage_stats": continuous}
    request = parse_chat(Fields({**CHAT, "stream": True, "stream_options": options}), Bytes())
    return ChunkWriter(request, chat=chat, answer_id="a-1", created_s=7)


def payload(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return dict(json.loads(event[6:]))


@given(text=st.text(), chat=st.booleans(), usage=st.booleans(), continuous=st.booleans())
def test_a_token_frame_is_one_event_with_exactly_the_text(text: str, chat: bool, usage: bool, continuous: bool) -> None:
    frame = payload(writer(chat=chat, usage=usage, continuous=continuous).token(text, 3))
    choice = frame["choices"][0]
    assert (choice["delta"]["content"] if chat else choice["text"]) == text
    assert choice["finish_reason"] is None
    assert ("usage" in frame) == usage
    if usage and continuous:
        assert frame["usage"]["completion_tokens"] == 3
    else:
        assert frame.get("usage") is None


STAGES = Stages({"queue": 1_000_000, "prefill": 20_000_000, "decode": 3_000_000})


def test_the_frames_of_a_chat_have_the_canonical_shape() -> None:
    chunks = writer(chat=True, usage=True)
    *ended, done = chunks.closing(Finish("stop", 5, 16), STAGES, 7)
    role, finish, usage = map(payload, (*chunks.opening(), *ended))
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (finish["choices"][0]["delta"], finish["choices"][0]["finish_reason"]) == ({}, "stop")
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 5
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}
    assert {frame["object"] for frame in (role, finish, usage)} == {"chat.completion.chunk"}
    assert done == b"data: [DONE]\n\n"
    assert not writer(chat=False, usage=True).opening()


@pytest.mark.parametrize("usage", [True, False])
def test_the_last_frame_of_json_has_the_anatomy_and_no_other(usage: bool) -> None:
    chunks = writer(chat=True, usage=usage)
    frames = [payload(frame) for frame in (*chunks.opening(), chunks.token("a", 1))]
    frames += [payload(frame) for frame in chunks.closing(Finish("stop", 1), STAGES, 7)[:-1]]
    assert [frame.get("server_timing") for frame in frames] == [None] * (len(frames) - 1) + [STAGES.server_timing()]
    assert ("usage" in frames[-1]) == usage


def test_an_answer_that_was_stopped_does_not_claim_to_know_what_was_cached() -> None:
    whole = json.loads(writer(chat=True, usage=False).whole("a", Finish("stop", 1, -1), STAGES, 7))
    assert whole["usage"]["completion_tokens"] == 1
    assert "prompt_tokens_details" not in whole["usage"]


@given(text=st.text(), chat=st.booleans())
def test_a_line_of_text_is_one_line_with_exactly_the_text(text: str, chat: bool) -> None:
    request = ollama.parse_generate(Fields({"model": "llm", "prompt": "a"}), Bytes())
    line = LineWriter(request, chat=chat, created_at="2026-01-01T00:00:00Z").token(text, 1)
    assert line.count(b"\n") == 1
    value = json.loads(line)
    assert (value["message"]["content"] if chat else value["response"]) == text
    assert value["done"] is False


def test_the_last_line_counts_tokens_and_nanoseconds() -> None:
    request = ollama.parse_generate(Fields({"model": "llm", "prompt": "abc"}), Bytes())
    assert request.stream
    lines = LineWriter(request, chat=False, created_at="now")
    (last,) = map(json.loads, lines.closing(Finish("length", 5), STAGES, 42_000_000))
    assert (last["done"], last["done_reason"], last["response"]) == (True, "length", "")
    assert (last["prompt_eval_count"], last["eval_count"]) == (4, 5)
    assert (last["prompt_eval_duration"], last["eval_duration"], last["total_duration"]) == (
        20_000_000,
        3_000_000,
        42_000_000,
    )
    assert last["server_timing"] == STAGES.server_timing()


def test_base64_embeddings_are_little_endian_float32() -> None:
    asked = parse_embedding(Fields({"model": "llm", "input": ["a", "bc"], "encoding_format": "base64"}), Bytes())
    n_tokens = sum(map(len, asked.prompts))
    reply = json.loads(embeddings("llm", [[1.0, -0.5], [0.25, 2.0]], as_base64=asked.base64, n_tokens=n_tokens))
    assert struct.unpack("<2f", base64.b64decode(reply["data"][1]["embedding"])) == (0.25, 2.0)
    assert reply["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
