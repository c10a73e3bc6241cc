"""A run is past hope only where the whole run would have said FAIL, wherever its bad values lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import Objective, parse
from plimsoll.slo.objectives.objective_verdict import judge_objective
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.search.probe import hopeless, hopeless_at, multiples
from plimsoll.slo.statistics.distance import MULTIPLES
from plimsoll.slo.verdict.verdict import holm

MS = 1_000_000
OBJECTIVES = (
    "p99(latency) <= 20ms",
    "p90(latency) < 20ms",
    "p50(ttft) <= 20ms",
    "ratio(good) >= 97%",
    "ratio(error) <= 5%",
)


def run(bad: np.ndarray, took_ns: int = 30 * MS, status: Status = Status.TIMEOUT) -> Records:
    """Requests in order of due time; a bad one took too long, and failed where that is not said otherwise."""
    due = np.arange(len(bad)) * MS
    done = due + np.where(bad, took_ns, MS)
    return from_columns(
        len(bad),
        due_ns=due,
        ready_ns=due,
        sent_ns=due,
        first_token_ns=done,
        last_token_ns=done,
        done_ns=done,
        status=np.where(bad, status, Status.OK),
    )


def placed(n: int, k: int, how: str, seed: int) -> np.ndarray:
    bad = np.zeros(n, bool)
    if how == "first":
        bad[:k] = True
    elif how == "last":
        bad[n - k :] = True
    elif how == "even":
        bad[np.arange(k) * n // max(k, 1)] = True
    elif how == "blocks":  # whole blocks of the verdict's cut are bad
        size = -(-n // 30)
        starts = np.random.default_rng(seed).permutation(30) * size
        bad[np.concatenate([np.arange(s, s + size) for s in starts])[:k] % n] = True
    else:
        bad[np.random.default_rng(seed).permutation(n)[:k]] = True
    return bad


@given(
    text=st.sampled_from(OBJECTIVES),
    n=st.integers(1, 3000),
    more=st.integers(0, 40),
    how=st.sampled_from(("first", "last", "even", "blocks", "anyhow")),
    seed=st.integers(0, 1000),
    confidence=st.sampled_from(("0.8", "0.95", "0.99")),
)
def test_whenever_it_fires_the_whole_run_fails_even_if_all_the_rest_is_good(
    text: str, n: int, more: int, how: str, seed: int, confidence: str
) -> None:
    objective = parse(text)
    least = hopeless_at(objective, n, confidence)
    if least is None:
        assert hopeless(objective, n, n, confidence) is None
        return
    assert hopeless(objective, n, least - 1, confidence) is None
    bad = placed(n, min(n, least + more), how, seed)
    if bad.sum() < least:
        return
    assert hopeless(objective, n, int(bad.sum()), confidence) is not None
    records = run(bad)
    verdict = judge_objective(objective, records, goodput(records, [objective]), confidence)
    assert verdict.outcome == "FAIL"
    assert verdict.bad is not None
    assert verdict.bad >= least


@given(
    text=st.sampled_from(("p99(latency) <= 20ms", "p90(latency) < 20ms", "p50(ttft) <= 20ms")),
    n=st.integers(1, 3000),
    multiple=st.sampled_from(MULTIPLES),
    how=st.sampled_from(("first", "last", "even", "blocks", "anyhow")),
    seed=st.integers(0, 1000),
)
def test_answers_far_beyond_the_limit_that_are_enough_fail_the_whole_run_even_if_all_the_rest_is_good(
    text: str, n: int, multiple: float, how: str, seed: int
) -> None:
    objective = parse(text)
    assert multiples(objective) == (1.0, *MULTIPLES)
    least = hopeless_at(objective, n, "0.95", 1, multiple)
    if least is None:
        return
    assert hopeless(objective, n, least - 1, multiple=multiple) is None
    assert "times over already" in (hopeless(objective, n, least, multiple=multiple) or "")
    bad = placed(n, least, how, seed)
    if bad.sum() < least:
        return
    records = run(bad, round(20 * MS * multiple) + 1, Status.OK)
    assert judge_objective(objective, records, goodput(records, [objective]), "0.95").outcome == "FAIL"


@given(n=st.integers(400, 3000), others=st.integers(1, 6), seed=st.integers(0, 1000))
def test_among_several_objectives_the_fail_stands_after_holms_correction(n: int, others: int, seed: int) -> None:
    objectives = [parse("p99.5(latency) <= 20ms"), *(parse(f"p{90 + i}(ttft) <= 900ms") for i in range(others))]
    least = hopeless_at(objectives[0], n, "0.95", len(objectives))
    assert least is not None
    records = run(placed(n, least, "anyhow", seed))
    slow = from_columns(len(records), **{name: records[name] for name in records.columns if name != "status"})
    good = goodput(slow, objectives)
    verdicts = holm([judge_objective(one, slow, good, "0.95") for one in objectives], "0.95")
    assert verdicts[0].outcome == "FAIL"
    assert hopeless_at(objectives[0], n, "0.95", 1) <= least  # type: ignore[operator]


@pytest.mark.parametrize(("text", "share"), [("ratio(error) <= 1%", 0.01), ("ratio(error) <= 10%", 0.1)])
def test_a_long_run_is_over_at_about_one_and_a_half_times_the_errors_it_may_have(text: str, share: float) -> None:
    for n in (30_000, 300_000):
        least = hopeless_at(parse(text), n)
        assert least is not None
        assert 1.55 < least / (share * n) < 1.6


def test_of_slow_values_twenty_times_what_may_be_are_enough_whatever_the_memory() -> None:
    assert hopeless_at(parse("p99(latency) <= 20ms"), 30_000) == 6_001
    p90 = parse("p90(latency) <= 20ms")
    assert [hopeless_at(p90, 30_000, "0.95", 1, multiple) for multiple in multiples(p90)] == [
        None, None, 15_001, 7_501, 3_751, 3_087,
    ]  # fmt: skip
    assert multiples(parse("ratio(good) >= 97%")) == multiples(parse("p99(itl) <= 9ms")) == (1.0,)


def test_one_value_over_a_maximum_is_enough() -> None:
    assert hopeless(parse("max(latency) <= 1s"), 1000, 0) is None
    assert "one is enough" in (hopeless(parse("max(latency) <= 1s"), 1000, 1) or "")


@pytest.mark.parametrize("text", ["mean(latency) <= 1s", "rate(good) >= 5/s", "latency <= 1s", "p99(itl) <= 9ms"])
def test_what_is_no_share_of_requests_is_never_past_hope(text: str) -> None:
    objective: Objective = parse(text)
    assert hopeless_at(objective, 10_000) is None
    assert hopeless(objective, 10_000, 10_000) is None


def test_the_words_say_how_many_and_of_what() -> None:
    text = hopeless(parse("p99(latency) <= 20ms"), 10_000, 2_500)
    assert text is not None
    assert text.startswith(
        "p99(latency) <= 20ms: 2500 values break <= 20ms already, and 2001 of the 10000 planned are enough"
    )


def test_mistaken_counts_are_refused() -> None:
    for n, among in ((0, 1), (5, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            hopeless_at(parse("p99(latency) <= 20ms"), n, "0.95", among)
    with pytest.raises(ValueError, match="strictly between"):
        hopeless_at(parse("p99(latency) <= 20ms"), 10, "1")
