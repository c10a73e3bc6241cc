"""A WebSocket client that is only as well-behaved as a test wants it to be: frames by hand on a plain socket (RFC
6455).
"""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0


class Refused(Exception):
    """The handshake was answered with something else than 101."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"{status}: {body!r}")
        self.status = status
        self.headers = headers
        self.body = body


class RawWebSocket:
    """One connection. Raises Refused."""

    def __init__(self, port: int, path: str, *, request_id: str = "", timeout_s: float = 15.0, **headers: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._unread = b""
        lines = [
            f"GET {path} HTTP/1.1",
            "Host: x",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
        ]
        lines.append(f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}")
        lines += [f"x-request-id: {request_id}"] if request_id else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._unread:
            self._more()
        head, self._unread = self._unread.split(b"\r\n\r\n", 1)
        first, *rest = head.decode().split("\r\n")
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
        status = int(first.split()[1])
        if status != 101:
            while len(self._unread) < int(self.headers["content-length"]):
                self._more()
            self.socket.close()
            raise Refused(status, self.headers, self._unread)

    def __enter__(self) -> RawWebSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: str | bytes | Mapping[str, Any]) -> None:
        """One whole message; a mapping goes as JSON."""
        if isinstance(message, bytes):
            self.frame(BINARY, message)
        else:
            self.frame(TEXT, (message if isinstance(message, str) else json.dumps(message)).encode())

    def frame(self, opcode: int, payload: bytes = b"", *, final: bool = True, length: int | None = None) -> None:
        """One frame, masked; ``length`` may lie about the payload's."""
        size = len(payload) if length is None else length
        head = bytes((opcode | (0x80 if final else 0),))
        if size < 126:
            head += bytes((0x80 | size,))
        elif size < 1 << 16:
            head += bytes((0x80 | 126,)) + size.to_bytes(2, "big")
        else:
            head += bytes((0x80 | 127,)) + size.to_bytes(8, "big")
        mask = os.urandom(4)
        repeated = mask * (len(payload) // 4 + 1)
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated[: len(payload)], "big")).to_bytes(
            len(payload), "big"
        )
        self.socket.sendall(head + mask + masked)

    def receive_frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame. Raises ConnectionError at the end of the connection."""
        head = self._take(2)
        size = head[1] & 127
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return head[0] & 15, self._take(size)

    def receive(self) -> Any:
        """The next message: JSON taken apart, or bytes; a close frame as (code, reason)."""
        while True:
            opcode, payload = self.receive_frame()
            if opcode == CLOSE:
                return int.from_bytes(payload[:2], "big"), payload[2:].decode()
            if opcode in (TEXT, BINARY):
                return json.loads(payload) if opcode == TEXT else payload

    def messages(self) -> list[Any]:
        """Every message up to the close frame, and that; the close is answered."""
        got = []
        while not got or not isinstance(got[-1], tuple):
            got.append(self.receive())
        self.frame(CLOSE, got[-1][0].to_bytes(2, "big"))
        return got

    def until(self, name: str) -> list[Any]:
        """Messages up to one of that type, each with the instant at which it was read."""
        got: list[Any] = []
        while not got or not isinstance(got[-1], dict) or got[-1]["type"] != name:
            got.append(self.receive())
            assert not isinstance(got[-1], tuple), got
            if isinstance(got[-1], dict):
                got[-1]["read_ns"] = time.monotonic_ns()
        return got

    def _take(self, n: int) -> bytes:
        while len(self._unread) < n:
            self._more()
        taken, self._unread = self._unread[:n], self._unread[n:]
        return taken

    def _more(self) -> None:
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionResetError("the server closed the connection")
        self._unread += piece
