"""The plain HTTP dialect against the answers of servers without a protocol of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import problems
from plimsoll.harness.protocols.http import HttpDialect, HttpOptions
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS, finished

OLLAMA = {
    "framing": "ndjson",
    "text_path": "message.content",
    "reasoning_path": "message.thinking",
    "prompt_tokens_path": "prompt_eval_count",
    "output_tokens_path": "eval_count",
    "done_path": "done",
}
TGI = {"framing": "sse", "text_path": "token.text", "output_tokens_path": "details.generated_tokens"}


def dialect(url: str = "http://h:1/run", model: str = "m", **options: Any) -> HttpDialect:
    return HttpDialect(Target(url, "http", model, (("x-key", "s3cret-value"),), options))


def settled(reads: list[bytes], code: int = 200, status: Status = Status.OK, **options: Any) -> Exchange:
    exchange = finished(reads, code, "application/json", status=status)
    dialect(**options).settle(exchange)
    return exchange


def ndjson(*objects: Any) -> list[bytes]:
    return [orjson.dumps(value) + b"\n" for value in objects]


def sse(*objects: Any) -> list[bytes]:
    return [b"data:" + (v if isinstance(v, bytes) else orjson.dumps(v)) + b"\n\n" for v in objects]


# -- what is sent ----------------------------------------------------------------------------------------


def test_a_template_is_rendered_for_each_payload() -> None:
    body = '{"p": {{ prompt | tojson }}, "m": {{ model | tojson }}, "n": {{ max_output_tokens | tojson }}}'
    one = dialect(body=body).encode(Payload(prompt='<a> "b" & é\n', max_output_tokens=5))
    assert orjson.loads(one.body) == {"p": '<a> "b" & é\n', "m": "m", "n": 5}
    assert '<a> \\"b\\" & é'.encode() in one.body
    assert orjson.loads(dialect(body=body).encode(Payload(prompt="x")).body)["n"] is None


def test_a_request_that_carries_nothing_of_the_payload_has_none_of_its_lengths() -> None:
    payload = Payload(prompt="x", n_in=206)
    assert dialect(method="GET").encode(payload).n_in == dialect(body_text="hi").encode(payload).n_in == -1
    assert dialect(body="{{ prompt | tojson }}").encode(payload).n_in == 206


def test_an_answer_with_a_finish_path_is_looked_into_for_its_reason() -> None:
    assert dialect().plain is not None
    assert dialect(finish_path="end").plain is None  # so the compiled engine hands it over
    x = settled([b'{"end": "abort"}'], finish_path="end")
    assert (x.status, x.error) == (Status.HTTP, "the server gave the answer up: finish reason 'abort'")
    assert settled([b'{"end": "stop"}'], finish_path="end").status == Status.OK
    assert "finish_path" in problems(HttpOptions, {"finish_reason": "optional"})[0]


def test_a_template_sees_messages_data_and_the_index_that_the_source_gives() -> None:
    body = "[{{ messages | tojson }}, {{ data.image | tojson }}, {{ index }}]"
    request = dialect(body=body).encode(Payload(prompt="x", data={"image": "i.png", "index": 4}))
    assert orjson.loads(request.body) == [[{"role": "user", "content": "x"}], "i.png", 4]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ("{{ index }}", "'index' is undefined"),
        ("{{ nonsense }}", "'nonsense' is undefined"),
        ("{{ prompt }}", "not JSON"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ 1 / 0 }}", "division"),
    ],
)
def test_a_template_that_fails_on_a_payload_is_refused_before_the_run(body: str, part: str) -> None:
    with pytest.raises(HarnessFault, match=part):
        dialect(body=body).encode(Payload(prompt="a b"))


def test_other_bodies_are_sent_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "body.bin"
    file.write_bytes(b"\x00\xff{{")
    assert dialect(body_file=str(file)).encode(Payload()).body == b"\x00\xff{{"
    assert dialect(body_text="{{ x").encode(Payload()).body == b"{{ x"
    plain = dialect(body="{{ prompt }}", content_type="text/plain").encode(Payload(prompt="a b"))
    assert plain.body == b"a b"
    assert b"content-type: text/plain\r\n" in plain.head


def test_the_request_line_and_headers_come_from_the_options() -> None:
    head = dialect("http://h:1/a?x=1", method="GET", headers={"Accept": "text/x"}).encode(Payload()).head
    assert head.startswith(b"GET /a?x=1 HTTP/1.1\r\n")
    assert head.count(b"accept: ") == 1
    assert b"accept: text/x\r\nx-key: s3cret-value\r\n" in head
    assert b"content-type" not in head
    assert dialect(path="/b").encode(Payload()).head.startswith(b"POST /b HTTP/1.1\r\n")
    assert dialect("http://h:1").encode(Payload()).head.startswith(b"POST / HTTP/1.1\r\n")


# -- one answer in one piece -----------------------------------------------------------------------------


def test_any_2xx_is_a_success_unless_the_codes_say_otherwise() -> None:
    assert settled([b"anything"], 204).status == Status.OK
    assert settled([b"x"], 404).status == Status.HTTP
    assert settled([b"x"], 404, success_codes=[404]).status == Status.OK
    assert settled([b"x"], 200, success_codes=[404]).status == Status.HTTP
    assert settled([b"x"], 503).status == Status.REFUSED


def test_an_error_under_200_is_a_failure() -> None:
    x = settled([b'{"error": "no such model"}'])
    assert (x.status, x.error) == (Status.HTTP, "no such model")
    assert settled([b'{"status": {"failed": "yes"}}'], error_path="status.failed").status == Status.HTTP
    assert settled([b'{"error": null}']).status == Status.OK


def test_usage_is_read_from_the_body_by_its_paths() -> None:
    paths = {"prompt_tokens_path": "u.i", "output_tokens_path": "u.o"}
    x = settled([b'{"u": {"i": 3, "o": 4}}'], **paths)
    assert (x.n_in, x.n_out, x.tokens_from) == (3, 4, TokensFrom.USAGE)
    assert settled([b"oops"], **paths).status == Status.PROTOCOL


# -- streams ---------------------------------------------------------------------------------------------


def test_an_ollama_stream_gives_tokens_thinking_and_usage() -> None:
    x = settled(
        ndjson(
            {"message": {"content": "", "thinking": "h"}, "done": False},
            {"message": {"content": "a"}, "done": False},
            {"message": {"content": ""}, "done": True, "prompt_eval_count": 7, "eval_count": 3},
        ),
        **OLLAMA,
    )
    assert (x.status, x.error) == (Status.OK, None)
    assert (x.first_token_ns, x.first_answer_ns, x.last_token_ns) == (MS, 2 * MS, 2 * MS)
    assert (x.n_in, x.n_out, x.n_chunks, x.tokens_from) == (7, 3, 2, TokensFrom.USAGE)


def test_a_stream_without_the_end_it_should_have_was_cut() -> None:
    x = settled(ndjson({"message": {"content": "a"}}), **OLLAMA)
    assert x.status == Status.PROTOCOL
    assert "stream cut after 1 chunks" in (x.error or "")
    assert list(x.chunk_ns) == [MS]


def test_an_error_line_under_200_is_a_failure() -> None:
    x = settled(ndjson({"message": {"content": "a"}}, {"error": "out of memory"}), **OLLAMA)
    assert (x.status, x.error, x.n_chunks) == (Status.HTTP, "out of memory", 1)


def test_a_torn_last_line_is_a_protocol_failure_and_a_whole_one_is_not() -> None:
    torn = [*ndjson({"message": {"content": "a"}}), b'{"done": tr']
    assert settled(torn, **OLLAMA).status == Status.PROTOCOL
    whole = [*ndjson({"message": {"content": "a"}}), b'{"done": true}']
    assert settled(whole, **OLLAMA).status == Status.OK


def test_a_tgi_stream_ends_without_a_marker_and_an_overload_is_a_refusal() -> None:
    token = {"token": {"id": 1, "text": "a"}, "details": None}
    last = {"token": {"id": 2, "text": "b"}, "details": {"generated_tokens": 2}}
    good = settled(sse(token, last), **TGI)
    assert (good.status, good.n_out, good.tokens_from) == (Status.OK, 2, TokensFrom.USAGE)
    shed = settled(sse({"error": "Model is overloaded", "error_type": "overloaded"}), **TGI)
    assert (shed.status, shed.error) == (Status.REFUSED, "Model is overloaded (overloaded)")


def test_a_cut_event_is_a_failure() -> None:
    x = settled([*sse({"token": {"text": "a"}}), b'data:{"tok'], **TGI)
    assert (x.status, x.error) == (Status.PROTOCOL, "stream cut inside an event")


def test_the_usual_marker_is_no_output_and_a_given_one_is_insisted_on() -> None:
    assert settled(sse({"t": "a"}, b"[DONE]"), framing="sse").n_chunks == 1
    assert settled(sse({"t": "a"}), framing="sse").status == Status.OK
    assert settled(sse({"t": "a"}), framing="sse", done="[DONE]").status == Status.PROTOCOL
    assert settled(sse({"t": "a"}, b"END"), framing="sse", done="END").status == Status.OK


def test_without_a_text_path_every_event_is_output_json_or_not() -> None:
    x = settled(sse(b"hello", {"a": 1}, b"world", b""), framing="sse")
    assert (x.status, list(x.chunk_ns)) == (Status.OK, [MS, 2 * MS, 3 * MS])


def test_an_sse_event_named_error_is_a_failure() -> None:
    x = settled([*sse({"t": "a"}), b"event: error\ndata: it broke\n\n"], framing="sse")
    assert (x.status, x.error) == (Status.HTTP, "it broke")


def test_a_number_is_output_and_false_null_and_empty_are_not() -> None:
    values = [0, 5, "", None, False, [], "x"]
    x = settled(ndjson(*({"t": value} for value in values)), framing="ndjson", text_path="t")
    assert list(x.chunk_ns) == [MS, 2 * MS, 7 * MS]


def test_several_text_paths_count_an_event_once() -> None:
    x = settled(ndjson({"a": "1", "b": "2"}, {"b": "3"}), framing="ndjson", text_path=["a", "b"])
    assert x.n_chunks == 2


def test_an_empty_stream_is_a_failure() -> None:
    x = settled([], framing="ndjson")
    assert (x.status, x.error) == (Status.PROTOCOL, "empty stream: no output")


def test_a_timed_out_stream_keeps_its_chunks_and_its_status() -> None:
    x = settled(sse({"t": "a"}), status=Status.TIMEOUT, framing="sse", text_path="t")
    assert (x.status, list(x.chunk_ns)) == (Status.TIMEOUT, [MS])


def test_a_secret_that_the_server_echoes_is_not_recorded() -> None:
    assert "s3cret" not in (settled([b"bad key s3cret-value"], 403).error or "")
