"""Starts a real server in its own environment, and drives it by a whole run of the command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.plimsoll import ROOT, plimsoll

SERVERS = Path(__file__).parent / "servers"
PATIENCE_S = 90.0


def binary(server: str, name: str = "python") -> str:
    """A program of a server's environment; the test is skipped without it."""
    path = ROOT / ".venv-interop" / server / "bin" / name
    if not path.exists():
        pytest.skip(f"needs .venv-interop/{server}: make interop")
    return str(path)


def free_ports(n: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


@contextmanager
def running(
    command: list[str],
    ready_url: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    patience_s: float = PATIENCE_S,
    log_file: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A server for the time of a block, from when ``ready_url`` is answered by anything but 400, 404 or 503.

    400 is what Triton says of a model that it is loading. What the server says goes to ``log_file``.
    """
    with log_file.open("w+b") if log_file else tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            until = time.monotonic() + patience_s
            while not _answers(ready_url):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    pytest.fail(f"{command[0]} is not ready: {log.read()[-3000:].decode(errors='replace')}")
                time.sleep(0.2)
            yield process
        finally:
            _end(process)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        return error.code not in (400, 404, 503)
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """The server and all that it started: it is the leader of a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()


@dataclass(frozen=True)
class Run:
    """What a run directory says."""

    records: Records
    request_ids: list[str]
    errors: list[str | None]
    report: dict[str, Any]
    exit_code: int

    def ids(self, *statuses: Status) -> list[str]:
        """The ids of the rows that ended so, sorted."""
        each = zip(self.request_ids, self.records["status"], strict=True)
        return sorted(one for one, status in each if status in statuses)

    @property
    def statuses(self) -> set[Status]:
        return {Status(status) for status in self.records["status"]}


def run(folder: Path, url: str, scenario: Mapping[str, Any], *flags: str) -> Run:
    """A short run: 20 requests or more, one after the other unless the scenario says otherwise."""
    out = folder / f"r{len(list(folder.iterdir()))}"
    whole = {
        "name": "interop",
        "kind": "single_stream",
        "stop": {"min_queries": 20, "min_duration": "100ms"},
        **scenario,
    }
    written = folder / f"{out.name}.yaml"
    written.write_text(json.dumps(whole))  # JSON is YAML
    ran = plimsoll("run", str(written), "--url", url, "--timeout", "10s", "--out", str(out), *flags, cwd=folder)
    assert (out / "report.json").is_file(), ran.stderr
    records = tables.load(out)
    assert contradictions(records) == []
    told = pq.read_table(out / "requests.parquet", columns=["request_id", "error"]).to_pydict()
    return Run(
        records, told["request_id"], told["error"], json.loads((out / "report.json").read_text()), ran.returncode
    )


def metric(url: str, name: str, **labels: str) -> float:
    """The sum of a Prometheus counter's series that have these labels; 0 where the server has none."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    series = [line for line in lines if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in series if all(label in line for label in wanted))


def becomes(value: Callable[[], float], wanted: float, within_s: float = 10.0) -> None:
    """Waits until a server's own count is what it must be; it may count an answer after having sent it."""
    until = time.monotonic() + within_s
    while (seen := value()) != wanted:
        assert time.monotonic() < until, f"the server counts {seen}, and it must be {wanted}"
        time.sleep(0.2)


def holding(value: Callable[[], float], at_least: float, within_s: float = 60.0) -> None:
    """Waits until a server's own gauge has come to ``at_least``."""
    until = time.monotonic() + within_s
    while (seen := value()) < at_least:
        assert time.monotonic() < until, f"the server shows {seen}, and {at_least} were awaited"
        time.sleep(0.05)


def answered(found: Run) -> Run:
    """Every request was answered well. A server that takes the whole machine may make such a run INVALID, rightly."""
    assert found.statuses == {Status.OK}, found.errors[:3]
    return found


def good(found: Run) -> Run:
    """Every request was answered well, in a valid run."""
    answered(found)
    assert found.report["validity"]["outcome"] == "VALID", found.report["validity"]["reasons"]
    return found


def under_load(folder: Path, url: str, scenario: Mapping[str, Any], *pages: str, n: int = 120, at_once: int = 8) -> Run:
    """A run of so many at once with a warm-up, its server scraped meanwhile; every book that can be kept agrees."""
    load = {"kind": "concurrency", "params": {"concurrency": at_once}, "stop": {"min_queries": n, "min_duration": "3s"}}
    flags = ["--warmup", "500ms", *(word for page in pages for word in ("--server-metrics", page))]
    found = answered(run(folder, url, {**scenario, **load}, *flags))
    books = found.report["server"]["books"]
    assert [(book["what"], book["difference"]) for book in books if book["difference"] != 0] == []
    assert books
    return found
