"""Recoveries that were planted are found: the bounds hold the truth as often as they say, the error shrinks with the
rate, and no request that gets worse makes a recovery earlier.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.objectives.objective import ObjectiveError, parse
from plimsoll.slo.objectives.sentence import sentence
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.statistics.memory import independent
from plimsoll.slo.verdict import recovery
from plimsoll.slo.verdict.recovery import Stretches, recovery_of, stretches_of, time_out

S = 1_000_000_000
ALLOWED = (Fraction(1, 10), Fraction(1, 20), Fraction(1, 100))


def planted(
    rate: float, took_s: float, after_s: float, before: float, since: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(bad, due in ns) of Poisson arrivals, of which the share ``before`` is bad for ``took_s``, and then ``since``."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(rate * (took_s + after_s))
    due = np.sort(rng.random(n) * (took_s + after_s) * 1e9).astype(np.int64)
    return rng.random(n) < np.where(due < took_s * 1e9, before, since), due


def found_in(bad: np.ndarray, due: np.ndarray, allowed: Fraction) -> tuple[float, float, float] | None:
    stretches = stretches_of(bad, independent(len(bad)), allowed, "0.95")
    return recovery_of(stretches, due, 0.05) if len(bad) >= stretches.width else None


@pytest.mark.parametrize("allowed", ALLOWED)
@given(took_s=st.floats(0.5, 20), rate=st.sampled_from([50.0, 200.0]), seed=st.integers(0, 2**32))
def test_an_outage_that_spares_nobody_is_found_to_the_request(
    allowed: Fraction, took_s: float, rate: float, seed: int
) -> None:
    after_s = 6 / float(allowed) * 20 / rate
    bad, due = planted(rate, took_s, after_s, 1.0, 0.0, seed)
    found = found_in(bad, due, allowed)
    if found is None or bad.sum() <= 0.2 * len(bad) * float(allowed) or bad.sum() < 30:
        return  # shorter than a stretch's share: none, by definition
    observed, low, high = found
    first = np.append(due[~bad], math.inf)[0]
    assert low <= took_s * S <= high
    if math.isfinite(observed):
        assert observed == first
        assert low == 0 or observed - low <= 32 / rate * S


@pytest.mark.parametrize(("rate", "error_s"), [(20.0, 3.0), (100.0, 0.7), (400.0, 0.2)])
@pytest.mark.parametrize(("before", "since"), [(1.0, 0.25), (0.5, 0.25), (0.25, 0.25)])
def test_bounds_hold_and_the_error_falls_with_the_rate(
    rate: float, error_s: float, before: float, since: float
) -> None:
    """p95, an outage of 10 s, 60 s after it, with a quarter of the allowed bad ones left."""
    runs = [found_in(*planted(rate, 10, 60, before, 0.05 * since, seed), Fraction(1, 20)) for seed in range(60)]
    early = sum(one is not None and one[1] > 10 * S for one in runs)
    late = sum(one is not None and one[2] < 10 * S for one in runs)
    assert early <= 6  # 3 of 60 are due at 95 %: more than 6 come in 4 of 100 such counts
    assert late <= 6
    errors = sorted(abs(one[0] / S - 10) for one in runs if one is not None)
    assert errors[len(errors) * 9 // 10] <= error_s


@given(
    marks=st.lists(st.booleans(), min_size=150, max_size=400),
    at=st.integers(0, 10_000),
    allowed=st.sampled_from([Fraction(1, 10), Fraction(1, 4)]),
)
def test_a_worse_request_never_makes_a_recovery_earlier(marks: list[bool], at: int, allowed: Fraction) -> None:
    bad = np.array(marks)
    bad[len(bad) // 3 :: 2] = False
    worse = bad.copy()
    worse[at % len(bad)] = True
    due = np.arange(len(bad), dtype=np.int64) * S
    width = stretches_of(bad, independent(len(bad)), allowed, "0.95")
    more = Stretches(worse.astype(np.int64), width.width, width.worth, allowed)
    one, other = recovery_of(width, due, 0.05), recovery_of(more, due, 0.05)
    assert other[0] >= one[0]
    assert other[2] >= one[2]
    if not (more.shown(0.05)[0] & ~width.shown(0.05)[0]).any():
        assert other[1] >= one[1]


@given(begins=st.integers(20, 30), took=st.integers(5, 12), seed=st.integers(0, 2**32))
def test_time_out_of_an_objective_is_that_of_all_outages(begins: int, took: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    due = np.sort(rng.random(20_000) * 200e9).astype(np.int64)
    out = ((due > begins * S) & (due < (begins + took) * S)) | ((due > 120 * S) & (due < 125 * S))
    bad = out & (rng.random(len(due)) < 0.8)
    stretches = stretches_of(bad, independent(len(bad)), Fraction(1, 10), "0.95")
    observed, low, high = time_out(stretches, due, 0.05)
    assert low <= observed <= high
    assert low / S <= took + 5 <= high / S + 0.05
    assert observed / S == pytest.approx(took + 5, abs=0.3)


def records_of(bad: np.ndarray, due: np.ndarray) -> Records:
    late = due + np.where(bad, 500_000_000, 50_000_000)
    times = {"due_ns": due, "ready_ns": due, "sent_ns": due, "first_byte_ns": late, "first_token_ns": late}
    return from_columns(len(bad), **times, last_token_ns=late, done_ns=late, n_out=1, n_in=2)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("recovered(p95(ttft) <= 200ms) <= 12s after outage", "PASS"),
        ("recovered(p95(ttft) <= 200ms) <= 9s after outage", "FAIL"),
        ("recovered(p95(ttft) <= 200ms) <= 10s", "INCONCLUSIVE"),
        ("recovered(p95(ttft) <= 200ms) <= 10s after flood", "INCONCLUSIVE"),
        ("recovered(ratio(error) <= 1%) <= 1ms after outage", "PASS"),
        ("recovered(ratio(good) >= 95%) <= 9s after outage", "FAIL"),
        ("time_out_of(p95(ttft) <= 200ms) <= 12s", "PASS"),
        ("time_out_of(p95(ttft) <= 200ms) <= 9s", "FAIL"),
    ],
)
def test_a_verdict_has_three_values(text: str, outcome: str) -> None:
    bad, due = planted(100, 10, 60, 1.0, 0.0, 5)
    calm = np.arange(2_000, dtype=np.int64) * 10_000_000
    records = records_of(np.append(np.zeros(2_000, np.bool_), bad), np.append(calm, due + 20 * S))
    objectives, (spells,) = recovery.split([parse(text), parse("ttft <= 200ms")], {"outage": 20 * S})
    (one,) = spells.judge(records, "0.95")
    assert [str(left) for left in objectives] == ["ttft <= 200ms"]
    assert one.outcome == outcome
    if outcome != "INCONCLUSIVE" and "error" not in text:
        assert one.observed / S == pytest.approx(10, abs=0.1)
        assert one.interval[0] <= 10 * S <= one.interval[1]


def test_what_has_not_recovered_at_the_end_is_said_and_never_guessed() -> None:
    bad, due = planted(100, 30, 0.5, 1.0, 0.0, 5)
    (spells,) = recovery.split([parse("recovered(p95(ttft) <= 200ms) <= 60s")], {"outage": 0})[1]
    (one,) = spells.judge(records_of(bad, due), "0.95")
    assert (one.outcome, one.observed) == ("INCONCLUSIVE", math.inf)
    assert "not, in the 30" in one.detail
    assert "not kept again before the end" in sentence(one)
    (spells,) = recovery.split([parse("recovered(p95(ttft) <= 200ms) <= 20s")], {"outage": 0})[1]
    assert spells.judge(records_of(bad, due), "0.95")[0].outcome == "FAIL"


def test_too_few_requests_are_no_data_and_say_how_many_it_takes() -> None:
    (spells,) = recovery.split([parse("recovered(p99(ttft) <= 200ms) <= 60s")], {"outage": 0})[1]
    (one,) = spells.judge(records_of(*planted(10, 2, 10, 1.0, 0.0, 1)), "0.95")
    assert one.outcome == "INCONCLUSIVE"
    assert "it takes 299" in one.detail


@pytest.mark.parametrize(
    "text",
    [
        "recovered(p95(ttft) <= 200ms) <= 8s after rolling restart",
        "recovered(p99.9(latency{class=chat}) <= 2s) < 30s",
        "time_out_of(ratio(good) >= 99.5%) <= 45s",
    ],
)
def test_print_of_parse_is_the_identity(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("recovered(mean(ttft) <= 200ms) <= 8s", "is of a percentile or a ratio"),
        ("recovered(each class: p99(ttft) <= 1s) <= 8s", "is of a percentile or a ratio"),
        ("recovered(p99(itl) <= 1s) <= 1s", "itl has several"),
        ("recovered(p99(ttft) <= 1s) >= 1s", "lower is better"),
        ("time_out_of(p99(ttft) <= 1s) <= 3s after x", "leave out after x"),
        ("recovered(p99(tft) <= 1s) <= 3s", "did you mean ttft"),
        ("recovered(p99(ttft) <= 1s) <= 3%", "unit % does not fit"),
    ],
)
def test_what_is_no_recovery_is_refused_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ObjectiveError, match=says):
        parse(text)
