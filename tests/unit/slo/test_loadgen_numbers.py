"""LoadGen's own numbers (slo/peers/loadgen.py): its vectors from SEMANTICS A.4 to A.7 and F, and what failures do to
them.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.peers.loadgen import NEVER, Limit, Result, limits_of, summarise
from plimsoll.slo.records.records import Records, Status, from_columns

MS = 1_000_000
S = 1_000_000_000


def server(took_ms: list[float], gap_ms: int = 10, status: list[int] | int = 0, **columns: object) -> Records:
    n = len(took_ms)
    due = np.arange(n) * gap_ms * MS
    done = due + (np.array(took_ms) * MS).astype(np.int64)
    return from_columns(n, due_ns=due, ready_ns=due, sent_ns=due, done_ns=done, status=status, **columns)


def judged(records: Records, *texts: str, kind: str = "server", **given: int) -> Result:
    return summarise(records, kind, [parse(text) for text in texts], **given)


def with_over(n: int, over: int) -> Result:
    return judged(server([200.0] * over + [1.0] * (n - over)), "p99(latency) <= 100ms")


@pytest.mark.parametrize(
    ("n", "over", "met", "needed"),
    [(10_000, 77, True, 0), (10_000, 78, False, None), (459, 0, True, 0), (458, 0, False, 1), (190, 1, False, 472)],
)
def test_early_stopping_of_a_server_run(n: int, over: int, met: bool, needed: int | None) -> None:
    (one,) = with_over(n, over).early_stopping
    assert (one.met, one.over) == (met, over)
    assert needed is None or one.needed == needed


@pytest.mark.parametrize(
    ("n", "by_percentile", "by_early_stopping"), [(459, 4, 0), (662, 6, 1), (1000, 9, 2), (10_000, 99, 77)]
)
def test_early_stopping_is_stricter_than_the_percentile(n: int, by_percentile: int, by_early_stopping: int) -> None:
    for over in (by_early_stopping, by_early_stopping + 1, by_percentile, by_percentile + 1):
        result = with_over(n, over)
        assert result.constraints_met == (over <= by_percentile)
        assert result.early_stopping_met == (over <= by_early_stopping)


def test_a_limit_is_broken_only_by_more_than_it() -> None:
    assert judged(server([100.0] * 500), "p99(latency) <= 100ms").constraints_met
    assert not judged(server([100.0] * 500), "p99(latency) < 100ms").constraints_met


def stream(values: list[int]) -> Records:
    due = np.concatenate(([0], np.cumsum(values)[:-1])).astype(np.int64)
    return from_columns(len(values), due_ns=due, sent_ns=due, done_ns=due + np.array(values), status=0)


def test_the_estimates_of_a_single_stream() -> None:
    (one,) = judged(stream(list(range(866))), kind="single_stream").early_stopping
    assert (one.estimate_ns, one.discarded, one.tail_ns) == (800, 65, 864)


def test_a_short_stream_has_no_estimate_and_is_invalid() -> None:
    result = judged(stream([5] * 63), kind="single_stream")
    assert result.early_stopping[0].estimate_ns is None
    assert not result.valid
    assert judged(stream([5] * 64), kind="single_stream").valid


def test_a_query_of_a_multi_stream_takes_as_long_as_its_slowest_sample() -> None:
    done = np.tile(np.arange(1, 9) * MS, 662)
    query = np.repeat(np.arange(662), 8)
    records = from_columns(
        662 * 8, query_id=query, sample_ix=np.tile(np.arange(8), 662), due_ns=0, done_ns=done, status=0
    )
    result = judged(records, kind="multi_stream")
    assert (result.latency.min_ns, result.of_samples.min_ns) == (8 * MS, MS)
    assert (result.queries, result.samples, result.samples_per_query) == (662, 5296, 8)
    assert result.valid


def test_percentiles_are_one_rank_above_nearest_rank_where_the_rank_is_whole() -> None:
    assert judged(stream(list(range(1, 101))), kind="single_stream").latency.at["99.00"] == 100
    assert judged(stream(list(range(1, 1001))), kind="single_stream").latency.at["99.00"] == 991


def test_means_are_whole_and_their_sum_may_be_large() -> None:
    assert judged(stream([1, 2]), kind="single_stream").latency.mean_ns == 1
    huge = from_columns(4, due_ns=0, done_ns=NEVER - 1, status=0)
    assert judged(huge, kind="offline").latency.mean_ns == NEVER - 1


def test_throughput_of_a_server_ends_with_the_query_issued_last() -> None:
    """A straggler that is not the last one does not lengthen the time."""
    took = [10.0] * 100 + [10.0]
    took[50] = 60_000.0
    result = judged(server(took), "p99(latency) <= 100ms")
    assert result.completed_per_s == pytest.approx(100 / 1.01)
    assert result.scheduled_per_s == pytest.approx(100 / 1.0)


def test_offline_counts_to_the_slowest_sample() -> None:
    records = from_columns(
        550, query_id=0, sample_ix=np.arange(550), due_ns=0, done_ns=np.arange(1, 551) * 2 * MS, status=0
    )
    result = judged(records, kind="offline", min_duration_ns=S, planned=550)
    assert result.offline_per_s == pytest.approx(500)
    assert result.valid
    assert not judged(records, kind="offline", min_duration_ns=2 * S, planned=550).min_duration_met
    assert not judged(records, kind="offline", min_duration_ns=S, planned=551).valid


def tokens(
    n: int, n_out: int | np.ndarray[tuple[int], np.dtype[np.int64]], first_ms: int = 5, last_ms: int = 25
) -> Records:
    due = np.arange(n) * MS
    return from_columns(
        n, due_ns=due, first_token_ns=due + first_ms * MS, done_ns=due + last_ms * MS, n_out=n_out, status=0
    )


def test_tpot_is_whole_nanoseconds_to_the_completion() -> None:
    result = judged(tokens(500, 4), "p99(ttft) <= 10ms", "p99(tpot) <= 10ms")
    assert result.tokens_mode
    assert result.tpot is not None
    assert result.tpot.max_ns == 20 * MS // 3
    assert result.constraints == {"ttft": True, "tpot": True}
    assert result.valid


def test_an_answer_of_one_token_has_no_tpot_and_is_counted() -> None:
    """LoadGen makes it negative, so that it pulls the percentiles down."""
    n_out = np.where(np.arange(600) % 10 == 0, 1, 4)
    result = judged(tokens(600, n_out), "p99(ttft) <= 10ms", "p99(tpot) <= 10ms")
    assert result.one_token == 60
    assert result.tpot is not None
    assert (result.tpot.n, result.tpot.min_ns) == (540, 20 * MS // 3)


def test_both_criteria_are_told_whichever_fails() -> None:
    result = judged(tokens(600, 4, last_ms=500), "p99(ttft) <= 10ms", "p99(tpot) <= 10ms")
    assert [(one.indicator, one.met) for one in result.early_stopping] == [("ttft", True), ("tpot", False)]


def test_ttft_and_tpot_replace_the_limit_on_the_latency() -> None:
    texts = ["p99(latency) <= 1ms", "p99(ttft) <= 10ms", "p99(tpot) <= 10ms"]
    assert limits_of([parse(text) for text in texts]) == (
        Limit("ttft", Fraction(99, 100), 10 * MS),
        Limit("tpot", Fraction(99, 100), 10 * MS),
    )
    assert judged(tokens(500, 4), *texts).constraints_met


def test_the_99th_percentile_is_taken_where_there_are_several() -> None:
    texts = [
        "p50(latency) <= 1ms",
        "p99(latency) < 10ms",
        "p99.9(latency) <= 1s",
        "ratio(good) >= 99%",
        "latency <= 1s",
    ]
    assert limits_of([parse(text) for text in texts]) == (Limit("latency", Fraction(99, 100), 10 * MS - 1),)


def test_a_server_run_without_a_limit_has_shown_nothing() -> None:
    result = judged(server([1.0] * 1000))
    assert not result.constraints_met
    assert not result.valid


def test_no_data_is_never_valid() -> None:
    for kind in ("server", "single_stream", "multi_stream", "offline"):
        assert not judged(from_columns(0), "p99(latency) <= 1s", kind=kind).valid


def test_a_failed_sample_never_completes_and_makes_the_result_invalid() -> None:
    status = [0] * 1000
    status[3] = int(Status.TIMEOUT)
    result = judged(server([1.0] * 1000, status=status), "p99(latency) <= 100ms")
    assert result.constraints_met
    assert result.early_stopping_met
    assert (result.failed, result.over_latency, result.latency.max_ns, result.latency.mean_ns) == (1, 1, NEVER, NEVER)
    assert not result.valid
    assert result.completed_per_s == pytest.approx(998 / 9.991)


def test_a_failure_lengthens_no_offline_run() -> None:
    status = [0] * 9 + [int(Status.TIMEOUT)]
    done = np.array([*range(1, 10), 10_000]) * MS
    records = from_columns(10, query_id=0, sample_ix=np.arange(10), due_ns=0, done_ns=done, status=status)
    result = judged(records, kind="offline", min_duration_ns=S, planned=10)
    assert not result.min_duration_met
    assert result.offline_per_s == 0


def test_a_last_query_that_failed_completes_nothing() -> None:
    status = [0] * 9 + [int(Status.HTTP)]
    assert judged(server([1.0] * 10, status=status), "p99(latency) <= 1s").completed_per_s == 0


def test_a_planned_sample_without_a_row_has_failed() -> None:
    assert judged(server([1.0] * 500), "p99(latency) <= 1s", planned=501).failed == 1


took = st.lists(st.integers(1, 300), min_size=455, max_size=480)


@given(took, st.data())
def test_slower_or_failed_never_makes_a_server_run_valid(values: list[int], data: st.DataObject) -> None:
    records = server([float(v) for v in values])
    before = judged(records, "p99(latency) <= 250ms")
    victim = data.draw(st.integers(0, len(values) - 1))
    status = records.columns["status"].copy()
    done = records.columns["done_ns"].copy()
    if data.draw(st.booleans()):
        status[victim] = int(Status.TIMEOUT)
    else:
        done[victim] += data.draw(st.integers(0, 10**12))
    worse = replace(records, columns={**records.columns, "status": status, "done_ns": done})
    after = judged(worse, "p99(latency) <= 250ms")
    assert before.valid or not after.valid
    assert after.percentile_ns >= before.percentile_ns
    assert after.early_stopping[0].needed >= before.early_stopping[0].needed
