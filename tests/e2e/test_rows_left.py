"""Rows that stay with the agents: the verdict comes of what they answer, and the rows come together afterwards."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.distributed import left
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Asked, again, kept
from plimsoll.harness.run.rundir import BEGUN, open_sealed
from plimsoll.harness.run.salvage import gathered, open_run
from plimsoll.reports.report import Report
from plimsoll.scenarios.flags import Flags
from tests.fleet_over_pipes import NULL, AgentOverPipe, BridgeOverPipes, during, run

SLO = ("p99(latency) <= 10s", "p50(ttft) <= 10s", "ratio(error) <= 5%", "rate(ok) >= 1/s")
LOAD: Flags = {**NULL, "rate": 400.0, "duration": 2.0}
#: What is estimated from parts otherwise than from rows, and what only rows can tell.
OTHERWISE = {"design_effect", "arrivals", "checks", "interval", "p_pass", "p_fail", "reason", "n_needed", "sentence"}


def agents(path: Path) -> tuple[AgentOverPipe, AgentOverPipe]:
    return AgentOverPipe("a", 2, out=path / "a"), AgentOverPipe("b", out=path / "b")


def folders(path: Path) -> list[Path]:
    return [next((path / name).iterdir()) for name in "ab"]


def figures(report: Report) -> dict[str, Any]:
    """What a report of parts has, without what is estimated otherwise."""
    found = report.document()
    kept = {name: found[name] for name in ("metrics", "histograms", "counts", "throughput", "validity", "verdict")}

    def without(one: Any) -> Any:
        if isinstance(one, dict):
            return {name: without(value) for name, value in one.items() if name not in OTHERWISE}
        if isinstance(one, float):
            return float(f"{one:.12g}")  # a sum of fractions has another last digit in another order
        return [without(value) for value in one] if isinstance(one, list) else one

    return dict(without(kept))


def test_a_verdict_of_parts_is_that_of_the_rows_once_they_are_together(tmp_path: Path) -> None:
    with BridgeOverPipes(*agents(tmp_path)) as bridge:
        ran = run(tmp_path, bridge, LOAD, leave=True, slo=SLO)
        assert not {"piece"} & {*bridge.agents["a"].seen[: bridge.agents["a"].seen.index("sealed")]}, "rows came home"
    assert len(ran.records) == 0
    assert not {"requests.parquet", "segments", "begun.json", "worker.log"} & {path.name for path in ran.path.iterdir()}
    alone = [open_run(folder) for folder in folders(tmp_path)]
    assert [judge(one, kept(one)).validity.outcome for one in alone] == ["VALID", "VALID"], "a part is no run"
    sealed = open_sealed(gathered(ran.path, folders(tmp_path), None))
    together = judge(sealed, kept(sealed))
    assert sealed.directory.path == tmp_path / "run-with-agents"
    assert len(sealed.records) == sum(len(one.records) for one in alone) > 500
    assert together.verdict.outcome == ran.report.verdict.outcome == "PASS"
    mine, whole = figures(ran.report), figures(together)
    whole["metrics"] = {name: whole["metrics"][name] for name in mine["metrics"]}
    whole["histograms"] = {name: whole["histograms"][name] for name in mine["histograms"]}
    assert {"latency", "ttft", "lag", "generator_lag"} <= mine["metrics"].keys()
    assert mine == whole
    assert (tmp_path / "run-with-agents" / "intervals.hlog").is_file()


def test_a_run_whose_rows_are_away_says_its_verdict_again_and_nothing_else(tmp_path: Path) -> None:
    with BridgeOverPipes(*agents(tmp_path)) as bridge:
        ran = run(tmp_path, bridge, LOAD, leave=True, slo=SLO)
    sealed = open_run(ran.path, left=True)
    assert judge(sealed, kept(sealed)) == ran.report
    promises, _ = again(Asked(["p50(latency) <= 1ms"]), sealed)
    for asked in (lambda: judge(sealed, promises), lambda: open_run(ran.path)):
        with pytest.raises(HarnessFault, match=r"rows of this run stayed with its agents \(.*--agent-folder"):
            asked()
    a, b = folders(tmp_path)
    with pytest.raises(HarnessFault, match="rows of agent b are not among these"):
        gathered(ran.path, [a], None)
    with pytest.raises(HarnessFault, match="another folder has its rows too"):
        gathered(ran.path, [a, b, a / ".." / a.name], None)
    with pytest.raises(HarnessFault, match="no agent left it"):
        gathered(ran.path, [a, b, gathered(ran.path, [a, b], tmp_path / "whole")], None)
    told = json.loads((b / "generator.json").read_text())
    told["columns"]["due_ns"] = "0"
    (b / "generator.json").write_text(json.dumps(told))
    with pytest.raises(HarnessFault, match="not as it was sealed"):
        gathered(ran.path, [a, b], tmp_path / "changed")
    (ran.path / "parts.json").write_bytes((ran.path / "parts.json").read_bytes().replace(b"PASS", b"FAIL"))
    with pytest.raises(HarnessFault, match=r"parts\.json is not the one that was sealed"):
        open_run(ran.path, left=True)


@pytest.mark.parametrize("asked", [True, False], ids=["as it is asked", "on the way"])
def test_an_agent_that_is_lost_makes_the_run_invalid_and_its_rows_come_from_its_disk(
    asked: bool, tmp_path: Path
) -> None:
    one, other = agents(tmp_path)

    def die() -> None:
        assert other.process is not None
        os.kill(other.process.pid, signal.SIGKILL)

    def at_the_fifth(message: dict[str, Any]) -> dict[str, Any]:
        if message["type"] == "ask" and message["file"] == "answer-5":
            die()
        return message

    with BridgeOverPipes(one, other) as bridge:
        if asked:
            other.down = at_the_fifth
        else:
            during(1.5, other, die)
        ran = run(tmp_path, bridge, LOAD, leave=True, slo=SLO)
    assert ran.report.verdict.outcome == "INVALID"
    assert "agent b" in ran.reasons
    assert 0 < ran.report.counts.ok < ran.report.validity.planned, "the others' rows were judged"
    sealed = open_sealed(gathered(ran.path, folders(tmp_path), None))
    assert len(sealed.records.measured()) == sealed.facts.planned == ran.report.validity.planned
    assert sealed.records.ok.sum() > ran.report.counts.ok, "the rows on its disk are missing"
    assert judge(sealed, kept(sealed)).verdict.outcome == "INVALID"
    assert sealed.records.ok.all() == asked, "what it had not recorded counts as unfinished or not sent"


def test_where_all_are_lost_as_they_are_asked_the_run_is_invalid_and_comes_together_all_the_same(
    tmp_path: Path,
) -> None:
    pair = agents(tmp_path)

    def ends(message: dict[str, Any]) -> dict[str, Any]:
        if message["type"] == "ask":
            for one in pair:
                assert one.process is not None
                one.process.kill()
        return message

    pair[1].down = ends
    with BridgeOverPipes(*pair) as bridge:
        ran = run(tmp_path, bridge, LOAD, leave=True, slo=SLO)
    assert (ran.report.verdict.outcome, ran.report.counts.ok) == ("INVALID", 0)
    assert "as it was asked" in ran.reasons
    sealed = open_sealed(gathered(ran.path, folders(tmp_path), None))
    assert sealed.records.ok.all()
    assert len(sealed.records.measured()) == ran.report.validity.planned
    b = open_sealed(gathered(ran.path, folders(tmp_path)[1:], tmp_path / "half"))
    assert "gave no account" in "".join(b.facts.account_faults), "of a lost agent the disk may be gone"


def test_rows_that_no_question_can_judge_are_whole_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuses(*_: object) -> None:
        raise ValueError("not judged where rows stay with the agents: sessions of speech. Bring the rows home")

    monkeypatch.setattr(left, "judge_parts", refuses)
    with BridgeOverPipes(*agents(tmp_path)) as bridge, pytest.raises(HarnessFault, match="sessions of speech") as fault:
        run(tmp_path, bridge, LOAD, leave=True, slo=SLO)
    assert fault.value.code == ExitCode.INVALID
    assert "seals it" not in capfd.readouterr().err, "a report of the master's folder alone has no rows"
    with pytest.raises(HarnessFault, match="its rows stayed with its agents"):
        open_run(tmp_path / "run")
    begun = json.loads((tmp_path / "run" / BEGUN).read_text())
    begun["process"]["started"] = "another boot"  # this process is the coordinator, and lives
    (tmp_path / "run" / BEGUN).write_text(json.dumps(begun))
    sealed = open_run(gathered(tmp_path / "run", folders(tmp_path), None))
    assert len(sealed.records.measured()) == sealed.facts.planned > 500
    assert "before the run was judged" in str(sealed.facts.cut_off)
    assert (sealed.facts.account_faults, sealed.facts.agents) == ((), 2)


def test_a_closed_loop_is_left_and_comes_together_too(tmp_path: Path) -> None:
    flags: Flags = {"protocol": "null", "kind": "concurrency", "concurrency": 6, "queries": 600, "seed": 7}
    with BridgeOverPipes(*agents(tmp_path)) as bridge:
        ran = run(tmp_path, bridge, flags, leave=True, slo=SLO)
    sealed = open_sealed(gathered(ran.path, folders(tmp_path), None))
    together = judge(sealed, kept(sealed))
    assert [one.counts.ok for one in (ran.report, together)] == [600, 600]
    assert [one.validity.outcome for one in (ran.report, together)] == ["VALID", "VALID"]
    assert ran.report.metrics["latency"] == together.metrics["latency"]
