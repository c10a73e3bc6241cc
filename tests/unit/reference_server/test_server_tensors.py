"""Tensors are exactly what a model declares, or are refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import NUMPY, Tensor, TensorSpec, bytes_tensor, checked, n_samples

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
