"""The search ends whatever the probes say, never contradicts itself, and finds what is there to be found."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.search.probe import Answer, Next, Probe, Settings
from plimsoll.slo.search.search import MOST_CONFIRMATIONS, MOST_TIMES, decide

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
