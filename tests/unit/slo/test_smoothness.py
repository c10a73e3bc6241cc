"""A reader of the stream: the vector of SEMANTICS D.7, and what a store of early tokens is worth."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.slo.metrics import deadlines
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Records, Status, from_columns

MS = 1_000_000


def answer(*waits_ms: int, n_out: int | None = None, status: Status = Status.OK) -> Records:
    """A request due at 0 whose chunks come after these waits."""
    times = (np.cumsum(waits_ms) * MS).tolist()
    return from_columns(1, due_ns=0, n_out=len(times) if n_out is None else n_out, chunks=[times], status=int(status))


def test_the_published_vector() -> None:
    met = deadlines.reading(answer(400, 100, 100, 350, 100), 100 * MS)
    assert (int(met.waited_ns[0]), int(met.late[0]), int(met.tokens[0])) == (250 * MS, 1, 5)
    assert deadlines.share_on_time(met)[0] == 0.8


def test_early_tokens_are_a_store_that_a_gap_may_use_up() -> None:
    burst_then_gap = answer(50, 0, 0, 0, 400)
    assert deadlines.reading(burst_then_gap, 100 * MS).waited_ns[0] == 0
    one_more = answer(50, 0, 0, 0, 401)
    met = deadlines.reading(one_more, 100 * MS)
    assert (int(met.waited_ns[0]), int(met.late[0])) == (1 * MS, 1)


def test_the_wait_for_the_first_token_is_not_the_readers() -> None:
    assert deadlines.reading(answer(9000, 50, 50), 100 * MS).waited_ns[0] == 0


def test_a_slow_stream_keeps_the_reader_waiting_at_every_token() -> None:
    met = deadlines.reading(answer(10, 130, 130, 130), 100 * MS)
    assert (int(met.waited_ns[0]), int(met.late[0])) == (90 * MS, 3)


def test_several_tokens_in_a_chunk_take_as_long_to_read() -> None:
    met = deadlines.reading(answer(10, 400, 400, n_out=12), 100 * MS)
    assert (int(met.waited_ns[0]), int(met.tokens[0])) == (0, 12)
    slower = deadlines.reading(answer(10, 450, 450, n_out=12), 100 * MS)
    assert (int(slower.waited_ns[0]), int(slower.late[0])) == (100 * MS, 2)


def test_an_unknown_number_of_tokens_is_one_a_chunk() -> None:
    met = deadlines.reading(answer(10, 250, n_out=-1), 100 * MS)
    assert (int(met.waited_ns[0]), int(met.tokens[0])) == (150 * MS, 2)


def test_a_count_beyond_all_reason_does_not_overflow() -> None:
    met = deadlines.reading(answer(10, 250, 250, n_out=2**53 - 1), 100 * MS)
    assert (int(met.waited_ns[0]), int(met.late[0])) == (0, 0)


def test_requests_without_chunks_have_no_reader() -> None:
    records = from_columns(3, due_ns=0, n_out=[2, 1, 0], chunks=[[MS, 300 * MS], [MS], []])
    met = deadlines.reading(records, 100 * MS)
    assert met.valid.tolist() == [True, True, False]
    assert met.waited_ns.tolist() == [199 * MS, 0, 0]
    assert np.isnan(deadlines.share_on_time(met)[2])


@pytest.mark.parametrize(
    "text", ["p99(reader_idle) <= 500ms", "p99(reader_stalls) <= 1", "p5(reader_in_time) >= 0.99", "reader_idle <= 1s"]
)
def test_each_is_an_objective(text: str) -> None:
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("name", "worst"), [("reader_idle", np.inf), ("reader_stalls", np.inf), ("reader_in_time", 0.0)]
)
def test_a_failure_is_worst(name: str, worst: float) -> None:
    assert measure(catalogue()[name], answer(10, 10, status=Status.PROTOCOL)).values.tolist() == [worst]
