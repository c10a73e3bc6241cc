"""Is a gRPC server ready? ``grpc.health.v1.Health/Check`` for the server as a whole. One call; it computes nothing there."""

from __future__ import annotations

import asyncio

from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.rpc.metadata import metadata_of
from plimsoll.harness.transport.rpc.rpc_question import Questions

ROUTE = "/grpc.health.v1.Health/Check"
_UNIMPLEMENTED = 12
#: HealthCheckResponse.status by number, in the first field.
_STATES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


async def ask_health(target: Target, timeout_s: float) -> tuple[bool, str]:
    """(ready, what the server said). A server without a health service is ready: "" is what it said. Raises HarnessFault."""
    questions = Questions(target, metadata_of(target))
    try:
        async with asyncio.timeout(timeout_s):
            await questions.open()
            exchange = await questions.ask(ROUTE, (b"",))
    except TimeoutError:
        return False, f"nothing for {timeout_s:g} s"
    finally:
        await questions.close()
    if exchange.code == _UNIMPLEMENTED:
        return True, ""
    if exchange.code != 0:
        return False, exchange.error or "no status"
    body = bytes(exchange.body)
    state = body[1] if len(body) >= 2 and body[0] == 0x08 else 0
    return state == 1, _STATES.get(state, f"status {state}")
