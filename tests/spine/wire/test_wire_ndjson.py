"""Newline-delimited JSON framing."""

from __future__ import annotations

import pytest

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
