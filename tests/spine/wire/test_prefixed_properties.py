"""Length-prefixed framing: any split of the bytes gives the same messages, each at the read that completed it."""

from __future__ import annotations

from array import array
from itertools import accumulate, pairwise
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.wire import framing

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
