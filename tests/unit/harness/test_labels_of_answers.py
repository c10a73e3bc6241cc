"""Labels of answers: what headers, trailers and bodies say, of every framing; what is refused before any load."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.generator import labels as module
from plimsoll.harness.generator.labels import Capture, mistakes
from plimsoll.harness.generator.recorder import LabelRows, Recorder
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.run.job import check_file
from plimsoll.harness.secrecy.redaction import learn
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios import spec
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.spec import ScenarioError
from plimsoll.slo.records.records import Records, Status
from tests.finished import finished
from tests.virtual_time import VirtualClock


def said(exchange: Exchange, label: str, framed: str = "") -> Any:
    Capture({"v": label}, framed).after(lambda _: None)(exchange)
    assert exchange.labels is not None
    return exchange.labels["v"]


def stream(*events: Any, end: str = "\n\n") -> bytes:
    return "".join(f"data: {json.dumps(event)}{end}" for event in events).encode() + b"data: [DONE]\n\n"


def test_a_header_is_the_first_of_its_name_and_a_trailer_the_last() -> None:
    headers = [(b"x-by", b"a"), (b"x-by", b"b")]
    assert said(finished([b"{}"], headers=headers), "header X-By") == "a"
    assert said(finished([b"{}"], headers=headers), "trailer x-by") == "b"
    assert said(finished([b"{}"], headers=[(b"x-by", b"")]), "header x-by") is None
    assert said(finished([b"{}"]), "header x-by") is None


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("Bearer abcDEF123456789.-_", "[redacted]"),
        ("by eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln via a", "by [redacted] via a"),
        ("sk-proj-0123456789abcdef", "[redacted]"),
        ("AKIA0123456789ABCDEF", "[redacted]"),
        ("Basic dXNlcjpwYXNzd29yZA==", "[redacted]"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("basic auth backend", "basic auth backend"),
        ("pod-7f9c8b-xk2lp.eu-west-1", "pod-7f9c8b-xk2lp.eu-west-1"),
        ("7c1d7f6e-2b0a-4a55-9d0c-0b1f5c2d3e4f", "7c1d7f6e-2b0a-4a55-9d0c-0b1f5c2d3e4f"),
    ],
)
def test_what_looks_like_a_credential_is_masked_whosever_it_is_and_names_of_backends_are_not(
    value: str, kept: str
) -> None:
    assert said(finished([b"{}"], headers=[(b"x-by", value.encode())]), "header x-by") == kept


@pytest.mark.parametrize(
    ("fallback", "value", "told"),
    [
        ("header x-fallback", "yes", 1), ("header x-fallback", "false", 0), ("header x-fallback", "0", 0),
        ("header x-fallback", None, 0), ("header x-fallback = old", "old", 1), ("header x-fallback = old", "no", 0),
        ("body $.model = small", None, 1), ("body $.model = large", None, 0),
    ],
)  # fmt: skip
def test_an_answer_is_degraded_where_it_says_so_and_a_failure_is_neither(
    fallback: str, value: str | None, told: int
) -> None:
    headers = [(b"x-fallback", value.encode())] if value is not None else []
    capture = Capture({}, degraded=fallback)
    assert capture
    for status, expected in ((Status.OK, {"degraded": told}), (Status.HTTP, {})):
        exchange = finished([b'{"model": "small"}'], headers=headers, content_type="application/json")
        exchange.status = int(status)
        capture.after(lambda _: None)(exchange)
        assert exchange.labels == expected


def test_a_fallback_that_no_answer_can_tell_is_refused() -> None:
    for text, why in (("source tenant", "no data set"), ("cookie x", "names no header")):
        with pytest.raises(ScenarioError, match=why):
            spec.parse({"name": "s", "kind": "server", "degraded": text})


@pytest.mark.parametrize(
    ("value", "text"),
    [("m", "m"), (3, "3"), (1.5, "1.5"), (True, "true"), (None, None), ({"a": 1}, None), ([1], None), ("", None)],
)
def test_a_member_of_a_body_is_its_text(value: Any, text: str | None) -> None:
    body = json.dumps({"a": {"b": [{"c": value}]}}, indent=1).encode()
    assert said(finished([body], content_type="application/json"), "body $.a.b[0].c") == text


@given(st.lists(st.one_of(st.just({}), st.builds(lambda v: {"x": {"model": v}}, st.text(max_size=5))), max_size=6))
def test_of_a_stream_the_last_event_that_has_the_member_tells(events: list[dict[str, Any]]) -> None:
    has = [event["x"]["model"] for event in events if event]
    wanted = " ".join(has[-1].split()) if has and has[-1] else None
    shown = None if wanted is None else "".join(c if c.isprintable() else "?" for c in wanted)
    for body, media in (
        (stream(*events), "text/event-stream"),
        (stream(*events, end="\r\n\r\n"), "text/event-stream"),
        (b"".join(json.dumps(event).encode() + b"\n" for event in events), "application/x-ndjson"),
    ):
        assert said(finished([body], content_type=media), "body x.model") == shown


def test_an_event_of_several_lines_is_read_as_one() -> None:
    body = b'data: {"model":\ndata: "m"}\n\ndata: {"other": 1}\n\n'
    assert said(finished([body]), "body model") == "m"
    assert said(finished([body.replace(b"\n", b"\r")]), "body model") == "m"


def test_a_name_that_servers_may_escape_is_found() -> None:
    body = b'data: {"mod\\u00e9l": "m"}\n\n: a comment\n\ndata: [DONE]\n\n'
    assert said(finished([body]), 'body $["modél"]') == "m"


def test_the_last_message_of_a_live_session_that_has_the_member_tells() -> None:
    exchange = finished([b'{"type": "a", "id": "1"}', b"\x00\xff", b'{"type": "b"}'])
    exchange.session = SessionStamps()
    exchange.session.texts = bytearray([1, 0, 1])
    assert said(exchange, "body id") == "1"
    assert said(exchange, "body type") == "b"


def test_messages_with_a_length_before_them_are_read() -> None:
    messages = [b'{"v": "one"}', b'{"w": 2}']
    body = b"".join(len(one).to_bytes(4, "big") + one for one in messages)
    assert said(finished([body], content_type=None), "body v", "length-prefixed") == "one"


@given(st.binary(max_size=60), st.sampled_from(["", "length-prefixed"]), st.booleans())
def test_no_bytes_make_it_raise(body: bytes, framed: str, live: bool) -> None:
    exchange = finished([body + b'"v"'])
    if live:
        exchange.session = SessionStamps()
        exchange.session.texts = bytearray([1])
    said(exchange, "body v", framed)


def test_an_answer_that_is_too_large_to_be_read_has_no_label_and_stays_a_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = b'{"model": "m", "x": [' + b"{}," * 50 + b"{}]}"
    exchange = finished([body], content_type="application/json", headers=[(b"x", b"y")])
    assert said(exchange, "body model") == "m"
    monkeypatch.setattr(module, "reading", lambda: 1000)
    assert said(exchange, "body model") is None
    assert said(exchange, "header x") == "y"
    assert exchange.status == Status.OK


def test_a_value_is_cut_and_holds_no_secret_and_no_control_character() -> None:
    learn(["sekret-token-of-labels"])
    assert said(finished([], headers=[(b"x", b"a\x1b[2J sekret-token-of-labels" + b"z" * 900)]), "header x") == (
        "a?[2J [redacted]" + "z" * 184
    )


def test_of_too_many_values_the_later_are_not_kept_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VALUES", 3)
    capture = Capture({"v": "header x"})
    read = capture.after(lambda _: None)
    found = []
    for i in [0, 1, 2, 3, 1, 4]:
        exchange = finished([], headers=[(b"x", b"%d" % i)])
        read(exchange)
        found.append((exchange.labels or {})["v"])
    assert found == ["0", "1", "2", None, "1", None]
    assert len(capture.notes()) == 1
    assert capture.notes()[0].startswith("label v of 2 answers was not kept")


def test_what_a_protocol_can_not_say_is_told_with_the_remedy() -> None:
    known = protocols()
    labels = {"a": "header x", "b": "trailer y", "c": "body $.m", "d": "source tenant"}
    assert mistakes(labels, known["openai-chat"]) == mistakes(labels, known["grpc"]) == []
    assert mistakes(labels, known["websocket"]) == [
        "labels.b: answers of websocket have no trailer. Use header or body"
    ]
    assert mistakes(labels, known["kserve-v2-grpc"]) == []
    assert [text.split(":")[0] for text in mistakes(labels, known["null"])] == ["labels.a", "labels.b", "labels.c"]
    (wrong,) = mistakes({"a": "body $.m[*]"}, known["openai-chat"])
    assert wrong.startswith("labels.a: path '$.m[*]': can't read")
    assert "names no member" in mistakes({"a": "body $[0]"}, known["openai-chat"])[0]


def test_every_mistake_of_the_key_is_told_at_once() -> None:
    labels = {
        "Backend": "header x",
        "class": "header y",
        "x": "foo bar",
        "z": "trailer Set-Cookie",
        "v": 3,
        "w": "body",
    }
    with pytest.raises(ScenarioError) as caught:
        spec.parse({"kind": "server", "labels": labels})
    texts = caught.value.errors
    assert {text.split(": ")[0] for text in texts} == {f"scenario:labels.{name}" for name in labels}
    assert len(texts) == len(labels)
    with pytest.raises(ScenarioError, match="has 17 labels"):
        spec.parse({"kind": "server", "labels": {f"l{i}": "header x" for i in range(17)}})


def test_a_scenario_gives_its_labels_back_and_has_no_key_without_them() -> None:
    labels = {"backend": "header x-served-by", "model": "body $.model"}
    made = spec.parse({"kind": "server", "labels": labels})
    assert spec.parse(made.to_mapping()) == made
    assert made.to_mapping()["labels"] == labels
    assert "labels" not in spec.parse({"kind": "server"}).to_mapping()


def test_a_file_names_the_line_of_a_label_that_its_protocol_can_not_have(tmp_path: Any) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: server\ntarget: {protocol: 'null'}\nlabels:\n  a: header x\n", encoding="utf-8")
    with pytest.raises(HarnessFault, match=r"s\.yaml:4: labels\.a: answers of null have no header. Leave the label"):
        check_file(str(path))


OPENAI = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 7}}
DEEPSEEK = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 2}
CHUNK = {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}
WHOLE = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}
CLAUDE = {"input_tokens": 2, "output_tokens": 1, "cache_read_input_tokens": 7}
RESPONSE = {"object": "response", "status": "completed",
            "usage": {"input_tokens": 9, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 7}}}  # fmt: skip
LLAMA = {"content": "a", "stop": True, "stop_type": "eos", "tokens_evaluated": 9, "timings": {"cache_n": 7}}
SAYING: list[tuple[str, list[Any] | dict[str, Any]]] = [
    ("openai-chat", [CHUNK, {"choices": [], "usage": OPENAI}]),
    ("openai-chat", {**WHOLE, "usage": OPENAI}),
    ("openai-chat", [CHUNK, {"choices": [], "usage": DEEPSEEK}]),
    ("openai-completions", {**WHOLE, "usage": {"prompt_tokens": 9, "cached_tokens": 7}}),
    ("openai-responses", RESPONSE),
    ("openai-responses", [{"type": "response.completed", "response": RESPONSE}]),
    ("anthropic-messages", {"type": "message", "content": [{"text": "a"}], "stop_reason": "x", "usage": CLAUDE}),
    ("anthropic-messages", [{"type": "message_start", "message": {"usage": CLAUDE}}, {"type": "message_stop"}]),
    ("llamacpp-completion", LLAMA),
    ("llamacpp-completion", [LLAMA]),
]


def settled(name: str, answer: list[Any] | dict[str, Any]) -> Exchange:
    client = protocols()[name].build(Target("http://h:1", name, "m"), None)
    streamed = isinstance(answer, list)
    body = stream(*answer) if streamed else json.dumps(answer).encode()
    exchange = finished([body], content_type="text/event-stream" if streamed else "application/json")
    exchange.request = client.encode(Payload(prompt="a", max_output_tokens=3))
    client.settle(exchange)
    return exchange


@pytest.mark.parametrize(("name", "answer"), SAYING)
def test_prompt_tokens_from_a_cache_are_a_label_wherever_a_vendor_says_them(name: str, answer: Any) -> None:
    assert settled(name, answer).labels == {"cached_tokens": 7}


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens_details": None}, {"cached_tokens": "7"}, {"cached_tokens": -1}]
)
def test_an_answer_that_does_not_say_has_no_such_label(usage: Any) -> None:
    assert settled("openai-chat", {**WHOLE, "usage": usage}).labels is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "120"}, 120),
        ({"retry-after": " 0 "}, 0),
        ({"retry-after": "Mon, 23 Nov 2026 16:00:09 GMT", "date": "Mon, 23 Nov 2026 16:00:00 GMT"}, 9),
        ({"retry-after": "Mon, 23 Nov 2026 15:00:09 GMT", "date": "Mon, 23 Nov 2026 16:00:00 GMT"}, 0),
        ({"retry-after": "Mon, 23 Nov 2026 16:00:09 GMT"}, None),
        ({"retry-after": "soon", "date": "Mon, 23 Nov 2026 16:00:00 GMT"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "9" * 40}, None),
        ({}, None),
    ],
)
def test_a_refused_request_keeps_how_long_it_was_told_to_wait(headers: dict[str, str], seconds: int | None) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    kept: list[Records] = []
    recorder = Recorder(VirtualClock(), lambda _: None, lambda: 1 << 62, kept.append, 0)
    for status in (Status.REFUSED, Status.HTTP):
        recorder.keep(finished([], code=429, headers=pairs, status=status))
    recorder.flush()
    (rows,) = kept
    if seconds is None:
        assert rows.labels is None
    else:
        assert rows.labels is not None
        assert rows.labels.columns["retry_after"].tolist() == [seconds, -1]


@pytest.mark.parametrize("name", [name for name, spec in protocols().items() if spec.grpc and name != "grpc"])
def test_the_messages_of_every_grpc_protocol_can_be_read_by_a_path(name: str) -> None:
    client: Any = protocols()[name].build(Target("grpc://h:1", name, "m"), None)
    field = client.response.DESCRIPTOR.fields[0].name
    exchange = finished([client.response().SerializeToString(), b"\xff\xff\xff"])
    Capture({"v": f"body {field}.x"}, response=client.response).after(lambda _: None)(exchange)
    assert exchange.labels == {"v": None}


def test_a_path_leads_into_the_last_grpc_message_that_has_the_field() -> None:
    kind: Any = shipped("kserve").message("inference.ModelStreamInferResponse")
    first, last = kind(), kind(error_message="no")
    first.infer_response.model_name = "m"
    first.infer_response.parameters["n"].int64_param = 3
    exchange = finished([one.SerializeToString() for one in (first, last)])
    paths = {"model": "infer_response.model_name", "n": "infer_response.parameters.n.int64_param", "e": "error_message"}
    Capture({label: f"body {path}" for label, path in paths.items()}, response=kind).after(lambda _: None)(exchange)
    assert exchange.labels == {"model": "m", "n": "3", "e": "no"}


def test_rows_of_one_segment_keep_their_labels_whatever_kind_comes_first() -> None:
    rows = LabelRows()
    for row, labels in enumerate([{"n": 3}, {"n": "4", "t": None}, {"n": "x", "t": "a"}, {"t": 5}, {}]):
        rows.add(row, labels)  # type: ignore[arg-type]  # a dict literal of several kinds
    table = rows.to_table(5)
    assert {name: column.tolist() for name, column in table.columns.items()} == {
        "n": [3, 4, -1, -1, -1],
        "t": [-1, -1, 0, 1, -1],
    }
    assert table.texts == {"t": ("a", "5")}
