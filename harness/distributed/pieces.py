"""A sealed file in pieces that fit a message, and whole again at the other end, checked by its digest. Pure: no file is touched.

Pieces of one file come in order over one path, so a piece out of order is damage like any other. Names are checked, because they become
names in the master's run directory.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from plimsoll.harness.distributed.fleet_messages import PIECE

#: The files that a worker leaves: segments, and the answers of an accuracy run. The number is the shard.
_NAME = re.compile(r"(?:w(\d{3,6})-\d{6,9}\.seg|outputs-w(\d{3,6})\.jsonl)")
#: The longest file that is taken: some hundred times a segment of 20,000 long answers.
MAX_BYTES = 1 << 31


class Damaged(ValueError):
    """The pieces do not make the file that was cut."""


def shard_of(name: str) -> int | None:
    """The shard whose worker wrote a file of this name; None: no file of ours has it."""
    found = _NAME.fullmatch(name)
    return int(found[1] or found[2]) if found else None


def cut(name: str, data: bytes) -> Iterator[dict[str, Any]]:
    """The ``piece`` messages of one file: at least one, each of at most ``PIECE`` raw bytes."""
    digest = hashlib.sha256(data).hexdigest()
    pieces = max(1, -(-len(data) // PIECE))
    for number in range(pieces):
        yield {
            "type": "piece",
            "file": name,
            "piece": number,
            "pieces": pieces,
            "bytes": len(data),
            "sha256": digest,
            "data": base64.b64encode(data[number * PIECE : (number + 1) * PIECE]).decode(),
        }


class Assembly:
    """One file under way. ``take`` each of its pieces in turn; the last one returns the whole file."""

    __slots__ = ("_parts", "_wanted")

    def __init__(self, first: Mapping[str, Any]) -> None:
        self._wanted = (first["pieces"], first["bytes"], first["sha256"])
        self._parts: list[bytes] = []

    def take(self, piece: Mapping[str, Any]) -> bytes | None:
        """The whole file once its last piece is there, None before. Raises ``Damaged``."""
        if (piece["pieces"], piece["bytes"], piece["sha256"]) != self._wanted or piece["piece"] != len(self._parts):
            raise Damaged("its pieces do not belong together")
        pieces, size, digest = self._wanted
        if size > MAX_BYTES or pieces != max(1, -(-size // PIECE)):
            raise Damaged(f"{size} bytes in {pieces} pieces are not how we cut")
        try:
            self._parts.append(base64.b64decode(piece["data"], validate=True))
        except (binascii.Error, TypeError, ValueError):
            raise Damaged("a piece is not base64") from None
        if len(self._parts[-1]) > PIECE:
            raise Damaged("a piece is too long")
        if len(self._parts) < pieces:
            return None
        data = b"".join(self._parts)
        if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
            raise Damaged("its digest is another")
        return data
