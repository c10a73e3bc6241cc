"""What goes with every call of a target: its headers as gRPC metadata, and a protocol's own. Nothing is sent here."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.call import metadata_error

Metadata = tuple[tuple[str, str | bytes], ...]


def metadata_of(target: Target, own: Mapping[str, str] | None = None) -> Metadata:
    """The target's headers, and ``own`` where they don't say the same name; names in lower case, ``-bin`` values (written as
    base64) as bytes. Raises HarnessFault with everything that can't be sent.
    """
    given = {name.lower() for name, _ in target.headers}
    pairs = [("target.headers", name, value) for name, value in target.headers]
    pairs += [
        ("target.options.metadata", name, text) for name, text in (own or {}).items() if name.lower() not in given
    ]
    found: list[tuple[str, str | bytes]] = []
    errors = []
    for where, name, text in pairs:
        value, error = _value(name.lower(), text)
        if error is not None:
            errors.append(f"{where}: {error}")
        else:
            found.append((name.lower(), value))
    if errors:
        raise HarnessFault(errors)
    return tuple(found)


def metadata_problems(own: Mapping[str, str]) -> list[str]:
    """Why pieces of metadata can't be sent; no text repeats a value."""
    return [error for name, text in own.items() if (error := _value(name.lower(), text)[1]) is not None]


def _value(name: str, text: str) -> tuple[str | bytes, str | None]:
    """The value as it is sent, and why it can't be."""
    if "\r" in text or "\n" in text:
        return "", f"metadata {name!r}: its value holds a line end. Remove it"
    value: str | bytes = text.strip()
    if name.endswith("-bin"):
        try:
            value = b64decode(text.strip() + "=" * (-len(text.strip()) % 4), validate=True)
        except (binascii.Error, ValueError):
            return "", f"metadata {name!r}: its value is not base64. Write -bin values as base64"
    return value, metadata_error(name, value)
