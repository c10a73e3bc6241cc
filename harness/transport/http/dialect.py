"""A ``Dialect`` is what makes one HTTP protocol differ from the next: what to write, and how to read the answer.

This module also builds request heads, because a header value that smuggles in a line end would put a second request on
the wire. It sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.wire.headers import header_error
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload

_METHOD = re.compile(r"[A-Z][A-Z-]*\Z")
_PATH = re.compile(r"/[\x21-\x7e]*\Z")
_VERSION = re.compile(r"/v\d+[a-z0-9]*\Z")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request, ready to write but for three header lines.

    ``head`` is the request line and every header except Host, x-request-id and content-length, each line ended by CRLF,
    without the closing empty line. ``n_in`` is the prompt length in tokens (-1 unknown), ``media_ns`` the playing time
    of audio carried (-1 none), ``clip`` that audio, for ``settle`` to compare with, ``n_asked`` the output tokens asked
    for exactly (-1: no such wish). The head may hold credentials, so it is left out of ``repr``.
    """

    head: bytes
    body: bytes
    n_in: int = -1
    media_ns: int = -1
    clip: Clip | None = field(default=None, compare=False)
    n_asked: int = -1

    def __repr__(self) -> str:
        line = re.split(rb"\?| HTTP|\r", self.head, maxsplit=1)[0].decode("latin-1")  # a query may hold a key
        return f"HttpRequest({line!r}, body={len(self.body)} bytes)"


@dataclass(frozen=True, slots=True)
class PlainSuccess:
    """Answers that ``settle`` leaves as the transport made them, so that it need not see them.

    A complete response with a status code in ``success``, neither content-encoding nor server-timing, and none of
    ``needles`` (at most four, of 1 to 64 bytes) anywhere in its body. Saying it of any other answer is a defect:
    tests/property holds the rule against ``settle``.
    """

    success: frozenset[int]
    needles: tuple[bytes, ...]


class Dialect(Protocol):
    """One HTTP protocol. ``accept`` is the media type it asks for. Instances hold headers: don't print
    them. A dialect may have an attribute ``plain``, a ``PlainSuccess``.
    """

    accept: bytes

    def encode(self, payload: Payload) -> HttpRequest:
        """The request for a payload; the same payload always gives the same bytes. Raises
        ``HarnessFault``.
        """
        ...

    def settle(self, exchange: Exchange) -> None:
        """Fill token fields, status and error from the finished response. Never raises, whatever the
        bytes.
        """
        ...


def build_head(method: str, path: str, defaults: Mapping[str, str], extra: tuple[tuple[str, str], ...]) -> bytes:
    """The request line and headers; ``extra`` replaces a default of the same name, whatever its case.

    Raises HarnessFault with every bad header listed.
    """
    errors = [error for name, value in (*defaults.items(), *extra) if (error := header_error(name, value))]
    if not _METHOD.match(method):
        errors.append(f"method {method!r}: not an HTTP method. Use GET, POST, PUT ...")
    if not _PATH.match(path):
        errors.append(f"path {path!r}: must begin with / and hold no spaces. Percent-encode it")
    if errors:
        raise HarnessFault(errors)
    given = {name.lower() for name, _ in extra}
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name.lower()}: {value}" for name, value in defaults.items() if name.lower() not in given]
    lines += [f"{name.lower()}: {value.strip()}" for name, value in extra]
    return ("\r\n".join(lines) + "\r\n").encode("latin-1")


def split_url(url: str) -> tuple[str, str]:
    """(path without a trailing slash, query) of a target URL. Raises HarnessFault for one that can't be
    used.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, userinfo = parts.hostname, parts.username
        parts.port  # noqa: B018 - a bad port raises here
    except ValueError as error:
        raise HarnessFault(f"target.url: {url!r}: {error}. Give http://host:port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise HarnessFault(
            f"target.url: {url!r} is not an http or https URL. Give http://host:port[/path], or another protocol"
        )
    if userinfo is not None or parts.password is not None:
        raise HarnessFault("target.url: it holds a user name or password. Use target.headers or api_key_env")
    return parts.path.rstrip("/"), parts.query


def join_path(url: str, route: str, path: str | None = None) -> str:
    """The request target for ``url`` and a versioned route such as ``/v1/chat/completions``.

    An origin, an origin with the version (``/v1``, also ``/api/v3``), a base path before the version and
    the full endpoint URL all work and never double a segment. ``path`` replaces the whole path. The URL's
    query is kept (Azure's ``api-version``) unless ``path`` brings its own.
    """
    base, query = split_url(url)
    if path is None:
        tail = "/" + route.split("/", 2)[2]
        if base.endswith(tail):
            path = base
        elif _VERSION.search(base):
            path = base + tail
        else:
            path = base + route
    return path if "?" in path or not query else f"{path}?{query}"
