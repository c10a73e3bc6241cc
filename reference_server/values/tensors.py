"""Named tensors as models and front-ends exchange them: numpy arrays with the Open Inference Protocol's datatypes. Pure.

BYTES is an array of dtype object that holds ``bytes``. It refuses what a model did not declare: names, datatypes, shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.values.errors import RequestError

NUMPY: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}
"""Datatype to dtype, as it lies in memory; on the wire numbers are little-endian."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One named tensor; its shape is the array's."""

    name: str
    datatype: str
    data: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What a model takes or gives: -1 stands for any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """The declaration as the protocol's metadata writes it."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


def bytes_tensor(name: str, values: Sequence[bytes]) -> Tensor:
    """A BYTES tensor of one dimension."""
    data = np.empty(len(values), dtype=NUMPY["BYTES"])
    data[:] = list(values)
    return Tensor(name, "BYTES", data)


def checked(tensors: Sequence[Tensor], specs: Sequence[TensorSpec]) -> Mapping[str, Tensor]:
    """The tensors by name, when they are exactly what the specs declare. Raises RequestError 400 naming the tensor."""
    by_name = {tensor.name: tensor for tensor in tensors}
    known = ", ".join(spec.name for spec in specs)
    if len(by_name) != len(tensors):
        raise _wrong("inputs", "name a tensor twice. Give each once")
    for name in by_name:
        if name not in {spec.name for spec in specs}:
            raise _wrong(name, f"is no input of this model. It takes {known}")
    for spec in specs:
        given = by_name.get(spec.name)
        if given is None:
            raise _wrong(spec.name, f"is missing. The model takes {known}")
        if given.datatype != spec.datatype:
            raise _wrong(spec.name, f"has datatype {given.datatype}, the model takes {spec.datatype}")
        shape = given.data.shape
        fits = len(shape) == len(spec.shape) and all(w in (-1, s) for w, s in zip(spec.shape, shape, strict=True))
        if not fits:
            raise _wrong(spec.name, f"has shape {list(shape)}, the model takes {list(spec.shape)} (-1: any size)")
    return by_name


def n_samples(by_name: Mapping[str, Tensor], specs: Sequence[TensorSpec]) -> int:
    """How many samples a request of checked tensors holds: the leading size where the spec says any. Raises RequestError 400."""
    counts = {spec.name: by_name[spec.name].data.shape[0] for spec in specs if spec.shape[0] == -1}
    first, n = next(iter(counts.items()))
    for name, other in counts.items():
        if other != n:
            raise _wrong(name, f"holds {other} samples, {first} holds {n}. Give each input the same number of rows")
    if n == 0:
        raise _wrong(first, "holds no samples. Give at least one row")
    return int(n)


def _wrong(name: str, message: str) -> RequestError:
    return RequestError(400, f"{name}: {message}", param=name, code="invalid_tensor")
