"""Where the live page is served: ``--live [HOST:]PORT`` read and checked. Opens nothing, and loads nothing to do it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen; port 0 is a free one."""

    host: str
    port: int

    def url(self, port: int) -> str:
        """The page's address once the port is known; of "every address", this host's own."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def where(live: str | None) -> Place | None:
    """``[HOST:]PORT`` as a place; the host is this one unless it is named. Raises HarnessFault (exit 2)."""
    if live is None:
        return None
    text = live.strip()
    try:
        parts = urlsplit(f"//{text}" if ":" in text else f"//{HOST}:{text}")
        host, port = parts.hostname or HOST, parts.port
    except ValueError:
        host, port = "", None
    if port is None or not host or parts.netloc.count("@") or parts.path or parts.query or parts.fragment:
        raise HarnessFault(
            f"--live {live}: not [HOST:]PORT with a port from 0 to 65535. Write --live 8089, --live 0.0.0.0:8089, or "
            "--live 0 for a free port"
        )
    return Place(host, port)


def private(host: str) -> bool:
    """Whether only this host reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
