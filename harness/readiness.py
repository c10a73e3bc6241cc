"""Waiting for an endpoint to be ready: a connection, and then the endpoint's own word where it has a health route.

An open port is not yet readiness: servers listen while they load weights. So ``/health`` (vLLM, SGLang, TGI, llama.cpp, the
bundled server) and ``/v2/health/ready`` (Triton, KServe) are asked, of a gRPC server ``grpc.health.v1``; a server that has none
of them is ready once it accepts connections.
It refuses to send anything that a model would compute.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.client import Target
from harness.coordinator import preflight
from harness.endpoint import tls_context
from harness.errors import HarnessFault
from harness.exit_codes import ExitCode

ROUTES = ("/health", "/v2/health/ready")
_GRPC = ("grpc", "grpcs")
_PAUSE_S = 0.1
_ANSWER_S = 2.0


@dataclass(frozen=True, slots=True)
class Ready:
    """How long it took, and which route said so ("": none, a connection was all there was to ask for)."""

    seconds: float
    route: str


async def wait_ready(target: Target, timeout_s: float, route: str | None = None) -> Ready:
    """Return when the endpoint is ready. ``route`` is the one route to ask, in place of ``ROUTES``.

    Raises HarnessFault (exit 5) when it isn't in time, with what it said last.
    """
    begun = time.monotonic()
    is_grpc = urlsplit(target.url).scheme in _GRPC
    if is_grpc and route is not None:
        raise HarnessFault(f"--path {route}: a gRPC server has no routes, its health service is asked. Leave it out")
    while True:
        try:
            await preflight(target)
            if is_grpc:
                found = await _ask_grpc(target)
            else:
                routes = ROUTES if route is None else (route,)
                found = await asyncio.to_thread(_ask, target, routes, route is not None)
        except HarnessFault as fault:
            if fault.code != ExitCode.UNREACHABLE or time.monotonic() - begun >= timeout_s:
                raise
            await asyncio.sleep(_PAUSE_S)
        else:
            return Ready(time.monotonic() - begun, found)


async def _ask_grpc(target: Target) -> str:
    """The health method if it said yes, "" if there is none. Raises HarnessFault (exit 5) when it says not yet."""
    from harness.rpc.health import ROUTE, ask_health

    ready, said = await ask_health(target, _ANSWER_S)
    if not ready:
        raise HarnessFault(
            f"{target.url}: not ready, {ROUTE} says {said}. Wait longer (--timeout), or look at the server's log",
            ExitCode.UNREACHABLE,
        )
    return ROUTE if said else ""


def _ask(target: Target, routes: tuple[str, ...], must_exist: bool) -> str:
    """The route that said yes; "" when none of them exists. Raises HarnessFault (exit 5) when one says not yet."""
    for route in routes:
        code, reason = _get(target, route)
        if 200 <= code < 300:
            return route
        # 5xx and silence are a server that starts or drains; anything else is a server without such a route.
        if code >= 500 or code < 0 or must_exist:
            said = f"HTTP {code}" if code >= 0 else reason
            raise HarnessFault(
                f"{target.url}: not ready, {route} says {said}. Wait longer (--timeout), or look at the server's log",
                ExitCode.UNREACHABLE,
            )
    return ""


def _get(target: Target, route: str) -> tuple[int, str]:
    """The status of a GET, or -1 and why there is none."""
    parts = urlsplit(target.url)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = tls_context(target.tls_verify, target.ca_file)
        connection = http.client.HTTPSConnection(host, parts.port, timeout=_ANSWER_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=_ANSWER_S)
    try:
        connection.request("GET", route, headers={"user-agent": "plimsoll", "accept": "*/*", "connection": "close"})
        return connection.getresponse().status, ""
    except (OSError, http.client.HTTPException) as error:
        return -1, str(error) or type(error).__name__
    finally:
        connection.close()
