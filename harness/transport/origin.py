"""Origin: scheme, host and port of a target URL, and where they lead. Nothing is connected here."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import Endpoint, resolve, tls_context

#: Schemes of target URLs: whether TLS is spoken. The protocol is ``target.protocol``'s to say; all name a host and a port.
SCHEMES = {"http": False, "https": True, "ws": False, "wss": True, "grpc": False, "grpcs": True}
#: What a scheme with TLS is without it.
CLEARTEXT = {"https": "http", "wss": "ws", "grpcs": "grpc"}


@dataclass(frozen=True, slots=True)
class Origin:
    """scheme://host:port of a URL."""

    host: str
    port: int
    tls: bool
    authority: str


def origin_of(url: str) -> Origin:
    """The origin of a URL with one of ``SCHEMES`` (none: http). Raises HarnessFault for anything else."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise HarnessFault(f"target.url: {url!r}: {error}. Write it as http://host:port") from None
    if parts.scheme not in SCHEMES or not parts.hostname:
        known = ", ".join(SCHEMES)
        raise HarnessFault(f"target.url: {url!r} is not a URL with one of {known}. Write it as http://host:port")
    secure = SCHEMES[parts.scheme]
    default = 443 if secure else 80
    try:
        port = parts.port or default
    except ValueError:
        raise HarnessFault(f"target.url: the port of {url!r} is not a number from 1 to 65535") from None
    host = parts.hostname
    name = f"[{host}]" if ":" in host else host
    return Origin(host, port, secure, name if port == default else f"{name}:{port}")


async def locate(target: Target, alpn: str = "http/1.1") -> Endpoint:
    """Resolve a target's origin and load its TLS settings, which offer the protocol ``alpn``.

    Raises HarnessFault: exit code 5 if the name has no address, 2 for a bad URL or CA file.
    """
    origin = origin_of(target.url)
    context = None
    if origin.tls:
        try:
            context = tls_context(target.tls_verify, target.ca_file, alpn)
        except (OSError, ssl.SSLError) as error:
            raise HarnessFault(f"target.ca_file: cannot load {target.ca_file!r}: {error}") from None
    try:
        return await resolve(origin.host, origin.port, context, alpn)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HarnessFault(
            f"target.url: the host {origin.host!r} has no address ({reason}). Check the name",
            ExitCode.UNREACHABLE,
        ) from None
