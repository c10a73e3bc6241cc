"""Who may take part in a distributed run, what agents are told, and what becomes of the files they send."""

from __future__ import annotations

import asyncio
import io
import socket
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from plimsoll.harness.distributed import agents
from plimsoll.harness.distributed.agents import Agent, Offset, Roster, deal
from plimsoll.harness.distributed.fleet import MOST_FAULTS, Intake, differences, invitations, literals
from plimsoll.harness.distributed.fleet_messages import COUNTS, LIMIT, PIECE, WINDOW, _status, cut, line, shard_of
from plimsoll.harness.distributed.site import Courier, Statuses, host_limits
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.recorder import FRESH
from plimsoll.harness.generator.segments import dump_segment
from plimsoll.harness.host.limits import HostLimits
from plimsoll.harness.run import coordinator
from plimsoll.harness.run.crew import Crew, split_workers
from plimsoll.harness.run.job import target_of
from plimsoll.harness.sealing import accounts, workforce
from plimsoll.harness.sealing.accounts import _clocks
from plimsoll.harness.sealing.workforce import Member, Workforce
from plimsoll.harness.secrecy.redaction import learn
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.plan.plan import Dealing, Plan
from plimsoll.scenarios.samples.payload import Payload, payload_digest
from plimsoll.scenarios.scenario import parse
from plimsoll.scenarios.spec import with_flags
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess

HELLO = {"type": "hello", "name": "a1", "version": "1.0", "code": "c0de", "workers": 2, "host": {"hostname": "h1"}}


def roster(room: int = 2) -> Roster:
    return Roster("1.0", "c0de", room)


def joined(into: Roster, key: str, **what: Any) -> Agent:
    agent = into.hello(key, {**HELLO, "name": key, **what}, 0.0)
    assert isinstance(agent, Agent)
    assert into.admit(agent, 0) is None
    return agent


def segment(shard: int = 0, n: int = 3) -> bytes:
    buffer = io.BytesIO()
    dump_segment(buffer, from_columns(n, worker=shard))
    return buffer.getvalue()


# -- who takes part ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"version": "0.9"}, "it has Plimsoll 0.9, the master 1.0"),
        ({"code": "other"}, "other code"),
        ({"workers": 0}, "offers 0 workers"),
        ({"host": None}, "can't be read"),
        ({"name": 5}, "can't be read"),
        ({"name": "b"}, "another agent is called b"),
    ],
)
def test_an_agent_that_is_not_as_the_master_is_is_refused_with_the_reason(what: dict[str, Any], reason: str) -> None:
    members = roster()
    joined(members, "b")
    refusal = members.hello("a1", {**HELLO, **what}, 0.0)
    assert isinstance(refusal, str)
    assert reason in refusal
    assert members.refused[-1]["reason"] == refusal
    assert [agent.name for agent in members.accepted] == ["b"]


def test_the_wall_clock_may_be_a_second_off_and_no_more() -> None:
    members = roster()
    for name, error, refused in (("ahead", 999_999_999, False), ("behind", -1_000_000_001, True)):
        agent = members.hello(name, {**HELLO, "name": name}, 0.0)
        assert isinstance(agent, Agent)
        reason = members.admit(agent, error)
        assert (reason is not None) == refused
    assert "1.0 s behind the master's, limit 1 s" in members.refused[0]["reason"]


def test_who_comes_when_all_are_there_is_too_late_and_a_place_that_is_left_is_free_again() -> None:
    members = roster(room=1)
    pending = members.hello("slow", {**HELLO, "name": "slow"}, 0.0)
    assert isinstance(pending, Agent)
    first = joined(members, "quick")
    assert "too late" in (members.admit(pending, 0) or "")
    assert "too late" in str(members.hello("later", {**HELLO, "name": "later"}, 0.0))
    members.forget(first)
    again = joined(members, "again")
    members.begun = True
    again.lost = "was lost"
    assert "too late" in str(members.hello("instead", {**HELLO, "name": "instead"}, 0.0))


def test_a_thousand_refusals_for_one_reason_are_one_sentence() -> None:
    members = roster()
    for number in range(1000):
        members.hello(str(number), {**HELLO, "name": f"a{number}", "version": "0.9"}, 0.0)
    (text,) = members.refusals()
    assert text.startswith(
        "agents a0 (h1), a1 (h1), a2 (h1), a3 (h1), a4 (h1) and 995 more were refused, each because it has"
    )
    assert len(members.refused) == 1000


def test_agents_have_the_same_shards_in_whatever_order_they_came() -> None:
    members = roster(room=3)
    for name in ("c", "a", "b"):
        joined(members, name)
    assert [agent.name for agent in members.accepted] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("shards", "offers", "counts"),
    [(6, [1, 2, 3], [1, 2, 3]), (3, [4, 4, 4], [1, 1, 1]), (5, [1, 9], [1, 4]), (2, [1, 1, 1], [1, 1, 0])],
)
def test_shards_are_dealt_so_that_each_has_one_owner(shards: int, offers: list[int], counts: list[int]) -> None:
    dealt = deal(shards, offers)
    assert [len(mine) for mine in dealt] == counts
    assert [shard for mine in dealt for shard in mine] == list(range(shards))


@pytest.mark.parametrize("arrival", ["poisson", "constant", "gamma"])
@pytest.mark.parametrize("dealing", ["turns", "lots"])
def test_forty_shards_are_the_plan_of_one(arrival: str, dealing: Dealing) -> None:
    scenario = with_flags(None, protocol="null", duration=3.0, seed=3, rate=80.0, arrival=arrival)
    plan = scenario.build(len(scenario.source_object()))
    columns = ("query_id", "due_ns")

    def rows(shards: int) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for index in range(shards):
            part = plan.shard(index, shards, dealing)
            assert part.seed == plan.seed
            sizes = np.diff(part.offsets)
            cells = [np.repeat(getattr(part, name), sizes).tolist() for name in columns]
            found += zip(*cells, part.sample_ix.tolist(), part.payload_ix.tolist(), strict=True)
        return sorted(found)

    assert rows(1) == rows(2) == rows(5) == rows(40)
    assert len(rows(1)) > 40


@pytest.mark.parametrize(
    ("cyclic", "slots", "samples", "wanted", "n"),
    [(True, 4, 99, 40, 4), (False, None, 99, 40, 40), (False, None, 7, 40, 7), (False, 3, 99, 40, 3)],
)
def test_there_are_no_more_shards_than_a_plan_can_be_dealt_to(
    cyclic: bool, slots: int | None, samples: int, wanted: int, n: int
) -> None:
    plan = SimpleNamespace(cyclic=cyclic, max_in_flight=slots, n_samples=samples)
    assert split_workers(cast("Plan", plan), wanted) == n


# -- what they are told -----------------------------------------------------------------------------------------


def spec(**target: Any) -> dict[str, Any]:
    scenario = with_flags(None, url="http://a:1", api_key_env="THE_KEY", model="m").to_mapping()
    scenario["target"] |= target
    resolved = {"url": "http://b:2", "model": "seen", "headers": [["Authorization", "Bearer s3cret-s3cret"]]}
    return {"scenario": scenario, "where": "s", "run_id": "r", "shards": 3, "dealing": "lots", "target": resolved}


def test_an_agent_hears_the_masters_url_and_model_and_never_a_secret() -> None:
    members = roster()
    agents = [joined(members, "a"), joined(members, "b")]
    agents[0].shards, agents[1].shards = [0, 1], [2]
    messages, faults = invitations(spec(), agents)
    assert not faults
    assert [message["mine"] for message in messages] == [[0, 1], [2]]
    assert messages[0]["scenario"]["target"]["url"] == "http://b:2"
    assert messages[0]["scenario"]["target"]["model"] == "seen"
    assert messages[0]["scenario"]["target"]["api_key_env"] == "THE_KEY"
    assert b"s3cret" not in line(messages[0])


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ({"api_key_env": None}, "PLIMSOLL_API_KEY"),
        ({"api_key_env": None, "headers": {"authorization": "Bearer ${env:K}"}}, None),
        ({"api_key_env": None, "headers_file": "h.txt"}, None),
        ({}, "THE_KEY"),
    ],
)
def test_an_agent_without_the_key_that_the_master_found_by_itself_says_so(
    written: dict[str, Any], named: str | None
) -> None:
    members = roster()
    ((message,), faults) = invitations(spec(**written), [joined(members, "a")])
    assert not faults
    assert message["scenario"]["target"]["api_key_env"] == named


@pytest.mark.parametrize(
    ("target", "place"),
    [
        ({"headers": {"Authorization": "Bearer abcdefgh"}}, "target.headers.Authorization"),
        ({"options": {"metadata": {"x-api-key": "abcdefgh"}}}, "target.options.metadata.x-api-key"),
        ({"url": "http://h/?token=abcdefgh"}, "target.url"),
        ({"url": "http://me:abcdefgh@h/"}, "target.url"),
    ],
)
def test_a_credential_in_the_clear_does_not_travel(target: dict[str, Any], place: str) -> None:
    (fault,) = literals(target)
    assert fault.startswith(place)
    assert "${env:NAME}" in fault
    assert "abcdefgh" not in fault


def test_references_to_secrets_travel() -> None:
    assert not literals(
        {"url": "http://h/?n=5", "headers": {"Authorization": "Bearer ${env:KEY}", "X-Run": "abcdefgh"}}
    )


def test_a_scenario_that_no_message_can_hold_is_refused_before_anything_is_sent() -> None:
    big = spec()
    big["scenario"]["name"] = "x" * LIMIT
    assert "Put its data into a file" in invitations(big, [])[1][0]


def test_a_model_that_a_server_named_after_the_key_does_not_travel() -> None:
    learn(["sk-0123456789abcdef"])
    named = spec()
    named["target"]["model"] = "llama-of-sk-0123456789abcdef"
    (fault,) = invitations(named, [])[1]
    assert fault.startswith("target.model: a credential stands in it")
    assert "0123456789" not in fault


def test_another_plan_and_other_data_are_told_apart() -> None:
    members = roster(room=3)
    agents = [joined(members, name) for name in ("same", "plan", "data")]
    said = {"fingerprints": {"0": "p"}, "payloads": "d"}
    agents[0].ready, agents[1].ready = said, {**said, "fingerprints": {"1": "p", "2": "q"}}
    agents[2].ready = {**said, "payloads": "e"}
    other_plan, other_data = differences(agents, "p", "d")
    assert other_plan.startswith("agent plan (h1) computed another plan")
    assert other_data.startswith("agent data (h1) has other data")


class Library:
    """A source of payloads, one of which may be another."""

    def __init__(self, n: int, other: int | None = None) -> None:
        self._n = n
        self._other = other

    def __len__(self) -> int:
        return self._n

    def payload(self, index: int) -> Payload:
        array = np.arange(4) + (index == self._other)
        return Payload(prompt=f"p{index}", data={"x": array, "y": [1, b"z", {"k": 2.5}]})


def test_payloads_are_compared_by_content() -> None:
    digest = payload_digest(Library(64))
    assert digest == payload_digest(Library(64))
    for other in (Library(63), Library(65), Library(64, other=0), Library(64, other=31), Library(64, other=63)):
        assert payload_digest(other) != digest


def test_code_is_compared_by_content_and_by_name(tmp_path: Path) -> None:
    (tmp_path / "harness").mkdir()
    file = tmp_path / "harness" / "a.py"
    file.write_text("x = 1\n")
    first = agents.code_digest(tmp_path)
    file.write_text("x = 2\n")
    second = agents.code_digest(tmp_path)
    file.rename(file.with_name("b.py"))
    assert len({first, second, agents.code_digest(tmp_path)}) == 3
    assert agents.code_digest() == agents.code_digest()


# -- files ------------------------------------------------------------------------------------------------------


def test_only_names_of_our_own_files_are_taken() -> None:
    assert [shard_of(name) for name in ("w007-000001.seg", "outputs-w1234.jsonl")] == [7, 1234]
    for name in ("../w007-000001.seg", "w007-000001.seg\n", "manifest.json", "w7-1.seg", "/w007-000001.seg", ""):
        assert shard_of(name) is None, name


def test_a_file_that_is_damaged_is_asked_for_again_once_and_is_then_a_fault(tmp_path: Path) -> None:
    intake = Intake(tmp_path, lambda shard, records: None)
    (piece,) = cut("w000-000000.seg", b"rows")
    bad = {**piece, "data": "AAAAAA=="}
    assert intake.take("a", [0], bad) == {"type": "again", "file": "w000-000000.seg"}
    assert intake.take("a", [0], piece) == {
        "type": "taken",
        "file": "w000-000000.seg",
        "piece": 0,
        "whole": True,
        "good": True,
    }
    assert (tmp_path / "w000-000000.seg").read_bytes() == b"rows"
    assert not intake.faults
    (other,) = cut("w000-000001.seg", b"more")
    worse = {**other, "data": "AAAAAA=="}
    assert intake.take("a", [0], worse)["type"] == "again"
    answer = intake.take("a", [0], worse)
    assert (answer["whole"], answer["good"]) == (True, False)
    assert "w000-000001.seg of agent a came damaged twice" in intake.faults[0]
    assert [path.name for path in tmp_path.iterdir()] == ["w000-000000.seg"]


def test_a_file_without_its_first_piece_is_asked_for_again(tmp_path: Path) -> None:
    intake = Intake(tmp_path, lambda shard, records: None)
    pieces = [*cut("w000-000000.seg", bytes(2 * PIECE))]
    assert intake.take("a", [0], pieces[1])["type"] == "again"
    assert [intake.take("a", [0], piece)["whole"] for piece in pieces] == [False, True]
    assert (tmp_path / "w000-000000.seg").stat().st_size == 2 * PIECE


def test_an_agent_writes_nothing_but_its_own_segments(tmp_path: Path) -> None:
    intake = Intake(tmp_path, lambda shard, records: None)
    for name in ("w001-000000.seg", "../../manifest.json"):
        (piece,) = cut(name, b"x")
        assert not intake.take("a", [0], piece)["good"]
    assert len(intake.faults) == 2
    assert not [*tmp_path.iterdir()]


def test_files_that_are_begun_and_never_ended_fill_no_memory(tmp_path: Path) -> None:
    intake = Intake(tmp_path, lambda shard, records: None)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(300):
        first, _ = cut(f"w000-{number:06d}.seg", bytes(PIECE + 1))
        assert intake.take("a", [0], first)["good"]
        intake.take("a", [0], {**first, "file": "/etc/passwd"})
    assert tracemalloc.get_traced_memory()[0] - before < 3 * PIECE
    tracemalloc.stop()
    assert len(intake.faults) == MOST_FAULTS
    first, second = cut("w000-000299.seg", bytes(PIECE + 1))
    assert intake.take("a", [0], {**second, "file": "w000-000007.seg"})["type"] == "again"
    assert intake.take("a", [0], second)["good"], "the file that it began last goes on"
    assert (tmp_path / "w000-000299.seg").stat().st_size == PIECE + 1


def test_rows_that_the_masters_disk_does_not_take_are_kept_in_memory(tmp_path: Path) -> None:
    kept: list[tuple[int, Records]] = []
    intake = Intake(tmp_path / "gone", lambda shard, records: kept.append((shard, records)))
    (piece,) = cut("w002-000000.seg", segment(2, n=5))
    assert intake.take("a", [2], piece)["good"]
    assert [(shard, len(records)) for shard, records in kept] == [(2, 5)]
    assert not intake.faults


class Master:
    """Answers pieces, some of them badly, and never before it is asked to."""

    def __init__(self) -> None:
        self.pieces: list[Mapping[str, Any]] = []
        self.most = 0
        self.answered = 0

    def say(self, message: Mapping[str, Any]) -> None:
        self.pieces.append(message)
        self.most = max(self.most, len(self.pieces) - self.answered)

    def answer(self, courier: Courier, again: frozenset[int] = frozenset()) -> None:
        piece = self.pieces[self.answered]
        last = piece["piece"] == piece["pieces"] - 1
        kind = "again" if self.answered in again else "taken"
        self.answered += 1
        courier.heard({"type": kind, "file": piece["file"], "piece": piece["piece"], "whole": last, "good": True})


def test_no_more_than_a_window_of_pieces_is_on_its_way() -> None:
    async def send() -> Master:
        master = Master()
        courier = Courier(master.say)
        work = asyncio.create_task(courier.send("w000-000000.seg", bytes(9 * PIECE)))
        while not work.done() or master.answered < len(master.pieces):
            await asyncio.sleep(0)
            if len(master.pieces) - master.answered == WINDOW or work.done():
                master.answer(courier)
        await courier.settled()
        return master

    master = asyncio.run(send())
    assert [piece["piece"] for piece in master.pieces] == list(range(9))
    assert master.most == WINDOW


def test_a_file_that_the_master_wants_again_goes_again() -> None:
    async def send() -> Master:
        master = Master()
        courier = Courier(master.say)
        await courier.send("w000-000000.seg", b"one")
        await courier.send("w000-000001.seg", b"two")
        settled = asyncio.create_task(courier.settled())
        while not settled.done():
            await asyncio.sleep(0)
            if master.answered < len(master.pieces):
                master.answer(courier, again=frozenset({0}))
        return master

    master = asyncio.run(send())
    assert [piece["file"][5:11] for piece in master.pieces] == ["000000", "000001", "000000"]


# -- status lines -----------------------------------------------------------------------------------------------


def status(sent: int, **bins: dict[str, int]) -> dict[str, Any]:
    return {"type": "status", "sent": sent, **{name: bins.get(name, {}) for name in FRESH}}


def test_counters_are_the_last_and_histograms_the_sum_of_what_was_said() -> None:
    statuses = Statuses()
    statuses.add(0, status(5, latency={"900": 2}))
    statuses.add(0, status(9, latency={"900": 1, "901": 4}, ttft={"800": 1}))
    statuses.add(3, status(1))
    ((first, second),) = statuses.take(LIMIT)
    assert first == (0, {**status(9), "latency": {"900": 3, "901": 4}, "ttft": {"800": 1}})
    assert second == (3, status(1))
    assert not [*statuses.take(LIMIT)]


def test_histograms_of_outside_metrics_are_summed_too() -> None:
    statuses = Statuses()
    for line_of in (
        status(5),
        status(6) | {"others": {"mine": {"900": 2}}},
        status(7),
        status(8) | {"others": {"mine": {"900": 1}}},
    ):
        statuses.add(0, line_of)
    (((_, said),),) = statuses.take(LIMIT)
    assert said == {**status(8), "others": {"mine": {"900": 3}}}
    whole = {**said, **dict.fromkeys(COUNTS, 1)}
    assert _status(whole)
    assert not _status({**whole, "others": {"mine": {"900": "many"}}})


def test_status_messages_stay_below_their_room_however_many_workers_there_are() -> None:
    statuses = Statuses()
    for shard in range(300):
        statuses.add(shard, status(10**9, **{name: {str(bin_): 10**6 for bin_ in range(700, 800)} for name in FRESH}))
    batches = [*statuses.take(LIMIT * 3 // 4)]
    assert len(batches) > 1
    assert max(len(line({"type": "workers", "lines": batch})) for batch in batches) <= LIMIT
    assert [shard for batch in batches for shard, _ in batch] == list(range(300))


# -- what the run says of it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agents", "error_ns", "aligned", "ok"),
    [
        (3, 5_000_000, True, True),
        (3, 5_000_001, True, False),
        (3, 21_000_000, False, True),  # half of a round trip of 42 ms
        (3, 500_000_001, False, False),
        (0, 10**9, True, None),
    ],
)
def test_clocks_that_are_not_known_well_enough_make_a_run_invalid(
    agents: int, error_ns: int, aligned: bool, ok: bool | None
) -> None:
    rows = from_columns(3, due_ns=[0, 1, 2], ready_ns=[0, 1, 2], sent_ns=[0, 1, 2], done_ns=[5, 6, 7])
    seen = assess(rows, GeneratorFacts(True, 3, agents=agents, clock_error_ns=error_ns, aligned=aligned))
    found = [check for check in seen.checks if check.name == "clocks"]
    assert [check.ok for check in found] == ([] if ok is None else [ok])
    for check in found:
        assert check.detail.startswith("3 agents, the clock of each known to within ")
        assert f"limit {'5 ms' if aligned else '500 ms'}" in check.detail


@pytest.mark.parametrize(
    ("given", "aligned"),
    [
        ({}, False),
        ({"params": {"rate": {"ramp": {"from": 1, "to": 50, "over": "10s"}}}}, False),
        ({"params": {"arrival": "constant"}}, True),
        ({"params": {"arrival": {"process": "gamma", "burstiness": 0.5}}}, True),
        ({"params": {"arrival": "loadgen"}}, False),
        ({"kind": "concurrency"}, False),
        ({"kind": "offline"}, False),
        ({"kind": "multi_stream"}, False),
        ({"kind": "multi_stream", "params": {"frame_interval": "33ms"}}, True),
    ],
)
def test_only_arrivals_that_lie_beside_each_other_by_the_plan_need_equal_clocks(
    given: dict[str, Any], aligned: bool
) -> None:
    scenario = parse({"kind": "server", **given})
    assert accounts.planned(scenario, scenario.blocks(4).extent(), 1).aligned is aligned


def test_a_run_of_agents_says_nothing_of_clocks_where_they_cost_no_number() -> None:
    due = np.cumsum(np.random.default_rng(0).exponential(250_000, 2_000)).astype(np.int64)
    rows = from_columns(2_000, due_ns=due, ready_ns=due, sent_ns=due, done_ns=due + 1)
    facts = GeneratorFacts(True, 2_000, process="poisson", agents=4, clock_error_ns=4_000_000)
    assert not [text for text in assess(rows, facts).warnings if "clock" in text]


def test_connections_that_failed_on_an_agents_host_are_told_of_that_agent_and_without_our_limits() -> None:
    members = [Member(index) for index in range(3)]
    for member in members:
        member.done = {"client": {"exhausted": {"Too many open files": 2}, "connections_opened": 9}}
    facts = {"agents": [{"name": "a", "shards": [0, 1]}, {"name": "b", "shards": [2]}]}
    assert coordinator._exhausted(members, facts, 1.0) == [
        "4 connections failed on their host (agent a), not at the endpoint: Too many open files",
        "2 connections failed on their host (agent b), not at the endpoint: Too many open files",
    ]
    assert coordinator._exhausted(members, {}, 1.0) == [
        "6 connections failed on this host, not at the endpoint: Too many open files"
    ]


def test_an_agent_on_another_host_has_another_loopback() -> None:
    facts = {"agents": [{"name": "a", "host": {"hostname": "here"}}, {"name": "b", "host": {"hostname": "there"}}]}
    assert coordinator.elsewhere(facts, "here") == ["b (there)"]
    assert coordinator.elsewhere({}, "here") == []
    looped = [
        "http://127.0.0.1:8000",
        "http://localhost:1",
        "grpc://127.8.9.1:1",
        "http://[::1]:80",
        "http://10.0.0.1",
        "",
    ]
    assert [coordinator.loopback(url) for url in looped] == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("bundled", "url", "host", "refused", "warned"),
    [
        (("serve",), "http://127.0.0.1:9", "there", True, False),
        (("serve",), "http://127.0.0.1:9", socket.gethostname(), False, False),
        (None, "http://127.0.0.1:9", "there", False, True),
        (None, "http://10.0.0.1:9", "there", False, False),
    ],
)
def test_agents_elsewhere_are_not_sent_to_a_server_that_only_we_reach(
    bundled: tuple[str, ...] | None, url: str, host: str, refused: bool, warned: bool
) -> None:
    notices: list[str] = []
    killed: list[bool] = []

    async def kill() -> None:
        killed.append(True)

    agents = {"agents": [{"name": "a", "host": {"hostname": host}}]}
    workforce = cast("Workforce", SimpleNamespace(facts=lambda: agents, kill=kill))
    scenario = SimpleNamespace(events=(), phases={})
    job = cast("coordinator.Job", SimpleNamespace(bundled=bundled, directory=None, classes={}, scenario=scenario))
    part = coordinator.Part(job, "", workforce, notices.append)
    part.target = cast("Target", SimpleNamespace(url=url))
    if refused:
        with pytest.raises(
            HarnessFault, match=r"agents elsewhere: a \(there\)\. Nothing was sent\. Start `plimsoll serve"
        ):
            asyncio.run(part._look_around())
    else:
        asyncio.run(part._look_around())
    assert killed == [True] * refused
    assert len(notices) == warned


def test_an_agents_region_is_a_line_of_text_in_the_manifest_or_none() -> None:
    members = roster()
    for key, region, kept in (("a", "eu-west\x1b[2J\n", "eu-west\ufffd[2J"), ("b", None, None), ("c", "", None)):
        agent = members.hello(key, {**HELLO, "name": key, "region": region}, 0.0)
        assert isinstance(agent, Agent)
        assert agent.fact()["region"] == kept
    assert "can't be read" in str(members.hello("d", {**HELLO, "name": "d", "region": 7}, 0.0))


def test_an_agent_without_a_part_spoils_no_run() -> None:
    idle = Agent("k", "idle", {}, "1", 1, before=Offset(0, 1000, 0), after=Offset(10**9, 1000, 10**9))
    assert idle.clock_fault() is None
    idle.shards = [0]
    assert "moved by +1000" in str(idle.clock_fault())
    fact = {"name": "idle", "shards": [], "clock": {"error_ns": 10**9}}
    assert _clocks({"agents": [fact, {"shards": [0], "clock": {"error_ns": 7}}]}) == {"agents": 1, "clock_error_ns": 7}


def test_a_site_whose_part_has_no_shard_is_finished_at_once() -> None:
    async def go() -> None:
        await asyncio.wait_for(Crew().finished(), 5)

    asyncio.run(go())


def test_an_agent_says_before_the_run_what_its_own_host_cannot_hold() -> None:
    scenario = with_flags(None, url="http://a:1", model="m", concurrency=1_000, duration=1.0, workers=8)
    host = HostLimits(open_files=164, all_files=10**9, ports=(32768, 33067), tw_reuse=0)
    target, plan = target_of(scenario), scenario.blocks(1).extent()
    assert host_limits(plan, target, 10, 2, host) == ([], [])  # 200 connections of its 300 ports, 100 a worker
    errors, _ = host_limits(plan, target, 10, 4, host)
    assert "400 connections open in 4 workers" in errors[0]
    assert "send from another host too" in errors[0]


def test_an_agent_that_takes_its_workers_with_it_is_one_reason_and_not_one_a_worker() -> None:
    members = [Member(index) for index in range(4)]
    for member in members[1:3]:
        member.death = "ended with agent a (h), which was lost 1.0 s after t0: it left"
    members[3].death = "was killed by SIGKILL"
    assert workforce.deaths(members) == [
        "workers 1, 2 ended with agent a (h), which was lost 1.0 s after t0: it left",
        "worker 3 was killed by SIGKILL",
    ]
