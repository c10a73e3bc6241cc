"""Event-stream framing, rule by rule (WHATWG HTML, section 9.2). Event streams under adversarial bytes: three readers
that were written differently must agree.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire import sse
from plimsoll.harness.wire.sse import SseError, SseParser, decode


def data_of(stream: bytes) -> list[bytes]:
    return [event.data for event in SseParser().feed(stream, 0)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"]),
        (b"data: a\n\rdata: b\r\n\r", [b"a", b"b"]),
    ],
    ids=["lf", "crlf", "cr", "crlf then lf", "lf then cr"],
)
def test_every_kind_of_line_end_ends_a_line(stream: bytes, expected: list[bytes]) -> None:
    assert data_of(stream) == expected


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data:{}\n\n", [b"{}"]),
        (b"data:  two\n\n", [b" two"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b"data:\n\n", [b""]),
        (b"data: a: b\n\n", [b"a: b"]),
        (b"\n\n\n", []),
        (b": ping\n\n", []),
        (b"event: x\n\n", []),
        (b"id: 1\n\n", []),
        (b" data: a\n\n", []),
        (b"DATA: a\n\n", []),
        (b"dataset: a\n\n", []),
        (b"unknown\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"]),
        (b"data: a\n", []),
        (b"data: a", []),
    ],
)
def test_lines_become_events_as_the_rules_say(stream: bytes, expected: list[bytes]) -> None:
    assert data_of(stream) == expected


def test_an_event_name_lasts_for_one_event_and_an_id_for_ever() -> None:
    events = SseParser().feed(b"event: error\nid: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", 0)
    assert [(event.name, event.last_id) for event in events] == [(b"error", b"7"), (b"", b"7"), (b"", b"")]


def test_an_id_that_holds_a_null_is_ignored() -> None:
    assert SseParser().feed(b"id: 1\nid: 2\0\ndata: a\n\n", 0)[0].last_id == b"1"


@pytest.mark.parametrize(("line", "expected"), [(b"retry: 15", 15), (b"retry: 1.5", -1), (b"retry: x", -1)])
def test_only_whole_numbers_set_the_retry_time(line: bytes, expected: int) -> None:
    parser = SseParser()
    parser.feed(line + b"\n", 0)
    assert parser.retry_ms == expected


def test_comments_are_counted_and_give_no_event() -> None:
    parser = SseParser()
    assert parser.feed(b": ping\n\n:\n\ndata: a\n: inside\n\n", 0)[0].data == b"a"
    assert parser.comments == 3


def test_an_event_happens_when_its_blank_line_begins_not_when_its_data_came() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a", 1) == []
    assert parser.feed(b"\n", 2) == []
    assert [event.t_ns for event in parser.feed(b"\n", 3)] == [3]


def test_the_cr_of_a_split_crlf_already_ends_the_event() -> None:
    parser = SseParser()
    assert [event.t_ns for event in parser.feed(b"data: a\r\n\r", 1)] == [1]
    assert parser.feed(b"\n", 2) == []
    assert [event.data for event in parser.feed(b"data: b\n\n", 3)] == [b"b"]


@pytest.mark.parametrize(
    ("stream", "truncated"),
    [
        (b"data: a\n\n", False),
        (b"data: a\r\n\r", False),
        (b"data: a\n", True),
        (b"data: a", True),
        (b"data: a\n\nevent: x\n", True),
        (b"data: a\n\n: pi", True),
        (b"data: a\n\n: ping\n", False),
        (b"", False),
        (b"\xef\xbb\xbf", False),
    ],
)
def test_a_stream_cut_inside_an_event_or_a_line_is_truncated(stream: bytes, truncated: bool) -> None:
    parser = SseParser()
    parser.feed(stream, 0)
    assert parser.close().truncated is truncated


def test_the_tail_keeps_what_was_not_dispatched() -> None:
    parser = SseParser()
    parser.feed(b"data: a\n\ndata: [DO", 0)
    assert parser.close().rest == b"data: [DO"


def test_an_oversized_event_is_a_documented_error_that_keeps_the_events_before_it() -> None:
    parser = SseParser(max_event=20)
    with pytest.raises(SseError, match="20 bytes") as caught:
        parser.feed(b"data: a\n\ndata: " + b"x" * 30, 5)
    assert [event.data for event in caught.value.events] == [b"a"]
    with pytest.raises(SseError):
        parser.feed(b"\n\ndata: b\n\n", 6)


def test_decode_tells_an_oversized_event_without_raising() -> None:
    body = b"data: a\n\ndata: " + b"x" * 30 + b"\n\ndata: b\n\n"
    decoded = decode(body, [1], [len(body)], max_event=20)
    assert decoded.payloads == [b"a"]
    assert decoded.truncated
    assert decoded.error is not None


def test_each_event_gets_the_time_of_the_read_that_completed_it() -> None:
    reads = [b"data: a\n", b"\ndata: b\n\ndata: c", b"\n", b"\n"]
    ends = [len(b"".join(reads[: i + 1])) for i in range(len(reads))]
    decoded = decode(b"".join(reads), [10, 20, 30, 40], ends)
    assert decoded.payloads == [b"a", b"b", b"c"]
    assert decoded.times.tolist() == [20, 20, 40]


def test_one_leading_space_is_framing_even_where_other_events_have_none() -> None:
    body = b"data:a\n\ndata: b\n\ndata:  c\n\n"
    assert decode(body, [1], [len(body)]).payloads == [b"a", b"b", b" c"]


def test_bytes_without_a_mark_are_ignored() -> None:
    decoded = decode(b"data: a\n\ndata: b\n\n", [10], [9])
    assert decoded.payloads == [b"a"]
    assert decode(b"data: a\n\n", [], []).payloads == []


# -- any bytes, any split: three readers that were written differently agree ----------------------------------------

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
