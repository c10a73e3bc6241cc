"""Processes on a core of their own, and what they cost: the server on one core, the client on the other.

A child inherits the affinity that it is started with, so nothing has to be installed and no thread escapes. It measures
processor time, in seconds, and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
#: A child that takes longer is stuck.
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the client runs, and where the server does."""

    client: int
    server: int


def two_cores() -> Cores:
    """The first and the last core that we may use. Raises RuntimeError when there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise RuntimeError("the peers need two cores, one of them for the server. Give this process another core")
    return Cores(allowed[0], allowed[-1])


@contextmanager
def on(core: int) -> Iterator[None]:
    """Children that are started in here run on this core."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def cpu_s(pid: int) -> float | None:
    """Seconds of processor time of a process, all threads, ended ones too; None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) * _TICK_S


@dataclass(frozen=True, slots=True)
class Finished:
    """A child that has ended: what it printed and what it and its children cost."""

    code: int
    output: str
    cpu_s: float


def start(command: Sequence[str], core: int, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A child on this core. Its errors go where ours go, its output to a pipe."""
    with on(core):
        return subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env
        )


def finish(child: subprocess.Popen[str]) -> Finished:
    """Wait for a child; one that takes longer than LIMIT_S is killed."""
    assert child.stdout is not None
    guard = threading.Timer(LIMIT_S, child.kill)
    guard.start()
    try:
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
    finally:
        guard.cancel()
        child.stdout.close()
    child.returncode = os.waitstatus_to_exitcode(status)
    return Finished(child.returncode, output, usage.ru_utime + usage.ru_stime)


def run(command: Sequence[str], core: int) -> Finished:
    """A child from start to end. Raises RuntimeError if it fails."""
    done = finish(start(command, core))
    if done.code:
        raise RuntimeError(f"{' '.join(command[:4])} ... ended with code {done.code}: {done.output[-500:]}")
    return done


def stop(child: subprocess.Popen[str]) -> None:
    """End a server that we started."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    if child.stdout is not None:
        child.stdout.close()


class Watch:
    """The processor time of one grandchild, sampled until it is gone: it is its parent that waits for it, not we."""

    PERIOD_S = 0.01

    def __init__(self, parent: int, mark: str) -> None:
        self._parent = parent
        self._mark = mark.encode()
        self._seen: list[tuple[int, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        pid = None
        while not self._over.wait(self.PERIOD_S if pid is not None else 5 * self.PERIOD_S):
            pid = self._find() if pid is None else pid
            spent = cpu_s(pid) if pid is not None else None
            if spent is not None:
                self._seen.append((time.monotonic_ns(), spent))

    def _find(self) -> int | None:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[1]) == self._parent and self._mark in (entry / "cmdline").read_bytes():
                    return int(entry.name)
            except (OSError, IndexError, ValueError):
                continue  # it ended while we looked
        return None

    def since(self, t0_ns: int) -> float:
        """Seconds that it used from ``t0_ns`` (CLOCK_MONOTONIC) to its end."""
        self._over.set()
        self._thread.join()
        before = [spent for at, spent in self._seen if at <= t0_ns]
        if not before:
            raise RuntimeError("the worker was not seen before its start. Run the benchmark again")
        return self._seen[-1][1] - before[-1]
