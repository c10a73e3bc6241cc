"""``plimsoll readiness`` believes an endpoint's own word, where it has one. Real sockets; about 5 s."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run import readiness
from plimsoll.harness.run.readiness import Ready, wait_ready
from plimsoll.harness.transport.client import Target
from tests.e2e.plimsoll import plimsoll_here

pytestmark = pytest.mark.e2e


@contextmanager
def server(codes: dict[str, list[int]]) -> Iterator[tuple[str, list[str]]]:
    """A server whose routes answer with these codes one after the other, the last one for ever; others are 404."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            left = codes.get(self.path, [404])
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}", asked
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def wait(url: str, timeout_s: float = 5.0, route: str | None = None) -> Ready:
    return asyncio.run(wait_ready(Target(url, "http"), timeout_s, route))


def test_a_server_that_starts_is_waited_for() -> None:
    with server({"/health": [503, 503, 200]}) as (url, asked):
        ready = wait(url)
    assert ready.route == "/health"
    assert ready.seconds >= 0.2
    assert asked == ["/health"] * 3


def test_tritons_route_is_known_and_a_server_without_one_is_ready_when_it_accepts_connections() -> None:
    with server({"/v2/health/ready": [503, 200]}) as (url, _):
        assert wait(url).route == "/v2/health/ready"
    with server({}) as (url, asked):
        assert wait(url).route == ""
    assert asked == ["/health", "/v2/health/ready", "/ping"]
    with server({"/ping": [500, 503, 200]}) as (
        url,
        asked,
    ):  # TorchServe: its port is open long before its workers are there
        assert wait(url).route == "/ping"
    assert asked.count("/ping") == 3
    with server({"/health": [401]}) as (url, _):  # it wants a key: that is no word on readiness
        assert wait(url).route == ""


def test_one_that_never_gets_ready_is_exit_5_with_its_last_word(tmp_path: Path) -> None:
    with server({"/health": [503]}) as (url, _):
        with pytest.raises(HarnessFault, match="not ready, /health says HTTP 503"):
            wait(url, 0.3)
        done = plimsoll_here("readiness", url, "--timeout", "300ms", cwd=tmp_path)
    assert done.returncode == 5
    assert "HTTP 503" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_named_route_is_the_only_one_and_must_say_yes(tmp_path: Path) -> None:
    with server({"/health": [200], "/ping": [503, 200]}) as (url, asked):
        done = plimsoll_here("readiness", url, "--path", "/ping", "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["route"] == "/ping"
        assert set(asked) == {"/ping"}
        with pytest.raises(HarnessFault, match="HTTP 404"):
            wait(url, 0.2, "/nowhere")
    assert plimsoll_here("readiness", url, "--path", "ping", cwd=tmp_path).returncode == 2


def test_an_answer_that_comes_byte_by_byte_is_none_and_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip() -> None:
            with listening.accept()[0]:  # the connection that only looks whether the port is open
                pass
            with listening.accept()[0] as guest:
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1000:
                    with suppress(OSError):
                        guest.send(bytes([byte]))
                    if over.wait(0.05):
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        try:
            with pytest.raises(HarnessFault, match=r"/health says nothing within 0\.2 s"):
                wait(f"http://127.0.0.1:{listening.getsockname()[1]}", 0.1)
        finally:
            over.set()
            thread.join()
        assert time.monotonic() - began < 5


def test_the_bundled_server_is_ready_only_with_its_models() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [
        sys.executable, "-m", "plimsoll.reference_server", "--http-port", str(port), "--model", "scripted", "--fault",
        "slow_start=warm_up:1s",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            ready = wait(f"http://127.0.0.1:{port}", 30.0)
        finally:
            process.terminate()
            process.communicate(timeout=20)
    assert ready.route == "/health"
    assert ready.seconds >= 1.0
