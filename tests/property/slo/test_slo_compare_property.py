"""No candidate gets a better outcome, place or price by being slower or failing more."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from slo_strategies import build, rows

from plimsoll.slo.comparison.arms import Arm, Reading, RunSample, Within, sample
from plimsoll.slo.comparison.compare import RANK, compare
from plimsoll.slo.comparison.quantity import Quantity, parse, parse_all
from plimsoll.slo.comparison.ranks import mann_whitney, signed_rank
from plimsoll.slo.comparison.tiers import million, rank
from plimsoll.slo.objectives.objective import parse as parse_objective
from plimsoll.slo.records.records import Records, Status, concat

MS = 1_000_000
TTFT = parse("p99(ttft)")
QUANTITIES = parse_all(["p99(ttft)", "rate(ok)", "ratio(error)"])
INF = math.inf

values = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 3.0, INF]), st.floats(0.5, 4.0))
shares = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1))


@st.composite
def arms(draw: st.DrawFn) -> tuple[Arm, Arm, Arm]:
    """A base, a candidate, and the candidate with one value made worse."""
    runs = draw(st.integers(4, 9))
    paired = draw(st.booleans())
    which = draw(st.sampled_from(QUANTITIES))
    at = draw(st.integers(0, runs - 1))

    def column(q: Quantity) -> list[float]:
        of = shares if q.scale == "difference" else st.floats(0.1, 9) if q.better == "higher" else values
        return draw(st.lists(of, min_size=runs, max_size=runs))

    base = {str(q): column(q) for q in QUANTITIES}
    far = draw(st.booleans())  # arms that are well apart are decided, and decisions are what must not flip
    fast = {
        key: [v * 3 if far and key == "p99(ttft)" else v for v in column(q)]
        for key, q in zip(base, QUANTITIES, strict=True)
    }
    old = fast[str(which)][at]
    worse = (
        draw(st.floats(0, old))
        if which.better == "higher"
        else draw(
            st.one_of(
                st.floats(old, 1.0 if which.scale == "difference" else max(old, 50.0)),
                st.just(1.0 if which.scale == "difference" else INF),
            )
        )
        if old < (1.0 if which.scale == "difference" else INF)
        else old
    )
    slow = {key: [worse if key == str(which) and i == at else v for i, v in enumerate(vs)] for key, vs in fast.items()}
    return tuple(_arm(name, vs, paired) for name, vs in (("a", base), ("b", fast), ("b", slow)))  # type: ignore[return-value]


def _arm(name: str, columns: dict[str, list[float]], paired: bool) -> Arm:
    runs = len(next(iter(columns.values())))
    return Arm(
        name,
        tuple(
            RunSample(str(i), {key: Reading(vs[i], 100) for key, vs in columns.items()}, i if paired else None)
            for i in range(runs)
        ),
    )


@given(
    made=arms(),
    tolerance=st.sampled_from([0.0, 0.05, 0.5]),
    proof=st.booleans(),
    confidence=st.sampled_from(["0.5", "0.8", "0.95"]),
)
def test_a_worse_value_of_any_run_never_improves_any_outcome(
    made: tuple[Arm, Arm, Arm], tolerance: float, proof: bool, confidence: str
) -> None:
    base, fast, slow = made
    before, after = (
        compare(base, [c], QUANTITIES, tolerance, confidence, proof=proof).candidates[0] for c in (fast, slow)
    )
    assert RANK.index(after.outcome) >= RANK.index(before.outcome)
    for old, new in zip(before.effects, after.effects, strict=True):
        assert RANK.index(new.outcome) >= RANK.index(old.outcome)


@given(
    base=st.lists(values, min_size=1, max_size=7),
    candidate=st.lists(values, min_size=1, max_size=7),
    at=st.integers(0, 6),
    to=values,
)
def test_a_greater_value_never_lowers_a_bound_nor_raises_the_p_of_being_greater(
    base: list[float], candidate: list[float], at: int, to: float
) -> None:
    raised = candidate.copy()
    raised[at % len(raised)] = max(to, raised[at % len(raised)])
    with np.errstate(divide="ignore"):
        x, y, z = (np.log(np.array(v)) for v in (base, candidate, raised))
    tests = [(mann_whitney(x, y, "0.5"), mann_whitney(x, z, "0.5"))]
    if len(base) == len(candidate):
        with np.errstate(invalid="ignore"):
            tests.append((signed_rank(y - x, "0.5"), signed_rank(z - x, "0.5")))
    for old, new in tests:
        assert new.p_up <= old.p_up
        assert new.p_down >= old.p_down
        assert new.low >= old.low
        assert new.high >= old.high


def outcome(some: list[Records], others: list[Records], single_run: bool) -> int:
    quantities = parse_all(["p50(ttft)", "p90(latency)", "mean(e2e)", "ratio(error)", "ratio(good)", "rate(ok)"])
    limits = [parse_objective("latency <= 200ms")]
    base, candidate = (
        Arm(name, tuple(sample(r, quantities, objectives=limits, within=single_run) for r in runs))
        for name, runs in (("a", some), ("b", others))
    )
    return RANK.index(compare(base, [candidate], quantities, confidence="0.8", single_run=single_run).outcome)


def with_column(some: Records, **columns: np.ndarray) -> Records:  # type: ignore[type-arg]
    return Records({**some.columns, **columns}, some.chunk_ns, some.chunk_offsets, some.errors, some.timings)


@given(
    runs=st.lists(rows, min_size=8, max_size=8),
    at=st.integers(0, 11),
    delay=st.integers(1, 900 * MS),
    fail=st.booleans(),
    single=st.booleans(),
)
def test_slowing_or_failing_a_request_of_the_candidate_never_improves_the_comparison(
    runs: list[list[dict[str, object]]], at: int, delay: int, fail: bool, single: bool
) -> None:
    made = [build(some) for some in runs]
    some, others = ([concat(made[:4])], [concat(made[4:])]) if single else (made[:4], made[4:])
    assume(len(others[0]))
    row, first = at % len(others[0]), others[0]
    changed: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    if fail:
        changed["status"] = first.columns["status"].copy()
        changed["status"][row] = Status.PROTOCOL
    else:
        for name in ("first_byte_ns", "first_token_ns", "first_answer_ns", "last_token_ns", "done_ns"):
            changed[name] = first.columns[name].copy()
            if changed[name][row] != -1:
                changed[name][row] += delay
    worse = [with_column(first, **changed), *others[1:]]
    assert outcome(some, worse, single) >= outcome(some, others, single)


@given(ordered=st.lists(st.floats(0.1, 9), min_size=5, max_size=60), at=st.integers(0, 59), to=st.floats(9, 99))
def test_a_slower_request_never_improves_a_comparison_of_single_runs(ordered: list[float], at: int, to: float) -> None:
    quantity = parse_all(["p80(ttft)"])
    half = len(ordered) // 2

    def one(vs: list[float]) -> Arm:
        v = np.sort(np.array(vs))
        value = float(v[math.ceil(0.8 * len(v)) - 1])
        return Arm("x", (RunSample("x", {"p80(ttft)": Reading(value, len(v), 0, Within(v, 1.0))}),))

    fast = ordered[half:]
    slow = fast.copy()
    slow[at % len(slow)] = to
    before, after = (
        compare(one(ordered[:half]), [one(c)], quantity, confidence="0.5", single_run=True).outcome
        for c in (fast, slow)
    )
    assert RANK.index(after) >= RANK.index(before)


@given(price=st.floats(0, 1e4), fast=st.floats(1e-3, 1e9), share=st.floats(0, 1))
def test_less_throughput_never_costs_less(price: float, fast: float, share: float) -> None:
    assert million(price, fast * share) >= million(price, fast) or price == 0


def _of_ttft(name: str, values: list[float], paired: bool) -> Arm:
    return _arm(name, {"p99(ttft)": values}, paired)


@given(
    columns=st.lists(st.lists(st.floats(0.5, 2.0), min_size=6, max_size=6), min_size=2, max_size=6),
    levels=st.lists(st.sampled_from([1.0, 1.5, 2.0, 4.0]), min_size=6, max_size=6),
    wide=st.lists(st.sampled_from([0.01, 0.2, 1.0]), min_size=6, max_size=6),
    confidence=st.sampled_from(["0.2", "0.8", "0.95"]),
    tolerance=st.sampled_from([0.0, 0.05]),
    key=st.sampled_from(["p99(ttft)", "rate(ok)"]),
)
def test_no_tier_contradicts_a_pair_of_arms_on_the_same_page(
    columns: list[list[float]], levels: list[float], wide: list[float], confidence: str, tolerance: float, key: str
) -> None:
    made = [
        _arm(f"a{i}", {key: [level * v**by for v in column]}, False)
        for i, (column, level, by) in enumerate(zip(columns, levels, wide, strict=False))
    ]
    pairs = len(made) * (len(made) - 1) // 2
    page = compare(made[0], made[1:], [parse(key)], tolerance, confidence, share_tolerance=0.0, family=pairs)
    ranking = rank(made, parse(key), confidence, tolerance, family=pairs)
    place = {place.name: place for place in ranking.places}
    outcome = {(pair.first, pair.second): pair.outcome for pair in ranking.pairings}
    assert len(outcome) == pairs
    assert {result.name: result.outcome for result in page.candidates} == {
        second: found for (first, second), found in outcome.items() if first == "a0"
    }
    better = {(a, b) for (a, b), found in outcome.items() if found == "REGRESSION"}
    better |= {(b, a) for (a, b), found in outcome.items() if found == "IMPROVEMENT"}
    circles = {frozenset(pair) for pair in ranking.circles}
    overlaps = {frozenset((overlap.above, overlap.below)) for overlap in ranking.overlaps}
    for a, b in outcome:
        apart = (a, b) in better or (b, a) in better
        same = place[a].tier == place[b].tier
        assert not (same and apart) or frozenset((a, b)) in circles
        assert (not same and not apart) == (frozenset((a, b)) in overlaps)
    for a, b in better:
        assert place[a].tier < place[b].tier or frozenset((a, b)) in circles
        assert place[a].last < place[b].last or frozenset((a, b)) in circles
    for overlap in ranking.overlaps:
        assert place[overlap.above].tier < place[overlap.below].tier
        assert (overlap.because, overlap.below) in better
    assert all(1 <= p.tier <= p.last for p in ranking.places)


@given(made=arms(), tolerance=st.sampled_from([0.0, 0.05, 0.5]), confidence=st.sampled_from(["0.5", "0.8", "0.95"]))
def test_the_interval_shown_and_the_outcome_never_contradict_each_other(
    made: tuple[Arm, Arm, Arm], tolerance: float, confidence: str
) -> None:
    base, candidate, _ = made
    for effect in (
        compare(base, [candidate], QUANTITIES, tolerance, confidence, share_tolerance=tolerance).candidates[0].effects
    ):
        (low, high), lower = effect.interval, effect.quantity.better == "lower"
        ratio = effect.quantity.scale == "ratio"
        none, most, least = (1.0, 1 + tolerance, 1 - tolerance) if ratio else (0.0, tolerance, -tolerance)
        near = 1e-12
        worse = low > most + near if lower else high < least - near
        improved = high < least - near if lower else low > most + near
        assert effect.outcome == "REGRESSION" or not worse
        assert effect.outcome in ("IMPROVEMENT", "INCONCLUSIVE") or not improved
        if effect.outcome in ("REGRESSION", "IMPROVEMENT"):
            up = (effect.outcome == "REGRESSION") == lower
            assert low >= most - near if up else high <= least + near
        if not effect.runs_needed:
            excluded = low > none + near or high < none - near
            assert not excluded or effect.adjusted_p <= 1 - float(confidence) + near


def test_an_arm_that_gets_too_slow_to_be_told_from_a_slow_one_does_not_rise_to_the_best() -> None:
    slow, best = [1.96, 2.008, 1.916, 2.085, 2.03], [0.9733, 1.0032, 0.9641, 0.9689, 0.9639]
    middle = [0.9841, 1.0411, 0.9822, 1.0035, 1.0084]
    tiers = [
        {
            place.name: place.tier
            for place in rank([_of_ttft("slow", slow, True), _of_ttft("best", best, True), arm], TTFT).places
        }
        for arm in (
            _of_ttft("middle", middle, True),
            _of_ttft("middle", [0.9841, 1.1452, 0.9822, 1.0035, 3.3277], True),
        )
    ]
    assert tiers[1]["middle"] >= tiers[0]["middle"]


@given(
    columns=st.lists(st.lists(st.floats(0.9, 1.1), min_size=6, max_size=6), min_size=2, max_size=4),
    levels=st.lists(st.sampled_from([1.0, 1.1, 2.0]), min_size=4, max_size=4),
    which=st.integers(0, 3),
    at=st.integers(0, 5),
    by=st.sampled_from([1.05, 3.0, INF]),
    paired=st.booleans(),
)
def test_no_arm_rises_a_tier_by_getting_slower(
    columns: list[list[float]], levels: list[float], which: int, at: int, by: float, paired: bool
) -> None:
    which %= len(columns)
    made = [[v * level for v in column] for column, level in zip(columns, levels, strict=False)]
    worse = [list(column) for column in made]
    worse[which][at] *= by
    tiers = [
        {p.name: p.tier for p in rank([_of_ttft(f"a{i}", vs, paired) for i, vs in enumerate(arms)], TTFT).places}
        for arms in (made, worse)
    ]
    assert tiers[1][f"a{which}"] >= tiers[0][f"a{which}"]
