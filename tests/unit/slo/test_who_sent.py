"""Requests by the agent that sent them: figures against a plain formula, and who is said to differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import Phase, Records, Status, from_columns
from plimsoll.slo.verdict.agents import Ranks, split

MS = 1_000_000


def sent_by(worker: Sequence[int], latency_ms: Sequence[float], failed: Sequence[bool], tokens: bool = True) -> Records:
    """One request each, 1 ms apart, by these workers; every seventh is warm-up."""
    n = len(worker)
    due = np.arange(n) * MS
    took = (np.asarray(latency_ms) * MS).astype(np.int64)
    status = np.where(np.asarray(failed, bool), Status.TIMEOUT, Status.OK)
    first = np.where(status == Status.OK, due + took // 2, -1) if tokens else np.full(n, -1)
    phase = np.where(np.arange(n) % 7 == 6, Phase.WARMUP, Phase.MEASURE)
    return from_columns(
        n, due_ns=due, ready_ns=due + np.arange(n) % 5, sent_ns=due + 10, done_ns=due + took, worker=np.asarray(worker),
        status=status, phase=phase, first_token_ns=first,
    )  # fmt: skip


def random_run(n: int, workers: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, workers, n), draw.gamma(2.0, 30.0, n)


def nearest_rank(values: list[float], percent: int) -> float:
    return sorted(values)[max(math.ceil(percent * len(values) / 100), 1) - 1]


@given(
    st.lists(
        st.tuples(st.integers(-1, 5), st.integers(0, 9), st.booleans()), min_size=1, max_size=60
    ),
    st.sampled_from([[[0], [1], [2]], [[0, 2], [5]], [[1]], [[3, 4], [], [0, 1]]]),
)  # fmt: skip
def test_the_figures_of_each_group_are_those_of_its_rows_alone(
    rows: list[tuple[int, int, bool]], shards: list[list[int]]
) -> None:
    worker, took, failed = zip(*rows, strict=True)
    records = sent_by(worker, took, failed)
    found = split(records, shards)
    for share, mine in zip(found.shares, shards, strict=True):
        kept = [at for at, one in enumerate(worker) if one in mine and at % 7 != 6]
        assert (share.requests, share.failed) == (len(kept), sum(failed[at] for at in kept))
        for name, ranks in (("latency", share.latency), ("ttft", share.ttft), ("generator_lag", share.lag)):
            measured = measure(catalogue()[name], records)
            values = [value for value, row in zip(measured.values, measured.row, strict=True) if row in kept]
            assert ranks == (Ranks(*(nearest_rank(values, p) for p in (50, 90, 99))) if values else None)


def test_agents_that_do_the_same_are_said_to_differ_in_no_more_runs_than_promised() -> None:
    said = 0
    for seed in range(100):
        worker, took = random_run(1_500, 6, seed)
        failed = np.random.default_rng(seed).random(1_500) < 0.02
        said += bool(
            split(sent_by(worker.tolist(), took.tolist(), failed.tolist()), [[i] for i in range(6)]).apart([range(6)])
        )
    assert said <= 4


def test_stalls_that_everybody_sees_are_nobodys() -> None:
    """Requests that are near in time are alike; who sends each is drawn, so that no agent has them all."""
    worker, took = random_run(2_000, 4, 3)
    took[500:900] += 400
    assert not split(sent_by(worker.tolist(), took.tolist(), [False] * 2_000), [[0], [1], [2], [3]]).apart([range(4)])


@pytest.mark.parametrize("tokens", [True, False])
def test_an_agent_behind_a_longer_path_is_said_to_be_slower_and_the_others_are_not_said_to_be_faster(
    tokens: bool,
) -> None:
    worker, took = random_run(3_000, 5, 1)
    took[worker == 2] += 40
    found = split(sent_by(worker.tolist(), took.tolist(), [False] * 3_000, tokens), [[i] for i in range(5)])
    (apart,) = found.apart([range(5)])
    assert found.metric == ("ttft" if tokens else "latency")
    assert (apart.group, apart.what, apart.worse) == (2, "p50", True)
    assert apart.p < 1e-12
    assert not found.apart([[0, 1, 3, 4], [2]])


def test_a_host_that_stalls_at_times_shows_in_its_p90_and_one_that_fails_in_its_failures() -> None:
    worker, took = random_run(6_000, 4, 2)
    draw = np.random.default_rng(9).random(6_000)
    took[(worker == 1) & (draw < 0.15)] += 300
    failed = (worker == 3) & (draw < 0.05)
    found = split(sent_by(worker.tolist(), took.tolist(), failed.tolist()), [[i] for i in range(4)])
    assert {(one.group, one.what) for one in found.apart([range(4)]) if one.worse} == {(1, "p90"), (3, "failed")}


def test_a_faster_one_among_many_is_said_and_a_difference_that_costs_nothing_is_not() -> None:
    worker, took = random_run(6_000, 6, 5)
    took += 100
    for less, said in ((30, [(4, False)]), (2, [])):
        path = np.where(worker == 4, took - less, took)
        found = split(sent_by(worker.tolist(), path.tolist(), [False] * 6_000), [[i] for i in range(6)])
        assert [(one.group, one.worse) for one in found.apart([range(6)])] == said


def test_samples_of_one_query_count_as_one() -> None:
    """Eight samples that come together are one draw: taken as eight, chance would look like a difference."""
    said = {1: 0, 8: 0}
    for seed in range(60):
        draw = np.random.default_rng(seed)
        worker, took = np.repeat(draw.integers(0, 3, 150), 8), np.repeat(draw.gamma(2.0, 30.0, 150), 8)
        n = len(worker)
        for samples in said:
            rows = from_columns(
                n, due_ns=np.zeros(n), done_ns=(took * MS).astype(np.int64), worker=worker,
                query_id=np.arange(n) // samples, sample_ix=np.arange(n) % samples,
            )  # fmt: skip
            said[samples] += bool(split(rows, [[0], [1], [2]]).apart([range(3)]))
    assert said[8] <= 3 < said[1]


def test_nothing_is_said_of_runs_without_rows_and_of_groups_without_any() -> None:
    empty = split(sent_by([], [], []), [[0], [1]])
    assert empty.shares[0].latency is None
    assert empty.apart([range(2)]) == []
    worker, took = random_run(300, 2, 7)
    failed = split(sent_by(worker.tolist(), took.tolist(), [True] * 300), [[0], [1], [2]])
    assert failed.apart([range(3)]) == []
    assert failed.shares[0].latency == Ranks(math.inf, math.inf, math.inf)
