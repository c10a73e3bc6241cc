"""Event streams, line streams, token readers and paths under attack: endless lines, damaged streams, hostile JSON."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire import framing, pointer, sse, tokens
from plimsoll.harness.wire.sse import SseError, SseParser
from tests.ndjson_parser import NdjsonError, NdjsonParser

KIB = 1024
LIMIT = 256 * KIB

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
#: The shapes that token readers look for, with anything in every place.
choice = st.fixed_dictionaries(
    {},
    optional={
        "delta": json_values
        | st.fixed_dictionaries(
            {},
            optional={
                "content": json_values,
                "reasoning_content": json_values,
                "tool_calls": json_values | st.lists(st.fixed_dictionaries({"function": json_values}), max_size=2),
            },
        ),
        "text": json_values,
        "finish_reason": json_values | st.sampled_from(["stop", "error", "abort"]),
    },
)
event = st.fixed_dictionaries(
    {},
    optional={
        "choices": json_values | st.lists(choice | json_values, max_size=2),
        "usage": json_values | st.fixed_dictionaries({"prompt_tokens": json_values, "completion_tokens": json_values}),
        "error": json_values | st.fixed_dictionaries({}, optional={"message": json_values, "code": json_values}),
        "object": json_values | st.just("error"),
        "error_type": json_values,
    },
)
DEEP = b"[" * 1000 + b"]" * 1000
payloads = st.lists(
    (event | json_values).map(orjson.dumps)
    | st.binary(max_size=6)
    | st.sampled_from(
        [b"", b" ", b"[DONE]", b"[DONE] ", b"{", b'{"error":' + DEEP + b"}", DEEP, b'"\\ud800"', b"1e999"]
    ),
    max_size=6,
)


@given(payloads, st.none() | st.lists(st.sampled_from([b"", b"error", b"\xff"]), min_size=6, max_size=6))
def test_a_token_scan_never_raises_and_points_only_into_its_stream(
    data: list[bytes], names: list[bytes] | None
) -> None:
    scan = tokens.scan(data, names)
    assert scan.output == sorted(set(scan.output))
    assert all(0 <= i < scan.n_events <= len(data) for i in scan.output)
    assert scan.first_answer == -1 or scan.first_answer in scan.output
    assert min(scan.n_in, scan.n_out) >= -1
    for text in (scan.bad, scan.fault and scan.fault.message):
        assert text is None or text.encode()  # it can be written to a file


@given(payloads)
def test_what_can_be_read_of_a_stream_does_not_depend_on_what_comes_after(data: list[bytes]) -> None:
    whole = tokens.scan([*data, b'{"choices": []}'])
    part = tokens.scan(data)
    assert whole.output[: len(part.output)] == part.output
    if part.bad is not None or part.fault is not None:
        assert (whole.bad, whole.fault, whole.output) == (part.bad, part.fault, part.output)


@st.composite
def event_streams(draw: st.DrawFn) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A valid event stream with every freedom that the rules give a server, and its (data, name) pairs."""
    eol = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    text = st.text("ab :{}é", min_size=1, max_size=8).map(str.encode)
    out, events = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])), []
    for _ in range(draw(st.integers(0, 6))):
        data, name = draw(st.lists(text, min_size=1, max_size=3)), draw(st.just(b"") | text.map(bytes.strip))
        noise = draw(st.lists(st.sampled_from([b": ping", b"id: 7", b"retry: 5", b"unknown: x", b"data2"]), max_size=3))
        fields = [*([b"event: " + name] if name else []), *noise, *(b"data: " + line for line in data)]
        out += eol.join(fields) + eol + eol + draw(st.sampled_from([b"", eol, b": keep-alive" + eol + eol]))
        events.append((b"\n".join(data), name))
    return out, events


def ends_of(size: int, cuts: list[int]) -> list[int]:
    return sorted({cut for cut in cuts if 0 < cut < size} | ({size} if size else set()))


@given(event_streams(), st.lists(st.integers(1, 300), max_size=12))
def test_any_split_of_a_valid_event_stream_gives_the_events_that_were_sent(
    stream: tuple[bytes, list[tuple[bytes, bytes]]], cuts: list[int]
) -> None:
    data, events = stream
    for ends in (ends_of(len(data), cuts), list(range(1, len(data) + 1))):
        decoded = sse.decode(data, ends, ends)  # the time of a byte is where its read ends
        names = decoded.names or [b""] * len(decoded.payloads)
        assert list(zip(decoded.payloads, names, strict=True)) == events
        assert not decoded.truncated
        assert decoded.times.tolist() == sorted(decoded.times.tolist())


@given(event_streams(), st.integers(0, 300), st.lists(st.integers(1, 300), max_size=6))
def test_a_prefix_of_an_event_stream_gives_a_prefix_of_its_events(
    stream: tuple[bytes, list[tuple[bytes, bytes]]], keep: int, cuts: list[int]
) -> None:
    data, events = stream
    kept = data[:keep]
    ends = ends_of(len(kept), cuts)
    decoded = sse.decode(kept, ends, ends)
    assert decoded.payloads == [payload for payload, _ in events[: len(decoded.payloads)]]
    assert decoded.error is None


@given(st.lists(st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2), max_size=6), st.data())
def test_any_split_of_a_valid_line_stream_gives_the_lines_that_were_sent(
    values: list[Any], data: st.DataObject
) -> None:
    eol = data.draw(st.sampled_from([b"\n", b"\r\n", b" \n", b"\n\n"]))
    sent = [orjson.dumps(value) for value in values]
    stream = eol.join(sent)
    ends = ends_of(len(stream), data.draw(st.lists(st.integers(1, 100), max_size=8)))
    for marks in (ends, list(range(1, len(stream) + 1))):
        lines = framing.decode_lines(stream, marks, marks)
        assert lines.payloads == sent
        assert lines.unterminated is bool(sent)
    kept = stream[: data.draw(st.integers(0, len(stream)))]
    part = framing.decode_lines(kept, ends_of(len(kept), []), ends_of(len(kept), []))
    whole = part.payloads[:-1] if part.unterminated else part.payloads
    assert whole == sent[: len(whole)]


# -- endless --------------------------------------------------------------------------------------------------------

EVENT_STREAMS = {
    "line": b"x",
    "data line": b"data: " + b"x" * 1000,
    "comment": b": ",
    "comment lines": b": ping\n",
    "data lines": b"data: x\n",
    "empty data lines": b"data\n",
    "names": b"event: x\n",
    "ids": b"id: 1\r\n",
    "unknown fields": b"what: ever\r",
}


def retained(feed: Callable[[bytes, int], object], unit: bytes, error: type[Exception]) -> tuple[int, int]:
    """(bytes taken before the error, peak memory) of a parser offered 100 MB of ``unit`` in pieces."""
    piece = unit * (64 * KIB // len(unit))
    offered = iter(range(100_000_000 // len(piece)))

    def feed_all() -> None:
        for t_ns in offered:
            feed(piece, t_ns)

    tracemalloc.start()
    try:
        with pytest.raises(error, match=f"larger than {LIMIT} bytes"):
            feed_all()
        return next(offered) * len(piece), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", sorted(EVENT_STREAMS))
def test_an_event_that_never_ends_is_given_up_at_its_limit(name: str) -> None:
    parser = SseParser(LIMIT)
    taken, peak = retained(parser.feed, EVENT_STREAMS[name], SseError)
    assert taken <= LIMIT + 2 * 64 * KIB
    assert peak < 2 * LIMIT + 256 * KIB  # the line, and the buffer that it grows into
    with pytest.raises(SseError):
        parser.feed(b"data: x\n\n", 0)


@pytest.mark.parametrize("unit", [b"x", b" ", b"\r", b"\0"])
def test_a_line_that_never_ends_is_given_up_at_its_limit(unit: bytes) -> None:
    parser = NdjsonParser(LIMIT)
    taken, peak = retained(parser.feed, unit, NdjsonError)
    assert taken <= LIMIT + 2 * 64 * KIB
    assert peak < 2 * LIMIT + 256 * KIB
    with pytest.raises(NdjsonError):
        parser.feed(b"{}\n", 0)


@pytest.mark.parametrize("unit", [b": ping\n\n", b"\n", b"\r\n", b"data: x\n\n", b"event: x\n\n", b"id: 1\n\n"])
def test_a_parser_keeps_nothing_of_the_events_and_keep_alives_that_are_over(unit: bytes) -> None:
    """Far more than the limit of one event, in short ones: what the parser itself holds stays under one read."""
    parser, piece = SseParser(4 * KIB), unit * (8 * KIB // len(unit))
    parser.feed(piece, 0)
    tracemalloc.start()
    try:
        for t_ns in range(20):
            parser.feed(piece, t_ns)
        assert tracemalloc.get_traced_memory()[0] < 8 * KIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("decode", [sse.decode, framing.decode_lines])
def test_a_whole_body_with_an_endless_line_keeps_what_came_before_it(decode: Callable[..., Any]) -> None:
    good = b'data: {"a":1}\n\n' if decode is sse.decode else b'{"a":1}\n'
    body = good * 3 + b"data: " + b"x" * LIMIT
    half = len(good) * 3
    decoded = decode(body, [1, 2], [half, len(body)], LIMIT // 2)
    assert decoded.payloads == [b'{"a":1}'] * 3
    assert decoded.times.tolist() == [1] * 3
    assert f"larger than {LIMIT // 2} bytes" in decoded.error


# -- paths ----------------------------------------------------------------------------------------------------------

path_text = st.text("ab0.[]\"'$-*: ²٣", max_size=12) | st.lists(
    st.sampled_from(["a", ".b", "[0]", "[-1]", '["c d"]', "$", ".7", "9" * 5000, "[" + "9" * 5000 + "]"]), max_size=5
).map("".join)


@given(path_text, json_values)
def test_a_path_is_read_or_refused_and_finds_or_does_not(text: str, value: Any) -> None:
    try:
        steps = pointer.parse(text)
    except ValueError:
        return
    for data in (value, [value, [value]], {"a": value, "b": [value]}):
        found = pointer.find(data, steps)
        assert pointer.truthy(data, steps) is (found is not pointer.MISSING and bool(found))
        if not steps:
            assert found is data
