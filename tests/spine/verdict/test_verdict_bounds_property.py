"""A verdict and its bounds are one:

FAIL has the limit outside of them on one side, PASS on the other, whatever decided.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict, judge_objective
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.statistics.share import course

MS = 1_000_000


def queue(seed: int, n: int, scale: float, walk: float, failed: float, burst: int) -> Records:
    """n requests whose times wander by ``walk`` and scatter; ``failed`` of them fail, ``burst`` in a row."""
    rng = np.random.default_rng(seed)
    moved = rng.normal(0, walk, n)
    for i in range(1, n):
        moved[i] += 0.98 * moved[i - 1]
    took = (scale * np.exp(moved) * rng.lognormal(0, 0.4, n) * MS).astype(np.int64) + 1
    due = np.arange(n) * 10 * MS
    status = np.zeros(n, int)
    for start in np.flatnonzero(rng.random(n) < failed / burst):
        status[start : start + burst] = int(Status.PROTOCOL)
    tokens = rng.integers(1, 200, n)
    return from_columns(
        n, due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=due + took, first_token_ns=due + took,
        done_ns=due + took, status=status, n_out=tokens,
    )  # fmt: skip


def consistent(found: ObjectiveVerdict) -> None:
    (low, high), limit = found.interval, found.threshold
    assert low <= high
    upper = found.objective.operator in ("<=", "<")
    if found.outcome == "PASS":
        assert high <= limit if upper else low >= limit, found
    elif found.outcome == "FAIL":
        assert low >= limit if upper else high <= limit, found


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.sampled_from([20, 60, 300, 700]),
    scale=st.sampled_from([1.0, 10.0, 40.0, 100.0, 400.0]),
    walk=st.sampled_from([0.0, 0.02, 0.2]),
    failed=st.sampled_from([0.0, 0.01, 0.3]),
    burst=st.sampled_from([1, 10]),
    growing=st.booleans(),
    text=st.sampled_from(
        [
            "p50(latency) <= 50ms",
            "p90(ttft) <= 50ms",
            "p99(latency) <= 50ms",
            "p99(latency) < 500ms",
            "p5(output_rate) >= 200/s",
            "p50(output_rate) >= 2000/s",
            "p10(output_tokens) >= 20",
            "ratio(good) >= 99%",
            "ratio(good) >= 50%",
            "ratio(error) <= 1%",
        ]
    ),
)
def test_the_limit_lies_on_the_side_of_the_bounds_that_the_verdict_says(
    seed: int, n: int, scale: float, walk: float, failed: float, burst: int, growing: bool, text: str
) -> None:
    records = queue(seed, n, scale, walk, failed, burst)
    limits = [parse("latency <= 50ms"), parse(text)]
    good = goodput(records, limits)
    consistent(judge_objective(limits[1], records, good, "0.95", course(records, growing=growing)))


@pytest.mark.parametrize("text", ["ratio(good) >= 50%", "ratio(good) >= 99%"])
def test_a_whole_run_beyond_its_limit_is_not_said_to_be_0_to_95_percent_good(text: str) -> None:
    """841 of 841 bad, in a run that remembers long: the bounds were 0 to 95 % and the verdict FAIL."""
    records = queue(3, 841, 400.0, 0.2, 0.0, 1)
    limits = [parse("latency <= 1ms"), parse(text)]
    found = judge_objective(limits[1], records, goodput(records, limits), "0.95")
    assert found.outcome == "FAIL"
    consistent(found)
