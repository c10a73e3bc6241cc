"""The other ends: the oracle, nginx where it is installed, and a Python server that writes whole streams.

Each on its core.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import loopback, pinned

_NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ default_type application/json; return 200 '{{"ok": "yes"}}'; }} }}
}}
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; ``pid`` is of the process that does the work."""

    name: str
    url: str
    pid: int

    def cpu_s(self) -> float:
        spent = pinned.cpu_s(self.pid)
        if spent is None:
            raise RuntimeError(f"{self.name} has died. Look at its errors above")
        return spent


def nginx_path() -> str | None:
    """Where nginx is, if it is installed."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def oracle(core: int, *arguments: str) -> Iterator[Server]:
    """``python -m plimsoll.reference_server.oracle``, keeping no truth: it is a load to be served here, not a
    standard.
    """
    child = pinned.start([sys.executable, "-m", "plimsoll.reference_server.oracle", "--truth", "0", *arguments], core)
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise RuntimeError("the oracle did not start. Is there a C compiler? Then run: make setup")
        yield Server("oracle", json.loads(line)["url"], child.pid)
    finally:
        pinned.stop(child)


@contextmanager
def whole_streams(core: int) -> Iterator[Server]:
    """``tests/bench/loopback.py``: a whole stream of token events in one write."""
    with ExitStack() as stack:
        with pinned.on(core):
            url, pid = stack.enter_context(loopback.served())
        yield Server("one write a stream", url, pid)


@contextmanager
def nginx(core: int) -> Iterator[Server]:
    """One nginx worker that answers every request with the oracle's small JSON."""
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-nginx-") as folder:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = Path(folder, "nginx.conf")
        config.write_text(_NGINX.format(folder=folder, port=port), encoding="utf-8")
        child = pinned.start([str(nginx_path()), "-e", f"{folder}/error", "-c", str(config)], core)
        try:
            yield Server("nginx", f"http://127.0.0.1:{port}", _worker_of(child, port))
        finally:
            pinned.stop(child)


def _worker_of(master: subprocess.Popen[str], port: int) -> int:
    until = time.monotonic() + 10
    while time.monotonic() < until and master.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                pass
            found = [int(pid) for pid in Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()]
        except OSError:
            found = []
        if found:
            return found[0]
        time.sleep(0.05)
    raise RuntimeError("nginx did not start. Its errors are above; `nginx -V` shows whether it can run here")
