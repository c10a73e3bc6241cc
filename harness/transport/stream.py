"""The stamped transport: one non-blocking TCP or TLS connection whose bytes carry the kernel's arrival time.

Each read is one ``recvmsg`` with SO_TIMESTAMPING's software receive stamp: it says when the bytes reached the host,
however late the event loop is. Where the kernel gives none (or the wall clock stepped under it) the stamp is taken in
userland and the sink is told so. A read that takes several segments carries the stamp of the last one.

The stream knows no protocol. It calls its sink: ``on_open(t)``, ``on_data(data, t, kernel)``, ``on_lost(text, t)``.
TLS is done in memory (``ssl.SSLObject``), so that encrypted bytes are stamped at the same place as plain ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import ssl
import struct
import termios
import time
from array import array
from collections.abc import Callable
from typing import Protocol

from plimsoll.harness.clock import WallMap
from plimsoll.harness.transport.endpoint import EXHAUSTED, Endpoint, explain
from plimsoll.harness.transport.held import WEIGH_EVERY, budget, highest_fd
from plimsoll.harness.transport.uplink import Uplink, Uplinks


class Sink(Protocol):
    """Who is told what happens on a stream. All calls come from the loop's thread."""

    def on_open(self, t_ns: int) -> None:
        """Connected (and the TLS handshake is done)."""
        ...

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None:
        """Bytes arrived. ``data`` is only valid during the call."""
        ...

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None:
        """The connection is over: ``reason`` is "" for an orderly end of stream, else the error. Called once."""
        ...


class _Closed:
    """The sink of a closed stream: hears nothing, because nothing is said."""

    __slots__ = ()

    def on_open(self, t_ns: int) -> None: ...

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None: ...

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None: ...


CLOSED: Sink = _Closed()


_SO_TIMESTAMPING = 37
_RX_SOFTWARE = 1 << 3
_REPORT_SOFTWARE = 1 << 4
_TIMESPEC = struct.Struct("@qq")
_ANC_SIZE = socket.CMSG_SPACE(48)
_READ_SIZE = 262_144
_OUTQ = array("i", [0])  # where the kernel writes its answer: all streams of a process live on one thread
#: ``tcpi_bytes_acked`` in Linux's ``struct tcp_info`` (since 4.1).
_ACKED, _ACKED_AT, _INFO_SIZE = struct.Struct("=Q"), 120, 128
#: How long TLS messages that no request asked for may lie unread before their stamp is refused.
_UNASKED_NS = 1_000_000_000


class Readers:
    """What all streams of one client share: the loop, the read buffer, the wall-clock map and what went wrong on our
    side.
    """

    __slots__ = (
        "_anchor",
        "buffer",
        "closing",
        "exhausted",
        "held_limit",
        "highest_fd",
        "kernel_reads",
        "loop",
        "preferred",
        "stamping",
        "unweighed",
        "uplinks",
        "user_reads",
        "view",
        "wall",
        "weigh",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wall: WallMap,
        stamping: bool = True,
        weigh: Callable[[int], None] = lambda limit: None,
        uplinks: Uplinks | None = None,
    ) -> None:
        """``weigh`` is called, with ``held.budget()``, whenever ``held.WEIGH_EVERY`` bytes have come. ``uplinks``: the
        bad network before the sockets.
        """
        self.uplinks = uplinks
        self.closing: set[Stream] = set()  # closed, and what they wrote last is still under way
        self.weigh = weigh
        self.held_limit = budget()
        self.highest_fd = highest_fd()
        self.unweighed = 0
        self.loop = loop
        self.wall = wall
        self.stamping = stamping
        self.buffer = bytearray(_READ_SIZE)
        self.view = memoryview(self.buffer)
        self.kernel_reads = 0
        self.user_reads = 0
        self.preferred = 0  # index of the address that answered last: new connections start there
        self.exhausted: dict[str, int] = {}
        # Linux stamps packets only while some socket asks for it, and switches that on and off in the background: up to
        # half of the reads of a connection-per-request run came without a stamp. One socket that asks all the time
        # keeps it on.
        self._anchor = -1
        if stamping:
            with contextlib.suppress(OSError), socket.socket() as sock:  # a connection finds out the same, and says so
                ask_for_stamps(sock)
                self._anchor = sock.detach()

    def close(self) -> None:
        """Let the kernel stop stamping. Called once all streams are closed."""
        for stream in [*self.closing]:
            stream.gone_out()
        if self._anchor >= 0:
            os.close(self._anchor)
            self._anchor = -1


def ask_for_stamps(sock: socket.socket) -> None:
    """Have the kernel stamp what this socket receives. Raises OSError where it can't."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE | _REPORT_SOFTWARE)


class Stream:
    """One connection. Made closed; ``connect`` starts it; it never reconnects itself."""

    __slots__ = (
        "_duplex",
        "_endpoint",
        "_fd",
        "_first",
        "_in",
        "_last_ns",
        "_lost",
        "_out",
        "_pending",
        "_readers",
        "_reset",
        "_sink",
        "_sock",
        "_tls",
        "_tried",
        "_uplink",
        "_writing",
        "connected",
        "read_at_most",
        "taken",
    )

    def __init__(self, readers: Readers, endpoint: Endpoint, sink: Sink, duplex: bool = False) -> None:
        """``duplex``: both sides talk at once, so that what is read need not answer what was written last.

        ``taken``: bytes that the kernel took so far; ``read_at_most``, once it is lost: how many of them the peer can
        have read.
        """
        self._readers = readers
        self._endpoint = endpoint
        self._sink: Sink = sink
        self._duplex = duplex
        self._sock: socket.socket | None = None
        self._fd = -1
        self._first = readers.preferred  # what the others prefer may change while this one tries
        self._tried = 0
        self._pending = bytearray()
        self._writing = False
        self._lost = False
        self._uplink = None if readers.uplinks is None else Uplink(readers.uplinks, self._hand_over)
        self._last_ns = 0
        self._tls: ssl.SSLObject | None = None
        self._in: ssl.MemoryBIO | None = None
        self._out: ssl.MemoryBIO | None = None
        self._reset = False
        self.connected = False
        self.taken = 0
        self.read_at_most = 0

    # -- connecting ---------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Start connecting to the next address; the sink hears ``on_open`` or ``on_lost``."""
        addresses = self._endpoint.addresses
        family, address = addresses[(self._first + self._tried) % len(addresses)]
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            if sock.fileno() > self._readers.highest_fd:
                sock.close()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        except OSError as error:
            self._note_exhaustion(error)
            self._readers.loop.call_soon(self._lose, explain(error))
            return
        self._sock, self._fd = sock, sock.fileno()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._readers.stamping:
            try:
                ask_for_stamps(sock)
            except OSError:
                self._readers.stamping = False  # this kernel has none: every stamp is a userland one, and says so
        self._last_ns = time.monotonic_ns()
        code = sock.connect_ex(address)
        if code in (0, errno.EINPROGRESS):
            self._readers.loop.add_writer(self._fd, self._on_connected)
        else:
            self._connect_failed(code)

    def _on_connected(self) -> None:
        sock = self._sock
        if sock is None:
            return
        self._readers.loop.remove_writer(self._fd)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._connect_failed(code)
            return
        readers = self._readers
        readers.preferred = (self._first + self._tried) % len(self._endpoint.addresses)
        readers.loop.add_reader(self._fd, self._on_readable)
        context = self._endpoint.tls
        if context is None:
            self.connected = True
            self._sink.on_open(time.monotonic_ns())
            return
        self._duplex = True  # tickets and key updates come unasked
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._in, self._out, server_hostname=self._endpoint.host)
        except (ssl.SSLError, ValueError) as error:
            self._lose(f"TLS: {error}")
            return
        self._handshake()

    def try_next_address(self) -> bool:
        """Give this address up for the host's next one. False if there is none."""
        if self._tried + 1 >= len(self._endpoint.addresses):
            return False
        self._drop_socket()
        self._pending.clear()
        self._tried += 1
        self.connect()
        return True

    def _connect_failed(self, code: int) -> None:
        self._drop_socket()
        error = OSError(code, "")
        self._note_exhaustion(error)
        if not self.try_next_address():
            self._readers.loop.call_soon(self._lose, explain(error))

    def _note_exhaustion(self, error: OSError) -> None:
        if error.errno in EXHAUSTED:
            text = explain(error)
            self._readers.exhausted[text] = self._readers.exhausted.get(text, 0) + 1

    def _handshake(self) -> None:
        tls = self._tls
        if tls is None:
            return
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush_tls()
            return
        except ssl.SSLError as error:
            self._flush_tls()  # the alert
            self._lose(f"TLS: {error.reason or error}".replace("\n", " "))
            return
        self._flush_tls()
        if self._lost:
            return
        if refused := self._endpoint.refuses(tls.selected_alpn_protocol()):
            self._lose(refused)
            return
        self.connected = True
        self._sink.on_open(time.monotonic_ns())

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> int:
        """Write, keeping what the kernel doesn't take. Returns the stamp taken just before the first byte went out.

        A failure is reported by ``on_lost``, later, never from inside this call.
        """
        if self._tls is not None and self._out is not None:
            try:
                self._tls.write(data)
            except ssl.SSLError as error:  # a TLS 1.2 server is renegotiating on an idle connection, or it is broken
                self._readers.loop.call_soon(self._lose, f"TLS: {error.reason or error}")
            data = self._out.read()
        now = time.monotonic_ns()
        # What is read next answers this write, so it came later; what comes unasked may have been waiting since before
        # it.
        self._last_ns = max(self._last_ns, now - _UNASKED_NS) if self._duplex else now
        if self._uplink is not None:
            self._uplink.put(data)
        elif self._pending:
            self._pending += data
        else:
            self._send(data)
        return now

    def _hand_over(self, data: bytes) -> None:
        if self._pending:
            self._pending += data
        else:
            self._send(data)

    @property
    def unsent(self) -> int:
        """Bytes accepted by ``write`` that the kernel has not taken yet."""
        return len(self._pending) + (0 if self._uplink is None else self._uplink.held)

    def untaken(self) -> int:
        """Bytes written that the peer's host has not acknowledged yet, those that wait here among them.

        A system call.
        """
        if self._sock is None:
            return self.unsent
        fcntl.ioctl(self._fd, termios.TIOCOUTQ, _OUTQ)
        return self.unsent + _OUTQ[0]

    def _send(self, data: bytes | memoryview) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            sent = sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            # The peer may have answered and closed before it took the whole request: what it said is read first.
            if error.errno in (errno.EPIPE, errno.ECONNRESET):
                self._readers.loop.call_soon(self._read_to_the_end)
            else:
                self._readers.loop.call_soon(self._lose, explain(error))
            self._note_reset(error)
            return
        self.taken += sent
        if sent < len(data):
            self._pending += memoryview(data)[sent:]
            if not self._writing:
                self._writing = True
                self._readers.loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        try:
            sent = sock.send(memoryview(self._pending)[:_READ_SIZE])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._pending.clear()  # the reason comes with the read side
            self._readers.loop.call_soon(self._read_to_the_end)
            self._note_reset(error)
            sent = 0
        self.taken += sent
        del self._pending[:sent]
        if not self._pending:
            self._writing = False
            self._readers.loop.remove_writer(self._fd)

    def _note_reset(self, error: OSError) -> None:
        """It is said once: what is read after it looks like an orderly end."""
        self._reset = self._reset or error.errno == errno.ECONNRESET

    def _flush_tls(self) -> None:
        if self._out is not None and (data := self._out.read()):
            (self._hand_over if self._uplink is None else self._uplink.put)(data)

    # -- reading ------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        readers = self._readers
        sock = self._sock
        if sock is None:
            return
        try:
            n, ancillary, _, _ = sock.recvmsg_into((readers.buffer,), _ANC_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(explain(error))
            return
        now = time.monotonic_ns()
        if n == 0:
            if self._tls is not None and self.connected:
                self._finish("TLS: the connection was closed without close_notify", now, True)  # it may have been cut
            else:
                self._end_of_stream(now)
            return
        stamp = -1
        if ancillary:
            seconds, nanos = _TIMESPEC.unpack_from(ancillary[0][2])
            if seconds:
                stamp = readers.wall.to_monotonic(seconds * 1_000_000_000 + nanos, self._last_ns, now)
        if stamp < 0:
            kernel = False
            stamp = now
            readers.user_reads += 1
        else:
            kernel = True
            readers.kernel_reads += 1
        self._last_ns = stamp
        try:
            if self._tls is None:
                self._sink.on_data(readers.view[:n], stamp, kernel)
            else:
                self._decrypt(readers.view[:n], stamp, kernel)
        except MemoryError:  # the loop would call again at once, and for ever
            self._lose("this worker has no memory left for what the server sends")
        readers.unweighed += n
        if readers.unweighed > WEIGH_EVERY:
            readers.unweighed = 0
            readers.weigh(readers.held_limit)

    def _decrypt(self, data: memoryview, stamp: int, kernel: bool) -> None:
        tls = self._tls
        if tls is None or self._in is None:
            return
        self._in.write(data)
        if not self.connected:
            self._handshake()
            if not self.connected:
                return
        while not self._lost:
            try:
                plain = tls.read(_READ_SIZE)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                plain = b""
            except ssl.SSLError as error:
                self._lose(f"TLS: {error.reason or error}")
                return
            if not plain:
                self._end_of_stream(stamp)
                return
            self._sink.on_data(plain, stamp, kernel)
        self._flush_tls()  # key updates and tickets may want an answer

    def _read_to_the_end(self) -> None:
        """After a write failed: the loop may say nothing of this socket any more, since its error was told to the
        writer.
        """
        readers, before = self._readers, -1
        while self._sock is not None and before != (before := readers.kernel_reads + readers.user_reads):
            self._on_readable()

    def _end_of_stream(self, t_ns: int) -> None:
        if not self.connected:
            self._lose("the connection was closed during the TLS handshake")
            return
        self._finish("", t_ns, True)

    # -- ending -------------------------------------------------------------------------------------------------

    def _lose(self, reason: str) -> None:
        self._finish(reason, time.monotonic_ns())

    def _finish(self, reason: str, t_ns: int, orderly: bool = False) -> None:
        if self._lost:
            return
        sink, was_connected = self._sink, self.connected
        self.read_at_most = self._acknowledged() if orderly and not self._reset else self.taken
        if self._uplink is not None:
            self._uplink.drop()
        self.close()
        sink.on_lost(reason, t_ns, was_connected)

    def _acknowledged(self) -> int:
        """How many of the bytes written had reached the peer's host when it ended the connection in good order.

        Whatever a host sends acknowledges all that reached it, so no byte beyond can have been read by then. A reset
        proves nothing: it is not read for what it acknowledges, and follows at once on a request that was read as well.
        """
        try:
            info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_SIZE) if self._sock else b""
        except OSError:
            info = b""
        return (
            _ACKED.unpack_from(info, _ACKED_AT)[0] - 1 if len(info) == _INFO_SIZE else self.taken
        )  # the SYN counts as one

    def close(self) -> None:
        """Close now, silently: the sink hears nothing more. What is under way on a bad network still goes out, as what
        the kernel holds does.
        """
        uplink, self._uplink = self._uplink, None
        if uplink is not None and uplink.held and self.connected:
            uplink.emptied = self.gone_out
            self._readers.closing.add(self)
            self._readers.loop.remove_reader(self._fd)
        else:
            self._drop_socket()
        self._lost = True
        self.connected = False
        self._pending.clear()
        self._tls = self._in = self._out = None
        self._sink = CLOSED  # the garbage collector is off while we measure: leave no cycle behind

    def gone_out(self) -> None:
        """A closed stream's last bytes are out, or nobody waits for them."""
        self._readers.closing.discard(self)
        self._drop_socket()

    def _drop_socket(self) -> None:
        sock = self._sock
        if sock is None:
            return
        self._sock = None
        loop = self._readers.loop
        loop.remove_reader(self._fd)
        loop.remove_writer(self._fd)
        self._writing = False
        sock.close()
