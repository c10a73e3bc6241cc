"""What ``plimsoll replay`` and its flags refuse before anything else happens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plimsoll.harness.verbs.cli import main


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
