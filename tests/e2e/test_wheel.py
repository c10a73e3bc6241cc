"""The built wheel works on its own, beside anybody's packages: templates, assets, scenarios and the command are in it.

About half a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.plimsoll import ROOT, server

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the unpacked wheel and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_symlink():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    wheel = next((folder / "dist").glob("plimsoll_slo-*.whl"))
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


def test_one_name_is_installed(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} - {"bin"} == {"plimsoll"}


def test_the_installed_package_is_the_wheels_own(installed: Path) -> None:
    where = call(
        installed, "-c", "from plimsoll import harness, reports; print(harness.__path__[0], reports.__path__[0])"
    )
    assert all(path.startswith(str(installed)) for path in where.split())


def test_the_command_runs_and_finds_its_scenarios_and_formats(installed: Path) -> None:
    assert call(installed, "-m", "plimsoll", "--version").startswith("plimsoll ")
    assert "interactive-chat" in call(installed, "-m", "plimsoll", "scenarios", "list")
    out = call(
        installed, "-m", "plimsoll", "run", "--protocol", "null", "--kind", "concurrency", "--concurrency", "2",
        "--queries",
        "20", "--slo", "p50(latency) <= 10s", "--out", "r",
    )  # fmt: skip
    assert "PASS" in out
    assert "<svg" in (installed.parent / "r" / "report.html").read_text(encoding="utf-8")


def test_the_compiled_parts_are_in_the_wheel_load_there_and_run(installed: Path) -> None:
    """Where there was a compiler: the engine drives the oracle, both from the wheel and nothing from the checkout."""
    if not (ROOT / "harness" / "generator" / "_engine.abi3.so").exists():
        pytest.skip("nothing was compiled here")
    where = call(
        installed,
        "-c",
        "from plimsoll.harness.generator import _engine; from plimsoll.reference_server import _oracle as o; "
        "print(_engine.__file__, o.__file__)",
    )
    assert all(path.startswith(str(installed)) and path.endswith(".abi3.so") for path in where.split())
    oracle = subprocess.Popen(
        [sys.executable, "-m", "plimsoll.reference_server.oracle", "--ttft", "5ms", "--itl", "1ms"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=installed.parent,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    assert oracle.stdout is not None
    try:
        url = json.loads(oracle.stdout.readline())["url"]
        call(
            installed, "-m", "plimsoll", "run", "--url", url, "--protocol", "openai-chat", "--kind", "concurrency",
            "--concurrency",
            "4", "--queries", "40", "--option", "engine=native", "--slo", "p50(latency) <= 10s", "--out", "n",
        )  # fmt: skip
    finally:
        oracle.terminate()
        oracle.wait(10)
        oracle.stdout.close()
    generator = json.loads((installed.parent / "n" / "generator.json").read_text())
    assert [client["engine"] for client in generator["clients"]] == ["native"]


def test_the_console_script_is_declared(installed: Path) -> None:
    entry = next(installed.glob("plimsoll_slo-*.dist-info")) / "entry_points.txt"
    assert "plimsoll = plimsoll.__main__:main" in entry.read_text()


#: A package or a module of each of our folders' names, and a test or a locust file that needs its own.
THEIRS = (
    "harness/__init__.py",
    "reports/__init__.py",
    "scenarios/__init__.py",
    "slo.py",
    "documents.py",
    "reference_server.py",
)
NEEDS = "import documents, harness, reference_server, reports, scenarios, slo\nassert scenarios.THEIRS and slo.THEIRS and harness.THEIRS\n"  # noqa: E501


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's project, with packages that have the names of our folders."""
    for name in THEIRS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("THEIRS = True\n")
    return tmp_path


def within(project: Path, installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=60, cwd=project, check=False,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )  # fmt: skip


def test_a_pytest_project_with_packages_of_our_names_runs_its_own_and_ours(project: Path, installed: Path) -> None:
    (project / "test_theirs.py").write_text(
        f"{NEEDS}def test_load(plimsoll):\n"
        "    run = plimsoll.run(protocol='null', kind='concurrency', concurrency=2, queries=20)\n"
        "    run.assert_slo('p50(latency) <= 10s')\n"
    )
    done = within(project, installed, "pytest", "-q", "-p", "no:cacheprovider", ".")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_locust_project_with_packages_of_our_names_runs_its_own_and_ours(project: Path, installed: Path) -> None:
    (project / "locustfile.py").write_text(
        f"{NEEDS}from locust import task\nfrom plimsoll.harness.distributed.locust_ import StreamingUser\n"
        "class Reader(StreamingUser):\n    model = 'scripted'\n    slo = ('p50(latency) <= 10s',)\n"
        "    @task\n    def ask(self):\n        self.chat('Why?', max_tokens=4)\n"
    )
    with server("--model", "scripted", "--ttft", "5ms", "--itl", "1ms") as one:
        done = within(
            project, installed, "locust", "--headless", "-u", "2", "-r", "2", "-t", "2s", "--host", one.url,
            "--plimsoll-out", "run"
        )  # fmt: skip
    report = json.loads((project / "run" / "report.json").read_text())
    assert report["counts"]["by_status"]["OK"] > 10, done.stderr
    assert report["verdict"]["objectives"][0]["outcome"] == "PASS", done.stderr
