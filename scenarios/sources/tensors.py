"""Tensors: seeded random numbers in the shape of a KServe v2 (Open Inference Protocol) request's ``inputs``.

``Payload.data`` is ``{"inputs": [{"name", "shape", "datatype", "data"}]}`` with the data flat, in row-major
order. The 16-bit floats are not offered: the protocol has no JSON form for them.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plugins import Source
from plimsoll.scenarios.samples.payload import Payload, require_index
from plimsoll.scenarios.samples.words import drawn
from plimsoll.scenarios.text.fields import STRICT

MAX_ELEMENTS = 16_777_216

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP32", "FP64", "BYTES"
]


class Tensor(BaseModel):
    """Uniform numbers: floats in [min, max), whole numbers in [min, max]; BYTES are English words."""

    model_config = STRICT
    name: str = Field(min_length=1)
    datatype: Datatype = "FP32"
    shape: tuple[int, ...] = Field(strict=False, min_length=1, max_length=16)
    min: float = Field(default=0.0, description="Smallest value.")
    max: float | None = Field(default=None, description="Largest value; default 1 for floats, 100 for whole numbers.")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if any(size < 1 for size in self.shape):
            raise ValueError(f"shape {list(self.shape)} has a size below 1. Give real sizes, -1 is not known here")
        if math.prod(self.shape) > MAX_ELEMENTS:
            raise ValueError(f"shape {list(self.shape)} has more than {MAX_ELEMENTS:,} elements. Make it smaller")
        low, high = self.limits
        if low > high:
            raise ValueError(f"min {low} is above max {high}. Swap them")
        if "INT" in self.datatype:
            kind = np.iinfo(self.datatype.lower())
            if low < kind.min or high > kind.max or not (low.is_integer() and high.is_integer()):
                raise ValueError(
                    f"min {low} to max {high} does not fit {self.datatype}. Give whole numbers it can hold"
                )
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """(min, max) with the default filled in."""
        default = 1.0 if self.datatype in ("FP32", "FP64") else 100.0
        return float(self.min), float(default if self.max is None else self.max)


class Tensors(BaseModel):
    """``inputs`` is a list of {name, datatype, shape}."""

    model_config = STRICT
    kind: Literal["tensors"] = "tensors"
    inputs: tuple[Tensor, ...] = Field(
        default=(Tensor(name="input", shape=(1, 16)),), strict=False, min_length=1, max_length=256
    )
    count: int = Field(default=64, ge=1, le=1_000_000, description="How many different samples.")

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        names = [tensor.name for tensor in self.inputs]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"inputs has {twice[0]!r} twice. Give every input its own name")
        return self


@dataclass(frozen=True, slots=True)
class _Samples:
    """Makes each sample when it is asked for; the same index gives the same numbers."""

    params: Tensors
    seed: int

    def __len__(self) -> int:
        return self.params.count

    def payload(self, index: int) -> Payload:
        require_index(index, len(self))
        return Payload(data={"inputs": [self._input(tensor, index) for tensor in self.params.inputs]})

    def _input(self, tensor: Tensor, index: int) -> dict[str, Any]:
        rng = np.random.Generator(np.random.PCG64(child(self.seed, tensor.name, str(index))))
        return {
            "name": tensor.name,
            "shape": list(tensor.shape),
            "datatype": tensor.datatype,
            "data": _values(tensor, rng, math.prod(tensor.shape)),
        }


def _values(tensor: Tensor, rng: np.random.Generator, n: int) -> list[Any]:
    low, high = tensor.limits
    if tensor.datatype == "BYTES":
        return drawn(rng, n)
    if tensor.datatype == "BOOL":
        return [bool(bit) for bit in rng.integers(0, 2, n).tolist()]
    if tensor.datatype in ("FP32", "FP64"):
        values = rng.uniform(low, high, n)
        return list((values.astype(np.float32) if tensor.datatype == "FP32" else values).tolist())
    return list(rng.integers(int(low), int(high), n, endpoint=True, dtype=tensor.datatype.lower()).tolist())


SOURCE = Source(
    name="tensors",
    summary="Seeded random tensors for KServe v2 endpoints.",
    params=Tensors,
    build=lambda params, seed: _Samples(params, child(seed, "tensors")),
)
