"""This module resolves where a connection goes once before the run, makes its TLS settings, and explains OS errors."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.transport.client import Target

#: These mean that our own host ran out of something: the generator's failure, not the endpoint's.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)

_RESET = (os.strerror(errno.ECONNRESET), os.strerror(errno.EPIPE))
_NEXT_STEP = {
    errno.EADDRNOTAVAIL: "no local port is left for this address: keep connections alive (does the server close "
    "them?), lower the rate, or widen net.ipv4.ip_local_port_range",
    errno.EMFILE: "this process is out of file descriptors: raise `ulimit -n` or lower the concurrency",
    errno.ENFILE: "the host is out of file descriptors",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A resolved origin: addresses in the resolver's order, and TLS settings or None.

    ``alpn`` is the one protocol that is offered in TLS. A server that chooses none is taken at its word for http/1.1
    only.
    """

    host: str
    port: int
    addresses: tuple[tuple[int, tuple[object, ...]], ...]
    tls: ssl.SSLContext | None = None
    alpn: str = "http/1.1"

    def refuses(self, chosen: str | None) -> str:
        """Why a TLS connection whose server chose this protocol can't be used; "" if it can."""
        if chosen == self.alpn or (chosen is None and self.alpn == "http/1.1"):
            return ""
        said = f"the server chose {chosen!r} by ALPN" if chosen else "the server chose no protocol by ALPN"
        return f"TLS: {said}; only {self.alpn} was offered"

    def numeric(self) -> list[tuple[int, str, int] | tuple[int, str, int, int]]:
        """(family, IP address, port) of each address, and the scope of an IPv6 one: what the compiled engine takes."""
        found: list[tuple[int, str, int] | tuple[int, str, int, int]] = []
        for family, address in self.addresses:
            host, port = str(address[0]).split("%")[0], int(str(address[1]))
            scope = (int(str(address[3])),) if family == socket.AF_INET6 else ()
            found.append((int(family), host, port, *scope))
        return found


def tls_context(verify: bool, ca_file: str | None, alpn: str = "http/1.1") -> ssl.SSLContext:
    """A client context that offers one protocol by ALPN. Raises OSError or ssl.SSLError for a bad ``ca_file``."""
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols([alpn])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def resolve(host: str, port: int, tls: ssl.SSLContext | None, alpn: str = "http/1.1") -> Endpoint:
    """Look a host up once, before the run. Raises OSError (socket.gaierror) if it has no address."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = tuple(dict.fromkeys((family, address) for family, _, _, _, address in found))
    return Endpoint(host, port, addresses, tls, alpn)


def was_reset(reason: str) -> bool:
    """Whether a connection was thrown away by the other side, as against one that ended in good order or broke a
    protocol.
    """
    return reason.startswith(_RESET)


def explain(error: OSError) -> str:
    """An OS error as text that ends in a next step where we know one."""
    text = os.strerror(error.errno) if error.errno else str(error)
    step = _NEXT_STEP.get(error.errno or 0)
    return f"{text}: {step}" if step else text


#: Schemes of target URLs: whether TLS is spoken. The protocol is ``target.protocol``'s to say; all name a host and a
#: port.
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
            f"target.url: the host {origin.host!r} has no address ({reason}). Check the name", ExitCode.UNREACHABLE
        ) from None
