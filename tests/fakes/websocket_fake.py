"""The skeleton of the WebSocket fakes: a server on 127.0.0.1 that says scripted things at known instants and logs them.

What a fake recognises is driven by the audio time that it was sent, plus scripted wall delays, so that tests are exact
whatever the pace. Every message that goes out is logged with ``time.monotonic_ns`` read just before the write: the
truth that a client's stamps are held against (``GET /log``, one JSON object a line). It checks what the vendor checks:
a violation is logged and answered as the vendor answers it. A fake is started as ``python -m tests.fakes.NAME --port
0`` and prints one JSON line when it is ready. Test code only; it uses nothing of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import signal
import socket
import struct
import sys
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import WSMsgType, web


@dataclass(frozen=True)
class Knobs:
    """What is scripted. Times in ms; a ``fault`` is ``NAME[=VALUE]``, ``fault_after`` counts the client's messages.

    Word i of ``words`` ends at ``first_ms + i * word_ms`` of audio. Faults: ``refuse=STATUS`` (the handshake),
    ``error`` (the vendor's own error message, then its close), ``close=CODE``, ``reset`` (RST), ``hang`` (hears, but
    never finishes), ``garbage`` (a message that is not of the format), ``stop-reading``.
    """

    words: tuple[str, ...] = ("one", "two", "three")
    first_ms: float = 200.0
    word_ms: float = 100.0
    ready_delay_ms: float = 5.0
    partial_delay_ms: float = 10.0
    final_delay_ms: float = 20.0
    endpoint_ms: float = 200.0  # of silence after the last word, in audio time
    audio_per_word_ms: float = 100.0  # synthesis
    chunk_ms: float = 50.0
    chunk_every_ms: float = 20.0
    leading_silence_ms: float = 30.0
    fault: str = ""
    fault_after: int = 3
    fault_after_audio: int = 0  # instead: of the server's own audio messages

    @property
    def fault_name(self) -> str:
        return self.fault.partition("=")[0]

    @property
    def fault_value(self) -> str:
        return self.fault.partition("=")[2]

    def words_by(self, audio_ms: float) -> int:
        """How many words have ended by this audio time."""
        if audio_ms + 1e-6 < self.first_ms:
            return 0
        return min(len(self.words), 1 + int((audio_ms + 1e-6 - self.first_ms) // self.word_ms))

    def end_ms(self, word: int) -> float:
        return self.first_ms + word * self.word_ms

    @property
    def speech_end_ms(self) -> float:
        return self.end_ms(len(self.words) - 1)


class Over(Exception):
    """The conversation was ended by a fault."""


class Conversation:
    """One session as a fake sees it.

    ``say`` queues; what is queued goes out in order, each thing not before its time.
    """

    def __init__(self, fake: Fake, request: web.Request, number: int) -> None:
        self.fake = fake
        self.knobs = fake.knobs
        self.request = request
        self.number = number
        self.protocols: tuple[str, ...] = ()
        self.heard = 0
        self.ws: web.WebSocketResponse
        self._queue: asyncio.Queue[tuple[float, str | bytes, str, dict[str, Any]]] = asyncio.Queue()
        self._last = 0.0
        self._sender: asyncio.Task[None] | None = None
        self.muted = False
        self._spoken = 0

    # -- logging ------------------------------------------------------------------------------------------------

    def log(self, kind: str, **facts: Any) -> None:
        self.fake.log.append(
            {
                "t_ns": time.monotonic_ns(),
                "session": self.number,
                "request_id": self.request.headers.get("x-request-id", ""),
                "kind": kind,
                **facts,
            }
        )

    def violation(self, text: str) -> None:
        """The client did something that the vendor refuses."""
        self.log("violation", text=text)

    # -- talking ------------------------------------------------------------------------------------------------

    async def open(self, max_size: int = 0) -> None:
        """Accept the upgrade."""
        self.ws = web.WebSocketResponse(compress=False, max_msg_size=max_size, protocols=self.protocols, autoping=True)
        await self.ws.prepare(self.request)
        self.log("open")
        self._sender = asyncio.create_task(self._send())

    def say(self, data: str | bytes | Mapping[str, Any], kind: str, after_ms: float = 0.0, **facts: Any) -> None:
        """Send so many ms from now, and not before what was said earlier. A mapping goes out as JSON text."""
        message = json.dumps(data) if isinstance(data, Mapping) else data
        self._last = max(self._last, asyncio.get_running_loop().time() + after_ms / 1000)
        self._queue.put_nowait((self._last, message, kind, facts))

    def behind_ms(self) -> float:
        """How long what was said already still takes to go out."""
        return max(0.0, (self._last - asyncio.get_running_loop().time()) * 1000)

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, message, kind, facts = await self._queue.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            if not self.muted:
                self.log(kind, **facts)
                with contextlib.suppress(ConnectionError, RuntimeError):
                    await (self.ws.send_str(message) if isinstance(message, str) else self.ws.send_bytes(message))
            self._queue.task_done()
            self._spoken += kind == "audio"
            if self._spoken and self._spoken == self.knobs.fault_after_audio:
                await self._break_off()
                return

    async def _break_off(self) -> None:
        """A fault in the middle of the server's own audio."""
        if self.knobs.fault_name == "reset":
            self.reset()
        elif self.knobs.fault_name == "close":
            with contextlib.suppress(ConnectionError):
                await self.ws.close(code=int(self.knobs.fault_value or "1011"))

    async def drained(self) -> None:
        """All that was said is out."""
        await self._queue.join()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Send what is queued, then close; one that hangs never does."""
        await self.drained()
        if self.muted:
            async for _ in self.ws:
                pass
            self.log("client_closed", code=self.ws.close_code)
            return
        self.log("close", code=code)
        with contextlib.suppress(ConnectionError):
            await self.ws.close(code=code, message=reason.encode())

    def reset(self) -> None:
        """Cut the connection with an RST."""
        self.log("reset")
        transport = self.request.transport
        if transport is not None:
            sock = transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()

    async def messages(self) -> AsyncIterator[str | bytes]:
        """What the client says, text as str. Faults strike here; it ends when the client closes."""
        async for message in self.ws:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            self.heard += 1
            if self.knobs.fault and not self.knobs.fault_after_audio and self.heard == self.knobs.fault_after:
                await self._strike()
            yield message.data
        self.log("client_closed", code=self.ws.close_code)

    async def _strike(self) -> None:
        name, value = self.knobs.fault_name, self.knobs.fault_value
        if name == "error":
            await self.fake.error(self)
            raise Over
        if name == "close":
            await self.close(int(value or "1011"), "told to")
            raise Over
        if name == "reset":
            await self.drained()
            self.reset()
            raise Over
        if name == "garbage":
            self.say(self.fake.garbage, "garbage")
        if name == "hang":
            self.log("hang")
            await self.drained()
            self.muted = True
        if name == "stop-reading":
            await asyncio.sleep(3600)

    async def end(self) -> None:
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)


Handler = Callable[[Conversation], Awaitable[None]]


class Fake:
    """A server: paths (aiohttp patterns) and who answers there. ``error`` says the vendor's own error and closes."""

    def __init__(
        self, routes: Mapping[str, Handler], error: Handler, knobs: Knobs, garbage: str | bytes = "{not json"
    ) -> None:
        self.routes = dict(routes)
        self.garbage = garbage
        self.error = error
        self.knobs = knobs
        self.log: list[dict[str, Any]] = []
        self.sessions = 0
        self.open_now = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_get("/log", self._serve_log)
        for path, handler in self.routes.items():
            app.router.add_get(path, self._handler(handler))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve_log(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(json.dumps(entry) + "\n" for entry in self.log))

    def _handler(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            conversation = Conversation(self, request, self.sessions)
            self.sessions += 1
            if self.knobs.fault_name == "refuse":
                conversation.log("refused")
                status = int(self.knobs.fault_value or "503")
                return web.json_response({"detail": "told to refuse: no free capacity"}, status=status)
            self.open_now += 1
            try:
                await handler(conversation)
            except Refused as refused:
                conversation.violation(refused.text)
                return web.json_response({"detail": refused.text}, status=refused.status)
            except Over:
                pass
            finally:
                self.open_now -= 1
                await conversation.end()
            return conversation.ws

        return answer


class Refused(Exception):
    """Raised by a handler before ``open``: the handshake is answered with this status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


# -- sound ----------------------------------------------------------------------------------------------------------


def tone(ms: float, rate: int, silence_ms: float = 0.0) -> array[int]:
    """int16 samples: silence, then 440 Hz at a quarter of full scale; ``ms`` in all."""
    n, quiet = round(ms * rate / 1000), round(silence_ms * rate / 1000)
    step = 2 * math.pi * 440 / rate
    return array("h", [0 if i < quiet else round(8192 * math.sin(step * i)) for i in range(n)])


def chunks(samples: array[int], rate: int, chunk_ms: float) -> list[array[int]]:
    """Cut into pieces of ``chunk_ms``."""
    size = max(1, round(chunk_ms * rate / 1000))
    return [samples[begin : begin + size] for begin in range(0, len(samples), size)]


# -- the command ----------------------------------------------------------------------------------------------------


def parse(argv: Sequence[str] | None = None) -> tuple[int, Knobs]:
    """(port, knobs) of a fake's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--words", default=" ".join(Knobs.words))
    parser.add_argument("--fault", default="")
    parser.add_argument("--fault-after", type=int, default=Knobs.fault_after)
    parser.add_argument("--fault-after-audio", type=int, default=Knobs.fault_after_audio)
    timings = [name for name in Knobs.__annotations__ if name.endswith("_ms")]
    for name in timings:
        parser.add_argument("--" + name.replace("_", "-"), type=float, default=getattr(Knobs, name))
    given = parser.parse_args(argv)
    knobs = Knobs(
        words=tuple(given.words.split()),
        fault=given.fault,
        fault_after=given.fault_after,
        fault_after_audio=given.fault_after_audio,
        **{name: getattr(given, name) for name in timings},
    )
    return given.port, knobs


def main(build: Callable[[Knobs], Fake], argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, after one JSON line with the URL."""
    port, knobs = parse(argv)

    async def serve() -> None:
        fake = build(knobs)
        await fake.start(port)
        print(json.dumps({"url": fake.url, "port": fake.port}), flush=True)
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, over.set)
        await over.wait()
        await fake.stop()

    asyncio.run(serve())
    sys.exit(0)
