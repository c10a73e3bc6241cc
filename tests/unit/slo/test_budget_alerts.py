"""Burn-rate alerts: the policies of SEMANTICS D.2, and what a run shorter than a window may say (D.4)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from plimsoll.slo.objectives.budget import Alert, alerts, budget, budget_ns, detection_ns
from plimsoll.slo.objectives.ledger import POLICIES, Account, AlertRule, Ledger, policy, window_text

S = 1_000_000_000
MINUTE, HOUR, DAY = 60 * S, 3600 * S, 86_400 * S
E = Fraction(1, 1000)
QUICK = policy("sre-workbook", 30 * DAY)[0]


def ledger(bad: np.ndarray, step_ns: int = S, rules: tuple[AlertRule, ...] = (), allowed: Fraction = E) -> Ledger:
    at = np.arange(len(bad), dtype=np.int64) * step_ns
    return Ledger("chat", "x", 1 - allowed, 30 * DAY, "request", (Account(at, bad.astype(float), allowed),), rules)


def found(bad: np.ndarray, rule: AlertRule = QUICK, step_ns: int = S, allowed: Fraction = E) -> Alert:
    return alerts(ledger(bad, step_ns, (rule,), allowed)).alerts[0]


def bad_between(hours: float, since: float, until: float) -> np.ndarray:
    """One request a second; every one between two hours is bad."""
    bad = np.zeros(round(hours * 3600) + 1)
    bad[round(since * 3600) : round(until * 3600)] = 1
    return bad


def rows(name: str, period_ns: int) -> list[tuple[float, float, float]]:
    return [(rule.long_ns / MINUTE, rule.short_ns / MINUTE, round(rule.factor, 4)) for rule in policy(name, period_ns)]


def test_the_workbooks_table_for_thirty_days() -> None:
    assert rows("sre-workbook", 30 * DAY) == [(60, 5, 14.4), (360, 30, 6), (1440, 120, 3), (4320, 360, 1)]
    assert [rule.severity for rule in policy("sre-workbook", 30 * DAY)] == ["page", "page", "ticket", "ticket"]


def test_the_workbooks_factors_follow_the_period() -> None:
    assert [factor for *_, factor in rows("sre-workbook", 28 * DAY)] == [13.44, 5.6, 2.8, 0.9333]


def test_pyrras_windows_stretch_with_the_period() -> None:
    assert rows("pyrra", 28 * DAY) == [(60, 5, 14), (360, 30, 7), (1440, 120, 2), (5760, 360, 1)]
    assert rows("pyrra", 30 * DAY) == [(64, 5, 14), (386, 32, 7), (1543, 129, 2), (6171, 386, 1)]
    assert all(rule.after_ns == rule.short_ns // 2 for rule in policy("pyrra", 30 * DAY))


def test_slo_generators_rules_have_one_window() -> None:
    assert rows("slo-generator", 28 * DAY) == [(60, 60, 9), (720, 720, 3), (10080, 10080, 1.5), (40320, 40320, 1)]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_no_rule_looks_back_further_than_the_period(name: str) -> None:
    assert all(rule.long_ns <= DAY for rule in policy(name, DAY))


def test_no_rule_pages_for_a_service_that_keeps_its_promise() -> None:
    assert [rule.name for rule in policy("sre-workbook", 7 * DAY)] == ["page quick", "page slow"]
    assert policy("sre-workbook", HOUR) == ()


def test_an_unknown_policy_or_period_is_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match="choose one of sre-workbook, pyrra, slo-generator"):
        policy("workbook", DAY)
    with pytest.raises(ValueError, match="above 0"):
        policy("pyrra", 0)


@pytest.mark.parametrize(("burn", "seconds"), [(1000, 51.84), (14.4, 3600), (28.8, 1800)])
def test_detection_time(burn: float, seconds: float) -> None:
    """D.1: a total outage is seen after 51.84 s; an error ratio of 1.44 % after exactly one hour."""
    assert detection_ns(QUICK, burn) == round(seconds * S)


def test_a_burn_below_the_factor_is_never_detected() -> None:
    assert detection_ns(QUICK, 14.3) is None
    assert detection_ns(QUICK, 0.0) is None
    assert detection_ns(QUICK, None) is None


def test_the_vector_of_a_ten_minute_run_pages_nobody_and_leaves_the_ticket_open() -> None:
    """D.4."""
    bad = np.zeros(240_000)
    bad[::500] = 1
    page, slow, quick_ticket, ticket = alerts(ledger(bad, 2_500_000)).alerts
    assert (page.observable, page.fired, page.held_back) == ("truncated", None, True)
    assert page.max_burn_short == pytest.approx(2, rel=0.01)
    assert [(one.observable, one.fired) for one in (slow, quick_ticket, ticket)] == [("no", None)] * 3
    assert ticket.reason == "its shortest window needs 6 h; the run covers 10 min"
    assert ticket.detection_ns == 1.5 * DAY
    assert page.detection_ns is None


def test_a_total_outage_is_certain_to_page_long_before_the_long_window_is_full() -> None:
    alert = found(np.ones(240_000), step_ns=2_500_000)
    assert (alert.observable, alert.fired) == ("truncated", True)
    assert alert.first_fired_at_ns == pytest.approx(51.84 * S, abs=3_000_000)
    assert alert.first_fired_at_ns == alert.detection_ns
    assert alert.resolved_at_ns is None


def test_a_run_shorter_than_the_short_window_says_nothing_even_of_an_outage() -> None:
    alert = found(np.ones(200))
    assert (alert.observable, alert.fired, alert.first_fired_at_ns) == ("no", None, None)
    assert alert.detection_ns == round(51.84 * S)


def test_a_cut_long_window_is_neither_fired_nor_silent() -> None:
    """A burn of 20 for 10 minutes: enough if the hour before was alike, not if it was good."""
    bad = np.zeros(601)
    bad[::50] = 1
    alert = found(bad)
    assert (alert.observable, alert.fired, alert.held_back) == ("truncated", None, False)
    assert alert.fired_alone_at_ns is not None
    assert "before" in alert.reason


def test_an_hour_without_errors_is_silence_that_was_seen() -> None:
    alert = found(np.zeros(3601))
    assert (alert.observable, alert.fired, alert.reason) == ("yes", False, "")


def test_a_short_run_without_errors_is_not_silence() -> None:
    alert = found(np.zeros(601))
    assert (alert.fired, alert.held_back) == (None, True)


def test_an_alert_fires_when_both_windows_cross_and_ends_with_the_short_one() -> None:
    """All bad from 2 h to 2 h 10 min: the hour crosses after 51.84 s, the five minutes are good again at the end."""
    alert = found(bad_between(4, 2, 2 + 1 / 6))
    assert alert.fired is True
    assert alert.first_fired_at_ns == pytest.approx(2 * HOUR + 51.84 * S, abs=2 * S)
    assert alert.resolved_at_ns == pytest.approx(2 * HOUR + 15 * MINUTE, abs=6 * S)


def test_a_slow_leak_that_the_long_window_forgives_does_not_fire() -> None:
    """30 s of outage: the five minutes burn 100, the hour only 8.3."""
    alert = found(bad_between(4, 2, 2 + 30 / 3600))
    assert (alert.observable, alert.fired) == ("yes", False)
    assert alert.max_burn_short == pytest.approx(100, rel=0.02)
    assert alert.max_burn_long is not None
    assert alert.max_burn_long < 14.4


def test_an_outage_in_the_first_hour_leaves_a_long_run_undecided_unless_it_is_certain() -> None:
    some = found(bad_between(3, 0.25, 0.25 + 30 / 3600))
    assert (some.observable, some.fired) == ("yes", None)
    assert some.fired_alone_at_ns is not None
    assert found(bad_between(3, 0.25, 0.3)).fired is True


@pytest.mark.parametrize(("operator", "fired"), [(">", False), (">=", True)])
@pytest.mark.parametrize("n", [5000, 625 * 7])
def test_exactly_on_the_factor_is_not_above_it(operator: str, fired: bool, n: int) -> None:
    """1.44 % of 0.1 % is 14.4; binary rounding must not decide."""
    rule = AlertRule("r", "page", n * S, n * S, 14.4, operator)  # type: ignore[arg-type]
    bad = np.zeros(3 * n)
    bad[n + 5 : n + 5 + n * 9 // 625] = 1
    alert = found(bad, rule)
    assert alert.max_burn_long == pytest.approx(14.4)
    assert alert.fired is fired


def test_slo_generators_report_without_its_rounding() -> None:
    """D.2: 99,800 good, 200 bad, goal 0.999, an hour; and 9.04 is above 9 though it rounds to 9.0."""
    bad = np.zeros(100_000)
    bad[::500] = 1
    seen = budget(ledger(bad, 36_000_000), HOUR)
    assert (seen.sli, seen.burn) == (0.998, 2.0)
    assert seen.sli is not None
    assert seen.sli - 0.999 == pytest.approx(-0.001)
    assert budget_ns(E, HOUR) == pytest.approx(0.06 * MINUTE)
    assert budget_ns(Fraction(200, 100_000), HOUR) == pytest.approx(0.12 * MINUTE)
    assert seen.burn * 100 == 200  # consumed, in percent of the window's budget
    page = policy("slo-generator", 30 * DAY)[0]
    many = np.zeros(100_001)
    many[np.linspace(1, 100_000, 904).astype(int)] = 1
    assert found(many, page, 36_000_000).fired is True


def test_a_rule_waits_for_its_condition_to_last() -> None:
    rule = AlertRule("r", "page", 10 * MINUTE, 10 * MINUTE, 10.0, after_ns=5 * MINUTE)
    at_once = AlertRule("r", "page", 10 * MINUTE, 10 * MINUTE, 10.0)
    bad = bad_between(2, 1, 1.5)
    first, later = found(bad, at_once).first_fired_at_ns, found(bad, rule).first_fired_at_ns
    assert first is not None
    assert later == first + 5 * MINUTE
    assert found(bad_between(2, 1, 1 + 8 / 3600), rule).fired is True  # a window of ten minutes remembers ten
    short = AlertRule("r", "page", MINUTE, MINUTE, 10.0, after_ns=5 * MINUTE)
    assert found(bad_between(2, 1, 1 + 8 / 3600), short).fired is False


def test_an_operator_below_is_taken_literally_in_whole_windows_only() -> None:
    rule = AlertRule("r", "page", 10 * MINUTE, 10 * MINUTE, 2.0, "<=")
    alert = found(bad_between(1, 0, 1), rule)
    assert alert.fired is False
    alert = found(bad_between(1, 0, 0.5), rule)
    assert alert.fired is True
    assert alert.first_fired_at_ns == pytest.approx(40 * MINUTE, abs=2 * S)
    assert found(np.zeros(100), rule).fired is None


def test_each_window_has_its_worst_or_is_not_observable() -> None:
    seen = alerts(ledger(bad_between(1, 0.5, 0.6)))
    of = {window.window_ns: window for window in seen.windows}
    assert of[5 * MINUTE].max_burn == 1000
    assert of[5 * MINUTE].max_at_ns == pytest.approx(35 * MINUTE, abs=S)
    assert of[HOUR].max_burn == pytest.approx(100, rel=0.01)
    assert of[6 * HOUR].max_burn is None
    assert list(of) == sorted(of)


def test_without_entries_nothing_is_observable() -> None:
    seen = alerts(ledger(np.empty(0)))
    assert {(alert.observable, alert.fired) for alert in seen.alerts} == {("no", None)}
    assert "nothing was measured" in seen.alerts[0].reason
    assert all(window.max_burn is None for window in seen.windows)


def test_all_at_once_covers_no_time_and_so_no_window() -> None:
    one = Account(np.zeros(500, np.int64), np.ones(500), E)
    seen = alerts(Ledger("offline", "x", 1 - E, 30 * DAY, "request", (one,)))
    assert {alert.observable for alert in seen.alerts} == {"no"}


def test_the_ledgers_own_rules_come_before_the_usual_ones() -> None:
    own = AlertRule("mine", "page", MINUTE, MINUTE, 2.0)
    assert [alert.rule.name for alert in alerts(ledger(np.zeros(100), rules=(own,))).alerts] == ["mine"]
    assert len(alerts(ledger(np.zeros(100))).alerts) == 4


@pytest.mark.parametrize(
    ("ns", "text"),
    [(5 * MINUTE, "5 min"), (HOUR, "1 h"), (3 * DAY, "3 d"), (64 * MINUTE, "64 min"), (599_997_500_000, "10 min")],
)
def test_windows_are_written_in_one_unit(ns: int, text: str) -> None:
    assert window_text(ns) == text
