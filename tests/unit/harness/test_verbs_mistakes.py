"""What the command line says of mistakes: all of them, on stderr for people, and as JSON where a program asked for
it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.verbs import cli
from plimsoll.scenarios.spec import library
from plimsoll.scenarios.text.document import ScenarioError
from tests.command import invoke


def test_flags_that_cannot_be_read_hide_no_other_mistake(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("kind: server\ntarget: {url: ftp://h}\n")
    words = ["run", str(path), "--rate", "foo", "--concurrency", "2.5", "--slo", "p99(nope) <= 1s"]
    result = invoke(*words)
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
    result = invoke(*words, str(path), "--json")
    assert isinstance(result.exception, HarnessFault | ScenarioError)
    document = json.loads(result.stdout)
    assert document["errors"] == list(result.exception.errors)
    assert str(path) in document["errors"][0]
    assert not invoke(*words, str(path)).stdout


def test_a_check_that_finds_nothing_answers_as_ever() -> None:
    assert "plan_fingerprint" in json.loads(invoke("scenarios", "check", str(library()["smoke"]), "--json").stdout)


def test_what_an_error_quotes_steers_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["plimsoll", "compare", "--interleave", "smoke", "--arm", "a\x1b[31mb=bundled"])
    with pytest.raises(SystemExit):
        cli.main()
    said = capsys.readouterr().err
    assert "error: " in said
    assert "\x1b" not in said


def test_an_interleaving_without_a_scenario_says_that_it_needs_one() -> None:
    result = invoke("compare", "--interleave", "--arm", "a=http://127.0.0.1:9", "--arm", "b=http://127.0.0.1:9")
    assert isinstance(result.exception, HarnessFault)
    [said] = result.exception.errors
    assert said.startswith("--interleave: no scenario. Write `plimsoll compare --interleave chat.yaml --arm a=")


@pytest.mark.parametrize("words", [["compare", "--interleave", "demo", "--arm", "a=bundled"], ["sweep", "demo"]])
def test_a_limit_on_a_request_may_stand_alone_where_goodput_is_compared_or_drawn(words: list[str]) -> None:
    result = invoke(*words, "--slo", "ttft <= 300ms", "--timeout", "nonsense")
    assert isinstance(result.exception, HarnessFault)
    assert result.exception.errors
    assert "nothing says how many" not in str(result.exception)
    assert "nothing says how many" in str(invoke("run", "demo", "--slo", "ttft <= 300ms").exception)
