"""From the first connection to the last: a server that starts says so, and one that ends finishes what it has and takes
nothing new.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.engine.scripted import ScriptedModel
from plimsoll.reference_server.http_server import HttpFrontEnd
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.seams.truth import Truth
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.durations import WARM_UP, Startup
from plimsoll.reference_server.values.timetable import DeadlineWheel
from tests.e2e.test_reference_server import CHAT, events, running

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def front_end(**script: int) -> AsyncIterator[tuple[Service, HttpFrontEnd, int]]:
    """A front-end in this process, over a service that has not started; stopped at the end."""
    wheel = DeadlineWheel(asyncio.get_running_loop())
    service = Service(
        wheel=wheel,
        faults=Faults([], seed=0),
        truth=Truth(),
        metrics=Metrics(),
        max_body_bytes=10_000,
        startup=Startup(),
        scripted=ScriptedModel(wheel, ttft_ns=5_000_000, itl_ns=20_000_000, seed=0),
    )
    http_front_end = HttpFrontEnd(service)
    port = await http_front_end.start("127.0.0.1", 0)
    try:
        yield service, http_front_end, port
    finally:
        await http_front_end.stop(0)
        wheel.close()


class Asker:
    """One kept-alive connection, used from threads."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    async def get(self, path: str) -> tuple[http.client.HTTPResponse, Any]:
        return await asyncio.to_thread(self._call, "GET", path, None, {})

    async def chat(self, request_id: str = "", **change: Any) -> tuple[http.client.HTTPResponse, Any]:
        body = json.dumps({**CHAT, **change})
        return await asyncio.to_thread(self._call, "POST", "/v1/chat/completions", body, {"x-request-id": request_id})

    def close(self) -> None:
        self._connection.close()

    def _call(
        self, method: str, path: str, body: str | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, Any]:
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        try:
            raw = response.read()
        except http.client.IncompleteRead as cut:
            return response, cut
        return response, raw if response.headers["content-type"] == "text/event-stream" else json.loads(raw)


def test_a_server_that_starts_is_alive_and_not_ready() -> None:
    async def scenario() -> None:
        async with front_end() as (service, _, port):
            with service.startup.phase(WARM_UP):
                await asyncio.sleep(0.01)
            asker = Asker(port)
            response, health = await asker.get("/health")
            assert (response.status, health["status"], response.headers["retry-after"]) == (503, "starting", "1")
            assert health["startup_s"]["warm_up"] >= 0.01
            assert (await asker.get("/health/live"))[0].status == 200
            assert (await asker.get("/startup"))[1] == {"ready": False, "startup_s": health["startup_s"]}
            response, refused = await asker.chat("early")
            assert (response.status, response.headers["retry-after"]) == (503, "1")
            assert refused["error"]["code"] == "starting"
            row = service.truth.get("early")
            assert row is not None
            assert (row.status, row.outcome) == (503, "error")

            service.startup.ready = True
            response, health = await asker.get("/health")
            assert (response.status, health["status"], health["models"]) == (200, "ok", ["scripted"])
            assert (await asker.chat())[0].status == 200
            asker.close()

    asyncio.run(scenario())


def test_a_drain_finishes_what_is_under_way_and_refuses_what_is_new() -> None:
    async def scenario() -> None:
        async with front_end() as (service, http_front_end, port):
            service.startup.ready = True
            old, kept = Asker(port), Asker(port)
            assert (await kept.chat())[0].status == 200
            streaming = asyncio.create_task(old.chat(stream=True, max_tokens=20))
            while service.n_in_flight == 0:
                await asyncio.sleep(0.005)
            service.startup.draining = True
            stopping = asyncio.create_task(http_front_end.stop(5))
            response, health = await kept.get("/health")
            assert (response.status, health["status"]) == (503, "draining")
            response, refused = await kept.chat()
            assert (response.status, response.headers["retry-after"]) == (503, "1")
            assert refused["error"]["code"] == "draining"
            assert response.headers["connection"] == "close"
            with pytest.raises(ConnectionRefusedError):
                await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 2)
            begun = time.monotonic()
            _, raw = await streaming
            *frames, done = events(raw)
            assert done == "[DONE]"
            assert len(frames) == 22  # role, tokens, finish
            await stopping
            assert time.monotonic() - begun < 3  # it does not wait for the rest of the grace
            for asker in (old, kept):
                asker.close()

    asyncio.run(scenario())


def test_what_outlives_the_grace_is_cancelled_and_its_row_says_so() -> None:
    async def scenario() -> None:
        async with front_end() as (service, http_front_end, port):
            service.startup.ready = True
            long, short = Asker(port), Asker(port)
            cut = asyncio.create_task(long.chat("long", stream=True, max_tokens=2000))
            whole = asyncio.create_task(short.chat("short", stream=True, max_tokens=5))
            while service.n_in_flight < 2:
                await asyncio.sleep(0.005)
            service.startup.draining = True
            begun = time.monotonic()
            await http_front_end.stop(0.4)
            assert 0.3 < time.monotonic() - begun < 3
            assert isinstance((await cut)[1], http.client.IncompleteRead)
            assert (await whole)[1].endswith(b"data: [DONE]\n\n")
            outcomes = {name: row.outcome for name in ("long", "short") if (row := service.truth.get(name)) is not None}
            assert outcomes == {"long": "cancelled", "short": "ok"}
            assert service.n_in_flight == 0
            for asker in (long, short):
                asker.close()

    asyncio.run(scenario())


def stream_from(port: int, n_tokens: int) -> tuple[threading.Thread, list[bytes]]:
    """A stream whose header has come, and where its bytes will be."""
    body = json.dumps({**CHAT, "stream": True, "max_tokens": n_tokens}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(head + body)
    got = [connection.recv(65536)]

    def read() -> None:
        with connection:
            while piece := connection.recv(65536):
                got.append(piece)

    thread = threading.Thread(target=read)
    thread.start()
    return thread, got


def test_sigterm_lets_a_stream_end_whole_and_the_exit_code_is_0() -> None:
    with running("--ttft", "20ms", "--itl", "20ms", "--grace", "10s") as server:
        thread, got = stream_from(server.port, 25)
        server.process.send_signal(signal.SIGTERM)
        thread.join(10)
        assert b"".join(got).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert server.process.wait(5) == 0


def test_a_second_signal_ends_at_once() -> None:
    with running("--ttft", "20ms", "--itl", "20ms", "--grace", "60s") as server:
        thread, got = stream_from(server.port, 2000)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert server.process.poll() is None
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 0
        assert time.monotonic() - begun < 3
        thread.join(5)
        assert b"[DONE]" not in b"".join(got)


def starting(*arguments: str, port: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "plimsoll.reference_server", "--http-port", str(port), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_a_slow_start_that_is_told_to_stop_ends_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with starting("--fault", "slow_start=weights:60s", port=port) as process:
        while not listening(port):  # only then does it know what a signal means
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        said, errors = process.communicate(timeout=10)
        assert (process.returncode, said, errors) == (0, "", "")


def test_models_that_do_not_start_end_the_server_with_one_line() -> None:
    with starting("--model", "llm", "--kv-blocks", str(10**14)) as process:
        said, errors = process.communicate(timeout=30)
        assert (process.returncode, said, errors.count("\n")) == (2, "", 1)
        assert errors.startswith("error: the models can't be started: RuntimeError: ")
        assert "choose a smaller --preset or --kv-blocks" in errors
