"""The binary tensor extension: where the JSON of a request ends, and the tensors that follow it in the order of their announcement. Pure.

Lengths are the client's word and are held against the body: a tensor that is cut off, too long for its shape or left over is a 400.
"""

from __future__ import annotations

from plimsoll.reference_server.frontends.shared.raw_tensors import from_bytes, wrong
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.tensors import Tensor

HEADER = "Inference-Header-Content-Length"


class Tail:
    """What follows the JSON, taken piece by piece."""

    def __init__(self, raw: memoryview) -> None:
        self._raw = raw
        self._at = 0

    def tensor(self, name: str, datatype: str, shape: tuple[int, ...], size: int) -> Tensor:
        """The next ``size`` bytes as a tensor. Raises RequestError 400 naming it."""
        left = len(self._raw) - self._at
        if size > left:
            raise wrong(name, f"announces {size} bytes, but only {left} are left in the body")
        self._at += size
        return from_bytes(name, datatype, shape, self._raw[self._at - size : self._at])

    def end(self) -> None:
        """Every byte must belong to a tensor. Raises RequestError 400."""
        left = len(self._raw) - self._at
        if left:
            raise RequestError(
                400,
                f"{left} bytes after the last tensor belong to none. Check each binary_data_size",
                code="invalid_value",
            )


def split(body: bytes, header: str | None) -> tuple[bytes, Tail | None]:
    """The JSON and what follows it; a body without the header is all JSON. Raises RequestError 400."""
    if header is None:
        return body, None
    n = int(header) if header.isascii() and header.isdigit() and len(header) < 12 else -1
    if not 0 <= n <= len(body):
        raise RequestError(
            400,
            f"{HEADER}: {header[:20]!r} is not the length of the JSON in a body of {len(body)} bytes",
            param=HEADER,
            code="invalid_value",
        )
    return body[:n], Tail(memoryview(body)[n:])
