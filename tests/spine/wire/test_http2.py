"""Our HTTP/2 against the ``h2`` library as the server, and against bytes that no server should send. No network."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.wire.grpc_messages import MessageError, MessageReader, prefixed
from plimsoll.harness.wire.hpack_blocks import BlockDecoder, BlockError, literal, request_block
from plimsoll.harness.wire.http2 import Sending, Session
from plimsoll.harness.wire.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    FrameReader,
    WireError,
    frame,
    settings_frame,
)

HELLO = settings_frame((3, 100))


@dataclass
class Heard:
    """A stream's sink that keeps what it hears."""

    data: bytearray = field(default_factory=bytearray)
    blocks: list[bytes] = field(default_factory=list)
    ends: int = 0
    reset: int | None = None

    def on_headers(self, block: bytes, end: bool, t_ns: int) -> None:
        self.blocks.append(block)
        self.ends += end

    def on_data(self, data: memoryview, end: bool, t_ns: int) -> None:
        self.data += data
        self.ends += end

    def on_reset(self, code: int, t_ns: int) -> None:
        self.reset = code


@dataclass
class Link:
    """Our session, the library's server, and what they have said to each other."""

    limits: dict[h2.settings.SettingCodes, int] = field(default_factory=dict)
    wrote: bytearray = field(default_factory=bytearray)
    goaways: list[tuple[int, int, str]] = field(default_factory=list)
    received: dict[int, bytearray] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    resets: dict[int, int] = field(default_factory=dict)
    headers: dict[int, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    settled: int = 0

    def __post_init__(self) -> None:
        self.session = Session(self._write, self)
        self.server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self.server.local_settings = h2.settings.Settings(client=False, initial_values=self.limits)
        self.server.max_inbound_frame_size = self.server.local_settings.max_frame_size
        self.server.initiate_connection()
        self.session.open()

    def _write(self, data: bytes) -> int:
        self.wrote += data
        return 0

    def on_settings(self, t_ns: int) -> None:
        self.settled += 1

    def on_goaway(self, last: int, code: int, text: str, t_ns: int) -> None:
        self.goaways.append((last, code, text))

    def to_server(self, acknowledge: bool = True) -> None:
        """What we wrote reaches the library, which refuses what breaks the RFC."""
        data, self.wrote = bytes(self.wrote), bytearray()
        for event in self.server.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.headers[event.stream_id] = list(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                self.received.setdefault(event.stream_id, bytearray()).extend(event.data)
                if acknowledge:
                    self.server.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.resets[event.stream_id] = event.error_code

    def to_client(self, cuts: list[int] | None = None) -> None:
        """What the library says reaches us, cut into pieces."""
        data = self.server.data_to_send()
        for piece in pieces(data, cuts or []):
            self.session.feed(piece, 0)

    def settle(self) -> None:
        """Both have said all that they have to say."""
        while self.wrote or self.server._data_to_send:
            self.to_server()
            self.to_client()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(at)] or [data]


def begin(link: Link, data: bytes, end: bool = True) -> tuple[Heard, Sending]:
    heard = Heard()
    sending, _, _ = link.session.begin(heard, request_block("/a.B/C", "host", False, [("te", "trailers")]), data, end)
    return heard, sending


@given(
    st.lists(st.integers(0, 70_000), min_size=1, max_size=5),
    st.sampled_from([0, 1, 100, 65_535, 1 << 20]),
    st.sampled_from([16_384, 20_000, 1 << 20]),
    st.lists(st.integers(0, 1 << 20), max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_windows_a_strict_server_receives_every_byte(
    sizes: list[int], window: int, most: int, cuts: list[int]
) -> None:
    link = Link({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window, h2.settings.SettingCodes.MAX_FRAME_SIZE: most})
    link.to_server()
    link.to_client(cuts)
    sent = [bytes([i]) * size for i, size in enumerate(sizes)]
    streams = [begin(link, data) for data in sent]
    for _ in range(400):
        link.to_server()
        for number in (stream.id for _, stream in streams):
            if number not in link.ended:
                link.server.increment_flow_control_window(10_000, number)
        link.to_client(cuts)
        if len(link.ended) == len(streams):
            break
    assert [bytes(link.received.get(stream.id, b"")) for _, stream in streams] == sent
    assert all(stream.queued == 0 and stream.closed for _, stream in streams)


@given(st.lists(st.binary(max_size=40_000), min_size=1, max_size=4), st.lists(st.integers(0, 1 << 20), max_size=12))
@settings(max_examples=60, deadline=None)
def test_any_split_of_the_bytes_gives_the_same_answer(parts: list[bytes], cuts: list[int]) -> None:
    link = Link()
    link.settle()
    heard, stream = begin(link, b"q")
    link.to_server()
    link.server.send_headers(stream.id, [(b":status", b"200"), (b"content-type", b"application/grpc")])
    for part in parts:
        for i in range(0, len(part), 16_384):
            link.server.send_data(stream.id, part[i : i + 16_384], pad_length=i % 7 or None)
    link.server.send_headers(stream.id, [(b"grpc-status", b"0")], end_stream=True)
    link.to_client(cuts)
    assert bytes(heard.data) == b"".join(parts)
    assert heard.ends == 1
    decoder = BlockDecoder()
    assert [decoder.decode(block) for block in heard.blocks] == [
        ((b":status", b"200"), (b"content-type", b"application/grpc")),
        ((b"grpc-status", b"0"),),
    ]
    assert link.session.room == link.session.limit


class Kept:
    """A frame sink that keeps every event, without times."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_data(self, stream: int, data: memoryview, size: int, end: bool, t_ns: int) -> None:
        self.events.append(("data", stream, bytes(data), size, end))

    def on_headers(self, stream: int, block: bytes, end: bool, t_ns: int) -> None:
        self.events.append(("headers", stream, block, end))

    def on_reset(self, stream: int, code: int, t_ns: int) -> None:
        self.events.append(("reset", stream, code))

    def on_settings(self, pairs: list[tuple[int, int]], ack: bool, t_ns: int) -> None:
        self.events.append(("settings", pairs, ack))

    def on_ping(self, data: bytes, ack: bool) -> None:
        self.events.append(("ping", data, ack))

    def on_goaway(self, last: int, code: int, text: str, t_ns: int) -> None:
        self.events.append(("goaway", last, code, text))

    def on_window(self, stream: int, increment: int) -> None:
        self.events.append(("window", stream, increment))


def events_of(data: list[bytes]) -> tuple[list[Any], bool]:
    kept = Kept()
    reader = FrameReader(kept)
    for piece in data:
        try:
            reader.feed(piece, 0)
        except WireError:
            return kept.events, True
    return kept.events, False


FRAMES = st.lists(
    st.builds(
        frame,
        st.integers(0, 12),
        st.integers(0, 255),
        st.integers(0, 5),
        st.one_of(st.binary(max_size=40), st.just(bytes(8))),
    ),
    max_size=8,
)


@given(FRAMES, st.lists(st.integers(0, 400), max_size=10))
@settings(max_examples=200, deadline=None)
def test_any_split_of_any_frames_gives_the_same_events_and_only_the_documented_error(
    frames: list[bytes], cuts: list[int]
) -> None:
    data = HELLO + b"".join(frames)
    assert events_of(pieces(data, cuts)) == events_of([data])


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda data: HELLO + data)))
@settings(max_examples=300, deadline=None)
def test_garbage_raises_only_the_documented_error(data: bytes) -> None:
    link = Link()
    link.session.feed(HELLO, 0)
    link.session.begin(Heard(), b"\x83", b"x", True)
    with suppress(WireError):
        link.session.feed(data, 0)


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_a_header_block_of_garbage_raises_only_the_documented_error(block: bytes) -> None:
    decoder = BlockDecoder()
    try:
        first = decoder.decode(block)
    except BlockError:
        with pytest.raises(BlockError):
            decoder.decode(block)
    else:
        assert decoder.decode(block) == first


@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(0, 2_000), max_size=12))
@settings(max_examples=200, deadline=None)
def test_however_messages_lie_in_data_frames_each_has_one_mark(messages: list[bytes], cuts: list[int]) -> None:
    exchange = Exchange(0, 0, 0, 0, None)
    reader = MessageReader(exchange, 1 << 20)
    data, at = b"".join(map(prefixed, messages)), 0
    arrived = []
    for piece in pieces(data, cuts):
        at += len(piece)
        reader.feed(memoryview(piece), at)
    assert reader.between
    assert bytes(exchange.body) == b"".join(messages)
    end = wire = 0
    for message in messages:
        end += len(message)
        wire += len(message) + 5
        arrived.append((end, wire))
    assert list(exchange.mark_end) == [end for end, _ in arrived]
    # The time of a mark is that of the piece which brought the message's last byte: here the piece's own end.
    assert all(time >= wire for time, (_, wire) in zip(exchange.mark_ns, arrived, strict=True))


@given(st.lists(st.binary(max_size=50), max_size=3), st.binary(max_size=60), st.lists(st.integers(0, 300), max_size=8))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_messages_raise_only_the_documented_error(
    messages: list[bytes], garbage: bytes, cuts: list[int]
) -> None:
    exchange = Exchange(0, 0, 0, 0, None)
    reader = MessageReader(exchange, 1 << 16)
    with suppress(MessageError):
        for piece in pieces(b"".join(map(prefixed, messages)) + garbage, cuts):
            reader.feed(memoryview(piece), 1)
    reader.close()
    assert len(exchange.mark_end) >= len(messages)
    assert len(exchange.body) == (exchange.mark_end[-1] if exchange.mark_end else 0)


@given(
    st.text(st.characters(min_codepoint=0x61, max_codepoint=0x7A), min_size=1, max_size=200), st.binary(max_size=40_000)
)
@settings(max_examples=60, deadline=None)
def test_a_library_decodes_our_literals(name: str, value: bytes) -> None:
    assert BlockDecoder().decode(literal(name, value)) == ((name.encode(), value),)


def test_a_long_header_block_continues_over_frames_that_a_strict_server_takes() -> None:
    link = Link()
    link.settle()
    block = request_block("/a.B/C", "host", False, [("x-long", "v" * 50_000)])
    heard = Heard()
    stream, _, _ = link.session.begin(heard, block, b"data", True)
    link.to_server()
    assert dict(link.headers[stream.id])[b"x-long"] == b"v" * 50_000
    assert link.ended == {stream.id}


def test_pings_and_settings_are_answered() -> None:
    link = Link()
    link.settle()
    link.server.ping(b"12345678")
    link.server.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 3})
    link.to_client()
    data, link.wrote = bytes(link.wrote), bytearray()
    said = [type(event).__name__ for event in link.server.receive_data(data)]
    assert said == ["PingAckReceived", "SettingsAcknowledged"]
    assert link.session.room == 3


def test_streams_count_against_the_servers_limit_until_they_end() -> None:
    link = Link({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
    assert link.session.room == 0  # nothing is known of the server yet
    link.settle()
    heard, stream = begin(link, b"a")
    _, other = begin(link, b"b")
    assert link.session.room == 0
    link.to_server()
    link.server.send_headers(stream.id, [(b":status", b"200")], end_stream=True)
    link.to_client()
    assert (heard.ends, link.session.room) == (1, 1)
    link.session.reset(other)
    link.to_server()
    assert (link.session.room, link.resets) == (2, {other.id: 8})


def test_a_server_that_ends_a_call_early_is_sent_no_more_of_it() -> None:
    link = Link()
    link.settle()
    heard, stream = begin(link, b"first", end=False)
    link.to_server()
    link.server.send_headers(stream.id, [(b":status", b"200"), (b"grpc-status", b"3")], end_stream=True)
    link.to_client()
    assert heard.ends == 1
    assert link.session.send(stream, b"more", True) == -1
    link.to_server()
    assert link.resets == {stream.id: 8}
    assert bytes(link.received[stream.id]) == b"first"


def test_goaway_leaves_no_room_and_says_which_streams_live() -> None:
    link = Link()
    link.settle()
    begin(link, b"a")
    link.to_server()
    link.server.close_connection(error_code=11, additional_data=b"too_many_pings", last_stream_id=1)
    link.to_client()
    assert link.goaways == [(1, 11, "too_many_pings")]
    assert link.session.room == 0


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak HTTP/2, it answered 'HTTP/1.1 400 Bad Request'"),
        (frame(DATA, 0, 1, b"x"), "first frame is not SETTINGS"),
        (HELLO + frame(DATA, 0, 7, b"x"), "stream 7, which was never begun"),
        (HELLO + frame(DATA, 0, 0, b"x"), "on stream 0"),
        (HELLO + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", "16777215 bytes"),
        (HELLO + frame(HEADERS, 0, 1, b"\x88") + frame(DATA, 0, 1, b"x"), "interrupted a header block"),
        (HELLO + frame(5, END_HEADERS, 1, bytes(8)), "pushed a stream"),
        (HELLO + frame(HEADERS, END_HEADERS | 8, 1, b"\x09a"), "shorter than its padding"),
        (HELLO + frame(8, 0, 0, bytes(4)), "window by 0"),
        (HELLO + frame(8, 0, 0, b"\x7f\xff\xff\xff"), "window by 2147483647"),
        (settings_frame((4, 1 << 31)), "INITIAL_WINDOW_SIZE"),
        (HELLO + settings_frame((5, 100)), "MAX_FRAME_SIZE is 100"),
        (HELLO + frame(HEADERS, 0, 1, bytes(16_000)) + frame(9, 0, 1, bytes(16_000)) * 4, "larger than 64 KiB"),
        (HELLO + frame(HEADERS, 0, 1) + frame(9, END_STREAM, 1), "empty piece"),
    ],
)
def test_what_no_server_may_send_is_named(data: bytes, text: str) -> None:
    link = Link()
    with pytest.raises(WireError, match=text):
        link.session.feed(data, 0)


def test_the_connections_window_is_refilled_before_a_server_can_run_out_of_it() -> None:
    link = Link()
    link.session.feed(HELLO, 0)
    heard = Silent()
    link.session.begin(heard, b"\x83", b"x", True)
    link.wrote.clear()
    data = frame(DATA, 0, 1, bytes(16_384)) * 64
    for _ in range(1024):
        link.session.feed(data, 0)
    assert heard.size == 1 << 30
    assert link.wrote == frame(8, 0, 0, (1 << 30).to_bytes(4, "big"))


class Silent:
    """A stream's sink that only counts."""

    size = 0

    def on_headers(self, block: bytes, end: bool, t_ns: int) -> None: ...

    def on_data(self, data: memoryview, end: bool, t_ns: int) -> None:
        self.size += len(data)

    def on_reset(self, code: int, t_ns: int) -> None: ...
