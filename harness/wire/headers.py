"""This module says which header names and values can be sent at all (RFC 9110 section 5); it never repeats a value."""

from __future__ import annotations

import re

#: Headers that the transport writes itself, or that would break its framing.
RESERVED = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "x-request-id", "expect", "upgrade", "te", "trailer"}
)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")


def header_error(name: str, value: str) -> str | None:
    """Why a header can't be sent (RFC 9110 section 5), or None. The text never repeats the value."""
    if not _TOKEN.match(name):
        return f"header {name!r}: not a header name. Use letters, digits and -"
    if name.lower() in RESERVED:
        return f"header {name!r}: it is written by the transport. Remove it"
    if not _VALUE.match(value):
        return f"header {name!r}: its value holds a line end or a character outside Latin-1. Remove it"
    return None


def checked_headers(value: dict[str, str]) -> dict[str, str]:
    """An option that is headers, for a model's validator. Raises ValueError with every one that can't be sent."""
    errors = [error for name, text in value.items() if (error := header_error(name, text))]
    if errors:
        raise ValueError("; ".join(errors))
    return value
