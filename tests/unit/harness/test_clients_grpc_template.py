"""The generic ``grpc`` protocol: options held to a schema, templates to messages, messages to indicators."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._grpc.descriptors import SETS, shipped
from plimsoll.harness.protocols._grpc.grpc_template import INLINE, TemplateDialect
from plimsoll.harness.protocols.grpc_ import PROTOCOLS
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING
from plimsoll.harness.transport.rpc.call import GrpcRequest
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status, TokensFrom
from plimsoll.slo.verdict.accuracy import Answer
from tests.finished import MS, finished

(SPEC,) = PROTOCOLS
KSERVE = shipped("kserve")
STREAM, INFER = "inference.GRPCInferenceService/ModelStreamInfer", "inference.GRPCInferenceService/ModelInfer"
ANSWER = KSERVE.message("inference.ModelStreamInferResponse")
SET = str(SETS / "kserve.binpb")
TEXT = "infer_response.outputs[0].contents.bytes_contents[0]"
MESSAGE = {"model_name": "{{ model }}", "parameters": {"n": {"int64_param": "{{ max_output_tokens }}"}}}


def dialect(method: str = STREAM, **options: Any) -> TemplateDialect:
    target = Target("grpc://h:1", "grpc", "m", (("X-Key", "v"),), {"method": method, "message": MESSAGE, **options})
    return TemplateDialect(target, KSERVE, method)


def said(*texts: bytes | None, error: str = "", n: int = 0) -> list[bytes]:
    """A message a text (None: one without outputs), then one with an error or a count if asked for."""
    made = []
    for text in texts:
        message: Any = ANSWER()
        if text is not None:
            message.infer_response.outputs.add(name="t").contents.bytes_contents.append(text)
        else:
            message.infer_response.id = "x"
        made.append(message.SerializeToString())
    if error or n:
        last: Any = ANSWER(error_message=error)
        last.infer_response.parameters["n"].int64_param = n
        made.append(last.SerializeToString())
    return made


def settled(reads: list[bytes], status: Status = Status.OK, method: str = STREAM, **options: Any) -> Exchange:
    exchange = finished(reads, code=0, content_type=None, status=status)
    exchange.request_id = b""
    dialect(method, **options).settle(exchange)
    return exchange


# -- encode -------------------------------------------------------------------------------------------------------------  # noqa: E501


def test_a_message_is_rendered_for_each_sample() -> None:
    request = dialect(metadata={"X-Extra": "1", "x-key": "not this"}, deadline="2s").encode(
        Payload(max_output_tokens=7, n_in=3)
    )
    assert isinstance(request, GrpcRequest)
    message: Any = KSERVE.message("inference.ModelInferRequest").FromString(request.messages[0])
    assert (message.model_name, message.parameters["n"].int64_param) == ("m", 7)
    assert (request.method, request.client_streaming, request.server_streaming) == (f"/{STREAM}", True, True)
    assert request.metadata == (("x-key", "v"), ("x-extra", "1"))  # what the target says of a name goes first
    assert (request.deadline_ns, request.n_in, request.due_ns) == (2_000 * MS, 3, ())


def test_a_list_is_a_message_each_at_its_interval() -> None:
    many = dialect(message=[MESSAGE, {"id": "b"}, {"id": "{{ prompt }}"}], interval="20ms")
    request = many.encode(Payload(prompt="c", max_output_tokens=1))
    assert request.due_ns == (0, 20 * MS, 40 * MS)
    kind = KSERVE.message("inference.ModelInferRequest")
    assert [kind.FromString(data).id for data in request.messages] == ["", "b", "c"]  # type: ignore[attr-defined]
    rendered = dialect(message='[{"id": "a"}, {"id": {{ prompt | tojson }}}]').encode(Payload(prompt="z"))
    assert len(rendered.messages) == 2


def test_every_mistake_of_a_sample_is_told() -> None:
    with pytest.raises(HarnessFault) as caught:
        dialect(message={"id": "{{ max_output_tokens }}", "inputs": "{{ prompt }}"}).encode(
            Payload(prompt="x", max_output_tokens=1)
        )
    assert caught.value.errors == [
        "target.options.message.id: 1 is not a string",
        "target.options.message.inputs: 'x' is not a list of inference.ModelInferRequest.InferInputTensor",
    ]


# -- options ------------------------------------------------------------------------------------------------------------  # noqa: E501


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "nope"}, "target.options.method: 'nope' is no method. Write it as package.Service/Method"),
        ({"text_path": "a["}, "target.options.text_path: path 'a[': can't read '['"),
        ({"descriptor_set": "/no/such"}, "target.options.descriptor_set: there is no file /no/such"),
        ({"message": 5}, "target.options.message: not an object, a list of objects or a template"),
        ({"message": {"a": "{{ x"}}, "target.options.message: a: line 1"),
        ({"metadata": {"a b": "1"}}, "not a metadata name"),
        ({"metadata": {"a": "x\ny"}}, "its value holds a line end. Remove it"),
        ({"metadata": {"a-bin": "***"}}, "its value is not base64"),
        ({"metadata": {"grpc-timeout": "1S"}}, "written by the transport"),
        ({"proto_path": ["x"]}, "there is no proto. Add it, or remove proto_path"),
        ({"descriptor_set": SET, "proto": "x.proto"}, "are given together. Keep one"),
        ({"methd": "x"}, "target.options.methd: unknown option. Did you mean method?"),
        ({"deadline": 0}, "target.options.deadline"),
        ({"method": "a.B/C", "descriptor_set": SET}, "target.options.method: there is no service 'a.B'"),
        ({"method": INFER, "descriptor_set": SET, "text_path": "x"}, "answers with one message (unary). Remove it"),
        ({"method": INFER, "descriptor_set": SET, "text_path": "x"}, "text_path: path 'x': inference.ModelInferResponse has no"),  # noqa: E501
        ({"method": INFER, "descriptor_set": SET, "interval": 1}, "takes one message (unary). Remove it"),
        ({"method": INFER, "descriptor_set": SET, "message": [{}]}, "a list, but /inference.GRPCInferenceService/ModelInfer"),  # noqa: E501
        ({"method": STREAM, "descriptor_set": SET, "message": []}, "the list is empty. Give at least one message"),
        ({"method": STREAM, "descriptor_set": SET, "message": [{"x": 1}]}, "target.options.message[0].x: "),
        ({"descriptor_set": f"{INLINE}AAA"}, "target.options.descriptor_set: "),
        ({"method": STREAM, "proto": "/no.proto"}, "target.options.proto: there is no file /no.proto"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_options_is_told_before_any_load(options: dict[str, Any], said: str) -> None:
    found = SPEC.check(options)
    assert any(said in text for text in found), found


def test_good_options_are_fine() -> None:
    assert SPEC.check({"method": STREAM, "descriptor_set": SET, "message": MESSAGE, "text_path": TEXT}) == []
    assert SPEC.check({"method": STREAM, "message": MESSAGE, "channels": 2}) == []


def test_a_call_is_prepared_from_a_file_without_asking_the_server() -> None:
    options = {"descriptor_set": SET, "message": {}, "proto": []}
    target = Target(f"grpc://127.0.0.1:1/{INFER}", "grpc", "m", (), options)
    assert SPEC.prepare is not None
    made = asyncio.run(SPEC.prepare(target))  # type: ignore[arg-type]
    assert made.options["method"] == INFER
    assert made.options["descriptor_set"] == INLINE + b64encode(KSERVE.data).decode()
    assert SPEC.check(made.options) == []
    assert SPEC.build(made, None).encode(Payload()) == SPEC.build(target, None).encode(Payload())


def test_without_a_method_or_a_schema_there_is_nothing_to_call() -> None:
    assert SPEC.prepare is not None
    bare = Target("grpc://127.0.0.1:1", "grpc", "m")
    with pytest.raises(HarnessFault, match=r"target.options.method: no method is given"):
        asyncio.run(SPEC.prepare(bare))  # type: ignore[arg-type]
    with pytest.raises(HarnessFault, match=r"target.url: its path: 'x' is no method"):
        asyncio.run(SPEC.prepare(replace(bare, url="grpc://127.0.0.1:1/x")))  # type: ignore[arg-type]
    with pytest.raises(HarnessFault, match=r"the server was not asked for its schema"):
        SPEC.build(replace(bare, options={"method": STREAM}), object())


def test_a_proto_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "x.proto"
    path.write_text('syntax = "proto3"; package x; service S { rpc Do(M) returns (M); } message M { string t = 1; }')
    assert SPEC.check({"method": "x.S/Do", "proto": str(path), "message": {"t": "{{ prompt }}"}}) == []
    (found,) = SPEC.check({"method": "x.S/Do", "proto": [str(path)], "message": {"tt": 1}})
    assert "x.M has no such field. Did you mean t?" in found


# -- settle -------------------------------------------------------------------------------------------------------------  # noqa: E501


def test_without_a_text_path_every_message_counts() -> None:
    x = settled(said(b"a", None, b""))
    assert (x.n_chunks, x.n_out, x.tokens_from) == (3, 3, int(TokensFrom.CHUNKS))


def test_output_is_what_the_text_path_leads_to() -> None:
    x = settled(said(None, b"a", b"", b"b"), text_path=TEXT)
    assert list(x.chunk_ns) == [2 * MS, 4 * MS]
    assert (x.first_token_ns, x.first_answer_ns, x.last_token_ns) == (2 * MS, 2 * MS, 4 * MS)
    assert (x.status, x.n_out) == (Status.OK, 2)


def test_the_servers_own_count_wins() -> None:
    path = 'infer_response.parameters["n"].int64_param'
    x = settled(said(b"a", n=40), text_path=TEXT, output_tokens_path=path, prompt_tokens_path=path)
    assert (x.n_out, x.n_in, x.tokens_from) == (40, 40, int(TokensFrom.USAGE))


def test_an_error_in_a_message_is_a_failure_and_what_came_before_is_kept() -> None:
    x = settled([*said(b"a", error="no more"), *said(b"b")], text_path=TEXT, error_path="error_message")
    assert (Status(x.status), x.error) == (Status.GRPC, "the answer holds an error: no more")
    assert list(x.chunk_ns) == [MS]


def test_an_error_message_with_a_code_is_that_status() -> None:
    schema = shipped("google_speech_v1")
    method = "google.cloud.speech.v1.Speech/StreamingRecognize"
    kind: Any = schema.message("google.cloud.speech.v1.StreamingRecognizeResponse")
    options = {"method": method, "error_path": "error"}
    one = TemplateDialect(Target("grpc://h:1", "grpc", "", (), options), schema, method)
    for code, status in ((8, Status.REFUSED), (3, Status.GRPC), (4, Status.TIMEOUT)):
        x = finished([kind(error={"code": code, "message": "why"}).SerializeToString()], 0, None)
        one.settle(x)
        assert Status(x.status) == status
        assert "why" in (x.error or "")


def test_a_stream_without_the_end_that_was_named_was_cut() -> None:
    path = 'infer_response.parameters["n"].int64_param'
    assert settled(said(b"a", n=1), done_path=path).status == Status.OK
    x = settled(said(b"a"), done_path=path)
    assert (Status(x.status), x.error) == (
        Status.PROTOCOL,
        "stream ended after 1 messages: the end that done_path names never came",
    )
    assert settled(said(b"a"), Status.TIMEOUT, done_path=path).status == Status.TIMEOUT


def test_bytes_that_are_no_message_say_so() -> None:
    x = settled([*said(b"a"), b"\xff"], text_path=TEXT)
    assert Status(x.status) == Status.PROTOCOL
    assert "message 2 is no inference.ModelStreamInferResponse. Is it the right schema?" in (x.error or "")
    assert x.n_chunks == 1


def test_a_single_answer_has_no_chunks_but_may_have_counts() -> None:
    kind: Any = KSERVE.message("inference.ModelInferResponse")
    message = kind(model_name="m")
    message.parameters["n"].string_param = "12"
    x = settled([message.SerializeToString()], method=INFER, output_tokens_path='parameters["n"].string_param')
    assert (x.n_chunks, x.n_out, x.tokens_from) == (0, 12, int(TokensFrom.USAGE))
    assert settled([message.SerializeToString()], method=INFER).n_out == -1


def test_stop_after_ends_a_stream_that_has_no_end() -> None:
    one = dialect(stop_after=2)
    x = finished(said(b"a"))
    assert one.hear(x, b"") == NOTHING
    assert one.hear(finished(said(b"a", b"b")), b"") == DONE
    assert not hasattr(dialect(), "hear")


def test_the_answer_is_the_text() -> None:
    x = finished(said(b"a", None, "é".encode()))
    assert dialect(text_path=TEXT).answer(x) == Answer("aé")
    assert dialect(text_path=TEXT).answer(finished([b"\xff"])) is None


@given(
    st.lists(st.binary(max_size=12) | st.sampled_from([*said(b"a", error="e", n=5)]), max_size=6),
    st.sampled_from([Status.OK, Status.PROTOCOL, Status.TIMEOUT, Status.REFUSED, Status.GRPC]),
    st.sampled_from([{}, {"text_path": TEXT, "error_path": "error_message", "done_path": TEXT}]),
)
def test_settle_never_raises_and_never_turns_a_failure_into_a_success(
    reads: list[bytes], status: Status, options: dict[str, Any]
) -> None:
    x = settled(reads, status, **options)
    assert status == Status.OK or x.status != Status.OK
    assert x.n_chunks == len(x.chunk_ns) <= len(reads)
    assert not (x.status != status and not x.error)
