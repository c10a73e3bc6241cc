"""multipart/form-data, read whole: its parts from the bytes of a body. Pure.

It refuses what is not exactly framed, and more parts than a form can need, with a RequestError 400 that says where.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message

from plimsoll.reference_server.values.errors import RequestError

MAX_PARTS = 64
_MAX_HEAD = 8192
_MAX_BOUNDARY = 70  # RFC 2046, section 5.1.1


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a form; ``filename`` is None for a plain value."""

    name: str
    filename: str | None
    data: bytes

    def text(self) -> str:
        """A plain value. Raises RequestError 400 when it is no UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise RequestError(400, f"{self.name}: must be UTF-8", param=self.name, code="invalid_value") from None


def parse(content_type: str, body: bytes) -> list[Part]:
    """The parts in order; ``content_type`` is the header with its boundary. Raises RequestError 400, and 415 for another type."""
    header = Message()
    header["Content-Type"] = " ".join(content_type.splitlines())
    if header.get_content_type() != "multipart/form-data":
        message = f"Content-Type {content_type.split(';')[0][:80]} is not understood here. Send multipart/form-data"
        raise RequestError(415, message, code="unsupported_media_type")
    boundary = header.get_param("boundary")
    if not isinstance(boundary, str) or not boundary.isascii() or not 0 < len(boundary) <= _MAX_BOUNDARY:
        raise _wrong(f"Content-Type must name a boundary of 1 to {_MAX_BOUNDARY} characters")
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    if len(pieces) < 2:
        raise _wrong("the boundary of Content-Type is nowhere in the body")
    if len(pieces) - 2 > MAX_PARTS:
        raise _wrong(f"there are {len(pieces) - 2} parts, the limit is {MAX_PARTS}")
    if not pieces[-1].startswith(b"--"):
        raise _wrong("the body breaks off: the last boundary must end with --")
    return [_part(number, piece) for number, piece in enumerate(pieces[1:-1], start=1)]


def _part(number: int, piece: bytes) -> Part:
    padding, _, rest = piece.partition(b"\r\n")
    head, blank, data = rest.partition(b"\r\n\r\n")
    if padding.strip(b" \t") or not blank or len(head) > _MAX_HEAD:
        raise _wrong(f"part {number} must be a boundary, header lines, an empty line and its data")
    header = Message()
    for line in head.split(b"\r\n"):
        name, colon, value = line.decode("utf-8", "replace").partition(":")
        if not colon or not name.isascii():
            raise _wrong(f"part {number} has a header line without a colon")
        if name.strip().lower() == "content-disposition" and "Content-Disposition" not in header:
            header["Content-Disposition"] = " ".join(value.split())
    field = header.get_param("name", header="Content-Disposition")
    if not isinstance(field, str) or not field:
        raise _wrong(f"part {number} needs a Content-Disposition with a name")
    return Part(field, header.get_filename(), data)


def _wrong(message: str) -> RequestError:
    return RequestError(400, f"the body is no multipart/form-data: {message}", code="invalid_multipart")
