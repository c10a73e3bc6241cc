"""``plimsoll slo``: what a file promises in plain words, all mistakes with exit code 2, and a starter that is never
lost.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll.harness.verbs.cli import main
from plimsoll.slo.objectives import openslo


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
