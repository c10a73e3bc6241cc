"""What the search does next in each of the cases that matter, and what it says when it is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from plimsoll.slo.search.probe import Answer, Next, Probe, Settings, probe_seed
from plimsoll.slo.search.search import decide

RATE = Settings("rate", 100.0, 1.0)


def made(asked: Next, outcome: str, n: int = 0, needed: int | None = None, reasons: tuple[str, ...] = ()) -> Probe:
    return Probe(
        asked.number,
        asked.purpose,
        asked.load,
        asked.length,
        asked.seed,
        outcome,  # type: ignore[arg-type]
        reasons,
        n,
        needed,
    )


def after(settings: Settings, outcomes: Sequence[str]) -> tuple[Next | Answer, list[Probe]]:
    probes: list[Probe] = []
    for outcome in outcomes:
        asked = decide(settings, probes)
        assert isinstance(asked, Next)
        probes.append(made(asked, outcome))
    return decide(settings, probes), probes


def to_the_end(settings: Settings, line: float, fresh: dict[str, list[str]]) -> tuple[Answer, list[Probe]]:
    """Every probe says what a line would, but the first confirming ones what is told."""
    probes: list[Probe] = []
    while not isinstance(asked := decide(settings, probes), Answer):
        told = fresh.get(asked.purpose, [])
        probes.append(made(asked, told.pop(0) if told else "PASS" if asked.load <= line else "FAIL"))
    return asked, probes


def test_loads_double_while_they_pass_and_the_bracket_is_halved_at_its_geometric_mean() -> None:
    step, probes = after(RATE, ["PASS", "PASS", "FAIL"])
    assert [(p.purpose, p.load) for p in probes] == [("bracket", 100.0), ("bracket", 200.0), ("bracket", 400.0)]
    assert isinstance(step, Next)
    assert (step.purpose, step.load, step.length) == ("bisect", 282.8, 1.0)


def test_loads_halve_while_they_fail_down_to_the_lowest() -> None:
    step, probes = after(Settings("rate", 10.0, 3.0), ["FAIL", "FAIL", "FAIL"])
    assert [p.load for p in probes] == [10.0, 5.0, 3.0]
    assert isinstance(step, Next)
    assert (step.purpose, step.load) == ("ceiling", 3.0)
    answer, _ = after(Settings("rate", 10.0, 3.0), ["FAIL"] * 4)
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.best, answer.interval, answer.confidence) == ("NONE", None, (0.0, 3.0), 0.95)
    assert "not even 3/s" in answer.reasons[0]


def test_an_inconclusive_probe_runs_longer_as_long_as_it_says_it_needs() -> None:
    asked = decide(RATE, [])
    assert isinstance(asked, Next)
    for n, needed, length in ((0, None, 2.0), (1000, 1100, 2.0), (1000, 2600, 3.0), (1000, 10**6, 4.0)):
        step = decide(RATE, [made(asked, "INCONCLUSIVE", n, needed)])
        assert isinstance(step, Next)
        assert (step.purpose, step.load, step.length) == ("longer", 100.0, length)
        assert step.seed != asked.seed


def test_a_load_that_the_longest_probe_does_not_decide_is_closed_in_on_from_both_sides_the_wider_gap_first() -> None:
    settings = Settings("rate", 100.0, 1.0, resolution=0.2, longest=4.0)
    undecided = ["PASS", "FAIL", "INCONCLUSIVE", "INCONCLUSIVE"]  # at 141.4
    step, _ = after(settings, undecided)
    assert isinstance(step, Next)
    assert (step.purpose, step.load, step.length) == ("bisect", 168.2, 1.0)
    step, _ = after(settings, [*undecided, "FAIL"])
    assert isinstance(step, Next)
    assert (step.purpose, step.load) == ("bisect", 118.9)
    answer, probes = after(settings, [*undecided, "FAIL", "PASS", "PASS", "FAIL"])
    assert isinstance(answer, Answer)
    assert [(p.purpose, p.load) for p in probes[-2:]] == [("confirm", 118.9), ("ceiling", 168.2)]
    assert (answer.outcome, answer.interval, answer.confirmed_by) == ("FOUND", (118.9, 168.2), 7)
    assert any("undecided at 141.4/s" in reason for reason in answer.reasons)


def test_near_what_took_long_a_probe_begins_long() -> None:
    settings = Settings("rate", 100.0, 1.0, longest=8.0)
    step, _ = after(settings, ["INCONCLUSIVE", "PASS", "INCONCLUSIVE", "FAIL"])
    assert isinstance(step, Next)
    assert (step.load, step.length) == (141.4, 2.0)


def beyond(limit: float, line: float) -> Callable[[Next], str]:
    """An endpoint with this line, and a generator that can't do more than its limit."""
    return lambda asked: "INVALID" if asked.load > limit else "PASS" if asked.load <= line else "FAIL"


def driven(settings: Settings, say: Callable[[Next], str], **how: object) -> tuple[Answer, list[Probe]]:
    probes: list[Probe] = []
    while not isinstance(asked := decide(settings, probes, **how), Answer):  # type: ignore[arg-type]
        probes.append(made(asked, say(asked), reasons=("p99 of the lag is 3 ms",)))
    return asked, probes


def test_an_invalid_probe_is_repeated_with_another_seed_and_then_its_load_is_too_high_for_the_generator() -> None:
    step, _ = after(RATE, ["PASS", "INVALID"])
    assert isinstance(step, Next)
    assert (step.purpose, step.load) == ("repeat", 200.0)
    answer, probes = driven(RATE, beyond(190.0, 1e9))
    assert [(p.load, p.purpose) for p in probes[:4]] == [(100, "bracket"), (200, "bracket"), *[(200, "repeat")] * 2]
    assert len({probe.seed for probe in probes}) == len(probes)
    assert (answer.outcome, answer.high, answer.confidence) == ("INVALID", math.inf, 0.95)
    assert answer.best == pytest.approx(
        190, rel=0.19
    )  # its limit was not asked for: a factor of 2^(1/4) is near enough
    assert answer.best <= 190
    assert "3 runs at 200/s were INVALID" in answer.reasons[0]
    assert "p99 of the lag is 3 ms" in answer.reasons[0]
    assert len(probes) < 12


@pytest.mark.parametrize("line", [3.0, 40.0, 80.0])
def test_where_the_start_is_invalid_the_search_goes_down_by_itself_and_finds_the_line(line: float) -> None:
    answer, probes = driven(RATE, beyond(95.0, line))
    assert [p.outcome for p in probes[:3]] == ["INVALID"] * 3
    assert probes[3].load == 50
    assert answer.outcome == "FOUND"
    assert answer.low <= line < answer.high <= 1.02 * answer.low
    assert answer.confidence == 0.9


def test_a_generator_that_manages_no_load_at_all_is_invalid_and_says_so() -> None:
    answer, probes = driven(Settings("rate", 100.0, 30.0), beyond(10.0, 50.0))
    assert sorted({p.load for p in probes}) == [30, 50, 100]
    assert (answer.outcome, answer.best, answer.confidence) == ("INVALID", None, None)
    assert "3 runs at 30/s were INVALID" in answer.reasons[0]


def test_a_load_between_both_ends_that_was_invalid_stays_undecided_and_ends_nothing() -> None:
    answer, _ = driven(
        RATE, lambda asked: "INVALID" if 135 < asked.load < 150 else "PASS" if asked.load < 140 else "FAIL"
    )
    assert answer.outcome == "FOUND"
    assert answer.low <= 135
    assert answer.high >= 150
    assert any("3 runs at 135.4/s were INVALID" in reason for reason in answer.reasons)


def test_where_time_is_short_the_search_goes_to_the_fresh_runs_and_what_it_claims_rests_on_them() -> None:
    settings = Settings("rate", 100.0, 1.0)
    spent = 0.0

    def fits(asked: Next) -> bool:
        return spent + asked.length + sum(asked.then) <= 12

    probes: list[Probe] = []
    while not isinstance(asked := decide(settings, probes, fits=fits), Answer):
        probes.append(made(asked, "PASS" if asked.load <= 333 else "FAIL"))
        spent += asked.length
        assert decide(settings, probes, out_of_time=True)  # and it is replayed as it went
    assert spent <= 12
    assert [p.purpose for p in probes[-2:]] == ["confirm", "ceiling"]
    assert (asked.outcome, asked.confidence) == ("FOUND", 0.9)
    assert asked.low <= 333 < asked.high
    assert asked.high > 1.02 * asked.low
    assert any("a longer budget closes in further" in reason for reason in asked.reasons)
    assert decide(settings, probes) == asked


def test_where_there_is_time_for_one_more_confirming_run_or_none_the_answer_says_no_more_than_it_knows() -> None:
    settings = Settings("rate", 100.0, 1.0)
    _, probes = after(settings, ["PASS", "FAIL", "PASS"])
    assert decide(settings, probes, fits=lambda _: False) == decide(settings, probes, out_of_time=True)
    one = decide(settings, probes, fits=lambda asked: asked.purpose == "ceiling")
    assert isinstance(one, Next)
    assert (one.purpose, one.load) == ("ceiling", 200.0)
    answer = decide(settings, [*probes, made(one, "PASS")], fits=lambda _: False)
    assert isinstance(answer, Answer)
    assert (answer.confidence, answer.confirmed_by) == (None, None)


def test_nobody_there_stops_it_at_once() -> None:
    answer, _ = after(RATE, ["PASS", "UNREACHABLE"])
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.best) == ("UNREACHABLE", 100.0)


def test_both_ends_of_the_answer_rest_on_runs_that_the_search_did_not_pick() -> None:
    answer, probes = to_the_end(RATE, 333.0, {})
    assert [probe.purpose for probe in probes[-2:]] == ["confirm", "ceiling"]
    assert [probe.load for probe in probes[-2:]] == [answer.low, answer.high]
    assert [probe.length for probe in probes[-2:]] == [2.0, 2.0]
    assert answer.low <= 333.0 < answer.high <= answer.low * 1.02
    assert (answer.outcome, answer.confidence, answer.confirmed_by) == ("FOUND", 0.9, probes[-2].number)


def test_where_the_confirming_run_does_not_pass_the_answer_steps_down_and_its_confidence_falls() -> None:
    answer, probes = to_the_end(RATE, 333.0, {"confirm": ["INCONCLUSIVE"]})
    first, second, last = probes[-3:]
    assert (first.purpose, second.purpose, last.purpose) == ("confirm", "confirm", "ceiling")
    assert second.load == pytest.approx(first.load / 1.02, rel=1e-3)
    assert (first.length, second.length) == (2.0, 4.0)
    assert (answer.best, answer.confidence) == (second.load, 0.85)
    assert any("was to say PASS and said INCONCLUSIVE" in reason for reason in answer.reasons)


def test_a_confirming_run_that_fails_is_the_upper_end() -> None:
    answer, probes = to_the_end(RATE, 333.0, {"confirm": ["FAIL"]})
    first, second = probes[-2:]
    assert (first.purpose, second.purpose) == ("confirm", "confirm")
    assert (answer.low, answer.high, answer.confidence) == (second.load, first.load, 0.9)
    assert any("PASS at" in reason and "but FAIL at" in reason for reason in answer.reasons)


def test_where_the_upper_end_passes_after_all_it_moves_up_and_best_does_not() -> None:
    answer, probes = to_the_end(RATE, 333.0, {"ceiling": ["PASS"]})
    confirm, first, second = probes[-3:]
    assert (answer.best, answer.high) == (confirm.load, second.load)
    assert second.load > first.load
    assert any("does better under more load" in reason for reason in answer.reasons)


def test_an_open_end_is_said() -> None:
    answer, _ = to_the_end(Settings("rate", 100.0, 1.0, highest=300.0), 1e9, {})
    assert (answer.outcome, answer.interval, answer.confidence) == ("OPEN", (300.0, math.inf), 0.95)
    assert answer.reasons == ("no load up to 300/s, the highest asked for, was shown to break the objectives",)


def test_without_confirmation_nothing_is_claimed() -> None:
    answer, _ = to_the_end(Settings("rate", 100.0, 1.0, confirm=False), 333.0, {})
    assert (answer.outcome, answer.confidence, answer.confirmed_by) == ("FOUND", None, None)


def test_probes_of_another_search_are_refused() -> None:
    _, probes = after(RATE, ["PASS", "FAIL"])
    with pytest.raises(ValueError, match=r"probe 1 has seed .* Search into a new folder"):
        decide(Settings("rate", 100.0, 1.0, seed=1), probes)
    with pytest.raises(ValueError, match=r"probe 1 has load 100\.0, where these settings ask for 50\.0"):
        decide(Settings("rate", 50.0, 1.0), probes)
    _, over = to_the_end(RATE, 333.0, {})
    with pytest.raises(ValueError, match="the search was over after probe"):
        decide(RATE, [*over, over[-1]])


def test_settings_say_all_that_is_wrong_at_once() -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the lines are looked at below
        Settings("concurrency", 2.5, 3.0, resolution=0.0, longest=0.5, growth=1.0, repeats=-1)
    assert len(str(caught.value).splitlines()) == 6


def test_seeds_of_probes_are_those_of_splitmix64_and_fit_a_json_number() -> None:
    # The reference outputs of splitmix64 from state 0, as published with the xoshiro generators.
    assert [probe_seed(0, number) for number in (1, 2, 3)] == [
        0xE220A8397B1DCDAF >> 11,
        0x6E789E6AA1B965F4 >> 11,
        0x06C45D188009454F >> 11,
    ]
    assert probe_seed(2**53 - 1, 10**6) < 2**53


def test_where_time_is_short_before_any_load_has_held_nothing_is_confirmed_and_more_time_goes_on() -> None:
    settings = Settings("rate", 100.0, 1.0)
    _, probes = after(settings, ["FAIL", "INCONCLUSIVE"])
    short = decide(settings, probes, fits=lambda asked: asked.purpose in ("confirm", "ceiling"))
    assert isinstance(short, Answer)
    assert (short.outcome, short.best, short.high, short.hurried) == ("INCONCLUSIVE", None, 100.0, False)
    assert short.reasons[0].startswith("time ran out")
    assert isinstance(more := decide(settings, probes), Next)
    assert (more.purpose, more.load) == ("longer", 50.0)


def test_what_is_undecided_is_said_with_the_probes_that_were_made() -> None:
    said = []
    for so_many, needed, longest in ((1, None, 2.0), (2, 10_000, 4.0)):
        settings = Settings("rate", 20.0, 1.0, highest=40.0, longest=longest)
        probes: list[Probe] = []
        for _ in range(so_many):
            asked = decide(settings, probes)
            assert isinstance(asked, Next)
            probes.append(made(asked, "INCONCLUSIVE", 100, needed))
        found = decide(settings, probes, out_of_time=True)
        assert isinstance(found, Answer)
        assert [probe.length for probe in probes] == [1.0, 2.0][:so_many]
        said.append(" ".join(found.reasons))
    first, last = said
    assert "undecided at 20/s by the shortest probes: near the line" in first
    assert "even by the longest" not in first
    assert "even by the longest probes that seek (2 times the shortest)" in last
