"""Anthropic's Messages API: what is sent, and what its typed events say."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._http.json_stream import JsonDialect
from plimsoll.harness.protocols.anthropic import messages_dialect
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS, finished

KEY = (("Authorization", "Bearer sk-ant-very-secret"),)


def dialect(headers: tuple[tuple[str, str], ...] = KEY, **options: Any) -> JsonDialect:
    return messages_dialect(Target("http://h:1", "anthropic-messages", "m", headers, options))


def body(payload: Payload, **options: Any) -> dict[str, Any]:
    return dict(orjson.loads(dialect(**options).encode(payload).body))


def events(*said: Any) -> list[bytes]:
    return [b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in said]


def settled(reads: list[bytes], code: int = 200, media: str = "text/event-stream", **options: Any) -> Exchange:
    exchange = finished(reads, code, media)
    dialect(**options).settle(exchange)
    return exchange


def delta(**member: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": member}


START = {
    "type": "message_start",
    "message": {
        "usage": {
            "input_tokens": 9, "cache_creation_input_tokens": 100, "cache_read_input_tokens": None, "output_tokens": 1,
        }
    },
}  # fmt: skip
LAST = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 12}}
STOP = {"type": "message_stop"}


def test_a_key_goes_out_as_x_api_key_with_the_version() -> None:
    head = dialect().encode(Payload(prompt="x")).head
    assert head.startswith(b"POST /v1/messages HTTP/1.1\r\n")
    assert b"x-api-key: sk-ant-very-secret\r\n" in head
    assert b"anthropic-version: 2023-06-01\r\n" in head
    assert b"uthorization" not in head
    kept = dialect(auth="bearer", beta=["a", "b"]).encode(Payload(prompt="x")).head
    assert b"authorization: Bearer sk-ant-very-secret\r\n" in kept
    assert b"anthropic-beta: a,b\r\n" in kept
    both = dialect((*KEY, ("X-Api-Key", "other-key"))).encode(Payload(prompt="x")).head
    assert b"x-api-key: other-key\r\n" in both
    assert b"Bearer" in both


def test_a_length_is_always_sent_and_system_messages_have_their_own_field() -> None:
    assert body(Payload(prompt="x"))["max_tokens"] == 1024
    said = ({"role": "system", "content": "s"}, {"role": "user", "content": "u"})
    sent = body(Payload(messages=said, max_output_tokens=3), system="first")
    assert (sent["system"], sent["max_tokens"], sent["stream"]) == ("first\n\ns", 3, True)
    assert sent["messages"] == [{"role": "user", "content": "u"}]
    blocks = ({"role": "system", "content": [{"type": "text", "text": "s"}]}, said[1])
    assert body(Payload(messages=blocks), system="t")["system"] == [
        {"type": "text", "text": "t"},
        {"type": "text", "text": "s"},
    ]


def test_thinking_has_its_budget_beside_the_planned_length_and_no_temperature() -> None:
    sent = body(Payload(prompt="x", max_output_tokens=10), thinking_budget=2000)
    assert (sent["thinking"], sent["max_tokens"]) == ({"type": "enabled", "budget_tokens": 2000}, 2010)
    assert "temperature" not in sent


def test_thinking_is_output_and_text_is_answer_and_counts_are_running_totals() -> None:
    ping = {"type": "ping"}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    signed = delta(type="signature_delta", signature="abc")
    said = [START, ping, block, delta(thinking="h"), signed, delta(text=""), delta(text="a"), LAST, STOP]
    x = settled(events(*said))
    assert (x.status, x.error) == (Status.OK, None)
    assert list(x.chunk_ns) == [4 * MS, 7 * MS]
    assert (x.first_token_ns, x.first_answer_ns) == (4 * MS, 7 * MS)
    assert (x.n_in, x.n_out, x.tokens_from) == (109, 12, TokensFrom.USAGE)


def test_a_tool_call_is_answer_from_its_name_on() -> None:
    tool = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": "f", "input": {}}}
    empty = delta(partial_json="")
    assert list(settled(events(START, tool, empty, delta(partial_json="{"), LAST, STOP)).chunk_ns) == [2 * MS, 4 * MS]


def test_an_overload_is_a_refusal_wherever_it_is_said() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    x = settled(events(START, delta(text="a"), error))
    assert (x.status, x.error, x.n_chunks) == (Status.REFUSED, "Overloaded (overloaded_error)", 1)
    assert settled([orjson.dumps(error)], 529, "application/json").status == Status.REFUSED
    other = {"type": "error", "error": {"type": "api_error", "message": "it broke"}}
    assert settled(events(START, other)).status == Status.HTTP
    assert settled([orjson.dumps(other)], 500, "application/json").status == Status.HTTP


def test_a_stream_without_a_stop_reason_was_cut() -> None:
    x = settled(events(START, delta(text="a")))
    assert (x.status, x.n_chunks, x.n_in) == (Status.PROTOCOL, 1, 109)
    assert "stop_reason" in (x.error or "")
    assert settled(events(START, delta(text="a"), LAST)).status == Status.OK


def test_a_message_in_one_piece_is_counted() -> None:
    whole = {
        "type": "message",
        "content": [{"type": "text", "text": "a"}],
        "stop_reason": "max_tokens",
        "usage": {"input_tokens": 2, "output_tokens": 3},
    }
    x = settled([orjson.dumps(whole)], media="application/json", stream=False)
    assert (x.status, x.n_in, x.n_out, x.n_chunks) == (Status.OK, 2, 3, 0)
    assert settled([b'{"type": "other"}'], media="application/json", stream=False).status == Status.PROTOCOL


def test_a_model_must_be_named() -> None:
    with pytest.raises(HarnessFault, match=r"target\.model"):
        messages_dialect(Target("http://h:1", "anthropic-messages"))


def test_an_echoed_key_is_not_recorded() -> None:
    x = settled([b'{"type":"error","error":{"message":"bad key sk-ant-very-secret"}}'], 401, "application/json")
    assert "very-secret" not in (x.error or "")
