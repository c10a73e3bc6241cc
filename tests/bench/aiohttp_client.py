"""The Python baseline, in a process of its own: ``python -m tests.bench.aiohttp_client SPEC`` prints its figures as
JSON.

A plain closed loop on uvloop. ``small`` keeps when each request began and ended. ``sse`` also stamps each event and
takes its JSON apart with orjson as it comes, which is what most load generators for language models do. It judges
nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from typing import Any

import aiohttp
import orjson
import uvloop

HEADERS = {"content-type": "application/json"}


class Load:
    """One closed loop: ``tasks`` requests at a time, new ones for ``seconds``, then the rest is waited for."""

    def __init__(self, session: aiohttp.ClientSession, spec: dict[str, Any]) -> None:
        self._session = session
        self._url = spec["url"]
        self._body = spec["body"].encode()
        self.until_ns = time.monotonic_ns() + int(spec["seconds"] * 1e9)
        self.began_ns = array("q")
        self.ended_ns = array("q")
        self.event_ns = array("q")

    async def small(self) -> None:
        while (begun := time.monotonic_ns()) < self.until_ns:
            async with self._session.post(self._url, data=self._body, headers=HEADERS) as answer:
                await answer.read()
                answer.raise_for_status()
            self.began_ns.append(begun)
            self.ended_ns.append(time.monotonic_ns())

    async def sse(self) -> None:
        while (begun := time.monotonic_ns()) < self.until_ns:
            async with self._session.post(self._url, data=self._body, headers=HEADERS) as answer:
                answer.raise_for_status()
                await self._events(answer)
            self.began_ns.append(begun)
            self.ended_ns.append(time.monotonic_ns())

    async def _events(self, answer: aiohttp.ClientResponse) -> None:
        kept = b""
        async for data in answer.content.iter_any():
            now = time.monotonic_ns()
            *events, kept = (kept + data).split(b"\n\n")
            for event in events:
                payload = event.removeprefix(b"data: ")
                if payload != b"[DONE]" and orjson.loads(payload)["choices"][0]["delta"].get("content"):
                    self.event_ns.append(now)


async def main(spec: dict[str, Any]) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        cpu = time.process_time()
        load = Load(session, spec)
        one = {"small": load.small, "sse": load.sse}[spec["mode"]]
        await asyncio.gather(*(one() for _ in range(spec["tasks"])))
        cpu_s = time.process_time() - cpu
    print(
        json.dumps(
            {
                "cpu_s": cpu_s,
                "requests": len(load.ended_ns),
                "events": len(load.event_ns),
                "requests_in_time": sum(at <= load.until_ns for at in load.ended_ns),
                "events_in_time": sum(at <= load.until_ns for at in load.event_ns),
            }
        )
    )


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
