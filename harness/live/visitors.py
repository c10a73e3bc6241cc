"""Whose browser may ask a page of ours: its own pages, by an address of this host; no other site that the browser has
open.

A page without a password is protected by where it listens, and a browser inside that line asks for whoever wrote the
page it shows. So two things are checked. **Host**: a name that somebody else's DNS can point at this host (rebinding)
is not ours; addresses in digits, ``localhost``, this host's own name, the name that was bound, and those in
``PLIMSOLL_WEB_HOSTS`` are. **Origin**, where the browser sends one: the same as Host.
"""

from __future__ import annotations

import ipaddress
import os
import platform
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

#: More names of our pages, separated by commas: of a proxy, a Kubernetes service.
VARIABLE = "PLIMSOLL_WEB_HOSTS"


class Visitors:
    """``bound``: the host a page listens at ("" and ``*``: every address); ``named``: more names of it, besides those
    in ``VARIABLE``.
    """

    def __init__(self, bound: str, named: Iterable[str] = ()) -> None:
        more = [*named, *os.environ.get(VARIABLE, "").split(",")]
        self._names = {name.strip().lower().rstrip(".") for name in ("localhost", platform.node(), bound, *more)} - {""}

    def refusal(self, header: Callable[[str], str | None]) -> str | None:
        """Why a request is not answered, in a sentence; None: it is.

        ``header``: the value of a header by its name, or None.
        """
        host = (header("Host") or "").strip().lower()
        if not self._ours(host):
            return (
                "This page has another name: ask by an address in digits or as localhost. "
                f"To add a name, start with {VARIABLE}=NAME\n"
            )
        origin = header("Origin")
        if origin is not None and not _same(origin.strip().lower(), host):
            return "Another site's page asks. Open this page itself\n"
        if header("Sec-Fetch-Site") in ("cross-site", "same-site") and header("Sec-Fetch-Mode") != "navigate":
            return "Another site's page asks. Open this page itself\n"
        return None

    def _ours(self, host: str) -> bool:
        name = _name(host)
        if name is None:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.rstrip(".") in self._names
        return True


def _name(host: str) -> str | None:
    """The name in a Host header; None: that is no host and port."""
    try:
        parts = urlsplit(f"//{host}")
        whole = parts.netloc == host and "@" not in host and (parts.port is None or parts.port > 0)
    except ValueError:
        return None
    return (parts.hostname or None) if whole else None


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == host
