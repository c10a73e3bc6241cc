"""The generic template beyond one answer and JSON events: framings, conditions, finish reasons, success rules and
forms. Where the list of models is, for every way to write the URL of a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import problems
from plimsoll.harness.protocols._clients import models_path
from plimsoll.harness.protocols.http import HttpDialect, HttpOptions
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS, finished

#: Anthropic's events in the template's words: what a typed API needs.
TYPED = {
    "framing": "sse",
    "text_path": "delta.text if type == content_block_delta and delta.type == text_delta",
    "reasoning_path": "delta.thinking if @event == content_block_delta",
    "prompt_tokens_path": "message.usage.input_tokens",
    "output_tokens_path": "usage.output_tokens if type == message_delta",
    "finish_path": "delta.stop_reason",
    "done_path": "$ if type == message_stop",
}


def dialect(**options: Any) -> HttpDialect:
    return HttpDialect(Target("http://h:1/run", "http", "m", (("x-key", "s3cret-value"),), options))


def settled(reads: list[bytes], **options: Any) -> Exchange:
    exchange = finished(reads, 200, "text/plain")
    dialect(**options).settle(exchange)
    return exchange


def sse(*objects: Any) -> list[bytes]:
    return [
        b"event: %b\ndata: %b\n\n" % (str(value.get("type", "x")).encode(), orjson.dumps(value)) for value in objects
    ]


def framed(value: bytes, order: Any = "big") -> bytes:
    return len(value).to_bytes(4, order) + value


# -- framings --------------------------------------------------------------------------------------------------


def test_every_line_of_text_is_output_also_one_that_is_json() -> None:
    x = settled([b"one\nt", b'wo\n\n{"error": 1}\n', b"last"], framing="lines")
    assert (x.status, list(x.chunk_ns)) == (Status.OK, [MS, 2 * MS, 2 * MS, 3 * MS])
    assert (x.n_out, x.tokens_from) == (4, TokensFrom.CHUNKS)


def test_a_line_may_end_the_stream_and_is_then_insisted_on() -> None:
    x = settled([b"one\n", b"END 1\n", b"two\n"], framing="lines", done="END")
    assert (x.status, list(x.chunk_ns)) == (Status.OK, [MS])
    cut = settled([b"one\n"], framing="lines", done="END")
    assert (cut.status, cut.n_chunks) == (Status.PROTOCOL, 1)


def test_chunks_are_reads_whatever_is_in_them() -> None:
    x = settled([b"\xff\x00", b"\n\n", b"c"], framing="chunks")
    assert (x.status, list(x.chunk_ns), x.first_answer_ns) == (Status.OK, [MS, 2 * MS, 3 * MS], MS)
    assert settled([], framing="chunks").status == Status.PROTOCOL


@pytest.mark.parametrize("framing", ["lines", "chunks"])
def test_an_error_in_one_piece_is_a_failure_under_text_too(framing: str) -> None:
    x = settled([b'{"error": "it broke"}'], framing=framing)
    assert (x.status, x.error) == (Status.HTTP, "it broke")


@pytest.mark.parametrize("order", ["big", "little"])
def test_length_prefixed_messages_are_events(order: str) -> None:
    body = framed(b'{"t": "a"}', order) + framed(b'{"t": ""}', order) + framed(b'{"n": 3}', order)
    x = settled(
        [body[:9], body[9:]], framing="length-prefixed", byte_order=order, text_path="t", output_tokens_path="n"
    )
    assert (x.status, x.error, list(x.chunk_ns), x.n_out) == (Status.OK, None, [2 * MS], 3)


def test_a_length_prefixed_stream_that_stops_short_was_cut_and_a_wrong_order_is_named() -> None:
    body = framed(b"first") + framed(b"second")
    cut = settled([body[:-1]], framing="length-prefixed")
    assert (cut.status, cut.error, cut.n_chunks) == (Status.PROTOCOL, "stream cut inside a message", 1)
    assert settled([body + b"\0\0"], framing="length-prefixed").status == Status.PROTOCOL
    wrong = settled([body], framing="length-prefixed", byte_order="little")
    assert "is byte_order right?" in (wrong.error or "")


# -- conditions, finish reasons, success -----------------------------------------------------------------------


def test_events_that_are_told_apart_by_their_type_need_no_code() -> None:
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 9}}, "delta": {"text": "no"}}
    said = [
        start,
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "h"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    x = settled(sse(*said), **TYPED)
    assert (x.status, x.error, list(x.chunk_ns), x.first_answer_ns) == (Status.OK, None, [2 * MS, 3 * MS], 3 * MS)
    assert (x.n_in, x.n_out, x.tokens_from) == (9, 2, TokensFrom.USAGE)
    assert settled(sse(*said[:-2]), **TYPED).status == Status.PROTOCOL
    assert settled(sse(*said[:-1]), **TYPED).status == Status.OK


def test_a_finish_reason_may_mean_failure() -> None:
    options: dict[str, Any] = {"framing": "ndjson", "text_path": "t", "finish_path": "why"}
    good = settled([b'{"t": "a"}\n{"why": "stop"}\n'], **options)
    assert good.status == Status.OK
    bad = settled([b'{"t": "a"}\n{"why": "abort"}\n'], **options)
    assert (bad.status, bad.n_chunks) == (Status.HTTP, 1)
    assert "finish reason 'abort'" in (bad.error or "")
    assert settled([b'{"t": "a"}\n{"why": "stop"}\n'], **options, failed_finishes=["stop"]).status == Status.HTTP
    assert settled([b'{"why": "error"}'], finish_path="why").status == Status.HTTP


def test_a_rule_says_what_a_success_is() -> None:
    rule = {"success_if": "status == ok and not partial"}
    assert settled([b'{"status": "ok"}'], **rule).status == Status.OK
    failed = settled([b'{"status": "ok", "partial": true}'], **rule)
    assert (failed.status, failed.n_chunks) == (Status.HTTP, 0)
    assert "success_if does not hold" in (failed.error or "")
    assert settled([b"<html>"], **rule).status == Status.PROTOCOL
    stream: dict[str, Any] = {"framing": "ndjson", "text_path": "t", **rule}
    assert settled([b'{"t": "a"}\n{"status": "ok"}\n'], **stream).status == Status.OK
    assert settled([b'{"t": "a"}\n'], **stream).status == Status.HTTP


# -- forms -----------------------------------------------------------------------------------------------------


def test_a_form_has_fields_and_files_and_one_boundary_for_all_samples(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF\r\n\xff")
    one = dialect(form={"model": "{{ model }}"}, form_files={"file": "{{ data.file }}"})
    request = one.encode(Payload(data={"file": str(tmp_path / "a.wav")}))
    (line,) = [line for line in request.head.split(b"\r\n") if line.startswith(b"content-type: ")]
    boundary = line.removeprefix(b"content-type: multipart/form-data; boundary=")
    parts = request.body.split(b"--" + boundary)
    assert parts[0] == b""
    assert parts[-1] == b"--\r\n"
    assert parts[1] == b'\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n'
    assert parts[2].startswith(
        b'\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\ncontent-type: audio/'
    )
    assert parts[2].endswith(b"\r\n\r\nRIFF\r\n\xff\r\n")
    with pytest.raises(HarnessFault, match=r"form_files\.file: can't read /nowhere"):
        one.encode(Payload(data={"file": "/nowhere"}))


# -- options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"text_path": "a if", "framing": "sse"}, "the path is empty"),
        ({"text_path": "a if b..c == 1", "framing": "sse"}, "can't read"),
        ({"success_if": "a..b"}, "can't read"),
        ({"success_if": " "}, "the path is empty"),
        ({"text_path": "a", "framing": "lines"}, "lines are not looked into"),
        ({"done": "x", "framing": "chunks"}, "chunks are not looked into"),
        ({"byte_order": "little", "framing": "sse"}, "only framing length-prefixed"),
        ({"form": {"a": "{{"}}, "line 1"),
        ({"form": {'a"b': "x"}}, "can't be the name of a field"),
        ({"form": {"a": "x"}, "body": "y"}, "body and form are given together"),
        ({"form": {"a": "x"}, "content_type": "text/plain"}, "a form has its own"),
        ({"framing": "carrier pigeon"}, "target.options.framing"),
    ],
)
def test_bad_options_are_refused_with_the_way_out(options: dict[str, Any], part: str) -> None:
    assert part in "\n".join(problems(HttpOptions, options))


def test_an_answer_with_a_rule_is_never_plain() -> None:
    for rule in ({"success_if": "a"}, {"finish_path": "a"}, {"framing": "chunks"}):
        assert dialect(**rule).plain is None
    assert dialect(form={"a": "x"}).plain is not None


# -- the model's name -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h:1", "/v1/models"),
        ("http://h:1/", "/v1/models"),
        ("http://h:1/v1", "/v1/models"),
        ("http://h:1/api/v3/", "/api/v3/models"),
        ("http://h:1/base", "/base/v1/models"),
        ("http://h:1/v1/chat/completions", "/v1/models"),
        ("http://h:1/v1/completions", "/v1/models"),
        ("http://h:1/v1/responses/", "/v1/models"),
        ("http://h:1/v1/audio/speech", "/v1/models"),
        ("http://h:1/v1/embeddings?api-version=2", "/v1/models?api-version=2"),
    ],
)
def test_the_list_is_beside_the_endpoint_whatever_part_of_its_url_was_given(url: str, path: str) -> None:
    assert models_path(url) == path
