"""What counts as output, as usage, as an end and as an error in OpenAI-style events."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire.tokens import Fault, fault_of, scan, usage_of


def event(**delta: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).encode()


def finish(reason: str = "stop") -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).encode()


def usage(n_in: Any, n_out: Any, **more: Any) -> bytes:
    block = {"prompt_tokens": n_in, "completion_tokens": n_out}
    return json.dumps({"choices": [], "usage": block, **more}).encode()


CALL = {"index": 0, "id": "call_1", "type": "function"}


@pytest.mark.parametrize(
    ("payload", "is_output", "is_answer"),
    [
        (event(role="assistant", content=""), False, False),
        (event(role="assistant"), False, False),
        (event(content=None), False, False),
        (event(content="hi"), True, True),
        (event(content=" "), True, True),
        (event(reasoning_content="hm"), True, False),
        (event(reasoning="hm"), True, False),
        (event(reasoning="hm", reasoning_content="hm"), True, False),
        (event(reasoning="hm", content="hi"), True, True),
        (event(refusal="no"), True, True),
        (event(tool_calls=[{**CALL, "function": {"name": "", "arguments": ""}}]), False, False),
        (event(tool_calls=[{**CALL, "function": {"name": "f", "arguments": ""}}]), True, True),
        (event(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]), True, True),
        (event(function_call={"arguments": "{"}), True, True),
        (b'{"choices":[],"prompt_filter_results":[{}]}', False, False),
        (b'{"choices":[{"index":0,"text":"hi"}]}', True, True),
        (b'{"choices":[{"index":0,"text":""}]}', False, False),
        (b'{"choices":[{"index":0,"delta":{}},{"index":0,"delta":{"content":"hi"}}]}', True, True),
        (b'{"choices":null}', False, False),
        (b'{"choices":[null,1,{"delta":1}]}', False, False),
        (b"{}", False, False),
        (b"", False, False),
    ],
)
def test_only_generated_text_is_output_and_reasoning_is_no_answer(
    payload: bytes, is_output: bool, is_answer: bool
) -> None:
    seen = scan([event(role="assistant"), payload])
    assert seen.output == ([1] if is_output else [])
    assert seen.first_answer == (1 if is_answer else -1)
    assert seen.bad is None


def test_reasoning_and_reasoning_content_in_one_event_count_once() -> None:
    assert len(scan([event(reasoning="a", reasoning_content="a")] * 3).output) == 3


def test_the_first_answer_comes_after_the_reasoning() -> None:
    seen = scan([event(reasoning="a"), event(reasoning="b"), event(content="c"), event(content="d")])
    assert (seen.output, seen.first_answer) == ([0, 1, 2, 3], 2)


def test_the_last_usage_block_counts_whether_continuous_or_final() -> None:
    assert scan([usage(5, 1), usage(5, 2), finish()]).n_out == 2
    final = scan([event(content="a"), finish(), usage(5, 9), b"[DONE]"])
    assert (final.n_in, final.n_out, final.done, final.finished) == (5, 9, True, True)
    assert scan([usage(5, 3), b'{"choices":[],"usage":null}']).n_out == 3


@pytest.mark.parametrize("wrong", [-1, 1.5, "7", None, True, 1 << 60, [], {}])
def test_a_token_count_that_is_no_count_is_not_taken(wrong: Any) -> None:
    assert usage_of({"prompt_tokens": wrong, "completion_tokens": wrong}) == (-1, -1)


def test_the_end_marker_is_data_that_starts_with_done_and_nothing_after_it_is_read() -> None:
    seen = scan([event(content="a"), b"[DONE] bye", event(content="late"), b"not json"])
    assert (seen.output, seen.done, seen.bad) == ([0], True, None)


def test_a_broken_event_is_pinpointed_and_what_came_before_it_is_kept() -> None:
    seen = scan([event(content="a"), b'{"choices": [', event(content="b")])
    assert seen.output == [0]
    assert seen.bad is not None
    assert seen.bad.startswith("event 2 is not JSON")
    assert scan([b"[1]"]).bad == "event 1 is not a JSON object: '[1]'"


def test_two_broken_events_that_would_make_one_whole_are_still_broken() -> None:
    assert scan([b'{"choices":[{}', b"{}]}"]).bad is not None
    assert scan([b"{},{}"]).bad is not None


def test_invalid_utf8_is_replaced_as_the_event_stream_rules_ask() -> None:
    seen = scan([b'{"choices":[{"delta":{"content":"\xe2\x82"}}]}'])
    assert (seen.output, seen.bad) == ([0], None)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ({"error": {"message": "boom", "type": "server_error", "code": 500}}, Fault("boom (server_error, 500)")),
        ({"error": {"message": "boom", "type": None, "code": None}}, Fault("boom")),
        ({"error": "boom"}, Fault("boom")),
        ({"object": "error", "message": "boom", "type": "X", "code": 400}, Fault("boom (X, 400)")),
        ({"error": "full", "error_type": "overloaded"}, Fault("full (overloaded)", overloaded=True)),
        ({"error": "bad", "error_type": "validation"}, Fault("bad (validation)")),
        ({"error": {"message": "slow down", "code": 429}}, Fault("slow down (429)", overloaded=True)),
        ({"error": {"message": "x", "code": "503"}}, Fault("x (503)", overloaded=True)),
        ({"error": {"message": "The server is overloaded"}}, Fault("The server is overloaded", overloaded=True)),
        ({"error": {"foo": 1}}, Fault('{"foo":1}')),
        ({"error": ["a"]}, Fault('["a"]')),
        ({"error": None}, None),
        ({"error": {}}, None),
        ({"error": ""}, None),
        ({"choices": []}, None),
    ],
)
def test_every_known_form_of_error_report_is_understood(reported: dict[str, Any], expected: Fault | None) -> None:
    assert fault_of(reported) == expected
    assert scan([orjson.dumps(reported)]).fault == expected


def test_an_event_named_error_is_an_error_whatever_it_holds() -> None:
    seen = scan([event(content="a"), b'{"message":"boom"}'], [b"", b"error"])
    assert seen.fault == Fault("boom")
    assert scan([event(content="a")], [b"message"]).fault is None


def test_an_error_before_the_end_marker_wins() -> None:
    seen = scan([event(content="a"), b'{"error":"boom"}', b"[DONE]"])
    assert seen.fault == Fault("boom")
    assert seen.output == [0]


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_a_finish_reason_by_which_the_server_gave_up_is_an_error(reason: str) -> None:
    assert scan([event(content="a"), finish(reason)]).fault is not None
    assert scan([event(content="a"), finish("length")]).fault is None


def test_deeply_nested_values_do_not_break_the_message() -> None:
    nested = b"[" * 400 + b"1" + b"]" * 400
    assert scan([b'{"error":' + nested + b"}"]).fault is not None
    assert scan([nested]).bad is not None


KEYS = [
    "choices", "delta", "content", "text", "usage", "error", "object", "message", "finish_reason",
    "tool_calls", "function", "arguments", "prompt_tokens", "completion_tokens", "type", "code",
]  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "error", "stop"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(values.map(orjson.dumps) | st.binary(max_size=5) | st.just(b"[DONE]"), max_size=6))
def test_scan_never_raises_and_its_indices_point_at_events(payloads: list[bytes]) -> None:
    seen = scan(payloads)
    assert seen.output == sorted(set(seen.output))
    assert all(0 <= i < len(payloads) for i in seen.output)
    assert seen.first_answer == -1 or seen.first_answer in seen.output


@given(values, values)
def test_a_prefix_of_the_events_never_shows_more_output(one: Any, two: Any) -> None:
    whole = [event(content="a"), orjson.dumps(one), orjson.dumps(two)]
    assert scan(whole[:2]).output == [i for i in scan(whole).output if i < 2]
