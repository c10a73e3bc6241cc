"""What every fake of an HTTP server shares: a script of how answers go, a log of when it wrote what, and a way to run.

A fake speaks one vendor's wire on 127.0.0.1. How an answer goes is a ``Script``: the fake's own, overridden for request
i by the i-th of its ``plays`` (over and over), and for one request by the header ``x-fake`` (a JSON object of the same
names). What it did is in ``Fake.log``, and at ``GET /log`` as JSON: for each request what it asked, and
``time.monotonic_ns()`` just before each piece of output was written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import web

WORDS = ("load ", "lines ", "are ", "painted ", "on ", "the ", "hull ", "of ", "every ", "ship ")


@dataclass(frozen=True)
class Script:
    """How an answer goes: ``tokens`` pieces (unless the request says how many), the first after ``ttft_ms``, then one
    each ``itl_ms``.

    ``reasoning``: so many pieces of thought come first. ``error_at`` and ``cut_at``: before that piece the answer fails
    in the vendor's words, or the connection breaks. ``status``: no answer but this HTTP error. ``load_ms``: the model
    had to be loaded first.
    """

    tokens: int = 5
    ttft_ms: float = 20.0
    itl_ms: float = 4.0
    reasoning: int = 0
    error_at: int = -1
    cut_at: int = -1
    status: int = 200
    load_ms: float = 0.0


@dataclass
class Entry:
    """One request, as the fake saw it. ``sent_ns`` has an instant for each piece of output."""

    path: str
    request_id: str
    headers: dict[str, str]
    body: Any
    script: Script
    sent_ns: list[int] = field(default_factory=list)


class Failure(Exception):
    """The script wants an error in the middle of the answer."""


class Cut(Exception):
    """The script wants the connection to break."""


class Fake:
    """A running fake. ``url`` is its origin."""

    def __init__(self, script: Script, plays: Sequence[Mapping[str, Any]] = ({},)) -> None:
        self.script = script
        self.plays = plays
        self.log: list[Entry] = []
        self.url = ""

    def by_id(self) -> dict[str, Entry]:
        return {entry.request_id: entry for entry in self.log}

    async def enter(self, request: web.Request) -> Entry:
        """Log a request. JSON bodies are decoded, others kept as bytes."""
        raw = await request.read()
        try:
            body: Any = json.loads(raw)
        except ValueError:
            body = raw
        wish = json.loads(request.headers.get("x-fake", "{}"))
        headers = {name.lower(): value for name, value in request.headers.items()}
        script = replace(self.script, **self.plays[len(self.log) % len(self.plays)], **wish)
        entry = Entry(request.path, headers.get("x-request-id", ""), headers, body, script)
        self.log.append(entry)
        return entry


async def pieces(entry: Entry, n: int) -> Any:
    """The numbers of ``n`` pieces, each when it is due. Raises Failure and Cut where the script wants them."""
    script = entry.script
    begun = asyncio.get_running_loop().time()
    for i in range(n):
        due = begun + (script.ttft_ms + i * script.itl_ms) / 1000
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        if i == script.error_at:
            raise Failure
        if i == script.cut_at:
            raise Cut
        yield i


async def begin(request: web.Request, content_type: str, headers: dict[str, str] | None = None) -> web.StreamResponse:
    """Start a chunked answer."""
    response = web.StreamResponse(headers={"content-type": content_type, **(headers or {})})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def say(response: web.StreamResponse, entry: Entry, data: bytes) -> None:
    """Write a piece of output, and log when."""
    entry.sent_ns.append(time.monotonic_ns())
    await response.write(data)


def break_off(request: web.Request) -> None:
    """Break the connection."""
    if request.transport is not None:
        request.transport.abort()


def text(i: int) -> str:
    return WORDS[i % len(WORDS)]


def answer_text(n: int) -> str:
    return "".join(map(text, range(n)))


def sse(value: Any, name: str = "", space: str = " ") -> bytes:
    """One server-sent event."""
    head = f"event:{space}{name}\n" if name else ""
    return f"{head}data:{space}{json.dumps(value)}\n\n".encode()


Handler = Callable[[Fake, web.Request], Awaitable[web.StreamResponse]]
Route = tuple[str, str, Handler]


def _application(fake: Fake, routes: Sequence[Route]) -> web.Application:
    def bound(handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(fake, request)
            except Cut:
                break_off(request)
                return web.Response()

        return handle

    async def log(_request: web.Request) -> web.Response:
        rows = [{"path": e.path, "request_id": e.request_id, "sent_ns": e.sent_ns} for e in fake.log]
        return web.json_response(rows)

    app = web.Application(client_max_size=64 << 20)
    for method, path, handler in routes:
        app.router.add_route(method, path, bound(handler))
    app.router.add_get("/log", log)
    return app


async def run(fake: Fake, routes: Sequence[Route], port: int, ready: Callable[[], None], stop: asyncio.Event) -> None:
    """Serve until ``stop``; ``fake.url`` is set when ``ready`` is called."""
    runner = web.AppRunner(_application(fake, routes), shutdown_timeout=0.2, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready()
        await stop.wait()
    finally:
        await runner.cleanup()


@contextmanager
def serving(routes: Sequence[Route], plays: Sequence[Mapping[str, Any]] = ({},), **script: Any) -> Iterator[Fake]:
    """Serve in a thread for the time of a block."""
    fake = Fake(Script(**script), plays)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready = threading.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=[run(fake, routes, 0, ready.set, stop)])
    thread.start()
    try:
        assert ready.wait(10), "the fake did not start"
        yield fake
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def main(routes: Sequence[Route], description: str) -> None:
    """The command line: serve until interrupted, after one line of JSON with the URL."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=0)
    for name, kind in Script.__annotations__.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int if kind == "int" else float)
    given = vars(parser.parse_args())
    port = given.pop("port")
    fake = Fake(Script(**{name: value for name, value in given.items() if value is not None}))

    def ready() -> None:
        print(json.dumps({"url": fake.url}), flush=True)

    try:
        asyncio.run(run(fake, routes, port, ready, asyncio.Event()))
    except KeyboardInterrupt:
        return
