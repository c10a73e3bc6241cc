"""The grid of a sweep: what ``--vary`` means, which series it makes, and everything that is refused at once. A sweep
from flags to its document: what is made, what is left out, and what a stop leaves. No load is sent.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run.coordinator import Outcome
from plimsoll.harness.run.job import Prepared, find_scenario
from plimsoll.harness.run.promises import Asked, keep
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.sweep.grid import Grid, arms_of, read_grid
from plimsoll.harness.series.sweep.sweep_session import Wanted, plan, say_grid, sweep
from plimsoll.harness.verbs.run import staff_of
from tests.unit.harness.sealed_runs import Full, sealed_run


def grid(*texts: str) -> Grid:
    found, errors = read_grid(texts)
    assert errors == []
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("rate=10,1,5", (1, 5, 10)),
        ("concurrency=1..64*2", (1, 2, 4, 8, 16, 32, 64)),
        ("concurrency=1..10*1.5", (1, 2, 3, 5, 8)),
        ("rate=10..100+30", (10, 40, 70, 100)),
        ("rate=0.5..2*2", (0.5, 1, 2)),
        ("rate=1,2,10..20+5", (1, 2, 10, 15, 20)),
        ("rate=1e3,20", (20, 1000)),
        ("rate=0.1..0.3+0.1", (0.1, 0.2, 0.3)),
    ],
)
def test_values_are_lists_and_ranges_in_ascending_order(text: str, values: tuple[float, ...]) -> None:
    assert grid(text).variables[0].values == values


def test_how_often_prompts_repeat_is_load_and_a_prefix_cache_is_the_servers() -> None:
    made = grid("source.shared.groups=1..64*8", "server.prefix_cache=true,false")
    assert [level.flags for level in made.levels(kind_given=True)] == [{"source.shared.groups": n} for n in (1, 8, 64)]
    assert [arm.server.arguments() for arm in made.arms(bundled=True)] == [("--prefix-cache",), ()]


def test_the_size_of_pictures_is_load_and_how_they_are_computed_is_the_servers() -> None:
    made = grid("source.width=128,256", "server.image_side=0,224", "server.precision=float32,int8")
    assert [level.flags for level in made.levels(kind_given=True)] == [{"source.width": n} for n in (128, 256)]
    assert [arm.server.arguments() for arm in made.arms(bundled=True)] == [
        ("--image-side", str(side), "--precision", precision) for side in (0, 224) for precision in ("float32", "int8")
    ]
    limits = [arm.server.arguments() for arm in grid("server.in_flight=16,200ms", "rate=1,2").arms(bundled=True)]
    assert limits == [("--in-flight", "16"), ("--in-flight", "200ms")]


def test_curves_run_along_the_rate_else_the_concurrency_else_the_first_number() -> None:
    assert grid("prompt_tokens=1,2", "rate=1,2").x == "rate"
    assert grid("prompt_tokens=1,2", "concurrency=1,2").x == "concurrency"
    assert grid("model=a,b", "output_tokens=1,2", "prompt_tokens=1,2").x == "output_tokens"
    # A rate of one value is a setting; the curve runs along what varies.
    assert grid("rate=5", "prompt_tokens=1,2").x == "prompt_tokens"


def test_loads_become_levels_and_settings_of_the_server_become_arms() -> None:
    made = grid("rate=1,2", "prompt_tokens=16,32", "server.max_batch=1,4", "server.ttft=20ms", "option.a.b=1")
    assert [level.label for level in made.levels(False)] == [
        "prompt_tokens-16-rate-1",
        "prompt_tokens-16-rate-2",
        "prompt_tokens-32-rate-1",
        "prompt_tokens-32-rate-2",
    ]
    assert made.levels(False)[0].flags == {"kind": "server", "rate": 1, "prompt_tokens": 16}
    assert "kind" not in made.levels(True)[0].flags
    arms, errors = arms_of(made, bundled=True)
    assert errors == []
    assert [(arm.name, arm.server.max_batch, arm.server.ttft, arm.options) for arm in arms] == [
        ("max_batch-1", 1, "20ms", {"a": {"b": 1}}),
        ("max_batch-4", 4, "20ms", {"a": {"b": 1}}),
    ]
    assert len(made.series()) == 4
    assert made.points == 8


MIX = """
name: m
stop: {min_queries: 20, min_duration: 1s}
target: {url: "http://127.0.0.1:9"}
mix:
  chat: {kind: server, params: {rate: 40}}
  more: {kind: server, params: {rate: 10}}
  bulk: {kind: concurrency, params: {concurrency: 2}, until: others}
"""


def test_of_a_mix_the_loads_of_classes_vary_alone_and_together_or_all_by_their_shares(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MIX)

    def loads(*vary: str) -> list[list[float]]:
        contest = plan(replace(wanted(vary), scenario=str(file)), every_point=True).contest
        found = [find_scenario(contest.scenario, {**contest.flags, **level.flags}).mix for level in contest.levels]
        dumped = [[one.params.model_dump() for one in mix.values()] for mix in found]
        return [[one.get("rate") or one["concurrency"] for one in mix] for mix in dumped]

    assert loads("rate=25,100") == [[20, 5, 2], [80, 20, 2]]
    assert loads("rate{class=chat}=5,10") == [[5, 10, 2], [10, 10, 2]]
    both = loads("rate{class=chat}=5..10*2", "concurrency{class=bulk}=1,3")
    assert both == [[5, 10, 1], [10, 10, 1], [5, 10, 3], [10, 10, 3]]
    over = plan(replace(wanted(("rate{class=more}=5,10",)), scenario=str(file)), every_point=False)
    assert over.places.x == "rate{class=more}"
    assert over.estimate.requests == pytest.approx(4 * 40, abs=12), "bulk ends with the others"


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        (("rate{class=no}=1",), "--vary rate{class=no}: m has no class no. Give one of chat, more, bulk"),
        (("rate{class=bulk}=1",), "class bulk has no rate that is one number. Name a class of kind server"),
        (("concurrency=1,2",), "slots of several classes have no sum. Name one: 'concurrency{class=NAME}'"),
        (("rate=1", "rate{class=chat}=2"), "a load of all classes and one of a class are varied"),
        (("prompt_tokens=1,2",), "--prompt-tokens: m is a mix of chat, more, bulk, and this is of one load"),
    ],
)
def test_what_of_a_mix_can_not_vary_is_said(tmp_path: Path, vary: tuple[str, ...], said: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(MIX)
    with pytest.raises(HarnessFault) as refused:
        plan(replace(wanted(vary), scenario=str(file)), every_point=True)
    assert said in str(refused.value)


def test_settings_too_long_for_a_folder_are_numbered() -> None:
    arms, _ = arms_of(grid("rate=1,2", f"model={'m' * 60},{'n' * 60}"), bundled=False)
    assert [arm.name for arm in arms] == ["endpoint-001", "endpoint-002"]
    assert [arm.model for arm in arms] == ["m" * 60, "n" * 60]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ((), "nothing varies"),
        (("rate",), "no values"),
        (("rate=",), "no values"),
        (("speeed=1,2",), "can't be varied. Known: rate"),
        (("source.=1,2",), "can't be varied. Known: rate"),
        (("server.speed=1",), "has no 'speed'. Known: ttft"),
        (("rate=1..5",), "is no range"),
        (("rate=5..1*2",), "never gets"),
        (("rate=1..5*1",), "never gets"),
        (("rate=0,1",), "above 0"),
        (("rate=fast,1",), "above 0"),
        (("rate=1,,2",), "an empty value"),
        (("rate=1,1",), "given twice"),
        (("concurrency=1.5,2",), "whole numbers"),
        (("rate=1,2", "rate=3"), "varied twice"),
        (("rate=1,2", "concurrency=1,2"), "Vary one of them"),
        (("model=a,b",), "no number to draw a curve along"),
        (("rate=1..200+1", "prompt_tokens=1..100+1"), "more than 10,000"),
        (("rate=1..1000000+1",), "more than 10,000"),
    ],
)
def test_what_makes_no_grid_is_refused_with_what_to_write(texts: tuple[str, ...], words: str) -> None:
    found, errors = read_grid(texts)
    assert found is None
    assert any(words in text for text in errors), errors


def test_every_mistake_is_told_at_once() -> None:
    assert len(read_grid(["rate=", "speeed=1", "concurrency=0.5,1"])[1]) == 3


def test_settings_of_a_server_that_is_not_ours_are_refused() -> None:
    _, errors = arms_of(grid("rate=1,2", "server.max_batch=1,4"), bundled=False)
    assert "Leave --url out" in errors[0]


def test_a_setting_that_the_server_refuses_is_named() -> None:
    _, errors = arms_of(grid("rate=1,2", "server.max_batch=0,4"), bundled=True)
    assert "max_batch" in errors[0]


# -- a session ------------------------------------------------------------------------------------------------------

SLO = ("p50(ttft) <= 100ms",)


class Endpoint:
    """Stands in for the runs: TTFT is the load in ms, and above ``most`` nearly every request fails."""

    def __init__(self, most: float = 1e9) -> None:
        self.most = most
        self.made: list[str] = []
        self.stop_at = 10**9

    def __call__(self, prepared: Prepared, label: str, watchers: object, workforce: object) -> Outcome:
        if len(self.made) + 1 >= self.stop_at:
            raise HarnessFault("interrupted before the first query", ExitCode.INTERRUPTED)
        path, scenario = prepared.job.directory.path, prepared.job.scenario
        load = float(scenario.params.model_dump()["concurrency"])
        self.made.append(path.name)
        shutil.rmtree(path)
        made = open_sealed(sealed_run(path, load, failed=35 if load > self.most else 0, seed=scenario.seed))
        keep(prepared.promises, made.directory)
        return Outcome(made, interrupted=False)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Endpoint:
    async def reached(target: object) -> None:
        return None

    made = Endpoint()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLIMSOLL_API_KEY", raising=False)
    monkeypatch.setattr("plimsoll.harness.series.one_run.carry_out", made)
    monkeypatch.setattr("plimsoll.harness.series.one_run.preflight", reached)
    return made


def wanted(vary: Sequence[str] = ("concurrency=20,50,200",), load: dict[str, Any] | None = None, **more: Any) -> Wanted:
    more = {"out": Path("o"), "cooldown": "0s", "asked": Asked(SLO), **more}
    told = {name: more.pop(name) for name in ("out", "resume", "as_json", "formats", "errors") if name in more}
    return Wanted(None, vary, {"url": "http://a:1", "queries": 40, **(load or {})}, session=Session(**told), **more)


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("o/sweep.json").read_text())
    return found


def test_every_point_is_run_upwards_and_the_line_is_found(endpoint: Endpoint) -> None:
    assert sweep(wanted()) == 0
    assert endpoint.made == [f"00{n}-endpoint-concurrency-{x}" for n, x in ((1, 20), (2, 50), (3, 200))]
    found = document()
    assert found["outcome"] == "FOUND"
    line = found["series"][0]["line"]
    assert (line["low"], line["high"]) == (50, 200)
    assert line["interpolated"] == pytest.approx(100, rel=0.02)
    assert found["series"][0]["points"][0]["runs"] == ["runs/001-endpoint-concurrency-20"]
    assert Path("o/sweep.html").is_file()
    assert Path("o/runs/001-endpoint-concurrency-20/report.html").is_file()


def test_a_series_ends_after_two_hopeless_loads_and_all_runs_them_all_the_same(endpoint: Endpoint) -> None:
    endpoint.most = 30
    vary = ("concurrency=20,50,60,70,80", "prompt_tokens=8,16")
    assert sweep(wanted(vary)) == 0
    assert len(endpoint.made) == 6
    points = document()["series"][0]["points"]
    assert [point["outcome"] for point in points] == ["PASS", "FAIL", "FAIL", "SKIPPED", "SKIPPED"]
    assert points[3]["reasons"] == ["already saturated at 50 in flight"]
    assert sweep(wanted(vary, resume=True, all_points=True)) == 0
    assert len(endpoint.made) == 10
    assert "SKIPPED" not in Path("o/sweep.json").read_text()


def test_a_stopped_sweep_is_published_as_far_as_it_came_and_gone_on_with(endpoint: Endpoint) -> None:
    endpoint.stop_at = 2
    assert sweep(wanted()) == ExitCode.INTERRUPTED
    assert [point["outcome"] for point in document()["series"][0]["points"]] == ["PASS", "PENDING", "PENDING"]
    assert document()["exit_code"] == 130
    endpoint.stop_at = 10**9
    assert sweep(wanted(resume=True)) == 0
    assert endpoint.made == [f"00{n}-endpoint-concurrency-{x}" for n, x in ((1, 20), (2, 50), (3, 200))]


@pytest.mark.parametrize(("full_in", "outcomes"), [(2, ["PASS", "PASS", "PENDING"]), (3, ["PASS", "PASS", "FAIL"])])
def test_a_full_disk_costs_no_result_of_a_sweep(
    full_in: int,
    outcomes: list[str],
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = Full("o", monkeypatch)

    def run(*args: Any, **more: Any) -> Outcome:
        disk.full = len(endpoint.made) + 1 >= full_in
        return endpoint(*args, **more)

    monkeypatch.setattr("plimsoll.harness.series.one_run.carry_out", run)
    assert sweep(wanted(as_json=True)) == ExitCode.USAGE
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert [point["outcome"] for point in found["series"][0]["points"]] == outcomes
    assert found["exit_code"] == ExitCode.USAGE
    assert "sweep.json could not be written (No space left on device); make room; `plimsoll sweep --again" in said.err
    assert ": --out: cannot write o/" in said.err
    disk.full = False
    assert sweep(wanted((), asked=Asked(), again=True)) == 0
    assert [point["outcome"] for point in document()["series"][0]["points"]] == [
        *outcomes[: full_in - 1],
        *["PENDING"] * (4 - full_in),
    ]


def test_again_judges_by_other_objectives_and_sends_nothing(endpoint: Endpoint) -> None:
    sweep(wanted())
    first = document()
    assert sweep(wanted((), asked=Asked(), again=True)) == 0
    assert document()["series"] == first["series"]
    assert sweep(wanted((), asked=Asked(("p50(ttft) <= 10ms",)), again=True)) == 1
    assert document()["outcome"] == "FAIL"
    assert len(endpoint.made) == 3


def test_repeats_go_up_and_down_and_a_point_is_the_median_of_its_runs(endpoint: Endpoint) -> None:
    assert sweep(wanted(("concurrency=20,50",), repeats=2)) == 0
    assert [name.rpartition("-")[2] for name in endpoint.made] == ["20", "50", "50", "20"]
    assert len(document()["series"][0]["points"][0]["runs"]) == 2


def test_an_endpoint_that_can_t_be_reached_is_exit_5_before_anything_is_sent(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreached(target: object) -> None:
        raise HarnessFault("cannot connect", ExitCode.UNREACHABLE)

    monkeypatch.setattr("plimsoll.harness.series.one_run.preflight", unreached)
    with pytest.raises(HarnessFault) as caught:
        sweep(wanted())
    assert caught.value.code == ExitCode.UNREACHABLE
    assert caught.value.errors == ["cannot connect"]
    assert endpoint.made == []


def test_who_sweeps_is_told_of_no_arm_and_no_comparison(endpoint: Endpoint) -> None:
    sweep(wanted())
    told = []
    for more in (
        {},
        {"resume": True, "load": {"seed": 7}},
        {"vary": ("rate=1,1e30",)},
        {"vary": ("rate=1", "protocol=a,b")},
    ):
        with pytest.raises(HarnessFault) as caught:
            sweep(wanted(**more))
        told += caught.value.errors
    said = "\n".join(told)
    assert "holds a sweep with" in said
    assert "is another sweep" in said
    assert "protocol-b: " in said
    assert "arm " not in said
    assert "comparison" not in said


def test_check_says_the_points_and_the_time_and_sends_nothing(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    say_grid(wanted(("rate=10,20", "prompt_tokens=8,16"), {"queries": None, "duration": "10s"}, repeats=3))
    said = capsys.readouterr().out
    assert "4 points, 3 times: 12 runs" in said
    assert re.search(r"about 1,9\d\d requests in 1[34]\d s", said)  # 12 runs of 10 s and what is around them
    say_grid(wanted(as_json=True))
    assert json.loads(capsys.readouterr().out)["assumed_latency_ns"] == 10**9
    assert endpoint.made == []
    assert not Path("o").exists()


def test_the_estimate_of_an_open_loop_follows_its_schedule(endpoint: Endpoint) -> None:
    found = plan(
        wanted(("rate=10,20",), {"queries": None, "duration": "10s", "arrival": "constant"}), every_point=True
    ).estimate
    assert found.requests == pytest.approx(300, rel=0.02)
    assert found.duration_ns == pytest.approx(23e9, rel=0.05)
    assert not found.assumed


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"vary": ("rate=1,2",), "load": {"rate": 5.0}}, "--rate: it is varied too"),
        ({"repeats": 0}, "--repeats"),
        ({"errors": staff_of("seven", None, None, None, None)[1]}, "--live seven"),
        ({"cooldown": "soon"}, "--cooldown"),
        ({"asked": Asked(("p99(ttft) < ",))}, "--slo"),
        ({"vary": ("server.slots=1,2",)}, "Leave --url out"),
        ({"formats": ("pdf=x",)}, "no format of a sweep"),
        ({"resume": True, "again": True}, "Give one of them"),
        ({"out": None, "resume": True}, "Give its --out"),
        ({"again": True}, "takes the grid"),
        ({"vary": (), "again": True}, "it holds no grid.json"),
        ({"formats": ("csv=-",), "as_json": True}, "all go to standard output"),
        ({"vary": ("prompt_tokens=0,5", "concurrency=1,2")}, "prompt"),
        ({"vary": ("option.no_such=1,2", "rate=1,2")}, "no_such"),
    ],
)
def test_wrong_flags_are_told_before_any_load(endpoint: Endpoint, more: dict[str, Any], words: str) -> None:
    with pytest.raises(HarnessFault) as caught:
        sweep(wanted(**more))
    assert words in str(caught.value)
    assert caught.value.code == ExitCode.USAGE
    assert endpoint.made == []


def test_options_that_vary_are_set_over_the_others(endpoint: Endpoint) -> None:
    arms = plan(
        wanted(("option.max_connections=1,2", "concurrency=1,2"), {"options": {"spin": "1ms", "max_connections": 9}}),
        every_point=True,
    ).contest.arms
    assert [arm.options for arm in arms] == [{"spin": "1ms", "max_connections": n} for n in (1, 2)]


def test_a_damaged_grid_is_refused(endpoint: Endpoint) -> None:
    sweep(wanted())
    Path("o/grid.json").write_text("{")
    with pytest.raises(HarnessFault, match="damaged"):
        sweep(wanted((), again=True))
    assert sweep(wanted(resume=True)) == 0  # nothing is left to make, and the grid is known: it is written again
    assert sweep(wanted((), again=True)) == 0


def test_runs_of_an_unknown_place_in_the_grid_are_a_damaged_file(endpoint: Endpoint) -> None:
    sweep(wanted())
    file = Path("o/interleave.json")
    document = json.loads(file.read_text())
    document["runs"][0]["arm"] = "../elsewhere"
    file.write_text(json.dumps(document))
    for again in (wanted(resume=True), wanted((), again=True)):
        with pytest.raises(HarnessFault, match="none of its arms and loads"):
            sweep(again)
