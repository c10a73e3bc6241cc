"""Drive the command line and the bundled server as a user would: separate processes, real sockets."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent.parent
#: What a run leaves in its directory.
FILES = {
    *("manifest.json", "scenario.yaml", "plan.npz", "promises.json", "generator.json"),
    *("requests.parquet", "chunks.parquet", "report.json", "report.html"),
}
PLIMSOLL = [sys.executable, "-m", "plimsoll"]


@dataclass
class Server:
    """A running reference server."""

    process: subprocess.Popen[str]
    url: str
    grpc: str = ""

    def truth(self) -> dict[str, dict[str, Any]]:
        """Server-side stamps by request id."""
        with urllib.request.urlopen(f"{self.url}/truth", timeout=10) as answer:
            rows = [json.loads(line) for line in answer.read().splitlines() if line.strip()]
        return {row["request_id"]: row for row in rows}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def server(*arguments: str) -> Iterator[Server]:
    """``python -m plimsoll.reference_server`` on a free port, stopped at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "plimsoll.reference_server", "--http-port", "0", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline())
        yield Server(process, ready["url"], ready.get("grpc") or "")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()


def plimsoll(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. Bounded at 100 s."""
    return subprocess.run(
        [*PLIMSOLL, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        check=False,
    )


def plimsoll_here(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command within this process, its workers and servers in their own: a second of start-up less. For what isn't
    about the command's own process, its signals and streams. Bounded at 100 s.
    """
    from plimsoll.harness.verbs.cli import main

    said, errors, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, {"PYTHONPATH": str(ROOT), **(env or {})}),
        mock.patch.object(sys, "argv", ["plimsoll", *arguments]),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(errors),
        _bounded(100),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return subprocess.CompletedProcess(arguments, code, said.getvalue(), errors.getvalue())


@contextmanager
def _bounded(seconds: int) -> Iterator[None]:
    def too_long(*_: object) -> None:
        raise TimeoutError(f"the command took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def plimsoll_valid(*arguments: str, cwd: Path, out: str = "r") -> subprocess.CompletedProcess[str]:
    """Run the command; when it says that the *generator* was late (INVALID, exit 4), run it again, up to three times.

    That is what its own message asks a user on a busy machine to do. Any other reason for INVALID is not repeated.
    """
    for _ in range(3):
        done = plimsoll_here(*arguments, "--out", out, cwd=cwd)
        if done.returncode != 4 or not only_late(cwd / out):
            break
        shutil.rmtree(cwd / out)
    return done


def only_late(run: Path) -> bool:
    """Every reason of an INVALID run, if it is one, is the generator's own lateness."""
    from plimsoll.harness.run.judged import judge
    from plimsoll.harness.run.promises import Promises
    from plimsoll.harness.run.rundir import open_sealed

    checks = judge(open_sealed(run), Promises()).validity.checks
    late = {"lag", "rate", "arrival process", "loop stalls", "live audio", "generator CPU"}
    return {check.name for check in checks if not check.ok} <= late


def begin(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start the command and return at once."""
    return subprocess.Popen(
        [*PLIMSOLL, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
    )


def wait_for(path: Path, seconds: float = 20.0) -> Path:
    """Wait until a file (glob pattern in its name allowed) exists."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = sorted(path.parent.glob(path.name)) if path.parent.is_dir() else []
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"{path} did not appear within {seconds} s")


def children(pid: int, needle: str) -> list[int]:
    """Child processes of ``pid`` whose command line holds ``needle``."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            command = (stat.parent / "cmdline").read_text()
        except (OSError, IndexError, ValueError):
            continue
        if parent == pid and needle in command:
            found.append(int(stat.parent.name))
    return found
