"""Error budgets: the arithmetic of SEMANTICS D.1 and D.4, and what is said when there is nothing to say."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest

from plimsoll.slo.objectives.budget import (
    budget,
    budget_ns,
    burn_between,
    burn_rate,
    covered_ns,
    exhausted_in_ns,
    projected_sli,
    run_span_ns,
    spending,
    spent_by_events,
    spent_by_time,
    tallies,
    tally,
    window_burn,
)
from plimsoll.slo.objectives.ledger import Account, Ledger
from plimsoll.slo.records.records import Status, from_columns

S = 1_000_000_000
MINUTE, HOUR, DAY = 60 * S, 3600 * S, 86_400 * S
E = Fraction(1, 1000)


def account(bad: list[float], allowed: Fraction = E, weight: int = 1, step_ns: int = S) -> Account:
    return Account(np.arange(len(bad), dtype=np.int64) * step_ns, np.array(bad, float), allowed, Fraction(weight))


def ledger(*accounts: Account, period_ns: int = 30 * DAY, entry: str = "request", **more: object) -> Ledger:
    target = 1 - accounts[0].allowed
    return Ledger("chat", "ratio(good) >= 99.9%", target, period_ns, entry, accounts, **more)  # type: ignore[arg-type]


def vector() -> Ledger:
    """D.4: 600 s at 400/s, 480 bad, evenly."""
    bad = np.zeros(240_000)
    bad[::500] = 1
    at = np.arange(240_000, dtype=np.int64) * 2_500_000
    return ledger(Account(at, bad, E), production_per_s=100.0)


def test_the_budget_in_time_of_three_nines_over_thirty_days_is_43_2_minutes() -> None:
    assert budget_ns(E, 30 * DAY) == 43.2 * MINUTE


@pytest.mark.parametrize(("burn", "hours"), [(14.4, 50), (6, 120), (1, 720)])
def test_a_constant_burn_exhausts_the_budget_after_the_period_over_the_burn(burn: float, hours: int) -> None:
    assert exhausted_in_ns(burn, 30 * DAY) == hours * HOUR
    assert spent_by_time(burn, hours * HOUR, 30 * DAY) == pytest.approx(1)


def test_no_burn_never_exhausts() -> None:
    assert exhausted_in_ns(0.0, 30 * DAY) is None


def test_the_vector_of_a_ten_minute_run_against_thirty_days() -> None:
    found = budget(vector(), 600 * S)
    assert (found.n, found.bad, found.sli) == (240_000, 480, 0.998)
    assert found.burn == 2.0
    assert found.burn_interval is not None
    assert [f"{bound:.2f}" for bound in found.burn_interval] == ["1.85", "2.16"]
    assert found.sli_interval is not None
    assert [f"{(1 - bound) * 100:.4f}" for bound in reversed(found.sli_interval)] == ["0.1852", "0.2157"]
    # Each bound alone has 95 %: both are the ends of the two-sided interval of 90 %.
    exact = binomtest(480, 240_000).proportion_ci(confidence_level=0.90, method="exact")
    assert found.sli_interval == pytest.approx((1 - exact.high, 1 - exact.low), abs=1e-9)
    assert found.method == "Clopper-Pearson"
    assert found.spent_by_time == pytest.approx(0.000463, rel=1e-3)
    assert found.spent_by_events == pytest.approx(480 / 259_200)
    assert found.exhausted_in_ns == 15 * DAY
    assert found.remaining == pytest.approx(1 - 0.000463, rel=1e-6)
    assert found.affordable_share == 0.5
    assert found.budget_ns == 43.2 * MINUTE


def test_both_kinds_of_spending_agree_when_production_is_as_busy_as_the_test() -> None:
    by_events = spent_by_events(480, E, 400.0, 30 * DAY)
    assert by_events == pytest.approx(spent_by_time(2.0, 600 * S, 30 * DAY))


def test_without_the_rate_of_production_nothing_is_said_by_events() -> None:
    found = budget(ledger(account([0, 1])), 2 * S)
    assert found.spent_by_events is None
    assert "production" in found.no_events_reason


@pytest.mark.parametrize("entry", ["gap", "slice"])
def test_a_rate_of_requests_says_nothing_about_other_entries(entry: str) -> None:
    found = budget(ledger(account([0, 1]), entry=entry, production_per_s=5.0), 2 * S)
    assert found.spent_by_events is None
    assert entry in found.no_events_reason


def test_no_entry_is_no_budget_and_not_a_clean_one() -> None:
    found = budget(ledger(account([])), 60 * S)
    assert (found.n, found.sli, found.burn, found.remaining, found.exhausted_in_ns) == (0, None, None, None, None)
    assert found.reason == "no request was counted"
    assert found.budget_ns == 43.2 * MINUTE
    assert len(spending(ledger(account([])), 60 * S).end_ns) == 0


def test_one_part_without_entries_leaves_the_whole_unknown() -> None:
    found = budget(ledger(account([0, 1]), account([])), 60 * S)
    assert found.burn is None
    assert found.reason == "no request was counted in 1 of its 2 parts"


def test_an_overspent_budget_has_less_than_nothing_left() -> None:
    found = budget(ledger(account([1] * 10), period_ns=HOUR), 10 * MINUTE)
    assert found.burn == 1000
    assert found.remaining == pytest.approx(1 - 1000 / 6)


def test_the_burn_of_accounts_is_the_weighted_sum() -> None:
    """D.3: 2 objectives; weight 2 of one that burns 10, weight 1 of one that burns 5."""
    parts = (account([0] * 9 + [1], Fraction(1, 100), 2), account([0] * 19 + [1], Fraction(1, 100), 1))
    assert burn_rate(tallies(ledger(*parts))) == 25


def test_the_worked_example_of_the_three_budgeting_methods() -> None:
    """D.3: 98 %; 983 of 1,000 good; 4 of 5 slices; a mean of 0.976."""
    allowed = Fraction(2, 100)
    occurrences = account([1] * 17 + [0] * 983, allowed)
    slices = account([0, 0, 1, 0, 0], allowed, step_ns=MINUTE)
    ratios = account([0, 0.01, 0.1, 0, 0.01], allowed, step_ns=MINUTE)
    found = [budget(ledger(one), 5 * MINUTE) for one in (occurrences, slices, ratios)]
    assert [one.burn for one in found] == pytest.approx([0.85, 10, 1.2])
    assert [one.sli for one in found] == pytest.approx([0.983, 0.8, 0.976])
    assert [one.method for one in found] == ["Clopper-Pearson", "Clopper-Pearson", "Chernoff-Hoeffding"]


def test_an_interval_of_shares_in_between_is_valid_and_wider_than_the_exact_one_of_whole_entries() -> None:
    whole = budget(ledger(account([1] * 20 + [0] * 180, Fraction(1, 10))), S).burn_interval
    between = budget(ledger(account([0.5] * 40 + [0] * 160, Fraction(1, 10))), S).burn_interval
    assert whole is not None
    assert between is not None
    assert between[0] < whole[0] < 1 < whole[1] < between[1]


def test_a_window_holds_what_came_after_its_start_up_to_its_end() -> None:
    parts = tallies(ledger(account([1, 0, 1, 0], Fraction(1, 2))))
    found = burn_between(parts, np.array([-1, 0, 1, 3]), np.array([0, 2 * S, 3 * S, 9 * S]))
    assert found[:3].tolist() == [2.0, 1.0, pytest.approx(2 / 3)]
    empty = burn_between(parts, np.array([4 * S]), np.array([5 * S]))
    assert np.isnan(empty).all()


def test_entries_of_one_time_are_counted_together() -> None:
    found = tally(Account(np.array([0, 0, 5, 5, 5]), np.array([1.0, 0, 1, 1, 0]), E))
    assert found.at_ns.tolist() == [0, 5]
    assert found.bad.tolist() == [0, 1, 3]
    assert found.n.tolist() == [0, 2, 5]


def test_an_account_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="ascend"):
        tally(Account(np.array([5, 4]), np.zeros(2), E))
    with pytest.raises(ValueError, match="2 times and 1 entries"):
        tally(Account(np.array([4, 5]), np.zeros(1), E))


def test_a_cut_window_is_told_from_one_with_a_good_past() -> None:
    parts = tallies(ledger(account([1] * 11, Fraction(1, 10))))
    assert covered_ns(parts) == 10 * S
    found = window_burn(parts, np.array([5 * S, 10 * S]), 100 * S)
    assert found.cut.tolist() == [10, 10]
    assert found.least[1] == pytest.approx(11 / (11 + 1.1 * 90) * 10)
    whole = window_burn(parts, np.array([10 * S]), 10 * S)
    assert whole.cut.tolist() == whole.least.tolist() == [10]


def test_the_timeline_has_at_most_300_parts_and_ends_with_what_the_run_spent() -> None:
    found = spending(vector(), 600 * S)
    assert len(found.end_ns) == len(found.burn) == len(found.spent) == 300
    assert found.end_ns[-1] == 600 * S
    assert found.spent[-1] == pytest.approx(budget(vector(), 600 * S).spent_by_time)
    assert (np.diff(found.spent) >= 0).all()


def test_a_part_without_entries_has_no_burn_and_spends_nothing() -> None:
    found = spending(ledger(Account(np.array([0, 9 * S]), np.array([1.0, 1.0]), E)), 10 * S, parts=10)
    assert np.isnan(found.burn[1:8]).all()
    assert found.burn[[0, 8]].tolist() == [1000, 1000]
    assert len(set(found.spent[:8].tolist())) == 1


def test_a_stalled_end_makes_the_run_longer_and_giving_up_early_no_shorter() -> None:
    steady = from_columns(3, due_ns=[0, S, 2 * S], done_ns=[1, S + 1, 2 * S + 5])
    stalled = from_columns(3, due_ns=[0, S, 2 * S], done_ns=[1, S + 1, 60 * S])
    unsent = from_columns(3, due_ns=[0, S, 2 * S], done_ns=[1, S + 1, -1], status=[0, 0, Status.UNSENT])
    assert [run_span_ns(one) for one in (steady, stalled, unsent)] == [2 * S + 5, 60 * S, 2 * S]
    assert run_span_ns(from_columns(0)) == 0


def test_the_projection_weighs_both_parts_by_their_traffic() -> None:
    """D.4.4."""
    assert projected_sli(1.0, test_per_s=400, test_bad=0.002, base_per_s=100) == 0.998
    assert projected_sli(0.0, test_per_s=400, test_bad=0.002, base_per_s=100, base_bad=0.0005) == 0.9995
    mixed = projected_sli(0.25, test_per_s=400, test_bad=0.002, base_per_s=100, base_bad=0.0005)
    assert mixed == pytest.approx(1 - (0.25 * 400 * 0.002 + 0.75 * 100 * 0.0005) / (0.25 * 400 + 0.75 * 100))


@pytest.mark.parametrize(
    ("change", "said"), [({"fraction": 1.5}, "0..1"), ({"test_bad": -1}, "0..1"), ({"test_per_s": -1}, "at least 0")]
)
def test_a_projection_of_nonsense_is_refused(change: dict[str, float], said: str) -> None:
    given = {"fraction": 0.5, "test_per_s": 1, "test_bad": 0.1, "base_per_s": 1} | change
    with pytest.raises(ValueError, match=said):
        projected_sli(**given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no traffic"):
        projected_sli(1.0, test_per_s=0, test_bad=0, base_per_s=9)
