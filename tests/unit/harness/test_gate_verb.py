"""``plimsoll gate`` answers by its exit code, and refuses what it could only answer falsely."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import HarnessFault
from harness.promises import Asked
from harness.verbs.gate import _judge_again
from tests.unit.harness.sealed_runs import sealed_run


@pytest.mark.parametrize(
    ("objective", "code"),
    [("p50(ttft) <= 100ms", 0), ("p50(ttft) <= 20ms", 1), ("p99(ttft) <= 100ms", 3)],
)
def test_the_exit_code_is_the_verdict(objective: str, code: int, tmp_path: Path) -> None:
    assert _judge_again(sealed_run(tmp_path / "r"), Asked([objective]), [], as_json=False) == code


def test_a_gate_without_objectives_is_a_mistake_and_a_report_without_is_not(tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    with pytest.raises(HarnessFault, match="no objective to judge by"):
        _judge_again(run, Asked(), [], as_json=False)
    with pytest.raises(HarnessFault, match="no objective to judge by"):  # vLLM's limits only say what good is
        _judge_again(run, Asked(goodput="ttft:200"), [], as_json=False)
    assert _judge_again(run, Asked(), [], as_json=False, rewrite=True) == 0


def test_two_documents_for_standard_output_are_refused(tmp_path: Path) -> None:
    asked = Asked(["p50(ttft) <= 1s"])
    with pytest.raises(HarnessFault, match="all go to standard output"):
        _judge_again(sealed_run(tmp_path / "r"), asked, ["junit=-"], as_json=True)
    with pytest.raises(HarnessFault, match="all go to standard output"):
        _judge_again(tmp_path / "r", asked, ["junit=-", "markdown=/dev/stdout"], as_json=False)


@pytest.mark.parametrize("name", ["scenario.yaml", "manifest.json", "generator.json"])
def test_an_emptied_file_of_a_run_is_one_clear_error(name: str, tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    (run / name).write_text("null" if name.endswith("json") else "")
    with pytest.raises(HarnessFault, match="damaged or from another version"):
        _judge_again(run, Asked(["p50(ttft) <= 1s"]), [], as_json=True)


def test_a_format_on_standard_output_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = sealed_run(tmp_path / "r")
    _judge_again(run, Asked(["p50(ttft) <= 1s"]), ["annotations=-"], as_json=False)
    assert "::notice title=" in capsys.readouterr().out
    _judge_again(run, Asked(["p50(ttft) <= 1s"]), [], as_json=True)
    assert json.loads(capsys.readouterr().out)["verdict"]["outcome"] == "PASS"
