"""Event-stream framing, rule by rule (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import pytest

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
