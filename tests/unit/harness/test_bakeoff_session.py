"""A bake-off whose runs are made: ranked in tiers at a load that means something, priced, charted. Nothing is sent."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.bakeoff_file import Bakeoff, parse
from plimsoll.harness.series.comparison.bakeoff_session import bake_off, judge
from plimsoll.harness.series.comparison.interleave import Interleaving, slots
from plimsoll.harness.series.comparison.replications import of_interleaving
from plimsoll.harness.series.ledger import Session
from tests.unit.harness.sealed_runs import sealed_run

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
