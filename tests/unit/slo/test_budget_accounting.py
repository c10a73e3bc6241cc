"""Objectives of the short grammar as ledgers: what the entries are, which are bad, and when they were due."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from plimsoll.slo.objectives.budget import tally
from plimsoll.slo.objectives.ledger import PERIOD_NS, Ledger, has_budget, ledger_of
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import Phase, Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.verdict import judge

MS, S = 1_000_000, 1_000_000_000


def some(**more: object) -> Records:
    """Five requests a second apart: 100, 150, 300 ms, a failure, 120 ms."""
    due = np.arange(5) * S
    given = {
        "due_ns": due,
        "sent_ns": due,
        "first_token_ns": [100 * MS, S + 150 * MS, 2 * S + 300 * MS, -1, 4 * S + 120 * MS],
        "done_ns": due + 900 * MS,
        "status": [0, 0, 0, Status.TIMEOUT, 0],
        "n_out": 10,
    }
    return from_columns(5, **(given | more))  # type: ignore[arg-type]


def drawn(text: str, records: Records, *limits: str) -> Ledger:
    found = ledger_of(parse(text), records, limits=[parse(limit) for limit in limits])
    assert found is not None
    return found


def test_a_percentile_allows_the_rest_and_a_failure_is_bad() -> None:
    found = drawn("p99(ttft) <= 200ms", some())
    assert (found.target, found.period_ns, found.entry) == (Fraction(99, 100), PERIOD_NS, "request")
    assert found.name == found.objective == "p99(ttft) <= 200ms"
    (account,) = found.accounts
    assert account.allowed == Fraction(1, 100)
    assert account.bad.tolist() == [0, 0, 1, 1, 0]
    assert account.at_ns.tolist() == [0, S, 2 * S, 3 * S, 4 * S]


def test_an_objective_may_name_its_period() -> None:
    assert drawn("p99(ttft) <= 200ms over 28d", some()).period_ns == 28 * 86_400 * S
    found = ledger_of(parse("p99(ttft) <= 200ms over 28d"), some(), 3600 * S)
    assert found is not None
    assert found.period_ns == 3600 * S


def test_a_percentile_from_below_allows_itself() -> None:
    found = drawn("p5(output_rate) >= 20/s", some())
    assert found.accounts[0].allowed == Fraction(5, 100)
    assert found.target == Fraction(95, 100)


def test_errors_and_good_requests_are_counted_over_all_requests() -> None:
    assert drawn("ratio(error) <= 1%", some()).accounts[0].bad.tolist() == [0, 0, 0, 1, 0]
    assert drawn("ratio(error) <= 1%", some()).target == Fraction(99, 100)
    assert drawn("ratio(good) >= 99.5%", some()).accounts[0].bad.tolist() == [0, 0, 0, 1, 0]
    limited = drawn("ratio(good) >= 99.5%", some(), "ttft <= 130ms")
    assert limited.accounts[0].bad.tolist() == [0, 1, 1, 1, 0]
    assert limited.accounts[0].allowed == Fraction(5, 1000)


@pytest.mark.parametrize("text", ["mean(ttft) <= 200ms", "max(latency) <= 2s", "rate(good) >= 4/s", "ttft <= 200ms"])
def test_a_fact_about_the_run_has_no_budget(text: str) -> None:
    assert not has_budget(parse(text))
    assert ledger_of(parse(text), some()) is None


def test_all_objectives_at_once_share_the_limits_on_requests() -> None:
    asked = [parse(t) for t in ("ratio(good) >= 99%", "mean(ttft) <= 1s", "ttft <= 130ms", "p95(ttft) <= 200ms")]
    limits = [one for one in asked if one.scope == "request"]
    drawn_from = (ledger_of(one, some(), limits=limits, production_per_s=7.0) for one in asked)
    found = [one for one in drawn_from if one is not None]
    assert [one.name for one in found] == ["ratio(good) >= 99%", "p95(ttft) <= 200ms"]
    assert found[0].accounts[0].bad.sum() == 3
    assert {one.production_per_s for one in found} == {7.0}


def test_warm_up_is_not_counted() -> None:
    phase = [Phase.WARMUP, 0, 0, 0, 0]
    assert len(drawn("ratio(error) <= 1%", some(phase=phase)).accounts[0].bad) == 4
    assert len(drawn("p99(ttft) <= 200ms", some(phase=phase)).accounts[0].bad) == 4


def test_entries_stand_in_order_of_due_time_whatever_the_order_of_the_records() -> None:
    mixed = [3, 0, 4, 2, 1]
    one, other = drawn("p99(ttft) <= 200ms", some()), drawn("p99(ttft) <= 200ms", some().select(np.array(mixed)))
    assert one.accounts[0].at_ns.tolist() == other.accounts[0].at_ns.tolist()
    assert one.accounts[0].bad.tolist() == other.accounts[0].bad.tolist()


def gaps() -> Records:
    """Three streams of 3, 1 and 2 gaps, the last one due first."""
    return from_columns(
        3,
        due_ns=[S, 2 * S, 0],
        chunks=[[S, S + 10, S + 60, S + 70], [2 * S, 2 * S + 90], [0, 10, 20]],
        done_ns=[2 * S, 3 * S, S],
    )


def test_gaps_are_counted_at_the_due_time_of_their_request() -> None:
    found = drawn("p90(itl) <= 20ns", gaps())
    assert found.entry == "gap"
    account = found.accounts[0]
    assert account.at_ns.tolist() == [0, S, 2 * S]
    assert account.bad.tolist() == [0, 1, 1]
    assert account.sizes is not None
    assert account.sizes.tolist() == [2, 3, 1]
    assert account.between(-1, S) == (1.0, 5)
    assert (tally(account).n.tolist(), tally(account).bad.tolist()) == ([0, 2, 5, 6], [0, 0, 1, 2])


def test_an_indicator_without_values_gives_an_account_without_entries() -> None:
    found = drawn("p99(ttft) <= 200ms", from_columns(2, due_ns=[0, 1], done_ns=[5, 5], sent_ns=[0, 1]))
    assert len(found.accounts[0].bad) == 0


def test_what_was_never_due_counts_from_the_start() -> None:
    found = drawn("ratio(error) <= 1%", some(due_ns=[0, S, 2 * S, -1, 3 * S]))
    account = found.accounts[0]
    assert account.at_ns.tolist() == [0, 0, S, 2 * S, 3 * S]
    # Two are due at t0, in no order: one of them failed.
    assert (tally(account).n.tolist(), tally(account).bad.tolist()) == ([0, 2, 3, 4, 5], [0, 1, 1, 1, 1])


@pytest.mark.parametrize("text", ["p99(ttft) <= 200ms", "ratio(error) <= 1%", "ratio(good) >= 99%"])
def test_the_budget_counts_what_the_verdict_counts(text: str) -> None:
    records, asked = some(), [parse(text)]
    verdict = judge(records, asked, assess(records, GeneratorFacts(open_loop=True, planned=5), asked)).objectives[0]
    account = drawn(text, records).accounts[0]
    assert (int(account.bad.sum()), len(account.bad)) == (verdict.bad, verdict.n)
