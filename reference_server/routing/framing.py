"""Where a message of HTTP/1.1 ends, and what its head says: all that a router has to know. Pure.

What two readers could understand differently is refused: a router and a replica that disagree about an end would mix
up two requests.
"""

from __future__ import annotations

import re

MAX_HEAD = 65_536
_MAX_LINE = 8192
_HEX = re.compile(rb"[0-9a-fA-F]{1,15}")
_NAME = re.compile(rb"[!#-'*+.^-z|~A-Z0-9-]+")
ENDLESS = 1 << 62
"""The length of a body that ends with its connection."""


class BadMessage(ValueError):
    """The bytes are no message whose end is certain."""


class Head:
    """The first line and the fields, names in lower case. ``raw`` ends with the empty line. Raises BadMessage."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        first, *lines = raw[:-4].split(b"\r\n")
        self.start = first.split(b" ", 2)
        if len(self.start) < 2:
            raise BadMessage("its first line has no two words")
        self.fields: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon or _NAME.fullmatch(name) is None:
                raise BadMessage("a header is not NAME: VALUE")
            name, value = name.lower(), value.strip(b" \t")
            if name in self.fields and name in (b"content-length", b"transfer-encoding"):
                raise BadMessage(f"{name.decode()} is there twice")
            self.fields[name] = self.fields[name] + b", " + value if name in self.fields else value

    @property
    def closes(self) -> bool:
        """Does the connection end after this message?"""
        wish = self.fields.get(b"connection", b"").lower()
        return b"close" in wish or (b"HTTP/1.0" in (self.start[0], self.start[-1]) and b"keep-alive" not in wish)


class Body:
    """Follows one body through the pieces in which it comes; ``over`` once its last byte was seen."""

    def __init__(self, n_bytes: int, *, chunked: bool = False) -> None:
        self._left = n_bytes
        self._chunked = chunked
        self._line = b""
        self._trailing = False
        self.over = not chunked and n_bytes == 0

    @property
    def endless(self) -> bool:
        return self._left > ENDLESS // 2

    def take(self, data: bytes | bytearray, at: int = 0) -> int:
        """Where in ``data`` the part ends that belongs to this body and begins at ``at``. Raises BadMessage."""
        end = len(data)
        while at < end and not self.over:
            if self._left > 0:
                n = min(end - at, self._left)
                self._left -= n
                at += n
                self.over = not self._chunked and self._left == 0
                continue
            stop = data.find(b"\n", at) + 1
            self._line += data[at : stop or end]
            at = stop or end
            if len(self._line) > _MAX_LINE:
                raise BadMessage("a line between two chunks is too long")
            if stop:
                self._read(self._line.strip())
                self._line = b""
        return at

    def _read(self, line: bytes) -> None:
        if self._trailing:
            self.over = not line
            return
        size = line.partition(b";")[0].strip()
        if _HEX.fullmatch(size) is None:
            raise BadMessage("a chunk has no size")
        self._trailing = int(size, 16) == 0
        self._left = 0 if self._trailing else int(size, 16) + 2


def body_of(head: Head, unsaid: int) -> Body:
    """The body after a head; ``unsaid`` is its length where no field says one. Raises BadMessage."""
    coding, length = head.fields.get(b"transfer-encoding"), head.fields.get(b"content-length")
    if coding is not None:
        if length is not None or coding.lower() != b"chunked":
            raise BadMessage("its transfer-encoding is not chunked alone")
        return Body(0, chunked=True)
    if length is not None and (not length.isdigit() or len(length) > 15):
        raise BadMessage("its content-length is no number")
    return Body(unsaid if length is None else int(length))


def body_of_answer(head: Head, method: bytes) -> Body:
    """The body of the answer to a request of that method. Raises BadMessage."""
    if method == b"HEAD" or head.start[1] in (b"204", b"304"):
        return Body(0)
    return Body(ENDLESS) if head.start[1] == b"101" else body_of(head, ENDLESS)
