"""A connection that ends is heard of, whoever hears it first."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from plimsoll.harness.clock import WallMap
from plimsoll.harness.transport.endpoint import Endpoint
from plimsoll.harness.transport.stream import Readers, Stream


class Heard:
    """What a stream told."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: list[tuple[str, bool]] = []

    def on_open(self, t_ns: int) -> None: ...

    def on_data(self, data: memoryview | bytes, t_ns: int, kernel: bool) -> None:
        self.data += bytes(data)

    def on_lost(self, reason: str, t_ns: int, connected: bool) -> None:
        self.lost.append((reason, connected))


@pytest.mark.parametrize("last", [b"", b"too large"])
def test_a_write_that_is_told_of_the_reset_ends_the_connection_though_the_loop_says_nothing_more(last: bytes) -> None:
    """The socket's one error goes to whoever asks first: uvloop then now and then calls no reader, and a request waited
    for its time-out.
    """

    async def talk() -> tuple[Heard, Stream]:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            heard, readers = Heard(), Readers(loop, WallMap())
            address = (socket.AF_INET, listening.getsockname())
            stream = Stream(readers, Endpoint("127.0.0.1", address[1][1], (address,), None), heard)
            stream.connect()
            await asyncio.sleep(0.05)
            peer, _ = listening.accept()
        assert stream.connected
        loop.remove_reader(stream._fd)
        peer.sendall(last)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        await asyncio.sleep(0.05)
        stream.write(b"a request")
        await asyncio.sleep(0.05)
        stream.close()
        readers.close()
        return heard, stream

    heard, stream = asyncio.run(talk())
    assert heard.data == last, "what came before it is read"
    assert heard.lost == [("", True)]
    assert stream.read_at_most == stream.taken == 0
