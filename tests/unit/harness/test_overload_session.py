"""What ``plimsoll overload`` asks before it sends anything, and the run that it makes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run.job import Prepared
from plimsoll.harness.series.search import overload_session, search_session
from plimsoll.harness.verbs.cli import command_line

S = 1_000_000_000
URL = "http://127.0.0.1:9"
LOAD = {"name": "chat", "kind": "server", "params": {"rate": 7}, "stop": {"max_duration": "12s"}}
MIX = {
    "name": "both",
    "mix": {
        "paid": {"kind": "server", "params": {"rate": 3}, "objectives": ["p99(ttft) <= 1s"]},
        "free": {"kind": "server", "params": {"rate": 1}, "stop": {"min_duration": "5s"}},
        "batch": {"kind": "concurrency", "params": {"concurrency": 2}, "until": "others"},
    },
}


def asked(folder: Path, *flags: str, load: Any = LOAD) -> Result:
    (folder / "chat.yaml").write_text(yaml.safe_dump(load))
    words = ["overload", str(folder / "chat.yaml"), "--url", URL, *flags, "--out", str(folder / "out")]
    return CliRunner().invoke(command_line("overload"), words)


def errors(found: Result) -> Sequence[str]:
    assert found.exception is not None
    return list(getattr(found.exception, "errors", [str(found.exception)]))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Prepared]:
    """What would have been sent."""
    found: list[Prepared] = []
    monkeypatch.setattr(overload_session, "run_job", lambda prepared, **_: found.append(prepared) or 0)
    return found


def test_every_mistake_is_told_at_once_and_nothing_is_made(tmp_path: Path) -> None:
    found = errors(
        asked(
            tmp_path, "--steps", "2,1", "--step-time", "soon", "--after", "0s", "--line", "0", "--from", "x", "--slo",
            "p99(tft) <= 1s", "--format", "nosuch=x",
        )
    )  # fmt: skip
    said = "\n".join(found)
    assert "--steps: 2,1 does not rise from at most 1 to above 1" in said
    assert "--step-time: 'soon' is not a duration" in said
    assert "--after 0s: nothing takes no time" in said
    assert "--line 0: give a rate above 0" in said
    assert "--from: --line says where the line is" in said
    assert "did you mean ttft" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "load", "said"),
    [
        (("--slo", "ratio(error) <= 1%"), LOAD, "no objective says when a request is good"),
        ((), LOAD, "no objective says when a request is good"),
        (("--slo", "p99(itl) <= 50ms"), LOAD, "no objective says when a request is good"),
        (("--slo", "ttft <= 1s"), {**LOAD, "kind": "concurrency", "params": {}}, "kind concurrency sends at no rate"),
        (("--slo", "ttft <= 1s"), {"name": "m", "mix": {"b": MIX["mix"]["batch"]}}, "its classes have no rate"),  # type: ignore[index]
        (("--slo", "ttft <= 1s", "--from", "nowhere"), LOAD, "--from: nowhere"),
        (("--slo", "ttft <= 1s", "--slo", "retained >= 80ms"), LOAD, "unit ms does not fit"),
        (("--slo", "ttft <= 1s", "--slo", "ratio(good{phase=x9}) >= 80%"), LOAD, "and never x9"),
        (("--slo", "ttft <= 1s", "--slo", "fairness >= 80%"), LOAD, "no row of this run has the label class"),
        (("--slo", "ttft <= 1s", "--format", "nosuch=x"), LOAD, "nosuch"),
    ],
)
def test_what_can_t_be_asked_is_refused(flags: tuple[str, ...], load: Any, said: str, tmp_path: Path) -> None:
    line = () if "--from" in flags else ("--line", "40")
    assert said in "\n".join(errors(asked(tmp_path, *line, *flags, load=load)))
    assert not (tmp_path / "out").exists()


def test_the_run_is_a_phase_for_each_step_and_one_for_what_comes_after(tmp_path: Path, runs: list[Prepared]) -> None:
    flags = ("--steps", "0.5,1.5,3", "--step-time", "4s", "--after", "10s", "--slo", "p99(ttft) <= 1s")
    found = asked(tmp_path, "--line", "40", *flags)
    assert found.exit_code == 0, found.output
    (made,) = runs
    scenario = made.job.scenario
    rates = scenario.params.model_dump(mode="json")["rate"]["steps"]
    assert [step["rate"] for step in rates] == [20, 60, 120, 20]
    assert [(name, one.from_ns, one.to_ns) for name, one in scenario.phases.items()] == [
        ("x0.5", 0, 4 * S), ("x1.5", 4 * S, 8 * S), ("x3", 8 * S, 12 * S), ("after", 12 * S, None)
    ]  # fmt: skip
    assert (scenario.stop.min_duration_ns, scenario.stop.max_duration_ns) == (22 * S, None)
    assert made.promises.texts == [
        "ttft <= 1s",
        "ratio(good{phase=x0.5}) >= 90%",
        "retained(good{phase=x1.5}) >= 80%",
        "retained(good{phase=x3}) >= 80%",
        "recovered(ratio(good) >= 90%) <= 5s after x3",
    ]
    assert made.job.directory.path == tmp_path / "out" / "run"


def test_what_is_promised_of_the_run_replaces_the_usual(tmp_path: Path, runs: list[Prepared]) -> None:
    slo = (
        "ttft <= 1s", "ratio(good) >= 95%", "retained >= 60%", "recovered(ratio(good) >= 95%) <= 3s",
        "p99(latency{refused}) <= 100ms", "ratio(good{admitted,phase=x3}) >= 90%",
    )  # fmt: skip
    asked(tmp_path, "--line", "40", "--steps", "1,3", *(word for text in slo for word in ("--slo", text)))
    assert runs[0].promises.texts == [
        "ttft <= 1s",
        "ratio(good{phase=x1}) >= 95%",
        "retained(good{phase=x3}) >= 60%",
        "recovered(ratio(good) >= 95%) <= 3s after x3",
        "p99(latency{refused}) <= 100ms",
        "ratio(good{admitted,phase=x3}) >= 90%",
    ]


def test_of_a_mix_every_class_with_a_rate_gets_its_share(tmp_path: Path, runs: list[Prepared]) -> None:
    asked(tmp_path, "--line", "40", "--slo", "ttft <= 1s", "--slo", "fairness >= 50%", "--steps", "1,2", load=MIX)
    (made,) = runs
    rates = {name: one.params.model_dump(mode="json").get("rate") for name, one in made.job.scenario.mix.items()}
    assert [step["rate"] for step in rates["paid"]["steps"]] == [30, 60, 30]
    assert [step["rate"] for step in rates["free"]["steps"]] == [10, 20, 10]
    assert rates["batch"] is None
    assert "fairness(good{phase=x2}) >= 50%" in made.promises.texts
    assert "retained(good{phase=x2}) >= 80%" in made.promises.texts


def test_the_line_is_that_of_a_search_folder(tmp_path: Path, runs: list[Prepared]) -> None:
    (tmp_path / "line").mkdir()
    found = {"schema": "plimsoll.search/1", "name": "chat", "variable": "rate", "outcome": "FOUND", "probes": [],
             "rate_per_s": {"best": 12.0, "interval": [12.0, 13.0]}, "exit_code": 0}  # fmt: skip
    (tmp_path / "line" / "search.json").write_text(json.dumps(found))
    asked(tmp_path, "--from", str(tmp_path / "line"), "--slo", "ttft <= 1s", "--steps", "1,2")
    assert runs[0].job.scenario.params.model_dump(mode="json")["rate"]["steps"][1]["rate"] == 24
    (tmp_path / "line" / "search.json").write_text(json.dumps({**found, "rate_per_s": None, "outcome": "NONE"}))
    again = errors(asked(tmp_path, "--from", str(tmp_path / "line"), "--slo", "ttft <= 1s"))
    assert any("found no rate (NONE). Give the line with --line" in text for text in again)


def test_without_a_line_it_is_searched_for_by_what_is_promised_of_it(
    tmp_path: Path, runs: list[Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[Any] = []
    answers = [("FOUND", 30.0, 0), ("NONE", None, 1)]

    def search(question: Any, out: Path, **_: Any) -> Any:
        questions.append((question.promises.texts, out))
        outcome, best, code = answers[len(questions) - 1]
        return SimpleNamespace(outcome=outcome, rate_per_s=SimpleNamespace(best=best), reasons=["no"], exit_code=code)

    monkeypatch.setattr(search_session, "search", search)
    slo = ("--slo", "p99(ttft) <= 1s", "--slo", "retained >= 60%", "--slo", "p99(latency{refused}) <= 1s")
    asked(tmp_path, *slo, "--steps", "1,2")
    assert questions == [(["ttft <= 1s", "p99(ttft) <= 1s"], tmp_path / "out" / "line")]
    assert runs[0].job.scenario.params.model_dump(mode="json")["rate"]["steps"][1]["rate"] == 60
    other = asked(tmp_path, *slo, "--resume")
    assert len(runs) == 1
    assert getattr(other.exception, "code", None) == ExitCode.FAIL
    assert "the search for the line ended NONE; no. Go on" in errors(other)[0]


def test_another_one_s_folder_is_not_gone_on_with_unasked(tmp_path: Path, runs: list[Prepared]) -> None:
    (tmp_path / "out" / "run").mkdir(parents=True)
    found = asked(tmp_path, "--line", "4", "--slo", "ttft <= 1s")
    assert any("holds another overload. Add --resume" in text for text in errors(found))
    assert not runs
    assert asked(tmp_path, "--line", "4", "--slo", "ttft <= 1s", "--resume").exit_code == 0
    assert len(runs) == 1
