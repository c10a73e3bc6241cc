"""Three-valued verdicts: proven kept, proven broken, or not enough data and how much is."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest

from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.objectives.objective_verdict import ObjectiveVerdict
from plimsoll.slo.objectives.sentence import sentence
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import Validity, assess
from plimsoll.slo.verdict.verdict import Verdict, judge

MS = 1_000_000


def run(latency_ms: object, **columns: object) -> Records:
    latency = (np.asarray(latency_ms, float) * MS).astype(np.int64)
    due = np.arange(len(latency)) * MS
    given: dict[str, object] = {
        "due_ns": due, "ready_ns": due, "sent_ns": due, "first_byte_ns": due + latency, "done_ns": due + latency
    }  # fmt: skip
    return from_columns(len(latency), **(given | columns))  # type: ignore[arg-type]


def slow(bad: int, n: int) -> Records:
    """n requests of 10 ms, ``bad`` of them, evenly spread, 20 ms."""
    return run(np.where(spread(bad, n), 20, 10))


def spread(bad: int, n: int) -> npt.NDArray[np.bool_]:
    """``bad`` of n at equal distances: as independent as can be."""
    chosen = np.zeros(n, bool)
    chosen[np.arange(bad) * n // max(bad, 1)] = True
    return chosen


def valid(some: Records) -> Validity:
    facts = GeneratorFacts(open_loop=True, planned=len(some), elapsed_ns=10**15)
    return dataclasses.replace(assess(some, facts), outcome="VALID", reasons=())


def verdict(some: Records, *objectives: str, confidence: str = "0.95") -> Verdict:
    return judge(some, [parse(text) for text in objectives], valid(some), confidence)


def one(some: Records, objective: str, confidence: str = "0.95") -> ObjectiveVerdict:
    (found,) = verdict(some, objective, confidence=confidence).objectives
    return found


def test_a_verdict_that_hangs_on_requests_that_were_sent_again_says_so() -> None:
    again = spread(135, 1000)
    some = run(np.full(1000, 10), attempts=np.where(again, 2, 1))
    error, late, mean = verdict(some, "ratio(error) <= 5%", "p90(latency) <= 50ms", "mean(latency) <= 50ms").objectives
    said = "with the 135 requests that were sent again counted as failed it is FAIL"
    for found in (error, late, mean):
        assert found.outcome == "PASS"
        assert found.detail.endswith(said)
        assert sentence(found).endswith(said)
    alike = one(some, "ratio(error) <= 30%")
    assert (alike.outcome, alike.repeats) == ("PASS", "")
    failed = run(np.full(1000, 10), attempts=np.where(again, 2, 1), status=np.where(again, Status.CONNECT, Status.OK))
    assert one(failed, "ratio(error) <= 5%").repeats == "", "they are failures already"


@pytest.mark.parametrize(
    ("bad", "n", "outcome"),
    [(77, 10_000, "PASS"), (78, 10_000, "INCONCLUSIVE"), (0, 459, "PASS"), (0, 458, "INCONCLUSIVE")],
)
def test_p99_at_99_percent_passes_exactly_where_early_stopping_does(bad: int, n: int, outcome: str) -> None:
    assert one(slow(bad, n), "p99(latency) <= 15ms", "0.99").outcome == outcome


def test_too_little_data_is_inconclusive_and_says_how_much_is_needed() -> None:
    found = one(slow(0, 458), "p99(latency) <= 15ms", "0.99")
    assert (found.n_needed, found.n, found.bad, found.max_bad_allowed) == (459, 458, 0, -1)
    assert found.interval == (10 * MS, math.inf)
    assert "459 in all would decide (459 ms at this rate), 1 more" in found.detail


def test_how_long_it_takes_is_by_the_rate_offered_and_the_last_answer_s_time_is_none_of_it() -> None:
    found = one(run(np.where(np.arange(100) == 99, 9_000, 10)), "p99(latency) <= 15s")
    assert found.needed_ns == (found.n_needed or 0) * MS
    rows = run([10] * 100, due_ns=10 * MS * np.arange(100), done_ns=10 * MS * np.arange(1, 101))
    facts = GeneratorFacts(open_loop=False, planned=100, elapsed_ns=10**15)
    [closed] = judge(rows, [parse("p99(latency) <= 15ms")], assess(rows, facts)).objectives
    assert closed.needed_ns == 2990 * MS


def test_a_broken_percentile_fails_only_when_it_is_proven_broken() -> None:
    assert one(slow(11, 1000), "p99(latency) <= 15ms").outcome == "INCONCLUSIVE"
    found = one(slow(30, 1000), "p99(latency) <= 15ms")
    assert (found.outcome, found.n_needed, found.observed) == ("FAIL", 0, 20 * MS)
    assert found.interval[0] > found.threshold


def test_a_share_exactly_on_the_limit_is_never_decided() -> None:
    found = one(slow(10, 1000), "p99(latency) <= 15ms")
    assert (found.outcome, found.n_needed) == ("INCONCLUSIVE", None)
    assert "change the limit" in found.detail


def test_strict_operators_count_a_value_on_the_threshold_as_bad() -> None:
    assert one(slow(0, 1000), "p99(latency) <= 10ms").outcome == "PASS"
    assert one(slow(0, 1000), "p99(latency) < 10ms").outcome == "FAIL"


def test_failed_requests_rank_as_worst() -> None:
    status = np.zeros(1000, np.int64)
    status[:30] = Status.TIMEOUT
    found = one(run(np.full(1000, 1.0), status=status), "p99(latency) <= 15ms")
    assert (found.outcome, found.observed) == ("FAIL", math.inf)


def test_an_objective_on_a_low_percentile_guards_a_rate() -> None:
    rates = run(np.where(spread(30, 1000), 100, 10), n_out=2)  # 20/s and 200/s
    assert one(rates, "p5(output_rate) >= 100/s").outcome == "PASS"
    assert one(rates, "p1(output_rate) >= 100/s").outcome == "FAIL"
    assert one(slow(0, 10).select(np.arange(0)), "p5(output_rate) >= 1/s").outcome == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("bad", "n", "outcome"),
    [
        (0, 2995, "PASS"),
        (0, 2994, "INCONCLUSIVE"),
        (1, 4742, "PASS"),
        (1, 4741, "INCONCLUSIVE"),
        (480, 240_000, "FAIL"),
    ],
)
def test_a_share_is_demonstrated_by_the_tabulated_number_of_requests(bad: int, n: int, outcome: str) -> None:
    status = np.where(spread(bad, n), int(Status.HTTP), 0)
    found = one(run(np.ones(n), status=status), "ratio(error) <= 0.1%")
    assert (found.outcome, found.bad) == (outcome, bad)


def test_ratio_good_is_joint_and_over_every_request() -> None:
    some = run(
        np.where(np.arange(1000) < 3, 20, 10 - np.arange(1000) * 0.618 % 1),
        status=np.where(np.arange(1000) >= 998, int(Status.UNSENT), 0),
    )
    found = verdict(some, "latency <= 15ms", "ratio(good) >= 98%").objectives[0]
    assert (found.outcome, found.bad, found.observed) == ("PASS", 5, 0.995)
    assert found.interval[0] < 0.995 < found.interval[1]


def test_facts_about_the_run_are_judged_as_observed() -> None:
    some = slow(1, 100)
    assert one(some, "max(latency) <= 20ms").outcome == "PASS"
    assert one(some, "max(latency) < 20ms").outcome == "FAIL"
    assert one(some, "min(latency) <= 10ms").interval == (10 * MS, 10 * MS)
    mean = one(some, "mean(latency) <= 11ms")
    assert (mean.outcome, mean.observed) == ("PASS", 10.1 * MS)
    assert mean.interval[0] < 10.1 * MS < mean.interval[1]
    assert one(some, "max(error) <= 0").outcome == "PASS"


def test_rates_are_over_the_span_of_the_run() -> None:
    some = slow(0, 991)  # last due at 990 ms, done at 1 s
    assert one(some, "rate(ok) >= 991/s").outcome == "PASS"
    assert one(some, "rate(good) > 991/s").outcome == "FAIL"
    assert one(some, "rate(output_tokens) >= 1/s").outcome == "INCONCLUSIVE"


def test_tokens_of_failed_requests_only_are_a_rate_of_zero_and_not_no_data() -> None:
    some = run([1.0, 1.0], n_out=[5, -1], status=[int(Status.HTTP), 0])
    found = one(some, "rate(output_tokens) >= 1/s")
    assert (found.outcome, found.observed) == ("FAIL", 0.0)
    assert one(run([1.0], status=int(Status.HTTP)), "rate(output_tokens) >= 1/s").outcome == "FAIL"


def test_no_data_is_not_a_pass() -> None:
    for text in (
        "p99(latency) <= 1s",
        "mean(latency) <= 1s",
        "max(latency) <= 1s",
        "ratio(good) >= 1%",
        "rate(ok) >= 0.1/s",
    ):
        assert one(from_columns(0), text).outcome == "INCONCLUSIVE", text
    assert one(from_columns(0), "p99(latency) <= 1s").n_needed == 299


def test_an_indicator_that_does_not_apply_is_inconclusive_and_says_so() -> None:
    found = one(slow(0, 500), "p99(ttft) <= 1s")
    assert (found.outcome, found.n, found.missing) == ("INCONCLUSIVE", 0, 500)
    assert "none of 500 successful requests has one" in found.detail


def test_the_worst_objective_decides_and_says_why() -> None:
    found = verdict(slow(30, 1000), "p99(latency) <= 15ms", "p50(latency) <= 15ms", "p97(latency) <= 15ms")
    assert [v.outcome for v in found.objectives] == ["FAIL", "PASS", "INCONCLUSIVE"]
    assert found.outcome == "FAIL"
    assert [reason.split(":")[0] for reason in found.reasons] == ["p99(latency) <= 15ms", "p97(latency) <= 15ms"]


def test_a_valid_run_without_objectives_passes_and_says_so() -> None:
    found = verdict(slow(0, 10))
    assert (found.outcome, found.reasons, found.objectives) == ("PASS", ("no objective given",), ())


def test_an_invalid_run_is_invalid_whatever_its_numbers_say() -> None:
    some = slow(0, 1000)
    broken = dataclasses.replace(valid(some), outcome="INVALID", reasons=("too late",))
    found = judge(some, [parse("p99(latency) <= 15ms")], broken)
    assert (found.outcome, found.reasons) == ("INVALID", ("too late",))
    assert found.objectives[0].outcome == "PASS"


def test_gaps_of_the_same_requests_count_as_few() -> None:
    """A hundredth of the gaps is slow: one of each request, independent; all of two requests, it is two events."""
    even = [[0, *(np.cumsum(np.where(np.arange(100) == i % 100, 9, 1) * MS).tolist())] for i in range(60)]
    burst = [[0, *(np.cumsum(np.full(100, 9 if i in (7, 21) else 1) * MS).tolist())] for i in range(40)]
    spread_out, together = (
        one(run(np.ones(60), chunks=even), "p95(itl) <= 2ms"),
        one(run(np.ones(40), chunks=burst), "p90(itl) <= 2ms"),
    )
    assert (spread_out.outcome, spread_out.n, spread_out.bad) == ("PASS", 6000, 60)
    assert (together.outcome, together.n, together.bad) == ("INCONCLUSIVE", 4000, 200)
    assert together.design_effect > 50
    assert "they come in clusters" in together.detail


def test_gaps_show_nothing_by_fewer_requests_than_one_value_of_each_would_take() -> None:
    """A request may be slow in all of its gaps: 0 of 60,000 gaps of 58 requests is no p95, of 59 it is; and one slow
    request of 20 no FAIL.
    """

    def gaps(requests: int, slow: int) -> list[list[int]]:
        took = [np.full(1000, 3 if i < slow else 1) * MS for i in range(requests)]
        return [[0, *np.cumsum(each).tolist()] for each in took]

    for requests, slow, text, outcome in (
        (1, 0, "p99(itl) <= 2ms", "INCONCLUSIVE"),
        (58, 0, "p95(itl) <= 2ms", "INCONCLUSIVE"),
        (59, 0, "p95(itl) <= 2ms", "PASS"),
        (20, 1, "p99(itl) <= 2ms", "INCONCLUSIVE"),
        (20, 6, "p90(itl) <= 2ms", "FAIL"),
    ):
        found = one(run(np.ones(requests), chunks=gaps(requests, slow)), text)
        assert (found.outcome, found.n) == (outcome, requests * 1000), (requests, slow)
        assert found.outcome == "PASS" or found.interval[1] == np.inf
    assert one(run(np.ones(58), chunks=gaps(58, 0)), "p95(itl) <= 2ms").n_needed == 59_000


def test_failures_in_bursts_break_a_promise_on_times_as_they_do_one_on_errors() -> None:
    """29 of 4,013 failed in three bursts, all others fast: 1 % of errors is undecided, so no p99 can pass."""
    status = np.zeros(4013, int)
    for start in (500, 1700, 3100):
        status[start : start + 10] = int(Status.PROTOCOL)
    status[509] = 0
    rng = np.random.default_rng(1)
    records = run(rng.normal(10, 1, 4013), status=status)
    errors, late = one(records, "ratio(error) <= 1%"), one(records, "p99(latency) <= 600ms")
    assert (errors.outcome, late.outcome, late.interval[1]) == ("INCONCLUSIVE", "INCONCLUSIVE", np.inf)
    assert late.n_needed is not None
    assert late.n_needed >= 0.9 * (errors.n_needed or 0)


@pytest.mark.parametrize("confidence", ["0", "1", "1.5"])
def test_a_confidence_outside_0_to_1_is_refused(confidence: str) -> None:
    with pytest.raises(ValueError, match=r"lies"):
        one(slow(0, 10), "p99(latency) <= 15ms", confidence)


def test_a_fail_among_many_objectives_needs_more_evidence_than_one_alone() -> None:
    """Holm: 16 of 1,000 over a p99 has p = 0.047 alone."""
    some = run(np.where(spread(17, 1000), 20, 10))
    alone = one(some, "p99(latency) <= 15ms")
    assert (alone.outcome, alone.p_fail) == ("FAIL", pytest.approx(0.0264, abs=1e-4))
    among = verdict(some, "p99(latency) <= 15ms", "ratio(error) <= 1%", "p90(latency) <= 15ms").objectives[0]
    assert among.outcome == "INCONCLUSIVE"
    assert among.n_needed is not None
    assert among.n_needed > 1000
    assert "Holm" in among.detail
    with_a_fact = verdict(some, "p99(latency) <= 15ms", "max(latency) <= 1s").objectives[0]
    assert with_a_fact.outcome == "FAIL"  # what is judged as observed can't be wrong by chance


def test_a_pass_of_several_needs_no_more_than_each_alone() -> None:
    found = verdict(slow(0, 299), "p99(latency) <= 15ms", "ratio(error) <= 1%", "p99(ttfb) <= 15ms")
    assert found.outcome == "PASS"


def test_an_objective_without_data_counts_like_one_that_fails_to_fail() -> None:
    """Else a request that fails, and so is the first value of the other, would turn a FAIL into an INCONCLUSIVE."""
    ranks = ("PASS", "INCONCLUSIVE", "FAIL")
    asked = ("p95(latency) <= 15ms", "p50(tpot) <= 15ms", "ratio(error) <= 50%")
    before = verdict(run([20.0]), *asked)
    after = verdict(run([20.0], status=[Status.TIMEOUT]), *asked)
    assert [found.p_fail for found in before.objectives] == pytest.approx([0.05, 1.0, 1.0])
    assert ranks.index(after.outcome) >= ranks.index(before.outcome)
