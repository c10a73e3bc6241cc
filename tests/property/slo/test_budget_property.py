"""Nothing that makes an entry worse makes a budget better or takes an alert back."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from slo_strategies import build, rows

from plimsoll.slo.objectives.budget import (
    Alert,
    alerts,
    budget,
    burn_between,
    detection_ns,
    exhausted_in_ns,
    spending,
    spent_by_time,
    tallies,
)
from plimsoll.slo.objectives.ledger import Account, AlertRule, Ledger, ledger_of
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Records, Status

S = 1_000_000_000
PERIOD = 3600 * S

allowed = st.sampled_from([Fraction(1, 1000), Fraction(1, 100), Fraction(1, 10), Fraction(1, 3)])
rule = st.builds(
    lambda short, times, factor, operator, after: AlertRule(
        "r", "page", short * times * S, short * S, factor, operator, after * S
    ),
    short=st.integers(1, 20),
    times=st.sampled_from([1, 2, 12]),
    factor=st.sampled_from([0.5, 1.0, 2.0, 14.4]),
    operator=st.sampled_from([">", ">="]),
    after=st.sampled_from([0, 0, 3]),
)


@st.composite
def account(draw: st.DrawFn, shares: tuple[float, ...] = (0.0, 0.0, 0.0, 1.0, 0.5)) -> Account:
    steps = draw(st.lists(st.sampled_from([0, 1, 1, 1, 2, 7]), min_size=1, max_size=80))
    bad = draw(st.lists(st.sampled_from(shares), min_size=len(steps), max_size=len(steps)))
    return Account(
        np.cumsum(np.array(steps, np.int64)) * S, np.array(bad), draw(allowed), Fraction(draw(st.integers(1, 3)))
    )


accounts = st.lists(account(), min_size=1, max_size=3)


def ledger(parts: list[Account], rules: tuple[AlertRule, ...] = ()) -> Ledger:
    return Ledger("x", "x", 1 - parts[0].allowed, PERIOD, "request", tuple(parts), rules, production_per_s=3.0)


def worse(parts: list[Account], which: int, at: int) -> list[Account]:
    """One entry of one account bad."""
    which %= len(parts)
    bad = parts[which].bad.copy()
    bad[at % len(bad)] = 1.0
    found = Account(parts[which].at_ns, bad, parts[which].allowed, parts[which].weight)
    return [*parts[:which], found, *parts[which + 1 :]]


def span(parts: list[Account]) -> int:
    return max(int(one.at_ns[-1]) for one in parts) + S


@given(parts=accounts, which=st.integers(0, 2), at=st.integers(0, 79))
def test_one_more_bad_entry_never_lowers_burn_or_spending(parts: list[Account], which: int, at: int) -> None:
    before, after = (ledger(p) for p in (parts, worse(parts, which, at)))
    one, other = budget(before, span(parts)), budget(after, span(parts))
    for name in ("bad", "burn", "spent_by_time", "spent_by_events"):
        assert getattr(other, name) >= getattr(one, name) * (1 - 1e-12)
    assert one.sli is not None
    assert other.sli is not None
    assert other.sli <= one.sli + 1e-12
    assert other.exhausted_in_ns is None or one.exhausted_in_ns is None or other.exhausted_in_ns <= one.exhausted_in_ns
    assert (spending(after, span(parts)).spent >= spending(before, span(parts)).spent - 1e-12).all()


@given(parts=accounts, which=st.integers(0, 2), at=st.integers(0, 79), rule=rule)
def test_one_more_bad_entry_never_takes_an_alert_back(
    parts: list[Account], which: int, at: int, rule: AlertRule
) -> None:
    def seen(some: list[Account]) -> Alert:
        return alerts(ledger(some, (rule,))).alerts[0]

    rank = {False: 0, None: 1, True: 2}
    one, other = seen(parts), seen(worse(parts, which, at))
    assert one.observable == other.observable
    if one.observable != "no":
        assert rank[other.fired] >= rank[one.fired]
        assert not (other.held_back and not one.held_back)
    for name in ("first_fired_at_ns", "fired_alone_at_ns"):
        if getattr(one, name) is not None:
            assert getattr(other, name) <= getattr(one, name)


def second_by_second(bad: list[int], n: int) -> Account:
    """One entry a second for n seconds; those named are bad, of a tenth allowed."""
    entries = np.zeros(n)
    entries[bad] = 1
    return Account(np.arange(n, dtype=np.int64) * S, entries, Fraction(1, 10))


TWO_MINUTES = AlertRule("r", "page", 120 * S, 10 * S, 2.0)


@example([second_by_second([], 60)], TWO_MINUTES)
@example([second_by_second([*range(60)], 60)], TWO_MINUTES)
@given(parts=accounts, rule=rule)
def test_a_window_longer_than_the_run_is_never_a_verdict(parts: list[Account], rule: AlertRule) -> None:
    seen = alerts(ledger(parts, (rule,)))
    covered = max(int(one.at_ns[-1]) for one in parts)
    for alert in seen.alerts:
        if covered < 0.99 * rule.short_ns:
            assert (alert.observable, alert.fired) == ("no", None)
        if covered < 0.99 * rule.long_ns:
            assert alert.fired is not False
        if alert.fired:
            assert alert.first_fired_at_ns is not None
            assert alert.resolved_at_ns is None or alert.resolved_at_ns > alert.first_fired_at_ns
    for window in seen.windows:
        assert (window.max_burn is None) == (covered < 0.99 * window.window_ns or covered == 0)


@example(second_by_second([*range(60)], 60), TWO_MINUTES, [0.0] * 300)
@example(second_by_second([*range(20, 26)], 240), TWO_MINUTES, [1.0] * 300)
@example(second_by_second([], 60), TWO_MINUTES, [1.0] * 300)
@given(part=account((0.0, 0.0, 1.0)), rule=rule, history=st.lists(st.sampled_from([0.0, 1.0]), max_size=300))
def test_what_is_said_of_a_cut_window_is_true_of_every_past(
    part: Account, rule: AlertRule, history: list[float]
) -> None:
    """A past of entries at the run's rate at most, good or bad: what fired fires, and what was silent is."""
    assume(part.at_ns[-1] > 0)
    rule = replace(rule, after_ns=0)
    said = alerts(ledger([part], (rule,))).alerts[0]
    every = int(part.at_ns[-1] * 1.0 / len(part.at_ns)) + 1  # at most as busy as the run
    past = -np.arange(len(history), 0, -1, dtype=np.int64) * every
    both = Account(np.concatenate([past, part.at_ns]), np.concatenate([history, part.bad]), part.allowed, part.weight)
    tally = tallies(ledger([both]))
    times = np.unique(part.at_ns)
    cross = np.ones(len(times), np.bool_)
    for window in (rule.long_ns, rule.short_ns):
        burn = burn_between(tally, times - window, times)
        cross &= burn > rule.factor * (1 + 1e-9) if rule.operator == ">" else burn >= rule.factor * (1 - 1e-9)
    if said.fired:
        assert cross[times == said.first_fired_at_ns].all()
    if (said.fired is False or said.held_back) and times[-1] >= rule.long_ns:
        assert not cross[times >= rule.short_ns].any()
    if said.held_back and times[-1] >= rule.short_ns:
        assert not cross[times >= rule.short_ns].any()


@given(parts=accounts, data=st.data())
def test_the_order_of_accounts_does_not_matter(parts: list[Account], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(parts))
    one = budget(Ledger("x", "x", Fraction(9, 10), PERIOD, "request", tuple(parts)), span(parts))
    other = budget(Ledger("x", "x", Fraction(9, 10), PERIOD, "request", tuple(mixed)), span(parts))
    assert one.burn == pytest.approx(other.burn)
    assert one.burn_interval == pytest.approx(other.burn_interval)
    assert one.spent_by_events == other.spent_by_events


@given(part=account(), cuts=st.lists(st.integers(0, 100), min_size=1, max_size=6))
def test_the_burn_of_windows_put_together_is_the_mean_by_entries(part: Account, cuts: list[int]) -> None:
    edges = np.unique(np.array([-1, *(cut * S for cut in cuts), span([part])], np.int64))
    tally = tallies(ledger([part]))
    burn = burn_between(tally, edges[:-1], edges[1:])
    _, n = tally[0].inside(edges[:-1], edges[1:])
    whole = burn_between(tally, edges[:1], edges[-1:])[0]
    assert np.nansum(burn * n) / n.sum() == pytest.approx(whole)
    sums = [part.between(low, high) for low, high in pairwise(edges.tolist())]
    assert [count for _, count in sums] == n.tolist()


@given(parts=accounts)
def test_the_interval_holds_the_burn_rate(parts: list[Account]) -> None:
    found = budget(ledger(parts), span(parts))
    assert found.burn is not None
    assert found.burn_interval is not None
    assert found.burn_interval[0] <= found.burn * (1 + 1e-9)
    assert found.burn <= found.burn_interval[1] * (1 + 1e-9)


@given(burn=st.floats(0.001, 1e6), period=st.integers(S, 90 * 86_400 * S))
def test_a_constant_burn_spends_all_of_the_budget_in_the_period_over_the_burn(burn: float, period: int) -> None:
    lasts = exhausted_in_ns(burn, period)
    assert lasts is not None
    assert lasts == pytest.approx(period / burn, rel=1e-12, abs=1)
    assert spent_by_time(burn, lasts, period) == pytest.approx(1, abs=burn / period + 1e-12)


@given(rule=rule, burn=st.floats(0.01, 1e5))
def test_a_faster_burn_is_detected_no_later(rule: AlertRule, burn: float) -> None:
    slow, fast = detection_ns(rule, burn), detection_ns(rule, burn * 1.5)
    assert slow is None or (fast is not None and fast <= slow <= rule.long_ns + rule.after_ns)


def with_status(some: Records, row: int) -> Records:
    status = some.columns["status"].copy()
    status[row] = Status.PROTOCOL
    return Records({**some.columns, "status": status}, some.chunk_ns, some.chunk_offsets, some.errors, some.timings)


@given(
    rows=rows,
    at=st.integers(0, 11),
    text=st.sampled_from(["p90(latency) <= 50ms", "ratio(error) <= 10%", "ratio(good) >= 90%", "p90(itl) <= 5ms"]),
)
def test_failing_a_request_never_lowers_the_burn(rows: list[dict[str, object]], at: int, text: str) -> None:
    some = build(rows)
    assume(len(some))
    found = [ledger_of(parse(text), one) for one in (some, with_status(some, at % len(some)))]
    burns = [budget(one, PERIOD).burn for one in found if one is not None]
    assume(None not in burns)
    assert burns[1] >= burns[0] - 1e-12  # type: ignore[operator]
