"""Searches, curves and fleets: a search ends whatever the probes say and never contradicts itself, a run is past hope
only where the whole run would have said FAIL, and the chosen fleet is the smallest that keeps both rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plimsoll.slo.objectives.goodput import goodput
from plimsoll.slo.objectives.objective import Objective, parse
from plimsoll.slo.objectives.objective_verdict import judge_objective
from plimsoll.slo.objectives.quantified import holm
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.search.curve import Standing, bracket, knee, through
from plimsoll.slo.search.probe import Answer, Next, Probe, Settings, hopeless, hopeless_at, multiples
from plimsoll.slo.search.search import MOST_CONFIRMATIONS, MOST_TIMES, decide
from plimsoll.slo.search.sizing import around, size
from plimsoll.slo.statistics.distance import MULTIPLES

OUTCOMES = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")
Said = tuple[str, int | None]


def made(asked: Next, outcome: str, n_needed: int | None = None) -> Probe:
    """The probe that was asked for, with this outcome."""
    n = round(1000 * asked.length)
    return Probe(
        asked.number,
        asked.purpose,
        asked.load,
        asked.length,
        asked.seed,
        outcome,  # type: ignore[arg-type]
        n=n,
        n_needed=n_needed,
    )


def search(settings: Settings, judge: Callable[[Next], Said], most: int = 10_000) -> tuple[Answer, list[Probe]]:
    """Drive a search to its end."""
    probes: list[Probe] = []
    for _ in range(most):
        step = decide(settings, probes)
        if isinstance(step, Answer):
            return step, probes
        probes.append(made(step, *judge(step)))
    raise AssertionError(f"no answer after {most} probes")


def most_probes(settings: Settings) -> int:
    """No sequence of outcomes leads to more probes than this."""
    looks = 1 + math.ceil(math.log2(settings.longest))
    up = steps_of(settings, (settings.highest or settings.start * MOST_TIMES) / settings.start)
    down = steps_of(settings, settings.start / settings.lowest)
    # Each halving shortens one of two gaps, below and above what is undecided; rounding of loads may cost one more
    # each.
    halvings = math.ceil(math.log2(math.log(settings.growth) / math.log1p(settings.resolution)) + 1)
    loads = 1 + up + down + 2 * max(1, halvings + 2)
    confirmations = 2 * MOST_CONFIRMATIONS if settings.confirm else 0
    return (loads * looks + confirmations) * (1 + settings.repeats)


def steps_of(settings: Settings, factor: float) -> int:
    # One more for the last, shortened one; rounded loads are at most 0.05 % nearer to each other.
    return math.ceil(math.log(factor) / (math.log(settings.growth) - 5e-4)) + 1


@st.composite
def settings_of(draw: st.DrawFn) -> Settings:
    variable = draw(st.sampled_from(("rate", "concurrency")))
    lowest = draw(st.floats(0.01, 100)) if variable == "rate" else float(draw(st.integers(1, 50)))
    start = lowest * draw(st.integers(1, 300))
    highest = draw(st.none() | st.integers(1, 500).map(lambda times: start * times))
    return Settings(
        variable,  # type: ignore[arg-type]
        start,
        lowest,
        highest,
        resolution=draw(st.floats(1e-4, 0.5)),
        longest=draw(st.floats(1, 64)),
        growth=draw(st.floats(1.1, 8)),
        repeats=draw(st.integers(0, 3)),
        confirm=draw(st.booleans()),
        seed=draw(st.integers(0, 2**53 - 1)),
    )


def check(settings: Settings, answer: Answer, probes: list[Probe]) -> None:
    top = math.inf if settings.highest is None else settings.highest
    assert 0 <= answer.low <= answer.high
    assert answer.best is None or settings.lowest <= answer.best == answer.low < answer.high
    assert all(settings.lowest <= probe.load <= top for probe in probes)
    assert all(1 <= probe.length <= settings.longest for probe in probes)
    assert all(0 <= probe.seed < 2**53 for probe in probes)
    assert len({probe.seed for probe in probes}) == len(probes)
    if settings.variable == "concurrency":
        assert all(probe.load == int(probe.load) for probe in probes)
    if answer.best is not None:
        assert any(probe.load == answer.best and probe.outcome == "PASS" for probe in probes)
    if answer.outcome == "FOUND":
        assert answer.best is not None
        assert math.isfinite(answer.high)
    if answer.outcome == "FOUND" and settings.confirm:
        fresh = [p for p in probes if p.number == answer.confirmed_by]
        assert [p.outcome for p in fresh] == ["PASS"]
        assert answer.confidence is not None
        assert answer.confidence <= 0.9


@given(settings=settings_of(), data=st.data())
def test_any_sequence_of_outcomes_ends_in_an_answer_within_the_stated_number_of_probes(
    settings: Settings, data: st.DataObject
) -> None:
    likely = data.draw(st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=8))
    random = data.draw(st.randoms(use_true_random=False))
    needed = data.draw(st.sampled_from((None, 10, 10**4, 10**9)))
    answer, probes = search(settings, lambda _: (random.choice(likely), needed), most_probes(settings) + 1)
    assert len(probes) <= most_probes(settings)
    check(settings, answer, probes)


@given(settings=settings_of(), at=st.floats(0.001, 1e5), sure=st.floats(1.0, 1.3), random=st.randoms())
def test_no_more_probes_than_stated_where_all_near_the_line_is_undecided(
    settings: Settings, at: float, sure: float, random: object
) -> None:
    def judge(asked: Next) -> Said:
        return (
            ("PASS", 0)
            if asked.load * sure <= at
            else ("FAIL", 0)
            if asked.load > at * sure
            else ("INCONCLUSIVE", None)
        )

    answer, probes = search(settings, judge, most_probes(settings) + 1)
    check(settings, answer, probes)
    if answer.outcome == "FOUND":
        assert answer.low <= at <= answer.high


@given(settings=settings_of(), data=st.data())
def test_resuming_after_any_probe_goes_on_as_if_nothing_had_happened(settings: Settings, data: st.DataObject) -> None:
    random = data.draw(st.randoms(use_true_random=False))
    _, probes = search(settings, lambda _: (random.choice(OUTCOMES[:3]), None))
    for done in random.sample(range(len(probes)), min(len(probes), 20)):
        step = decide(settings, probes[:done])
        assert isinstance(step, Next)
        assert (step.number, step.load, step.length, step.seed) == (
            probes[done].number,
            probes[done].load,
            probes[done].length,
            probes[done].seed,
        )
        check(settings, answer, probes[:done]) if (answer := out_of_time(settings, probes[:done])) else None


def out_of_time(settings: Settings, probes: list[Probe]) -> Answer:
    answer = decide(settings, probes, out_of_time=True)
    assert isinstance(answer, Answer)
    assert answer.outcome in ("OPEN", "INCONCLUSIVE")
    assert "time ran out" in answer.reasons[0]
    return answer


@given(at=st.floats(1, 1e4), start=st.floats(1, 1e4), resolution=st.floats(1e-4, 0.3), growth=st.floats(1.2, 5))
def test_without_noise_a_monotone_line_is_found_to_the_resolution(
    at: float, start: float, resolution: float, growth: float
) -> None:
    settings = Settings("rate", start, 0.5, resolution=resolution, growth=growth)
    answer, probes = search(settings, lambda asked: ("PASS", 0) if asked.load <= at else ("FAIL", 0))
    assert answer.outcome == "FOUND"
    assert answer.low <= at < answer.high
    assert answer.high / answer.low - 1 <= resolution * 1.001
    assert answer.confidence == pytest.approx(0.9)
    assert answer.reasons == ()
    check(settings, answer, probes)


@given(at=st.integers(1, 3000), start=st.integers(1, 3000), resolution=st.floats(1e-4, 0.1))
def test_a_concurrency_is_found_to_the_resolution_or_exactly(at: int, start: int, resolution: float) -> None:
    settings = Settings("concurrency", float(start), 1.0, resolution=resolution)
    answer, probes = search(settings, lambda asked: ("PASS", 0) if asked.load <= at else ("FAIL", 0))
    assert answer.low <= at < answer.high
    assert answer.high - answer.low <= max(1, resolution * answer.low * 1.001)
    check(settings, answer, probes)


# -- runs that are past hope ----------------------------------------------------------------------------------------

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


# -- curves ---------------------------------------------------------------------------------------------------------

LOADS = st.lists(st.floats(0.5, 1e5), min_size=2, max_size=12, unique_by=lambda x: round(x, 3))
VALUES = st.floats(1e-3, 1e12)


@st.composite
def points(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    x = sorted(round(value, 3) for value in draw(LOADS))
    return x, [draw(VALUES) for _ in x]


@settings(max_examples=60)
@given(points())
def test_between_two_points_the_curve_never_leaves_their_values(made: tuple[list[float], list[float]]) -> None:
    x, y = made
    curve = through(x, y)
    for (x0, y0), (x1, y1) in pairwise(zip(x, y, strict=True)):
        found = curve.at(x0 + (x1 - x0) * 0.37)
        assert found is not None
        assert min(y0, y1) * (1 - 1e-6) <= found <= max(y0, y1) * (1 + 1e-6)
    assert [curve.at(value) for value in x] == y
    assert curve.at(x[0] * 0.99) is None
    assert curve.at(x[-1] * 1.01) is None


@settings(max_examples=60)
@given(points(), st.floats(0.01, 0.99))
def test_a_crossing_lies_in_its_bracket_and_on_the_limit(made: tuple[list[float], list[float]], share: float) -> None:
    x, y = made
    assume(abs(y[0] - y[-1]) > 1e-6 * y[0])
    limit = y[0] ** (1 - share) * y[-1] ** share
    found = through(x, y).crossing(limit, x[0], x[-1])
    assert found is not None
    assert x[0] <= found <= x[-1]
    assert through(x, y).at(found) == pytest.approx(limit, rel=1e-3)


STANDINGS = st.lists(
    st.builds(
        Standing,
        st.integers(1, 1000).map(float),
        st.sampled_from(["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]),
        st.floats(0, 1),
        st.booleans(),
    ),
    max_size=10,
    unique_by=lambda s: s.x,
)


@settings(max_examples=60)
@given(STANDINGS)
def test_the_bracket_holds_no_pass_and_no_fail_inside(made: list[Standing]) -> None:
    found = bracket(made)
    inside = [
        s.outcome for s in made if (found.low is None or s.x > found.low) and (found.high is None or s.x < found.high)
    ]
    assert "PASS" not in inside
    assert "FAIL" not in inside
    at = knee(made)
    assert at is None or (at.outcome == "PASS" and at.completion >= 0.99)


# -- sizes of a fleet -----------------------------------------------------------------------------------------------

_RATES = st.floats(0.01, 1e6).map(lambda value: round(value, 2)).filter(lambda value: value > 0)
_SHARES = st.integers(1, 100).map(lambda percent: f"{percent}/100")


@given(_RATES, _RATES, _SHARES, _SHARES)
def test_the_fleet_keeps_both_rules_and_one_less_breaks_one(peak: float, each: float, h: str, down: str) -> None:
    sized = size(peak, each, h, down)
    rows = {row.replicas: row for row in around(peak, each, h, down)}
    assert rows[sized.replicas].headroom_kept
    assert rows[sized.replicas].one_down_kept
    if sized.replicas > 1:
        less = rows[sized.replicas - 1]
        assert not (less.headroom_kept and less.one_down_kept)


@given(_RATES, _RATES, _RATES, _SHARES, _SHARES)
def test_a_lower_capacity_never_needs_fewer(peak: float, one: float, other: float, h: str, down: str) -> None:
    low, high = sorted((one, other))
    assert size(peak, low, h, down).replicas >= size(peak, high, h, down).replicas
