"""What a run of several classes asks of its classes before it sends anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exit_codes import ExitCode
from plimsoll.harness.run import mixture
from plimsoll.harness.run.job import check_file, promised
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.spec import parse

CHAT: dict[str, Any] = {"kind": "server", "params": {"rate": 40}}
DOCUMENT = "apiVersion: openslo/v1\nkind: SLO\n"


def mixed(**objectives: list[str]) -> Scenario:
    return parse({"name": "m", "mix": {name: {**CHAT, "objectives": told} for name, told in objectives.items()}})


def test_a_file_of_objectives_in_a_class_is_about_that_class_alone(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text("objectives: ['p99(ttft) <= 200ms', 'ratio(error) <= 1%']\n")
    assert promised(mixed(chat=[str(file)], bulk=["mean(latency) <= 1s"])) == [
        "p99(ttft{class=chat}) <= 200ms", "ratio(error{class=chat}) <= 1%", "mean(latency{class=bulk}) <= 1s",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("objectives: [p99(ttft)]", "chat.yaml:1: objectives[0]"),
        (DOCUMENT, "mix.chat.objectives: {file}: an OpenSLO document says itself which requests it is about"),
    ],
)
def test_what_a_class_cant_promise_alone_is_said_with_the_rest(tmp_path: Path, text: str, error: str) -> None:
    file, scenario = tmp_path / "chat.yaml", tmp_path / "m.yaml"
    file.write_text(text)
    scenario.write_text(
        f"name: m\nmix:\n  chat: {{kind: server, params: {{rate: 1}}, objectives: ['{file}']}}\n"
        "  bulk: {kind: offline, target: {protocol: nobody}}\n"
    )
    with pytest.raises(HarnessFault) as refused:
        check_file(str(scenario))
    assert any(error.format(file=file) in one for one in refused.value.errors), refused.value.errors
    assert any("nobody" in one for one in refused.value.errors), "all errors at once"


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 5000 + ".yaml", "x" * 5000 + "*.jsonl"])
def test_a_text_too_long_for_a_name_of_a_file_is_one_error(tmp_path: Path, name: str) -> None:
    scenario = tmp_path / "m.yaml"
    source = f"{{type: jsonl, path: {name}}}"
    scenario.write_text(
        f"name: m\nmix:\n  chat: {{kind: server, params: {{rate: 1}}, source: {source}, objectives: ['{name}']}}\n"
    )
    with pytest.raises(HarnessFault) as refused:
        check_file(str(scenario))
    assert refused.value.code == 2


def test_an_error_of_several_classes_is_told_once_with_all_of_them() -> None:
    dead, wrong = HarnessFault("no server", ExitCode.UNREACHABLE), HarnessFault(["no server", "no model"])
    found = mixture.fault_of({"chat": dead, "bulk": wrong})
    assert (found.errors, found.code) == (["classes chat, bulk: no server", "class bulk: no model"], 5)
    assert mixture.fault_of({"": dead}).errors == ["no server"]
