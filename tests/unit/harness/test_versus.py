"""One session of comparing: what is refused before any run is made, and a result that nobody can read any more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from rich.text import Text

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process import outlet
from plimsoll.harness.run.job import default_out
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.series.comparison.comparison_session import Wanted, of_interleaved, of_runs, question
from plimsoll.harness.series.ledger import Session
from plimsoll.harness.series.publish import show
from tests.unit.harness.sealed_runs import sealed_run


def wanted(folder: Path) -> Wanted:
    made, errors = question([], Asked(), "5%", "1%")
    assert not errors
    return Wanted(made, Session(folder / "out"), save_baseline=folder / "b.json")


def test_which_of_three_sides_to_keep_is_asked_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abc":
        sealed_run(tmp_path / name)
    with pytest.raises(HarnessFault, match="which of a, b, c"):
        of_runs([str(tmp_path / name) for name in "abc"], wanted(tmp_path))
    arms = [f"{name}=bundled" for name in "abc"]
    with pytest.raises(HarnessFault, match="which of a, b, c"):
        of_interleaved("smoke", {}, Asked(), arms, 5, "2s", wanted(tmp_path))
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "out").exists()


def test_a_full_disk_behind_stdout_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning is ``test_outlet``'s."""
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(sys, "stdout", outlet.stream(full))
    for _ in range(2):
        show(lambda _: Text("result"), (), None)
    os.close(full)


def test_a_folder_is_named_by_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = default_out("search-http://127.0.0.1:8000/v1")
    assert folder.parent == Path("runs"), "a URL is no path"
    assert folder.name.startswith("search-http-127.0.0.1-8000-v1-")
