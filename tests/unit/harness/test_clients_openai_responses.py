"""The Responses API: what is sent, and what its typed events say."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import problems
from plimsoll.harness.protocols.openai_responses import ResponsesOptions, responses_dialect
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS, finished

USAGE = {"input_tokens": 7, "output_tokens": 3, "output_tokens_details": {"reasoning_tokens": 1}}


def body(payload: Payload, model: str = "m", **options: Any) -> dict[str, Any]:
    sent = responses_dialect(Target("http://h:1", "openai-responses", model, (), options)).encode(payload).body
    return dict(orjson.loads(sent))


def events(*said: tuple[str, dict[str, Any]], first: int = 0) -> list[bytes]:
    return [
        b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, "sequence_number": first + i, **rest}))
        for i, (kind, rest) in enumerate(said)
    ]


def settled(reads: list[bytes], media: str = "text/event-stream", **options: Any) -> Exchange:
    exchange = finished(reads, 200, media)
    responses_dialect(Target("http://h:1", "openai-responses", "m", (), options)).settle(exchange)
    return exchange


def text(value: str) -> tuple[str, dict[str, Any]]:
    return "response.output_text.delta", {"delta": value}


def ended(status: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return f"response.{status}", {"response": {"status": status, "error": None, "usage": USAGE, **more}}


OPENING = ("response.created", {"response": {"status": "in_progress", "error": None}})


def test_a_prompt_and_messages_become_input() -> None:
    assert body(Payload(prompt="hi", max_output_tokens=5), instructions="be brief") == {
        "model": "m", "input": "hi", "instructions": "be brief", "temperature": 0.0, "max_output_tokens": 5,
        "stream": True,
    }  # fmt: skip
    said = (
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    )
    parts = [message["content"] for message in body(Payload(messages=said))["input"]]
    assert parts[0] == [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}]
    assert parts[1] == [{"type": "output_text", "text": "b"}]


def test_the_exact_length_and_plain_events_are_asked_for_only_on_request() -> None:
    wanted = body(Payload(prompt="x", max_output_tokens=5), exact_output=True, obfuscation=False, temperature=None)
    assert (wanted["min_tokens"], wanted["ignore_eos"]) == (5, True)
    assert wanted["stream_options"] == {"include_obfuscation": False}
    assert "temperature" not in wanted
    assert body(Payload(prompt="x"), stream=False)["stream"] is False  # not left out: some servers stream unless told


def test_reasoning_is_output_and_text_is_answer() -> None:
    thought = ("response.reasoning_summary_text.delta", {"delta": "hm"})
    x = settled(events(OPENING, thought, text(""), text("a"), text("b"), ended("completed")))
    assert (x.status, x.error) == (Status.OK, None)
    assert list(x.chunk_ns) == [2 * MS, 4 * MS, 5 * MS]
    assert (x.first_token_ns, x.first_answer_ns) == (2 * MS, 4 * MS)
    assert (x.n_in, x.n_out, x.tokens_from) == (7, 3, TokensFrom.USAGE)


def test_a_function_call_is_answer_from_its_name_on() -> None:
    call = ("response.output_item.added", {"item": {"type": "function_call", "name": "f"}})
    message = ("response.output_item.added", {"item": {"type": "message"}})
    x = settled(events(message, call, ("response.function_call_arguments.delta", {"delta": "{"}), ended("completed")))
    assert list(x.chunk_ns) == [2 * MS, 3 * MS]


def test_an_incomplete_response_is_an_answer_and_a_failed_one_is_not() -> None:
    assert settled(events(text("a"), ended("incomplete"))).status == Status.OK
    failed = settled(events(text("a"), ended("failed", error={"code": "server_error", "message": "it broke"})))
    assert (failed.status, failed.error, failed.n_chunks) == (Status.HTTP, "it broke (server_error)", 1)
    shed = settled(events(ended("failed", error={"code": "rate_limit_exceeded", "message": "slow down"})))
    assert shed.status == Status.REFUSED
    assert settled(events(text("a"), ended("cancelled"))).status == Status.HTTP


def test_an_error_event_is_a_failure() -> None:
    x = settled(events(text("a"), ("error", {"code": "boom", "message": "it broke", "param": None})))
    assert x.status == Status.HTTP
    assert "it broke" in (x.error or "")


def test_a_gap_in_the_numbers_is_a_lost_event() -> None:
    reads = events(OPENING, text("a"), text("b"), ended("completed"))
    x = settled([reads[0], reads[1], reads[3]])
    assert (x.status, x.error) == (Status.PROTOCOL, "an event was lost: sequence_number goes from 1 to 3")
    assert settled([reads[0], reads[1], reads[3]], check_sequence=False).status == Status.OK
    assert settled(events(text("a"), ended("completed"), first=1)).status == Status.OK
    unnumbered = [b'data: {"type":"response.output_text.delta","delta":"a"}\n\n', *reads[3:]]
    assert settled(unnumbered).status == Status.OK


def test_a_stream_without_its_last_event_was_cut_marker_or_not() -> None:
    for rest in ([], [b"data: [DONE]\n\n"]):
        x = settled([*events(OPENING, text("a")), *rest])
        assert x.n_chunks == 1
        if not rest:
            assert x.status == Status.PROTOCOL
            assert "stream cut after 1 chunks" in (x.error or "")


def test_what_follows_the_last_event_is_not_read() -> None:
    assert settled([*events(text("a"), ended("completed")), b"data: [DONE]\n\n"]).status == Status.OK


def test_a_response_in_one_piece_has_usage_and_a_status() -> None:
    def whole(**members: Any) -> Exchange:
        given = {"object": "response", "status": "completed", "error": None, "output": [], "usage": USAGE, **members}
        return settled([orjson.dumps(given)], "application/json", stream=False)

    x = whole()
    assert (x.status, x.n_in, x.n_out, x.n_chunks, x.tokens_from) == (Status.OK, 7, 3, 0, TokensFrom.USAGE)
    assert whole(status="failed", error={"message": "no"}).status == Status.HTTP
    assert whole(status="in_progress").status == Status.PROTOCOL
    assert settled([b"{}"], "application/json", stream=False).status == Status.PROTOCOL


@pytest.mark.parametrize("name", ["stream", "input", "model"])
def test_extra_body_may_not_set_what_the_run_decides(name: str) -> None:
    assert f"may not set {name}" in problems(ResponsesOptions, {"extra_body": {name: 1}})[0]
