"""gRPC's message framing: a flag, a length of four bytes, so many bytes. Hot: nothing but the five bytes is looked at.

Each message leaves exactly one mark on the exchange, with the time of the read that brought its last byte. What is left
of a message that was cut is taken off the body by ``close``.
"""

from __future__ import annotations

from struct import Struct

from plimsoll.harness.exchange import Exchange

_PREFIX = Struct(">BI")
#: All messages of one call together: a call that gives more is a mistake, and would take the worker's memory with it.
MAX_BODY, MAX_MESSAGES = 256 * 1024 * 1024, 1 << 18


class MessageError(Exception):
    """These bytes are no gRPC message that we can take, with the reason."""


def prefixed(message: bytes) -> bytes:
    """A message as it is written: uncompressed."""
    return _PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Reads the messages of one call into its exchange."""

    __slots__ = ("_body", "_ends", "_head", "_limit", "_missing", "_times")

    def __init__(self, exchange: Exchange, limit: int) -> None:
        self._body = exchange.body
        self._times = exchange.mark_ns
        self._ends = exchange.mark_end
        self._limit = limit
        self._head = bytearray()  # a prefix that is not whole yet
        self._missing = 0  # bytes of the message under way

    def feed(self, data: memoryview, t_ns: int) -> None:
        """Take a piece of the call's body. Raises MessageError, with the messages before it kept."""
        body, size, at = self._body, len(data), 0
        if self._missing or self._head:
            at = self._resume(data, t_ns)
            if self._missing or self._head:
                return
        while size - at >= 5:
            flag, length = _PREFIX.unpack_from(data, at)
            if flag or length > self._limit:
                raise MessageError(self._complaint(flag, length))
            at += 5
            end = at + length
            if end > size:
                self._missing = end - size
                body += data[at:]
                at = size
                break
            body += data[at:end]
            self._times.append(t_ns)
            self._ends.append(len(body))
            at = end
        if len(body) > MAX_BODY:
            raise MessageError(f"the messages of one call are larger than {MAX_BODY >> 20} MiB together")
        if len(self._ends) > MAX_MESSAGES:  # empty ones take five bytes of the server's and fifty of ours
            raise MessageError(f"one call has more than {MAX_MESSAGES} messages")
        if at < size:
            self._head += data[at:]

    def _resume(self, data: memoryview, t_ns: int) -> int:
        """Go on with the message or the prefix that the last piece ended in. How much of ``data`` that took."""
        at = 0
        if self._head:
            at = min(5 - len(self._head), len(data))
            head = self._head + data[:at]
            if len(head) < 5:
                self._head = head
                return at
            flag, length = _PREFIX.unpack(head)
            if flag or length > self._limit:
                raise MessageError(self._complaint(flag, length))
            self._head.clear()
            self._missing = length
        part = data[at : at + self._missing]
        self._body += part
        self._missing -= len(part)
        if not self._missing:
            self._times.append(t_ns)
            self._ends.append(len(self._body))
        return at + len(part)

    def _complaint(self, flag: int, length: int) -> str:
        if flag == 1:
            return "a response message is compressed although identity was asked for (grpc-accept-encoding)"
        if flag:
            return f"a response message begins with the byte 0x{flag:02x}, which is no gRPC flag"
        return (
            f"a response message of {length} bytes is larger than target.options.max_message ({self._limit}). Raise it"
        )

    @property
    def between(self) -> bool:
        """No message is cut here."""
        return not self._missing and not self._head

    def cut(self) -> bytes:
        """What came of a prefix that isn't whole."""
        return bytes(self._head)

    def close(self) -> None:
        """Take what came of an unfinished message off the body."""
        del self._body[self._ends[-1] if self._ends else 0 :]
