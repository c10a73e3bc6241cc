"""What a killed run left is sealed once, says what it lost, and touches nothing that is not its own."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator import segments
from plimsoll.harness.generator.segments import claim, hold, keep_done, read_segments, write_segment
from plimsoll.harness.run import rundir, salvage
from plimsoll.harness.run.ahead import Ahead, read
from plimsoll.harness.run.rundir import RunDirectory, open_sealed
from plimsoll.harness.run.salvage import agents_among, gathered, open_run
from plimsoll.harness.verbs.gate import _the_run
from plimsoll.scenarios.flags import with_flags
from plimsoll.slo.records.records import Records, Status, from_columns
from plimsoll.slo.validity.accounts import check, digests
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess

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
        "run_id": run_id, "t0_wall_ns": 0, "t0_monotonic_ns": 0, "workers": workers,
        "plan_fingerprint": plan.fingerprint()
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
    document["seen"] = f"{10**18 + 1_200 * MS:020d}"
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
        os.utime(directory.segments / f"w{worker:03d}-000000.seg", ns=(10**18, 10**18))
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
    (directory.path / "requests.parquet.0123456789abcdef.partial").write_bytes(b"half")
    sealed = open_run(directory.path)
    assert not [*directory.path.glob("*.partial")]
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


def test_a_copy_of_a_cut_off_run_ended_when_the_run_did(tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    copy = RunDirectory(shutil.copytree(directory.path, tmp_path / "copy", copy_function=shutil.copyfile))
    sealed = open_run(copy.path)
    assert "was killed or died 1.2 s after t0, of 1.9 s planned" in str(sealed.facts.cut_off)
    unsent = (sealed.records["status"] == Status.UNSENT).sum()
    assert unsent == (open_run(directory.path).records["status"] == Status.UNSENT).sum() > 0, "its workers outlived it"
    alone = gathered(None, [cut_off(tmp_path / "a", agent="a").path], tmp_path / "new")
    assert "agent a (pid " in (cut := str(open_run(alone).facts.cut_off))
    assert "1.2 s after t0" in cut


def test_a_sign_of_life_stands_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.harness.run.ahead._now", lambda: f"{10**18:020d}")
    directory = rundir.create(tmp_path / "r")
    plan = with_flags(None, queries=3).build(1)
    manifest = {
        "run_id": "r",
        "t0_wall_ns": 0,
        "t0_monotonic_ns": 0,
        "workers": 1,
        "plan_fingerprint": plan.fingerprint(),
    }
    ahead = Ahead(directory, "the coordinator", pytest.fail)
    ahead.prepare(manifest, {}, plan, GeneratorFacts(True, 3), "turns")
    ahead.announce({"t0_wall_ns": 10**18})
    monkeypatch.setattr("plimsoll.harness.run.ahead._now", lambda: f"{10**18 + 5 * MS:020d}")
    ahead.alive()
    begun = read(directory.path)
    assert begun is not None
    assert (begun.seen_ns, begun.manifest["t0_wall_ns"], begun.announced) == (10**18 + 5 * MS, 10**18, True)


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(HarnessFault, match=r"report\.json: not a run directory"):
        open_run(tmp_path / "report.json")


def test_what_a_run_begins_with_is_on_the_disk_itself_before_t0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut takes what was only written."""
    synced: list[tuple[Path, str]] = []
    threads: list[threading.Thread] = []

    def fsync(held: int) -> None:
        path = Path(f"/proc/self/fd/{held}").readlink()
        if tmp_path in (path, *path.parents):  # threads of other tests may still be at it
            synced.append((path, path.read_text() if path.name == "begun.json" else ""))

    class Kept(threading.Thread):
        def start(self) -> None:
            threads.append(self)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(threading, "Thread", Kept)
    out = tmp_path / "r"
    cut_off(out, announced=False)
    needed = {tmp_path, out, *(out / name for name in ("begun.json", "plan.npz", "scenario.yaml"))}
    assert needed <= {path for path, _ in synced}
    assert not threads
    synced.clear()
    cut_off(tmp_path / "s")
    assert not any('"announced": true' in text for _, text in synced), "t0 does not wait for the disk"
    (thread,) = threads
    thread.run()
    assert any('"announced": true' in text for _, text in synced)


@pytest.mark.parametrize("agent", ["", "a1"])
def test_rows_that_a_killed_worker_wrote_elsewhere_are_found_without_a_word_of_it(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    directory = cut_off(tmp_path / "r", workers=2, agent=agent)
    segment = directory.segments / "w001-000000.seg"
    rows = read_segments([directory.segments])[0][1]
    segment.unlink()
    write = segments.write_segment

    def full(path: Path, records: Records) -> None:
        if path.parent == directory.segments:
            raise OSError(28, "No space left on device")
        write(path, records)

    monkeypatch.setattr(segments, "write_segment", full)
    for run_id in ("r1", "r0"):  # and the one of an earlier run in the same place
        writer = segments.SegmentWriter(directory.segments, 1, run_id)
        writer.put(rows)
        writer.close()
    (own,), (other,) = (segments.spilled(directory.segments, run_id) for run_id in ("r1", "r0"))
    (tmp_path / f"{own.name[:-8]}zzzzzzzz").symlink_to(other)  # nor what somebody else laid there
    path = gathered(None, [directory.path], tmp_path / "home") if agent else directory.path
    sealed = open_run(path)
    assert sealed.records.ok.sum() == 10
    assert other.is_dir()
    assert agent or not own.exists(), "sealed, it is not needed any more"


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
    begun = directory.file("begun.json")
    begun.write_text(json.dumps({**json.loads(begun.read_text()), "seen": f"{10**18 + 100 * MS:020d}"}))
    os.utime(directory.segments / "w000-000000.seg", ns=(10**18, 10**18 + 450 * MS))
    sealed = open_run(directory.path)
    unsent = sealed.records["due_ns"][sealed.records["status"] == Status.UNSENT]
    assert unsent.tolist() == [1500 * MS, 1600 * MS, 1700 * MS, 1800 * MS, 1900 * MS]


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
    with pytest.raises(HarnessFault, match="another command has just sealed this run"):
        salvage._sealed(RunDirectory(path), begun)


def test_a_folder_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    directory.segments.rename(tmp_path / "away")
    directory.segments.write_text("a file")
    with pytest.raises(HarnessFault, match="segments: the run was cut off, and this folder of it can't be opened"):
        open_run(directory.path)


def test_rows_of_a_run_that_nobody_can_name_are_not_said_to_be_none(tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    (directory.path / "begun.json").unlink()
    with pytest.raises(HarnessFault, match="the segments hold rows of a run"):
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
        *({"seen": "yesterday"}, {"seen": None}, {"seen": "9" * 20}),
        {"process": {"who": "x", "pid": float("inf"), "host": "h", "started": "s"}},
        {
            "manifest": {
                "run_id": "r",
                "t0_wall_ns": 0,
                "t0_monotonic_ns": 0,
                "plan_fingerprint": "",
                "workers": 1 << 16,
            }
        },
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


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("begun.json", "damaged or from another version"),
        ("scenario.yaml", "what it left can't be sealed"),
        ("plan.npz", "plan.npz"),
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name: str, says: str, tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    directory.file(name).unlink()
    os.mkfifo(directory.file(name))
    with pytest.raises(HarnessFault, match=says):
        open_run(directory.path)


def test_a_last_message_that_is_a_pipe_counts_as_none(tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    os.mkfifo(directory.segments / "w000.done")
    assert "is missing of worker 0" in str(open_run(directory.path).facts.cut_off)


def test_what_multiplies_in_a_scenario_is_not_sealed_as_something_that_no_one_can_open_again(tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    with directory.file("scenario.yaml").open("a") as file:
        file.write("\n".join(lines) + "\n")
    with pytest.raises(HarnessFault, match="its aliases"):
        open_run(directory.path)
    assert read_segments([directory.segments])[0]


@pytest.mark.parametrize("link", [True, False])
def test_segments_that_are_no_folder_are_one_clear_error(link: bool, tmp_path: Path) -> None:
    directory = cut_off(tmp_path / "r")
    shutil.rmtree(directory.segments)
    directory.segments.symlink_to("nowhere") if link else directory.segments.write_text("x")
    with pytest.raises(HarnessFault, match="can't be opened"):
        open_run(directory.path)


def test_nothing_is_brought_into_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coordinator would find rows of a worker that it never had."""
    monkeypatch.setattr(salvage, "PATIENCE_S", 0.0)
    master = cut_off(tmp_path / "r", workers=2)
    (master.segments / "w001-000000.seg").unlink()
    agent = cut_off(tmp_path / "a", workers=2, agent="a", done=(0, 1))
    held = hold(master.segments)
    assert held is not None
    before = {*master.segments.iterdir()}
    with pytest.raises(HarnessFault, match="still going on"):
        gathered(master.path, [agent.path], None)
    assert {*master.segments.iterdir()} == before
    os.close(held)
    gathered(master.path, [agent.path], None)
    assert {*master.segments.iterdir()} > before


def test_agents_folders_come_home_to_their_master_or_to_each_other(tmp_path: Path) -> None:
    master = cut_off(tmp_path / "r", workers=2)
    (master.segments / "w001-000000.seg").unlink()
    agent = cut_off(tmp_path / "a", workers=2, agent="a", done=(0, 1))
    assert agents_among([agent.path, master.path]) == ([agent.path], [master.path])
    with pytest.raises(HarnessFault, match="was cut off, and such a run is sealed in its own folder"):
        gathered(master.path, [agent.path], tmp_path / "elsewhere")
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


def test_rows_brought_into_a_sealed_run_close_its_account(tmp_path: Path) -> None:
    agent = cut_off(tmp_path / "a", workers=2, agent="a")
    parts, _ = read_segments([agent.segments])
    (rows,) = (part for part in parts if part["worker"][0] == 1)
    account = {"sent": len(rows), "rows": len(rows), "digest": digests(rows)[1], "segments": 1, "unwritten": []}
    keep_done(agent.segments, 1, {**DONE, "account": account})
    master = cut_off(tmp_path / "r", workers=2, done=(0,))
    (master.segments / "w001-000000.seg").unlink()
    before = open_run(master.path)
    assert before.facts.sent > before.facts.recorded == 5
    again = open_sealed(_the_run([master.path], [agent.path], tmp_path / "both"))
    assert again.directory.path == tmp_path / "both", "the documents say that --out names it"
    assert [again.facts.sent, again.facts.recorded, again.facts.lost] == [10, 10, 0], (
        "rows that nobody sent count as sent"
    )
    assert again.facts.account_faults == (), "the worker's account is in the agent's folder"
    said = check(again.records, again.facts).detail
    assert (
        said
        == "sent 10 = answered 10 + failed 0 + cancelled 0 + lost 0; recorded 10; warm-up 0; retried 0; planned 20, "
        "unsent 10"
    )


def test_rows_of_a_worker_that_gave_no_account_stay_lost_where_an_agent_brings_others(tmp_path: Path) -> None:
    agent = cut_off(tmp_path / "a", workers=2, agent="a")
    master = cut_off(tmp_path / "r", workers=2, done=(1,))
    (master.segments / "w000-000000.seg").unlink()
    (agent.segments / "w000-000000.seg").unlink()
    before = open_run(master.path)
    again = open_sealed(gathered(master.path, [agent.path], None))
    assert [again.facts.sent, again.facts.recorded] == [before.facts.sent, 5]
    assert again.facts.account_faults == before.facts.account_faults != ()
    assert (
        f"sent {before.facts.sent} = answered 5 + failed 0 + cancelled 0 + lost {before.facts.sent - 5}; recorded 5"
        in check(again.records, again.facts).detail
    )


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

    def full(sealed: rundir.Sealed, *rest: Any, **more: Any) -> None:
        if sealed.directory == directory:
            raise OSError(30, "Read-only file system")
        written(sealed, *rest, **more)

    monkeypatch.setattr(rundir, "_write", full)
    monkeypatch.setattr(rundir, "_other_places", lambda path: (tmp_path,))
    found = open_run(directory.path).directory
    assert found != directory
    assert found.file("promises.json").read_text() == "{}"
