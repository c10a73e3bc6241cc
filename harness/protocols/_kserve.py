"""This module writes tensors of the Open Inference Protocol into raw or typed contents, and checks those of an answer.

Raw contents are little-endian, row by row, BYTES elements each after their length (uint32); FP16 and BF16 exist only
raw. It knows no transport.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.outcome import shown

if TYPE_CHECKING:  # of accuracy runs alone
    from plimsoll.slo.verdict.accuracy import Answer

#: V2 datatypes as numpy has them; BF16 travels as the upper half of a float32.
DTYPES = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "BF16": "<u2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
#: Which field of typed contents holds a datatype.
CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
#: As numpy's limit. Without one the product of a hostile shape is a number too long to write into the error text.
MAX_DIMENSIONS = 64
#: Elements of a BYTES tensor whose lengths are gone through: the rest is taken on trust.
_MAX_WALK = 4096
_MAX_ERRORS = 10


class Tensor:
    """One input, ready for either form of contents. Raises ValueError for what is no tensor."""

    __slots__ = ("array", "datatype", "name", "shape")

    def __init__(self, given: Any) -> None:
        problem = description_problem(given)
        if problem is not None:
            raise ValueError(problem)
        name, datatype = given["name"], given["datatype"]
        if "data" not in given:
            raise ValueError(f"tensor {shown(name, 60)!r} has no data")
        self.name, self.datatype = name, datatype
        self.shape = [int(size) for size in given["shape"]]
        self.array = _elements(name, datatype, given["data"])
        if len(self.array) != prod(self.shape):
            raise ValueError(
                f"tensor {shown(name, 60)!r} has {len(self.array)} elements, not the {prod(self.shape)} of its shape"
            )

    def raw(self) -> bytes:
        """Raw contents."""
        if self.datatype == "BYTES":
            return b"".join(struct.pack("<I", len(item)) + item for item in self.array)
        return bytes(self.array.tobytes())

    def typed(self) -> Any:
        """The elements for the field ``CONTENTS[datatype]``. Raises ValueError for a datatype that has none."""
        if self.datatype not in CONTENTS:
            raise ValueError(
                f"tensor {shown(self.name, 60)!r}: {self.datatype} has no typed contents. Use contents: raw"
            )
        return self.array if self.datatype == "BYTES" else self.array.tolist()


def tensors(given: Any, what: str) -> list[Tensor]:
    """The inputs in a payload. Raises HarnessFault with everything that is wrong with them."""
    made, errors = [], []
    for i, one in enumerate(given):
        try:
            made.append(Tensor(one))
        except ValueError as error:
            errors.append(f"{what}[{i}]: {error}. Correct it")
    if errors:
        raise HarnessFault(errors[:_MAX_ERRORS])
    return made


def put_tensors(message: Any, made: Sequence[Tensor], raw: bool) -> None:
    """Add the inputs to a ModelInferRequest. Raises HarnessFault for what has no typed contents."""
    errors = []
    for one in made:
        tensor = message.inputs.add(name=one.name, datatype=one.datatype, shape=one.shape)
        if raw:
            message.raw_input_contents.append(one.raw())
            continue
        try:
            getattr(tensor.contents, CONTENTS.get(one.datatype, "bytes_contents")).extend(one.typed())
        except ValueError as error:
            errors.append(f"target.options.contents: {error}")
    if errors:
        raise HarnessFault(errors)


def description_problem(given: Any) -> str | None:
    """Why a value doesn't describe a V2 tensor (by name, datatype and shape), or None."""
    if not isinstance(given, Mapping):
        return "not a mapping of name, shape, datatype and data"
    name, datatype = given.get("name"), given.get("datatype")
    if not isinstance(name, str) or not name:
        return "it has no name"
    if not isinstance(datatype, str) or (datatype not in DTYPES and datatype != "BYTES"):
        return f"tensor {shown(name, 60)!r} has no known datatype (one of {', '.join(sorted([*DTYPES, 'BYTES']))})"
    problem = shape_problem(given.get("shape"))
    return None if problem is None else f"tensor {shown(name, 60)!r} {problem}"


def shape_problem(shape: Any) -> str | None:
    """Why a value is no shape, or None: a list of whole numbers from 0 up."""
    if not isinstance(shape, list | tuple) or not all(type(size) is int and size >= 0 for size in shape):
        return "has no shape (a list of whole numbers, all known)"
    return f"has {len(shape)} dimensions, more than {MAX_DIMENSIONS}" if len(shape) > MAX_DIMENSIONS else None


def response_problem(message: Any, wanted: Sequence[str]) -> str | None:
    """Why a ModelInferResponse can't be what was asked for, or None.

    ``wanted`` names the outputs that must be there.
    """
    outputs, raw = message.outputs, message.raw_output_contents
    if not outputs:
        return "the response holds no outputs"
    if raw and len(raw) != len(outputs):
        return f"{len(raw)} raw_output_contents for {len(outputs)} outputs"
    for i, tensor in enumerate(outputs):
        problem = _output_problem(tensor, raw[i] if raw else None)
        if problem is not None:
            return f"outputs[{i}]: {problem}"
    if not wanted:
        return None
    missing = sorted(set(wanted) - {tensor.name for tensor in outputs})
    return f"the response lacks the outputs {', '.join(missing)}" if missing else None


def says_something(message: Any) -> bool:
    """A ModelInferResponse holds a tensor that isn't an empty text: empty texts close a stream, and are no output."""
    raw = message.raw_output_contents
    for i, tensor in enumerate(message.outputs):
        if tensor.datatype != "BYTES":
            return True
        if i < len(raw):
            if len(raw[i]) > 4 and len(raw[i]) > 4 * prod(tensor.shape[:MAX_DIMENSIONS]):
                return True
        elif any(tensor.contents.bytes_contents):
            return True
    return False


def text_of(message: Any, name: str | None = None) -> str | None:
    """The first element of the BYTES output ``name`` (None: the first one), or None."""
    raw = message.raw_output_contents
    for i, tensor in enumerate(message.outputs):
        if tensor.datatype != "BYTES" or (name is not None and tensor.name != name):
            continue
        if i < len(raw) and len(raw[i]) >= 4:
            (size,) = struct.unpack_from("<I", raw[i])
            return bytes(raw[i][4 : 4 + size]).decode("utf-8", "replace")
        if tensor.contents.bytes_contents:
            return bytes(tensor.contents.bytes_contents[0]).decode("utf-8", "replace")
    return None


def answer_of(message: Any, name: str | None = None) -> Answer | None:
    """The output ``name`` (None: the first one) of a ModelInferResponse, as an accuracy run keeps it, or None."""
    from plimsoll.slo.verdict.accuracy import Answer

    raw = message.raw_output_contents
    for i, tensor in enumerate(message.outputs):
        if name is not None and tensor.name != name:
            continue
        if tensor.datatype == "BYTES":
            text = text_of(message, tensor.name)
            return None if text is None else Answer(text)
        if tensor.datatype == "BF16":
            return None
        dtype = DTYPES[tensor.datatype]
        typed = () if i < len(raw) else getattr(tensor.contents, CONTENTS.get(tensor.datatype, "bytes_contents"))
        numbers = np.frombuffer(raw[i], dtype) if i < len(raw) else np.array(list(typed), dtype)
        return Answer(numbers=numbers, shape=tuple(tensor.shape))
    return None


def _output_problem(tensor: Any, raw: bytes | None) -> str | None:
    name, datatype, shape = shown(tensor.name, 60), tensor.datatype, list(tensor.shape)
    if not name:
        return "it has no name"
    if datatype not in DTYPES and datatype != "BYTES":
        return f"tensor {name!r} has no known datatype"
    if len(shape) > MAX_DIMENSIONS or (shape and min(shape) < 0):
        return f"tensor {name!r} {shape_problem(shape)}"
    n = prod(shape)
    if raw is not None:
        return _raw_problem(name, datatype, n, raw)
    field = CONTENTS.get(datatype)
    found = len(getattr(tensor.contents, field)) if field is not None else 0
    return None if found == n else f"tensor {name!r} has {found} elements, not the {n} of its shape"


def _raw_problem(name: str, datatype: str, n: int, raw: bytes) -> str | None:
    if datatype != "BYTES":
        wanted = n * np.dtype(DTYPES[datatype]).itemsize
        return None if len(raw) == wanted else f"tensor {name!r} has {len(raw)} raw bytes, not {wanted}"
    if n > _MAX_WALK:
        return None
    at = found = 0
    while at + 4 <= len(raw):
        at += 4 + int.from_bytes(raw[at : at + 4], "little")
        found += 1
    if at != len(raw):
        return f"tensor {name!r}: its raw bytes don't end with an element"
    return None if found == n else f"tensor {name!r} has {found} elements, not the {n} of its shape"


def _elements(name: str, datatype: str, data: Any) -> Any:
    """Flat elements: bytes in a list for BYTES, else a numpy array."""
    try:
        if datatype == "BYTES":
            flat = np.asarray(data, dtype=object).ravel().tolist()
            return [item if isinstance(item, bytes) else str(item).encode() for item in flat]
        if datatype == "BF16" and not (isinstance(data, np.ndarray) and data.dtype == np.uint16):
            return _bfloat16(np.asarray(data, dtype="<f4").ravel())
        array = np.asarray(data).ravel()
        return _converted(array, DTYPES[datatype])
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"tensor {shown(name, 60)!r}: its data is no {datatype}: {' '.join(str(error).split())[:120]}"
        ) from None


def _converted(array: Any, dtype: str) -> Any:
    wanted = np.dtype(dtype)
    if not len(array):
        return array.astype(wanted)
    if wanted.kind in "iu" and array.dtype.kind in "iuf":
        limits = np.iinfo(wanted)
        if array.min() < limits.min or array.max() > limits.max or (array.dtype.kind == "f" and (array % 1).any()):
            raise ValueError(f"a value is no whole number from {limits.min} to {limits.max}")
    elif array.dtype.kind not in "biuf":
        raise ValueError("a value is no number")
    return np.ascontiguousarray(array.astype(wanted))


def _bfloat16(values: Any) -> Any:
    """float32 rounded to nearest even in its upper 16 bits, as uint16."""
    bits = np.ascontiguousarray(values).view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
