"""Comparing arms: who is worse, by how much, and when nobody can say; within one pair of runs, and on Pareto fronts.
The table of the gate's level is in docs/evidence/statistics.md.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from made_arms import arm, lone
from scipy.signal import lfilter

from plimsoll.slo.comparison.arms import PROFILE_Q, Arm, OneRun, Within, of_percentiles, of_shares, sample
from plimsoll.slo.comparison.compare import Comparison, compare, false_alarm_rate
from plimsoll.slo.comparison.quantity import Quantity, QuantityError, every_usual, parse, parse_all, usual
from plimsoll.slo.comparison.tiers import Overlap, Point, front, interactivity, rank
from plimsoll.slo.objectives.objective import parse as parse_objective
from plimsoll.slo.records.records import Status, from_columns
from plimsoll.slo.statistics import share
from tests.bench.gate_power import Cell, at_the_tolerance, outcomes

MS = 1_000_000.0
INF = float("inf")
NAN = float("nan")
BASE = [100 * MS, 101 * MS, 99 * MS, 100.5 * MS, 99.5 * MS]


def scaled(by: float) -> list[float]:
    return [v * by + i for i, v in enumerate(BASE)]


def one(base: Arm, candidate: Arm, *keys: str, **options: object) -> Comparison:
    return compare(base, [candidate], parse_all(keys or ("p99(ttft)",)), **options)  # type: ignore[arg-type]


# -- quantities ---------------------------------------------------------------------------------------------------


def test_a_quantity_prints_as_it_is_written_and_may_have_its_own_tolerance() -> None:
    for text in ("p99(ttft)", "p99.9(latency)", "mean(itl)", "rate(output_tokens)", "ratio(error)", "p5(output_rate)"):
        assert str(parse(text)) == text
    assert parse("p99(ttft) ±10%").tolerance == parse("p99(ttft) 10%").tolerance == 0.1
    assert (parse("ratio(error)").scale, parse("rate(ok)").scale, parse("rate(ok)").better) == (
        "difference",
        "ratio",
        "higher",
    )


def test_a_quantity_of_some_rows_sees_those_alone() -> None:
    assert str(parse("p99( latency { turn > 1 , class=chat } ) 5%")) == "p99(latency{class=chat,turn>1})"
    with pytest.raises(QuantityError, match=r"p99.latency.class..': class is no condition; write class=VALUE"):
        parse("p99(latency{class})")
    names: list[str | int | None] = ["chat", "bulk"] * 300
    due = np.arange(600) * 1000
    took = np.where(np.arange(600) % 2 == 0, 10 * MS, 90 * MS).astype(np.int64)
    status = np.where(np.arange(600) % 20 == 1, int(Status.HTTP), 0)
    some = from_columns(600, due_ns=due, sent_ns=due, done_ns=due + took, status=status, labels={"class": names})
    of = parse_all(["p50(latency)", "p50(latency{class=chat})", "ratio(error{class=bulk})", "rate(ok{class=chat})"])
    found = sample(some, of, within=True)
    assert {name: (one.value, one.n) for name, one in found.readings.items() if not name.startswith("rate")} == {
        "p50(latency)": (10 * MS, 600),
        "p50(latency{class=chat})": (10 * MS, 300),
        "ratio(error{class=bulk})": (0.1, 300),
    }
    assert [*found.profiles] == ["latency"]


def test_all_bad_quantities_are_named_at_once_with_what_to_write() -> None:
    with pytest.raises(QuantityError) as caught:
        parse_all(["p99(speed)", "p0(ttft)", "ratio(slow)", "ttft", "p50(ttft)", "p50(ttft)", "p99(ttft) 100%"])
    assert len(caught.value.errors) == 6
    assert all(any(word in error for word in ("Write", "choose", "is of", "Give")) for error in caught.value.errors)


def test_the_usual_quantities_can_be_decided_by_five_runs() -> None:
    kinds = [usual(first.__eq__) for first in ("p50(first_partial)", "p50(first_audio_perceived)", "p50(ttft)", "")]
    assert len(set(kinds)) == 4
    for quantities in kinds:
        base = arm("b", dict.fromkeys(map(str, quantities), [0.1] * 5))
        assert all(not e.runs_needed for e in compare(base, [base], quantities).candidates[0].effects)
    assert {quantity for quantities in kinds for quantity in quantities} == set(every_usual())


def test_runs_of_live_speech_are_not_compared_by_the_time_that_somebody_spoke() -> None:
    base = arm("b", {str(q): BASE for q in every_usual()})
    compared = {str(e.quantity) for e in compare(base, [base]).candidates[0].effects}
    assert {"p99(first_partial)", "p99(finalization)", "mean(wer)"} <= compared
    assert not any("latency" in name for name in compared)


# -- outcomes -----------------------------------------------------------------------------------------------------


def test_a_clear_slowdown_beyond_the_tolerance_is_a_regression() -> None:
    seen = one(arm("main", {"p99(ttft)": BASE}), arm("pr", {"p99(ttft)": scaled(1.2)}))
    effect = seen.candidates[0].effects[0]
    assert (seen.outcome, seen.exit_code, effect.method) == ("REGRESSION", 1, "mann-whitney")
    assert effect.effect == pytest.approx(1.2, rel=1e-6)
    assert 1.15 < effect.interval[0] < 1.2 < effect.interval[1] < 1.25
    assert effect.p == pytest.approx(2 / 252)
    assert "beyond the tolerance of 5 %" in effect.why
    assert seen.candidates[0].reasons[0].startswith("p99(ttft): 100 ms in the base, 120 ms in the candidate")


def test_a_significant_change_within_the_tolerance_is_no_regression() -> None:
    seen = one(arm("main", {"p99(ttft)": BASE}), arm("pr", {"p99(ttft)": scaled(1.03)}))
    effect = seen.candidates[0].effects[0]
    assert effect.adjusted_p < 0.05
    assert (seen.outcome, seen.exit_code) == ("INDISTINGUISHABLE", 0)
    assert "3 % more, and within the tolerance of 5 %" in effect.why
    assert one(arm("a", {"p99(ttft)": BASE}), arm("b", {"p99(ttft)": scaled(1.03)}), tolerance=0.0).exit_code == 1


def test_a_rate_regresses_downwards() -> None:
    base, low = arm("a", {"rate(ok)": BASE}), arm("b", {"rate(ok)": scaled(0.9)})
    assert one(base, low, "rate(ok)").outcome == "REGRESSION"
    assert one(low, base, "rate(ok)").outcome == "IMPROVEMENT"
    effect = one(base, low, "rate(ok)").candidates[0].effects[0]
    assert effect.effect == pytest.approx(0.9)
    assert 0.87 < effect.interval[0] < effect.interval[1] < 0.93


def test_shares_are_compared_by_points_not_by_ratio() -> None:
    base = arm("a", {"ratio(error)": [0.0, 0, 0, 0, 0]})
    few = arm("b", {"ratio(error)": [0.001, 0.002, 0.001, 0.002, 0.001]})
    many = arm("c", {"ratio(error)": [0.03, 0.04, 0.03, 0.05, 0.03]})
    assert one(base, few, "ratio(error)").outcome == "INDISTINGUISHABLE"
    assert one(base, few, "ratio(error) 0%").outcome == "REGRESSION"
    seen = one(base, many, "ratio(error)").candidates[0].effects[0]
    assert (seen.outcome, seen.effect) == ("REGRESSION", 0.03)
    assert seen.interval == (0.03, 0.05)
    assert "points more" in seen.why


@pytest.mark.parametrize(("runs", "keys", "needed"), [(3, 1, 4), (4, 2, 5), (4, 6, 5), (5, 7, 6), (1, 1, 4)])
def test_too_few_runs_are_inconclusive_and_say_how_many_are_needed(runs: int, keys: int, needed: int) -> None:
    names = ["p50(ttft)", "p90(ttft)", "p95(ttft)", "p99(ttft)", "p50(tpot)", "p90(tpot)", "p99(tpot)"][:keys]
    base = arm("a", dict.fromkeys(names, BASE[:runs]))
    slow = arm("b", {name: scaled(3)[:runs] for name in names})
    seen = one(base, slow, *names)
    assert (seen.outcome, seen.exit_code) == ("INCONCLUSIVE", 3)
    assert {e.runs_needed for e in seen.candidates[0].effects} == {needed}
    assert f"at least {needed} of each" in seen.candidates[0].reasons[0]


def test_failures_that_reach_the_value_are_infinite_and_never_pass() -> None:
    base = arm("a", {"p99(ttft)": BASE})
    assert one(base, arm("b", {"p99(ttft)": [INF] * 5})).outcome == "REGRESSION"
    some = one(base, arm("b", {"p99(ttft)": [*BASE[:3], INF, INF]})).candidates[0].effects[0]
    assert (some.outcome, some.interval[1]) == ("INCONCLUSIVE", INF)
    both = one(arm("a", {"p99(ttft)": [INF] * 5}), arm("b", {"p99(ttft)": [INF] * 5})).candidates[0].effects[0]
    assert both.outcome == "INCONCLUSIVE"
    assert np.isnan(both.effect)
    assert both.interval == (0.0, INF)


def test_a_quantity_that_one_side_lacks_is_not_a_pass() -> None:
    base, none = arm("a", {"p99(ttft)": BASE}), arm("b", {"p99(ttft)": [NAN] * 5})
    assert one(base, none).outcome == "INCONCLUSIVE"
    assert "the candidate has no value" in one(base, none).candidates[0].reasons[0]
    assert "the base has no value" in one(none, base).candidates[0].reasons[0]
    failing = Arm("b", tuple(dataclasses.replace(run, failed=10) for run in none.runs))
    assert one(base, failing).outcome == "REGRESSION"


def test_nothing_to_compare_is_not_a_pass() -> None:
    nothing = Arm("b", ())
    assert compare(nothing, [nothing]).outcome == "INCONCLUSIVE"
    assert compare(arm("a", {"p99(ttft)": BASE}), []).outcome == "INCONCLUSIVE"
    assert one(arm("a", {"p99(ttft)": BASE}), nothing).outcome == "INCONCLUSIVE"


def test_an_invalid_run_spoils_the_comparison_and_an_overloaded_candidate_stays_a_regression() -> None:
    base, slow = arm("a", {"p99(ttft)": BASE}), arm("b", {"p99(ttft)": scaled(2)})

    def broken(old: Arm, **change: object) -> Arm:
        return Arm(old.name, (dataclasses.replace(old.runs[0], **change), *old.runs[1:]))  # type: ignore[arg-type]

    seen = one(base, broken(slow, reasons=("late by 20 ms",)))
    assert (seen.outcome, seen.exit_code, seen.candidates[0].reasons) == (
        "INVALID",
        4,
        ("run b0 of b is invalid: late by 20 ms",),
    )
    assert one(base, broken(slow, unstable="the backlog grew")).outcome == "REGRESSION"
    assert one(base, broken(base, unstable="the backlog grew")).outcome == "INVALID"
    assert one(broken(base, unstable="the backlog grew"), slow).outcome == "INVALID"


def test_proof_wants_no_difference_shown_too() -> None:
    noisy = [80 * MS, 120 * MS, 100 * MS, 90 * MS, 110 * MS]
    base, same = arm("a", {"p99(ttft)": noisy}), arm("b", {"p99(ttft)": noisy[::-1]})
    assert one(base, same).outcome == "INDISTINGUISHABLE"
    assert "% more is possible" in one(base, same).candidates[0].effects[0].why
    assert one(base, same, proof=True).exit_code == 3
    assert one(arm("a", {"p99(ttft)": BASE}), arm("b", {"p99(ttft)": scaled(1.0)}), proof=True).exit_code == 0


def test_proof_is_of_each_quantity_by_itself_and_says_so() -> None:
    keys = ["p50(ttft)", "p90(ttft)", "p95(ttft)", "p99(ttft)", "p50(tpot)", "p99(tpot)"]
    steps = [v * MS for v in (100.0, 101, 102, 103, 104)]
    base, same = (arm(n, dict.fromkeys(keys, steps)) for n in "ab")
    seen = one(base, same, *keys, tolerance=0.035, proof=True)
    effect = seen.candidates[0].effects[0]
    assert (seen.outcome, effect.interval[1]) == (
        "INDISTINGUISHABLE",
        pytest.approx(1.04),
    )  # all together, that is not shown
    assert effect.finding.endswith("by itself within the tolerance of 3.5 %: 2.97 % more at most")
    assert one(base, same, *keys, tolerance=0.029, proof=True).outcome == "INCONCLUSIVE"


def test_what_the_correction_takes_away_is_not_shown_either() -> None:
    keys = ["p50(ttft)", "p90(ttft)", "p95(ttft)", "p99(ttft)", "p50(tpot)", "p99(tpot)"]
    some = [20.0, 25, 30, 35, 90]
    better = dict.fromkeys(keys, BASE) | {"p50(ttft)": [v * MS for v in some]}
    base = arm("a", dict.fromkeys(keys, BASE) | {"p50(ttft)": [v * MS for v in (80.0, 95, 100, 105, 120)]})
    alone, together = (one(base, arm("b", better), *asked).candidates[0].effects[0] for asked in (keys[:1], keys))
    assert (alone.outcome, together.outcome) == ("IMPROVEMENT", "INDISTINGUISHABLE")
    assert alone.interval[1] < 0.95 <= together.interval[1]
    assert "95 % interval over all 6 together" in together.why
    assert "together" not in alone.why


def test_paired_runs_cancel_the_drift_they_share_once_there_are_enough_pairs() -> None:
    drift = np.exp(np.linspace(0, 1, 8)) * 100 * MS
    values = {"p99(ttft)": drift.tolist()}, {"p99(ttft)": (drift * np.linspace(1.19, 1.21, 8)).tolist()}
    apart = one(arm("a", values[0]), arm("b", values[1])).candidates[0]
    together = one(arm("a", values[0], True), arm("b", values[1], True)).candidates[0]
    assert (apart.paired, apart.outcome, apart.effects[0].method) == (False, "INDISTINGUISHABLE", "mann-whitney")
    assert (together.paired, together.outcome, together.effects[0].method) == (True, "REGRESSION", "signed-rank")
    assert together.effects[0].effect == pytest.approx(1.2, rel=1e-3)
    few = one(*(arm(n, {"p99(ttft)": v["p99(ttft)"][:5]}, True) for n, v in zip("ab", values, strict=True)))
    assert few.candidates[0].effects[0].method == "mann-whitney"  # 5 pairs can't reach p = 0.05


def test_a_regression_of_one_quantity_is_not_excused_by_losing_an_improvement_of_another() -> None:
    base = arm("a", {"p99(ttft)": BASE, "p99(tpot)": BASE})
    both = arm("b", {"p99(ttft)": scaled(1.2), "p99(tpot)": scaled(0.8)})
    only = arm("b", {"p99(ttft)": scaled(1.2), "p99(tpot)": scaled(1.0)})
    outcomes = [one(base, c, "p99(ttft)", "p99(tpot)").candidates[0].effects[0] for c in (both, only)]
    assert {e.outcome for e in outcomes} == {"REGRESSION"}
    assert outcomes[0].adjusted_p == outcomes[1].adjusted_p


def test_the_usual_quantities_are_taken_by_what_was_measured_and_the_rest_is_no_reason_to_stop() -> None:
    whole = arm("a", {"p50(latency)": BASE, "p99(latency)": BASE, "rate(ok)": BASE, "ratio(error)": [0.0] * 5})
    seen = compare(whole, [whole])
    assert [str(e.quantity) for e in seen.candidates[0].effects] == [str(q) for q in usual("".__eq__)]
    assert seen.outcome == "INDISTINGUISHABLE"


def test_different_schedules_and_thin_tails_are_warned_of() -> None:
    a, b = arm("a", {"p99(ttft)": BASE}, n=200), arm("b", {"p99(ttft)": BASE}, n=200)
    a = Arm("a", tuple(dataclasses.replace(run, plan="x") for run in a.runs))
    b = Arm("b", tuple(dataclasses.replace(run, plan="y") for run in b.runs))
    warnings = one(a, b).warnings
    assert any("same schedules" in text for text in warnings)
    assert any("fewer than 10 values" in text for text in warnings)


# -- one run each -------------------------------------------------------------------------------------------------


def test_one_run_each_is_inconclusive_and_shows_what_these_two_runs_say() -> None:
    rng = np.random.default_rng(1)
    base, slow = (lone(n, "p99(ttft)", rng.exponential(size=10_000) * by) for n, by in (("a", MS), ("b", 1.5 * MS)))
    seen = one(base, slow)
    effect = seen.candidates[0].effects[0]
    assert seen.outcome == "INCONCLUSIVE"
    assert "one run says nothing about how runs differ" in effect.why
    assert effect.one_run is not None
    assert 1.2 < effect.one_run.interval[0] < 1.5 < effect.one_run.interval[1] < 1.9
    assert (effect.one_run.base_over, effect.one_run.base_n) == (100, 10_000)
    assert effect.one_run.p < 1e-6
    alone = one(base, slow, single_run=True)
    assert (alone.outcome, alone.candidates[0].effects[0].method) == ("REGRESSION", "fisher")
    assert "within this pair of runs" in alone.candidates[0].reasons[0]
    assert one(slow, base, single_run=True).outcome == "IMPROVEMENT"
    assert one(base, lone("c", "p99(ttft)", rng.exponential(size=10_000) * MS), single_run=True).exit_code == 0


def test_single_run_judges_shares_by_fishers_test_and_not_what_has_no_test() -> None:
    ok, bad = (
        from_columns(1000, due_ns=0, sent_ns=0, done_ns=5, status=[Status.OK] * (1000 - k) + [Status.HTTP] * k)
        for k in (2, 60)
    )
    quantities = parse_all(["ratio(error)", "rate(ok)"])
    a, b = (Arm(n, (sample(r, quantities, within=True),)) for n, r in (("a", ok), ("b", bad)))
    share, rate = compare(a, [b], quantities, single_run=True).candidates[0].effects
    assert (share.outcome, rate.outcome) == ("REGRESSION", "INCONCLUSIVE")
    assert share.one_run is not None
    assert (share.one_run.base_over, share.one_run.candidate_over) == (2, 60)
    assert share.one_run.interval[0] < 0.058 < share.one_run.interval[1]


# -- samples of records -------------------------------------------------------------------------------------------


def test_a_sample_holds_one_value_per_quantity_with_failures_in_it() -> None:
    due = np.arange(100) * 1_000_000
    status = [Status.OK] * 97 + [Status.TIMEOUT] * 3
    records = from_columns(
        100, due_ns=due, sent_ns=due, first_token_ns=due + 7, done_ns=due + 10, n_out=4, status=status
    )
    got = sample(
        records,
        parse_all(["p50(ttft)", "p99(ttft)", "mean(latency)", "ratio(error)", "ratio(good)", "rate(ok)"]),
        objectives=[parse_objective("ttft <= 1us")],
        run="r1",
        pair=3,
        plan="f",
    )
    assert got.readings["p50(ttft)"].value == 7
    assert got.readings["p99(ttft)"].value == got.readings["mean(latency)"].value == INF
    assert got.readings["p99(ttft)"].failed == 3
    assert got.readings["ratio(error)"].value == 0.03
    assert got.readings["ratio(good)"].value == 0.97
    assert got.readings["rate(ok)"].value == pytest.approx(97 * 1e9 / (99_000_010))
    assert (got.run, got.pair, got.plan, got.failed, got.valid) == ("r1", 3, "f", 3, True)
    assert len(got.profiles["ttft"]) == len(PROFILE_Q)
    assert got.profiles["ttft"][PROFILE_Q.index(0.5)] == 7
    assert got.profiles["ttft"][PROFILE_Q.index(0.99)] == INF
    assert np.isnan(got.profiles["ttft"][-1])  # 100 values have no p99.9999
    assert got.readings["p99(ttft)"].within is None


def test_a_sample_of_nothing_has_no_values() -> None:
    got = sample(from_columns(0), every_usual())
    assert all(np.isnan(reading.value) and reading.n == 0 for reading in got.readings.values())


def test_bad_tolerances_and_confidences_are_refused() -> None:
    base = arm("a", {"p99(ttft)": BASE})
    for options in ({"tolerance": 1.0}, {"tolerance": -0.1}, {"share_tolerance": 2.0}, {"confidence": 1.0}):
        with pytest.raises(ValueError, match="strictly between"):
            one(base, base, **options)


# -- A/A and bake-off ---------------------------------------------------------------------------------------------


def test_runs_that_are_alike_raise_no_more_alarms_than_the_design_allows() -> None:
    rng = np.random.default_rng(8)
    alike = arm("a", {"p99(ttft)": (100 * MS * np.exp(rng.normal(0, 0.05, 10))).tolist()})
    seen = false_alarm_rate(alike, parse_all(["p99(ttft)"]), tolerance=0.0)
    assert (seen.runs, seen.per_arm, seen.splits, seen.every) == (10, 5, 252, True)
    assert seen.rate <= seen.expected == 0.025
    assert seen.interval[0] <= seen.rate <= seen.interval[1]
    drawn = false_alarm_rate(alike, parse_all(["p99(ttft)"]), tolerance=0.0, most=50)
    assert (drawn.splits, drawn.every) == (50, False)


def test_drift_shows_in_order_and_not_in_turn() -> None:
    drifting = arm("a", {"p99(ttft)": [100 * MS * 1.05**i for i in range(10)]})
    seen = false_alarm_rate(drifting, parse_all(["p99(ttft)"]))
    assert (seen.in_order, seen.in_turn) == ("REGRESSION", "INDISTINGUISHABLE")
    assert seen.rate <= 0.025


def test_one_run_has_no_false_alarm_rate() -> None:
    seen = false_alarm_rate(arm("a", {"p99(ttft)": BASE[:1]}), parse_all(["p99(ttft)"]))
    assert np.isnan(seen.rate)
    assert seen.interval == (0.0, 1.0)


def test_a_ranking_puts_those_it_cannot_tell_apart_in_one_tier() -> None:
    q = parse("p99(ttft)")
    arms = [arm(n, {"p99(ttft)": [v * by for v in BASE]}) for n, by in (("slow", 2.0), ("a", 1.0), ("b", 1.002))]
    seen = rank(arms, q)
    assert seen.tiers == (("a", "b"), ("slow",))
    assert [(p.tier, p.last) for p in seen.places] == [(1, 1), (1, 1), (2, 2)]
    assert {(p.first, p.second): p.apart for p in seen.pairings} == {
        ("slow", "a"): True,
        ("slow", "b"): True,
        ("a", "b"): False,
    }
    assert rank([*arms[:2]], q).tiers == (("a",), ("slow",))
    assert rank(arms, q, tolerance=0.999).tiers == (("a", "b", "slow"),)
    rates = [arm(n, {"rate(ok)": [v * by for v in BASE]}) for n, by in (("few", 1.0), ("many", 2.0))]
    assert rank(rates, parse("rate(ok)")).tiers == (("many",), ("few",))


def test_a_ranking_by_too_few_runs_separates_nobody_and_says_how_many_would_do() -> None:
    arms = [arm(n, {"p99(ttft)": [v * by for v in BASE[:3]]}) for n, by in (("a", 1.0), ("b", 2.0), ("c", 3.0))]
    seen = rank(arms, parse("p99(ttft)"))
    assert seen.tiers == (("a", "b", "c"),)
    assert seen.runs_needed == 5


def test_arms_between_tiers_that_overlap_are_named() -> None:
    q = parse("p99(ttft)")
    steps = [100.0, 101, 102, 103, 104]
    arms = [arm(n, {"p99(ttft)": [(s + by) * MS for s in steps]}) for n, by in (("a", 0), ("b", 2.5), ("c", 5.0))]
    seen = rank(arms, q)
    assert seen.tiers == (("a", "b"), ("c",))
    assert [(p.tier, p.last) for p in seen.places] == [(1, 1), (1, 2), (2, 2)]
    assert seen.overlaps == (Overlap("b", "c", "a"),)


def test_an_arm_of_wide_spread_that_nobody_is_shown_to_beat_is_not_put_below_anybody() -> None:
    wild = [90.0, 140, 60, 180, 99]
    steps = [100.0, 101, 102, 103, 104]
    arms = [
        arm(n, {"p99(ttft)": [v * MS for v in vs]})
        for n, vs in (("wild", wild), ("fast", [s - 10 for s in steps]), ("slow", steps))
    ]
    seen = rank(arms, parse("p99(ttft)"))
    assert [(p.name, p.tier, p.last) for p in seen.places] == [("fast", 1, 1), ("wild", 1, 2), ("slow", 2, 2)]
    assert seen.overlaps == (Overlap("wild", "slow", "fast"),)


def test_arms_in_a_circle_share_a_tier_and_are_named() -> None:
    # Four dice of Efron's, each better than the next two times in three, and the last better than the first.
    dice = [(0, 0, 4, 4, 4, 4), (3, 3, 3, 3, 3, 3), (2, 2, 2, 2, 6, 6), (1, 1, 1, 5, 5, 5)]
    rng = np.random.default_rng(1)
    arms = [
        arm(f"d{i}", {"rate(ok)": (np.tile(die, 20) + 1 + rng.uniform(0, 0.01, 120)).tolist()})
        for i, die in enumerate(dice)
    ]
    seen = rank(arms, parse("rate(ok)"))
    assert len(seen.tiers) == 1
    assert set(seen.circles) >= {("d0", "d1"), ("d1", "d2"), ("d2", "d3"), ("d0", "d3")}


def test_an_arm_with_an_invalid_run_or_no_data_has_no_place() -> None:
    q = parse("p99(ttft)")
    good, none = arm("a", {"p99(ttft)": BASE}), arm("n", {"p99(ttft)": [NAN] * 5})
    bad = arm("bad", {"p99(ttft)": BASE})
    bad = Arm("bad", (dataclasses.replace(bad.runs[0], reasons=("late",)), *bad.runs[1:]))
    seen = rank([good, none, bad], q)
    assert [p.name for p in seen.places] == ["a"]
    assert {name for name, _ in seen.excluded} == {"n", "bad"}
    with pytest.raises(ValueError, match="one name"):
        rank([good, good], q)


def test_a_quantity_is_a_value() -> None:
    assert isinstance(parse("p99(ttft)"), Quantity)
    assert parse("p99(ttft)") == parse(" p99( ttft ) ")


def test_correlated_requests_of_the_base_weigh_less_and_those_of_the_candidate_do_not_excuse_it() -> None:
    rng = np.random.default_rng(6)
    plain = [lone(n, "p99(ttft)", rng.exponential(size=10_000) * by) for n, by in (("a", MS), ("b", 1.12 * MS))]

    def weighed(old: Arm, by: float) -> Arm:
        reading = old.runs[0].readings["p99(ttft)"]
        assert reading.within is not None
        within = dataclasses.replace(reading.within, design_effect=by)
        run = dataclasses.replace(old.runs[0], readings={"p99(ttft)": dataclasses.replace(reading, within=within)})
        return Arm(old.name, (run,))

    def p(base: Arm, candidate: Arm) -> float:
        found = one(base, candidate, single_run=True).candidates[0].effects[0].one_run
        assert found is not None
        return found.p

    assert p(weighed(plain[0], 20.0), plain[1]) > p(*plain)
    assert p(plain[0], weighed(plain[1], 20.0)) == p(*plain)


# -- the gate's level -----------------------------------------------------------------------------------------------

REPS = 400
#: 5 % and two standard errors.
MOST = REPS * 0.05 + 2 * (REPS * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(
    "cell",
    [
        Cell((5, 5), 0.05),
        Cell((5, 5), 0.0, (0.04, 0.12)),
        Cell((10, 10), 0.1, (0.12, 0.04)),
        Cell((8, 8), 0.05, paired=True),
        Cell((5, 5), 0.05, together=0.7),
        Cell((20, 5), 0.0, (0.04, 0.12)),
    ],
    ids=str,
)
def test_six_quantities_at_the_tolerance_raise_an_alarm_in_one_comparison_of_twenty_at_most(cell: Cell) -> None:
    found = at_the_tolerance(cell, REPS)
    assert found["REGRESSION"] <= MOST
    assert found["IMPROVEMENT"] <= MOST
    assert not found["INCONCLUSIVE"]


def test_what_is_twice_the_tolerance_is_found_where_runs_are_alike() -> None:
    cell = Cell((8, 8), 0.05, (0.02, 0.02))
    assert outcomes(cell, 0.1, 0.0, 100, 2, only=True)["REGRESSION"] >= 60
    assert outcomes(cell, 0.1, 0.02, 50, 2)["REGRESSION"] == 50


# -- words ----------------------------------------------------------------------------------------------------------

SPREAD = [100.0, 100.1, 100.2, 100.3, 100.4]
RUNS = [1.0, 1.1, 1.2, 1.3, 1.4]


def test_what_is_said_of_infinite_and_missing_values_reads_well() -> None:
    lost = compare(arm("a", {"p99(ttft)": RUNS}), [arm("b", {"p99(ttft)": [INF] * 5})], parse_all(["p99(ttft)"]))
    assert "interval infinite;" in lost.candidates[0].effects[0].why
    nothing = arm("b", {"p99(ttft)": [NAN] * 5})
    for base, said in ((arm("a", {"p99(ttft)": RUNS}), "the candidate has"), (nothing, "both arms have")):
        [effect] = compare(base, [nothing], parse_all(["p99(ttft)"])).candidates[0].effects
        assert effect.why == f"{said} no value of it in some run. Compare what both measured"


def test_a_run_that_was_never_made_is_no_other_schedule() -> None:
    def planned(name: str, plans: str) -> Arm:
        made = arm(name, {"p50(ttft)": [1.0, 1.1, 1.2]})
        return Arm(
            name,
            tuple(dataclasses.replace(run, plan=plan.strip("-")) for run, plan in zip(made.runs, plans, strict=True)),
        )

    quantity = parse_all(["p50(ttft)"])
    for plans, warned in (("pqr", False), ("pq-", False), ("pqx", True), ("pqq", True), ("px-", True)):
        said = compare(planned("a", "pqr"), [planned("b", plans)], quantity).warnings
        assert any("did not run the same schedules" in text for text in said) is warned


def test_one_warning_tells_of_all_candidates_with_thin_tails() -> None:
    def short(name: str) -> Arm:
        return arm(name, {"p99(ttft)": RUNS}, n=50)

    said = compare(short("a"), [short("b"), short("c")], parse_all(["p99(ttft)"])).warnings
    assert [text.split(" values")[0] for text in said] == ["b, c: p99(ttft): fewer than 10"]


def test_a_significant_change_that_is_surely_small_is_said_to_be_within_the_tolerance() -> None:
    slower = arm("b", {"p99(ttft)": [v * 1.02 for v in SPREAD]})
    for tolerance, said in ((0.05, "2 % more, and within the tolerance of 5 %"), (0.0201, "not shown to be beyond")):
        found = compare(arm("a", {"p99(ttft)": SPREAD}), [slower], parse_all(["p99(ttft)"]), tolerance)
        [effect] = found.candidates[0].effects
        assert effect.adjusted_p < 0.05
        assert said in effect.finding


def test_an_invalid_run_is_named_by_where_it_is() -> None:
    base, made = arm("a", {"p99(ttft)": RUNS}), arm("b", {"p99(ttft)": RUNS})
    broken = dataclasses.replace(made.runs[0], directory="runs/002-b", reasons=("generator lag",))
    [result] = compare(base, [Arm("b", (broken, *made.runs[1:]))], parse_all(["p99(ttft)"])).candidates
    assert result.reasons == ("run runs/002-b of b is invalid: generator lag",)


# -- within one pair of runs ----------------------------------------------------------------------------------------

ALPHA = Fraction(1, 40)
P90 = parse("p90(ttft)")
ERRORS = parse("ratio(error)")


def pair(base: np.ndarray, candidate: np.ndarray, effect: float = 1.0, alpha: Fraction = ALPHA) -> OneRun:  # type: ignore[type-arg]
    a, b = np.sort(base), np.sort(candidate)
    value = float(a[math.ceil(0.9 * len(a)) - 1]) if len(a) else math.nan
    return of_percentiles(P90, value, Within(a, effect), Within(b, 1.0), alpha)


def shares(bad: int, of: int, more_bad: int, more_of: int, effect: float = 1.0) -> OneRun:
    nothing = np.empty(0)
    return of_shares(ERRORS, Within(nothing, effect, bad, of), Within(nothing, 1.0, more_bad, more_of), ALPHA)


def design(values: np.ndarray, level: float) -> float:
    n = len(values)
    laid = share.series(values, np.arange(n), share.Course(np.arange(n), n, 0.0))
    return laid.count(values > np.quantile(values, level)).design


def test_independent_requests_weigh_one_each_and_correlated_ones_less() -> None:
    rng = np.random.default_rng(4)
    assert design(rng.random(30_000), 0.99) < 2
    noise = rng.standard_normal(30_000)
    queue = lfilter([np.sqrt(1 - 0.95**2)], [1, -0.95], noise)
    assert design(queue, 0.9) > 5
    assert design(np.arange(2.0), 0.5) == 1.0


def test_the_interval_holds_every_ratio_that_the_test_does_not_reject_and_no_other() -> None:
    rng = np.random.default_rng(2)
    for effect in (1.0, 7.3):
        for _ in range(40):
            base, candidate = rng.exponential(size=300), rng.exponential(size=260) * 1.2
            low, high = pair(base, candidate, effect).interval
            for ratio in (low * 0.999, low * 1.001, high * 0.999, high * 1.001):
                # The base stretched by the ratio is the candidate's equal, as far as the test can tell, or it is not.
                seen = pair(base * ratio, candidate, effect)
                assert (min(seen.p, seen.p_less) <= ALPHA) == (not low <= ratio <= high)


def test_the_interval_covers_the_ratio_as_it_says() -> None:
    rng = np.random.default_rng(9)
    missed = [0, 0]
    for _ in range(1000):
        low, high = pair(rng.exponential(size=500), rng.exponential(size=500) * 1.2).interval
        missed[0] += low > 1.2
        missed[1] += high < 1.2
    assert max(missed) <= 1000 * 0.025 + 2 * (1000 * 0.025) ** 0.5
    assert sum(missed) >= 10


def test_a_share_worse_by_a_point_is_seldom_called_worse_by_more_than_a_point() -> None:
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(1000):
        seen = shares(int(rng.binomial(5000, 0.02)), 5000, int(rng.binomial(5000, 0.03)), 5000)
        found += seen.low > 0.01
    assert 5 <= found <= 1000 * 0.025 + 2 * (1000 * 0.025) ** 0.5  # Fisher's p and a step above a point: 46 %


def test_a_design_effect_widens_every_interval_and_raises_every_p() -> None:
    rng = np.random.default_rng(5)
    base, candidate = rng.exponential(size=2000), rng.exponential(size=2000) * 1.3
    for plain, weighed in (
        (pair(base, candidate), pair(base, candidate, 20.0)),
        (shares(100, 5000, 200, 5000), shares(100, 5000, 200, 5000, 20.0)),
    ):
        assert weighed.low < plain.low < plain.high < weighed.high
        assert weighed.p > plain.p


def test_failures_and_nothing_are_not_made_up() -> None:
    inf, ones = np.full(100, np.inf), np.arange(1.0, 101)
    assert pair(inf, inf).interval == (0.0, np.inf)
    assert pair(ones, inf).interval == (np.inf, np.inf)
    assert pair(np.empty(0), ones).interval == (0.0, np.inf)
    assert pair(ones, np.ones(1)).interval[0] == 0.0
    assert shares(0, 0, 3, 10).interval == (-np.inf, np.inf)


def test_more_of_a_good_share_is_better() -> None:
    good = parse("ratio(good)")
    nothing = np.empty(0)
    seen = of_shares(good, Within(nothing, 1.0, 500, 1000), Within(nothing, 1.0, 100, 1000), ALPHA)
    assert seen.interval == pytest.approx((-seen.high, -seen.low))
    assert 0.3 < seen.interval[0] < 0.4 < seen.interval[1] < 0.5


# -- Pareto fronts --------------------------------------------------------------------------------------------------


def point(name: str, x: float, y: float, runs: int = 5, spread: float = 0.01) -> Point:
    steps = [1 + spread * (i - (runs - 1) / 2) for i in range(runs)]
    return Point(name, tuple(x * s for s in steps), tuple(y * s for s in steps))


def beaten(*points: Point) -> dict[str, str]:
    return {p.name: p.dominated_by for p in front(points)}


def test_a_point_that_is_worse_in_both_ways_is_beaten_by_the_one_furthest_ahead() -> None:
    assert beaten(point("a", 10, 10), point("b", 20, 20), point("c", 30, 30)) == {"a": "c", "b": "c", "c": ""}


def test_a_trade_leaves_both_on_the_front() -> None:
    assert beaten(point("fast", 10, 30), point("wide", 30, 10)) == {"fast": "", "wide": ""}


def test_points_that_are_not_told_apart_stay_on_the_front() -> None:
    assert beaten(point("a", 10, 10), point("b", 10.05, 10.05)) == {"a": "", "b": ""}
    assert beaten(point("a", 10, 10, spread=0.4), point("b", 12, 12, spread=0.4)) == {"a": "", "b": ""}


def test_with_one_run_a_point_it_goes_by_value_and_says_so() -> None:
    found = front([point("a", 10, 10, 1), point("b", 11, 11, 1)])
    assert [(p.dominated_by, p.shown) for p in found] == [("b", False), ("", False)]
    assert all(p.shown for p in front([point("a", 10, 10), point("b", 20, 20)]) if p.dominated_by)


def test_lower_can_be_better_on_either_axis() -> None:
    found = front([point("a", 10, 10), point("b", 20, 20)], x_better="lower", y_better="lower")
    assert [p.dominated_by for p in found] == ["", "a"]


def test_unknown_values_neither_beat_nor_are_beaten() -> None:
    nan = float("nan")
    odd = Point("odd", (nan, nan), (1.0, 1.0))
    assert beaten(odd, point("a", 10, 10), Point("none", (), ())) == {"odd": "", "a": "", "none": ""}


def test_interactivity_is_one_over_tpot_and_failures_have_none() -> None:
    got = interactivity(np.array([20e6, np.inf, 0.0, np.nan]))
    assert got[0] == 50.0
    assert got[1] == 0.0
    assert np.isnan(got[2:]).all()
