"""What the help says of flags."""

from __future__ import annotations

import re
from typing import Any

import pytest

from plimsoll.harness.secrecy.secrets import IMPLICIT_KEY
from plimsoll.harness.verbs.flags import REPORT_FORMATS
from plimsoll.reports.documents.comparison import FORMATS as OF_A_COMPARISON
from plimsoll.reports.documents.search import FORMATS as OF_A_SEARCH
from plimsoll.reports.documents.sweep import FORMATS as OF_A_SWEEP
from plimsoll.reports.format import formats
from plimsoll.scenarios.spec import with_flags
from plimsoll.scenarios.text.fields import format_duration
from tests.command import invoke, verbs

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
