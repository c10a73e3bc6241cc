"""What travels between the parts of a run and whoever judges it: questions, and digests that add up.

Both are named arrays of numbers, as bytes. The first character of an array's name says how those of several parts make
one, so who passes them on may merge them on the way, in any order but that of texts. No transport is known here.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.records import IntArray

Array = npt.NDArray[Any]

_MAGIC = b"PLd1"
#: No message is larger when it is unpacked.
MOST_BYTES = 1 << 26
#: Nor is the part of it that names and describes arrays.
MOST_HEADING = 1 << 20
_TYPES = tuple(np.dtype(name) for name in ("<f8", "<i8", "<i4", "<i2", "<i1"))


def _cells(one: Array, other: Array) -> IntArray:
    """Histograms int64[2, cells], the numbers of their cells and how many are in each, as one."""
    both = np.concatenate([one, other], axis=1)
    cells, place = np.unique(both[0], return_inverse=True)
    counts = np.zeros(len(cells), np.int64)
    np.add.at(counts, place, both[1])
    return np.stack([cells, counts])


#: How arrays of one name become one, by the first character of it.
_MERGED: Mapping[str, Callable[[Array, Array], Array]] = {
    "+": np.add,
    "<": np.minimum,
    ">": np.maximum,
    "&": lambda one, other: np.concatenate([one, other]),
    "#": _cells,
}


@dataclass(frozen=True, slots=True)
class Digest:
    """What a part, or several, say: ``arrays`` by name."""

    arrays: Mapping[str, Array] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return _packed({}, self.arrays)

    @staticmethod
    def from_bytes(data: bytes) -> Digest:
        """Raises ValueError for bytes that are none."""
        _, arrays = _unpacked(data)
        if wrong := [name for name in arrays if name[:1] not in _MERGED]:
            raise ValueError(f"a digest with {wrong[0]!r}, which nobody can add up: use one version of Plimsoll")
        return Digest(arrays)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def whole(self, name: str) -> int:
        """A single number; 0 where nobody said it."""
        return int(self.arrays[name].sum()) if name in self.arrays else 0

    def named(self, start: str) -> dict[str, int]:
        """The single numbers whose names begin so, by the rest of their names, in the order in which they came."""
        return {name[len(start) :]: self.whole(name) for name in self.arrays if name.startswith(start)}


def merge(digests: Sequence[Digest]) -> Digest:
    """What all of them say, in their order; that of none says nothing."""

    def both(one: Digest, other: Digest) -> Digest:
        found = dict(one.arrays)
        for name, array in other.arrays.items():
            found[name] = _MERGED[name[0]](found[name], array) if name in found else array
        return Digest(found)

    return reduce(both, digests, Digest())


class Of(NamedTuple):
    """Which values: of what ``name``, in the records ``end`` ("": as measured; else of the lower end of lateness),
    ``again``: repeated requests counted as failed, ``alone``: of successes alone. ``extent`` of lists in the whole run.
    """

    name: str = ""
    end: str = ""
    again: bool = False
    alone: bool = False
    extent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every part: ``kind``, about ``of``, with ``arrays`` and a ``text``."""

    kind: str
    of: Of = field(default_factory=Of)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    text: str = ""

    def to_bytes(self) -> bytes:
        return _packed({"kind": self.kind, "of": self.of, "text": self.text}, self.arrays)

    @staticmethod
    def from_bytes(data: bytes) -> Question:
        """Raises ValueError for bytes that are none."""
        about, arrays = _unpacked(data)
        try:
            name, end, again, alone, extent = about["of"]
            of = Of(str(name), str(end), bool(again), bool(alone), tuple(map(int, extent)))
            return Question(str(about["kind"]), of, arrays, str(about["text"]))
        except (ArithmeticError, KeyError, TypeError, ValueError) as error:
            raise ValueError("bytes that are no question to a part: use one version of Plimsoll everywhere") from error


def _packed(about: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    small = {name: _small(np.ascontiguousarray(array)) for name, array in arrays.items()}
    listed = [[name, _TYPES.index(array.dtype), base, array.shape] for name, (array, base) in small.items()]
    head = json.dumps([about, listed]).encode()
    body = b"".join([head, *(array.tobytes() for array, _ in small.values())])
    return _MAGIC + struct.pack("<QI", len(body), len(head)) + zlib.compress(body, 6)


def _small(array: Array) -> tuple[Array, int | None]:
    """Whole numbers in the least bytes that hold all of them, or what each adds to the one before, from a number on."""
    if array.dtype.kind == "f":
        return array.astype("<f8"), None
    whole = array.astype(np.int64)
    base = int(whole.flat[0]) if whole.size else 0
    steps = np.diff(whole, prepend=base, axis=-1)  # beyond 64 bits one comes round again as it is added up
    kinds = _kind(whole), _kind(steps)
    return (steps.astype(kinds[1]), base) if kinds[1].itemsize < kinds[0].itemsize else (whole.astype(kinds[0]), None)


def _kind(whole: IntArray) -> np.dtype[Any]:
    low, high = int(whole.min(initial=0)), int(whole.max(initial=0))
    return [kind for kind in _TYPES[1:] if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max][-1]


def _unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    try:
        if data[:4] != _MAGIC:
            raise ValueError("another beginning")
        length, heading = struct.unpack("<QI", data[4:16])
        reader = zlib.decompressobj()
        body = reader.decompress(data[16:], min(length, MOST_BYTES) + 1)
        if len(body) != length or not reader.eof:
            raise ValueError("another length")
        if heading > MOST_HEADING:
            raise ValueError("another heading")
        about, listed = json.loads(body[:heading])
        arrays, at, most = {}, heading, MOST_BYTES // 8
        for name, kind, base, shape in listed:
            if not isinstance(name, str):
                raise TypeError("a name that is none")
            count = math.prod(shape)
            most -= count  # small numbers grow to 8 bytes each
            if count < 0 or most < 0:
                raise ValueError("too many numbers")
            array = np.frombuffer(body, _TYPES[kind], count, at).reshape(shape)
            whole = array if kind == 0 else array.astype(np.int64)
            arrays[name] = whole if base is None else np.cumsum(whole, axis=-1) + base
            at += array.nbytes
    except (ValueError, TypeError, LookupError, ArithmeticError, struct.error, zlib.error, RecursionError) as error:
        raise ValueError(f"bytes that are no message of a part ({error}): use one version of Plimsoll") from error
    return about, arrays
