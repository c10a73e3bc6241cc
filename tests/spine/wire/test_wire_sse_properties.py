"""Event streams under adversarial bytes: three readers that were written differently must agree."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire import sse
from plimsoll.harness.wire.sse import SseError, SseParser, decode

#: Pieces whose every concatenation is near some rule's edge.
PIECES = [
    b"data: ", b"data:", b"data", b"event: ", b"event:error", b"id: 1", b"id:\0", b"retry: 3", b": ping", b":",
    b"\n", b"\n", b"\r", b"\r\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r", b" ", b"x", b'{"a":1}', b"[DONE]", b"\0",
    b"\xef\xbb\xbf", b"\xef", b"\xbb", b"\xbf", "é".encode(), b"\xe2\x82", b"\xff",
    b"data: x\n\n", b"data: y\r\n\r\n", b"data:z\n\n",
]  # fmt: skip
hostile = st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)
tame = st.tuples(
    st.sampled_from([b"data: ", b"data:"]),
    st.sampled_from([b"\n\n", b"\r\n\r\n"]),
    st.lists(st.binary(max_size=6).map(lambda b: b.translate(None, b"\r\n")), max_size=8),
).map(lambda parts: b"".join(parts[0] + payload + parts[1] for payload in parts[2]))
words = st.binary(max_size=4).map(lambda b: b.translate(None, b"\r\n"))
#: Events with names, as typed APIs send them, and now and then one without or one that is not quite so.
named = st.lists(
    st.one_of(
        st.builds(lambda name, data: b"event: " + name + b"\ndata: " + data + b"\n\n", words, words),
        st.builds(lambda data: b"data: " + data + b"\n\n", words),
        st.sampled_from(
            [b"event: x\n\n", b"\n", b"data:x\n\n", b"event:x\ndata: y\n\n", b": ping\n\n", b"data: x\ndata: y\n\n"]
        ),
    ),
    max_size=6,
).map(b"".join)
streams = hostile | tame | named | st.tuples(tame, hostile).map(b"".join)


@st.composite
def read_streams(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """(bytes, ascending end offsets of the reads, the last of which is the end)."""
    stream = draw(streams)
    cuts = draw(st.lists(st.integers(1, max(1, len(stream))), max_size=12, unique=True))
    return stream, sorted({*cuts, len(stream)} - {0}) if stream else []


def naive(stream: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """(data, name, last id) of each event, the whole text at once and by regular expression."""
    lines = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))[:-1]  # the last piece is unterminated
    events, data, name, last_id = [], [], b"", b""
    for line in lines:
        if not line:
            if data:
                events.append((b"\n".join(data), name, last_id))
            data, name = [], b""
        elif match := re.fullmatch(rb"(data|event|id)(?:: ?(.*))?", line, re.DOTALL):
            value = match[2] or b""
            if match[1] == b"data":
                data.append(value)
            elif match[1] == b"event":
                name = value
            elif b"\0" not in value:
                last_id = value
    return events


@given(streams)
def test_the_reference_parser_agrees_with_a_naive_reading_of_the_rules(stream: bytes) -> None:
    # An event whose only data is one empty line has a data buffer of one LF: it is dispatched by both.
    assert [(e.data, e.name, e.last_id) for e in SseParser().feed(stream, 0)] == naive(stream)


@given(read_streams())
def test_any_split_of_the_bytes_gives_the_same_events(case: tuple[bytes, list[int]]) -> None:
    stream, ends = case
    whole, parts = SseParser(), SseParser()
    expected = [(e.data, e.name, e.last_id) for e in whole.feed(stream, 0)]
    got, start = [], 0
    for end in ends:
        got += [(e.data, e.name, e.last_id) for e in parts.feed(stream[start:end], end)]
        start = end
    assert got == expected
    assert parts.close() == whole.close()
    assert (parts.comments, parts.retry_ms) == (whole.comments, whole.retry_ms)


@given(read_streams(), st.sampled_from([8, 20, sse.MAX_EVENT]))
def test_the_fast_path_equals_the_reference_parser(case: tuple[bytes, list[int]], limit: int) -> None:
    stream, ends = case
    times = [1000 + i for i in range(len(ends))]
    parser, events, error, start = SseParser(limit), [], None, 0
    try:
        for t_ns, end in zip(times, ends, strict=True):
            events += parser.feed(stream[start:end], t_ns)
            start = end
    except SseError as fault:
        events += fault.events
        error = str(fault)
    tail = parser.close()
    decoded = decode(bytearray(stream), times, ends, limit)
    assert decoded.payloads == [e.data for e in events]
    assert decoded.times.tolist() == [e.t_ns for e in events]
    assert (decoded.names or [b""] * len(events)) == [e.name for e in events]
    assert decoded.comments == parser.comments
    assert decoded.error == error
    assert decoded.truncated is (tail.truncated or error is not None)


@given(tame.filter(bool), st.data())
def test_an_event_is_never_earlier_than_its_last_data_byte(stream: bytes, data: st.DataObject) -> None:
    decoded = decode(stream, list(range(1, len(stream) + 1)), list(range(1, len(stream) + 1)))
    at = 0
    for payload, t_ns in zip(decoded.payloads, decoded.times.tolist(), strict=True):
        at = stream.index(payload, at) + len(payload)
        assert t_ns > at  # byte k arrives at time k + 1: the line end and the blank line come after the data


def test_the_ordinary_streams_do_take_the_fast_path() -> None:
    for eol in (b"\n", b"\r\n"):
        for prefix in (b"data: ", b"data:"):
            plain = sse._split_plain((prefix + b'{"a": 1}' + eol * 2) * 3)
            assert plain is not None
            assert plain[0] == [b'{"a": 1}'] * 3
