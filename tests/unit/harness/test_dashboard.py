"""The live view's state: what status lines add up to, in virtual time. One live page for many runs: the same address
for each, free again after each, and none where none was asked for. ``--live`` as given, and what the verdict is
read from.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.live.live_view import LiveView, verdict_in, watcher
from plimsoll.harness.live.place import Place, where
from plimsoll.harness.live.state import FIRST_NS, MOST, LiveState
from plimsoll.harness.run.job import Prepared, prepare
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.series.one_run import LivePage
from plimsoll.reports.documents.live import LiveReport, RunPart, VerdictPart, strips
from plimsoll.reports.formats.openmetrics import live as render
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


def test_events_are_marked_as_soon_as_they_began() -> None:
    state, t0 = begun()
    state.heard(0, status(10, 5, in_flight=1), t0 + 2 * S)
    state.happened({"name": "restart", "begun_ns": S, "ended_ns": -1})
    found = state.report(t0 + 9 * S)
    assert found.events == {"restart": S}
    assert all("restart" in str(chart.wide.svg) for chart in strips(found)[:1])


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


# -- intervals ------------------------------------------------------------------------------------------------------


def prepared(folder: Path) -> Prepared:
    return prepare(None, {"url": "http://127.0.0.1:9", "rate": 5.0, "kind": "server"}, Asked(), (), folder)


def test_metrics_have_the_runs_id_before_the_run_begins(tmp_path: Path) -> None:
    made = prepared(tmp_path / "r")
    view = watcher(Place("127.0.0.1", 0), made)
    text = render(view._shown.report()).decode()
    view.stop()
    assert f'run_id="{made.job.run_id}"' in text
    assert 'run_id=""' not in text


def test_without_a_place_nobody_looks_on(tmp_path: Path) -> None:
    assert LivePage(None).begin(prepared(tmp_path / "r")) == ()


def test_every_run_has_its_page_at_the_address_that_the_first_one_found(tmp_path: Path) -> None:
    page, urls = LivePage(Place("127.0.0.1", 0)), []
    for number in range(2):
        (view,) = page.begin(prepared(tmp_path / str(number)))
        assert isinstance(view, LiveView)
        asyncio.run(view.open())
        urls.append(view.url)
        with urlopen(f"{view.url}healthz", timeout=5) as answer:
            assert answer.status == 200
        page.end()
        assert not view.serving
    assert urls[0] == urls[1]
    with pytest.raises(URLError):
        urlopen(urls[0], timeout=5)


def test_a_run_that_never_opened_its_page_leaves_the_next_one_free(tmp_path: Path) -> None:
    page = LivePage(Place("127.0.0.1", 0))
    page.begin(prepared(tmp_path / "r"))
    page.end()
    (view,) = page.begin(prepared(tmp_path / "s"))
    assert isinstance(view, LiveView)
    asyncio.run(view.open())
    page.end()


# -- the watcher ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("8089", Place("127.0.0.1", 8089)),
        ("0", Place("127.0.0.1", 0)),
        (":8089", Place("127.0.0.1", 8089)),
        ("0.0.0.0:9000", Place("0.0.0.0", 9000)),
        ("[::1]:9000", Place("::1", 9000)),
        ("localhost:1", Place("localhost", 1)),
    ],
)
def test_a_place_is_a_port_with_or_without_a_host(text: str, place: Place) -> None:
    assert where(text) == place


@pytest.mark.parametrize(
    "text", ["", "http", "70000", "-1", "1.2.3.4", "host:", "a@b:1", "h:1/x", "http://h:1", "[::1:2"]
)
def test_anything_else_is_one_clear_error(text: str) -> None:
    with pytest.raises(HarnessFault) as caught:
        where(text)
    assert caught.value.code == 2
    assert len(caught.value.errors) == 1
    assert caught.value.errors[0].startswith(f"--live {text}: not [HOST:]PORT")


def test_without_the_flag_there_is_no_place() -> None:
    assert where(None) is None


@pytest.mark.parametrize(
    ("place", "url"),
    [
        (Place("127.0.0.1", 0), "http://127.0.0.1:5/"),
        (Place("::1", 0), "http://[::1]:5/"),
        (Place("0.0.0.0", 0), "http://127.0.0.1:5/"),
        (Place("::", 0), "http://[::1]:5/"),
    ],
)
def test_the_address_that_is_said_can_be_opened(place: Place, url: str) -> None:
    assert place.url(5) == url


def sealed(folder: Path, outcome: str, objectives: int, whole: bool = True) -> Path:
    document = {
        "verdict": {"outcome": outcome, "reasons": ["slow"], "objectives": [{}] * objectives},
        "validity": {"reasons": ["late"]},
    }
    (folder / "report.json").write_text(json.dumps(document))
    if whole:
        (folder / "report.html").write_text("<html>")
    return folder


def test_the_verdict_is_that_of_the_sealed_run(tmp_path: Path) -> None:
    page = str(tmp_path / "report.html")
    assert verdict_in(sealed(tmp_path, "FAIL", 1)) == VerdictPart(outcome="FAIL", reasons=["slow"], report=page)
    assert verdict_in(sealed(tmp_path, "INVALID", 1)) == VerdictPart(outcome="INVALID", reasons=["late"], report=page)


def test_a_run_without_objectives_is_measured_and_not_passed(tmp_path: Path) -> None:
    found = verdict_in(sealed(tmp_path, "PASS", 0))
    assert found is not None
    assert found.outcome == "MEASURED"


def test_there_is_no_verdict_before_both_reports_are_written(tmp_path: Path) -> None:
    assert verdict_in(tmp_path) is None
    assert verdict_in(sealed(tmp_path, "PASS", 1, whole=False)) is None
    (tmp_path / "report.html").write_text("<html>")
    (tmp_path / "report.json").write_text('{"verdict": ')
    assert verdict_in(tmp_path) is None
