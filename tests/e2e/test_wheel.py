"""The built wheel works on its own: templates, assets, scenarios and the command are in it. About ten seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.plimsoll import ROOT

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the unpacked wheel and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next((folder / "dist").glob("plimsoll-*.whl"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    return folder / "site"


def call(installed: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_package_is_the_wheels_own(installed: Path) -> None:
    where = call(installed, "-c", "import harness, reports; print(harness.__file__, reports.__file__)")
    assert all(path.startswith(str(installed)) for path in where.split())


def test_the_command_runs_and_finds_its_scenarios_and_formats(installed: Path) -> None:
    assert call(installed, "-m", "harness", "--version").startswith("plimsoll ")
    assert "interactive-chat" in call(installed, "-m", "harness", "scenarios", "list")
    out = call(
        installed, "-m", "harness", "run", "--protocol", "null", "--kind", "concurrency", "--concurrency", "2", "--queries",
        "20", "--slo", "p50(latency) <= 10s", "--out", "r",
    )  # fmt: skip
    assert "PASS" in out
    assert "<svg" in (installed.parent / "r" / "report.html").read_text(encoding="utf-8")


def test_the_console_script_is_declared(installed: Path) -> None:
    entry = next(installed.glob("plimsoll-*.dist-info")) / "entry_points.txt"
    assert "plimsoll = harness.cli:main" in entry.read_text()
