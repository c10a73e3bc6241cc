"""Tensors over gRPC: the Open Inference Protocol (alone and on Triton's stream), TensorFlow Serving, TorchServe."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.protocols._kserve import CONTENTS, DTYPES, Tensor, says_something, text_of
from plimsoll.harness.protocols.kserve import KserveGrpcDialect, TritonStreamDialect
from plimsoll.harness.protocols.tfserving import KINDS, TfServingGrpcDialect
from plimsoll.harness.protocols.torchserve import TorchServeGrpcDialect
from plimsoll.harness.transport.client import Target
from plimsoll.reference_server.dialects.kserve_grpc import parse_request, response
from plimsoll.reference_server.protos import inference_pb2 as pb
from plimsoll.reference_server.values.tensors import Tensor as ServerTensor
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status
from plimsoll.slo.verdict.accuracy import Answer
from tests.finished import MS, finished

SCHEMA = shipped("kserve")
ANSWER, WRAPPED = SCHEMA.message("inference.ModelInferResponse"), SCHEMA.message("inference.ModelStreamInferResponse")
X = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1.0, 2.0], [3.0, 4.0]]}


def kserve(**options: Any) -> KserveGrpcDialect:
    return KserveGrpcDialect(Target("grpc://h:1", "kserve-v2-grpc", "m", (), options))


def triton(**options: Any) -> TritonStreamDialect:
    return TritonStreamDialect(Target("grpc://h:1", "triton-stream", "m", (), options))


def sent(dialect: Any, payload: Payload) -> Any:
    """The request as the bundled server's own message, which was made from another .proto."""
    return pb.ModelInferRequest.FromString(dialect.encode(payload).messages[0])


def settle(dialect: Any, reads: list[bytes], status: Status = Status.OK) -> Exchange:
    exchange = finished(reads, 0, None, status=status)
    dialect.settle(exchange)
    return exchange


# -- requests
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("datatype", [*DTYPES, "BYTES"])
@pytest.mark.parametrize("contents", ["raw", "typed"])
def test_the_bundled_server_reads_every_datatype_in_both_forms(datatype: str, contents: str) -> None:
    data: Any = ["a", b"\xff\x00"] if datatype == "BYTES" else [1, 0]
    payload = Payload(data={"inputs": [{"name": "x", "shape": [2], "datatype": datatype, "data": data}]})
    if contents == "typed" and datatype not in CONTENTS:
        with pytest.raises(HarnessFault, match=r"target.options.contents: .* has no typed contents. Use contents: raw"):
            kserve(contents=contents).encode(payload)
        return
    if datatype == "BF16":  # the bundled server has none: one is 0x3f80
        assert list(sent(kserve(), payload).raw_input_contents) == [b"\x80\x3f\x00\x00"]
        return
    (tensor,) = parse_request(sent(kserve(contents=contents), payload)).tensors
    assert (tensor.name, tensor.datatype, tensor.data.shape) == ("x", datatype, (2,))
    assert tensor.data.tolist() == ([b"a", b"\xff\x00"] if datatype == "BYTES" else [1, 0])


def test_a_prompt_becomes_text_and_the_wanted_length_a_parameter_or_a_tensor() -> None:
    payload = Payload(prompt="hi", max_output_tokens=7)
    by_parameter = parse_request(sent(kserve(), payload))
    assert by_parameter.tensors[0].data.tolist() == [b"hi"]
    assert sent(kserve(), payload).parameters["max_tokens"].int64_param == 7
    options = {"prompt_shape": [1, 1], "max_tokens_input": "max_tokens", "inputs": [{**X, "name": "extra"}]}
    text, length, extra = parse_request(sent(triton(**options), payload)).tensors
    assert (text.data.shape, length.name, length.data.tolist(), extra.name) == ((1, 1), "max_tokens", [[7]], "extra")
    assert "max_tokens" not in sent(triton(**options), payload).parameters


def test_parameters_go_by_their_types_and_a_stream_asks_for_its_end() -> None:
    given_ = {"a": True, "b": -5, "c": 0.5, "d": "x"}
    message = sent(triton(parameters=given_, outputs=["y"], model_version="3"), Payload(data={"inputs": [X]}))
    assert message.parameters["a"].bool_param is True
    assert (message.parameters["b"].int64_param, message.parameters["c"].double_param) == (-5, 0.5)
    assert message.parameters["d"].string_param == "x"
    assert message.parameters["triton_enable_empty_final_response"].bool_param is True
    assert ([one.name for one in message.outputs], message.model_version) == (["y"], "3")


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (5, "not a mapping of name, shape, datatype and data"),
        ({**X, "name": ""}, "it has no name"),
        ({**X, "datatype": "FP31"}, "has no known datatype (one of BF16, BOOL"),
        ({**X, "shape": [2, -1]}, "has no shape"),
        ({**X, "shape": [3]}, "has 4 elements, not the 3 of its shape"),
        ({**X, "shape": [1] * 65}, "has 65 dimensions, more than 64"),
        ({"name": "x", "shape": [1], "datatype": "FP32"}, "has no data"),
        ({**X, "datatype": "UINT8", "data": [1, 2, 3, 256]}, "a value is no whole number from 0 to 255"),
        ({**X, "datatype": "INT8", "data": [1, 2, 3, 0.5]}, "a value is no whole number from -128 to 127"),
        ({**X, "data": ["a", "b", "c", "d"]}, "a value is no number"),
        ({**X, "data": [[1, 2], [3]]}, "its data is no FP32"),
    ],
)
def test_a_tensor_that_is_none_is_refused_with_its_place(tensor: Any, said: str) -> None:
    with pytest.raises(HarnessFault) as caught:
        kserve().encode(Payload(data={"inputs": [X, tensor]}))
    assert said in str(caught.value)
    assert 'data["inputs"][1]' in str(caught.value)


def test_all_bad_tensors_are_told_and_no_payload_at_all_too() -> None:
    with pytest.raises(HarnessFault) as caught:
        kserve().encode(Payload(data={"inputs": [5, 6]}))
    assert len(caught.value.errors) == 2
    with pytest.raises(HarnessFault, match=r"no prompt. Use a tensor source or a text source"):
        kserve().encode(Payload())
    with pytest.raises(HarnessFault, match=r"target.model: kserve-v2-grpc needs the model's name"):
        KserveGrpcDialect(Target("grpc://h:1", "kserve-v2-grpc"))


@pytest.mark.parametrize("name", ["kserve-v2-grpc", "triton-stream"])
def test_options_are_checked(name: str) -> None:
    check = protocols()[name].check
    assert check({"prompt_shape": [1, 1], "parameters": {"a": 1}, "inputs": [X], "channels": 4}) == []
    assert "has not one element. Use [1] or [1, 1]" in check({"prompt_shape": [2]})[0]
    assert "more than 64 bits" in check({"parameters": {"a": 2**63}})[0]
    assert "inputs: [0]: it has no name" in check({"inputs": [{}]})[0]


# -- answers
# ------------------------------------------------------------------------------------------------------------


def answer(*outputs: ServerTensor, typed: bool = False, **said: bool | str) -> Any:
    """As the bundled server writes it."""
    request = type("R", (), {"model": "m", "request_id": "", "version": "1"})()
    return response(request, outputs, typed=typed, **said)


def texts(text: str) -> ServerTensor:
    return ServerTensor("text_output", "BYTES", np.array([text.encode()], dtype=object))


NUMBERS = ServerTensor("y", "FP32", np.ones((2, 2), np.float32))


@pytest.mark.parametrize("typed", [True, False])
def test_a_right_answer_is_one(typed: bool) -> None:
    data = answer(NUMBERS, texts("hi"), typed=typed).SerializeToString()
    assert settle(kserve(outputs=["y"]), [data]).status == Status.OK
    assert text_of(ANSWER.FromString(data)) == "hi"


def broken(change: str) -> bytes:
    message = answer(NUMBERS)
    if change == "shape":
        message.outputs[0].shape[0] = 3
    elif change == "negative":
        message.outputs[0].shape[0] = -1
    elif change == "count":
        message.raw_output_contents.append(b"")
    elif change == "name":
        message.outputs[0].name = ""
    elif change == "type":
        message.outputs[0].datatype = "X"
    elif change == "none":
        del message.outputs[:]
    elif change == "typed":
        del message.raw_output_contents[:]
    elif change == "bytes":
        message = answer(texts("hi"))
        message.raw_output_contents[0] = struct.pack("<I", 9) + b"hi"
    data: bytes = message.SerializeToString()
    return data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("shape", "tensor 'y' has 16 raw bytes, not 24"),
        ("negative", "tensor 'y' has no shape"),
        ("count", "2 raw_output_contents for 1 outputs"),
        ("name", "it has no name"),
        ("type", "has no known datatype"),
        ("none", "the response holds no outputs"),
        ("typed", "has 0 elements, not the 4 of its shape"),
        ("bytes", "its raw bytes don't end with an element"),
        ("other", "the response lacks the outputs z"),
    ],
)
def test_an_ok_with_a_wrong_answer_is_a_failure(change: str, said: str) -> None:
    x = settle(kserve(outputs=["z"] if change == "other" else []), [broken(change)])
    assert Status(x.status) == Status.PROTOCOL
    assert said in (x.error or "")


def stream(*messages: Any, error: str = "") -> list[bytes]:
    made = [pb.ModelStreamInferResponse(infer_response=message).SerializeToString() for message in messages]
    if error:
        made.append(pb.ModelStreamInferResponse(error_message=error).SerializeToString())
    return made


FIRST, SECOND = answer(texts("a"), triton_final_response=False), answer(texts("b"), triton_final_response=False)
LAST = answer(triton_final_response=True, server_timing="decode;dur=1.0")


def test_tritons_stream_is_read() -> None:
    x = settle(triton(), stream(FIRST, answer(texts(""), triton_final_response=False), SECOND, LAST))
    assert (x.status, x.n_out, list(x.chunk_ns)) == (Status.OK, 2, [MS, 3 * MS])
    assert x.server_timing == "decode;dur=1.0"


def test_mlservers_stream_is_read_too() -> None:
    bare = [answer(texts(text)).SerializeToString() for text in ("a", "b", "c")]
    x = settle(triton(), bare)
    assert (x.status, x.n_out, x.error) == (Status.OK, 3, None)


def test_a_stream_that_marks_its_end_and_has_none_was_cut() -> None:
    x = settle(triton(), stream(FIRST, SECOND))
    assert (Status(x.status), x.n_chunks) == (Status.PROTOCOL, 2)
    assert "stream cut after 2 answers" in (x.error or "")
    assert "empty stream" in (settle(triton(), []).error or "")


@pytest.mark.parametrize(
    ("text", "status"), [("Exceeds maximum queue size", Status.REFUSED), ("in ensemble 'x', boom", Status.GRPC)]
)
def test_an_error_in_the_stream_is_a_failure_although_the_call_is_ok(text: str, status: Status) -> None:
    x = settle(triton(), stream(FIRST, error=text))
    assert (Status(x.status), x.n_chunks) == (status, 1)
    assert text in (x.error or "")


def test_an_error_with_a_status_beside_it_is_that_status() -> None:
    message = pb.ModelStreamInferResponse(error_message="busy", infer_response=LAST)
    message.infer_response.parameters["status"].string_param = "RESOURCE_EXHAUSTED"
    x = settle(triton(), [message.SerializeToString()])
    assert (Status(x.status), x.error) == (Status.REFUSED, "gRPC RESOURCE_EXHAUSTED: busy")


def test_an_empty_text_is_no_output_and_numbers_always_are() -> None:
    for typed in (True, False):
        assert not says_something(answer(texts(""), typed=typed))
        assert says_something(answer(texts("x"), typed=typed))
        assert says_something(answer(NUMBERS, typed=typed))


@given(
    st.lists(st.binary(max_size=20) | st.sampled_from([*stream(FIRST, LAST), FIRST.SerializeToString()]), max_size=5)
)
def test_no_bytes_break_reading(reads: list[bytes]) -> None:
    tf = TfServingGrpcDialect(Target("grpc://h:1", "tfserving-grpc", "m"))
    torch = TorchServeGrpcDialect(Target("grpc://h:1", "torchserve-grpc", "m", (), {"stream": True}))
    for dialect in (kserve(), triton(), tf, torch):
        x = settle(dialect, reads)
        assert bool(x.error) is (x.status != Status.OK)
        assert settle(dialect, reads, Status.TIMEOUT).status == Status.TIMEOUT


# -- TensorFlow Serving
# -------------------------------------------------------------------------------------------------

TF = shipped("tfserving")
PREDICT, PREDICTED = TF.message("tensorflow.serving.PredictRequest"), TF.message("tensorflow.serving.PredictResponse")


def tf(**options: Any) -> TfServingGrpcDialect:
    return TfServingGrpcDialect(Target("grpc://h:1", "tfserving-grpc", "m", (), options))


def test_predict_names_model_signature_and_version() -> None:
    payload = Payload(data={"inputs": [X]})
    message: Any = PREDICT.FromString(tf(signature="s", model_version=3, outputs=["y"]).encode(payload).messages[0])
    spec = message.model_spec
    assert (spec.name, spec.signature_name, spec.version.value) == ("m", "s", 3)
    assert list(message.output_filter) == ["y"]
    labelled: Any = PREDICT.FromString(tf(version_label="stable").encode(payload).messages[0])
    assert labelled.model_spec.WhichOneof("version_choice") == "version_label"


@pytest.mark.parametrize("datatype", KINDS)
@pytest.mark.parametrize("contents", ["raw", "typed"])
def test_every_datatype_has_its_number_and_field(datatype: str, contents: str) -> None:
    data: Any = ["a", "b"] if datatype == "BYTES" else [1, 0]
    payload = Payload(data={"inputs": [{"name": "x", "shape": [2], "datatype": datatype, "data": data}]})
    tensor = PREDICT.FromString(tf(contents=contents).encode(payload).messages[0]).inputs["x"]  # type: ignore[attr-defined]
    number, field = KINDS[datatype]
    assert (tensor.dtype, [dim.size for dim in tensor.tensor_shape.dim]) == (number, [2])
    if datatype == "BYTES":
        assert list(tensor.string_val) == [b"a", b"b"]
    elif contents == "raw":
        assert tensor.tensor_content == Tensor(payload.data["inputs"][0]).raw()
    else:
        one = {"FP16": 0x3C00, "BF16": 0x3F80}.get(datatype, 1)
        assert list(getattr(tensor, field)) == [one, 0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"float_val": [1.0]}, None),
        ({"tensor_content": b"\x00" * 8}, None),
        ({"dtype": 8}, "dtype 8 holds neither numbers nor texts"),
        ({"tensor_content": b"\x00" * 7}, "7 bytes of content, not the 8 of its shape"),
        ({"float_val": [1.0] * 3}, "3 elements, not the 2 of its shape"),
        ({"tensor_shape": {"unknown_rank": True}}, "its shape is not known"),
    ],
)
def test_predicted_tensors_must_fit_their_shape(change: dict[str, Any], said: str | None) -> None:
    kind: Any = TF.message("tensorflow.TensorProto")
    message: Any = PREDICTED()
    message.outputs["y"].CopyFrom(kind(**{"dtype": 1, "tensor_shape": {"dim": [{"size": 2}]}, **change}))
    x = settle(tf(outputs=["y"]), [message.SerializeToString()])
    assert (x.status == Status.OK) is (said is None)
    assert said is None or said in (x.error or "")
    assert "lacks the outputs z" in (settle(tf(outputs=["z"]), [message.SerializeToString()]).error or "") or said


def test_no_outputs_are_a_failure() -> None:
    assert "holds no outputs" in (settle(tf(), [b""]).error or "")


# -- TorchServe
# ---------------------------------------------------------------------------------------------------------


def torch(**options: Any) -> TorchServeGrpcDialect:
    return TorchServeGrpcDialect(Target("grpc://h:1", "torchserve-grpc", "m", (), options))


def test_torchserve_sends_the_prompt_the_data_or_a_body() -> None:
    kind: Any = shipped("torchserve").message("org.pytorch.serve.grpc.inference.PredictionsRequest")
    cases: list[tuple[dict[str, Any], Payload, bytes]] = [
        ({}, Payload(prompt="hi"), b"hi"),
        ({}, Payload(data={"a": 1}), b'{"a":1}'),
        ({"body": "<{{ prompt }}>", "input_name": "body"}, Payload(prompt="hi"), b"<hi>"),
    ]
    for options, payload, body in cases:
        request = torch(**options).encode(payload)
        message = kind.FromString(request.messages[0])
        assert dict(message.input) == {options.get("input_name", "data"): body}
        assert request.method.endswith("/Predictions")
    assert torch(stream=True).encode(Payload(prompt="x")).method.endswith("/StreamPredictions")
    with pytest.raises(HarnessFault, match="neither a prompt nor data"):
        torch().encode(Payload())


def test_torchserves_pieces_are_chunks_and_its_status_a_failure() -> None:
    kind: Any = shipped("torchserve").message("org.pytorch.serve.grpc.inference.PredictionResponse")
    pieces = [kind(prediction=data).SerializeToString() for data in (b"a", b"", b"b")]
    x = settle(torch(stream=True), pieces)
    assert (x.status, list(x.chunk_ns)) == (Status.OK, [MS, 3 * MS])
    assert "no output" in (settle(torch(stream=True), []).error or "")
    failed = kind(status={"code": 8, "message": "queue full"}).SerializeToString()
    x = settle(torch(stream=True), [pieces[0], failed])
    assert (Status(x.status), x.n_chunks, x.error) == (Status.REFUSED, 1, "gRPC RESOURCE_EXHAUSTED: queue full")
    assert settle(torch(), [pieces[0]]).n_chunks == 0


# -- what an accuracy run keeps
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", [True, False])
def test_the_answer_is_a_text_or_a_tensor(typed: bool) -> None:
    data = answer(NUMBERS, texts("hi"), typed=typed).SerializeToString()
    x = finished([data], 0, None)
    numbers = kserve().answer(x)
    assert numbers is not None
    assert numbers.numbers is not None
    assert (numbers.numbers.tolist(), numbers.shape) == ([1.0] * 4, (2, 2))
    assert kserve(outputs=["text_output"]).answer(x) == Answer("hi")
    assert triton().answer(finished(stream(FIRST, SECOND, LAST))) == Answer("ab")
    assert kserve().answer(finished([b"\xff"])) is None
    assert kserve(outputs=["z"]).answer(x) is None


def test_a_predicted_tensor_is_filled_by_its_last_element() -> None:
    kind: Any = TF.message("tensorflow.TensorProto")
    for change in (
        {"float_val": [2.0]},
        {"tensor_content": np.full(2, 2, "<f4").tobytes()},
        {"dtype": 19, "half_val": [0x4000]},
    ):
        message: Any = PREDICTED()
        message.outputs["y"].CopyFrom(kind(**{"dtype": 1, "tensor_shape": {"dim": [{"size": 2}]}, **change}))
        found = tf().answer(finished([message.SerializeToString()]))
        assert found is not None
        assert found.numbers is not None
        assert (found.numbers.tolist(), found.shape) == ([2.0, 2.0], (2,))
    message = PREDICTED()
    message.outputs["y"].CopyFrom(kind(dtype=7, string_val=[b"hi"]))
    assert tf().answer(finished([message.SerializeToString()])) == Answer("hi")


def test_torchserves_pieces_are_one_text() -> None:
    kind: Any = shipped("torchserve").message("org.pytorch.serve.grpc.inference.PredictionResponse")
    assert torch().answer(finished([kind(prediction=b"a").SerializeToString()] * 2)) == Answer("aa")
