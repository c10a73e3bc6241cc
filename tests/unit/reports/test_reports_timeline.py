"""The timeline against slow, obvious re-computations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import MS, S, records

from plimsoll.reports.parts.charts import timeline
from plimsoll.reports.parts.parts import MAX_BUCKETS
from plimsoll.slo.records.records import Phase, Records, Status, from_columns

spans = st.lists(st.tuples(st.integers(0, 20 * S), st.integers(1, 5 * S)), min_size=1, max_size=40)


def _requests(drawn: list[tuple[int, int]]) -> Records:
    sent = np.array([a for a, _ in drawn])
    return from_columns(due_ns=sent, ready_ns=sent, sent_ns=sent, done_ns=sent + np.array([d for _, d in drawn]))


def _bounds(start: int, width: int, end: int, n: int) -> list[tuple[int, int]]:
    return [(start + i * width, end if i == n - 1 else start + (i + 1) * width) for i in range(n)]


@given(spans)
def test_in_flight_agrees_with_overlap_sums_and_a_direct_count(drawn: list[tuple[int, int]]) -> None:
    made = timeline(_requests(drawn), {})
    assert made is not None
    moments = sorted({a for a, _ in drawn})
    for index, (low, high) in enumerate(_bounds(made.start_ns, made.bucket_ns, made.end_ns, len(made.due))):
        area = sum(max(0, min(a + d, high) - max(a, low)) for a, d in drawn)
        assert made.in_flight_mean[index] == pytest.approx(area / (high - low), rel=1e-5, abs=1e-9)
        # The level only rises when a request is sent, so its peak is at a send or at the bucket's begin.
        points = [low, *(t for t in moments if low <= t < high or (t == high == made.end_ns))]
        levels = [sum(a <= t < a + d for a, d in drawn) for t in points]
        assert made.in_flight_max[index] == max(levels)


@given(spans)
def test_rates_times_widths_give_back_every_request(drawn: list[tuple[int, int]]) -> None:
    made = timeline(_requests(drawn), {})
    assert made is not None
    assert 1 <= len(made.due) <= MAX_BUCKETS
    widths = [(high - low) / S for low, high in _bounds(made.start_ns, made.bucket_ns, made.end_ns, len(made.due))]
    for rates in (made.planned_per_s, made.sent_per_s, made.completed_per_s):
        assert sum(r * w for r, w in zip(rates, widths, strict=True)) == pytest.approx(len(drawn), rel=1e-4)
    assert sum(made.due) == len(drawn)


def test_no_token_is_lost_between_chunks_and_buckets() -> None:
    made = records(300)
    line = timeline(made, {})
    assert line is not None
    assert line.output_tokens_per_s is not None
    bounds = _bounds(line.start_ns, line.bucket_ns, line.end_ns, len(line.due))
    total = sum(r * (high - low) / S for r, (low, high) in zip(line.output_tokens_per_s, bounds, strict=True))
    assert total == pytest.approx(int(made["n_out"].sum()), rel=1e-4)


def test_tokens_of_an_answer_in_one_piece_count_where_it_ended() -> None:
    whole = from_columns(due_ns=[0, 0], sent_ns=[0, 0], done_ns=[100 * MS, 10 * S], n_out=[7, 0])
    line = timeline(whole, {})
    assert line is not None
    assert line.output_tokens_per_s is not None
    assert line.output_tokens_per_s[0] * line.bucket_ns / S == pytest.approx(7)
    assert sum(line.output_tokens_per_s[1:]) == 0


def test_a_run_without_tokens_has_no_token_rate() -> None:
    line = timeline(records(50, tokens=False), {})
    assert line is not None
    assert line.output_tokens_per_s is None


def test_warm_up_is_no_part_of_the_timeline() -> None:
    made = records(100, warmup=40)
    line = timeline(made, {})
    assert line is not None
    assert sum(line.due) == 60
    assert timeline(made.select(made["phase"] == Phase.WARMUP), {}) is None


def test_unfinished_requests_are_errors_at_the_end_they_had_and_unsent_ones_are_no_events() -> None:
    rows = from_columns(
        due_ns=[0, 0, 0],
        ready_ns=[0, -1, 0],
        sent_ns=[0, -1, 0],
        done_ns=[10 * S, -1, -1],
        status=[Status.OK, Status.UNSENT, Status.UNFINISHED],
    )
    line = timeline(rows, {})
    assert line is not None
    width = line.end_ns - line.start_ns - line.bucket_ns * (len(line.due) - 1)
    assert line.errors_per_s[-1] * width / S == pytest.approx(1)
    assert line.in_flight_max[0] == 2
