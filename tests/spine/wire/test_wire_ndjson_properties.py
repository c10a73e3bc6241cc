"""Line streams: the whole-body path and the incremental parser must agree on any bytes and any split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire import framing
from plimsoll.harness.wire.framing import decode_lines
from tests.ndjson_parser import NdjsonError, NdjsonParser

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
