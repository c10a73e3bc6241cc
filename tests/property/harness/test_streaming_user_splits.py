"""However a stream is cut into reads, a streaming user sees the same answer, and no token before its event was
whole.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.distributed import streaming_user as streaming
from plimsoll.slo.records.records import Status
from tests.unit.harness.test_streaming_user import END, READER, SSE, Clock, Wire, event

BODY = event() + b": comment\n\n" + event("a") + event("b").replace(b"\n\n", b"\r\n\r\n") + event("c") + END


@given(st.lists(st.integers(1, len(BODY) - 1), unique=True, max_size=30))
def test_any_split_of_the_bytes_gives_the_same_answer(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(BODY)]
    reads = [(i + 1, BODY[bounds[i] : bounds[i + 1]]) for i in range(len(bounds) - 1)]
    clock = Clock()
    exchange = streaming.begin(1, b"", clock())
    streaming.ask(exchange, READER, lambda: Wire(clock, reads, headers=SSE), clock)
    assert exchange.status == Status.OK
    assert (bytes(exchange.body), exchange.n_chunks) == (BODY, 3)
    came = {end: exchange.sent_ns + at_ms * 1_000_000 for (at_ms, _), end in zip(reads, bounds[1:], strict=True)}
    for token, ns in zip((b'"a"', b'"b"', b'"c"'), exchange.chunk_ns, strict=True):
        end = BODY.index(b"\n", BODY.index(token)) + 2  # the line, and the first byte of the blank line
        assert ns >= min(at for bound, at in came.items() if bound >= end)
