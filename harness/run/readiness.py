"""Wait until an endpoint is ready: a connection, and then the endpoint's own word where it has a health route.

Servers listen while they load weights, so an open port is not enough. ``/health`` (vLLM, SGLang, TGI, llama.cpp, the
bundled server), ``/v2/health/ready`` (Triton, KServe) and ``/ping`` (TorchServe, SageMaker) are asked, and a gRPC
server's ``grpc.health.v1``; a server with none of them is ready once it accepts connections. Nothing is sent that a
model would compute.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.host.manifest import public_url
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.endpoint import CLEARTEXT, locate, tls_context
from plimsoll.scenarios.plan.habits import ClientSection

ROUTES = ("/health", "/v2/health/ready", "/ping")
_GRPC = ("grpc", "grpcs")
_PAUSE_S = 0.1
_ANSWER_S = 2.0
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")


async def preflight(target: Target, key: str = "target.url") -> None:
    """One connection, opened and closed, before anything else. Raises HarnessFault (exit 5) if there is none, which
    says what of the scenario gave the URL.
    """
    endpoint = await locate(target)
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(endpoint.host, endpoint.port, ssl=endpoint.tls), target.connect_timeout_ns / 1e9
        )
    except (OSError, TimeoutError) as error:
        reason = str(error) or f"no answer within {target.connect_timeout_ns / 1e9:g} s"
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            reason = (
                f"it does not speak TLS; without it the URL begins with {CLEARTEXT[urlsplit(target.url).scheme]}://"
            )
        raise HarnessFault(
            f"{key}: cannot connect to {public_url(target.url)} ({reason}). Nothing was sent. Is the server "
            "running, and is the address right?",
            ExitCode.UNREACHABLE,
        ) from None
    # Not a polite close: a TLS server that doesn't answer it would hold us for 30 s.
    writer.transport.abort()
    await asyncio.sleep(0)


async def reach(target: Target, client: ClientSection | None) -> None:
    """One connection to each place that a load goes to. Raises HarnessFault (exit 5)."""
    await preflight(target)
    if client is not None and client.hedge is not None and client.hedge.to:
        await preflight(replace(target, url=client.hedge.to), "client.hedge.to")


@dataclass(frozen=True, slots=True)
class Ready:
    """How long it took, and which route said so ("": none, a connection was all there was to ask for).

    ``port_ns``, ``ready_ns``: when the first connection was accepted and when it was ready, on the monotonic clock;
    ``port_late_ns``, ``ready_late_ns``: by how much either may be late, the time since the last question that got no
    such answer was begun (0: the first one got it).
    """

    seconds: float
    route: str
    port_ns: int = 0
    port_late_ns: int = 0
    ready_ns: int = 0
    ready_late_ns: int = 0


def _evenly(_waited_s: float) -> float:
    return _PAUSE_S


async def wait_ready(
    target: Target,
    timeout_s: float,
    route: str | None = None,
    pause: Callable[[float], float] = _evenly,
    check: Callable[[], None] | None = None,
) -> Ready:
    """Return when the endpoint is ready. ``route`` is the one route to ask, in place of ``ROUTES``.

    ``pause``: seconds between two questions by the seconds waited so far; ``check`` is called after each question that
    got no yes, and may raise to end the wait. Raises HarnessFault (exit 5) when it isn't ready in time, with what it
    said last.
    """
    begun = time.monotonic()
    port_ns = port_late_ns = refused_ns = unready_ns = 0
    is_grpc = urlsplit(target.url).scheme in _GRPC
    if is_grpc and route is not None:
        raise HarnessFault(f"--path {route}: a gRPC server has no routes, its health service is asked. Leave it out")
    while True:
        asked_ns = time.monotonic_ns()
        try:
            await preflight(target)
            if not port_ns:
                port_ns = time.monotonic_ns()
                port_late_ns = port_ns - refused_ns if refused_ns else 0
            if is_grpc:
                found = await _ask_grpc(target)
            else:
                routes = ROUTES if route is None else (route,)
                found = await _ask(target, routes, route is not None)
        except HarnessFault as fault:
            if fault.code != ExitCode.UNREACHABLE or time.monotonic() - begun >= timeout_s:
                raise
            refused_ns, unready_ns = asked_ns, asked_ns
            if check is not None:
                check()
            await asyncio.sleep(pause(time.monotonic() - begun))
        else:
            ready_ns = time.monotonic_ns()
            late_ns = ready_ns - unready_ns if unready_ns else 0
            return Ready(time.monotonic() - begun, found, port_ns, port_late_ns, ready_ns, late_ns)


async def _ask_grpc(target: Target) -> str:
    """The health method if it said yes, "" if there is none. Raises HarnessFault (exit 5) when it says not yet."""
    from plimsoll.harness.transport.rpc.rpc_question import HEALTH, ask_health

    ready, said = await ask_health(target, _ANSWER_S)
    if not ready:
        raise HarnessFault(
            f"{target.url}: not ready, {HEALTH} says {said}. Wait longer (--timeout), or look at the server's log",
            ExitCode.UNREACHABLE,
        )
    return HEALTH if said else ""


async def _ask(target: Target, routes: tuple[str, ...], must_exist: bool) -> str:
    """The route that said yes; "" when none of them exists. Raises HarnessFault (exit 5) when one says not yet."""
    for route in routes:
        code, reason = await _get(target, route)
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


async def _get(target: Target, route: str) -> tuple[int, str]:
    """The status of a GET, or -1 and why there is none in time. A server that drips bytes has not answered."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_ANSWER_S):
            parts = urlsplit(target.url)
            tls = tls_context(target.tls_verify, target.ca_file) if parts.scheme in ("https", "wss") else None
            port = parts.port or (443 if tls else 80)
            reader, writer = await asyncio.open_connection(parts.hostname or "", port, ssl=tls)
            host = parts.netloc.rpartition("@")[2]
            lines = (
                f"GET {route} HTTP/1.1",
                f"Host: {host}",
                "User-Agent: plimsoll",
                "Accept: */*",
                "Connection: close",
            )
            writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
            found = _STATUS.match(await reader.readline())
            return (int(found[1]), "") if found else (-1, "no answer in HTTP/1.1")
    except TimeoutError:
        return -1, f"nothing within {_ANSWER_S:g} s"
    except (OSError, ValueError) as error:
        return -1, str(error) or type(error).__name__
    finally:
        if writer is not None:
            writer.transport.abort()
