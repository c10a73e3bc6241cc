"""The command line: mistakes are named all at once, for people and as JSON; its help; and what ``replay``, ``serve``
and ``slo`` make of their flags.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.secrecy.secrets import IMPLICIT_KEY
from plimsoll.harness.verbs import cli
from plimsoll.harness.verbs.cli import main
from plimsoll.harness.verbs.flags import REPORT_FORMATS
from plimsoll.harness.verbs.run import paced, pairs, yaml_values
from plimsoll.reports.documents.comparison import FORMATS as OF_A_COMPARISON
from plimsoll.reports.documents.search import FORMATS as OF_A_SEARCH
from plimsoll.reports.documents.sweep import FORMATS as OF_A_SWEEP
from plimsoll.reports.format import formats
from plimsoll.scenarios.spec import library, with_flags
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import format_duration
from plimsoll.slo.objectives import openslo
from tests.command import invoke, verbs


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


# -- help -----------------------------------------------------------------------------------------------------------

VERBS = ((), ("run",), ("compare",), ("serve",), ("scenarios",), ("scenarios", "list"), ("slo", "presets"))


@pytest.fixture(autouse=True)
def _by_columns_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typer reads the width that it is told once, when it is first imported, whichever test that was for."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", None)


def said(*words: str, ask: str = "--help") -> str:
    done = invoke(*words, ask, env={"COLUMNS": "250"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def listed(text: str) -> set[str]:
    return set(re.findall(r"│ (?:\* )?(--[a-z-]+) ", text))


@pytest.mark.parametrize("words", VERBS)
def test_flags_that_take_no_value_show_none(words: tuple[str, ...]) -> None:
    assert "bool" not in said(*words).lower()
    assert "--help" in said(*words)


@pytest.mark.parametrize(
    "verb", ["plan", "gate", "report", "replay", "capacity", "bakeoff", "search", "serve", "agent"]
)
def test_values_are_words_and_no_types_and_a_default_is_told_once(verb: str) -> None:
    text = said(verb, ask="--help-all")
    assert not re.search(r"<(str|int|float|path|list)\b|\[\[", text)
    assert not re.search(r"\(default|\((\S+)\)\. \[default: \1\]", text)
    if verb not in ("serve", "agent"):
        assert f"│ plimsoll {verb} " in re.sub(r"╯ +", "│ ", text), "an example"


def test_format_lists_the_formats() -> None:
    assert tuple(sorted(formats())) == REPORT_FORMATS
    assert ", ".join(REPORT_FORMATS) in said("run")
    for verb, known in (("compare", OF_A_COMPARISON), ("search", OF_A_SEARCH), ("sweep", OF_A_SWEEP)):
        *names, last = sorted(known)
        assert f"{', '.join(names)} or {last}" in said(verb)


@pytest.mark.parametrize("verb", ["run", "search", "sweep", "compare", "coldstart"])
def test_the_help_of_a_long_verb_is_one_screen_and_help_all_has_the_rest(verb: str) -> None:
    command: Any = verbs()
    flags = {flag for one in command.commands[verb].params for flag in one.opts if flag.startswith("--")}
    short, whole = said(verb), said(verb, ask="--help-all")
    hidden = flags - listed(short)
    assert f"{len(hidden)} more flags: plimsoll {verb} --help-all" in short
    assert hidden
    assert flags <= listed(whole)
    plain = invoke(verb, "--help", env={"COLUMNS": "120"}).output
    assert len(plain.strip().splitlines()) <= 60


def test_the_defaults_in_the_help_are_those_of_a_run_without_a_file() -> None:
    scenario = with_flags()
    text = said("run", ask="--help-all")
    default = dict(re.findall(r"│ (--[a-z-]+) [^│]*?Default: (\S+?)[.,]? ", text))
    params, source = scenario.params.model_dump(), scenario.source.model_dump()
    assert {flag: default[flag] for flag in ("--rate", "--arrival", "--prompt-tokens", "--output-tokens")} == {
        "--rate": f"{params['rate']:g}",
        "--arrival": params["arrival"],
        "--prompt-tokens": str(source["prompt_tokens"]),
        "--output-tokens": str(source["output_tokens"]),
    }
    assert default["--concurrency"] == str(with_flags(kind="concurrency").params.model_dump()["concurrency"])
    assert default["--protocol"] == scenario.target.protocol
    assert default["--api-key-env"] == IMPLICIT_KEY
    assert default["--duration"] == format_duration(scenario.stop.min_duration_ns)
    for flag in ("seed", "retries"):
        assert default[f"--{flag}"] == str(getattr(scenario, flag))
    for flag in ("timeout", "connect_timeout", "warmup"):
        assert default[f"--{flag.replace('_', '-')}"] == format_duration(getattr(scenario, f"{flag}_ns"))


# -- run ------------------------------------------------------------------------------------------------------------


def test_a_dotted_name_reaches_inside() -> None:
    given = pairs(["audio.frame=20ms", "audio.pace=burst", "words=true", "rate=8000"], "=", "--option")
    assert yaml_values(given) == {"audio": {"frame": "20ms", "pace": "burst"}, "words": True, "rate": 8000}


def test_a_value_and_something_inside_it_do_not_go_together() -> None:
    with pytest.raises(HarnessFault, match="Keep one of the two"):
        yaml_values({"audio": "1", "audio.frame": "20ms"})


def test_what_is_no_yaml_is_refused() -> None:
    with pytest.raises(HarnessFault, match="not YAML"):
        yaml_values({"x": "{"})


def test_pace_is_the_option_of_live_audio() -> None:
    assert paced({"audio": {"frame": "20ms"}}, "burst") == {"audio": {"frame": "20ms", "pace": "burst"}}
    assert paced({}, None) == {}
    with pytest.raises(HarnessFault, match="Keep one of the two"):
        paced({"audio": {"pace": "2x"}}, "burst")


# -- replay ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("replay", "gone"), "gone: does not exist"),
        (("run", "--kind", "replay"), "params.trace is not given"),
        (("run", "--speed", "2"), "--speed: kind server has no speed"),
    ],
)
def test_what_cannot_be_replayed_is_told_in_one_line(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["plimsoll", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))


# -- serve ----------------------------------------------------------------------------------------------------------


def handed_on(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """The arguments of the server that ``plimsoll serve`` would become."""
    seen: list[str] = []

    def become(_path: str, command: list[str]) -> None:
        seen.extend(command[3:])

    monkeypatch.setattr(os, "execv", become)
    done = invoke("serve", *arguments)
    assert done.exit_code == 0, done.output
    return seen


def value(arguments: list[str], flag: str) -> str | None:
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def test_every_flag_reaches_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--grpc-port", "9", "--weights", "w", "--max-wait", "5ms", "--synchronise", "4", "--max-batch", "8"]
    arguments = handed_on(monkeypatch, "--model", "llm", "--model", "dlrm", *given)
    assert [value(arguments, flag) for flag in given[::2]] == given[1::2]
    assert [b for a, b in pairwise(arguments) if a == "--model"] == ["llm", "dlrm"]


@pytest.mark.parametrize(
    ("given", "port"),
    [
        (["--model", "llm"], "8001"),
        (["--model", "scripted", "--model", "llm", "--http-port", "9000"], "9001"),
        (["--model", "llm", "--http-port", "0"], "0"),
        (["--model", "llm", "--grpc-port", "7000"], "7000"),
        (["--model", "scripted"], None),
        (["--model", "scripted", "--grpc-port", "7000"], "7000"),
    ],
)
def test_grpc_is_beside_http_unless_only_the_scripted_model_is_served(
    monkeypatch: pytest.MonkeyPatch, given: list[str], port: str | None
) -> None:
    assert value(handed_on(monkeypatch, *given), "--grpc-port") == port


def test_without_grpcio_it_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else find(name))
    assert value(handed_on(monkeypatch, "--model", "llm"), "--grpc-port") is None


# -- slo ------------------------------------------------------------------------------------------------------------


def plimsoll(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["plimsoll", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_the_starter_is_written_once_and_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "slo.yaml"
    assert plimsoll(monkeypatch, "slo", "init", "--out", str(path)) == 0
    assert path.read_text() == openslo.starter()
    assert plimsoll(monkeypatch, "slo", "init", str(tmp_path / "other.yaml")) == 0
    assert (tmp_path / "other.yaml").read_text() == openslo.starter()
    assert plimsoll(monkeypatch, "slo", "init", "a.yaml", "--out", "b.yaml") == 2
    path.write_text(path.read_text() + "# mine\n")
    capsys.readouterr()
    assert plimsoll(monkeypatch, "slo", "init", "--out", str(path)) == 2
    assert "exists already. Remove it, or name another file with --out" in capsys.readouterr().err
    assert path.read_text().endswith("# mine\n")
    assert plimsoll(monkeypatch, "slo", "check", str(path)) == 0
    said = capsys.readouterr().out
    assert "1 Service, 3 SLO, 1 AlertPolicy. Fine" in said
    assert "promise       99% of all requests have ttft <= 500ms; a failed one is bad" in said
    assert "budget        1%: 6 h 43 min of total failure in a rolling 28 days" in said
    assert "alert         chat-page (page): burn rate over 1 h above 14 for 2 min" in said


def test_a_place_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plimsoll(monkeypatch, "slo", "init", "--out", str(tmp_path / "none" / "slo.yaml")) == 2
    assert "can't be written (No such file or directory)" in capsys.readouterr().err


def test_every_mistake_is_one_line_of_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(openslo.starter().replace("op: lte", "op: le").replace("target: 0.95", "target: 95"))
    assert plimsoll(monkeypatch, "slo", "check", str(path)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"error: {path}:") for line in lines)


def test_files_of_the_short_grammar_are_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("objectives: ['p99(ttft) <= 200ms']\n")
    assert plimsoll(monkeypatch, "slo", "check", str(path)) == 0
    assert "1 objective. Fine\n  p99(ttft) <= 200ms" in capsys.readouterr().out
    assert plimsoll(monkeypatch, "slo", "check", str(path), "--json") == 0
    assert json.loads(capsys.readouterr().out)["objectives"] == ["p99(ttft) <= 200ms"]
    path.write_text("objectives: ['p99(ttft) <= 200']\n")
    assert plimsoll(monkeypatch, "slo", "check", str(path)) == 2
    assert plimsoll(monkeypatch, "slo", "check", str(tmp_path / "none.yaml")) == 2


def test_json_holds_promises_warnings_and_what_cannot_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "slo.yaml"
    text = openslo.starter().replace("duration: 28d", "duration: 1M", 1).replace("type: plimsoll", "type: Datadog", 1)
    path.write_text(text)
    assert plimsoll(monkeypatch, "slo", "check", str(path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["slos"]] == ["chat-smooth", "chat-available"]
    assert found["slos"][0]["limits"] == ["ttft <= 500ms", "tpot <= 50ms"]
    assert found["slos"][1]["slice_ns"] == 15_000_000_000
    assert found["outside"][0]["type"] == "Datadog"
    assert "If minutes are meant, write 1m" in found["warnings"][0]
    assert plimsoll(monkeypatch, "slo", "check", str(path)) == 0
    said = capsys.readouterr().out
    assert "can't be judged here: SLO chat-first-token: its metrics come from Datadog" in said
    assert "warning: " in said
