"""Whoever prints can't be ended by its reader, a closed terminal or a full disk."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.harness.process import outlet

SCRIPT = """
import os, sys
from pathlib import Path
from rich.console import Console
from plimsoll.harness.process import outlet
outlet.install()
sys.stdin and sys.stdin.readline()
for _ in range(3):
    print("x" * 100_000, flush=True)
    print("y" * 100_000, file=sys.stderr, flush=True)
    Console(stderr=True).print("z")
    os.write(1, b"a child, or C code")
opened = os.open(os.devnull, os.O_RDONLY)
Path(sys.argv[1]).write_text(f"{opened > 2}")
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("ends", "warns"),
    [
        ("1>&3 2>&3 3>&-", False),  # nobody reads either
        (">&- 2>&- <&-", False),
        (">&-", False),
        (">/dev/full", True),
        (">/dev/full 2>/dev/full", False),
    ],
)
def test_output_that_goes_nowhere_changes_nothing(ends: str, warns: bool, tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    shell = f'exec 3>&{writes}; "$@" {ends}; exit $?'
    done = subprocess.run(
        ["bash", "-c", shell, "bash", sys.executable, "-c", SCRIPT, str(tmp_path / "done")],
        capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL, pass_fds=(writes,),
    )  # fmt: skip
    os.close(writes)
    assert done.returncode == 7, done.stderr[-2000:]
    assert (tmp_path / "done").read_text() == "True"  # no file of ours took the place of a closed descriptor
    assert ("warning: the result could not be printed (No space left on device)" in done.stderr) == warns


def test_signs_that_the_encoding_lacks_are_spelt_out() -> None:
    text = "p99(e2e) ≤ 1 s · 48.8 µs ± 2 → ∞ café 漢"
    assert text.encode("ascii", "spelt-out").decode() == "p99(e2e) <= 1 s - 48.8 us +/- 2 -> inf cafe ?"
    assert "48.8 µs ≤ é".encode("latin-1", "spelt-out").decode("latin-1") == "48.8 µs <= é"
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("ascii", "spelt-out")


@pytest.mark.parametrize(("columns", "width"), [(None, 100), ("140", 140), ("0", 100), ("wide", 100)])
def test_a_pipe_is_as_wide_as_columns_says(columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(os, "get_terminal_size", _no_terminal)
    assert outlet.console().width == width


def _no_terminal(descriptor: int = 1) -> os.terminal_size:
    raise OSError(25, "Inappropriate ioctl for device")
