"""A protocol's own client in this process: what it makes of a server, for what a whole run would only repeat."""

from __future__ import annotations

import asyncio
import time

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload

MOST_S = 20


async def asked(target: Target, *payloads: Payload, name: str = "run") -> list[Exchange]:
    """The settled exchanges, one request (or session) after the other over one client:

    ``name-0``, ``name-1`` ... Each is bounded by 20 s.
    """
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop)
    client = protocols()[target.protocol].build(target, clock)
    requests = [client.encode(payload) for payload in payloads]
    answers = []
    await client.open(1)
    try:
        for number, request in enumerate(requests):
            done: asyncio.Future[Exchange] = loop.create_future()
            exchange = Exchange(number, 0, 0, time.monotonic_ns(), request)
            exchange.on_done = done.set_result
            exchange.ready_ns = clock.now_ns()
            client.send(exchange, f"{name}-{number}".encode())
            answers.append(await asyncio.wait_for(done, MOST_S))
    finally:
        await client.close()
        clock.close()
    for exchange in answers:
        client.settle(exchange)
    return answers
