"""Where each protocol has the answer, for accuracy runs: in its streams and in its whole answers, and reasoning
nowhere.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.outputs import read_answer
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport import outcome
from plimsoll.harness.wire import pointer
from plimsoll.harness.wire.tokens import Fault
from plimsoll.slo.records.records import Status
from tests.finished import finished

EVENTS, LINES, JSON = "text/event-stream", "application/x-ndjson", "application/json"


def sse(*said: Any) -> bytes:
    return b"".join(b"data: " + orjson.dumps(value) + b"\n\n" for value in said)


def lines(*said: Any) -> bytes:
    return b"".join(orjson.dumps(value) + b"\n" for value in said)


def delta(**members: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "delta": members}


CASES: dict[str, tuple[tuple[bytes, str], ...]] = {
    "openai-responses": (
        (
            sse(
                {"type": "response.reasoning_text.delta", "delta": "hm"},
                {"type": "response.output_text.delta", "delta": "Pa"},
                {"type": "response.output_text.delta", "delta": "ris"},
                {"type": "response.output_text.done", "text": "Paris"},
                {"type": "response.completed", "response": {"output": [{"content": [{"text": "Paris"}]}]}},
            ),
            EVENTS,
        ),
        (orjson.dumps({"output": [{"type": "reasoning"}, {"content": [{"text": "Paris"}]}]}), JSON),
    ),
    "anthropic-messages": (
        (sse(delta(thinking="hm"), delta(text="Pa"), delta(text="ris"), {"type": "message_stop"}), EVENTS),
        (orjson.dumps({"content": [{"thinking": "hm"}, {"type": "text", "text": "Paris"}]}), JSON),
    ),
    "tgi-generate": (
        (
            sse(
                {"token": {"text": "Pa", "special": False}, "generated_text": None},
                {"token": {"text": "ris", "special": False}, "generated_text": None},
                {"token": {"text": "</s>", "special": True}, "generated_text": "Paris"},
            ),
            EVENTS,
        ),
        (orjson.dumps({"generated_text": "Paris"}), JSON),
    ),
    "triton-generate": (
        (sse({"text_output": "Pa"}, {"text_output": "ris"}), EVENTS),
        (orjson.dumps({"model_name": "m", "text_output": "Paris"}), JSON),
    ),
    "llamacpp-completion": (
        (sse({"content": "Pa"}, {"content": "ris"}, {"content": "", "stop": True}), EVENTS),
        (orjson.dumps({"content": "Paris", "stop": True}), JSON),
    ),
    "ollama-generate": (
        (lines({"response": "", "thinking": "hm"}, {"response": "Pa"}, {"response": "ris", "done": True}), LINES),
        (orjson.dumps({"response": "Paris", "done": True}), JSON),
    ),
    "ollama-chat": (
        (lines({"message": {"content": "Pa", "thinking": "hm"}}, {"message": {"content": "ris"}}), LINES),
        (orjson.dumps({"message": {"content": "Paris"}}), JSON),
    ),
    "torchserve": ((b"Paris", "text/plain"),),
}  # fmt: skip


@pytest.mark.parametrize("protocol", CASES)
def test_the_text_of_a_protocols_answers_is_found(protocol: str) -> None:
    paths = tuple(pointer.parse_selector(text) for text in protocols()[protocol].answers)
    for body, media in CASES[protocol]:
        answer = read_answer(finished([body], 200, media), paths)
        assert answer is not None
        assert answer.text == "Paris"


def test_predictions_are_numbers_with_a_shape() -> None:
    paths = tuple(pointer.parse_selector(text) for text in protocols()["tfserving"].answers)
    for name in ("predictions", "outputs"):
        answer = read_answer(finished([orjson.dumps({name: [[1, 2.5], [3, 4]]})], 200, JSON), paths)
        assert answer is not None
        assert answer.numbers is not None
        assert (answer.numbers.tolist(), answer.shape) == ([1, 2.5, 3, 4], (2, 2))


def test_the_framing_of_the_template_is_believed_more_than_the_media_type() -> None:
    path = (pointer.parse_selector("t if @event == d"),)
    body = b'event: d\ndata: {"t": "Pa"}\n\nevent: e\ndata: {"t": "no"}\n\nevent: d\ndata: {"t": "ris"}\n\n'
    for media in (EVENTS, JSON):
        answer = read_answer(finished([body], 200, media), path, framed="sse")
        assert answer is not None
        assert answer.text == "Paris"
    prefixed = b"".join(len(text).to_bytes(4, "little") + text for text in (b'{"t": "Pa"}', b'{"t": "ris"}'))
    answer = read_answer(
        finished([prefixed], 200, JSON), (pointer.parse_selector("t"),), framed="length-prefixed", byte_order="little"
    )
    assert answer is not None
    assert answer.text == "Paris"


def test_a_servers_own_report_of_an_error_holds_nothing_that_steers_a_terminal() -> None:
    exchange = Exchange(0, 0, 0, 0, None)
    exchange.status = int(Status.OK)
    outcome.fail_by(exchange, Fault("boom \x1b[31m \x9b1m\u202e\u200b\x7f end"))
    assert exchange.error == "boom ?[31m ?1m??? end"
