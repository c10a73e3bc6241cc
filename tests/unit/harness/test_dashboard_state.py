"""The live view's state: what status lines add up to, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll.harness.live.state import FIRST_NS, MOST, LiveState
from plimsoll.reports.documents.live import LiveReport, RunPart, VerdictPart
from plimsoll.scenarios.plan.plan import Stop
from plimsoll.slo.objectives.objective import parse
from tests.unit.harness.live_runs import MS, S, beginning, open_plan, status

RUN = RunPart(scenario="made up", kind="server")


def begun(*objectives: str, per_s: int = 100, seconds: int = 60, warmup: str = "0s") -> tuple[LiveState, int]:
    """A state whose run began this moment, and its t0."""
    t0 = 1_000 * S
    state = LiveState(RUN, [parse(text) for text in objectives])
    state.begin(beginning(open_plan(per_s, seconds), t0, warmup), t0)
    return state, t0


def test_before_t0_is_known_it_says_so_and_no_more() -> None:
    state = LiveState(RUN, [parse("max(latency) <= 1s")])
    state.heard(0, status(1, 1), 5)
    found = state.report(10)
    assert (found.stage, found.sent, found.intervals, found.unfollowed) == (
        "preparing",
        0,
        None,
        ["max(latency) <= 1s"],
    )


@pytest.mark.parametrize("step_ms", [130, 250, 270, 900])
def test_a_steady_rate_is_the_same_in_each_interval_wherever_the_lines_fall(step_ms: int) -> None:
    state, t0 = begun()
    for at in range(0, 10_000, step_ms):
        state.heard(0, status(at // 10, at // 20, in_flight=7), t0 + at * MS)
    found = state.report(t0 + 9 * S).intervals
    assert found is not None
    assert len(found.sent_per_s) == 8
    assert found.sent_per_s == pytest.approx([100.0] * 8, rel=0.02)
    assert found.done_per_s == pytest.approx([50.0] * 8, rel=0.02)
    assert found.planned_per_s == pytest.approx([100.0] * 8)
    assert found.in_flight_max == [7] * 8


def test_workers_are_added_up() -> None:
    state, t0 = begun()
    for at in range(0, 4_100, 250):
        for worker in (0, 1):
            state.heard(worker, status(at // 20, at // 20, in_flight=3 + worker), t0 + at * MS)
    found = state.report(t0 + 4 * S)
    assert (found.sent, found.in_flight, found.run.workers) == (400, 7, 2)
    assert found.intervals is not None
    assert found.intervals.sent_per_s == pytest.approx([100.0] * 3)


def test_an_interval_is_shown_only_once_it_is_settled() -> None:
    state, t0 = begun()
    for at in range(0, 2_600, 250):
        state.heard(0, status(at, at), t0 + at * MS)
    assert len(_shown(state.report(t0 + 2_500 * MS))) == 1
    assert len(_shown(state.report(t0 + 2_600 * MS))) == 2


def test_a_failed_measured_request_is_an_infinite_value() -> None:
    state, t0 = begun()
    state.heard(0, status(0, 0), t0)
    state.heard(0, status(100, 100, failed=2, latency=[20 * MS] * 98), t0 + S)
    found = state.report(t0 + 3 * S).metrics["latency"]
    assert found.p50 == pytest.approx(20 * MS, rel=0.011)
    assert found.p90 == found.p50
    assert (found.p99, found.n, found.failed) == (None, 98, 2)


def test_a_budget_is_counted_over_the_run_and_by_interval() -> None:
    state, t0 = begun("p90(ttft) <= 100ms", "ratio(error) <= 10%", "mean(latency) <= 1s", per_s=10, seconds=60)
    for at, failed, slow in ((0, 0, 0), (1, 0, 5), (2, 1, 5), (3, 1, 0), (4, 1, 0)):
        values = [200 * MS] * slow + [20 * MS] * (10 - slow)
        state.heard(0, status(10 * at, 10 * at, failed, ttft=values if at else []), t0 + at * S)
    ttft, errors = state.report(t0 + 5 * S).objectives
    assert (ttft.n, ttft.bad, ttft.interval_n[:4], ttft.interval_bad[:4]) == (40, 10, [10] * 4, [5, 5, 0, 0])
    assert ttft.burn == pytest.approx(2.5)
    assert ttft.burns()[:3] == pytest.approx([5.0, 5.0, 0.0])
    assert ttft.spent == pytest.approx(10 / (0.1 * 600))
    assert (errors.bad, errors.interval_bad[:4]) == (1, [0, 1, 0, 0])
    assert state.report(t0 + 5 * S).unfollowed == ["mean(latency) <= 1s"]


def test_what_cannot_be_followed_is_named_and_limits_on_a_request_count_to_ratio_good() -> None:
    objectives = [parse(text) for text in ("ratio(good) >= 90%", "ttft <= 100ms", "rate(good) >= 1/s")]
    state = LiveState(RUN, objectives, ["checkout-slo"])
    state.begin(beginning(open_plan(10, 60), 0), 0)
    state.heard(0, status(0, 0), 0)
    state.heard(0, status(10, 10, ttft=[S] * 4 + [MS] * 6), S)
    found = state.report(3 * S)
    assert found.unfollowed == ["rate(good) >= 1/s", "checkout-slo"]
    assert [(one.objective, one.n, one.bad) for one in found.objectives] == [("ratio(good) >= 90%", 10, 4)]


def test_the_wait_for_the_first_query_is_no_warm_up() -> None:
    state, t0 = begun(seconds=2)
    assert state.report(t0 - S // 2).stage == "preparing"
    assert state.report(t0 + S // 10).stage == "running"
    warmed, t0 = begun(seconds=2, warmup="1s")
    assert warmed.report(t0 - S - S // 2).stage == "preparing"
    assert warmed.report(t0 - S // 2).stage == "warm-up"


def test_the_stages_follow_each_other() -> None:
    state, t0 = begun(seconds=2, warmup="1s")
    state.heard(0, status(0, 0), t0)
    assert state.report(t0 - S // 2).stage == "warm-up"
    assert state.report(t0 + S // 10).stage == "running"
    state.end(t0 + 3 * S)
    over = state.report(t0 + 99 * S)
    assert (over.stage, over.elapsed_ns, over.left_ns, over.fraction) == ("over", 3 * S, 0, 1.0)
    state.judged(VerdictPart(outcome="PASS"))
    assert state.report(t0 + 99 * S).verdict == VerdictPart(outcome="PASS")


def test_the_plan_says_what_is_due_by_now() -> None:
    state, t0 = begun(per_s=10, seconds=60)
    found = state.report(t0 + 6 * S)
    assert (found.planned, found.planned_so_far) == (600, 60)


def test_a_closed_loop_has_no_plan_in_time() -> None:
    t0 = 1_000 * S
    state = LiveState(RUN, [parse("p99(latency) <= 1s")])
    plan = replace(open_plan(10, 6), open_loop=False, cyclic=True, max_in_flight=4)
    state.begin(beginning(plan, t0), t0)
    for at in range(0, 4_000, 250):
        state.heard(0, status(at, at, latency=[MS]), t0 + at * MS)
    found = state.report(t0 + 3 * S)
    assert found.intervals is not None
    assert (found.planned, found.planned_so_far, found.intervals.planned_per_s, found.objectives[0].spent) == (
        None,
    ) * 4


@pytest.mark.parametrize(
    ("stop", "at_s", "done", "left", "fraction"),
    [
        (Stop(min_queries=100, min_duration_ns=10 * S), 4, 300, 6 * S, 0.4),
        (Stop(min_queries=100, min_duration_ns=10 * S), 12, 50, None, 0.5),
        (Stop(max_queries=100, min_duration_ns=10 * S), 1, 25, None, 0.25),
        (Stop(min_queries=100, min_duration_ns=0), 1, 25, None, 0.25),
    ],
)
def test_a_closed_loop_is_as_far_as_the_further_of_its_two_ends(
    stop: Stop, at_s: int, done: int, left: int | None, fraction: float
) -> None:
    t0 = 1_000 * S
    state = LiveState(RUN, [])
    plan = replace(open_plan(10, 6), open_loop=False, cyclic=True, max_in_flight=4, stop=stop)
    state.begin(beginning(plan, t0), t0)
    state.heard(0, status(done, done), t0 + at_s * S)
    found = state.report(t0 + at_s * S)
    assert (found.left_ns, found.fraction, found.stage) == (left, fraction, "running")


def test_after_the_run_a_short_rest_belongs_to_the_interval_before() -> None:
    state, t0 = begun()
    for at in range(0, 5_250, 250):
        state.heard(0, status(at // 10, at // 10), t0 + at * MS)
    state.end(t0 + 5_200 * MS)
    found = state.report(t0 + 9 * S).intervals
    assert found is not None
    assert len(found.sent_per_s) == 5
    assert found.seconds() == pytest.approx([1, 1, 1, 1, 1.2])
    assert sum(rate * s for rate, s in zip(found.sent_per_s, found.seconds(), strict=True)) == pytest.approx(500)


def test_a_run_of_a_day_keeps_to_so_many_intervals() -> None:
    state, t0 = begun(seconds=1)
    for at in range(0, 86_400, 60):
        state.heard(0, status(at, at, latency=[MS]), t0 + at * S)
    found = state.report(t0 + 86_400 * S).intervals
    assert found is not None
    assert MOST / 2 <= len(found.sent_per_s) <= MOST
    assert found.interval_ns >= 86_400 * FIRST_NS // MOST
    assert found.interval_ns % FIRST_NS == 0
    assert found.sent_per_s[5:100] == pytest.approx([1.0] * 95, rel=0.01)


def _shown(report: LiveReport) -> list[float]:
    assert report.intervals is not None
    return report.intervals.sent_per_s
