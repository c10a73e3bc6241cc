"""Tensors survive the wire bit for bit, as JSON and as bytes; whatever is wrong with a request is a 400 that names the
tensor. Tensors are exactly what a model declares, or are refused by name. Statistics of tensor requests are sums of
what the stages say, by Triton's names, and failures are counted apart.
"""

from __future__ import annotations

import contextlib
import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from plimsoll.reference_server.dialects.kserve_http import Parsed, parse_inputs, parse_request, reply, split_body
from plimsoll.reference_server.dialects.open_inference import InferRequest, chosen, deadline, wishes
from plimsoll.reference_server.seams.models import Script
from plimsoll.reference_server.seams.truth import ModelStatistics, Statistics
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.values.durations import Stages
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import (
    NUMPY,
    Tensor,
    TensorSpec,
    bytes_tensor,
    checked,
    from_bytes,
    n_samples,
    objects,
    to_bytes,
)

HEADER = "Inference-Header-Content-Length"
NUMBERS = sorted(set(NUMPY) - {"BYTES"})


def fields(**change: Any) -> Fields:
    return Fields({"inputs": [{"name": "a", "datatype": "INT8", "shape": [2, 2], "data": [[1, 2], [3, 4]], **change}]})


@st.composite
def tensors(draw: st.DrawFn, *, finite: bool) -> Tensor:
    datatype = draw(st.sampled_from(sorted(NUMPY)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    n = int(np.prod(shape))
    if datatype == "BYTES":
        # JSON can say UTF-8 only.
        element = st.text().map(str.encode) if finite else st.binary()
        return Tensor("a", datatype, objects(draw(st.lists(element, min_size=n, max_size=n))).reshape(shape))
    elements = None
    if finite and datatype.startswith("FP"):
        elements = st.floats(allow_nan=False, allow_infinity=False, width=NUMPY[datatype].itemsize * 8)
    return Tensor("a", datatype, draw(arrays.arrays(NUMPY[datatype], shape, elements=elements)))


def same(one: Tensor, other: Tensor) -> bool:
    """The same bits, so that NaN is NaN and -0.0 is not 0.0."""
    return (one.name, one.datatype, one.data.shape, to_bytes(one)) == (
        other.name,
        other.datatype,
        other.data.shape,
        to_bytes(other),
    )


@given(tensors(finite=False))
def test_raw_bytes_hold_every_tensor_exactly(tensor: Tensor) -> None:
    assert same(from_bytes("a", tensor.datatype, tensor.data.shape, to_bytes(tensor)), tensor)


@given(tensors(finite=False), st.binary(max_size=40))
def test_bytes_are_the_tensor_that_they_were_said_to_be_or_refused_with_its_name(tensor: Tensor, raw: bytes) -> None:
    read = None
    with contextlib.suppress(RequestError):
        read = from_bytes("a", tensor.datatype, tensor.data.shape, raw)
    if read is not None:
        assert to_bytes(read) == raw
        return
    with pytest.raises(RequestError, match="'a'") as caught:
        from_bytes("a", tensor.datatype, tensor.data.shape, raw)
    assert (caught.value.status, caught.value.param) == (400, "a")


@given(st.lists(tensors(finite=True), min_size=1, max_size=3), st.booleans(), st.booleans())
def test_a_reply_read_as_a_request_gives_its_tensors(given_: list[Tensor], binary: bool, mixed: bool) -> None:
    named = [Tensor(f"t{i}", tensor.datatype, tensor.data) for i, tensor in enumerate(given_)]
    by_output = {"t0": not binary} if mixed else {}
    body, n_json = reply(Parsed(InferRequest("m", "7", []), binary, by_output), named)
    head, tail = split_body(body, None if n_json is None else str(n_json))
    values = json.loads(head)
    assert (values["model_name"], values["id"]) == ("m", "7")
    parsed = parse_request(Fields({"inputs": values["outputs"]}), "m", tail)
    assert all(same(read, sent) for read, sent in zip(parsed.request.tensors, named, strict=True))
    assert ("binary_data_size" in str(values)) == (binary if not mixed else (not binary or (binary and len(named) > 1)))


def test_the_bytes_on_the_wire_are_little_endian_without_padding() -> None:
    assert to_bytes(Tensor("a", "INT32", np.array([1, -2], np.int32))) == bytes.fromhex("01000000 feffffff")
    assert to_bytes(Tensor("a", "FP16", np.array([1.5], np.float16))) == bytes.fromhex("003e")
    assert to_bytes(Tensor("a", "BOOL", np.array([True, False]))) == b"\x01\x00"
    assert to_bytes(Tensor("a", "BYTES", objects([b"ab", b""]))) == b"\x02\0\0\0ab\0\0\0\0"


def test_tensors_are_read_in_row_major_order() -> None:
    (read,) = parse_inputs(fields())
    assert read.data.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"datatype": "INT7"}, "inputs[0].datatype"),
        ({"datatype": "BF16"}, "inputs[0].datatype"),
        ({"shape": [3]}, "inputs[0].data"),
        ({"shape": [-1]}, "inputs[0].shape"),
        ({"shape": [2.0, 2]}, "inputs[0].shape"),
        ({"shape": [True, 4]}, "inputs[0].shape"),
        ({"shape": [1] * 33}, "inputs[0].shape"),
        ({"shape": [2**31]}, "inputs[0].shape"),
        ({"shape": None}, "inputs[0].shape"),
        ({"shape": [0, 2**31 - 1, 2**31 - 1, 2**31 - 1], "data": []}, "a"),
        ({"data": [1, 2, 3, 128]}, "inputs[0].data"),
        ({"data": [1, 2, 3, True]}, "inputs[0].data"),
        ({"data": [1, 2, 3, 4.0]}, "inputs[0].data"),
        ({"data": None}, "inputs[0].data"),
        ({"data": 5}, "inputs[0].data"),
        ({"datatype": "FP16", "data": [1, 2, 3, 65520]}, "inputs[0].data"),
        ({"datatype": "FP64", "data": [1, 2, 3, 10**400]}, "inputs[0].data"),
        ({"datatype": "BOOL", "data": [1, 0, 1, 0]}, "inputs[0].data"),
        ({"datatype": "BYTES", "data": ["a", "b", "c", "\ud800"]}, "inputs[0].data"),
        ({"name": 3}, "inputs[0].name"),
        ({"parameters": {"binary_data_size": 4}}, "inputs[0].data"),
        ({"data": None, "parameters": {"binary_data_size": 4}}, "inputs[0].parameters.binary_data_size"),
        ({"data": None, "parameters": {"binary_data_size": "4"}}, "inputs[0].parameters.binary_data_size"),
        ({"parameters": 4}, "inputs[0].parameters"),
    ],
)
def test_a_bad_tensor_is_a_400_that_names_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request(fields(**change), "m")
    assert (caught.value.status, caught.value.param) == (400, field)
    if field.endswith(("datatype", "shape", "data")):
        assert "'a'" in caught.value.message


def binary(*parts: dict[str, Any], tail: bytes, header: str | None = None, **more: Any) -> InferRequest:
    inputs = [{"name": f"t{i}", "datatype": "FP16", "shape": [2], **part} for i, part in enumerate(parts)]
    head = json.dumps({"inputs": inputs, **more}).encode()
    json_part, rest = split_body(head + tail, header or str(len(head)))
    return parse_request(Fields.parse(json_part), "m", rest).request


def test_binary_tensors_follow_the_json_in_the_order_of_their_announcement() -> None:
    mixed = [{"parameters": {"binary_data_size": 4}}, {"data": [3, 4]}, {"parameters": {"binary_data_size": 4}}]
    request = binary(*mixed, tail=struct.pack("<4e", 1, 2, 5, 6))
    assert [tensor.data.tolist() for tensor in request.tensors] == [[1, 2], [3, 4], [5, 6]]
    assert all(tensor.data.flags.writeable for tensor in request.tensors)


@pytest.mark.parametrize(
    ("part", "tail", "said"),
    [
        ({"parameters": {"binary_data_size": 4}}, b"\0\0", "'t0': announces 4 bytes, but only 2"),
        ({"parameters": {"binary_data_size": 4}}, b"\0" * 6, "2 bytes after the last tensor"),
        ({"parameters": {"binary_data_size": 6}}, b"\0" * 6, "'t0': has 6 bytes, FP16 of shape [2] takes 4"),
        ({"datatype": "BOOL", "parameters": {"binary_data_size": 2}}, b"\0\2", "'t0': BOOL takes"),
        ({"datatype": "BYTES", "parameters": {"binary_data_size": 8}}, b"\1\0\0\0\0\0\0\0", "'t0': its 8 bytes"),
        ({"datatype": "BYTES", "parameters": {"binary_data_size": 8}}, b"\xff" * 8, "'t0': its 8 bytes"),
        ({"datatype": "BYTES", "parameters": {"binary_data_size": 3}}, b"\0\0\0", "'t0': has 3 bytes"),
        ({"datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 9}}, b"\0" * 9, "'t0': its 9 bytes"),
        ({"data": [1, 2]}, b"\0", "1 bytes after the last tensor"),
        ({}, b"", "'t0'"),
    ],
)
def test_sizes_that_do_not_agree_are_a_400_that_names_the_tensor(part: dict[str, Any], tail: bytes, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        binary(part, tail=tail)
    assert caught.value.status == 400
    assert said in caught.value.message


@pytest.mark.parametrize("header", ["", "x", "-1", "1e3", "99999", "9" * 50, "²"])
def test_a_header_that_is_no_length_within_the_body_is_a_400(header: str) -> None:
    with pytest.raises(RequestError, match=HEADER):
        split_body(b"{}", header)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["FP16", "BYTES", "BOOL"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "inputs",
                    "outputs",
                    "name",
                    "datatype",
                    "shape",
                    "data",
                    "parameters",
                    "binary_data_size",
                    "binary_data",
                    "priority",
                    "timeout",
                    "id",
                    "plimsoll",
                ]
            ),
            inner,
        )
    ),
    max_leaves=30,
)


@given(
    st.dictionaries(st.sampled_from(["inputs", "outputs", "parameters", "id", "plimsoll"]), JSON),
    st.binary(max_size=30),
)
def test_garbage_raises_only_the_documented_error(values: dict[str, Any], tail: bytes) -> None:
    for _ in range(2):
        with contextlib.suppress(RequestError):
            parse_request(Fields(values), "m", split_body(tail, "0")[1])
        # Once more with a frame that is right, so that the depths are reached.
        values = {"inputs": [{"name": "a", "datatype": "BYTES", "shape": [1], **values}]}


def test_outputs_choose_what_is_sent_and_how() -> None:
    asked = fields()
    asked.values["outputs"] = [{"name": "b", "parameters": {"binary_data": False}}, {"name": "a"}]
    asked.values["parameters"] = {"binary_data_output": True}
    parsed = parse_request(asked, "m")
    made = [Tensor(name, "UINT8", np.array([1], np.uint8)) for name in ("a", "b", "c")]
    body, n_json = reply(parsed, chosen(made, parsed.request.outputs))
    assert json.loads(body[:n_json])["outputs"] == [
        {"name": "b", "datatype": "UINT8", "shape": [1], "data": [1]},
        {"name": "a", "datatype": "UINT8", "shape": [1], "parameters": {"binary_data_size": 1}},
    ]
    assert body[n_json:] == b"\x01"
    with pytest.raises(RequestError, match="'d' is no output"):
        chosen(made, ["a", "d"])


@pytest.mark.parametrize(
    ("tensor", "said"),
    [(Tensor("a", "FP32", np.array([np.nan], np.float32)), "NaN"), (Tensor("a", "BYTES", objects([b"\xff"])), "UTF-8")],
)
def test_what_json_cannot_say_is_refused_with_the_way_round_it(tensor: Tensor, said: str) -> None:
    with pytest.raises(RequestError, match=rf"'a' holds .*{said}.*binary_data") as caught:
        reply(Parsed(InferRequest("m", "", []), False, {}), [tensor])
    assert caught.value.status == 400
    assert reply(Parsed(InferRequest("m", "", []), True, {}), [tensor])[1] is not None


def test_parameters_become_wishes_and_a_timeout_a_deadline() -> None:
    wish = wishes(
        Fields({"priority": 3, "timeout": 250, "max_tokens": 9, "sequence_id": 5, "ignore_eos": True}), Script()
    )
    assert (wish.priority, wish.timeout_ns, wish.max_new, wish.ignore_eos) == (3, 250_000, 9, True)
    assert deadline(1_000, wish) == 251_000
    assert deadline(1_000, wish, 5_000) == 5_000
    assert deadline(1_000, wishes(Fields({"timeout": 0}), Script())) == -1
    for bad in ({"timeout": -1}, {"timeout": "1"}, {"priority": 1.5}, {"priority": 101}, {"max_tokens": 0}):
        with pytest.raises(RequestError, match=next(iter(bad))):
            wishes(Fields(bad), Script())


# -- tensors --------------------------------------------------------------------------------------------------------

SPECS = (TensorSpec("a", "FP32", (-1, 2)), TensorSpec("b", "INT64", (-1,)))


def a(*shape: int) -> Tensor:
    return Tensor("a", "FP32", np.zeros(shape, dtype=np.float32))


def b(*shape: int) -> Tensor:
    return Tensor("b", "INT64", np.zeros(shape, dtype=np.int64))


def test_tensors_that_fit_are_found_by_name_in_any_order_and_counted() -> None:
    by_name = checked([b(3), a(3, 2)], SPECS)
    assert set(by_name) == {"a", "b"}
    assert n_samples(by_name, SPECS) == 3


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([a(1, 2)], "b: is missing. The model takes a, b"),
        ([a(1, 2), b(1), a(1, 2)], "inputs: name a tensor twice. Give each once"),
        ([a(1, 2), b(1), Tensor("c", "FP32", np.zeros(1))], "c: is no input of this model. It takes a, b"),
        ([Tensor("a", "FP64", np.zeros((1, 2))), b(1)], "a: has datatype FP64, the model takes FP32"),
        ([a(1, 3), b(1)], "a: has shape [1, 3], the model takes [-1, 2] (-1: any size)"),
        ([a(2), b(1)], "a: has shape [2], the model takes [-1, 2] (-1: any size)"),
        ([a(2, 2), b(3)], "b: holds 3 samples, a holds 2. Give each input the same number of rows"),
        ([a(0, 2), b(0)], "a: holds no samples. Give at least one row"),
    ],
)
def test_what_does_not_fit_is_a_400_that_says_what_and_what_would(tensors: list[Tensor], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        n_samples(checked(tensors, SPECS), SPECS)
    assert (caught.value.status, caught.value.code, caught.value.message) == (400, "invalid_tensor", message)


def test_a_tensor_of_bytes_keeps_every_byte() -> None:
    values = [b"", b"a\0", b"\xff\xd8\0\0"]
    tensor = bytes_tensor("x", values)
    assert (tensor.datatype, tensor.data.dtype, tensor.data.shape) == ("BYTES", NUMPY["BYTES"], (3,))
    assert tensor.data.tolist() == values


def test_a_declaration_is_written_as_the_protocol_has_it() -> None:
    assert SPECS[0].as_json() == {"name": "a", "datatype": "FP32", "shape": [-1, 2]}


# -- statistics -----------------------------------------------------------------------------------------------------

STAGES = ("queue", "preprocess", "preprocess.resize", "prefill", "decode", "inference", "postprocess")


@given(st.lists(st.dictionaries(st.sampled_from(STAGES), st.integers(0, 10**12)), max_size=5))
def test_totals_are_the_sums_of_the_stages_without_their_parts(requests: list[dict[str, int]]) -> None:
    kept = ModelStatistics()
    for spans in requests:
        kept.note(Stages(spans), sum(spans.values()), n_samples=2, now_ms=7)
    totals = kept.totals()
    named = {
        "queue": ["queue"],
        "compute_input": ["preprocess"],
        "compute_infer": ["prefill", "decode", "inference"],
        "compute_output": ["postprocess"],
    }
    for name, stages in named.items():
        assert totals[name].ns == sum(spans.get(stage, 0) for spans in requests for stage in stages)
        assert totals[name].count == len(requests)
    assert totals["success"].ns == sum(sum(spans.values()) for spans in requests)
    assert (kept.n_samples, totals["fail"].count) == (2 * len(requests), 0)


def test_a_failure_adds_nothing_to_the_stages() -> None:
    kept = Statistics().of("m")
    kept.note_failure(5, now_ms=9)
    row = kept.as_json("m", 0)
    assert row["inference_stats"]["fail"] == {"count": 1, "ns": 5}
    assert (row["inference_stats"]["success"]["count"], row["inference_stats"]["queue"]["count"]) == (0, 0)
    assert (row["inference_count"], row["last_inference"]) == (0, 9)
