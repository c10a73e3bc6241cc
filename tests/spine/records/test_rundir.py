"""Run directories: rows that are missing, what a sealed one says of its plan, and where one goes that its own disk has
no room for.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.outputs import gather, scores_of
from plimsoll.harness.run import rundir
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Promises
from plimsoll.harness.run.rundir import RunDirectory, Sealed, open_sealed, seal
from plimsoll.harness.sealing.gathered import Gathered
from plimsoll.harness.sealing.planned import END, MEASURED, Cursor
from plimsoll.harness.sealing.sealing import Missing
from plimsoll.harness.sealing.workforce import Member
from plimsoll.harness.series.one_run import _tidy
from plimsoll.scenarios import spec
from plimsoll.scenarios.flags import with_flags
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.plan import Dealing, Plan, Stop
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Status
from plimsoll.slo.validity.generator import GeneratorFacts
from tests.unit.harness.capacity_folders import md1, sealed
from tests.unit.harness.sealed_runs import records


def sessions(n: int) -> Plan:
    """Three queries a session, each after the one before; query k is due at k ms."""
    after = np.where(np.arange(n) % 3 == 0, -1, np.arange(n) - 1)
    zeros = np.zeros(n, np.int64)
    due = np.arange(n) * 1_000_000
    return Plan(due, np.arange(n), np.arange(n + 1), zeros, zeros, after, Stop(), seed=0, open_loop=True)


@pytest.mark.parametrize("dealing", ["turns", "lots"])
def test_a_dead_workers_rows_are_those_that_it_was_dealt_up_to_its_death(dealing: Dealing) -> None:
    plan, t0_ns = sessions(60), 10**15
    members = [Member(index, done={}) for index in range(4)]
    members[2] = Member(2, death="was killed", died_ns=t0_ns + 30_000_000)
    whole = cut(plan)
    rows = Missing(whole, members, Gathered([], [], 1), t0_ns, dealing).rows(Cursor(whole).until(END))
    assert rows["query_id"].tolist() == list(range(60))
    for index in range(4):
        mine = plan.shard(index, 4, dealing).query_id
        assert rows["query_id"][rows["worker"] == index].tolist() == mine.tolist()
    lost = rows["query_id"][rows["status"] == int(Status.UNFINISHED)]
    dealt = plan.shard(2, 4, dealing).query_id
    assert lost.tolist() == dealt[dealt <= 30].tolist()
    assert len(lost)
    assert {text for text in rows.errors if text} >= {"its worker died before it was recorded"}


@pytest.mark.parametrize("until", [END, MEASURED + 20_000])
def test_the_samples_of_a_query_in_pieces_are_those_of_the_query(until: int) -> None:
    pieces = spec.parse({"kind": "offline", "params": {"samples": 40_000}}).blocks(300)
    plan, members = pieces.whole(), [Member(index, done={}) for index in range(3)]
    assert (plan.n_queries, len([*pieces])) == (1, 3)
    found = []
    for lane in (pieces, cut(plan)):
        cursor = Cursor(lane)
        samples = cursor.until(until)
        rows = Missing(lane, members, Gathered([], [], cursor.width), 0, "turns").rows(samples)
        arrays = [getattr(samples, item.name) for item in fields(samples) if item.name != "labels"]
        found.append([*(array.tolist() for array in arrays), rows["worker"].tolist()])
        assert samples.labels == {}
    assert found[0] == found[1]
    assert found[0][-1] == [place % 3 for place in range(len(found[0][0]))]


# -- what it says of its plan ---------------------------------------------------------------------------------------

ASKED = Promises(objectives=(parse("p50(latency) <= 1s"),))


def made(path: Path) -> Path:
    due, done = md1(50.0, 400, 1)
    sealed(path, due - due[0], done - due[0], 50.0)
    return path


def test_rows_taken_away_with_the_number_of_planned_ones_make_the_run_invalid(tmp_path: Path) -> None:
    run = made(tmp_path / "r")
    whole = open_sealed(run)
    assert whole.facts.plan_samples == whole.facts.planned == 400
    assert judge(whole, ASKED).verdict.outcome == "PASS"
    fewer = whole.records.select(np.arange(400) % 10 != 7)
    for name, table in zip(("requests", "chunks"), tables.to_tables(fewer, [""] * 360), strict=True):
        pq.write_table(table, run / f"{name}.parquet")
    told = json.loads((run / "generator.json").read_text())
    told["facts"] |= {"planned": 360, "planned_queries": 360, "plan_samples": 360}
    (run / "generator.json").write_text(json.dumps(told))
    report = judge(open_sealed(run), ASKED)
    assert report.verdict.outcome == "INVALID"
    of_plan, of_facts = report.verdict.reasons[:2]
    assert "40 planned samples have no row" in of_plan
    assert "generator.json says that 360 samples were planned, plan.npz holds 400" in of_facts
    assert (report.validity.planned, report.validity.unsent) == (400, 40)


def test_a_run_of_an_open_loop_without_its_plan_is_damaged(tmp_path: Path) -> None:
    run = made(tmp_path / "r")
    (run / "plan.npz").write_bytes(b"no archive")
    with pytest.raises(HarnessFault, match="damaged"):
        open_sealed(run)
    (run / "plan.npz").unlink()
    with pytest.raises(HarnessFault, match=r"plan\.npz"):
        open_sealed(run)


# -- a disk without room --------------------------------------------------------------------------------------------

Full = Callable[[Path], bool]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Full], Sealed]:
    """Seals a run of 40 rows, half of them in memory, where ``full(folder)`` says which folders take nothing."""
    for name in ("home", "work", "tmp", "out"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "work")
    scenario = with_flags(None, kind="concurrency", concurrency=1, queries=40)
    plan, made = scenario.build(1), records(40, 50.0)
    manifest = {"run_id": "r", "t0_monotonic_ns": 0, "plan_fingerprint": plan.fingerprint()}
    written = rundir._write

    def made_with(full: Full) -> Sealed:
        def write(sealed: Sealed, **rest: Any) -> None:
            written(sealed, **rest)
            if full(sealed.directory.path):
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(rundir, "_write", write)
        directory = rundir.create(tmp_path / "out" / "r")
        (directory.segments / "w000-000000.note").write_text("a segment's neighbour")
        member = Member(0, done={"folders": [str(directory.segments)]}, segments=[made])
        facts = GeneratorFacts(open_loop=False, planned=40, planned_queries=40, min_queries=40)
        (directory.segments / "outputs-w000.jsonl").write_text('{"query_id": 0, "sample_ix": 0, "text": "Paris"}\n')
        answers = gather(directory.segments, plan, "r", ["Paris"], mlperf=True)
        return seal(directory, manifest, scenario.to_mapping(), plan, [member], facts, answers=answers)

    return made_with


@pytest.mark.parametrize(
    ("taken", "place"), [("", "tmp"), ("tmp", "home"), ("tmp home", "work"), ("tmp home work", "out")]
)
def test_the_first_folder_that_takes_the_run_has_it_and_the_others_nothing(
    taken: str, place: str, run: Callable[[Full], Sealed], tmp_path: Path
) -> None:
    full = {tmp_path / name for name in taken.split()}
    sealed = run(lambda folder: folder == tmp_path / "out" / "r" or folder.parent in full)
    found = [*tmp_path.rglob("plimsoll-run-*")]
    assert [folder.parent for folder in found] == [tmp_path / place]
    assert sealed.directory == RunDirectory(found[0])
    assert sealed.whole
    assert str(found[0]) in sealed.notes[0]
    assert len(open_sealed(found[0]).records) == 40
    scores = scores_of(sealed.directory.path)
    assert scores is not None, "the answers went with it: their lines are gone with the segments"
    assert (found[0] / "mlperf_log_accuracy.json").is_file()


def test_a_log_that_can_not_be_removed_costs_nothing(
    run: Callable[[Full], Sealed], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file system that has become read-only takes no file, and gives none back."""
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.parent == tmp_path / "out" / "r":
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(path, missing_ok=missing_ok)

    def full(folder: Path) -> bool:
        (tmp_path / "out" / "r" / "worker.log").touch()
        return folder == tmp_path / "out" / "r"

    monkeypatch.setattr(Path, "unlink", refused)
    assert len(open_sealed(run(full).directory.path).records) == 40


def test_where_no_folder_takes_it_the_rows_are_there_and_the_segments_stay(
    run: Callable[[Full], Sealed], tmp_path: Path
) -> None:
    sealed = run(lambda folder: True)
    assert not sealed.whole
    assert len(sealed.records) == 40
    assert sealed.facts.disk_faults == sealed.notes
    assert f"left in {tmp_path / 'out' / 'r' / 'segments'}" in sealed.notes[0]
    assert (tmp_path / "out" / "r" / "segments" / "outputs-w000.jsonl").is_file()
    assert not [*tmp_path.rglob("plimsoll-run-*"), *Path("/dev/shm").glob("plimsoll-run-*")]


def test_a_folder_with_the_logs_of_a_failed_start_is_no_run_and_the_next_try_takes_it(tmp_path: Path) -> None:
    out = tmp_path / "r"
    failed = rundir.create(out)
    for log in (failed.worker_log, failed.server_log):
        log.write_text("no module named torch")
    with pytest.raises(HarnessFault, match="is not empty"):
        rundir.create(out)  # it prepares still
    _tidy(failed)
    assert {path.name for path in out.iterdir()} == {"worker.log", "server.log"}
    again = rundir.create(out)
    assert {path.name for path in out.iterdir()} == {"segments"}
    _tidy(again)
    assert not out.exists()
    out.mkdir()
    for name in ("notes.txt", "worker.log"):
        (out / name).write_text("mine")
        with pytest.raises(HarnessFault, match="is not empty"):
            rundir.create(out)
    assert (out / "worker.log").read_text() == "mine"


def test_an_interrupt_once_a_run_is_sealed_leaves_it_as_it_is(tmp_path: Path) -> None:
    """Its segments are gone then, and it isn't judged yet."""
    directory = rundir.create(tmp_path / "sealed")
    for name in ("manifest.json", "scenario.yaml", "plan.npz", "promises.json"):
        directory.file(name).write_text("{}")
    _tidy(directory)
    assert {path.name for path in directory.path.iterdir()} == {
        "manifest.json", "scenario.yaml", "plan.npz", "promises.json",
    }  # fmt: skip
