"""The decision of a canary: what it spends, what it shows, how often it is wrong, and that failing never promotes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from plimsoll.slo.comparison.canary import LOOKS, SPENDING, Canary, Pair, Question, Side, Step, follow
from plimsoll.slo.comparison.quantity import parse_all
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.statistics.memory import of_ranks, ranks
from tests.bench import canary as bench

S = 1_000_000_000


def rows(latencies_ms: Sequence[float], end_s: float = 60.0, fails: Sequence[int] = ()) -> Records:
    """Requests that are due at equal times and take so long."""
    n = len(latencies_ms)
    due = (np.arange(n) * end_s * S / n).astype(np.int64)
    done = due + (np.asarray(latencies_ms) * 1e6).astype(np.int64)
    status = np.where(np.isin(np.arange(n), list(fails)), Status.HTTP, Status.OK)
    return from_columns(n, due_ns=due, sent_ns=due, done_ns=done, status=status)


def question(*shares: float, metrics: Sequence[str] = ("p50(latency)", "ratio(error)")) -> Question:
    quantities = parse_all(metrics)
    steps = tuple(Step(share, i * 60 * S, (i + 1) * 60 * S) for i, share in enumerate(shares))
    return Question(quantities, tuple(0.1 if one.quantile else 0.01 for one in quantities), steps)


def times(n: int, seed: int, by: float = 1.0) -> list[float]:
    found: list[float] = (np.random.default_rng(seed).lognormal(3, 0.3, n) * by).tolist()
    return found


def test_looks_spend_the_error_once_and_most_of_it_where_the_step_has_doubled() -> None:
    assert sum(SPENDING) == 1
    assert SPENDING[LOOKS - 1] == Fraction(1, 32) + Fraction(1, 4)
    assert min(SPENDING) == Fraction(1, 32)


def test_a_canary_that_is_alike_is_promoted_and_one_that_is_slower_or_fails_aborted() -> None:
    base = rows(times(3_000, 1))
    assert follow(question(0.5), base, rows(times(3_000, 2)), 60 * S).outcome == "PROMOTE"
    slower = follow(question(0.5), base, rows(times(3_000, 2, 1.3)), 60 * S)
    assert slower.outcome == "ABORT"
    assert slower.last[-1].look < LOOKS // 2, "it does not wait for the end"
    assert [one.outcome for one in slower.last[-1].weighed] == ["worse", "open"]
    failing = rows(times(3_000, 2), fails=range(0, 3_000, 20))
    assert follow(question(0.5), base, failing, 60 * S).outcome == "ABORT"


def test_a_canary_that_breaks_down_is_aborted_however_long_it_remembers() -> None:
    growing = [20 + i * 2.0 for i in range(3_000)]
    found = follow(question(0.5, metrics=("p99(latency)",)), rows(times(3_000, 1)), rows(growing), 60 * S)
    assert found.outcome == "ABORT"
    dead = rows(times(3_000, 2), fails=range(600, 3_000))
    assert follow(question(0.5), rows(times(3_000, 1)), dead, 60 * S).outcome == "ABORT"


def test_only_the_last_step_promotes_and_each_is_compared_by_itself() -> None:
    asked = question(0.1, 0.5)
    base, canary = rows(times(6_000, 1), 120), rows(times(6_000, 2), 120)
    found = Canary(asked)
    while found.cut_ns is not None and found.cut_ns <= 60 * S:
        found.take(base, canary)
        assert found.outcome is None
    assert found.begin_ns == 60 * S
    assert follow(asked, base, canary, 120 * S).outcome == "PROMOTE"
    # The base is twice as slow in the second step, and most of the canary's requests come there: no difference.
    both = [t * (1 + (i >= 3_000)) for i, t in enumerate(times(6_000, 1))]
    late = [t * (1 + (i >= 500)) for i, t in enumerate(times(3_500, 2))]
    due = np.concatenate([np.arange(500) * S * 60 // 500, 60 * S + np.arange(3_000) * S * 60 // 3_000])
    done = due + (np.array(late) * 1e6).astype(np.int64)
    canary = from_columns(3_500, due_ns=due, sent_ns=due, done_ns=done, status=int(Status.OK))
    assert follow(asked, rows(both, 120), canary, 120 * S).outcome == "PROMOTE"


def test_too_few_requests_decide_nothing_and_say_how_many_would() -> None:
    found = follow(question(0.5), rows(times(300, 1)), rows(times(300, 2)), 60 * S)
    assert found.outcome == "INCONCLUSIVE"
    errors = found.last[-1].weighed[1]
    assert errors.outcome == "open", "no failure in 300 requests may be one in 80"
    assert errors.more is not None
    assert 300 * errors.more < 2_000
    n = int(300 * errors.more * 1.5)
    longer = [follow(question(0.5), rows(times(n, i)), rows(times(n, i + 50)), 60 * S).outcome for i in range(4)]
    assert longer.count("PROMOTE") >= 3


def test_the_interval_is_of_the_effect_and_agrees_with_the_outcome() -> None:
    base, canary = rows(times(3_000, 1)), rows(times(3_000, 2, 1.3))
    weighed = follow(question(0.5), base, canary, 60 * S).last[-1].weighed[0]
    low, high = weighed.interval
    assert 1.1 <= low < 1.3 < high
    assert weighed.values[1] / weighed.values[0] == pytest.approx(1.3, rel=0.1)


def test_the_values_of_both_arms_are_measured_ones_by_nearest_rank() -> None:
    """To the last digit, also where more is better: there the rank counts from the other end."""
    taken = [np.round(np.array(times(300, seed)) * 1e6) for seed in (1, 2)]
    arms = [
        from_columns(300, due_ns=due, done_ns=due + took.astype(np.int64), n_out=64, status=int(Status.OK))
        for took, due in zip(taken, [np.arange(300) * S // 5] * 2, strict=True)
    ]
    latency, rate = follow(question(0.5, metrics=("p50(latency)", "p10(output_rate)")), *arms, 60 * S).last[-1].weighed
    assert latency.values == tuple(np.sort(took)[149] for took in taken)
    assert rate.values == pytest.approx([np.sort(64e9 / took)[29] for took in taken], rel=1e-11)
    assert all(np.diff(np.sort(64e9 / took)[29:31])[0] > 1e-6 for took in taken), "ranks tell"


@pytest.mark.parametrize("seed", range(8))
def test_a_canary_whose_requests_fail_or_hang_is_never_promoted_where_it_was_not(seed: int) -> None:
    """With the memory given; docs/evidence/statistics.md says why nobody can promise it for one that is estimated."""
    rng = np.random.default_rng(seed)
    values, other = np.log(rng.lognormal(3, 0.3, 900)), np.log(rng.lognormal(3, 0.3, 900))
    due = np.arange(900)
    base, canary = (Side(one, due, of_ranks(ranks(one))) for one in (values, other))
    before = Pair(base, canary, 0.9).p_fine(math.log(1.2), Fraction(1, 20))
    worse = other.copy()
    worse[rng.random(900) < 0.02] = math.inf
    after = Pair(base, replace(canary, values=worse), 0.9).p_fine(math.log(1.2), Fraction(1, 20))
    assert after >= min(before, 0.05)


def test_both_errors_hold_where_requests_queue_and_a_slow_canary_is_found() -> None:
    """A small form of ``python -m tests.bench.canary``: docs/evidence/canary.md has the whole."""
    runs = 20
    queue = bench.tallies("M/M/1", 0.9, "own", 400, runs)
    assert not bench.faults(queue, runs)
    found = bench.tallies("i.i.d.", 0.0, "shared", 600, runs)
    assert not bench.faults(found, runs)
    assert found["p50 10 %", "1.5 x"].aborted >= 80
    assert found["error 1 point", "5 % of users"].aborted >= 50
