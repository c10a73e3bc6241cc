"""Whether two hosts would do the same: digests of our own code and of a scenario's data. Compares nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from plimsoll.scenarios.samples.payload import PayloadSource

_ROOT = Path(__file__).parent.parent.parent
#: What decides which queries are sent, when, how, and what is recorded of them.
_PACKAGES = ("documents", "scenarios", "harness", "slo")
#: Not the engine: its sources are not in every installation, and its build differs by machine.
_SUFFIXES = (".py", ".yaml")
#: Payloads looked at: the first, the last and others evenly between.
SAMPLED = 64


def code_digest(root: Path = _ROOT) -> str:
    """SHA-256 in hex over every source file of the packages that plan, send and record."""
    digest = hashlib.sha256(b"plimsoll.code/1")
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                _add(digest, path.relative_to(root).as_posix().encode())
                _add(digest, path.read_bytes())
    return digest.hexdigest()


def payload_digest(source: PayloadSource) -> str:
    """SHA-256 in hex over how many payloads there are and the content of up to ``SAMPLED`` of them."""
    digest = hashlib.sha256(b"plimsoll.payloads/1")
    n = len(source)
    _add(digest, str(n).encode())
    for index in sorted({round(place * (n - 1) / max(SAMPLED - 1, 1)) for place in range(SAMPLED)} if n else ()):
        payload = source.payload(index)
        fields = {name: getattr(payload, name) for name in type(payload).__dataclass_fields__}
        for part in _flat(fields):
            _add(digest, part)
    return digest.hexdigest()


def _flat(value: Any) -> Iterator[bytes]:
    """A nested value as byte strings: equal values give equal ones on any machine."""
    if isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for key in sorted(value, key=str):
            yield str(key).encode()
            yield from _flat(value[key])
    elif isinstance(value, bytes | bytearray | memoryview):
        yield bytes(value)
    elif isinstance(value, np.ndarray):
        yield f"array {value.dtype.str} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield f"list {len(value)}".encode()
        for item in value:
            yield from _flat(item)
    elif hasattr(type(value), "__dataclass_fields__"):
        yield from _flat({name: getattr(value, name) for name in type(value).__dataclass_fields__})
    else:
        yield f"{type(value).__name__} {value!r}".encode()


def _add(digest: Any, part: bytes) -> None:
    """Length first, so that no two different lists of parts spell the same stream."""
    digest.update(len(part).to_bytes(8, "little"))
    digest.update(part)
