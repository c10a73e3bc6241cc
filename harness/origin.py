"""Origin: scheme, host and port of a target URL, and where they lead. Nothing is connected here."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.client import Target
from harness.endpoint import Endpoint, resolve, tls_context
from harness.errors import HarnessFault
from harness.exit_codes import ExitCode


@dataclass(frozen=True, slots=True)
class Origin:
    """scheme://host:port of a URL."""

    host: str
    port: int
    tls: bool
    authority: str


def origin_of(url: str) -> Origin:
    """The origin of an http or https URL. Raises HarnessFault for anything else."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise HarnessFault(f"target.url: {url!r}: {error}. Write it as http://host:port") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise HarnessFault(f"target.url: {url!r} is not an http or https URL. Write it as http://host:port")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise HarnessFault(f"target.url: the port of {url!r} is not a number from 1 to 65535") from None
    host = parts.hostname
    name = f"[{host}]" if ":" in host else host
    default = 443 if parts.scheme == "https" else 80
    return Origin(host, port, parts.scheme == "https", name if port == default else f"{name}:{port}")


async def locate(target: Target) -> Endpoint:
    """Resolve a target's origin and load its TLS settings.

    Raises HarnessFault: exit code 5 if the name has no address, 2 for a bad URL or CA file.
    """
    origin = origin_of(target.url)
    context = None
    if origin.tls:
        try:
            context = tls_context(target.tls_verify, target.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise HarnessFault(f"target.ca_file: cannot load {target.ca_file!r}: {error}") from None
    try:
        return await resolve(origin.host, origin.port, context)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HarnessFault(
            f"target.url: the host {origin.host!r} has no address ({reason}). Check the name",
            ExitCode.UNREACHABLE,
        ) from None
