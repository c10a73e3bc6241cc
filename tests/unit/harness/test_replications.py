"""What the arguments of a comparison name: replications, like for like, each once. Several runs, one way: agents, the
live page, retries and going on, for each verb that makes them. A run is written down as made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.live.live_view import LiveView
from plimsoll.harness.live.place import Place
from plimsoll.harness.run.coordinator import Outcome
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.promises import Asked, keep
from plimsoll.harness.run.readiness import Ready
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.run.watcher import Watcher
from plimsoll.harness.series import one_run
from plimsoll.harness.series.coldstart import coldstart_flags as cold
from plimsoll.harness.series.coldstart import coldstart_session
from plimsoll.harness.series.coldstart.coldstart_session import coldstart
from plimsoll.harness.series.coldstart.warden import Stopped
from plimsoll.harness.series.comparison import interleave
from plimsoll.harness.series.comparison.bakeoff_file import parse
from plimsoll.harness.series.comparison.bakeoff_session import bake_off
from plimsoll.harness.series.comparison.baseline import Likeness
from plimsoll.harness.series.comparison.comparison_session import Wanted, of_interleaved, question
from plimsoll.harness.series.comparison.interleave import Interleaving, slots
from plimsoll.harness.series.comparison.replications import find, of_interleaving, of_one_side, read, unlike
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.one_run import LivePage, Staff
from plimsoll.harness.series.search import search_session
from plimsoll.harness.series.search.question import Texts
from plimsoll.harness.series.sweep import sweep_session
from plimsoll.reports.format import formats
from plimsoll.slo.comparison.quantity import parse_all
from tests.command import verbs
from tests.unit.harness.sealed_runs import sealed_run

TTFT = parse_all(["p99(ttft)", "ratio(error)", "rate(ok)"])


def faults(*texts: str, despite: tuple[str, ...] = ()) -> str:
    with pytest.raises(HarnessFault) as caught:
        unlike(read(find(texts), TTFT, None), despite)
    return "\n".join(caught.value.errors)


def test_a_run_a_folder_of_runs_and_a_glob_are_sides_of_one_or_more_runs(tmp_path: Path) -> None:
    for name in ("a-1", "a-2", "b-1"):
        sealed_run(tmp_path / name)
    (tmp_path / "not-a-run").mkdir()
    for text, runs in ((f"{tmp_path}/a-1", 1), (str(tmp_path), 3), (f"{tmp_path}/a-*", 2)):
        assert [len(side.runs) for side in find([text, f"{tmp_path}/b-1"])] == [runs, 1]
    assert [side.name for side in find([f"{tmp_path}/a-*", f"new={tmp_path}/b-1"])] == ["a", "new"]
    named = find([f"a_*={tmp_path}/a-*", f"[b].={tmp_path}/b-*"])
    assert [side.name for side in named] == ["a_*", "[b]."], "a name that was given is taken as it is"


def test_every_argument_that_names_no_run_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(HarnessFault) as caught:
        find([f"{tmp_path}/nope", f"{tmp_path}/empty", f"{tmp_path}/x.json", f"{tmp_path}/*-none"])
    assert len(caught.value.errors) == 4
    for part, said in zip(
        ("no such run", "no run directory", "no baseline", "no such run"), caught.value.errors, strict=True
    ):
        assert part in said


def test_a_side_gives_one_value_a_run_and_failures_are_in_it(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1", 50), sealed_run(tmp_path / "a/2", 60)
    sealed_run(tmp_path / "b/1", 50, failed=1)
    base, other = read(find([f"{tmp_path}/a", f"{tmp_path}/b"]), TTFT, None)
    assert sorted(round(value / 1e6, -1) for value in base.arm.values(TTFT[0])) == [50, 60]
    assert other.arm.values(TTFT[0])[0] == math.inf
    assert other.arm.values(TTFT[1])[0] == 1 / 40


def test_the_same_run_given_twice_proves_nothing_and_is_refused(tmp_path: Path) -> None:
    run = str(sealed_run(tmp_path / "a"))
    assert "Give each run once" in faults(run, run)


def test_runs_of_another_load_are_refused_and_every_difference_is_named(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1"), sealed_run(tmp_path / "b/1", prompt_tokens=999, warmup="1s")
    said = faults(f"{tmp_path}/a", f"{tmp_path}/b")
    assert "source.prompt_tokens: " in said
    assert "warmup: " in said
    assert "add --despite source.prompt_tokens" in said


def test_a_difference_that_was_asked_for_is_told_and_not_refused(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1"), sealed_run(tmp_path / "b/1", prompt_tokens=999)
    warnings = unlike(read(find([f"{tmp_path}/a", f"{tmp_path}/b"]), TTFT, None), ("source",))
    assert any("not like for like, as asked: source.prompt_tokens" in text for text in warnings)


def test_runs_of_one_side_that_differ_in_load_are_no_replications(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1"), sealed_run(tmp_path / "a/2", output_tokens=7), sealed_run(tmp_path / "b/1")
    assert "is no replication of" in faults(f"{tmp_path}/a", f"{tmp_path}/b")


def test_runs_of_another_protocol_or_model_option_are_no_replications(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1"), sealed_run(tmp_path / "a/2", options={"stream": False}), sealed_run(tmp_path / "b/1")
    assert "target.options.stream" in faults(f"{tmp_path}/a", f"{tmp_path}/b")


def test_a_run_whose_endpoint_died_before_it_named_its_model_is_a_replication_and_another_model_is_none() -> None:
    runs = [("1", Likeness({}, {}, 1, 1, {}, "", "", model)) for model in ("", "m", "m")]
    assert of_one_side("a", runs) == []
    [said] = of_one_side("a", [*runs, ("other", replace(runs[0][1], model="n"))])
    assert said.startswith("a: other is no replication of 1: target.model")


def test_another_host_and_other_options_are_warnings(tmp_path: Path) -> None:
    sealed_run(tmp_path / "a/1")
    sealed_run(tmp_path / "b/1", host={"cpu": "c2", "hostname": "other"}, options={"stream": False})
    said = "\n".join(unlike(read(find([f"{tmp_path}/a", f"{tmp_path}/b"]), TTFT, None), ()))
    for part in ("another host: cpu", "target.options"):
        assert part in said
    assert "hostname" not in said


def interleaved(out: Path, repeats: int, states: dict[int, str]) -> None:
    plan = Interleaving(
        {},
        ({"name": "base"}, {"name": "new"}),
        ({"label": ""},),
        repeats,
        "0s",
        slots(("base", "new"), [""], repeats, 1),
    )
    for slot in plan.slots:
        state = states.get(slot.number, "done")
        plan = plan.marked(replace(slot, state=state, error="refused" if state == "unreachable" else ""))  # type: ignore[arg-type]
        if state == "done":
            sealed_run(out / slot.folder, seed=slot.seed)
    interleave.save(out, plan)


def test_an_interleaved_folder_is_its_arms_in_pairs_and_an_unfinished_round_is_left_out(tmp_path: Path) -> None:
    interleaved(tmp_path, 3, {6: "pending"})
    sides = find([str(tmp_path)])
    assert [side.name for side in sides] == ["base", "new"]
    assert [[run.pair for run in side.runs] for side in sides] == [[1, 2], [1, 2]]
    arms = [side.arm for side in read(sides, TTFT, None)]
    assert [arms[0].runs[k].plan == arms[1].runs[k].plan for k in (0, 1)] == [True, True]


def test_a_run_that_nobody_answered_counts_as_the_worst_of_everything(tmp_path: Path) -> None:
    interleaved(tmp_path, 2, {2: "unreachable"})
    new = read(of_interleaving(tmp_path), TTFT, None)[1].arm
    assert [new.values(quantity)[0] for quantity in TTFT] == [math.inf, 1.0, 0.0]
    assert new.runs[0].unstable == "refused"
    assert len(new.runs) == 2


def test_an_interleaved_folder_without_a_whole_round_can_not_be_compared(tmp_path: Path) -> None:
    interleaved(tmp_path, 1, {2: "pending"})
    with pytest.raises(HarnessFault, match="no round is complete"):
        find([str(tmp_path)])


def test_an_interleaved_folder_beside_another_argument_says_what_to_give(tmp_path: Path) -> None:
    interleaved(tmp_path / "ab", 1, {})
    for text in ("ab", "ab/runs"):
        with pytest.raises(HarnessFault, match="it holds the arms base, new"):
            find([str(tmp_path / text), str(tmp_path / "ab/runs/001-base")])


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[2J"])
def test_a_name_that_nobody_could_read_is_refused(tmp_path: Path, name: str) -> None:
    sealed_run(tmp_path / "main/1")
    with pytest.raises(HarnessFault, match="empty or can't be printed"):
        find([f"{name}={tmp_path}/main", str(tmp_path / "main")])


@pytest.mark.parametrize(("file", "text"), [("manifest.json", "{}"), ("manifest.json", "[]"), ("scenario.yaml", "")])
def test_a_run_whose_descriptions_are_damaged_is_one_clear_error(tmp_path: Path, file: str, text: str) -> None:
    sealed_run(tmp_path / "main/1")
    (sealed_run(tmp_path / "new/1") / file).write_text(text)
    assert "damaged" in faults(str(tmp_path / "main"), str(tmp_path / "new"))


# -- staff ----------------------------------------------------------------------------------------------------------

URL = "http://127.0.0.1:9"
LOAD = {"kind": "concurrency", "concurrency": 1, "queries": 40}
Verb = Callable[[Session, int | None], int]


def search(session: Session, retries: int | None) -> int:
    texts = Texts(start=10.0, lowest=10.0, highest=10.0, cooldown="0s")
    return search_session.search_and_say(
        None, {"url": URL, "retries": retries}, Asked(["max(ttft) <= 1s"]), texts, session
    )


def sweep(session: Session, retries: int | None) -> int:
    load = {"url": URL, "queries": 40, "retries": retries}
    wanted = sweep_session.Wanted(None, ["concurrency=1,2"], load, Asked(), cooldown="0s", session=session)
    return sweep_session.sweep(wanted)


def compare(session: Session, retries: int | None) -> int:
    made, _ = question([], Asked(), "5%", "1%")
    load = {**LOAD, **({} if retries is None else {"retries": retries})}
    return of_interleaved("smoke", load, Asked(), [f"a={URL}", f"b={URL}"], 1, "0s", Wanted(made, session))


def bakeoff(session: Session, retries: int | None) -> int:
    load = {**LOAD, **({} if retries is None else {"retries": retries})}
    arms = [{"name": name, "url": URL, "api_key_env": "HOME"} for name in "ab"]
    found = parse({"arms": arms, "load": LOAD, "repeats": 1, "cooldown": "0s"}, "b.yaml")
    return bake_off(found.model_copy(update={"load": load}), session, again=False)


def cold_start(session: Session, retries: int | None) -> int:
    wanted = cold.Wanted(
        start="serve", stop="", between="", scenario=None, flags={"url": URL}, curve=cold.curve_flags(None, None, None),
        repeats=2, ready_timeout_ns=1, path=None, cooldown_ns=0, stop_timeout_ns=1, goals=(), command=("plimsoll",),
        retries=retries,
    )  # fmt: skip
    return coldstart(wanted, session.out or Path("o"), (), session)


VERBS: dict[str, Verb] = {
    "search": search, "sweep": sweep, "compare": compare, "bakeoff": bakeoff, "coldstart": cold_start,
}  # fmt: skip
#: Runs that each makes, and the folder of the first one that may be repeated.
FIRST = {
    "search": "probes/001-bracket", "sweep": "runs/001-endpoint-concurrency-1", "compare": "runs/001-a",
    "bakeoff": "runs/001-a", "coldstart": "repeats/001",
}  # fmt: skip


class Runs:
    """Stands in for the load.

    ``late``: numbers of the runs that the machine spoils; ``stops``: the run in which Ctrl-C is pressed.
    """

    def __init__(self) -> None:
        self.made: list[tuple[str, Watcher, object]] = []
        self.late: set[int] = set()
        self.stops = 0

    def __call__(self, prepared: Prepared, label: str, watchers: Any, workforce: object) -> Outcome:
        view = next((one for one in watchers if isinstance(one, LiveView)), None)
        path, number = prepared.job.directory.path, len(self.made) + 1
        self.made.append((path.name, view, workforce))  # type: ignore[arg-type]
        prepared.job.directory.segments.rmdir()
        if number == self.stops:
            path.rmdir()
            raise HarnessFault("interrupted before the first query: nothing was sent", ExitCode.INTERRUPTED)
        made = sealed_run(path / "made", seed=prepared.job.scenario.seed)
        for entry in list(made.iterdir()):
            entry.rename(path / entry.name)
        made.rmdir()
        keep(prepared.promises, prepared.job.directory)
        if number in self.late:
            document = json.loads((path / "generator.json").read_text())
            document["facts"]["worker_faults"] = ["worker 0 was killed by SIGKILL"]
            (path / "generator.json").write_text(json.dumps(document))
        return Outcome(open_sealed(path), interrupted=False)


class Serves:
    """Stands in for somebody's server."""

    spawned_ns = 0

    def __init__(self, *_: object) -> None:
        pass

    def raise_if_ended(self) -> None:
        pass

    def stop(self) -> Stopped:
        return Stopped(False, 1)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    async def reached(*_: object) -> Any:
        return Ready(0.0, "/health", 1, 0, 2, 0)

    made = Runs()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLIMSOLL_API_KEY", raising=False)
    monkeypatch.setattr(one_run, "carry_out", made)
    for module in (one_run, coldstart_session):
        monkeypatch.setattr(module, "write_report", only_json)
    monkeypatch.setattr("plimsoll.harness.series.one_run.preflight", reached)
    monkeypatch.setattr(coldstart_session, "wait_ready", reached)
    monkeypatch.setattr(coldstart_session, "raise_if_answered", lambda *_: None)
    monkeypatch.setattr(coldstart_session, "Served", Serves)
    return made


def only_json(report: Any, directory: Any) -> bool:
    """The page of each run takes longer than all the rest."""
    directory.file("report.json").write_bytes(formats()["json"].render(report))
    return True


@pytest.mark.parametrize("verb", VERBS)
def test_agents_gather_for_each_run_and_one_page_shows_them_all(verb: str, runs: Runs) -> None:
    gathered: list[Any] = []
    staff = Staff(lambda: gathered.append(object()) or gathered[-1], (), LivePage(Place("127.0.0.1", 0)))  # type: ignore[func-returns-value]
    VERBS[verb](Session(Path("o"), staff=staff), None)
    assert len(runs.made) >= 2
    assert [workforce for _, _, workforce in runs.made] == gathered
    assert len({id(view) for _, view, _ in runs.made if isinstance(view, LiveView)}) == len(runs.made)


@pytest.mark.parametrize("verb", VERBS)
def test_what_the_machine_spoiled_is_made_again_where_retries_allow_it(verb: str, runs: Runs) -> None:
    runs.late = {2} if verb == "coldstart" else {1}
    assert VERBS[verb](Session(Path("o")), 1) in (ExitCode.PASS, ExitCode.INCONCLUSIVE)
    first = Path("o", FIRST[verb])
    kept = first / "attempts" / "1"
    name = "curve/" if verb == "coldstart" else ""
    assert json.loads((kept / f"{name}report.json").read_text())["verdict"]["outcome"] == "INVALID"
    assert json.loads((kept / f"{name}report.json").read_text())["run"]["directory"] == str(kept / name)
    assert json.loads((first / f"{name}report.json").read_text())["verdict"]["outcome"] != "INVALID"


@pytest.mark.parametrize("verb", VERBS)
def test_what_was_stopped_is_gone_on_with_and_nothing_is_made_twice(verb: str, runs: Runs) -> None:
    runs.stops = 3 if verb == "coldstart" else 2
    assert VERBS[verb](Session(Path("o")), None) == ExitCode.INTERRUPTED
    before = len(runs.made)
    with pytest.raises(HarnessFault, match=r"--out: o holds a .* Add --resume"):
        VERBS[verb](Session(Path("o")), None)
    assert VERBS[verb](Session(Path("o"), resume=True), None) in (ExitCode.PASS, ExitCode.INCONCLUSIVE)
    names = [name for name, _, _ in runs.made]
    if verb != "coldstart":
        assert names[before] == names[before - 1]
        assert names.count(names[0]) == 1
    assert len(runs.made) == before + (2 if verb == "coldstart" else len(set(names)) - 1)


@pytest.mark.parametrize("verb", [*VERBS, "run", "replay"])
def test_every_verb_that_makes_runs_has_the_flags(verb: str) -> None:
    found = {name for one in verbs().commands[verb].params for name in one.opts}
    wanted = {"--locust-master", "--expect-workers", "--locust-wait", "--locust-web", "--live", "--retries"}
    assert wanted <= found
    assert ("--resume" in found) == (verb in VERBS)
