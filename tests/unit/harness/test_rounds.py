"""Carrying an interleaving out: what becomes of each run, whatever happens. No load: a run is written down as made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run.coordinator import Outcome
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.series.comparison import rounds
from plimsoll.harness.series.comparison.arms import read_arms
from plimsoll.harness.series.comparison.replications import of_interleaving
from plimsoll.harness.series.comparison.rounds import Contest, carry_out_all
from tests.unit.harness.sealed_runs import Full, sealed_run

Deed = Callable[[Prepared], Outcome]


class Runs:
    """Stands in for a run: notes what was asked for and does what the test says for the n-th."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int, list[str]]] = []
        self.deeds: dict[int, Deed] = {}

    def __call__(self, prepared: Prepared, label: str, watchers: object, workforce: object) -> Outcome:
        job = prepared.job
        self.made.append((job.directory.path.name, job.scenario.seed, list(job.command)))
        return self.deeds.get(len(self.made), sealed)(prepared)


def sealed(prepared: Prepared) -> Outcome:
    path = prepared.job.directory.path
    shutil.rmtree(path)
    return Outcome(open_sealed(sealed_run(path, seed=prepared.job.scenario.seed)), interrupted=False)


def interrupted(prepared: Prepared) -> Outcome:
    made = sealed(prepared).sealed
    file = made.directory.file("generator.json")
    file.write_text(file.read_text().replace('"interrupted": false', '"interrupted": true'))
    return Outcome(made, interrupted=True)


def gone(prepared: Prepared) -> Outcome:
    shutil.rmtree(prepared.job.directory.path)
    raise HarnessFault("cannot connect", ExitCode.UNREACHABLE)


def stopped(prepared: Prepared) -> Outcome:
    raise KeyboardInterrupt


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    async def reached(target: object) -> None:
        return None

    made = Runs()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLIMSOLL_API_KEY", raising=False)
    monkeypatch.setattr("plimsoll.harness.series.one_run.carry_out", made)
    monkeypatch.setattr("plimsoll.harness.series.one_run.preflight", reached)
    return made


def contest(*texts: str, repeats: int = 2) -> Contest:
    arms, errors = read_arms(texts or ("a=http://a:1", "b=http://b:1"))
    assert errors == []
    return Contest(None, {"kind": "concurrency", "concurrency": 1, "queries": 40}, Asked(), arms, repeats, 0)


def states(out: Path) -> list[str]:
    return [run["state"] for run in json.loads((out / "interleave.json").read_text())["runs"]]


def test_the_runs_are_made_in_the_order_and_with_the_seeds_of_the_plan(runs: Runs) -> None:
    ran = carry_out_all(contest(), Path("o"), resume=False)
    assert [(name, seed) for name, seed, _ in runs.made] == [
        (slot.folder.removeprefix("runs/"), slot.seed) for slot in ran.plan.slots
    ]
    assert [name for name, _, _ in runs.made] == ["001-a", "002-b", "003-b", "004-a"]
    assert states(Path("o")) == ["done"] * 4
    assert not ran.interrupted


def test_every_run_is_of_the_scenario_as_it_was_at_the_start_and_a_changed_file_is_no_resume(runs: Runs) -> None:
    file, limits = Path("ed.yaml"), list[object]()
    file.write_text("kind: concurrency\nparams: {concurrency: 1}\nstop: {min_queries: 40}\ntimeout: 5s\n")

    def edited(prepared: Prepared) -> Outcome:
        limits.append(prepared.job.scenario.timeout_ns)
        file.write_text(file.read_text().replace("timeout: 5s", "timeout: 7s"))
        return interrupted(prepared) if len(limits) == 3 else sealed(prepared)

    runs.deeds = dict.fromkeys(range(1, 5), edited)
    of_file = replace(contest(), scenario="ed.yaml", flags={})
    assert carry_out_all(of_file, Path("o"), resume=False).interrupted
    assert limits == [5_000_000_000] * 3
    with pytest.raises(HarnessFault, match=r"scenario\.timeout: '5s' there, '7s' now"):
        carry_out_all(of_file, Path("o"), resume=True)
    assert len(runs.made) == 3


def test_a_run_that_was_stopped_is_put_aside_and_made_again_and_the_finished_ones_are_not(runs: Runs) -> None:
    runs.deeds[2] = interrupted
    assert carry_out_all(contest(), Path("o"), resume=False).interrupted
    assert states(Path("o")) == ["done", "pending", "pending", "pending"]
    assert not carry_out_all(contest(), Path("o"), resume=True).interrupted
    assert states(Path("o")) == ["done"] * 4
    assert [name for name, _, _ in runs.made] == ["001-a", "002-b", "002-b", "003-b", "004-a"]
    assert Path("o/interrupted/002-b.1/manifest.json").is_file()


def test_a_whole_run_that_we_were_stopped_too_early_to_note_is_taken_and_not_made_again(runs: Runs) -> None:
    def unnoted(prepared: Prepared) -> Outcome:
        sealed(prepared)
        raise KeyboardInterrupt

    runs.deeds[2] = unnoted
    assert carry_out_all(contest(), Path("o"), resume=False).interrupted
    carry_out_all(contest(), Path("o"), resume=True)
    assert [name for name, _, _ in runs.made] == ["001-a", "002-b", "003-b", "004-a"]
    assert states(Path("o")) == ["done"] * 4


def test_what_is_not_a_whole_run_is_kept_but_in_no_comparison(runs: Runs) -> None:
    def half(prepared: Prepared) -> Outcome:
        raise HarnessFault("interrupted before the first query", ExitCode.INTERRUPTED)

    runs.deeds[2] = half
    carry_out_all(contest(), Path("o"), resume=False)
    assert Path("o/runs/002-b/segments").is_dir()
    carry_out_all(contest(), Path("o"), resume=True)
    assert Path("o/interrupted/002-b.1/segments").is_dir()
    assert states(Path("o")) == ["done"] * 4


def test_stopping_between_two_runs_keeps_what_is_made(runs: Runs) -> None:
    runs.deeds[3] = stopped
    assert carry_out_all(contest(), Path("o"), resume=False).interrupted
    assert states(Path("o")) == ["done", "done", "pending", "pending"]


def test_an_arm_that_is_gone_is_written_down_and_the_others_run_on(runs: Runs) -> None:
    runs.deeds[2] = gone
    carry_out_all(contest(), Path("o"), resume=False)
    assert states(Path("o")) == ["done", "unreachable", "done", "done"]
    assert json.loads(Path("o/interleave.json").read_text())["runs"][1]["error"] == "cannot connect"


def test_what_is_wrong_on_our_side_stops_everything_and_what_is_made_stays(runs: Runs) -> None:
    def broken(prepared: Prepared) -> Outcome:
        raise HarnessFault("payload 3: too long")

    runs.deeds[2] = broken
    assert "payload 3" in str(carry_out_all(contest(), Path("o"), resume=False).fault)
    assert states(Path("o")) == ["done", "pending", "pending", "pending"]
    runs.deeds[3] = broken
    with pytest.raises(HarnessFault, match="payload 3"):  # nothing is made that could be lost
        carry_out_all(contest(), Path("p"), resume=False)


def test_a_run_that_is_kept_elsewhere_ends_it_and_is_made_again(runs: Runs) -> None:
    def moved(prepared: Prepared) -> Outcome:
        return Outcome(open_sealed(sealed_run(Path("elsewhere"), seed=prepared.job.scenario.seed)), interrupted=False)

    runs.deeds[2] = moved
    assert "its records are not in o/runs/002-b" in str(carry_out_all(contest(), Path("o"), resume=False).fault)
    assert Path("elsewhere/report.html").is_file()
    assert states(Path("o")) == ["done", "pending", "pending", "pending"]
    assert carry_out_all(contest(), Path("o"), resume=True).fault is None
    assert [name for name, _, _ in runs.made] == ["001-a", "002-b", "002-b", "003-b", "004-a"]


@pytest.mark.parametrize("full_in", [2, 4])
def test_a_disk_that_is_full_costs_no_run_that_was_made(
    full_in: int, runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = Full("o", monkeypatch)

    def fills(prepared: Prepared) -> Outcome:
        disk.full = True
        return sealed(prepared)

    runs.deeds[full_in] = fills
    ran = carry_out_all(contest(), Path("o"), resume=False)
    assert [slot.state for slot in ran.plan.slots].count("done") == full_in
    assert (ran.fault is None) == (full_in == 4), "with all runs made only the note of it is missing"
    assert "interleave.json (No space left on device)" in capsys.readouterr().err + str(ran.fault)
    assert len(of_interleaving(Path("o"), plan=ran.plan)[0].runs) == full_in // 2


def test_an_arm_that_can_not_be_reached_is_exit_5_before_anything_is_made(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(target: object) -> None:
        raise HarnessFault("cannot connect", ExitCode.UNREACHABLE)

    monkeypatch.setattr("plimsoll.harness.series.one_run.preflight", refused)
    with pytest.raises(HarnessFault) as caught:
        carry_out_all(contest(), Path("o"), resume=False)
    assert caught.value.code == ExitCode.UNREACHABLE
    assert caught.value.errors == ["arm a: cannot connect", "arm b: cannot connect"]
    assert runs.made == []
    assert not Path("o").exists()


def test_errors_of_every_arm_are_told_at_once_and_nothing_is_left_behind(runs: Runs) -> None:
    with pytest.raises(HarnessFault) as caught:
        carry_out_all(
            contest("a=http://a:1,protocol=zz", "b=http://b:1,option.foo=1", "c=model=m"), Path("o"), resume=False
        )
    said = "\n".join(caught.value.errors)
    for part in ("arm a: ", "zz", "arm b: ", "foo", "arm c: it has no url"):
        assert part in said
    assert list(Path().iterdir()) == []


def test_a_secret_on_the_command_line_is_in_no_arms_manifest(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    word = "b=http://b:1/v1?key=abcdef-secret"
    monkeypatch.setattr("sys.argv", ["plimsoll", "compare", "--arm", word])
    carry_out_all(contest("a=http://a:1", word, repeats=1), Path("o"), resume=False)
    assert len(runs.made) == 2
    assert not [command for _, _, command in runs.made if "abcdef-secret" in str(command)]
    assert "abcdef-secret" not in Path("o/interleave.json").read_text()


def test_every_load_is_checked_before_the_first_run(runs: Runs) -> None:
    levels = (rounds.Level("x", {"kind": "server", "rate": 2.0}), rounds.Level("y", {"kind": "server", "rate": -1.0}))
    base = contest()
    wrong = Contest(None, {}, Asked(), base.arms, 1, 0, levels)
    with pytest.raises(HarnessFault, match="rate"):
        carry_out_all(wrong, Path("o"), resume=False)
    assert runs.made == []


def test_a_key_that_no_arm_names_is_not_sent_to_several_endpoints(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_API_KEY", "sk-ours-0123456789")
    with pytest.raises(HarnessFault) as caught:
        carry_out_all(
            contest("a=http://ours:1,api_key_env=PLIMSOLL_API_KEY", "b=http://theirs:1"), Path("o"), resume=False
        )
    assert len(caught.value.errors) == 1
    assert "arm b: it names no key" in caught.value.errors[0]
    assert runs.made == []
    carry_out_all(contest("a=http://ours:1", "b=http://ours:1", repeats=1), Path("same"), resume=False)
    named = (f"{name}=http://{name}:1,api_key_env=PLIMSOLL_API_KEY" for name in "ab")
    carry_out_all(contest(*named, repeats=1), Path("named"), resume=False)
    assert states(Path("same")) == states(Path("named")) == ["done"] * 2
