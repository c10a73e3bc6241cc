"""What the command line says of mistakes: all of them, on stderr for people, and as JSON where a program asked for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs.cli import command_line
from plimsoll.scenarios.spec import library
from plimsoll.scenarios.text.errors import ScenarioError

app = command_line()


def test_flags_that_cannot_be_read_hide_no_other_mistake(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: server\ntarget: {url: ftp://h}\n")
    words = ["run", str(path), "--rate", "foo", "--concurrency", "2.5", "--slo", "p99(nope) <= 1s"]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, HarnessFault)
    assert result.exception.code == 2
    rate, concurrency, url, slo = result.exception.errors
    assert rate == "--rate: 'foo' is not a number. Write for example 2.5"
    assert concurrency == "--concurrency: '2.5' is not a whole number. Write for example 4"
    assert url.startswith(f"{path}:2: target.url: 'ftp://h' is not a URL")
    assert slo.startswith("--slo 'p99(nope) <= 1s': indicator nope")


@pytest.mark.parametrize("words", [["scenarios", "check"], ["slo", "check"], ["bakeoff", "--check"], ["plan"]])
def test_checks_answer_mistakes_in_json_too(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: [\n")
    result = CliRunner().invoke(app, [*words, str(path), "--json"])
    assert isinstance(result.exception, HarnessFault | ScenarioError)
    document = json.loads(result.stdout)
    assert document["errors"] == list(result.exception.errors)
    assert str(path) in document["errors"][0]
    assert not CliRunner().invoke(app, [*words, str(path)]).stdout


def test_a_check_that_finds_nothing_answers_as_ever() -> None:
    assert "plan_fingerprint" in json.loads(
        CliRunner().invoke(app, ["scenarios", "check", str(library()["smoke"]), "--json"]).stdout
    )
