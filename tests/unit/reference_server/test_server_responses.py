"""The Responses API's events hold together whatever the text; stop texts end an answer exactly there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.dialects.openai_responses import ResponseWriter, parse_response
from plimsoll.reference_server.seams.models import Finish
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.stream import Stopped, StopSink, TextSink
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError, StreamCut
from plimsoll.reference_server.values.tokenizer import Bytes

ASK: dict[str, Any] = {"model": "llm", "input": "hi"}
STAGES = Stages({"queue": 1_000_000})


def written(texts: list[str], reason: str = "stop", **change: Any) -> list[dict[str, Any]]:
    request = parse_response(Fields({**ASK, **change}), Bytes())
    writer = ResponseWriter(request, instructions=None, answer_id="a-1", created_s=7)
    raw = [*writer.opening(), *(writer.token(text, i) for i, text in enumerate(texts))]
    raw += writer.closing(Finish(reason, len(texts), 3), STAGES, 9)
    return [payload(event) for event in raw]


def payload(event: bytes) -> dict[str, Any]:
    assert event.count(b"\n") == 3
    name, data = event.removesuffix(b"\n\n").split(b"\n")
    value = dict(json.loads(data.removeprefix(b"data: ")))
    assert name == b"event: " + value["type"].encode()
    return value


@given(texts=st.lists(st.text()), reason=st.sampled_from(["stop", "length"]))
def test_numbers_have_no_gap_and_the_twins_hold_the_whole_text(texts: list[str], reason: str) -> None:
    events = written(texts, reason)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert deltas == texts
    text_done, part_done, item_done, last = events[-4:]
    assert text_done["text"] == part_done["part"]["text"] == "".join(texts)
    assert last["response"]["output"] == [item_done["item"]]
    assert last["type"] == ("response.incomplete" if reason == "length" else "response.completed")
    assert last["server_timing"] == STAGES.server_timing()
    where = {(e["item_id"], e["output_index"], e["content_index"]) for e in events if "content_index" in e}
    assert len(where) == 1


def test_a_failure_is_the_one_end_of_a_stream() -> None:
    writer = ResponseWriter(parse_response(Fields(ASK), Bytes()), instructions=None, answer_id="a", created_s=7)
    for event in writer.opening():
        payload(event)
    writer.token("so far", 1)
    failed = payload(writer.failure(RequestError(500, "broken", code="stream_failed")))
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 5)
    assert failed["response"]["error"] == {"code": "stream_failed", "message": "broken"}
    assert failed["response"]["output"][0]["content"][0]["text"] == "so far"


def test_the_script_may_leave_out_the_end_and_the_usage() -> None:
    assert written(["a"], plimsoll={"omit_done": True})[-1]["type"] == "response.output_item.done"
    assert written(["a"], plimsoll={"omit_usage": True})[-1]["response"]["usage"] is None


def test_instructions_and_messages_become_one_conversation() -> None:
    said = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
    ]
    asked = parse_response(Fields({"model": "llm", "instructions": "be brief", "input": said}), Bytes())
    assert asked.prompt == Bytes().chat([("system", "be brief"), ("user", "hi"), ("assistant", "yes")])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "function_call_output"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        ({"instructions": 5}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tools": [{}]}, "tools"),
        ({"store": True}, "store"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.type"),
        ({"stream": 1}, "stream"),
    ],
)
def test_a_bad_request_is_a_400_that_names_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_response(Fields({**ASK, **change}), Bytes())
    assert (caught.value.status, caught.value.param) == (400, field)


STOPS = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=4)


@given(pieces=st.lists(st.text(alphabet="abc", max_size=4)), stops=STOPS)
def test_stop_texts_end_an_answer_at_the_first_of_them_however_it_is_cut(pieces: list[str], stops: list[str]) -> None:
    kept = TextSink()
    sink = StopSink(kept, stops)
    stopped = False
    n_fed = 0
    for piece in pieces:
        n_fed += 1
        try:
            sink.token(piece, 1, -1)
        except Stopped:
            stopped = True
            break
    if not stopped:
        sink.flush()
    whole = "".join(pieces)
    # The answer ends with the first token that completes any of the texts, before the earliest that is whole by then.
    seen = "".join(pieces[:n_fed])
    found = [at for at in map(seen.find, stops) if at >= 0]
    assert stopped == bool(found)
    assert not any(stop in "".join(pieces[: n_fed - 1]) for stop in stops)
    assert kept.text == (seen[: min(found)] if stopped else whole)
    assert sink.n_tokens == n_fed


def test_tokens_that_are_held_back_are_counted_when_they_are_passed_on() -> None:
    sink = StopSink(TextSink(cut_at=3), ["abc"])
    for text in ("a", "b", "x"):
        sink.token(text, 1, -1)
    with pytest.raises(StreamCut):
        sink.token("y", 1, -1)
