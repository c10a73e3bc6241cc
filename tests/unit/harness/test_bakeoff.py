"""Arms and bake-off files: every mistake at once, no secret in the clear, the same load for everybody. A bake-off
whose runs are made: ranked in tiers at a load that means something, priced, charted. Nothing is sent.
"""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import problems
from plimsoll.harness.protocols.http import HttpOptions
from plimsoll.harness.run.job import find_scenario
from plimsoll.harness.series.comparison import bakeoff_file as bakeoff
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.arms import Arm, read_arms
from plimsoll.harness.series.comparison.bakeoff_file import STARTER, Bakeoff, parse
from plimsoll.harness.series.comparison.bakeoff_session import bake_off, judge
from plimsoll.harness.series.comparison.interleave import Interleaving, slots
from plimsoll.harness.series.comparison.replications import of_interleaving
from plimsoll.harness.series.ledger import Session
from plimsoll.scenarios.text.document import read_document
from plimsoll.scenarios.text.fields import format_duration
from tests.unit.harness.sealed_runs import sealed_run

TWO: dict[str, Any] = {"arms": [{"name": "a", "url": "http://a:1"}, {"name": "b", "url": "http://b:1"}]}


def faults(**changed: Any) -> list[str]:
    with pytest.raises(HarnessFault) as caught:
        parse(TWO | changed, "b.yaml")
    return caught.value.errors


# -- arms on the command line --------------------------------------------------------------------------------


def test_an_arm_is_a_url_and_settings() -> None:
    [arm], errors = read_arms(["new=http://h:1/v1,model=m,api_key_env=KEY,option.stream=false,header.X-A=b"])
    assert errors == []
    assert (arm.name, arm.url, arm.model) == ("new", "http://h:1/v1", "m")
    assert arm.flags()["options"] == {"stream": False}
    assert arm.flags()["headers"] == {"X-A": "b"}
    assert arm.flags()["api_key_env"] == "KEY"


def test_a_bundled_arm_says_how_its_server_is_started() -> None:
    [arm], errors = read_arms(["a=bundled,model=scripted,ttft=60ms,fault=stall=at:5s,for:2s,max_batch=4"])
    assert errors == []
    assert arm.flags()["url"] is None
    assert arm.server.arguments() == ("--ttft", "60ms", "--fault", "stall=at:5s,for:2s", "--max-batch", "4")
    arms, errors = read_arms(["on=bundled,prefix_cache=true", "off=bundled,prefix_cache=false"])
    assert (errors, [arm.server.arguments() for arm in arms]) == ([], [("--prefix-cache",), ()])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://h:1", "no endpoint"),
        ("a=", "no endpoint"),
        ("a=h:1", "is not a URL"),
        ("a=http://u:pass-word@h:1", "user or password"),
        ("a=http://h:1,rate=5", "unknown key"),
        ("a=http://h:1,ttft=5ms", "of the bundled server"),
        ("a=bundled,max_batch=x", "not a whole number"),
        ("a b=bundled", "a b"),
        ("a=http://h:1,name=b", "name stands before"),
        ("a=http://h:1,foo.bar=1", "only option.NAME and header.NAME"),
        ("a=http://h:1,header.Authorization=Bearer abcdef-secret", "would put a secret into every report"),
    ],
)
def test_a_mistyped_arm_is_one_clear_error_that_repeats_no_secret(text: str, said: str) -> None:
    _, errors = read_arms([text])
    assert len(errors) == 1
    assert said in errors[0]
    assert "abcdef-secret" not in errors[0]
    assert "pass-word" not in errors[0]


def test_every_arm_is_looked_at_and_names_must_differ() -> None:
    _, errors = read_arms(["a=http://h:1", "a=http://h:2", "b=nope", "c=http://h:1,zz=1"])
    assert len(errors) == 3


# -- the file ------------------------------------------------------------------------------------------------


def test_the_starter_file_is_a_bakeoff_and_its_scenario_takes_its_load(tmp_path: Path) -> None:
    made = parse(read_document(STARTER, "starter"), "starter", tmp_path)
    assert [arm.name for arm in made.arms] == ["ours", "theirs"]
    contest = made.contest()
    assert [level.label for level in contest.levels] == ["rate-2", "rate-5", "rate-10"]
    scenario = find_scenario(contest.scenario, {**contest.flags, **contest.levels[0].flags})  # type: ignore[typeddict-item]
    assert (scenario.kind, format_duration(scenario.stop.min_duration_ns)) == ("server", "1m")


def test_loads_go_from_low_to_high_whatever_the_order_in_the_file() -> None:
    made = parse(TWO | {"sweep": {"concurrencies": [8, 1, 4]}}, "b.yaml")
    assert [level.flags["concurrency"] for level in made.contest().levels] == [1, 4, 8]


def test_without_a_sweep_there_is_one_load_the_scenarios_own() -> None:
    assert [level.label for level in parse(TWO, "b.yaml").contest().levels] == [""]


def test_limits_on_requests_may_stand_alone() -> None:
    assert parse(TWO | {"objectives": ["ttft <= 500ms"]}, "b.yaml").contest().asked.limits_alone


def test_what_a_name_may_be_is_said_in_words() -> None:
    _, said = read_arms(["x y=http://a:1"])
    assert said == ["--arm x y:name: is 'x y'. Use letters, digits, ., _ and -, and begin with a letter or a digit."]
    [said_of_options] = problems(HttpOptions, {"path": "v1"})
    assert said_of_options == "target.options.path: is 'v1'. A route begins with /. Write it like /v1/name"


def test_every_mistake_of_a_file_is_told_at_once() -> None:
    said = "\n".join(
        faults(
            repeats=0, sweep={"rates": [1, "x"]}, objectives=["p99(nope) <= 3ms"], metrics=["p99(zz)"],
            load={"url": "x"},
            tolerance=1.5, rounds=3, cooldown="long",
        )
    )  # fmt: skip
    for part in (
        "repeats",
        "sweep.rates[1]",
        "nope",
        "p99(zz)",
        "load: unknown: url",
        "tolerance",
        "rounds: unknown key",
        "cooldown",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arms": [{"name": "a", "url": "http://a:1"}]}, "arms"),
        ({"arms": [*TWO["arms"], {"name": "a", "url": "http://c:1"}]}, "two arms are named 'a'"),
        ({"arms": [TWO["arms"][0] | {"price_per_hour": 2.0}, TWO["arms"][1]]}, "price_per_hour is missing for b"),
        ({"arms": [TWO["arms"][0] | {"price_per_hour": -2.0}, TWO["arms"][1]]}, "price_per_hour"),
        ({"arms": [TWO["arms"][0] | {"concurrency": 3}, TWO["arms"][1]]}, "concurrency: unknown key"),
        ({"arms": [TWO["arms"][0] | {"headers": {"Authorization": "Bearer x"}}, TWO["arms"][1]]}, "secret"),
        ({"sweep": {"rates": [1], "concurrencies": [1]}}, "either rates or concurrencies"),
        ({"sweep": {}}, "either rates or concurrencies"),
        ({"sweep": {"rates": [1, 1.0]}}, "given twice"),
        ({"sweep": {"rates": [0]}}, "above 0"),
    ],
)
def test_what_would_make_an_unfair_or_empty_bakeoff_is_refused(changed: dict[str, Any], said: str) -> None:
    assert said in "\n".join(faults(**changed))


def test_a_file_that_is_missing_or_no_yaml_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match="cannot be read"):
        bakeoff.load(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_text("arms: [")
    with pytest.raises(HarnessFault, match="not YAML"):
        bakeoff.load(tmp_path / "b.yaml")


def test_the_documented_keys_are_those_of_the_file_and_of_an_arm() -> None:
    text = (Path(__file__).parents[3] / "docs/guide/compare.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    assert [key for key, _, _ in rows] == [field.alias or name for name, field in Bakeoff.model_fields.items()]
    [arms] = [meaning for key, _, meaning in rows if key == "arms"]
    assert set(re.findall(r"`(\w+)`", arms)) - {"bundled"} == set(Arm.model_fields)


def test_one_endpoint_is_no_bake_off() -> None:
    assert faults(arms=TWO["arms"][:1]) == [
        "b.yaml:arms: one endpoint has nobody to be ranked against. Give two or more."
    ]


def test_the_example_in_the_documentation_is_what_init_writes() -> None:
    example = Path(__file__).parents[3] / "docs" / "examples" / "bakeoff.yaml"
    assert example.read_text(encoding="utf-8") == STARTER


# -- a session ------------------------------------------------------------------------------------------------------

TTFT_MS = {"fast": 10.0, "same": 10.0, "slow": 40.0}


class Made(Protocol):
    def __call__(self, out: Path, unreachable: tuple[int, ...] = (), **changed: Any) -> Bakeoff: ...


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Makes a bake-off of three endpoints at two loads, five times, with the median TTFT above; the same runs are made
    once.
    """
    kept: dict[tuple[Any, ...], Path] = {}

    def make(out: Path, unreachable: tuple[int, ...] = (), **changed: Any) -> Bakeoff:
        bakeoff = parse(
            {
                "name": "three",
                "arms": [{"name": name, "url": f"http://{name}:1", "price_per_hour": 3.6} for name in TTFT_MS],
                "sweep": {"concurrencies": [1, 2]},
                "metrics": ["p50(ttft)"],
                **changed,
            },
            "b.yaml",
        )
        runs = (bakeoff.repeats, unreachable)
        if runs not in kept:
            kept[runs] = tmp_path_factory.mktemp("bakeoff")
            seal(kept[runs], bakeoff, unreachable)
        shutil.copytree(kept[runs], out, dirs_exist_ok=True)
        return bakeoff

    return make


def seal(out: Path, bakeoff: Bakeoff, unreachable: tuple[int, ...]) -> None:
    """The runs of a bake-off and their ledger."""
    labels = [level.label for level in bakeoff.contest().levels]
    plan = Interleaving(
        {}, tuple({"name": name} for name in TTFT_MS), tuple({"label": label} for label in labels), bakeoff.repeats,
        "2s",
        slots(tuple(TTFT_MS), labels, bakeoff.repeats, 1),
    )  # fmt: skip
    for slot in plan.slots:
        if slot.number in unreachable:
            plan = plan.marked(replace(slot, state="unreachable", error="connection refused"))
            continue
        sealed_run(out / slot.folder, TTFT_MS[slot.arm], seed=slot.seed)
        plan = plan.marked(replace(slot, state="done", outcome="PASS"))
    interleave.save(out, plan)


def test_endpoints_that_can_not_be_told_apart_share_a_tier_and_the_slow_one_does_not(
    made: Made, tmp_path: Path
) -> None:
    baked = judge(made(tmp_path), tmp_path)
    assert baked.deciding == 1
    assert baked.exit_code == 0
    [ranking] = baked.levels[1].rankings
    assert [set(tier) for tier in ranking.tiers] == [{"fast", "same"}, {"slow"}]
    assert baked.levels[1].passed == (5, 5, 5)


def test_tiers_and_differences_of_one_page_come_from_one_test(made: Made, tmp_path: Path) -> None:
    for metrics in (["p50(ttft)"], ["p50(ttft)", "p99(ttft)", "rate(ok)", "ratio(error)"]):
        level = judge(made(tmp_path / str(len(metrics)), metrics=metrics), tmp_path / str(len(metrics))).levels[0]
        seen = {
            (level.arms[0].name, result.name, str(effect.quantity)): (
                effect.outcome,
                effect.interval,
                effect.adjusted_p,
            )
            for result in level.comparison.candidates
            for effect in result.effects
        }
        paired = {
            (pair.first, pair.second, str(ranking.quantity)): (pair.outcome, pair.interval, pair.adjusted_p)
            for ranking in level.rankings
            for pair in ranking.pairings
        }
        assert len(seen) == 2 * len(metrics)
        assert seen == {key: paired[key] for key in seen}
        # Three arms are three pairs: a page of one metric holds for all of them together, one of four for all four.
        assert {result.family for result in level.comparison.candidates} == {max(3, len(metrics))}


def test_with_too_few_runs_nobody_wins_and_the_exit_code_says_so(made: Made, tmp_path: Path) -> None:
    baked = judge(made(tmp_path, repeats=2), tmp_path)
    assert baked.exit_code == 3
    assert baked.levels[1].rankings[0].runs_needed > 2


def test_a_load_at_which_an_endpoint_was_gone_ranks_nobody(made: Made, tmp_path: Path) -> None:
    bakeoff = made(tmp_path, unreachable=(4,))  # the first run at the second load
    baked = judge(bakeoff, tmp_path)
    assert [level.sound for level in baked.levels] == [True, False]
    assert baked.deciding == 0
    assert baked.levels[1].comparison.outcome in ("INVALID", "REGRESSION")


def test_when_no_load_is_sound_the_bakeoff_is_invalid(made: Made, tmp_path: Path) -> None:
    baked = judge(made(tmp_path, unreachable=(1, 4)), tmp_path)
    assert (baked.deciding, baked.exit_code) == (None, 4)


def test_a_million_is_priced_for_every_endpoint_and_both_charts_show_every_load(made: Made, tmp_path: Path) -> None:
    baked = judge(made(tmp_path), tmp_path)
    costs = baked.levels[0].costs
    assert {(cost.name, cost.per) for cost in costs} == {
        (name, per) for name in TTFT_MS for per in ("output_tokens", "requests", "good_requests")
    }
    assert all(cost.value == pytest.approx(3.6 / 3600 * 1e6 / cost.per_s) for cost in costs)
    assert [front.title for front in baked.fronts] == ["Throughput against interactivity", "Goodput against load"]
    assert all(len(front.points) == 6 for front in baked.fronts)
    for point in baked.fronts[1].points:  # at another load nobody is beaten
        assert not point.dominated_by or point.dominated_by.split()[1] == point.name.split()[1]


def test_throughput_is_by_accelerator_where_every_arm_says_how_many_it_has(made: Made, tmp_path: Path) -> None:
    one = judge(made(tmp_path / "one"), tmp_path / "one").fronts[0]
    arms = [{"name": name, "url": f"http://{name}:1", "gpus": 4} for name in TTFT_MS]
    four = judge(made(tmp_path / "four", arms=arms), tmp_path / "four").fronts[0]
    assert "per accelerator" in four.y_name
    assert "per accelerator" not in one.y_name
    assert four.points[0].y == pytest.approx(one.points[0].y / 4)


def test_every_load_has_its_page_and_the_whole_is_one_document(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bakeoff = made(tmp_path)
    assert bake_off(bakeoff, Session(tmp_path, as_json=True), again=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "bakeoff.json").read_text())
    assert (printed["schema"], printed["deciding_level"]) == ("plimsoll.bakeoff/1", "concurrency-2")
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"comparison-concurrency-{n}.{kind}" for n in (1, 2) for kind in ("json", "html")} <= names
    assert "three, ranked at concurrency-2" in (tmp_path / "bakeoff.html").read_text()


def test_the_tables_name_tiers_and_loads(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bake_off(made(tmp_path), Session(tmp_path), again=True) == 0
    said = capsys.readouterr().out
    assert "concurrency-1" in said
    assert "5 of 5" in said
    assert "fast, same: indistinguishable by p50(ttft)" in said


def test_an_arm_with_dashes_says_why_and_no_head_breaks_within_a_word(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = ["p50(ttft)", "p99(ttft)", "rate(output_tokens)"]
    bakeoff = made(tmp_path, metrics=metrics)
    slot = next(
        slot for slot in interleave.read(tmp_path).slots if slot.arm == "slow" and slot.level == "concurrency-1"
    )
    facts = tmp_path / slot.folder / "generator.json"
    held = json.loads(facts.read_text())
    held["facts"]["worker_faults"] = ["worker 0 died"]
    facts.write_text(json.dumps(held))
    bake_off(bakeoff, Session(tmp_path), again=True)
    said = capsys.readouterr().out
    assert "concurrency-1, slow: run " in said
    assert "is invalid" in " ".join(said.split())  # the path before it may break the line anywhere
    assert "worker 0 died" in said
    page = (tmp_path / "bakeoff.html").read_text()
    assert "concurrency-1, slow: run " in page, "the page is silent about the run that does not count"
    assert "worker 0 died" in page
    points = [
        point["name"]
        for front in json.loads((tmp_path / "bakeoff.json").read_text())["fronts"]
        for point in front["points"]
    ]
    assert len(points) == 10
    assert "slow concurrency-1" not in points, "drawn from an INVALID run"
    for word in ("(output_tokens)", "(ttft)"):
        assert word in said


def test_flags_that_do_not_go_together_are_told_at_once(made: Made, tmp_path: Path) -> None:
    with pytest.raises(HarnessFault) as caught:
        bake_off(made(tmp_path), Session(None, ["x=y"], resume=True), again=True)
    assert len(caught.value.errors) == 3


def test_runs_of_other_endpoints_or_loads_are_not_judged_by_this_file(made: Made, tmp_path: Path) -> None:
    made(tmp_path / "there")
    other = parse(
        {"arms": [{"name": "x", "url": "http://x:1"}, {"name": "y", "url": "http://y:1"}], "sweep": {"rates": [1]}}, "b"
    )
    with pytest.raises(HarnessFault) as caught:
        judge(other, tmp_path / "there")
    assert [text.split(": ", 1)[1].split(" there")[0] for text in caught.value.errors] == [
        "arms fast, same, slow", "loads concurrency-1, concurrency-2",
    ]  # fmt: skip
    with pytest.raises(HarnessFault, match=r"holds no interleave\.json"):
        judge(other, tmp_path / "nowhere")


def test_a_bake_off_at_several_loads_is_no_interleaved_comparison(made: Made, tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(HarnessFault, match="bake-off at the loads concurrency-1, concurrency-2"):
        of_interleaving(tmp_path)


def test_a_bake_off_is_a_document_of_its_own_in_every_format(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["plimsoll", "bakeoff", "my file.yaml"])
    out = tmp_path / "out"
    formats = ("annotations", "csv", "html", "json", "junit", "markdown", "text")
    given = [f"{name}={tmp_path / name}" for name in formats]
    assert bake_off(made(out), Session(out, given, as_json=True), again=True) == 0
    for name in ("csv", "html", "markdown", "text"):
        assert "5 of 5" in (tmp_path / name).read_text(), name
        assert "concurrency-1" in (tmp_path / name).read_text(), name
    whole = json.loads((tmp_path / "json").read_text())
    assert whole == json.loads((out / "bakeoff.json").read_text())
    assert whole["schema"] == "plimsoll.bakeoff/1"
    assert whole["command"] == "plimsoll bakeoff 'my file.yaml'"
    assert {"rankings", "candidates", "costs", "title", "outcome", "base", "arms"} <= set(whole), "what scripts read"
    assert [level["passed"]["slow"] for level in whole["levels"]] == [5, 5]
    root = ET.fromstring((tmp_path / "junit").read_text())
    assert root.get("name") == "plimsoll bakeoff"
    assert [case.get("name") for case in root.findall(".//testcase")] == ["ranking by p50(ttft)"]
    assert '<span class="stamp">bakeoff · <time datetime="' in (tmp_path / "html").read_text()


def test_a_bake_off_without_a_load_to_rank_at_is_invalid_in_every_format(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = [f"{name}={tmp_path / name}" for name in ("junit", "text")]
    assert bake_off(made(out, unreachable=(1, 4)), Session(out, given, as_json=True), again=True) == 4
    assert ET.fromstring((tmp_path / "junit").read_text()).get("errors") == "1"
    assert "INVALID" in (tmp_path / "text").read_text().splitlines()[0]


def test_a_name_of_a_bake_off_steers_no_terminal(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    given = [f"{name}={tmp_path / name}" for name in ("annotations", "csv", "html", "junit", "markdown", "text")]
    assert bake_off(made(out, name="bo|<b>x</b> \x1b[31m"), Session(out, given), again=True) == 0
    shown = [capsys.readouterr().out, *(Path(one.partition("=")[2]).read_text() for one in given)]
    shown += [path.read_text() for path in out.glob("*.html")]
    assert not [text for text in shown if "\x1b" in text]
