"""Newline-delimited JSON and length-prefixed messages: what is one message, and that any split gives the same ones."""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire import framing
from plimsoll.harness.wire.framing import decode_lines
from tests.ndjson_parser import NdjsonError, NdjsonParser


def test_lines_end_at_lf_and_lose_the_cr_and_white_space_around_them() -> None:
    lines = decode_lines(b'{"a":1}\n {"b":2}\t\r\n', [5], [19])
    assert lines.payloads == [b'{"a":1}', b'{"b":2}']
    assert not lines.unterminated


def test_blank_lines_are_counted_and_give_nothing() -> None:
    lines = decode_lines(b"\n\r\n  \n{}\n\n", [5], [11])
    assert (lines.payloads, lines.blank) == ([b"{}"], 4)


def test_a_last_line_without_its_lf_is_given_and_flagged() -> None:
    lines = decode_lines(b"{}\n{}", [1, 2], [3, 5])
    assert lines.payloads == [b"{}", b"{}"]
    assert lines.unterminated
    assert lines.times.tolist() == [1, 2]


def test_trailing_white_space_is_no_unterminated_line() -> None:
    assert not decode_lines(b"{}\n \r", [1], [5]).unterminated


def test_a_lone_cr_does_not_end_a_line() -> None:
    assert decode_lines(b"1\r2\n", [1], [4]).payloads == [b"1\r2"]


def test_invalid_utf8_is_kept_for_the_reader_to_judge() -> None:
    assert decode_lines(b'"\xff"\n', [1], [4]).payloads == [b'"\xff"']


def test_a_line_happens_at_the_read_that_delivered_its_lf() -> None:
    lines = decode_lines(b"{}\n{}\n", [10, 20, 30], [2, 5, 6])
    assert lines.times.tolist() == [20, 30]


def test_an_oversized_line_is_a_documented_error_that_keeps_the_lines_before_it() -> None:
    parser = NdjsonParser(max_line=5)
    with pytest.raises(NdjsonError, match="5 bytes") as caught:
        parser.feed(b"{}\n" + b"x" * 6, 1)
    assert caught.value.lines == [(b"{}", 1)]
    with pytest.raises(NdjsonError):
        parser.feed(b"{}\n", 2)
    lines = decode_lines(b"{}\n" + b"x" * 6 + b"\n{}\n", [1], [13], max_line=5)
    assert (lines.payloads, lines.error) == ([b"{}"], "a line is larger than 5 bytes")


# -- any bytes, any split -------------------------------------------------------------------------------------------

streams = st.lists(
    st.sampled_from([b"\n", b"\n", b"\r", b"\r\n", b" ", b"\t", b"{}", b'{"a":1}', b"\xff", b"\0", b"\xe2\x82"]),
    max_size=30,
).map(b"".join)


@given(streams, st.lists(st.integers(1, 60), max_size=10, unique=True), st.sampled_from([3, 7, framing.MAX_LINE]))
def test_decode_equals_the_parser_fed_read_by_read(stream: bytes, cuts: list[int], limit: int) -> None:
    ends = sorted({cut for cut in cuts if cut < len(stream)} | ({len(stream)} if stream else set()))
    times = [1000 + i for i in range(len(ends))]
    parser, lines, error, start = NdjsonParser(limit), [], None, 0
    try:
        for t_ns, end in zip(times, ends, strict=True):
            lines += parser.feed(stream[start:end], t_ns)
            start = end
    except NdjsonError as fault:
        lines += fault.lines
        error = str(fault)
    tail = parser.close() if error is None else None
    if tail is not None:
        lines.append(tail)
    decoded = decode_lines(stream, times, ends, limit)
    assert decoded.payloads == [line for line, _ in lines]
    assert decoded.error == error
    assert decoded.unterminated is (tail is not None)
    assert decoded.blank == parser.blank
    # The time of an unterminated line is that of its last byte, white space included.
    assert decoded.times.tolist() == [t_ns for _, t_ns in lines]


# -- length-prefixed messages ---------------------------------------------------------------------------------------

orders: st.SearchStrategy[Literal["big", "little"]] = st.sampled_from(["big", "little"])


@given(st.lists(st.binary(max_size=9), max_size=6), orders, st.lists(st.integers(0, 80), max_size=5), st.integers(0, 5))
def test_messages_and_their_times_do_not_depend_on_the_reads(
    messages: list[bytes], order: Literal["big", "little"], cuts: list[int], missing: int
) -> None:
    body = b"".join(len(message).to_bytes(4, order) + message for message in messages)
    body = body[: max(0, len(body) - missing)]
    ends = sorted({cut for cut in cuts if 0 < cut < len(body)} | ({len(body)} if body else set()))
    times = list(range(100, 100 + len(ends)))
    found = framing.decode_messages(body, array("q", times), array("q", ends), order)
    spans = list(accumulate((4 + len(message) for message in messages), initial=0))
    whole = [message for message, (_, end) in zip(messages, pairwise(spans), strict=True) if end <= len(body)]
    assert found.payloads == whole
    assert found.error is None
    assert found.truncated is (len(body) > spans[len(whole)])
    assert found.times.tolist() == [
        next(t for t, e in zip(times, ends, strict=True) if e >= spans[i + 1]) for i in range(len(whole))
    ]


@given(st.binary(max_size=60), st.lists(st.integers(1, 60), max_size=4), orders)
def test_no_framing_breaks_on_any_bytes(body: bytes, cuts: list[int], order: Literal["big", "little"]) -> None:
    ends = array("q", sorted({cut for cut in cuts if cut <= len(body)}))
    times = array("q", range(len(ends)))
    for name in ("sse", "ndjson", "lines", "chunks", "length-prefixed"):
        stream = framing.take_apart(body, times, ends, name, order)
        assert len(stream.payloads) == len(stream.times)
        assert set(stream.times.tolist()) <= set(times)


def test_a_message_beyond_the_limit_ends_the_reading() -> None:
    body = b"\0\0\0\x01a" + b"\x7f\0\0\0"
    found = framing.decode_messages(body, array("q", [1]), array("q", [len(body)]))
    assert found.payloads == [b"a"]
    assert "is byte_order right?" in (found.error or "")
