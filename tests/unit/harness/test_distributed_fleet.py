"""The master of a distributed run against scripted agents in its own process: what it waits for, refuses, notices and
says.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.distributed import agents
from plimsoll.harness.distributed.fleet import Fleet
from plimsoll.harness.distributed.fleet_messages import cut, pong
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.generator.recorder import FRESH
from plimsoll.harness.generator.segments import dump_segment, read_segments
from plimsoll.harness.host.manifest import package_version
from plimsoll.harness.run.coordinator import ended
from plimsoll.harness.run.progress import Progress, Snapshot
from plimsoll.harness.run.rundir import RunDirectory, seal
from plimsoll.harness.run.watcher import Beginning
from plimsoll.harness.sealing.accounts import planned
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.plan.blocks import Survey
from plimsoll.scenarios.samples.payload import payload_digest
from plimsoll.scenarios.spec import with_flags
from plimsoll.slo.records.records import from_columns
from tests import hdr_log

SCENARIO = with_flags(None, protocol="null", rate=50.0, duration=1.0, seed=1)
PLAN: Survey = SCENARIO.blocks(len(SCENARIO.source_object())).survey()
PAYLOADS = payload_digest(SCENARIO.source_object())

#: A worker's last message, in which nothing happened.
DONE: Mapping[str, Any] = {
    "type": "done",
    "aborted": None,
    "max_duration_hit": False,
    "faults": [],
    "disk_notes": [],
    "folders": [],
    "account": {"sent": 0, "rows": 0, "digest": 0, "segments": 0, "unwritten": []},
    "max_rss_kb": 1,
    "cpu": 0.1,
    "client": {},
}

#: What an agent does otherwise than it should: message type -> answers (None: as usual).
Odd = Mapping[str, Callable[["Agents", str, Mapping[str, Any]], list[dict[str, Any]] | None]]


class Agents:
    """A bridge with agents that answer at once."""

    def __init__(self, *names: str, workers: int = 1, odd: Mapping[str, Odd] | None = None, ahead_ns: int = 0) -> None:
        self.names = names
        self.heard: list[tuple[str, Mapping[str, Any]]] = []
        self._workers = workers
        self._odd = odd or {}
        self._queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._mine: dict[str, list[int]] = {}
        self.ahead_ns = ahead_ns
        for name in names:
            self.joins(name)

    def joins(self, name: str, **what: Any) -> None:
        hello = {"version": package_version(), "code": agents.code_digest(), "workers": self._workers}
        self.event(event="joined", agent=name)
        self.up(name, {"type": "hello", "name": name, "host": {"hostname": f"host-{name}"}, **hello, **what})

    def up(self, name: str, message: dict[str, Any]) -> None:
        self._queue.put_nowait({"from": name, "message": message})

    def event(self, **event: Any) -> None:
        self._queue.put_nowait(event)

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def hear(self) -> Mapping[str, Any] | None:
        return await self._queue.get()

    def say(self, line: Mapping[str, Any]) -> None:
        name, message = line["to"], line["message"]
        kind = message["type"]
        self.heard.append((name, message))
        odd = self._odd.get(name, {}).get(kind)
        answers = odd(self, name, message) if odd is not None else None
        for answer in self._answers(name, message) if answers is None else answers:
            self.up(name, answer)

    def _answers(self, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        kind = message["type"]
        if kind == "ping":
            return [pong(message, time.monotonic_ns() + self.ahead_ns, time.time_ns())]
        if kind == "plan":
            self._mine[name] = message["mine"]
            prints = {str(shard): PLAN.fingerprint for shard in message["mine"]}
            return [{"type": "ready", "fingerprints": prints, "payloads": PAYLOADS, "folder": f"/tmp/of-{name}"}]
        if kind == "go":
            return [self.finished(name)]
        return []

    def finished(self, name: str) -> dict[str, Any]:
        done = {str(shard): dict(DONE) for shard in self._mine[name]}
        return {"type": "finished", "done": done, "deaths": {}, "died_ns": {}, "cpu_s": 0.5}

    def said(self, kind: str) -> list[tuple[str, Mapping[str, Any]]]:
        return [(name, message) for name, message in self.heard if message["type"] == kind]


class Led:
    """A fleet that was led through a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "segments"
        self.folder.mkdir()
        self.notices: list[str] = []
        self.statuses: list[tuple[int, Mapping[str, Any]]] = []

    async def lead(
        self, agents: Agents, expected: int, after_go: Callable[[], None] = lambda: None, silence_s: float = 15.0
    ) -> Fleet:
        fleet = Fleet(agents, expected, patience_s=0.05, silence_s=silence_s, lead_ns=0)
        shards = await fleet.gather(PLAN, 1, self.notices.append)
        base = {"scenario": SCENARIO.to_mapping(), "where": "test", "run_id": "r", "shards": shards, "dealing": "lots"}
        base |= {"segments": str(self.folder), "target": {"url": "http://127.0.0.1:1", "model": ""}}
        await fleet.start([{**base, "shard": shard} for shard in range(shards)], None, self._heard)
        fleet.go(time.monotonic_ns())
        after_go()
        await fleet.finished()
        return fleet

    def _heard(self, member: Member, message: Mapping[str, Any]) -> None:
        self.statuses.append((member.index, message))


@pytest.fixture
def led(tmp_path: Path) -> Led:
    return Led(tmp_path)


def test_every_agent_hears_its_shards_and_t0_in_its_own_time(led: Led) -> None:
    async def go() -> tuple[Agents, Fleet]:
        agents = Agents("b", "a", workers=2, ahead_ns=10**15)
        return agents, await led.lead(agents, 2)

    agents, fleet = asyncio.run(go())
    assert {name: message["mine"] for name, message in agents.said("plan")} == {"a": [0, 1], "b": [2, 3]}
    t0s = [message["t0_ns"] for _, message in agents.said("go")]
    assert all(abs(t0 - time.monotonic_ns() - 10**15) < 10**11 for t0 in t0s)
    assert [member.done is not None for member in fleet.members] == [True] * 4
    assert not fleet.faults()
    facts = fleet.facts()
    assert [agent["shards"] for agent in facts["agents"]] == [[0, 1], [2, 3]]
    assert all(abs(agent["clock"]["offset_ns"] - 10**15) <= agent["clock"]["error_ns"] for agent in facts["agents"])
    assert [name for name, _ in agents.said("bye")] == ["a", "b"]


def test_too_few_agents_are_one_clear_error_that_names_who_came_and_who_was_refused(led: Led) -> None:
    async def go() -> Agents:
        agents = Agents("a")
        agents.joins("old", version="0.0.1")
        with pytest.raises(HarnessFault) as fault:
            await led.lead(agents, 3)
        first, second = fault.value.errors
        assert "--expect-workers 3: 0.05 s went by and 1 agent came (a (host-a)). Nothing was sent" in first
        assert "agent old (host-old) was refused: it has Plimsoll 0.0.1" in second
        return agents

    agents = asyncio.run(go())
    assert ("a", {"type": "bye"}) in agents.heard
    assert not agents.said("plan")


def test_every_fault_of_every_agent_is_told_and_the_first_code_is_the_runs(led: Led) -> None:
    def unreachable(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "fault", "errors": ["target.url: cannot connect"], "code": 5}]

    async def go() -> Agents:
        agents = Agents("a", "b", "c", odd={"a": {"plan": unreachable}, "c": {"plan": unreachable}})
        with pytest.raises(HarnessFault) as fault:
            await led.lead(agents, 3)
        assert fault.value.errors == [
            "agent a (host-a): target.url: cannot connect",
            "agent c (host-c): target.url: cannot connect",
        ]
        assert fault.value.code == ExitCode.UNREACHABLE
        return agents

    agents = asyncio.run(go())
    assert not agents.said("go")
    assert {name for name, _ in agents.said("bye")} == {"a", "b", "c"}


def test_a_lost_agent_takes_its_workers_with_it_and_nobody_else(led: Led) -> None:
    async def go() -> Fleet:
        agents = Agents("a", "b", workers=2, odd={"b": {"go": lambda *_: []}})
        return await led.lead(agents, 2, lambda: agents.event(event="lost", agent="b", reason="it left"))

    fleet = asyncio.run(go())
    assert [member.done is not None for member in fleet.members] == [True, True, False, False]
    deaths = {member.death for member in fleet.members[2:]}
    assert len(deaths) == 1
    (death,) = deaths
    assert death is not None
    assert death.startswith("ended with agent b (host-b), which was lost 0.")
    assert "s after t0: it left; rows that it had not handed over are in /tmp/of-b there" in death
    assert all(member.died_ns for member in fleet.members[2:])
    assert not fleet.faults()  # a dead member is a fault already
    assert "The others go on" in led.notices[-1]


def test_an_agent_that_is_lost_before_t0_ends_the_run_before_it_began(led: Led) -> None:
    def gone(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "ended", "code": -9}]

    async def go() -> None:
        with pytest.raises(HarnessFault) as fault:
            await led.lead(Agents("a", "b", odd={"b": {"plan": gone}}), 2)
        assert fault.value.errors == ["agent b (host-b) was lost: its process was killed (-9). Nothing was sent"]

    asyncio.run(go())


def test_an_agent_that_says_nothing_any_more_is_lost(led: Led) -> None:
    async def go() -> tuple[Agents, Fleet]:
        agents = Agents("a", odd={"a": {"go": lambda *_: []}})
        return agents, await led.lead(agents, 1, silence_s=0.15)

    agents, fleet = asyncio.run(go())
    assert agents.said("orphaned"), "it may only have been away, and would go on sending"
    assert not agents.said("bye"), "it must keep its rows"
    assert "was lost" in str(fleet.members[0].death)
    assert "it said nothing for 0." in str(fleet.members[0].death)


def test_a_worker_that_dies_alone_has_its_own_death_and_its_agent_goes_on(led: Led) -> None:
    def one_died(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        said = agents.finished(name)
        dead = {"deaths": {"1": "was killed by SIGKILL"}, "died_ns": {"1": 123_000_000}}
        return [{**said, "done": {**said["done"], "1": None}, **dead}]

    async def go() -> Fleet:
        return await led.lead(Agents("a", workers=2, odd={"a": {"go": one_died}}), 1)

    fleet = asyncio.run(go())
    assert [member.done is not None for member in fleet.members] == [True, False]
    assert fleet.members[1].death == "of agent a (host-a) was killed by SIGKILL"
    assert fleet.members[1].died_ns == fleet._t0_ns + 123_000_000  # when it died there, not when we were told
    assert fleet.facts()["agents"][0]["lost"] is None


@pytest.mark.parametrize(
    "host", [{}, {"hostname": {"a": [1]}}, {"hostname": None}, {"hostname": "h", "x": "y" * 99_999}]
)
def test_a_host_always_has_a_name(led: Led, host: dict[str, Any]) -> None:
    async def go() -> Fleet:
        agents = Agents()
        agents.joins("a", host=host)
        return await led.lead(agents, 1)

    assert isinstance(asyncio.run(go()).facts()["agents"][0]["host"]["hostname"], str)


def test_the_manifest_can_say_whatever_an_agent_says_of_its_processor_time(led: Led) -> None:
    def odd(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{**agents.finished(name), "cpu_s": float("nan")}]

    async def go() -> Fleet:
        return await led.lead(Agents("a", odd={"a": {"go": odd}}), 1)

    assert json.dumps(asyncio.run(go()).facts(), allow_nan=False)


def test_a_transport_that_ends_loses_everybody(led: Led) -> None:
    async def go() -> Fleet:
        agents = Agents("a", odd={"a": {"go": lambda *_: []}})
        return await led.lead(agents, 1, agents.end)

    fleet = asyncio.run(go())
    assert "the transport between master and agents ended" in str(fleet.members[0].death)


def test_stop_ends_the_queries_and_the_run_says_so(led: Led) -> None:
    def stopped(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [agents.finished(name)]

    async def go() -> Fleet:
        agents = Agents("a", odd={"a": {"go": lambda *_: [], "stop": stopped}})
        return await led.lead(agents, 1, lambda: agents.event(event="stop", reason="Stop in Locust's page"))

    fleet = asyncio.run(go())
    assert fleet.members[0].done is not None
    assert list(fleet.faults()) == ["it was stopped before its end (Stop in Locust's page)"]


def test_stop_before_the_first_query_sends_nothing(led: Led) -> None:
    async def go() -> None:
        agents = Agents("a")
        agents.event(event="stop", reason="Stop in Locust's page")
        with pytest.raises(HarnessFault) as fault:
            await led.lead(agents, 2)
        assert fault.value.code == ExitCode.INTERRUPTED
        assert fault.value.errors == ["stopped before the first query (Stop in Locust's page): nothing was sent"]

    asyncio.run(go())


def test_a_clock_that_moved_or_can_no_longer_be_measured_is_a_fault_with_its_numbers(led: Led) -> None:
    async def go() -> Fleet:
        agents = Agents("a")

        def jumps() -> None:
            agents.ahead_ns = 500_000_000

        return await led.lead(agents, 1, jumps)

    (fault,) = asyncio.run(go()).faults()
    moved = r"the clock of agent a \(host-a\) moved by \+([0-9.]+) ms"
    said = re.match(moved + r" against the master's in [0-9.]+ s, limit [0-9.]+ ms: ", fault)
    assert said, fault
    # Clocks are compared by messages between tasks of one loop: a stolen core may hold one back, not for 100 ms.
    assert float(said[1]) == pytest.approx(500.0, abs=100.0)


def test_what_agents_hand_over_is_in_the_run_directory_and_their_news_reach_the_watchers(led: Led) -> None:
    buffer = io.BytesIO()
    dump_segment(buffer, from_columns(4, worker=0))
    (piece,) = cut("w000-000000.seg", buffer.getvalue())
    rows = [(0, "latency", [5000], [4])]

    def works(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        news = {"type": "workers", "lines": [(0, {"type": "status", "sent": 4})]}
        return [news, piece, {"type": "intervals", "rows": rows}, agents.finished(name)]

    async def go() -> tuple[Agents, Fleet]:
        agents = Agents("a", odd={"a": {"go": works}})
        return agents, await led.lead(agents, 1)

    agents, fleet = asyncio.run(go())
    parts, unreadable = read_segments([led.folder])
    assert [len(part) for part in parts] == [4]
    assert not unreadable
    assert led.statuses == [(0, {"type": "status", "sent": 4})]
    assert fleet.members[0].status["sent"] == 4
    assert agents.said("taken")[0][1]["good"]
    assert "Tag=latency,0.000,1.000," in (led.folder.parent / "intervals.hlog").read_text()


def test_the_intervals_are_those_of_the_records_even_where_an_agent_was_lost_between_the_two(led: Led) -> None:
    times: Any = {
        "query_id": [0, 1],
        "due_ns": [0, 1],
        "ready_ns": [0, 1],
        "sent_ns": [0, 1],
        "done_ns": [5_000, 6_000],
    }
    records = from_columns(2, worker=0, status=0, **times)
    buffer = io.BytesIO()
    dump_segment(buffer, records)
    (piece,) = cut("w000-000000.seg", buffer.getvalue())

    def counts_too_much(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [piece, {"type": "intervals", "rows": [(0, "latency", [5000], [999])]}]  # of rows that never come

    async def go() -> Fleet:
        agents = Agents("a", odd={"a": {"go": counts_too_much}})
        return await led.lead(agents, 1, lambda: agents.event(event="lost", agent="a", reason="it left"))

    asyncio.run(go())
    log = hdr_log.read((led.folder.parent / "intervals.hlog").read_text())
    counts = {interval.tag: int(interval.counts.sum()) for interval in log.intervals}
    assert counts == {"latency": 2}


def test_nonsense_from_an_agent_is_told_and_ends_nothing(led: Led) -> None:
    def nonsense(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        foreign: dict[str, Any] = {"type": "workers", "lines": [(7, {})]}
        return [foreign, {"type": "intervals", "rows": [(0, "x", [], [])]}, {"type": "piece"}, agents.finished(name)]

    async def go() -> Fleet:
        return await led.lead(Agents("a", odd={"a": {"go": nonsense}}), 1)

    fleet = asyncio.run(go())
    assert len(fleet.faults()) == 3
    assert all("can't be read came from agent a" in fault for fault in fleet.faults())
    assert fleet.members[0].done is not None


def test_a_user_who_will_not_wait_gives_up_whoever_has_not_ended(led: Led) -> None:
    async def go() -> Fleet:
        agents = Agents("a", "b", odd={"b": {"go": lambda *_: []}})
        fleet = Fleet(agents, 2, patience_s=0.05, lead_ns=0)
        shards = await fleet.gather(PLAN, 1, led.notices.append)
        base = {"scenario": SCENARIO.to_mapping(), "where": "test", "run_id": "r", "shards": shards, "dealing": "lots"}
        base |= {"segments": str(led.folder), "target": {"url": "http://127.0.0.1:1", "model": ""}}
        await fleet.start([base] * shards, None, lambda member, message: None)
        fleet.go(time.monotonic_ns())
        await asyncio.sleep(0)
        fleet.kill_unfinished()
        await fleet.finished()
        return fleet

    fleet = asyncio.run(go())
    assert "did not end when asked to and was given up" in str(fleet.members[1].death)


def test_a_folder_that_an_agent_names_is_nothing_to_the_master(led: Led, tmp_path: Path) -> None:
    """Whoever joins could have any folder read, and removed once the run is sealed."""
    theirs = tmp_path / "precious"
    theirs.mkdir()

    def names_it(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{**agents.finished(name), "done": {"0": {**DONE, "folders": [str(theirs)]}}}]

    fleet = asyncio.run(led.lead(Agents("a", odd={"a": {"go": names_it}}), 1))
    (member,) = fleet.members
    facts = ended(planned(SCENARIO, PLAN, 1), fleet.members)
    manifest = {"run_id": "r", "t0_monotonic_ns": 0}
    seal(RunDirectory(led.folder.parent), manifest, SCENARIO.to_mapping(), PLAN.pieces, [member], facts)
    assert member.done is not None
    assert theirs.is_dir()
    assert not led.folder.exists()


@pytest.mark.parametrize(
    "odd",
    [
        {"faults": 5},
        {"aborted": 5},
        {"cpu": float("nan")},
        {"cpu": "much"},
        {"client": 5},
        {"client": {"exhausted": 7}},
        {"client": {"exhausted": {"text": "many"}}},
        {"client": {"pool_waits": float("inf")}},
        {"stalls": 3},
        {"stalls": {"p99_ns": "late"}},
        {"account": 5},
        {"account": {"sent": 1}},
        {"account": {"sent": "x", "rows": 0, "digest": 0}},
        {"account": {"sent": 0, "rows": 0, "digest": 0, "segments": 10**12}},
        {"account": {"sent": 0, "rows": 0, "digest": 0, "unwritten": [[]]}},
    ],
    ids=str,
)
def test_last_words_that_cannot_be_read_cost_their_worker_not_the_run(led: Led, odd: Mapping[str, Any]) -> None:
    def says(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{**agents.finished(name), "done": {"0": {**DONE, **odd}}}]

    fleet = asyncio.run(led.lead(Agents("a", odd={"a": {"go": says}}), 1))
    (member,) = fleet.members
    assert member.done is None
    assert member.death == "of agent a (host-a) ended with a message that can't be read"
    assert member.died_ns is not None
    assert member.died_ns > fleet._t0_ns


def test_an_exit_code_that_is_none_is_a_usage_error(led: Led) -> None:
    def faulty(agents: Agents, name: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"type": "fault", "errors": ["no"], "code": 99}]

    with pytest.raises(HarnessFault) as fault:
        asyncio.run(led.lead(Agents("a", odd={"a": {"plan": faulty}}), 1))
    assert fault.value.code == ExitCode.USAGE


def test_facts_of_a_host_that_no_manifest_can_hold_are_its_name(led: Led) -> None:
    async def go() -> Fleet:
        agents = Agents()
        agents.joins("a", host={"hostname": "h", "load": float("nan")})
        return await led.lead(agents, 1)

    (agent,) = asyncio.run(go()).facts()["agents"]
    assert agent["host"] == {"hostname": "h"}


@pytest.mark.parametrize(("workers", "pictures"), [(1, 3), (4, 12), (1000, 12)])
def test_a_picture_of_many_workers_is_not_made_for_each_of_their_lines(workers: int, pictures: int) -> None:
    """It adds up all of them: with 1,000 each line took 240 us."""
    seen: list[Snapshot] = []
    progress = Progress(seen.append)
    progress.begin(Beginning("r", SCENARIO, PLAN, time.monotonic_ns()))
    for done in range(1, 4):
        for worker in range(workers):
            counts = {"sent": done, "done": done, "failed": 0, "in_flight": 0}
            progress.heard(worker, {**counts, **{name: {} for name in FRESH}, "latency": {"600": 1}})
    assert pictures <= len(seen) <= 3 * pictures
    progress.end()
    assert (seen[-1].done, seen[-1].over) == (3 * workers, True)
