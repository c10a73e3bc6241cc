"""Tensors to bytes and back as the Open Inference Protocol lays them out, over HTTP and gRPC alike. Pure.

Numbers are little-endian in row-major order without padding, BOOL is one byte of 0 or 1, an element of BYTES is its length as
uint32 and then itself. Whatever does not fit is refused with the tensor's name; it never guesses a shape or a datatype.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import NUMPY, Tensor

MAX_DIMENSIONS = 32
MAX_SIZE = 2**31 - 1
"""Largest size of one dimension: beyond it no message could hold the tensor."""


def wrong(name: str, message: str, param: str = "") -> RequestError:
    """The 400 for a tensor; ``param`` is the place in the request, by default the tensor's name."""
    return RequestError(400, f"tensor {name!r}: {message}", param=param or name, code="invalid_tensor")


def checked_type(name: str, datatype: str) -> np.dtype[Any]:
    """The dtype of a datatype. Raises RequestError 400 for an unknown one."""
    dtype = NUMPY.get(datatype)
    if dtype is None:
        raise wrong(name, f"datatype {datatype!r} is unknown. Known: {', '.join(NUMPY)}")
    return dtype


def checked_shape(name: str, shape: Sequence[object]) -> tuple[int, ...]:
    """A shape of whole sizes. Raises RequestError 400."""
    sizes = [size for size in shape if type(size) is int and 0 <= size <= MAX_SIZE]
    if len(sizes) != len(shape) or len(shape) > MAX_DIMENSIONS:
        raise wrong(name, f"the shape must hold at most {MAX_DIMENSIONS} integers from 0 to {MAX_SIZE}")
    return tuple(sizes)


def shaped(name: str, datatype: str, shape: tuple[int, ...], flat: npt.NDArray[Any]) -> Tensor:
    """The tensor of elements in row-major order. Raises RequestError 400 when there are more or fewer than the shape asks for."""
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
    """A flat array of BYTES."""
    made = np.empty(len(elements), np.object_)
    made[:] = elements
    return made


def to_bytes(tensor: Tensor) -> bytes:
    """What the wire holds for a tensor."""
    if tensor.datatype == "BYTES":
        return b"".join(struct.pack("<I", len(element)) + element for element in tensor.data.ravel())
    return np.ascontiguousarray(tensor.data, NUMPY[tensor.datatype].newbyteorder("<")).tobytes()
