"""A run whose agents kept their rows is the same run once they are together: every column, sum, fact and figure."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.distributed.left import check
from plimsoll.harness.distributed.own_rows import OwnRows, facts_of
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.segments import write_segment
from plimsoll.harness.protocols._clients import _Live
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.run.ahead import Ahead
from plimsoll.harness.run.job import prepare
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Asked, Promises, keep
from plimsoll.harness.run.rundir import BEGUN, RunDirectory, Sealed, create, open_sealed, seal, write_left
from plimsoll.harness.run.salvage import gathered, open_run
from plimsoll.harness.sealing.accounts import ended, planned
from plimsoll.harness.sealing.labelling import of_payloads
from plimsoll.harness.sealing.plan_file import Share
from plimsoll.harness.sealing.workforce import Member
from plimsoll.harness.series.one_run import _tidy
from plimsoll.harness.verbs.run import staff_of
from plimsoll.reports.report import Report
from plimsoll.scenarios import spec
from plimsoll.scenarios.flags import with_flags
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.blocks import Survey, joined
from plimsoll.scenarios.spec import Scenario
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records import records as rec
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import COLUMNS, Records, Status, from_columns
from plimsoll.slo.validity.accounts import digests
from tests.command import invoke

MS = 1_000_000
SHARDS, MINE = 3, ((0, 2), (1,))
ASKED = Promises(objectives=(parse("p90(latency) <= 40ms"), parse("ratio(error) <= 50%"), parse("ttft <= 30ms")))
DONE = {"aborted": None, "faults": [], "max_duration_hit": False, "disk_notes": [], "folders": [], "cpu": 0.1}


def scenario_of(**flags: Any) -> Scenario:
    return with_flags(None, kind="server", rate=50, arrival="poisson", queries=300, seed=1, **flags)


def rows_of(plan: Survey, shard: int, labelled: bool = False) -> Records:
    """What its worker recorded: streams, some that failed, in no order, and two rows of the warm-up."""
    mine = plan.pieces.shard(shard, SHARDS, "lots").whole()
    rng, n = np.random.default_rng(shard), mine.n_queries
    query, due = np.append(mine.query_id, [0, 1]), np.append(mine.due_ns, [-9 * MS, -5 * MS])
    took = (rng.lognormal(3.0, 0.5, n + 2) * MS).astype(np.int64)
    ok = rng.random(n + 2) < 0.9
    chunks = [[d + t // 2, d + t] if fine else [] for d, t, fine in zip(due.tolist(), took.tolist(), ok, strict=True)]
    first = np.where(ok, due + took // 2, -1)
    found = from_columns(
        n + 2, query_id=query, payload_ix=np.append(mine.payload_ix, [0, 0]), due_ns=due, ready_ns=due + 1000,
        sent_ns=due + 2000, first_byte_ns=first, first_token_ns=first, last_token_ns=np.where(ok, due + took, -1),
        done_ns=due + took, status=np.where(ok, 0, int(Status.TIMEOUT)), n_out=np.where(ok, 2, -1), worker=shard,
        phase=np.append(np.zeros(n, np.int64), [1, 1]), attempts=1, chunks=chunks,
        errors=[None if fine else f"text {shard} {at % 2}" for at, fine in enumerate(ok)],
        labels={"hits": (["3", "12", None] * n)[: n + 2], "model": (["7" if shard == 1 else "m", None] * n)[: n + 2]}
        if labelled else None,
    )  # fmt: skip
    return found.select(rng.permutation(n + 2))


def members_of(plan: Survey, died: int | None, labelled: bool) -> dict[int, tuple[Member, Records]]:
    found = {}
    for shard in range(SHARDS):
        rows = rows_of(plan, shard, labelled)
        account = {"sent": len(rows), "rows": len(rows), "digest": digests(rows)[shard], "segments": 2, "unwritten": []}
        member = Member(shard, done={**DONE, "core_wanted": 0.1 * shard, "account": account})
        if shard == died:
            rows, member = rows.select(rows["due_ns"] < 2000 * MS), Member(shard, death="died", died_ns=2500 * MS)
        found[shard] = member, rows
    return found


def written(directory: RunDirectory, members: dict[int, tuple[Member, Records]]) -> list[Member]:
    for shard, (_, rows) in members.items():
        for number, part in enumerate((rows.select(slice(0, 40)), rows.select(slice(40, None)))):
            write_segment(directory.segments / f"w{shard:03d}-{number:06d}.seg", part)
    return [member for member, _ in members.values()]


def both(
    path: Path, died: int | None = None, labels: dict[str, str] | None = None, **flags: Any
) -> tuple[Sealed, RunDirectory, list[Path]]:
    """The run with its rows at home; without them, judged by nobody; and the folders of its agents."""
    scenario = scenario_of(**flags)
    if labels is not None:
        (path / "d.jsonl").write_text('{"prompt": "a", "tenant": "t"}\n')
        source = {"kind": "jsonl", "path": str(path / "d.jsonl")}
        scenario = spec.parse({**scenario.to_mapping(), "source": source, "labels": labels})
    public, plan = scenario.to_mapping(), scenario.blocks(1).survey()
    manifest = {
        "run_id": "r", "t0_monotonic_ns": 0, "t0_wall_ns": 10**18, "plan_fingerprint": plan.fingerprint, "seed": 1,
        "source_samples": 1, "workers": SHARDS, "dealing": "lots",
    }  # fmt: skip
    every = members_of(plan, died, labels is not None)
    members = [member for member, _ in every.values()]
    facts = ended(planned(scenario, plan, SHARDS), members)
    chosen = partial(cancellation.chosen, scenario.cancel, 1, plan) if scenario.cancel else None
    directory = create(path / "home")
    written(directory, every)
    payloads = of_payloads(scenario, scenario.source_object())
    home = seal(directory, manifest, public, plan.pieces, members, facts, chosen, "lots", payloads=payloads)
    folders = []
    for name, mine in zip("ab", MINE, strict=True):
        of_agent = create(path / name)
        some = written(of_agent, {shard: every[shard] for shard in mine})
        share = {"agent": name, "mine": [*mine], "shards": SHARDS, "dealing": "lots"}
        OwnRows(of_agent, {**manifest, "share": share}, public, scenario, plan, some)
        folders.append(of_agent.path)
    left = create(path / "left")
    keep(ASKED, left)
    where = [
        {"name": n, "folder": str(f), "shards": [*m], "lost": None} for n, f, m in zip("ab", folders, MINE, strict=True)
    ]
    document = {"facts": facts.to_json(), "promises": ASKED.to_json(), "report": Report().document()}
    run = Sealed(left, {**manifest, "left": where}, public, rec.empty(), facts)
    write_left(run, plan.pieces, document)
    return home, left, folders


def same(home: Sealed, other: Sealed) -> None:
    for name in COLUMNS:
        if name not in ("error", "server_timing"):
            assert np.array_equal(home.records[name], other.records[name]), name
    assert np.array_equal(home.records.chunk_ns, other.records.chunk_ns)
    told = [json.loads((one.directory.path / "generator.json").read_text()) for one in (home, other)]
    assert told[0] == told[1]
    assert home.facts == other.facts
    first, second = (judge(one, ASKED).document() for one in (home, other))
    assert first.pop("run") | {"directory": ""} == second.pop("run") | {"directory": ""}
    assert first == second


def test_labels_come_together_with_their_rows(tmp_path: Path) -> None:
    home, left, folders = both(tmp_path, labels={"hits": "header h", "model": "body m", "tenant": "source tenant"})
    together = open_sealed(gathered(left.path, folders, tmp_path / "together"))
    same(home, together)
    assert home.facts.account_faults == together.facts.plan_faults == ()
    for labels in (home.records.labels, together.records.labels):
        assert labels is not None
        assert {*labels.texts} == {"model", "tenant"}, "an agent whose model is 7 has numbers, and the run has texts"
        assert {*np.unique(labels.columns["hits"]).tolist()} == {-1, 3, 12}
        assert {*labels.texts["model"]} == {"m", "7"}
        assert labels.texts["tenant"] == ("t",)
        assert (labels.columns["tenant"] == 0).all()


@pytest.mark.parametrize("died", [None, 2])
@pytest.mark.parametrize("flags", [{}, {"cancel": "20%:10ms"}])
def test_rows_that_come_together_are_the_run_whose_rows_were_at_home(
    died: int | None, flags: dict[str, Any], tmp_path: Path
) -> None:
    home, left, folders = both(tmp_path, died, **flags)
    assert home.facts.plan_faults == ()
    assert (home.facts.account_faults == ()) == (died is None)
    collected = open_sealed(gathered(left.path, folders[::-1], tmp_path / "together"))
    same(open_sealed(home.directory.path), collected)
    parts = [open_sealed(folder) for folder in folders]
    assert [one.facts.plan_faults for one in parts] == [(), ()], "a part agrees with its part of the plan"
    assert [{*one.records["worker"].tolist()} for one in parts] == [{0, 2}, {1}]
    assert sum(one.facts.planned for one in parts) == home.facts.planned == 300


def test_a_master_that_was_killed_before_it_judged_gets_the_rows_that_its_agents_sealed(tmp_path: Path) -> None:
    home, _, folders = both(tmp_path)
    killed = create(tmp_path / "killed")
    ahead = Ahead(killed, "the coordinator", pytest.fail)
    scenario = scenario_of()
    plan = scenario.blocks(1).survey()
    facts = planned(scenario, plan, SHARDS)
    ahead.prepare({**home.manifest, "t0_wall_ns": 0}, scenario.to_mapping(), plan.pieces, facts, "lots")
    ahead.announce({"t0_wall_ns": 10**18, "t0_monotonic_ns": 0, "leave_rows": True})
    ahead.close()
    _tidy(killed)  # it has no rows of its own, and is needed
    begun = json.loads((killed.path / BEGUN).read_text())
    begun["process"]["started"] = "another boot"
    (killed.path / BEGUN).write_text(json.dumps(begun))
    with pytest.raises(HarnessFault, match="its rows stayed with its agents"):
        open_run(killed.path)
    together = open_sealed(gathered(killed.path, folders, tmp_path / "together"))
    assert "was killed or died after the load" in str(together.facts.cut_off)
    assert np.array_equal(together.records["done_ns"], home.records["done_ns"])
    assert together.facts.account_faults == ()
    with pytest.raises(HarnessFault, match="its master's run directory must be given too"):
        gathered(None, folders, tmp_path / "alone")


def test_a_share_of_a_plan_is_its_shards_however_long_the_plan_is() -> None:
    long = with_flags(None, kind="server", rate=5000, queries=300_000)
    for scenario in (scenario_of(), long):
        plan = scenario.blocks(1)
        for mine in MINE:
            made = joined(Share(mine, SHARDS, "lots").part(plan))
            shards = [plan.shard(shard, SHARDS, "lots").whole() for shard in mine]
            assert made.query_id.tolist() == sorted(np.concatenate([one.query_id for one in shards]).tolist())
            assert len(made.due_ns) == len(made.payload_ix) == sum(one.n_samples for one in shards)
    few = with_flags(None, kind="server", rate=10, queries=2, seed=1)
    parts = [joined(Share((shard,), 40, "lots").part(few.blocks(1))).query_id.tolist() for shard in range(40)]
    assert sorted(query for part in parts for query in part) == [0, 1]


def test_a_part_of_a_constant_rate_need_not_be_constant_and_has_no_length_of_its_own() -> None:
    scenario = with_flags(None, kind="server", rate=50, arrival="constant", queries=300)
    facts = facts_of(scenario, scenario.blocks(1).survey(), Share((1,), SHARDS, "lots"))
    assert (facts.process, facts.min_queries, facts.min_duration_ns) == ("constant, by lot", 0, 0)
    assert 50 < facts.planned < 150


@pytest.mark.parametrize(
    ("flags", "slo", "said"),
    [
        ({"kind": "offline"}, (), "kind offline"),
        ({"keep": "none"}, (), "keep none"),
        ({"retries": 1}, (), "retries"),
        ({"cancel": "20%:10ms"}, (), "cancel"),
        ({}, ("p99(frame_missed) <= 1",), "frame_missed"),
    ],
)
def test_what_needs_rows_is_refused_before_the_load(
    flags: dict[str, Any], slo: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    made = prepare(None, {"protocol": "null", **flags}, Asked(slo), [], tmp_path / "r", ["plimsoll"])
    with pytest.raises(HarnessFault, match=f"--leave-rows: .*{said}"):
        check(made)
    assert not (tmp_path / "r").exists()
    check(prepare(None, {"protocol": "null"}, Asked(), [], tmp_path / "s", ["plimsoll"]))
    assert (tmp_path / "s").exists()


@pytest.mark.parametrize("name", protocols())
def test_a_protocol_whose_rows_tell_of_sessions_is_refused_before_the_load(name: str, tmp_path: Path) -> None:
    """Every WebSocket has a session of its own, and so has whatever speaks or is spoken to."""
    spec = protocols()[name]
    live = isinstance(spec.build, _Live) or name.endswith(("-tts", "-speech", "-realtime"))
    assert (spec.sessions or spec.source == "audio") == (live or spec.source == "audio")
    scenario = with_flags(None, url="http://127.0.0.1:1", protocol=name)
    made = prepare(None, {"protocol": "null"}, Asked(), [], tmp_path / "r", ["plimsoll"])
    job = replace(made.job, scenario=scenario.model_copy(update={"source": scenario_of().source}))
    if not spec.sessions and spec.source != "audio":
        check(replace(made, job=job))
        return
    with pytest.raises(HarnessFault, match=rf"--leave-rows: .*sessions or speech \(protocol {name}\)") as refused:
        check(replace(made, job=job))
    assert refused.value.code == 2
    assert not (tmp_path / "r").exists()


def test_a_recording_with_queries_of_several_samples_is_refused_before_the_load(tmp_path: Path) -> None:
    for per_query, name in ((2, "several"), (1, "one")):
        rows = from_columns(
            6, query_id=np.arange(6) // per_query, sample_ix=np.arange(6) % per_query, due_ns=np.arange(6) * MS
        )
        (tmp_path / name).mkdir()
        with (tmp_path / name / "requests.parquet").open("wb") as file:
            tables.write([rows], "r", file, io.BytesIO())
        flags = {"protocol": "null", "trace": str(tmp_path / name)}
        made = prepare(None, flags, Asked(), [], tmp_path / f"r{name}", ["plimsoll"])
        if per_query == 1:
            check(made)
            continue
        with pytest.raises(HarnessFault, match=r"--leave-rows: .*queries of several samples"):
            check(made)


@pytest.mark.parametrize("verb", ["search", "sweep", "compare", "coldstart", "replay"])
def test_verbs_that_need_the_rows_of_their_runs_refuse_to_leave_them(verb: str) -> None:
    done = invoke(verb, "--leave-rows", "--locust-master", "--expect-workers", "x")
    assert isinstance(done.exception, HarnessFault)
    assert done.exception.code == 2
    left, agents, *_ = done.exception.errors
    assert left == f"--leave-rows: {verb} needs the rows here; only `plimsoll run` can do without them. Leave it out"
    assert agents.startswith("--expect-workers: ")


def test_rows_are_left_with_agents_only() -> None:
    _, errors = staff_of(None, None, None, None, None, leave=True)
    assert errors == ["--leave-rows: only with --locust-master. Add it, or leave these out"]
