"""One connection below the protocols: frames, stamps, faults, and clients that don't read."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from aiohttp import web

from plimsoll.reference_server.misfortune.fault import Misfortune
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.transports.websocket import MAX_UNSENT, Peer, frame
from plimsoll.reference_server.values.errors import StreamCut, StreamFailure


class FakeTransport:
    """Keeps what is written; ``drain`` bytes leave it each time it is asked how much is left."""

    def __init__(self, *, drain: int = 0) -> None:
        self.writes: list[bytes] = []
        self.unsent = 0
        self.drain = drain
        self.closing = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.unsent += len(data)

    def get_write_buffer_size(self) -> int:
        left, self.unsent = self.unsent, max(0, self.unsent - self.drain)
        return left

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


def connected(transport: FakeTransport, **given: Any) -> Peer:
    row = TruthRow("r1", "", 0)
    plain = cast("asyncio.WriteTransport", transport)
    return Peer(web.WebSocketResponse(), plain, row, Misfortune(**given), patience_s=0.0)


@pytest.mark.parametrize(
    ("size", "head"),
    [(0, "8200"), (125, "827d"), (126, "827e007e"), (65_535, "827effff"), (65_536, "827f0000000000010000")],
)
def test_frames_have_the_shortest_length_that_fits(size: int, head: str) -> None:
    assert frame(2, bytes(size)) == bytes.fromhex(head) + bytes(size)


def test_each_message_is_one_write_between_its_two_stamps() -> None:
    transport = FakeTransport()
    peer = connected(transport)
    peer.send({"type": "Results"})
    peer.send_audio(b"\x01\x02")
    assert transport.writes == [frame(1, json.dumps({"type": "Results"}).encode()), b"\x82\x02\x01\x02"]
    stamps = [*zip(peer.row.before_ns, peer.row.after_ns, strict=True)]
    assert len(stamps) == 2
    assert stamps == sorted(stamps)
    assert all(before <= after for before, after in stamps)


def test_faults_strike_at_the_message_that_they_name() -> None:
    transport = FakeTransport()
    peer = connected(transport, cut_at=2)
    peer.send({})
    peer.send({})
    with pytest.raises(StreamCut):
        peer.send({})
    assert len(transport.writes) == 2
    failing = connected(FakeTransport(), error_at=0)
    with pytest.raises(StreamFailure):
        failing.send_audio(b"x")
    failing.last_words({"type": "error"})  # says what happened, and is struck by nothing


def test_a_client_that_leaves_too_much_unread_is_cut() -> None:
    transport = FakeTransport()
    peer = connected(transport)
    transport.unsent = MAX_UNSENT - 200
    peer.send_audio(bytes(100))
    with pytest.raises(StreamCut, match="too slowly"):
        peer.send_audio(bytes(100))


def test_room_waits_for_a_client_that_reads_and_gives_up_on_one_that_does_not() -> None:
    reading, silent = FakeTransport(drain=100_000), FakeTransport()
    for transport in (reading, silent):
        transport.unsent = 400_000
    asyncio.run(connected(reading).room())
    assert reading.unsent <= 65_536
    with pytest.raises(StreamCut, match="reads nothing"):
        asyncio.run(connected(silent).room())


def test_nothing_is_written_to_a_connection_that_is_closing() -> None:
    transport = FakeTransport()
    transport.closing = True
    peer = connected(transport)
    with pytest.raises(ConnectionResetError):
        peer.send({})
    peer.last_words({})
    assert transport.writes == []
