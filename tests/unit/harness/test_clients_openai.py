"""The OpenAI dialect: what is sent, and what a finished response is taken for."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletionChunk

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.protocols.openai import EmbeddingDialect, GenerationDialect
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS, finished

ROLE = {"role": "assistant", "content": ""}


def chat(url: str = "http://h:1", headers: tuple[tuple[str, str], ...] = (), **options: Any) -> GenerationDialect:
    return GenerationDialect(Target(url, "openai-chat", "m", headers, options), chat=True)


def sse(*payloads: Any) -> list[bytes]:
    texts = [p if isinstance(p, str) else json.dumps(p) for p in payloads]
    return [f"data: {text}\n\n".encode() for text in texts]


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    value = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
        **more,
    }
    ChatCompletionChunk.model_validate(value)  # the vendor's own client would read what we feed ourselves
    return value


USAGE = {**chunk({}), "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}}


def settled(exchange: Exchange, dialect: GenerationDialect | None = None) -> Exchange:
    (dialect or chat()).settle(exchange)
    return exchange


# -- what is sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h:1", "/v1/chat/completions"),
        ("h:1", "/v1/chat/completions"),
        ("http://h:1/", "/v1/chat/completions"),
        ("http://h:1/v1", "/v1/chat/completions"),
        ("http://h:1/v1/", "/v1/chat/completions"),
        ("http://h:1/gateway", "/gateway/v1/chat/completions"),
        ("http://h:1/api/v3", "/api/v3/chat/completions"),
        ("http://h:1/v1/chat/completions", "/v1/chat/completions"),
        ("http://h:1/v1?api-version=2", "/v1/chat/completions?api-version=2"),
    ],
)
def test_every_way_to_write_the_base_url_reaches_the_same_endpoint(url: str, path: str) -> None:
    head = chat(url).encode(Payload(prompt="hi")).head
    assert head.startswith(f"POST {path} HTTP/1.1\r\n".encode())


def test_the_default_body_holds_only_what_openai_itself_accepts() -> None:
    body = orjson.loads(chat().encode(Payload(prompt="hi", max_output_tokens=9)).body)
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "max_tokens": 9,
    }


def test_exact_output_asks_for_exactly_the_planned_length() -> None:
    body = orjson.loads(chat(exact_output=True).encode(Payload(prompt="hi", max_output_tokens=9)).body)
    assert (body["ignore_eos"], body["min_tokens"], body["max_tokens"]) == (True, 9, 9)


def test_options_change_the_body() -> None:
    dialect = chat(
        stream=False,
        temperature=None,
        max_tokens_field="max_completion_tokens",
        extra_body={"top_p": 0.5, "stream_options": {"a": 1}},
    )
    request = dialect.encode(Payload(messages=({"role": "system", "content": "s"},), max_output_tokens=3))
    body = orjson.loads(request.body)
    assert body["messages"] == [{"role": "system", "content": "s"}]
    assert body["max_completion_tokens"] == 3
    assert body["top_p"] == 0.5
    assert not body.keys() & {"stream", "temperature", "max_tokens"}
    assert b"accept: application/json\r\n" in request.head


def test_extra_stream_options_are_merged_not_replaced() -> None:
    dialect = chat(extra_body={"stream_options": {"continuous_usage_stats": True}})
    body = orjson.loads(dialect.encode(Payload(prompt="hi")).body)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_completions_carry_the_prompt_itself() -> None:
    dialect = GenerationDialect(Target("http://h:1/v1", "openai-completions", "m"), chat=False)
    request = dialect.encode(Payload(prompt="once", n_in=1))
    assert orjson.loads(request.body)["prompt"] == "once"
    assert request.head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert request.n_in == 1
    with pytest.raises(HarnessFault, match="no prompt"):
        dialect.encode(Payload(messages=()))


def test_the_chat_url_is_not_mistaken_for_the_completions_endpoint() -> None:
    with pytest.raises(HarnessFault, match="openai-chat"):
        GenerationDialect(Target("http://h:1/v1/chat/completions", "openai-completions"), chat=False)


def test_a_payload_without_text_is_refused_before_the_run() -> None:
    with pytest.raises(HarnessFault, match="neither messages nor a prompt"):
        chat().encode(Payload(data={"inputs": []}))


def test_a_users_header_replaces_the_default_of_the_same_name() -> None:
    head = chat(headers=(("User-Agent", "me"), ("Authorization", "Bearer k"))).encode(Payload(prompt="x")).head
    assert head.count(b"user-agent: ") == 1
    assert b"user-agent: me\r\nauthorization: Bearer k\r\n" in head


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\0b", "\u20ac"])
def test_a_header_value_that_would_break_the_request_is_refused(value: str) -> None:
    with pytest.raises(HarnessFault, match="line end or a character"):
        chat(headers=(("x-a", value),))


@pytest.mark.parametrize("name", ["Host", "content-length", "X-Request-Id", "transfer-encoding"])
def test_headers_that_the_transport_writes_are_refused(name: str) -> None:
    with pytest.raises(HarnessFault, match="written by the transport"):
        chat(headers=((name, "1"),))


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-completions", "openai-responses", "llamacpp-completion"])
def test_a_row_keeps_how_many_tokens_were_asked_for_exactly(protocol: str) -> None:
    for options, asked in (({"exact_output": True}, 9), ({}, -1)):
        client = protocols()[protocol].build(Target("http://h:1", protocol, "m", options=options), None)
        x = finished([b"{}"], 500)
        x.request = client.encode(Payload(prompt="hi", max_output_tokens=9))
        client.settle(x)
        assert x.n_asked == asked


# -- a stream that succeeded -----------------------------------------------------------------------------


def test_a_good_stream_gives_times_tokens_and_success() -> None:
    reads = sse(chunk(ROLE), chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop"), USAGE, "[DONE]")
    x = settled(finished(reads, headers=[(b"server-timing", b"queue;dur=2"), (b"server-timing", b"run;dur=3")]))
    assert (x.status, x.error) == (Status.OK, None)
    assert list(x.chunk_ns) == [2 * MS, 3 * MS]
    assert (x.first_token_ns, x.first_answer_ns, x.last_token_ns, x.n_chunks) == (2 * MS, 2 * MS, 3 * MS, 2)
    assert (x.n_in, x.n_out, x.tokens_from) == (11, 5, TokensFrom.USAGE)
    assert x.server_timing == "queue;dur=2, run;dur=3"


VLLM = {"queue_time_ms": 1.25, "time_to_first_token_ms": 30, "generation_time_ms": 9.5, "mean_itl_ms": 2}
LLAMA = {"prompt_n": 3, "prompt_ms": 30, "predicted_ms": 9.5, "predicted_per_second": 1e9}


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ({**USAGE, "metrics": VLLM}, "queue;dur=1.250, prefill;dur=30.000, decode;dur=9.500"),
        ({**USAGE, "timings": LLAMA}, "prefill;dur=30.000, decode;dur=9.500"),
        ({**USAGE, "metrics": {"queue_time_ms": None, "generation_time_ms": -1}}, "header;dur=1"),
        ({**USAGE, "metrics": [1], "timings": 7}, "header;dur=1"),
        ({**USAGE, "metrics": VLLM, "server_timing": "a;dur=1"}, "a;dur=1"),
    ],
)
def test_what_servers_say_of_a_request_in_their_own_words_is_its_stages(last: dict[str, Any], told: str) -> None:
    reads = sse(chunk({"content": "a"}), chunk({}, "stop"), last, "[DONE]")
    x = settled(finished(reads, headers=[(b"server-timing", b"header;dur=1")]))
    assert (x.status, x.server_timing) == (Status.OK, told)


def test_reasoning_is_a_token_but_not_an_answer() -> None:
    reads = sse(chunk(ROLE), chunk({"reasoning": "h"}), chunk({"content": "a"}), chunk({}, "stop"), "[DONE]")
    x = settled(finished(reads))
    assert (x.first_token_ns, x.first_answer_ns, x.last_token_ns) == (2 * MS, 3 * MS, 3 * MS)


def test_without_usage_the_chunks_are_counted_and_it_says_so() -> None:
    x = settled(finished(sse(chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop"), "[DONE]")))
    assert (x.n_out, x.tokens_from, x.n_in) == (2, TokensFrom.CHUNKS, -1)


def test_a_usage_of_zero_beside_output_is_not_believed() -> None:
    usage = {**USAGE, "usage": {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}}
    x = settled(finished(sse(chunk({"content": "a"}), chunk({}, "stop"), usage, "[DONE]")))
    assert (x.n_out, x.tokens_from) == (1, TokensFrom.CHUNKS)


def test_a_finished_stream_needs_no_end_marker() -> None:
    assert settled(finished(sse(chunk({"content": "a"}), chunk({}, "stop")))).status == Status.OK


def test_a_marked_stream_without_a_finish_reason_was_cut_unless_the_user_says_that_none_ever_comes() -> None:
    for reads in (sse(chunk({"content": "a"}), "[DONE]"), sse(chunk(ROLE), chunk({"content": "a"}), USAGE, "[DONE]")):
        x = settled(finished(reads))
        assert x.status == Status.PROTOCOL
        assert "ended without a finish reason after 1 chunks" in (x.error or "")
        assert settled(finished(reads), chat(finish_reason="optional")).status == Status.OK
    cut = settled(finished(sse(chunk({"content": "a"}))), chat(finish_reason="optional"))
    assert cut.status == Status.PROTOCOL  # neither a reason nor a mark


def test_choices_that_share_a_stream_are_no_single_answer() -> None:
    def of(index: int, text: str) -> dict[str, Any]:
        made = chunk({"content": text})
        made["choices"][0]["index"] = index
        return made

    both = [of(i % 2, f"t{i}") for i in range(40)]
    for said in (both, [of(1, "a"), *both]):
        x = settled(finished(sse(*said, chunk({}, "stop"), USAGE, "[DONE]")))
        assert x.status == Status.PROTOCOL
        assert "belongs to choice 1: choices that share a stream can't be timed apart" in (x.error or "")


def test_an_end_marker_without_its_blank_line_is_enough_after_the_finish_reason() -> None:
    x = settled(finished([*sse(chunk({"content": "a"}), chunk({}, "stop")), b"data: [DONE]"]))
    assert x.status == Status.OK


def test_an_answer_of_no_tokens_is_a_success_of_zero_tokens() -> None:
    x = settled(finished(sse(chunk(ROLE), chunk({}, "stop"), "[DONE]")))
    assert (x.status, x.n_out, x.n_chunks, x.first_token_ns) == (Status.OK, 0, 0, -1)


def test_the_completions_stream_is_read_by_its_text() -> None:
    texts = [
        {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
        | {"choices": [{"index": 0, "text": text, "finish_reason": reason, "logprobs": None}]}
        for text, reason in (("a", None), ("", None), ("b", None), ("", "length"))
    ]
    for text in texts[-1:]:
        Completion.model_validate(text)
    dialect = GenerationDialect(Target("http://h:1", "openai-completions", "m"), chat=False)
    x = settled(finished(sse(*texts, "[DONE]")), dialect)
    assert (x.status, list(x.chunk_ns)) == (Status.OK, [1 * MS, 3 * MS])


def test_a_stream_in_one_byte_reads_has_the_same_tokens_as_in_one_read() -> None:
    stream = b"".join(sse(chunk(ROLE), chunk({"content": "é"}), chunk({}, "stop"), USAGE, "[DONE]"))
    split = settled(finished([bytes([byte]) for byte in stream]))
    whole = settled(finished([stream]))
    assert (split.status, split.n_out, split.n_chunks) == (whole.status, whole.n_out, whole.n_chunks) == (0, 5, 1)
    second_event_ends = stream.index(b"\n\n", stream.index(b"\n\n") + 1) + 2
    assert split.first_token_ns == second_event_ends * MS


# -- a stream that failed --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "status", "text"),
    [
        ({"error": {"message": "boom", "type": "x", "code": 500}}, Status.HTTP, "boom (x, 500)"),
        ({"error": "full", "error_type": "overloaded"}, Status.REFUSED, "full (overloaded)"),
        (chunk({}, "stop") | {"choices": [{"delta": {}, "finish_reason": "error"}]}, Status.HTTP, "gave the answer up"),
    ],
)
def test_an_error_inside_a_200_is_a_failure_that_keeps_its_chunks(
    event: dict[str, Any], status: Status, text: str
) -> None:
    x = settled(finished(sse(chunk({"content": "a"}), event, "[DONE]")))
    assert x.status == status
    assert text in (x.error or "")
    assert (list(x.chunk_ns), x.n_out, x.tokens_from) == ([MS], 1, TokensFrom.CHUNKS)


@pytest.mark.parametrize(
    ("reads", "text"),
    [
        (sse(chunk({"content": "a"}), chunk({"content": "b"})), "stream cut after 2 chunks: neither"),
        ([*sse(chunk({"content": "a"})), b'data: {"cho'], "stream cut after 1 chunks, inside an event"),
        ([*sse(chunk({"content": "a"}), chunk({}, "stop")), b"data: {}\n"], "inside an event"),
        (sse(chunk(ROLE)), "empty stream"),
        (sse("[DONE]"), "empty stream"),
        ([], "empty stream"),
        ([b": ping\n\n"], "empty stream"),
        (sse(chunk({"content": "a"}), "{oops"), "event 2 is not JSON"),
    ],
)
def test_a_stream_that_did_not_come_to_its_end_is_a_protocol_failure(reads: list[bytes], text: str) -> None:
    x = settled(finished(reads))
    assert x.status == Status.PROTOCOL
    assert text in (x.error or "")


def test_an_old_llama_error_line_explains_the_cut() -> None:
    x = settled(finished([*sse(chunk({"content": "a"})), b'error: {"code":500,"message":"slot gone"}\n\n']))
    assert x.status == Status.HTTP
    assert "slot gone" in (x.error or "")


@pytest.mark.parametrize("status", [Status.TIMEOUT, Status.CANCELLED, Status.UNFINISHED])
def test_what_the_transport_gave_up_keeps_its_status_and_its_chunks(status: Status) -> None:
    x = settled(finished(sse(chunk({"content": "a"}), {"error": "boom"}), status=status, error="why"))
    assert (x.status, x.error, list(x.chunk_ns)) == (status, "why", [MS])


@pytest.mark.parametrize("status", [Status.PROTOCOL, Status.CONNECT])
def test_a_broken_connection_is_explained_by_the_servers_own_error(status: Status) -> None:
    x = settled(finished(sse({"error": "boom"}), status=status, error="connection closed"))
    assert (x.status, x.error) == (Status.HTTP, "boom")
    y = settled(finished(sse(chunk({"content": "a"})), status=status, error="connection closed"))
    assert (y.status, y.error) == (status, "connection closed")


def test_a_connection_that_never_answered_stays_what_it_was() -> None:
    x = settled(finished([], code=-1, content_type=None, status=Status.CONNECT, error="Connection refused"))
    assert (x.status, x.error) == (Status.CONNECT, "Connection refused")


# -- other answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"), [(429, Status.REFUSED), (503, Status.REFUSED), (500, Status.HTTP), (401, Status.HTTP)]
)
def test_an_error_status_is_told_with_the_start_of_its_body(code: int, status: Status) -> None:
    x = settled(finished([b'{"error":\n\n  "busy' + b"y" * 900], code=code, content_type="application/json"))
    assert x.status == status
    assert (x.error or "").startswith(f'HTTP {code}: {{"error": "busyyy')
    assert len(x.error or "") == len(f"HTTP {code}: ") + 300


def test_a_redirect_names_the_way_out() -> None:
    x = settled(finished([], code=307, headers=[(b"location", b"https://h/v1")]))
    assert x.status == Status.HTTP
    assert "https://h/v1" in (x.error or "")


def test_a_key_that_the_server_echoes_is_not_recorded() -> None:
    dialect = chat(headers=(("Authorization", "Bearer sk-12345678"),))
    body = b'{"error":"Incorrect API key provided: sk-12345678"}'
    x = settled(finished([body], code=401, content_type="application/json"), dialect)
    assert "sk-12345678" not in (x.error or "")
    assert "[redacted]" in (x.error or "")


def test_a_whole_completion_is_a_success_without_chunk_times() -> None:
    choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
    answer = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    x = settled(finished([orjson.dumps(answer)], content_type="application/json; charset=utf-8"))
    assert (x.status, x.n_chunks, x.first_token_ns) == (Status.OK, 0, -1)
    assert (x.n_in, x.n_out, x.tokens_from) == (3, 2, TokensFrom.USAGE)


@pytest.mark.parametrize(
    ("body", "content_type", "status", "text"),
    [
        (b'{"error":"boom"}', "application/json", Status.HTTP, "boom"),
        (b'{"object":"list"}', "application/json", Status.PROTOCOL, "not a completion"),
        (b"<html>", "text/html", Status.PROTOCOL, "not JSON: <html>"),
        (b"[]", "application/json", Status.PROTOCOL, "not a JSON object"),
        (b"", "application/json", Status.PROTOCOL, "the body is empty"),
    ],
)
def test_a_200_that_is_no_completion_is_a_failure(body: bytes, content_type: str, status: Status, text: str) -> None:
    x = settled(finished([body], content_type=content_type))
    assert x.status == status
    assert text in (x.error or "")


def test_a_stream_whose_content_type_a_proxy_lost_is_still_read() -> None:
    reads = sse(chunk({"content": "a"}), chunk({}, "stop"), "[DONE]")
    assert settled(finished(reads, content_type=None)).n_chunks == 1


def test_a_compressed_body_is_refused_because_identity_was_asked_for() -> None:
    x = settled(finished([b"\x1f\x8b"], headers=[(b"content-encoding", b"gzip")]))
    assert (x.status, "gzip" in (x.error or "")) == (Status.PROTOCOL, True)


def test_settling_twice_changes_nothing() -> None:
    reads = sse(chunk({"content": "a"}), chunk({}, "stop"), USAGE, "[DONE]")
    x = settled(finished(reads))
    before = (x.status, list(x.chunk_ns), x.n_out, x.n_in)
    assert before == (settled(x).status, list(x.chunk_ns), x.n_out, x.n_in)


# -- embeddings ------------------------------------------------------------------------------------------


def test_embeddings_send_the_input_and_read_the_usage() -> None:
    dialect = EmbeddingDialect(Target("http://h:1", "openai-embeddings", "m", options={"dimensions": 8}))
    request = dialect.encode(Payload(data={"input": ["a", "b"]}))
    assert orjson.loads(request.body) == {"model": "m", "dimensions": 8, "input": ["a", "b"]}
    assert request.head.startswith(b"POST /v1/embeddings HTTP/1.1\r\n")
    answer = {"data": [{"embedding": [0.1], "index": 0}], "usage": {"prompt_tokens": 4, "total_tokens": 4}}
    x = finished([orjson.dumps(answer)], content_type="application/json")
    dialect.settle(x)
    assert (x.status, x.n_in, x.n_out) == (Status.OK, 4, -1)


@pytest.mark.parametrize("answer", [{"data": []}, {"data": [{}]}, {"data": 1}, {}])
def test_a_200_without_embeddings_is_a_failure(answer: dict[str, Any]) -> None:
    x = finished([orjson.dumps(answer)], content_type="application/json")
    EmbeddingDialect(Target("http://h:1", "openai-embeddings")).settle(x)
    assert x.status == Status.PROTOCOL
