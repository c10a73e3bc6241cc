"""HPACK header blocks (RFC 7541) off the clock, each on its own: the table we announce has 0 bytes, and we use none."""

from __future__ import annotations

from collections.abc import Iterable

import hpack

Headers = tuple[tuple[bytes, bytes], ...]
#: Decoded blocks that are kept, because most trailers of a run are the same.
_KEPT, _KEPT_BYTES = 256, 1024
_MAX_LIST = 256 * 1024
#: Static table entries of the requests that we make: POST; the scheme; the names :path and :authority.
_POST, _SCHEMES, _PATH, _AUTHORITY = b"\x83", {False: b"\x86", True: b"\x87"}, b"\x04", b"\x01"


class BlockError(Exception):
    """The bytes are no header block of a server that knows that our table has 0 bytes."""


class BlockDecoder:
    """Decodes blocks in any order."""

    __slots__ = ("_decoder", "_kept")

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(_MAX_LIST)
        self._decoder.max_allowed_table_size = 0
        self._decoder.header_table_size = 0
        self._kept: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """Names (lower case) and values, in order. Raises BlockError."""
        found = self._kept.get(block)
        if found is None:
            try:
                found = tuple(
                    (bytes(name).lower(), bytes(value)) for name, value in self._decoder.decode(block, raw=True)
                )
            except (hpack.HPACKError, ValueError, IndexError) as error:
                raise BlockError(f"a header block can't be decoded: {error}") from None
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            if len(block) <= _KEPT_BYTES:  # small ones may decode to much, hundreds of times over
                self._kept[block] = found
        return found


def request_block(path: str, authority: str, tls: bool, headers: Iterable[tuple[str, str]]) -> bytes:
    """The block of a POST; ``headers`` come after the pseudo-headers, in this order."""
    parts = [
        _POST,
        _SCHEMES[tls],
        _PATH,
        _string(path.encode("latin-1")),
        _AUTHORITY,
        _string(authority.encode("latin-1")),
    ]
    parts += [literal(name, value.encode("latin-1")) for name, value in headers]
    return b"".join(parts)


def literal(name: str, value: bytes) -> bytes:
    """A header without indexing, with a literal name (RFC 7541 section 6.2.2)."""
    return b"\x00" + _string(name.encode("latin-1")) + _string(value)


def _string(data: bytes) -> bytes:
    """A string without Huffman coding: its length as an integer with a 7-bit prefix, then itself."""
    size = len(data)
    if size < 127:
        return bytes((size,)) + data
    size -= 127
    head = bytearray((127,))
    while size >= 128:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + data
