"""The Open Inference Protocol dialect."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols.kserve import KserveDialect
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status
from tests.finished import finished

TENSOR = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}


def dialect(url: str = "http://h:1", model: str = "m", **options: Any) -> KserveDialect:
    return KserveDialect(Target(url, "kserve-v2", model, (), options))


def settled(answer: Any, headers: tuple[tuple[bytes, bytes], ...] = (), **options: Any) -> Exchange:
    body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    exchange = finished([body], content_type="application/json", headers=headers)
    dialect(**options).settle(exchange)
    return exchange


@pytest.mark.parametrize(
    ("url", "options", "path"),
    [
        ("http://h:1", {}, "/v2/models/m/infer"),
        ("http://h:1/v2", {}, "/v2/models/m/infer"),
        ("http://h:1/v2/models/m/infer", {}, "/v2/models/m/infer"),
        ("http://h:1/base", {"model_version": "3"}, "/base/v2/models/m/versions/3/infer"),
        ("http://h:1", {"path": "/x"}, "/x"),
    ],
)
def test_the_path_names_the_model_and_its_version(url: str, options: dict[str, Any], path: str) -> None:
    head = dialect(url, **options).encode(Payload(prompt="hi")).head
    assert head.startswith(f"POST {path} HTTP/1.1\r\n".encode())


def test_a_model_name_is_percent_encoded() -> None:
    assert b"/v2/models/a%2Fb%20c/infer " in dialect(model="a/b c").encode(Payload(prompt="x")).head


def test_a_missing_model_name_is_refused() -> None:
    with pytest.raises(HarnessFault, match=r"target\.model"):
        dialect(model="")


def test_tensors_and_numpy_arrays_are_sent_in_the_protocols_shape() -> None:
    array = {**TENSOR, "data": np.arange(4, dtype=np.float32).reshape(2, 2)}
    body = orjson.loads(dialect(outputs=["y"], parameters={"p": 1}).encode(Payload(data={"inputs": [array]})).body)
    assert body == {
        "inputs": [{**TENSOR, "data": [[0.0, 1.0], [2.0, 3.0]]}],
        "outputs": [{"name": "y"}],
        "parameters": {"p": 1},
    }


def test_a_prompt_becomes_one_bytes_tensor() -> None:
    options = {"prompt_input": "text", "prompt_shape": [1, 1]}
    body = orjson.loads(dialect(**options).encode(Payload(prompt="hi")).body)
    assert body == {"inputs": [{"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": ["hi"]}]}


@pytest.mark.parametrize(
    ("inputs", "part"),
    [
        ([], "no data"),
        ([{"name": "x"}], "no known datatype"),
        ([{**TENSOR, "shape": [3]}], "4 elements, not the 3"),
        ([{**TENSOR, "shape": [-1]}], "has no shape"),
        ([{key: TENSOR[key] for key in ("name", "shape", "datatype")}], "no data"),
        ([1], "not a mapping"),
        ([{**TENSOR, "data": [object()] * 4}], "can't be written as JSON"),
    ],
)
def test_a_payload_that_is_no_tensor_is_refused_before_the_run(inputs: list[Any], part: str) -> None:
    with pytest.raises(HarnessFault, match=part):
        dialect().encode(Payload(data={"inputs": inputs}))


def test_a_well_formed_answer_is_a_success() -> None:
    answer = {"model_name": "m", "id": "1", "outputs": [{**TENSOR, "name": "y"}]}
    x = settled(answer, outputs=["y"])
    assert (x.status, x.error, x.n_chunks) == (Status.OK, None, 0)


@pytest.mark.parametrize(
    ("answer", "status", "part"),
    [
        ({"error": "model is not ready"}, Status.HTTP, "model is not ready"),
        ({}, Status.PROTOCOL, "no outputs"),
        ({"outputs": []}, Status.PROTOCOL, "no outputs"),
        ({"outputs": [{**TENSOR, "data": [1]}]}, Status.PROTOCOL, "1 elements, not the 4"),
        ({"outputs": [{**TENSOR, "datatype": "COMPLEX"}]}, Status.PROTOCOL, "no known datatype"),
        (b"nope", Status.PROTOCOL, "not JSON"),
    ],
)
def test_a_200_without_the_tensors_is_a_failure(answer: Any, status: Status, part: str) -> None:
    x = settled(answer)
    assert x.status == status
    assert part in (x.error or "")


def test_an_output_that_was_asked_for_and_is_missing_is_a_failure() -> None:
    x = settled({"outputs": [TENSOR]}, outputs=["x", "z"])
    assert (x.status, x.error) == (Status.PROTOCOL, "the response lacks the outputs z")


def test_the_json_before_binary_tensors_is_what_is_checked() -> None:
    answer = orjson.dumps({"outputs": [{key: TENSOR[key] for key in ("name", "shape", "datatype")}]})
    length = (b"inference-header-content-length", str(len(answer)).encode())
    assert settled(answer + b"\0" * 16, (length,)).status == Status.OK
    assert settled(answer, ((length[0], b"9999"),)).status == Status.PROTOCOL


def binary_answer(data: bytes, size: int | None = None) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
    """A response with one tensor of raw bytes, and the header that says where they begin."""
    described = {**{key: TENSOR[key] for key in ("name", "shape", "datatype")}}
    described["parameters"] = {"binary_data_size": len(data) if size is None else size}
    header = orjson.dumps({"outputs": [described]})
    return header + data, ((b"inference-header-content-length", str(len(header)).encode()),)


def test_binary_tensors_follow_the_json_in_its_order_as_raw_little_endian_bytes() -> None:
    image = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
    inputs = [
        {"name": "image", "shape": [1, 2, 3], "datatype": "UINT8", "data": image},
        {"name": "scale", "shape": [2], "datatype": "FP16", "data": [1.0, 0.5]},
        {"name": "words", "shape": [2], "datatype": "BYTES", "data": ["a", "bc"]},
    ]
    request = dialect(binary=True).encode(Payload(data={"inputs": inputs}))
    length = int(request.head.split(b"inference-header-content-length: ")[1].split(b"\r\n")[0])
    header = orjson.loads(request.body[:length])
    assert [tensor["parameters"]["binary_data_size"] for tensor in header["inputs"]] == [6, 4, 11]
    assert all("data" not in tensor for tensor in header["inputs"])
    assert header["parameters"] == {"binary_data_output": True}
    assert request.body[length:] == bytes(range(6)) + b"\x00\x3c\x00\x38" + b"\1\0\0\0a\2\0\0\0bc"
    assert b"content-type: application/octet-stream" in request.head


def test_named_outputs_are_asked_for_as_bytes_one_by_one() -> None:
    request = dialect(binary=True, outputs=["y"]).encode(Payload(data={"inputs": [TENSOR]}))
    assert b'"outputs":[{"name":"y","parameters":{"binary_data":true}}]' in request.body


def raw(tensor: dict[str, Any]) -> bytes:
    request = dialect(binary=True).encode(Payload(data={"inputs": [tensor]}))
    return request.body[int(request.head.split(b"content-length: ")[1].split(b"\r\n")[0]) :]


def test_bytes_keep_their_trailing_zeros() -> None:
    tensor = {"name": "x", "shape": [1], "datatype": "BYTES", "data": [b"ab\0\0"]}
    assert raw(tensor) == b"\4\0\0\0ab\0\0"


def test_bf16_is_float32_rounded_to_its_upper_half() -> None:
    tensor = {"name": "x", "shape": [3], "datatype": "BF16", "data": [1.0, -2.0, 1.00390625]}
    assert raw(tensor) == b"\x80\x3f\x00\xc0\x80\x3f"


def test_raw_bytes_that_are_not_what_the_json_announces_are_a_failure() -> None:
    whole, head = binary_answer(bytes(16))
    assert settled(whole, head).status == Status.OK
    short, head = binary_answer(bytes(12), size=16)
    x = settled(short, head)
    assert (x.status, x.error) == (Status.PROTOCOL, "the response announces 16 bytes of tensors and brings 12")


def test_an_input_that_does_not_fit_its_datatype_is_refused_before_the_run() -> None:
    with pytest.raises(HarnessFault, match="UINT8"):
        dialect(binary=True).encode(
            Payload(data={"inputs": [{"name": "x", "shape": [1], "datatype": "UINT8", "data": ["a"]}]})
        )
