"""A distributed run with real sites in processes of their own, over plain pipes: one schedule, and every misfortune
told.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Promises
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.reports.parts.measures import measures
from plimsoll.slo.records.records import Records
from plimsoll.slo.statistics.distribution import decode, merge
from tests import hdr_log
from tests.fleet_over_pipes import AgentOverPipe, BridgeOverPipes, Clock, during, run


def schedule(records: Records) -> list[tuple[int, ...]]:
    names = ("query_id", "sample_ix", "due_ns", "payload_ix")
    return sorted(zip(*(records.measured()[name].tolist() for name in names), strict=True))


def test_one_two_and_five_agents_send_the_same_queries_at_the_same_times(tmp_path: Path) -> None:
    """Of the five, one damages a piece on its way, which is sent again: nothing is missing."""
    found = []
    damaged: list[str] = []

    def damage(message: dict[str, Any]) -> dict[str, Any]:
        if message["type"] == "piece" and not damaged:
            damaged.append(message["file"])
            return {**message, "data": message["data"][:-8] + "AAAAAAAA"}
        return message

    for agents, workers in ((1, 2), (2, 1), (5, 1)):
        with BridgeOverPipes(*(AgentOverPipe(f"a{n}", workers) for n in range(agents))) as bridge:
            if agents == 5:
                bridge.agents["a2"].up = damage
            ran = run(tmp_path, bridge, name=f"of-{agents}", slo=("each agent: max(latency) <= 10s",))
        found.append(schedule(ran.records))
        assert ran.records.ok.all()
        assert len(ran.records) == ran.report.validity.planned
        assert not [check for check in ran.report.validity.checks if check.name == "workers" and not check.ok]
        assert len({*ran.records["worker"].tolist()}) == agents * workers
        assert [agent["name"] for agent in ran.manifest["agents"]] == [f"a{n}" for n in range(agents)]
        assert max(agent.longest for agent in bridge.agents.values()) <= 256 * 1024
        assert f"{agents} agents, the clock of each known to within" in str(
            [check.seen for check in ran.report.validity.checks]
        )
        told = ran.report.verdict.objectives
        assert {one.where: one.outcome for one in told} == {f"{{agent=a{n}}}": "PASS" for n in range(agents)}
        assert sum(one.n for one in told) == len(ran.records)
        assert ran.report.by is None, "the section on agents has them, unless they are asked for"
        by = judge(open_sealed(ran.path), Promises(), ["agent"]).by
        assert by is not None
        assert sum(group.requests for group in by["agent"].values()) == len(ran.records)
        log = hdr_log.read((ran.path / "intervals.hlog").read_text())
        of_records = decode(measures(ran.records).histograms["latency"])[0]
        assert np.array_equal(merge([i.counts for i in log.intervals if i.tag == "latency"]), of_records)
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 100
    assert damaged


def test_a_clock_that_is_elsewhere_is_corrected_and_one_that_drifts_makes_the_run_invalid(tmp_path: Path) -> None:
    agents = (
        AgentOverPipe("far", clock=Clock(ahead_ns=-86_400_000_000_000)),
        AgentOverPipe("fast", clock=Clock(0, 0.02)),
    )
    with BridgeOverPipes(*agents) as bridge:
        ran = run(tmp_path, bridge)
    assert ran.report.validity.outcome == "INVALID"
    assert "the clock of agent fast" in ran.reasons
    assert "limit" in ran.reasons
    assert "agent far" not in ran.reasons
    far = next(agent for agent in ran.manifest["agents"] if agent["name"] == "far")
    assert abs(far["clock"]["offset_ns"] + 86_400_000_000_000) <= far["clock"]["error_ns"]
    sent_after = ran.records["sent_ns"] - ran.records["due_ns"]
    assert int(np.median(sent_after)) < 100_000_000


def _namespaces() -> bool:
    try:
        return not subprocess.run(
            ["unshare", "-T", "-r", "--monotonic", "1000", "true"], capture_output=True, check=False
        ).returncode
    except OSError:
        return False


@pytest.mark.skipif(not _namespaces(), reason="this host has no time namespaces for us")
def test_a_host_whose_monotonic_clock_began_elsewhere_begins_when_the_others_do(tmp_path: Path) -> None:
    """The kernel's own offset: stamps of its relay and its site are 1,000 s ahead, and the run is as any other."""
    ahead = AgentOverPipe(
        "ahead", clock=Clock(1_000_000_000_000), wrapper=["unshare", "-T", "-r", "--monotonic", "1000"]
    )
    ahead.down = lambda message: (
        {**message, "t0_ns": message["t0_ns"] + 1_000_000_000_000} if message["type"] == "go" else message
    )
    with BridgeOverPipes(AgentOverPipe("here"), ahead) as bridge:
        ran = run(tmp_path, bridge)
    lag = ran.records["sent_ns"] - ran.records["due_ns"]
    for worker in (0, 1):
        assert abs(int(np.median(lag[ran.records["worker"] == worker]))) < 100_000_000
    assert ran.records.ok.all()


def test_who_is_not_as_the_master_is_is_refused_with_the_reason_and_the_others_run(tmp_path: Path) -> None:
    refused, begun = threading.Event(), threading.Event()

    def claiming(after: threading.Event | None = None, **what: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def change(message: dict[str, Any]) -> dict[str, Any]:
            assert after is None or after.wait(20)
            return {**message, **what} if message["type"] == "hello" else message

        return change

    def noticed(message: dict[str, Any]) -> dict[str, Any]:
        refused.set()
        return message

    agents = (
        AgentOverPipe("old", up=claiming(version="0.0.9")),
        AgentOverPipe("patched", up=claiming(code="f" * 64)),
        AgentOverPipe("tomorrow", clock=Clock(wall_ahead_ns=86_400_000_000_000), down=noticed),
        AgentOverPipe("twin-a", up=claiming(refused, name="twin")),
        AgentOverPipe("twin-b", up=claiming(refused, name="twin")),
    )
    late = AgentOverPipe("late", up=claiming(begun))
    for twin in agents[3:]:
        during(0.0, twin, begun.set)
    with BridgeOverPipes(*agents, late) as bridge:
        ran = run(tmp_path, bridge, expected=1)
    assert ran.report.validity.planned > 100
    reasons = {one["agent"].partition(" ")[0]: one["reason"] for one in ran.manifest["refused_agents"]}
    assert "Plimsoll 0.0.9" in reasons["old"]
    assert "other code" in reasons["patched"]
    assert "86400.0 s ahead" in reasons["tomorrow"]
    assert "another agent is called twin" in reasons["twin"] or "too late" in reasons["twin"]
    assert "too late" in reasons["late"]
    assert "the master refused this agent: it came too late" in "\n".join(late.errors)
    assert len(ran.manifest["agents"]) == 1


def test_nothing_begins_where_an_agent_is_missing_has_other_data_or_cannot_reach_the_endpoint(tmp_path: Path) -> None:
    def other_data(message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "payloads": "0" * 64} if message["type"] == "ready" else message

    def elsewhere(message: dict[str, Any]) -> dict[str, Any]:
        if message["type"] == "plan":
            message["scenario"]["target"] |= {"protocol": "openai-chat", "url": "http://127.0.0.1:9"}
        return message

    agents = (AgentOverPipe("here"), AgentOverPipe("stale", up=other_data))
    with BridgeOverPipes(*agents) as bridge, pytest.raises(HarnessFault) as fault:
        run(tmp_path, bridge, name="data")
    assert [error for error in fault.value.errors if "agent stale" in error and "other data" in error]
    assert len(fault.value.errors) == 1

    agents = (AgentOverPipe("here"), AgentOverPipe("walled", down=elsewhere))
    with BridgeOverPipes(*agents) as bridge, pytest.raises(HarnessFault) as fault:
        run(tmp_path, bridge, name="walled")
    assert fault.value.code == ExitCode.UNREACHABLE
    assert "agent walled" in fault.value.errors[0]
    assert "cannot connect to http://127.0.0.1:9" in fault.value.errors[0]
    assert "Nothing was sent" in fault.value.errors[0]
