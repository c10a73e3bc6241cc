"""A run that the machine spoiled is made again, a result never is, and every attempt can still be opened.

Nothing is sent.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.live.place import Place
from plimsoll.harness.run.attempts import spoiled
from plimsoll.harness.run.coordinator import Outcome
from plimsoll.harness.run.job import Prepared, prepare
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Asked, keep
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.run.watcher import Watcher
from plimsoll.harness.series.one_run import LivePage, Staff, carry_through, run_job
from plimsoll.harness.verbs.gate import _judge_again
from tests.unit.harness.sealed_runs import sealed_run

LATE = {"worker_faults": ["worker 0 was killed by SIGKILL"]}
Deed = Callable[[Prepared], Outcome]


def made(**facts: object) -> Deed:
    """A run of 40 answers of 50 ms; ``facts`` replace the generator's."""

    def deed(prepared: Prepared) -> Outcome:
        path = prepared.job.directory.path
        fresh = sealed_run(path / "made", 50.0, seed=prepared.job.scenario.seed)
        for entry in fresh.iterdir():
            entry.rename(path / entry.name)
        fresh.rmdir()
        (path / "segments").rmdir()
        for name, key, changed in (("generator.json", "facts", facts), ("manifest.json", "", prepared.job.foreseen)):
            document = json.loads((path / name).read_text())
            (document[key] if key else document).update(changed)
            (path / name).write_text(json.dumps(document))
        keep(prepared.promises, prepared.job.directory)
        sealed = open_sealed(path)
        if "open_loop" in facts:  # its plan is a closed loop's all the same
            sealed = replace(sealed, facts=replace(sealed.facts, plan_samples=0, plan_faults=()))
        return Outcome(sealed, interrupted=bool(facts.get("interrupted")))

    return deed


def refused(fault: BaseException, log: str = "") -> Deed:
    def deed(prepared: Prepared) -> Outcome:
        if log:
            prepared.job.directory.worker_log.write_text(log)
        raise fault

    return deed


class Runs:
    """Stands in for the load: one deed after the other, the last one again and again."""

    def __init__(self, *deeds: Deed) -> None:
        self.deeds = deeds
        self.seeds: list[int] = []
        self.workforces: list[object] = []

    def __call__(self, prepared: Prepared, label: str, watchers: tuple[Watcher, ...], workforce: object) -> Outcome:
        self.seeds.append(prepared.job.scenario.seed)
        self.workforces.append(workforce)
        return self.deeds[min(len(self.seeds), len(self.deeds)) - 1](prepared)


def asked(folder: Path, retries: int, slo: str = "p50(ttft) <= 1s") -> Prepared:
    flags = {"kind": "concurrency", "concurrency": 1, "queries": 40, "retries": retries, "url": "http://127.0.0.1:9"}
    return prepare(None, flags, Asked([slo]), (), folder / "r")  # type: ignore[arg-type]


def sent(monkeypatch: pytest.MonkeyPatch, *deeds: Deed) -> Runs:
    runs = Runs(*deeds)
    monkeypatch.setattr("plimsoll.harness.series.one_run.carry_out", runs)
    return runs


@pytest.mark.parametrize(
    ("facts", "slo", "again"),
    [
        ({}, "p50(ttft) <= 1s", False),  # PASS
        ({}, "p50(ttft) <= 20ms", False),  # FAIL
        ({}, "p99(ttft) <= 1s", False),  # INCONCLUSIVE
        (LATE, "p50(ttft) <= 1s", True),
        (LATE, "p50(ttft) <= 20ms", True),  # what the numbers would say plays no part
        ({"loop_stall_max_ns": 400_000_000, "loop_stall_total_ns": 400_000_000}, "p50(ttft) <= 1s", True),
        ({"worker_cpu": [0.97], "watched_ns": 4_000_000_000}, "p50(ttft) <= 1s", True),
        ({"stamps_refused": 20, "kernel_reads": 20}, "p50(ttft) <= 1s", True),
        ({"disk_faults": ["w0-1.seg: truncated"]}, "p50(ttft) <= 1s", True),
        ({"agents": 2, "clock_error_ns": 9_000_000}, "p50(ttft) <= 1s", True),
        ({"aborted": "so many were in flight"}, "p50(ttft) <= 1s", False),
        ({"aborted": "so many were in flight", **LATE}, "p50(ttft) <= 1s", False),  # not by the generator alone
        ({"interrupted": True}, "p50(ttft) <= 1s", False),
        ({"interrupted": True, **LATE}, "p50(ttft) <= 1s", False),
        ({"max_duration_hit": True}, "p50(ttft) <= 1s", False),
        ({"min_queries": 50}, "p50(ttft) <= 1s", False),  # the plan itself is too short
        ({"min_queries": 50, **LATE}, "p50(ttft) <= 1s", True),  # the dead worker cut it short
        ({"planned": 50, "open_loop": True, **LATE}, "p50(ttft) <= 1s", True),
        ({"planned": 50, "open_loop": True, "aborted": "too many"}, "p50(ttft) <= 1s", False),
        ({"planned": 50, "open_loop": True, "max_duration_hit": True}, "p50(ttft) <= 1s", False),
    ],
)
def test_only_what_the_generator_alone_spoiled_is_repeated(
    facts: dict[str, object], slo: str, again: bool, tmp_path: Path
) -> None:
    prepared = asked(tmp_path, 1, slo)
    report = judge(made(**facts)(prepared).sealed, prepared.promises)
    assert spoiled(report) is again


def test_a_spoiled_run_is_made_again_with_the_same_seed_and_every_attempt_opens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = sent(monkeypatch, made(**LATE), made(**LATE), made())
    assert run_job(asked(tmp_path, 5), as_json=True) == ExitCode.PASS
    said = capsys.readouterr()
    assert runs.seeds == [42, 42, 42]
    report = json.loads(said.out)
    assert [(one["number"], one["outcome"], one["directory"]) for one in report["attempts"]] == [
        (1, "INVALID", "attempts/1"),
        (2, "INVALID", "attempts/2"),
        (3, "PASS", "."),
    ]
    assert all("killed by SIGKILL" in one["reasons"][0] for one in report["attempts"][:2])
    assert "attempt 1 of 6: INVALID by the generator alone" in said.err
    run = tmp_path / "r"
    assert json.loads((run / "report.json").read_text()) == report
    for number in (1, 2):
        kept = run / "attempts" / str(number)
        assert json.loads((kept / "report.json").read_text())["run"]["directory"] == str(kept)
        assert _judge_again(kept, Asked(), [], as_json=True, rewrite=True) == ExitCode.INVALID
        assert len(json.loads(capsys.readouterr().out)["attempts"]) == (0 if number == 1 else 2)
    assert _judge_again(run, Asked(), [], as_json=False, rewrite=True) == ExitCode.PASS
    assert "INVALID by the generator alone" in " ".join(capsys.readouterr().out.split())


def test_the_number_of_retries_is_a_bound_and_none_are_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs = sent(monkeypatch, made(**LATE))
    assert run_job(asked(tmp_path, 2), as_json=True) == ExitCode.INVALID
    assert len(runs.seeds) == 3
    assert sorted(path.name for path in (tmp_path / "r" / "attempts").iterdir()) == ["1", "2"]
    shutil.rmtree(tmp_path / "r")
    runs = sent(monkeypatch, made(**LATE))
    assert run_job(asked(tmp_path, 0), as_json=True) == ExitCode.INVALID
    assert len(runs.seeds) == 1
    assert not (tmp_path / "r" / "attempts").exists()


@pytest.mark.parametrize("slo", ["p50(ttft) <= 20ms", "p99(ttft) <= 1s", "p50(ttft) <= 1s"])
def test_a_result_is_never_asked_for_twice(slo: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = sent(monkeypatch, made())
    run_job(asked(tmp_path, 3, slo), as_json=True)
    assert len(runs.seeds) == 1


def test_whoever_interrupts_an_attempt_ends_them_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = sent(monkeypatch, made(**LATE), made(interrupted=True, **LATE))
    assert run_job(asked(tmp_path, 5), as_json=True) == ExitCode.INTERRUPTED
    assert len(runs.seeds) == 2


@pytest.mark.parametrize("name", ["conclude", "publish"])
def test_ctrl_c_while_the_report_is_made_says_how_to_make_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent(monkeypatch, made())

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"plimsoll.harness.series.one_run.{name}", interrupted)
    with pytest.raises(HarnessFault, match=f"`plimsoll report {tmp_path / 'r'}` makes it") as fault:
        run_job(asked(tmp_path, 0), as_json=True)
    assert fault.value.code == ExitCode.INTERRUPTED
    assert open_sealed(tmp_path / "r").records.ok.all()


def test_an_interrupted_run_says_where_its_records_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent(monkeypatch, made(interrupted=True))
    assert run_job(asked(tmp_path, 0), as_json=False) == ExitCode.INTERRUPTED
    said = capsys.readouterr()
    assert f"`plimsoll report {tmp_path / 'r'}` shows it again" in said.err
    assert "interrupted before its end" in " ".join(said.out.split()).replace("┃ ", "")
    assert "yes" not in said.out


@pytest.mark.parametrize(
    ("fault", "log", "why", "exits"),
    [
        (
            HarnessFault("interrupted before the first query: nothing was sent", ExitCode.INTERRUPTED),
            "",
            "(interrupted before the first query)",
            ExitCode.INTERRUPTED,
        ),
        (KeyboardInterrupt(), "", "(interrupted)", ExitCode.INTERRUPTED),
        (
            HarnessFault(
                "target.url: cannot connect to http://e (refused). Nothing was sent. Is the server running?",
                ExitCode.UNREACHABLE,
            ),
            "Traceback",
            "(target.url: cannot connect to http://e (refused). Is the server running?)",
            ExitCode.INVALID,
        ),
        (HarnessFault("too many files. Raise ulimit -n"), "", "(too many files. Raise ulimit -n)", ExitCode.INVALID),
    ],
)
def test_where_no_further_attempt_can_begin_the_last_whole_one_is_the_result(
    fault: HarnessFault | KeyboardInterrupt,
    log: str,
    why: str,
    exits: ExitCode,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent(monkeypatch, made(**LATE), made(**LATE), refused(fault, log))
    assert run_job(asked(tmp_path, 5), as_json=True) == exits
    run, said = tmp_path / "r", capsys.readouterr()
    assert (
        f"attempt 3 of 6 could not begin {why}. Attempt 2, which was INVALID, is the run again, in {run}\n" in said.err
    )
    report = json.loads((run / "report.json").read_text())
    assert json.loads(said.out) == report
    assert (report["exit_code"], report["run"]["directory"], report["verdict"]["outcome"]) == (
        exits,
        str(run),
        "INVALID",
    )
    assert len(report["attempts"]) == 2
    assert (run / "requests.parquet").is_file()
    left = {"1", "3"} if log else {"1"}
    assert {path.name for path in (run / "attempts").iterdir()} == left
    assert _judge_again(run, Asked(), [], as_json=True) == ExitCode.INVALID


def test_ctrl_c_while_the_report_of_a_spoiled_attempt_is_written_leaves_that_attempt_as_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    runs = sent(monkeypatch, made(**LATE))
    monkeypatch.setattr("plimsoll.harness.series.one_run._say_again", pressed)
    assert run_job(asked(tmp_path, 5), as_json=True) == ExitCode.INTERRUPTED
    assert len(runs.seeds) == 1
    assert json.loads(capsys.readouterr().out)["exit_code"] == ExitCode.INTERRUPTED
    assert (tmp_path / "r" / "requests.parquet").is_file()
    assert not (tmp_path / "r" / "attempts").exists()


def test_where_the_first_attempt_cannot_begin_there_is_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sent(monkeypatch, refused(HarnessFault("nothing was sent", ExitCode.UNREACHABLE)))
    with pytest.raises(HarnessFault, match="nothing was sent") as raised:
        run_job(asked(tmp_path, 5), as_json=True)
    assert raised.value.code == ExitCode.UNREACHABLE


def test_a_disk_without_room_for_another_attempt_leaves_the_spoiled_one_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Path, **how: object) -> None:
        raise OSError(28, "No space left on device")

    def spoiled_and_full(prepared: Prepared) -> Outcome:
        outcome = made(**LATE)(prepared)
        monkeypatch.setattr(Path, "mkdir", full)
        return outcome

    runs = sent(monkeypatch, spoiled_and_full)
    assert run_job(asked(tmp_path, 3), as_json=True) == ExitCode.INVALID
    assert len(runs.seeds) == 1
    said = capsys.readouterr()
    assert "attempt 1 of 4 is not repeated" in said.err
    assert json.loads(said.out)["attempts"] == []
    assert json.loads((tmp_path / "r" / "report.json").read_text())["verdict"]["outcome"] == "INVALID"


def test_agents_gather_anew_for_each_attempt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs, gathered = sent(monkeypatch, made(**LATE), made()), list[object]()

    def gather() -> Any:
        gathered.append(object())
        return gathered[-1]

    assert run_job(asked(tmp_path, 2), as_json=True, staff=Staff(gather)) == ExitCode.PASS
    assert runs.workforces == gathered
    assert len(set(map(id, gathered))) == 2


@pytest.mark.parametrize("wrong", [-1, 101])
def test_a_number_of_retries_that_makes_no_sense_is_one_error_before_anything_is_made(
    wrong: int, tmp_path: Path
) -> None:
    with pytest.raises(HarnessFault, match="--retries") as raised:
        asked(tmp_path, wrong)
    assert (len(raised.value.errors), raised.value.code) == (1, ExitCode.USAGE)
    assert not (tmp_path / "r").exists()


def test_one_page_shows_all_attempts_at_one_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page, seen = LivePage(Place("127.0.0.1", 0)), []

    def looked_at(
        prepared: Prepared, label: str, watchers: tuple[Watcher, ...], workforce: object
    ) -> Outcome:  # opened as the coordinator does
        import asyncio

        (view,) = watchers
        asyncio.run(view.open())
        seen.append(view)
        return made(**(LATE if len(seen) == 1 else {}))(prepared)

    monkeypatch.setattr("plimsoll.harness.series.one_run.carry_out", looked_at)
    _, report = carry_through(asked(tmp_path, 1), staff=Staff(page=page))
    assert report.verdict.outcome == "PASS"
    assert [view.serving for view in seen] == [False, True]
    assert seen[0].url == seen[1].url
    page.end()
