"""A search from its question to its document, whatever happens on the way. No load: a run is written down as made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run.coordinator import Outcome
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.run.judged import write_report
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.run.rundir import RunDirectory, open_sealed
from plimsoll.harness.run.watcher import Watcher
from plimsoll.harness.series import one_run
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.search import search_session as session
from plimsoll.harness.series.search.question import Question, Texts, read
from plimsoll.harness.series.search.search_session import search, search_and_say
from plimsoll.reports.documents import search as say
from plimsoll.reports.documents.search import FORMATS, SearchReport
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report
from plimsoll.slo.records.records import Status, from_columns
from tests.unit.harness.sealed_runs import Full, sealed_run

Deed = Callable[[Prepared], Outcome]


def rate_of(prepared: Prepared) -> float:
    return float(prepared.job.scenario.params.model_dump()["rate"])


def sealed(prepared: Prepared, ttft_ms: float | None = None, **facts: object) -> Outcome:
    """A run of an endpoint whose every TTFT is 1 ms (to 1 %) for each request per second; ``facts`` replace the
    generator's.
    """
    path = prepared.job.directory.path
    shutil.rmtree(path)
    sealed_run(path, rate_of(prepared) if ttft_ms is None else ttft_ms, seed=prepared.job.scenario.seed)
    if facts:
        document = json.loads((path / "generator.json").read_text())
        document["facts"] |= facts
        (path / "generator.json").write_text(json.dumps(document))
    return Outcome(open_sealed(path), interrupted=False)


def interrupted(prepared: Prepared) -> Outcome:
    return Outcome(sealed(prepared, interrupted=True).sealed, interrupted=True)


def gone(prepared: Prepared) -> Outcome:
    shutil.rmtree(prepared.job.directory.path)
    raise HarnessFault("cannot connect", ExitCode.UNREACHABLE)


def late(prepared: Prepared) -> Outcome:
    return sealed(prepared, worker_faults=["worker 0 was killed by SIGKILL"])


class Runs:
    """Stands in for a run: notes what was asked for and does what the test says for the n-th."""

    def __init__(self) -> None:
        self.made: list[tuple[str, float, int]] = []
        self.deeds: dict[int, Deed] = {}
        self.watchers: list[Sequence[Watcher]] = []
        self.usual: Deed = sealed

    def __call__(self, prepared: Prepared, label: str, watchers: Sequence[Watcher], workforce: object) -> Outcome:
        self.watchers.append(watchers)
        self.made.append((prepared.job.directory.path.name, rate_of(prepared), prepared.job.scenario.seed))
        return self.deeds.get(len(self.made), self.usual)(prepared)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    async def reached(target: object) -> None:
        return None

    made = Runs()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(one_run, "carry_out", made)
    monkeypatch.setattr(one_run, "preflight", reached)
    monkeypatch.setattr(one_run, "write_report", only_json)
    return made


def only_json(report: Report, directory: RunDirectory) -> bool:
    """The page of each run takes longer than all the rest."""
    directory.file("report.json").write_bytes(formats()["json"].render(report))
    return True


def question(slo: str = "max(ttft) <= 50ms", seed: int = 42, **texts: object) -> Question:
    given: dict[str, object] = {"start": 10.0, "lowest": 5.0, "cooldown": "0s", "resolution": "20%", **texts}
    return read(None, {"url": "http://127.0.0.1:9", "seed": seed}, Asked(slo=[slo]), Texts(**given))  # type: ignore[arg-type]


def on_disk(out: str = "o") -> dict[str, object]:
    document: dict[str, object] = json.loads(Path(out, "search.json").read_text())
    return document


def outcomes(report: SearchReport) -> list[str]:
    return [part.outcome for part in report.probes]


def test_the_command_can_be_copied_as_it_is_shown(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["plimsoll", "search", "--slo", "p90(ttft) <= 60ms"])
    report = search(question(), Path("o"), resume=False)
    assert report.command == "plimsoll search --slo 'p90(ttft) <= 60ms'"


def test_the_line_is_found_between_a_load_that_holds_and_one_that_fails(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_run, "write_report", write_report)
    report = search(question(gpus=2, resolution="5%"), Path("o"), resume=False)
    assert (report.outcome, report.exit_code) == ("FOUND", 0)
    low, high = report.found.interval
    assert low is not None
    assert high is not None
    assert report.found.best == low <= 50 / 0.99
    assert 50 / 1.01 <= high <= low * 1.06
    assert [part.purpose for part in report.probes][-2:] == ["confirm", "ceiling"]
    assert report.answer is not None
    assert report.answer.run == report.probes[-2].run
    assert report.answer.best_rate_per_gpu == low / 2
    assert on_disk()["rate_per_s"] == {"best": low, "interval": [low, high]}
    assert "concurrency" not in on_disk()
    for part in report.probes:
        assert Path("o", part.run, "report.html").is_file()
    assert len({seed for _, _, seed in runs.made}) == len(runs.made)


def test_search_json_is_whole_after_every_probe_and_says_that_the_search_goes_on(runs: Runs) -> None:
    seen: list[tuple[object, int]] = []

    def looked(prepared: Prepared) -> Outcome:
        document = on_disk()
        seen.append((document["outcome"], len(document["probes"])))  # type: ignore[arg-type]
        return sealed(prepared)

    runs.usual = looked
    search(question(), Path("o"), resume=False)
    assert seen == [("INTERRUPTED", made) for made in range(len(runs.made))]


def test_a_search_that_was_stopped_goes_on_and_ends_as_if_it_had_not_been(runs: Runs) -> None:
    whole = search(question(), Path("whole"), resume=False)
    made = list(runs.made)
    runs.made.clear()
    runs.deeds = {3: interrupted}
    first = search(question(), Path("o"), resume=False)
    assert (first.outcome, first.exit_code, len(first.probes)) == ("INTERRUPTED", 130, 2)
    again = search(question(), Path("o"), resume=True)
    assert runs.made[:2] + runs.made[3:] == made
    assert Path("o/interrupted/003-bracket.1/manifest.json").is_file()
    assert (again.found, outcomes(again)) == (whole.found, outcomes(whole))


def test_a_whole_run_that_was_not_written_down_any_more_is_taken_and_not_made_again(runs: Runs) -> None:
    def unnoted(prepared: Prepared) -> Outcome:
        sealed(prepared)
        raise KeyboardInterrupt

    runs.deeds[2] = unnoted
    assert search(question(), Path("o"), resume=False).outcome == "INTERRUPTED"
    assert search(question(), Path("o"), resume=True).outcome == "FOUND"
    names = [name for name, _, _ in runs.made]
    assert len(names) == len(set(names))


def test_what_a_kill_left_of_a_probe_is_put_aside_and_the_probe_is_made_again(runs: Runs) -> None:
    def killed(prepared: Prepared) -> Outcome:
        raise KeyboardInterrupt

    runs.deeds[2] = killed
    search(question(), Path("o"), resume=False)
    assert Path("o/probes/002-bracket/segments").is_dir()
    assert search(question(), Path("o"), resume=True).outcome == "FOUND"
    assert Path("o/interrupted/002-bracket.1/segments").is_dir()


def test_a_finished_search_is_said_again_without_a_request(runs: Runs) -> None:
    report = search(question(), Path("o"), resume=False)
    made = len(runs.made)
    assert search(question(), Path("o"), resume=True).found == report.found
    assert len(runs.made) == made


def test_an_endpoint_that_keeps_no_promise_at_any_load_is_none(runs: Runs) -> None:
    runs.usual = lambda prepared: sealed(prepared, 80)
    report = search(question(), Path("o"), resume=False)
    assert (report.outcome, report.exit_code) == ("NONE", 1)
    assert report.found.best is None
    assert report.answer is None
    assert min(load for _, load, _ in runs.made) == 5


def test_a_highest_load_that_holds_is_all_that_was_asked_for(runs: Runs) -> None:
    report = search(question(highest=40.0), Path("o"), resume=False)
    assert (report.outcome, report.exit_code) == ("FOUND", 0)
    assert report.found.interval == (40.0, None)
    assert max(load for _, load, _ in runs.made) == 40


def test_a_probe_that_would_not_fit_into_the_budget_is_not_begun_and_the_reason_says_what_it_takes(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    slo = "p99(ttft) <= 7ms"  # 10/s fails; 5/s takes more than the 40 requests that it is given
    report = search(question(slo, lowest=4.0, budget="200s"), Path("o"), resume=False)
    assert [(part.load, part.outcome) for part in report.probes] == [(10.0, "FAIL"), (5.0, "INCONCLUSIVE")]
    assert (report.outcome, report.exit_code, report.out_of_time) == ("INCONCLUSIVE", 3, True)
    assert report.reasons[0] == (
        "the budget of 200 s left no room for a probe of 80 s at 5/s and the fresh runs after it (3 of up to 160 s): "
        "give --budget 10m or more, or search into a new folder with --start 4"
    )
    assert not any("time ran out" in reason for reason in report.reasons)
    assert report.reasons[0] in capsys.readouterr().err
    assert on_disk()["reasons"] == report.reasons
    assert "--resume and a longer --budget" in say.next_step(report)
    made = len(runs.made)
    search(question(slo, lowest=4.0, budget="none"), Path("o"), resume=True)
    assert next(name for name, _, _ in runs.made[made:]).startswith("003-longer")


def test_a_budget_that_holds_no_answer_is_refused_before_any_load_with_the_least_that_does(runs: Runs) -> None:
    with pytest.raises(HarnessFault, match="Give --budget 156s or more, a shorter --probe, or --no-confirm") as raised:
        search(question(budget="155s"), Path("o"), resume=False)
    assert raised.value.code == ExitCode.USAGE
    assert "A probe of 20 s at 10/s and the fresh runs after it (3 of up to 40 s) would take 156 s" in str(raised.value)
    assert (runs.made, Path("o").exists()) == ([], False)
    assert search(question(budget="156s"), Path("o"), resume=False).probes
    with pytest.raises(HarnessFault, match=r"Give --budget 24s or more, a shorter --probe$"):
        search(question(budget="23s", confirm=False), Path("p"), resume=False)


def test_a_search_that_found_one_end_in_haste_says_that_time_was_short(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.Log, "spent_ns", property(lambda log: 10**9 * (30 * len(log.probes))))
    report = search(question("max(ttft) <= 5s", lowest=4.0, budget="200s"), Path("o"), resume=False)
    assert [part.purpose for part in report.probes] == ["bracket", "bracket", "bracket", "confirm"]
    assert (report.outcome, report.out_of_time, report.hurried) == ("OPEN", False, True)
    assert report.reasons[0] == (
        "the budget of 200 s left no room for a probe of 20 s at 80/s and the fresh runs after it (3 of up to 40 s): "
        "search into a new folder with --budget 4m or more"
    )
    assert say.next_step(report) == "Search into a new folder with a longer --budget and --start 40: time was short."


def test_an_endpoint_that_is_gone_ends_the_search_and_a_resumed_one_asks_again(runs: Runs) -> None:
    runs.deeds[3] = gone
    report = search(question(), Path("o"), resume=False)
    assert (report.outcome, report.exit_code) == ("UNREACHABLE", 5)
    assert outcomes(report) == ["PASS", "PASS", "UNREACHABLE"]
    assert report.found.best == 20
    assert search(question(), Path("o"), resume=True).outcome == "FOUND"
    assert [name for name, _, _ in runs.made].count("003-bracket") == 2


def test_an_endpoint_that_dies_in_a_probe_has_not_failed_at_that_load(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_AGAIN_NS", 0)
    monkeypatch.setattr(
        session, "still_there", lambda prepared: HarnessFault("refused") if len(runs.made) == 2 else None
    )
    report = search(question(), Path("o"), resume=False)
    assert (report.outcome, outcomes(report)) == ("UNREACHABLE", ["PASS", "UNREACHABLE"])
    assert "accepts no connection after it" in report.probes[1].reasons[0]


def test_an_invalid_load_is_repeated_then_given_up_and_made_again_by_a_resumed_search(runs: Runs) -> None:
    runs.usual = lambda prepared: late(prepared) if rate_of(prepared) > 20 else sealed(prepared)
    runs.deeds = {2: late}
    report = search(question(), Path("o"), resume=False)
    assert (report.outcome, report.exit_code) == ("INVALID", 4)
    assert outcomes(report)[:6] == ["PASS", "INVALID", "PASS", "INVALID", "INVALID", "INVALID"]
    assert "killed by SIGKILL" in report.reasons[0]
    assert (report.found.best, report.interval_confidence) == (20, 0.95)
    runs.usual = sealed
    again = search(question(), Path("o"), resume=True)
    assert again.outcome == "FOUND"
    assert outcomes(again)[:3] == ["PASS", "INVALID", "PASS"]
    assert again.probes[3].outcome != "INVALID"


def test_a_start_that_is_invalid_is_left_for_lower_loads(runs: Runs) -> None:
    runs.usual = lambda prepared: late(prepared) if rate_of(prepared) > 80 else sealed(prepared)
    report = search(question(start=90.0), Path("o"), resume=False)
    assert (report.outcome, report.exit_code) == ("FOUND", 0)
    assert outcomes(report)[:4] == ["INVALID", "INVALID", "INVALID", "PASS"]
    assert report.found.interval[0] is not None
    assert report.found.interval[0] <= 50


def test_a_short_budget_makes_the_interval_wider_and_both_ends_are_confirmed_all_the_same(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.Log, "spent_ns", property(lambda log: 10**9 * (20 * len(log.probes))))
    report = search(question(resolution="1%", budget="4m"), Path("o"), resume=False)
    assert (report.outcome, report.exit_code, report.out_of_time) == ("FOUND", 0, False)
    assert report.interval_confidence == 0.9
    low, high = report.found.interval
    assert low is not None
    assert high is not None
    assert high > 1.01 * low
    assert any("longer budget" in reason for reason in report.reasons)


def test_another_search_is_not_gone_on_with_and_what_differs_is_named(runs: Runs) -> None:
    runs.deeds[2] = interrupted
    search(question(), Path("o"), resume=False)
    with pytest.raises(HarnessFault, match="Add --resume"):
        search(question(), Path("o"), resume=False)
    with pytest.raises(HarnessFault) as caught:
        search(question("max(ttft) <= 60ms", seed=7), Path("o"), resume=True)
    said = "\n".join(caught.value.errors)
    for part in ("objectives[0]", "60ms", "scenario.seed: 42 there, 7 now", "is another search"):
        assert part in said
    search(question(budget="2h"), Path("o"), resume=True)  # more time is no other question


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"schema": "plimsoll.search/2"}'])
def test_a_search_json_that_is_damaged_is_one_plain_sentence(runs: Runs, text: str) -> None:
    Path("o").mkdir()
    Path("o", "search.json").write_text(text)
    with pytest.raises(HarnessFault, match="damaged or from another version") as caught:
        search(question(), Path("o"), resume=True)
    assert "pydantic" not in str(caught.value)
    assert Path("o", "search.json").read_text() == text


def test_a_search_json_that_names_a_folder_elsewhere_moves_nothing(runs: Runs) -> None:
    runs.usual = late
    search(question(), Path("o"), resume=False)
    document = on_disk()
    document["probes"][-1]["run"] = "../precious"  # type: ignore[index]
    Path("o", "search.json").write_text(json.dumps(document))
    Path("precious").mkdir()
    with pytest.raises(HarnessFault, match="no folder of a probe"):
        search(question(), Path("o"), resume=True)
    assert Path("precious").is_dir()


def test_a_folder_of_something_else_is_left_alone(runs: Runs) -> None:
    Path("o").mkdir()
    Path("o/mine.txt").write_text("x")
    with pytest.raises(HarnessFault, match="not empty"):
        search(question(), Path("o"), resume=False)
    with pytest.raises(HarnessFault, match=r"holds no search\.json"):
        search(question(), Path("new"), resume=True)
    Path("o/search.json").write_text("{}")
    with pytest.raises(HarnessFault, match="damaged or from another version"):
        search(question(), Path("o"), resume=True)
    assert runs.made == []


def test_what_is_wrong_on_our_side_stops_everything_and_what_is_made_stays(runs: Runs) -> None:
    def broken(prepared: Prepared) -> Outcome:
        raise HarnessFault("payload 3: too long")

    runs.deeds[2] = broken
    with pytest.raises(HarnessFault, match="payload 3"):
        search(question(), Path("o"), resume=False)
    assert len(on_disk()["probes"]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("last", [False, True])
def test_a_full_disk_costs_no_result_of_a_search(
    last: bool, runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said_of = partial(search_and_say, None, {"url": "http://127.0.0.1:9", "seed": 42}, Asked(slo=["max(ttft) <= 50ms"]))
    texts = Texts(start=10.0, lowest=5.0, cooldown="0s", resolution="20%")
    whole = search(question(), Path("whole"), resume=False)
    probes = len(whole.probes) if last else 3
    runs.made.clear()
    disk = Full("o", monkeypatch)

    def fills(prepared: Prepared) -> Outcome:
        disk.full = len(runs.made) >= probes
        return sealed(prepared)

    runs.usual = fills
    assert said_of(texts, Session(Path("o"), as_json=True)) == ExitCode.USAGE
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert len(found["probes"]) == probes
    assert (found["outcome"], found["exit_code"]) == ("FOUND" if last else "INTERRUPTED", ExitCode.USAGE)
    assert "error: --out: cannot write o/search.json (No space left on device). Make room" in said.err
    assert (
        "search.html could not be written (No space left on device); make room; the same command with --resume"
        in said.err
    )
    disk.full, runs.usual = False, sealed
    assert said_of(texts, Session(Path("o"), resume=True, as_json=True)) == ExitCode.PASS
    assert json.loads(capsys.readouterr().out)["rate_per_s"]["best"] == whole.found.best
    assert len(runs.made) == len(whole.probes), "no probe is made twice"


def test_requests_that_were_given_up_are_told() -> None:
    statuses = [Status.OK, Status.OK, Status.TIMEOUT, Status.UNFINISHED, Status.HTTP]
    made = from_columns(5, status=[int(one) for one in statuses])
    assert session.rest(made).startswith("2 requests given up")
    assert session.rest(made.select(made["status"] == Status.OK)) == "all answers came back"


def test_a_secret_is_in_no_document(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-live-0123456789"
    monkeypatch.setattr("sys.argv", ["plimsoll", "search", "--url", f"http://127.0.0.1:9?key={secret}"])
    asked = Texts(start=10.0, lowest=10.0, highest=10.0, cooldown="0s", confirm=False)
    found = read(None, {"url": f"http://127.0.0.1:9?key={secret}"}, Asked(slo=["max(ttft) <= 50ms"]), asked)
    report = search(found, Path("o"), resume=False)
    assert report.outcome == "FOUND"
    assert secret not in Path("o/search.json").read_text()
    assert secret not in FORMATS["html"](report).decode()
