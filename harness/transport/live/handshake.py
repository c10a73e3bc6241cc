"""This module makes what a WebSocket handshake carries: the path with its query, and the key in the vendor's form.

It writes and keeps no secret: headers pass from the target to the script, which is never printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import urlencode

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.http.dialect import join_path
from plimsoll.harness.wire.headers import header_error

Value = str | int | float | bool | list[str] | None
#: How a vendor takes its key; "bearer" leaves it as target.api_key_env makes it.
Scheme = Literal["bearer", "token", "bare"]
_BEARER = "bearer "
_WRITTEN = frozenset(
    {"sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions", "sec-websocket-protocol"}
)


def request_target(url: str, route: str, path: str | None, query: Mapping[str, Value]) -> str:
    """The path of a handshake: ``path``, else ``route`` below the URL's own path; ``query`` follows the URL's own,
    without its Nones.
    """
    target = join_path(http_url(url), route, path)
    said = urlencode({name: _spelt(value) for name, value in query.items() if value is not None}, doseq=True)
    return f"{target}{'&' if '?' in target else '?'}{said}" if said else target


def http_url(url: str) -> str:
    """A URL of a WebSocket as that of the HTTP server it is on."""
    for scheme, other in (("wss://", "https://"), ("ws://", "http://")):
        if url.startswith(scheme):
            return other + url[len(scheme) :]
    return url


def _spelt(value: Value) -> str | list[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, list) else str(value)


def handshake_headers(
    headers: Iterable[tuple[str, str]], scheme: Scheme, own: Mapping[str, str] | None = None
) -> tuple[tuple[str, str], ...]:
    """The target's headers, an API key in the vendor's form, then those of ``own`` that the target does not have.

    Raises HarnessFault with every header that can't be sent; no error holds a value.
    """
    found = tuple((name, _keyed(name, value, scheme)) for name, value in headers)
    given = {name.lower() for name, _ in found}
    found += tuple((name, value) for name, value in (own or {}).items() if name.lower() not in given)
    errors = [error for name, value in found if (error := header_error(name, value))]
    errors += [
        f"header {name!r}: it is written by the transport. Remove it" for name in sorted(given) if name in _WRITTEN
    ]
    if errors:
        raise HarnessFault(errors)
    return found


def _keyed(name: str, value: str, scheme: Scheme) -> str:
    if name.lower() != "authorization" or scheme == "bearer" or not value.lower().startswith(_BEARER):
        return value
    key = value[len(_BEARER) :].strip()
    return f"Token {key}" if scheme == "token" else key
