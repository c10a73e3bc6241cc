"""OpenSLO objectives over records: the worked example by each budgeting method, composites, slices, and what no data
says.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from plimsoll.slo.objectives import selector
from plimsoll.slo.objectives.ledger import AlertRule
from plimsoll.slo.objectives.objective import parse as limit
from plimsoll.slo.objectives.openslo import Slo, parse
from plimsoll.slo.objectives.openslo.counting import Component, Method, Requests, Terms, Values
from plimsoll.slo.objectives.openslo.judging import Events, Part, SliceMean, Sum, slice_mean
from plimsoll.slo.objectives.openslo.place import span
from plimsoll.slo.records.labels import LabelTable
from plimsoll.slo.records.records import Records, Status, empty, from_columns
from plimsoll.slo.statistics.confidence import relative_entropy
from plimsoll.slo.statistics.share import counted

MIN = 60_000_000_000
DAY = 1440 * MIN


def slices(good: list[int], total: list[int], window_ns: int = MIN) -> Records:
    """``total[i]`` requests due evenly over slice i, ``good[i]`` of them successful."""
    due, status = [], []
    for i, (fine, n) in enumerate(zip(good, total, strict=True)):
        due += [i * window_ns + (2 * j + 1) * window_ns // (2 * n) for j in range(n)]
        status += [int(Status.OK)] * fine + [int(Status.HTTP)] * (n - fine)
    at = np.array(due, np.int64)
    return from_columns(len(due), due_ns=at, sent_ns=at, first_byte_ns=at + 1, done_ns=at + 2, status=status)


EXAMPLE = slices([100, 99, 90, 100, 594], [100, 100, 100, 100, 600])


def promise(method: Method, target: str = "0.98", **more: Any) -> Slo:
    sliced = {"slice_ns": MIN} if method != "Occurrences" else {}
    slice_target = Fraction(more.pop("slice_target", "0.95"))
    part = Component("ok", Requests(()), Fraction(target), Fraction(1), slice_target)
    terms = Terms(method, more.pop("parts", (part,)), **(sliced | more))
    return Slo("web", "Web", "shop", "here", terms, "a rolling 14 days", 14 * DAY)


# -- the worked example ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "sli", "answer"),
    [
        ("Occurrences", 0.983, "as counted met: burn 0.85 against the target of 98 %"),
        ("Timeslices", 0.8, "as counted missed: burn 10 against the target of 98 %"),
        ("RatioTimeslices", 0.976, "as counted missed: burn 1.2 against the target of 98 %"),
    ],
)
def test_the_same_requests_meet_or_miss_by_the_budgeting_method(method: Method, sli: float, answer: str) -> None:
    slo = promise(method)
    (found,) = slo.judge(EXAMPLE)
    assert found.observed == pytest.approx(sli)
    assert answer in found.detail
    ledger = slo.ledger(EXAMPLE)
    bad = [float(account.bad.sum()) / len(account.bad) / float(account.allowed) for account in ledger.accounts]
    assert bad == [pytest.approx((1 - sli) / 0.02)]


def test_the_verdict_counts_entries_and_says_how_many_decide() -> None:
    plain = promise("Occurrences").judge(EXAMPLE)[0]
    assert (plain.outcome, plain.n, plain.bad) == ("INCONCLUSIVE", 1000, 17)
    assert plain.n_needed is not None
    assert plain.n_needed > 1000
    by_time = promise("Timeslices").judge(EXAMPLE)[0]
    assert (by_time.outcome, by_time.n, by_time.bad, by_time.max_bad_allowed) == ("INCONCLUSIVE", 5, 1, -1)
    # P[Binomial(5, 0.02) >= 1] = 1 - 0.98^5: one bad slice of five does not show more than 2 % yet.
    assert by_time.p_fail == pytest.approx(1 - 0.98**5)


@pytest.mark.parametrize("method", ["Occurrences", "Timeslices"])
def test_an_slo_about_some_requests_counts_those_alone(method: Method) -> None:
    """Of every other request; the same as if the others were not there."""
    mine = np.arange(len(EXAMPLE)) % 2 == 0
    some = EXAMPLE.labelled(LabelTable.of({"class": ["chat" if one else "bulk" for one in mine]}))
    part = Component("ok", Requests((), selector.parse("class=chat")), Fraction("0.98"), slice_target=Fraction("0.95"))
    (found,) = promise(method, parts=(part,)).judge(some)
    (alone,) = promise(method).judge(EXAMPLE.select(mine))
    assert (found.n, found.bad, found.observed) == (alone.n, alone.bad, alone.observed)
    late = Component("e2e", Values(limit("latency{class=chat} <= 1ns")), Fraction("0.98"))
    (all_late,) = promise("Occurrences", parts=(late,)).judge(some)
    assert (all_late.n, all_late.bad) == (int(mine.sum()), int(mine.sum()))


def test_a_slice_is_bad_only_below_its_target() -> None:
    on_the_line = slices([19, 95], [20, 100])
    assert promise("Timeslices", slice_target="0.95").judge(on_the_line)[0].bad == 0
    below = slices([18, 94], [20, 100])
    assert promise("Timeslices", slice_target="0.95").judge(below)[0].bad == 2


@pytest.mark.parametrize(("bad", "met"), [(1008, "met"), (1009, "missed")])
def test_95_percent_of_two_weeks_in_minutes_allows_1008_bad_ones(bad: int, met: str) -> None:
    slo = promise("Timeslices", "0.95", slice_target="1")
    some = slices([0] * bad + [1] * (20_160 - bad), [1] * 20_160)
    assert f"as counted {met}" in slo.judge(some)[0].detail
    assert span(slo.budget_ns) == "16 h 48 min"
    assert slo.budget_ns == 1008 * MIN


@pytest.mark.parametrize(("minutes", "met"), [(822, "met"), (823, "missed")])
def test_a_ratio_of_slices_allows_822_minutes_of_attack(minutes: int, met: str) -> None:
    # 99 % in normal minutes, 1 % under attack: 0.04 x 20160 / 0.98 = 822.9 minutes.
    loss = np.where(np.arange(20_160) < minutes, 0.99, 0.01)
    evidence = slice_mean(np.ones(20_160, bool), loss, np.full(20_160, 100))
    total = Sum([Part(evidence, Fraction(1), Fraction(5, 100))])
    assert (total.burn <= 1) == (met == "met")
    assert span(Fraction(4, 98) * 20_160 * MIN) == "13 h 43 min"


def test_budgets_in_time() -> None:
    week = Slo("a", "a", "s", "x", promise("Occurrences", "0.9995").terms, "a rolling 1 week", 7 * DAY)
    assert span(week.budget_ns) == "5.04 min"
    month = Slo("a", "a", "s", "x", promise("Occurrences", "0.999").terms, "a rolling 30 days", 30 * DAY)
    assert span(month.budget_ns) == "43.2 min"


# -- composites -----------------------------------------------------------------------------------------------


def two(method: Method, first: str = "0.95", second: str = "0.95", weight: str = "1") -> Slo:
    """Success, and success with ttft within 1 s: independent of each other where only one breaks."""
    parts = (
        Component("ok", Requests(()), Fraction(first), Fraction(weight), Fraction("0.9")),
        Component("fast", Values(limit("ttft <= 1s")), Fraction(second), Fraction(1), Fraction("0.9")),
    )
    return promise(method, parts=parts)


def with_slow(n: int, failed: int, slow: int) -> Records:
    """n requests over five minutes; the first ``failed`` fail, the last ``slow`` are slow.

    A failed one has no token.
    """
    due = np.arange(n) * (5 * MIN) // n
    status = np.where(np.arange(n) < failed, int(Status.HTTP), int(Status.OK))
    first = due + np.where(np.arange(n) >= n - slow, 2_000_000_000, 1_000_000)
    return from_columns(n, due_ns=due, sent_ns=due, first_token_ns=first, done_ns=first + 1, status=status)


def test_95_and_95_percent_by_slices_lose_10_percent_together() -> None:
    a = SliceMean(1000, 0.05, 1000.0)
    each = [Part(a, Fraction(1), Fraction(1, 10))] * 2
    assert Sum(each).burn == pytest.approx(1.0)  # of a target of 90 %: composite loss 10 %, exactly on budget
    found = two("RatioTimeslices", "0.9", "0.9").judge(with_slow(1000, 0, 100))[0]
    assert found.observed == pytest.approx(0.9)


def test_burns_of_a_composite_add_up_by_weight() -> None:
    # 10 of 1000 fail (and so have no token: bad for both), 20 more are slow.
    some = with_slow(1000, 10, 20)
    plain = two("Occurrences", "0.9", "0.9").judge(some)[0]
    assert "burn 0.4 against" in plain.detail  # 0.1 + 0.3
    half = two("Occurrences", "0.9", "0.95", weight="0.5").judge(some)[0]
    assert "burn 0.65 against" in half.detail  # 0.5 x 0.1 + 0.6
    assert "with weight 0.5" in half.detail
    accounts = two("Occurrences", "0.9", "0.95", weight="0.5").ledger(some).accounts
    assert [account.weight for account in accounts] == [Fraction(1, 2), Fraction(1)]
    assert [float(account.bad.sum()) for account in accounts] == [10, 30]


def test_a_slice_of_a_composite_is_bad_when_it_is_bad_for_any() -> None:
    some = with_slow(1000, 100, 100)  # the first minute fails half of its requests, the last is slow in half
    found = two("Timeslices", "0.5", "0.5").judge(some)[0]
    assert (found.bad, found.n) == (2, 5)


def test_a_composite_passes_and_fails_when_the_run_shows_it() -> None:
    assert two("Occurrences", "0.9", "0.9").judge(with_slow(2000, 0, 20))[0].outcome == "PASS"
    assert two("Occurrences", "0.9", "0.9").judge(with_slow(2000, 200, 300))[0].outcome == "FAIL"
    close = two("Occurrences", "0.9", "0.9").judge(with_slow(2000, 0, 195))[0]
    assert close.outcome == "INCONCLUSIVE"
    assert close.n_needed is not None
    assert close.n_needed > 2000


def test_a_part_without_data_keeps_a_composite_from_passing() -> None:
    due = np.arange(2000) * 1_000_000
    unstreamed = from_columns(2000, due_ns=due, sent_ns=due, done_ns=due + 5, status=0)
    found = two("Occurrences", "0.5", "0.5", weight="0.1").judge(unstreamed)[0]
    assert found.outcome == "INCONCLUSIVE"
    assert "fast: no data" in found.detail
    assert np.isnan(found.observed)


# -- slices ---------------------------------------------------------------------------------------------------


def test_slices_begin_at_t0_and_hold_what_was_due_in_them() -> None:
    late = from_columns(
        3, due_ns=[0, MIN - 1, MIN + MIN // 2], sent_ns=[0, 0, 0], done_ns=[9 * MIN] * 3, status=[0, 1, 0]
    )
    ledger = promise("RatioTimeslices").ledger(late)
    assert ledger.accounts[0].at_ns.tolist() == [MIN, 2 * MIN]
    assert ledger.accounts[0].bad.tolist() == [0.5, 0.0]


@pytest.mark.parametrize(("how", "n", "bad"), [("exclude", 2, 0), ("good", 4, 0), ("bad", 4, 2)])
def test_empty_slices_are_left_out_unless_told_otherwise(how: str, n: int, bad: int) -> None:
    due = np.array([0, 1, 3 * MIN, 3 * MIN + MIN // 2])
    some = from_columns(4, due_ns=due, sent_ns=due, done_ns=due + 1)
    found = promise("Timeslices", empty=how).judge(some)[0]
    assert (found.n, found.bad) == (n, bad)
    assert "2 empty slices" in found.detail
    loss = promise("RatioTimeslices", empty=how).judge(some)[0]
    assert loss.observed == pytest.approx(1 - bad / n)


def test_a_last_slice_that_the_run_covered_by_less_than_half_is_left_out() -> None:
    due = np.array([0, 1, MIN + MIN // 2 - 1])
    some = from_columns(3, due_ns=due, sent_ns=due, done_ns=due + 1)
    short = promise("Timeslices").judge(some)[0]
    assert short.n == 1
    assert "the last slice, less than half of it, left out" in short.detail
    due = np.array([0, 1, MIN + MIN // 2])
    assert promise("Timeslices").judge(from_columns(3, due_ns=due, sent_ns=due, done_ns=due + 1))[0].n == 2


@pytest.mark.parametrize("method", ["Occurrences", "Timeslices", "RatioTimeslices"])
def test_no_data_is_never_a_pass(method: Method) -> None:
    slo = promise(method, "0.5")
    assert slo.judge(empty())[0].outcome == "INCONCLUSIVE"
    blink = from_columns(1000, due_ns=0, sent_ns=0, done_ns=1, status=0)
    if method != "Occurrences":
        found = slo.judge(blink)[0]
        assert found.outcome == "INCONCLUSIVE"
        assert "shorter than half a slice" in found.detail
        for how in ("good", "bad"):
            assert promise(method, "0.5", empty=how).judge(blink)[0].outcome == "INCONCLUSIVE"
    assert len(slo.ledger(empty()).accounts[0].at_ns) == 0


def test_an_indicator_that_nothing_has_is_no_data() -> None:
    due = np.arange(100)
    unstreamed = from_columns(100, due_ns=due, sent_ns=due, done_ns=due + 1)
    parts = (Component("t", Values(limit("ttft <= 1s")), Fraction(1, 2)),)
    found = promise("Occurrences", parts=parts).judge(unstreamed)[0]
    assert found.outcome == "INCONCLUSIVE"
    assert "none of 100 successful requests has ttft" in found.detail


def test_in_slices_an_event_is_a_request_and_one_without_a_value_is_not_good() -> None:
    due = np.arange(100) * MIN // 100
    unstreamed = from_columns(100, due_ns=due, sent_ns=due, done_ns=due + 1)
    parts = (Component("t", Values(limit("ttft <= 1s")), Fraction(1, 2), Fraction(1), Fraction(1, 2)),)
    found = promise("Timeslices", parts=parts).judge(unstreamed)[0]
    assert (found.n, found.bad, found.missing) == (1, 1, 100)
    assert "100 successful requests without a value" in found.detail


def test_gaps_are_events_of_their_own_and_a_failed_request_adds_a_bad_one() -> None:
    ms = 1_000_000
    some = from_columns(
        2, due_ns=[0, 5], sent_ns=[0, 5], done_ns=[99, 99], status=[0, 1], chunks=[[0, ms, 9 * ms], [0, ms]]
    )
    slo = promise("Occurrences", "0.5", parts=(Component("g", Values(limit("itl <= 5ms")), Fraction(1, 2)),))
    ledger = slo.ledger(some)
    assert ledger.entry == "gap"
    assert ledger.accounts[0].bad.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert ledger.accounts[0].at_ns.tolist() == [0, 0, 5, 5]


# -- bounds ---------------------------------------------------------------------------------------------------


def test_relative_entropy() -> None:
    assert relative_entropy(0.0, 0.1) == pytest.approx(-np.log(0.9))
    assert relative_entropy(0.3, 0.3) == 0.0
    assert relative_entropy(0.2, 0.0) == np.inf
    assert relative_entropy(1.0, 0.5) == pytest.approx(np.log(2))


def test_without_a_bad_event_equal_slices_are_as_sure_as_plain_events() -> None:
    evidence = slice_mean(np.ones(5, bool), np.zeros(5), np.full(5, 60))
    assert evidence.effective == 300
    assert evidence.p_few(Fraction(1, 100)) == pytest.approx(0.99**300)
    assert evidence.bounds(0.05)[1] == pytest.approx(1 - 0.05 ** (1 / 300))


def test_the_smallest_slice_rules_how_sure_a_mean_over_slices_can_be() -> None:
    evidence = slice_mean(np.ones(3, bool), np.zeros(3), np.array([1000, 2, 1000]))
    assert (evidence.n, evidence.effective) == (2002, 6)


def test_the_bound_of_a_mean_over_slices_holds_in_simulation() -> None:
    rng = np.random.default_rng(7)
    sizes, share = np.array([10, 40, 100, 20, 30]), 0.1
    wrong = 0
    for _ in range(2000):
        loss = rng.binomial(sizes, share) / sizes
        wrong += slice_mean(np.ones(5, bool), loss, sizes).p_few(Fraction(1, 10)) <= 0.05
    assert wrong / 2000 <= 0.05


def test_each_part_of_a_sum_has_its_share_of_the_error() -> None:
    a = Events(counted(np.zeros(300, bool)))
    one = Sum([Part(a, Fraction(1), Fraction(1, 50))])
    both = Sum([Part(a, Fraction(1), Fraction(1, 50))] * 2)
    assert one.p_few() == pytest.approx(0.98**300)
    # Each bound is 1 - (alpha / 2)^(1/300), and they meet the budget together where each is 1 %.
    assert both.p_few() == pytest.approx(2 * 0.99**300, rel=1e-6)


# -- what the ledger and the promise say ----------------------------------------------------------------------

DOCUMENT = """
apiVersion: openslo/v1
kind: SLO
metadata:
  name: chat
  annotations: {plimsoll.io/production-rate: "100"}
spec:
  service: s
  indicator:
    metadata: {name: i}
    spec:
      thresholdMetric: {metricSource: {type: plimsoll, spec: {indicator: ttft, unit: ms}}}
  timeWindow: [{duration: 30d, isRolling: true}]
  budgetingMethod: Occurrences
  objectives: [{op: lte, value: 200.5, targetPercent: 99.9}]
  alertPolicies: [{alertPolicyRef: page}, {alertPolicyRef: ticket}]
---
apiVersion: openslo/v1
kind: AlertPolicy
metadata: {name: page}
spec:
  alertWhenBreaching: true
  conditions: [{conditionRef: fast}]
  notificationTargets: [{targetRef: mail}]
---
apiVersion: openslo/v1
kind: AlertPolicy
metadata: {name: ticket}
spec:
  alertWhenBreaching: true
  conditions:
    - kind: AlertCondition
      metadata: {name: slow}
      spec: {severity: ticket, condition: {kind: burnrate, op: gte, threshold: 1, lookbackWindow: 3d}}
  notificationTargets: [{targetRef: mail}]
---
apiVersion: openslo/v1
kind: AlertCondition
metadata: {name: fast}
spec: {severity: page, condition: {kind: burnrate, op: gt, threshold: 14.4, lookbackWindow: 1h, alertAfter: 5m}}
---
apiVersion: openslo/v1
kind: AlertNotificationTarget
metadata: {name: mail}
spec: {target: email}
"""


def test_a_document_becomes_a_promise_with_its_ledger_and_alerts() -> None:
    (slo,) = parse(DOCUMENT).to_judge()
    assert str(slo.promise) == "slo(chat) >= 99.9%"
    assert (slo.promise.indicator, slo.promise.statistic, slo.promise.operator) == ("chat", "ratio", ">=")
    assert (slo.promise.threshold, slo.promise.unit) == (0.999, "ratio")
    assert slo.limits == (limit("ttft <= 200.5ms"),)
    ledger = slo.ledger(with_slow(1000, 1, 2))
    assert (ledger.name, ledger.objective, ledger.target) == ("chat", "slo(chat) >= 99.9%", Fraction(999, 1000))
    assert (ledger.period_ns, ledger.entry, ledger.production_per_s) == (30 * DAY, "request", 100.0)
    assert ledger.accounts[0].allowed == Fraction(1, 1000)
    assert float(ledger.accounts[0].bad.sum()) == 3
    hour = 60 * MIN
    assert ledger.rules == (
        AlertRule("page", "page", hour, hour, 14.4, ">", 5 * MIN),
        AlertRule("ticket", "ticket", 3 * DAY, 3 * DAY, 1.0, ">=", 0),
    )


def test_the_ledger_is_in_order_of_due_time() -> None:
    due = np.array([5, 1, 3])
    some = from_columns(3, due_ns=due, sent_ns=due, done_ns=due + 1, status=[0, 1, 0])
    account = promise("Occurrences").ledger(some).accounts[0]
    assert (account.at_ns.tolist(), account.bad.tolist()) == ([1, 3, 5], [1.0, 0.0, 0.0])
