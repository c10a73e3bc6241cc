"""Named tensors with the Open Inference Protocol's datatypes, as numpy arrays and as bytes. Pure.

BYTES is an array of dtype object that holds ``bytes``. On the wire numbers are little-endian in row-major order, BOOL
is one byte of 0 or 1, an element of BYTES is its length as uint32 and then itself.
"""

from __future__ import annotations

import math
import struct
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
MAX_DIMENSIONS = 32
MAX_SIZE = 2**31 - 1
"""Largest size of one dimension: beyond it no message could hold the tensor."""


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
    """How many samples a request of checked tensors holds: its leading size. Raises RequestError 400."""
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


def wrong(name: str, message: str, param: str = "") -> RequestError:
    return RequestError(400, f"tensor {name!r}: {message}", param=param or name, code="invalid_tensor")


def checked_type(name: str, datatype: str) -> np.dtype[Any]:
    dtype = NUMPY.get(datatype)
    if dtype is None:
        raise wrong(name, f"datatype {datatype!r} is unknown. Known: {', '.join(NUMPY)}")
    return dtype


def checked_shape(name: str, shape: Sequence[object]) -> tuple[int, ...]:
    sizes = [size for size in shape if type(size) is int and 0 <= size <= MAX_SIZE]
    if len(sizes) != len(shape) or len(shape) > MAX_DIMENSIONS:
        raise wrong(name, f"the shape must hold at most {MAX_DIMENSIONS} integers from 0 to {MAX_SIZE}")
    return tuple(sizes)


def shaped(name: str, datatype: str, shape: tuple[int, ...], flat: npt.NDArray[Any]) -> Tensor:
    """The tensor of elements in row-major order. Raises RequestError 400 when their number does not fit."""
    if len(flat) != math.prod(shape):
        raise wrong(name, f"has {len(flat)} elements, the shape {list(shape)} asks for {math.prod(shape)}")
    try:
        return Tensor(name, datatype, flat.reshape(shape))
    except ValueError as error:  # nothing in it, but sizes whose product no index can count
        raise wrong(name, f"has an impossible shape {list(shape)}: {error}") from None


def from_bytes(name: str, datatype: str, shape: tuple[int, ...], raw: bytes | memoryview) -> Tensor:
    """The tensor in ``raw``, as a copy that may be written to. Raises RequestError 400."""
    dtype = checked_type(name, datatype)
    n = math.prod(shape)
    if datatype == "BYTES":
        return shaped(name, datatype, shape, _elements(name, n, bytes(raw)))
    if len(raw) != n * dtype.itemsize:
        raise wrong(name, f"has {len(raw)} bytes, {datatype} of shape {list(shape)} takes {n * dtype.itemsize}")
    if datatype == "BOOL" and raw and max(raw) > 1:
        raise wrong(name, "BOOL takes bytes of 0 and 1")
    return shaped(name, datatype, shape, np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype))


def _elements(name: str, n: int, raw: bytes) -> npt.NDArray[np.object_]:
    if len(raw) < 4 * n:
        raise wrong(name, f"has {len(raw)} bytes, which is too little for {n} elements of BYTES")
    found: list[bytes] = []
    at = 0
    while at < len(raw) and len(found) < n:
        begin = at + 4
        if begin > len(raw):
            break
        at = begin + int(struct.unpack_from("<I", raw, at)[0])
        found.append(raw[begin:at])
    if at != len(raw) or len(found) != n:
        raise wrong(name, f"its {len(raw)} bytes are not {n} elements, each after its length as uint32")
    return objects(found)


def objects(elements: Sequence[bytes]) -> npt.NDArray[np.object_]:
    made = np.empty(len(elements), np.object_)
    made[:] = elements
    return made


def to_bytes(tensor: Tensor) -> bytes:
    if tensor.datatype == "BYTES":
        return b"".join(struct.pack("<I", len(element)) + element for element in tensor.data.ravel())
    return np.ascontiguousarray(tensor.data, NUMPY[tensor.datatype].newbyteorder("<")).tobytes()
