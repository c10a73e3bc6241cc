"""A distributed run that loses somebody, or whose user has had enough: what was measured stays, and nobody goes on
alone.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.segments import read_segments
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.run.salvage import gathered, open_run
from plimsoll.scenarios.flags import Flags
from plimsoll.slo.records.records import Status
from tests.e2e.test_accuracy import answering, questions
from tests.fleet_over_pipes import NULL, AgentOverPipe, BridgeOverPipes, during, run


def test_an_agent_that_is_killed_leaves_what_it_had_handed_over_and_the_run_is_invalid(tmp_path: Path) -> None:
    flags: Flags = {**NULL, "duration": 3.0}
    victim = AgentOverPipe("a2", kept_in=tmp_path)
    with BridgeOverPipes(AgentOverPipe("a1"), victim) as bridge:
        during(2.5, victim, lambda: os.kill(victim.process.pid, signal.SIGKILL))  # type: ignore[union-attr]
        ran = run(tmp_path, bridge, flags)
    assert ran.report.validity.outcome == "INVALID"
    assert "agent a2" in ran.reasons
    assert "s after t0" in ran.reasons
    by_worker = ran.records["worker"]
    of_dead = ran.records.select(by_worker == 1)
    assert (of_dead.ok & (of_dead["done_ns"] < 1_000_000_000)).sum() > 50, "a sealed segment was lost"
    assert {*np.unique(of_dead["status"]).tolist()} == {Status.OK, Status.UNFINISHED, Status.UNSENT}
    folder = next(tmp_path.glob("plimsoll-agent-*"))
    assert str(folder) in ran.reasons, "the reason says where the rest is"
    assert read_segments([folder / "segments"])[0]
    more = gathered(ran.path, [folder], None)
    assert more == ran.path.with_name("run-with-agents")
    again = open_sealed(more)
    assert again.records.ok.sum() >= ran.records.ok.sum(), "a row was lost on its way home"
    assert len(again.records.measured()) == ran.report.validity.planned
    assert "brought from the folders of agents" in "".join(again.facts.worker_faults)
    of_living = ran.records.select(by_worker == 0)
    assert of_living.ok.all(), "the other agent did not go on"
    assert len(ran.records.measured()) == ran.report.validity.planned


def test_a_site_whose_relay_is_gone_stops_and_keeps_its_rows(tmp_path: Path) -> None:
    flags: Flags = {**NULL, "duration": 30.0}
    cut_off, began = AgentOverPipe("a1", kept_in=tmp_path), time.monotonic()
    with BridgeOverPipes(cut_off) as bridge:
        during(1.8, cut_off, lambda: cut_off.process.stdin.close())  # type: ignore[union-attr]
        ran = run(tmp_path, bridge, flags)
        assert cut_off.process is not None
        assert cut_off.process.wait(10) == ExitCode.INTERRUPTED
    assert time.monotonic() - began < 20, "it went on without its master"
    assert "the master is gone: stopping" in "\n".join(cut_off.errors)
    said = next(text for text in cut_off.errors if "rows that the master may not have are in " in text)
    folder = Path(said.rpartition(" ")[2].rstrip("`"))
    parts, unreadable = read_segments([folder / "segments"])
    assert not unreadable
    assert sum(map(len, parts)) > 100
    assert "a1" in ran.reasons
    begun = json.loads((folder / "begun.json").read_text())
    assert (begun["agent"], begun["mine"], begun["announced"]) == ("a1", [0], True)
    alone = open_run(gathered(None, [folder], tmp_path / "alone"))
    assert "agent a1 (pid " in str(alone.facts.cut_off)
    assert alone.records.ok.sum() == sum(int(part.ok.sum()) for part in parts)
    assert alone.manifest["run_id"] == ran.manifest["run_id"]
    assert folder.is_dir(), "what is on the agent's disk stays there"


def test_ctrl_c_at_the_master_ends_the_queries_everywhere_and_keeps_what_was_measured(tmp_path: Path) -> None:
    flags: Flags = {**NULL, "duration": 30.0}
    agent = AgentOverPipe("a1", 2)
    with BridgeOverPipes(agent) as bridge:
        during(1.5, agent, lambda: os.kill(os.getpid(), signal.SIGINT))
        ran = run(tmp_path, bridge, flags)
    assert ran.interrupted
    assert "the run was interrupted before its end: " in ran.reasons
    sent = ran.records.select(ran.records["sent_ns"] != -1)
    assert sent.ok.all()
    assert 100 < len(sent) < 1000
    assert "agent" not in ran.reasons, "nobody was lost"
    assert agent.process is not None
    assert agent.process.returncode == 0


def test_answers_of_an_accuracy_run_come_home_too(tmp_path: Path) -> None:
    with answering() as url, BridgeOverPipes(AgentOverPipe("a1"), AgentOverPipe("a2")) as bridge:
        run(tmp_path, bridge, {"url": url}, scenario=questions(tmp_path, 40))
    rows = pq.read_table(tmp_path / "run" / "outputs.parquet").to_pylist()
    assert sorted(row["payload_ix"] for row in rows) == list(range(40))
    assert all(row["text"] in row["expected"] for row in rows)
