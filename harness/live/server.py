"""The live page's server: a few read-only addresses on a thread and an event loop of its own, in the coordinator's
process.

The coordinator hands over what it heard and waits for nothing. A thread, because a verdict is found after the
coordinator's loop has ended, and because a drawing must not hold Ctrl-C up. Readers are counted, none can make it keep
more than one picture for them, and what they send is refused, never logged. Other sites' pages get no answer
(``harness/live/visitors.py``). It changes nothing and starts nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler

from plimsoll.harness.live.place import Place
from plimsoll.harness.live.visitors import Visitors
from plimsoll.reports.documents.live import LiveReport
from plimsoll.reports.formats import html_, openmetrics

#: Pictures are this far apart at least, and drawing them takes at most ``_SHARE`` of one core.
PICTURE_S = 1.0
_SHARE = 0.02
#: Open connections, and of them those that are sent every picture.
MOST_CONNECTIONS = 64
MOST_READERS = 16
#: A reader that takes no picture for so long is let go, and so is a connection on which nothing whole was ever asked.
SLOW_S = 10.0
_HEADERS = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "Content-Security-Policy": (
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src "
            "data:"
        ),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)


class Source(Protocol):
    """What is served; asked on the server's thread only."""

    def report(self) -> LiveReport:
        """One look at the run."""
        ...

    def finished(self) -> bool:
        """Asked ten times a second: whether nothing is left to say, so that the server may end."""
        ...


class LiveServer:
    """Serves one ``Source`` from ``start`` until that has finished, or until ``stop``."""

    def __init__(self, source: Source, place: Place) -> None:
        self._source = source
        self._place = place
        self._visitors = Visitors(place.host)
        self._loop = asyncio.new_event_loop()
        self._bound: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, name="live-view")
        self._stop = asyncio.Event()
        self._look = asyncio.Condition()
        self._number = 0
        self._html = ""
        self._whole = (-PICTURE_S, b"")
        self._readers = 0
        self._guests: dict[web.RequestHandler, _Guest] = {}
        self._ended = False

    def start(self) -> Future[int]:
        """Begin. The result is the port, or the OSError that kept it from listening."""
        self._thread.start()
        return self._bound

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have ``call`` run on the server's thread; nothing once the server has ended. Never waits."""
        if self.alive:
            try:
                self._loop.call_soon_threadsafe(call, *arguments)
            except RuntimeError:  # it ended just now
                return

    @property
    def alive(self) -> bool:
        """Whether somebody may still be served."""
        return self._thread.is_alive() and not self._loop.is_closed()

    def stop(self) -> None:
        """End within a second."""
        self.post(self._stop.set)

    def join(self) -> None:
        """Wait until it has ended; after ``stop`` that takes no second."""
        if self._thread.is_alive():
            self._thread.join(2.0)
        elif not self._loop.is_closed():  # it was never begun
            self._loop.close()

    # -- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except Exception as error:
            if self._bound.done():
                raise
            self._bound.set_exception(error)

    async def _serve(self) -> None:
        quiet = logging.Logger("live view", logging.CRITICAL + 1)
        app = web.Application(logger=quiet, client_max_size=1024, middlewares=[self._hear])
        for path, answer in (
            ("/", self._page), ("/events", self._events), ("/state.json", self._state), ("/metrics", self._metrics),
            ("/report.html", self._report), ("/healthz", self._healthz),
        ):  # fmt: skip
            app.router.add_get(path, answer)
        runner = web.AppRunner(app, access_log=None, logger=quiet, shutdown_timeout=0.2, keepalive_timeout=15)
        await runner.setup()
        try:
            listener = await self._listen(runner)
            drawing = asyncio.create_task(self._draw_while_read())
            while not self._stop.is_set() and not self._source.finished():
                self._hang_up()
                await asyncio.sleep(0.1)
            drawing.cancel()
            self._ended = True
            await self._draw()  # the last picture goes out to whoever is there
            await asyncio.sleep(0.1)
            listener.close()
        finally:
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> asyncio.Server:
        server = runner.server
        assert server is not None

        def door() -> asyncio.BaseProtocol:
            if len(self._guests) >= MOST_CONNECTIONS:
                return _Closed()
            return _Guest(server(), self._guests)

        listener = await self._loop.create_server(door, self._place.host, self._place.port)
        self._bound.set_result(listener.sockets[0].getsockname()[1])
        return listener

    @web.middleware
    async def _hear(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if (guest := self._guests.get(request.protocol)) is not None:
            guest.asked = True
        refusal = self._visitors.refusal(request.headers.get)
        if refusal is not None:
            refused = web.Response(status=403, text=refusal, headers=_HEADERS)
            refused.force_close()
            return refused
        return await handler(request)

    def _hang_up(self) -> None:
        """On those that never asked: else ``MOST_CONNECTIONS`` of them would keep everybody else out for good."""
        long_ago = time.monotonic() - SLOW_S
        for handler, guest in self._guests.items():
            if not guest.asked and guest.since < long_ago:
                handler.force_close()

    # -- pictures -------------------------------------------------------------------------------------------------

    async def _draw_while_read(self) -> None:
        """One picture for all readers, while there are any."""
        while True:
            spent = 0.0
            if self._readers:
                began = time.thread_time()
                await self._draw()
                spent = time.thread_time() - began
            await asyncio.sleep(max(PICTURE_S, spent / _SHARE))

    async def _draw(self) -> None:
        html = html_.live_look(self._source.report())
        async with self._look:
            if html != self._html:
                self._html = html
                self._number += 1
            self._look.notify_all()

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._readers >= MOST_READERS:
            text = f"{MOST_READERS} pages are open already. Close one, or read /state.json\n"
            refused = web.Response(status=503, text=text, headers={"Retry-After": "5"})
            refused.force_close()  # kept open, those that are refused would use up the connections
            return refused
        self._readers += 1
        try:
            response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
            await response.prepare(request)
            await self._send(response.write(b"retry: 2000\n\n"))
            seen = -1
            if not self._number:
                await self._draw()
            while not self._ended:
                async with self._look:
                    # Asked before it changes.
                    await self._look.wait_for(lambda: self._ended or self._number != seen)  # noqa: B023
                    changed, seen = self._number != seen, self._number
                    event = f"id: {seen}\ndata: {json.dumps(self._html)}\n\n".encode()
                if changed:
                    await self._send(response.write(event))
            await self._send(response.write(b"retry: 5000\n\n"))
            await self._send(response.write_eof())
            return response
        except ConnectionError:
            return response
        except TimeoutError:  # it reads nothing: what lies there for it would never go
            if request.transport is not None:
                request.transport.abort()
            return response
        finally:
            self._readers -= 1

    async def _send(self, writing: Awaitable[None]) -> None:
        await asyncio.wait_for(writing, SLOW_S)

    # -- answers --------------------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        now = time.monotonic()
        if now - self._whole[0] > PICTURE_S:  # however often it is asked for, it is drawn once in a while
            self._whole = now, html_.live_page(self._source.report())
        return _answer(self._whole[1], "text/html; charset=utf-8")

    async def _state(self, request: web.Request) -> web.Response:
        body = self._source.report().model_dump_json(by_alias=True).encode()
        return _answer(body, "application/json; charset=utf-8")

    async def _metrics(self, request: web.Request) -> web.Response:
        return _answer(openmetrics.live(self._source.report()), openmetrics.CONTENT_TYPE)

    async def _report(self, request: web.Request) -> web.Response:
        """The sealed run's page, which a reader's script keeps: nobody answers here for long after the verdict."""
        verdict = self._source.report().verdict
        try:
            page = b"" if verdict is None else await asyncio.to_thread(Path(verdict.report).read_bytes)
        except OSError:
            page = b""
        if not page:
            return web.Response(status=404, text="there is no report yet: the run goes on\n", headers=_HEADERS)
        return _answer(page, "text/html; charset=utf-8")

    async def _healthz(self, request: web.Request) -> web.Response:
        return _answer(b"ok\n", "text/plain; charset=utf-8")


def _answer(body: bytes, kind: str) -> web.Response:
    return web.Response(body=body, headers={**_HEADERS, "Content-Type": kind})


class _Guest(asyncio.Protocol):
    """One connection, counted from the moment it is accepted: the handler itself hears of it a turn of the loop later,
    and of a hundred that come at once each would find room. ``since``: on the monotonic clock.
    """

    def __init__(self, handler: web.RequestHandler, guests: dict[web.RequestHandler, _Guest]) -> None:
        self._handler = handler
        self._guests = guests
        self.since = time.monotonic()
        self.asked = False
        guests[handler] = self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._handler.connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._guests.pop(self._handler, None)
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> None:
        self._handler.eof_received()


class _Closed(asyncio.Protocol):
    """What a connection too many meets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
