"""Run the oracle as a process and talk to it over raw sockets, so that every byte is seen as it came."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from plimsoll.reference_server.oracle.truth_file import OracleRow, read_truth
from tests.e2e.plimsoll import ROOT

COMMAND = [sys.executable, "-m", "plimsoll.reference_server.oracle"]


@dataclass
class Oracle:
    """A running oracle."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def get(self, path: str, data: bytes | None = None) -> bytes:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=30) as answer:
            return bytes(answer.read())

    def truth(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.get("/truth").splitlines()]

    def ended(self, request_id: str) -> dict[str, Any]:
        """The row once it is closed: the client may see the last byte before the oracle has noted it."""
        for _ in range(200):
            found = [row for row in self.truth() if row["request_id"] == request_id]
            if found and found[0]["outcome"] != "open":
                return found[0]
            time.sleep(0.01)
        raise AssertionError(f"request {request_id} never ended")

    def rows(self) -> list[OracleRow]:
        return list(read_truth(self.get("/truth.bin")))


@contextmanager
def oracle(*arguments: str) -> Iterator[Oracle]:
    """``python -m plimsoll.reference_server.oracle`` on a free port; it must end by SIGTERM, silently, with code 0."""
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            line = process.stdout.readline()
            assert line, process.stderr.read()
            ready = json.loads(line)
            assert set(ready) == {"url", "pid"}
            yield Oracle(process, ready["url"])
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=15)
        assert (process.returncode, errors) == (0, "")


def post(body: str | bytes, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    """The bytes of a request."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"POST {path} HTTP/1.1", "Host: oracle", *headers, f"Content-Length: {len(data)}", "", ""]
    return "\r\n".join(lines).encode() + data


def stream(request_id: str, tokens: int | None = 4) -> bytes:
    """A request for a stream of that many tokens."""
    body: dict[str, Any] = {"model": "oracle", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    return post(json.dumps(body | ({} if tokens is None else {"max_tokens": tokens})), f"X-Request-ID: {request_id}")


class Reader:
    """Reads answers off a socket, strictly: whatever isn't exactly framed is an assertion."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._kept = b""
        self.at_ns: list[int] = []
        """When each chunk of the last answer was complete here."""

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._kept:
            self._more()
        head, _, self._kept = self._kept.partition(mark)
        return head

    def _exactly(self, n: int) -> bytes:
        while len(self._kept) < n:
            self._more()
        data, self._kept = self._kept[:n], self._kept[n:]
        return data

    def _more(self) -> None:
        data = self._sock.recv(65536)
        assert data, f"the oracle hung up after {self._kept!r}"
        self._kept += data

    def answer(self) -> tuple[int, dict[str, str], list[bytes]]:
        """Status, headers and body; the body of a chunked answer as its chunks."""
        first, *lines = self._until(b"\r\n\r\n").decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        status = int(first.split(" ")[1])
        if "content-length" in headers:
            return status, headers, [self._exactly(int(headers["content-length"]))]
        assert headers["transfer-encoding"] == "chunked"
        chunks = []
        self.at_ns = []
        while size := int(self._until(b"\r\n"), 16):
            chunks.append(self._exactly(size))
            self.at_ns.append(time.monotonic_ns())
            assert self._exactly(2) == b"\r\n"
        assert self._exactly(2) == b"\r\n"
        return status, headers, chunks

    def rest(self) -> bytes:
        """What comes until the oracle hangs up."""
        while data := self._sock.recv(65536):
            self._kept += data
        return self._kept
