"""What a killed run left is sealed once, says what it lost, and touches nothing that is not its own."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import rundir, salvage
from harness.ahead import Ahead, read
from harness.errors import HarnessFault
from harness.rundir import RunDirectory, open_sealed
from harness.salvage import agents_among, gathered, open_run
from harness.segments import claim, hold, keep_done, read_segments, write_segment
from scenarios.flags import with_flags
from slo.generator import GeneratorFacts
from slo.records import Status, from_columns
from slo.validity import assess

MS = 1_000_000
DONE = {"aborted": None, "faults": [], "max_duration_hit": False, "disk_notes": [], "folders": [], "cpu": 0.1}
DONE |= {"core_wanted": 0, "orphaned": True}


def cut_off(
    path: Path,
    *,
    workers: int = 1,
    done: tuple[int, ...] = (),
    agent: str = "",
    run_id: str = "r1",
    announced: bool = True,
) -> RunDirectory:
    """20 planned requests, 100 ms apart, of which each worker wrote those of the first second."""
    directory = rundir.create(path)
    scenario = with_flags(None, kind="server", rate=10, arrival="constant", queries=20, seed=1)
    plan = scenario.build(1)
    manifest: dict[str, Any] = {
        "run_id": run_id, "t0_wall_ns": 0, "t0_monotonic_ns": 0, "workers": workers, "plan_fingerprint": plan.fingerprint()
    }  # fmt: skip
    facts = GeneratorFacts(open_loop=True, planned=plan.n_samples, planned_queries=plan.n_queries, n_workers=workers)
    mine = (0,) if agent else ()
    ahead = Ahead(directory, f"agent {agent}" if agent else "the coordinator", pytest.fail)
    ahead.prepare(manifest, scenario.to_mapping(), plan, facts, "turns", agent, mine)
    if announced:
        ahead.announce({"t0_wall_ns": 10**18, "t0_monotonic_ns": 10**15})
    ahead.close()
    document = json.loads((path / "begun.json").read_text())
    document["process"]["started"] = "another boot"
    document["seen"] = str(10**18 + 1_200 * MS)
    (path / "begun.json").write_text(json.dumps(document))
    for worker in range(workers if announced else 0):
        rows = [n for n in range(10) if n % workers == worker]
        due = plan.due_ns[rows]
        stamps = {"due_ns": due, "ready_ns": due, "sent_ns": due, "first_byte_ns": due, "done_ns": due + MS}
        write_segment(
            directory.segments / f"w{worker:03d}-000000.seg",
            from_columns(
                len(rows), query_id=plan.query_id[rows], payload_ix=plan.payload_ix[rows], worker=worker, **stamps
            ),
        )
    for worker in done:
        keep_done(directory.segments, worker, DONE)
    return directory


@pytest.mark.parametrize(
    ("done", "cost", "sent"),
    [
        ((0, 1), "its workers stopped then and wrote every row that they had", 10),
        ((0,), "at most the last second of rows is missing of worker 1", 14),
        ((), "at most the last second of rows is missing of workers 0, 1", 18),
    ],
)
def test_a_cut_off_run_is_sealed_once_and_says_when_it_ended_and_what_that_cost(
    done: tuple[int, ...], cost: str, sent: int, tmp_path: Path
) -> None:
    directory = cut_off(tmp_path / "r", workers=2, done=done)
    sealed = open_run(directory.path)
    assert f") was killed or died 1.2 s after t0, of 1.9 s planned, before the run was sealed; {cost}" in str(
        sealed.facts.cut_off
    )
    found = assess(sealed.records, sealed.facts, [])
    assert found.outcome == "INVALID"
    sign = "up to its death, half a second after its last sign of life, a worker may have sent what nobody recorded"
    assert f"{sent} of 20 planned" in found.reasons[0], sign
    assert "lower the rate" not in found.reasons[0].lower()
    assert sealed.records.ok.sum() == 10
    lost = sealed.records.select(sealed.records["status"] == Status.UNFINISHED)
    assert {*lost["worker"].tolist()} <= {0, 1} - {*done}
    assert not directory.segments.exists()
    assert not (directory.path / "begun.json").exists()
    before = {path.name: path.read_bytes() for path in directory.path.iterdir()}
    assert open_run(directory.path).facts == open_sealed(directory.path).facts == sealed.facts
    assert before == {path.name: path.read_bytes() for path in directory.path.iterdir()}


def test_before_t0_nothing_was_sent(tmp_path: Path) -> None:
    sealed = open_run(cut_off(tmp_path / "r", announced=False).path)
    assert str(sealed.facts.cut_off).endswith(") was killed or died before the first query")
    assert {*sealed.records["status"].tolist()} == {Status.UNSENT}
    rundir.create(tmp_path / "early")
    with pytest.raises(HarnessFault, match="nothing was sent"):
        open_run(tmp_path / "early")


def test_a_run_that_somebody_writes_or_whose_coordinator_lives_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salvage, "PATIENCE_S", 0.0)
    directory = cut_off(tmp_path / "r")
    held = hold(directory.segments)
    assert held is not None
    with pytest.raises(HarnessFault, match=r"still going on \(the coordinator, pid \d+ on "):
        open_run(directory.path)
    os.close(held)
    document = json.loads((directory.path / "begun.json").read_text())
    living = Ahead(RunDirectory(tmp_path / "other"), "the coordinator", lambda text: None)
    living.prepare(document["manifest"], {}, with_flags(None).build(1), GeneratorFacts(True, 0), "turns")
    document["process"] = living._document["process"]  # ours: a file system without locks has nothing else
    (directory.path / "begun.json").write_text(json.dumps(document))
    with pytest.raises(HarnessFault, match=f"pid {os.getpid()} on "):
        open_run(directory.path)
    assert directory.segments.is_dir()


def test_a_worker_that_outlived_a_frozen_coordinator_may_have_sent_for_a_second_after_its_last_segment(
    tmp_path: Path,
) -> None:
    directory = cut_off(tmp_path / "r")
    document = json.loads((directory.path / "begun.json").read_text())
    (directory.path / "begun.json").write_text(json.dumps(document | {"seen": str(10**18 + 100 * MS)}))
    sealed = open_run(directory.path)
    unsent = sealed.records["due_ns"][sealed.records["status"] == Status.UNSENT]
    assert unsent.tolist() == [], "the last answer came 901 ms after t0"


def test_when_a_run_was_killed_is_told_by_its_files_not_by_their_times(tmp_path: Path) -> None:
    """A copy, or an artefact of CI, has others."""
    directory = cut_off(tmp_path / "r")
    for file in (directory.file("begun.json"), *directory.segments.iterdir()):
        os.utime(file, (0, 4e9))
    assert " was killed or died 1.2 s after t0, of 1.9 s planned" in str(open_run(directory.path).facts.cut_off)


def test_signs_of_life_are_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = rundir.create(tmp_path / "r")
    ahead = Ahead(directory, "the coordinator", pytest.fail)
    scenario = with_flags(None, kind="server", rate=10, queries=20)
    plan = scenario.build(1)
    manifest = {
        "run_id": "r",
        "t0_wall_ns": 0,
        "t0_monotonic_ns": 0,
        "workers": 1,
        "plan_fingerprint": plan.fingerprint(),
    }
    ahead.prepare(manifest, scenario.to_mapping(), plan, GeneratorFacts(True, 20), "turns")
    ahead.announce({})
    before = read(directory.path)
    monkeypatch.setattr("harness.ahead.time.time_ns", lambda: 10**18 + 7)
    ahead.alive()
    ahead.close()
    after = read(directory.path)
    assert before is not None
    assert after is not None
    assert after.seen_ns == 10**18 + 7 != before.seen_ns
    assert replace(after, seen_ns=0) == replace(before, seen_ns=0)


def test_who_comes_too_late_to_seal_reads_what_the_other_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the other one, who had the folder, removes it."""
    for before in (True, False):
        path = tmp_path / f"r{before}"
        begun = read(cut_off(path).path)
        assert begun is not None
        sealed = open_run(path)
        if before:
            assert salvage._sealed(RunDirectory(path), begun).facts == sealed.facts
        else:
            tried = []

            def goes(folder: Path, tried: list[Path] = tried) -> int:
                tried.append(folder)
                if len(tried) == 1:
                    folder.rmdir()
                return claim(folder)

            monkeypatch.setattr(salvage, "claim", goes)
            assert salvage._sealed(RunDirectory(path), begun).facts == sealed.facts
            assert len(tried) == 2
        assert not (path / "segments").exists()
    (path / "manifest.json").unlink()
    with pytest.raises(HarnessFault, match="sealed in another folder"):
        salvage._sealed(RunDirectory(path), begun)


def test_a_folder_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    directory.segments.rename(tmp_path / "away")
    directory.segments.write_text("a file")
    with pytest.raises(HarnessFault, match="segments can't be read"):
        open_run(directory.path)


def test_rows_of_a_run_that_nobody_can_name_are_not_said_to_be_none(tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    (directory.path / "begun.json").unlink()
    with pytest.raises(HarnessFault, match="rows of a run are in segments"):
        open_run(directory.path)


def test_two_who_seal_at_once_are_told_apart(tmp_path: Path) -> None:
    held = claim(tmp_path)
    with pytest.raises(BlockingIOError):
        claim(tmp_path)
    assert hold(tmp_path) is None
    os.close(held)


def test_a_last_message_names_no_folder_that_is_read_or_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "w000-000001.seg").write_text("not ours")
    directory = cut_off(tmp_path / "r", done=(0,))
    keep_done(directory.segments, 0, {**DONE, "folders": [str(precious)]})
    assert not open_run(directory.path).facts.disk_faults
    assert (precious / "w000-000001.seg").read_text() == "not ours"


@pytest.mark.parametrize(
    "message", [{}, {"stalls": 3}, {**DONE, "cpu": "x"}, {**DONE, "faults": 3}, {**DONE, "client": []}]
)
def test_a_last_message_that_can_not_be_read_counts_as_none(message: dict[str, Any], tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    keep_done(directory.segments, 0, message)
    assert "at most the last second of rows is missing of worker 0" in str(open_run(directory.path).facts.cut_off)


def test_a_torn_segment_costs_itself_and_a_whole_one_that_was_not_renamed_counts(tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    whole = directory.segments / "w000-000000.seg"
    data = whole.read_bytes()
    whole.rename(whole.with_suffix(".partial"))
    (directory.segments / "w000-000001.partial").write_bytes(data[: len(data) // 2])
    parts, faults = read_segments([directory.segments])
    assert [len(part) for part in parts] == [10]
    assert faults == [
        f"segment {directory.segments / 'w000-000001.partial'} was cut off as it was written: its rows are missing"
    ]
    sealed = open_run(directory.path)
    assert sealed.records.ok.sum() == 10
    assert "was cut off as it was written" in sealed.facts.disk_faults[0]


@pytest.mark.parametrize(
    "change",
    [
        *({"schema": "x"}, {"manifest": []}, {"manifest": {}}, {"facts": {}}, {"facts": None}, {"process": {}}),
        *({"dealing": "x"}, {"announced": 1}, {"mine": ["a"]}, {"mine": None}, {"agent": 3}),
    ],
)
def test_a_damaged_begun_json_is_one_clear_error(change: dict[str, Any], tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    file = directory.file("begun.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(HarnessFault, match="damaged or from another version"):
        open_run(directory.path)


@pytest.mark.parametrize("name", ["plan.npz", "scenario.yaml"])
@pytest.mark.parametrize("content", [None, b"", b"[1]", b"\x00" * 40])
def test_what_can_not_be_sealed_says_so_and_keeps_everything(name: str, content: bytes | None, tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    directory.file(name).unlink()
    if content is not None:
        directory.file(name).write_bytes(content)
    with pytest.raises(HarnessFault, match="what it left can't be sealed"):
        open_run(directory.path)
    assert read_segments([directory.segments])[0]


def test_agents_folders_come_home_to_their_master_or_to_each_other(tmp_path: Path) -> None:
    master = cut_off(tmp_path / "r", workers=2)
    (master.segments / "w001-000000.seg").unlink()
    agent = cut_off(tmp_path / "a", workers=2, agent="a", done=(0, 1))
    assert agents_among([agent.path, master.path]) == ([agent.path], [master.path])
    assert gathered(master.path, [agent.path], None) == master.path
    assert open_run(master.path).records.ok.sum() == 10
    alone = gathered(None, [agent.path], tmp_path / "new")
    assert open_run(alone).records.ok.sum() == 10
    assert read(agent.path) is not None, "it stays as it was"
    other = cut_off(tmp_path / "b", agent="b", run_id="r2")
    with pytest.raises(HarnessFault) as fault:
        gathered(None, [agent.path, other.path, tmp_path], tmp_path / "none")
    assert ["no folder of an agent" in fault.value.errors[0], "different runs: r1, r2" in fault.value.errors[1]] == [
        True
    ] * 2
    assert not (tmp_path / "none").exists()


def test_a_master_that_was_killed_as_it_tidied_up_is_whole_and_gets_its_agents_rows_all_the_same(
    tmp_path: Path,
) -> None:
    master = cut_off(tmp_path / "r", workers=2)
    (master.segments / "w001-000000.seg").unlink()
    begun = (master.path / "begun.json").read_bytes()
    open_run(master.path)
    (master.path / "begun.json").write_bytes(begun)
    agent = cut_off(tmp_path / "a", workers=2, agent="a", done=(0, 1))
    more = gathered(master.path, [agent.path], None)
    assert more == tmp_path / "r-with-agents"
    made = open_run(more)
    assert made.records.ok.sum() == 10
    unsent = int((made.records["status"] == Status.UNSENT).sum())
    assert unsent > 0
    assert made.facts.sent == 20 - unsent, "what stands for what was not sent was not sent"


def test_a_cut_off_run_that_is_sealed_elsewhere_keeps_its_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = cut_off(tmp_path / "r")
    directory.file("promises.json").write_text("{}")
    written = rundir._write

    def full(sealed: rundir.Sealed, *rest: Any) -> None:
        if sealed.directory == directory:
            raise OSError(30, "Read-only file system")
        written(sealed, *rest)

    monkeypatch.setattr(rundir, "_write", full)
    monkeypatch.setattr(rundir, "_other_places", lambda path: (tmp_path,))
    found = open_run(directory.path).directory
    assert found != directory
    assert found.file("promises.json").read_text() == "{}"
