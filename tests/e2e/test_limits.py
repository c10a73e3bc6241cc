"""This host's limits, met for real: file descriptors under a lowered `ulimit -n`, ports in a network of its own.

Bound: at most 60 connections; the port test sends 100 requests/s for a second to a server that answers after two.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Status
from tests.e2e.oracle import oracle
from tests.e2e.plimsoll import PLIMSOLL, ROOT

pytestmark = pytest.mark.e2e

#: In a network namespace of its own: loopback up, 16 local ports, then the command.
ALONE = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
    fcntl.ioctl(plain, 0x8914, struct.pack("16sh14x", b"lo", 0x41))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as ports:
    ports.write("40000 40015")
os.execv(sys.argv[1], sys.argv[1:])
"""
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", ALONE]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_a_closed_loop_above_the_file_limit_is_refused_before_any_load(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PLIMSOLL, "run", "--kind", "concurrency", "--concurrency", "60", "--model", "scripted"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False, env=ENV,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)),
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "keeps 60 connections open in one worker, and a process may open 100 files here" in done.stderr
    assert "--workers 2" in done.stderr
    assert "Traceback" not in done.stderr
    assert "starting" not in done.stderr  # not even the bundled server
    assert list(tmp_path.glob("runs/*")) == []


@pytest.mark.parametrize("engine", ["native", "python"])
def test_a_worker_whose_connections_take_all_descriptors_still_writes_its_rows(engine: str, tmp_path: Path) -> None:
    """300/s for 2 s to a server that answers after 3 s, and 200 descriptors: some 165 connections, then none is left.

    Rows that no disk took once stayed in memory, of a long run all that came after a stall.
    """
    (tmp_path / "s.yaml").write_text(
        "kind: server\nparams: {rate: 300}\nstop: {min_queries: 600, min_duration: 2s}\n"
        f"target: {{options: {{engine: {engine}}}}}\n"
    )
    with oracle("--ttft", "3s", "--tokens", "1", "--truth", "0") as server:
        done = subprocess.run(
            [*PLIMSOLL, "run", "s.yaml", "--url", server.url, "--model", "oracle", "--out", "r"],
            capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False, env=ENV,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
        )  # fmt: skip
    assert done.returncode == 4, done.stderr
    facts = json.loads((tmp_path / "r" / "generator.json").read_text())["facts"]
    assert facts["disk_notes"] == facts["disk_faults"] == []
    assert any(
        "connections failed on this host" in text and "file descriptors" in text for text in facts["worker_faults"]
    )
    rows = tables.load(tmp_path / "r")
    assert 600 <= len(rows) < 700
    sent = int((rows["status"] == Status.OK).sum())
    assert 130 < sent <= 184
    assert len(rows) - sent == int((rows["status"] == Status.CONNECT).sum())


def alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``plimsoll run`` and its bundled server where connections have 16 local ports; skipped where that is not
    allowed.
    """
    try:
        able = subprocess.run([*UNSHARE, "/bin/true"], capture_output=True, timeout=20, check=False).returncode == 0
    except OSError:
        able = False
    if not able:
        pytest.skip("no network namespace without privileges here")
    return subprocess.run(
        [*UNSHARE, *PLIMSOLL, "run", "--model", "scripted", "--out", "r", *arguments],
        capture_output=True, text=True, timeout=90, cwd=folder, check=False, env=ENV,
    )  # fmt: skip


def test_a_closed_loop_above_the_port_range_is_refused_with_the_numbers(tmp_path: Path) -> None:
    done = alone(tmp_path, "--kind", "concurrency", "--concurrency", "17")
    assert done.returncode == 2, done.stderr
    assert "keeps 17 connections open" in done.stderr
    assert "16 local ports for connections to one address" in done.stderr
    assert "40000 40015" in done.stderr


def test_ports_that_run_out_during_a_run_are_foreseen_then_explained_and_the_run_is_invalid(tmp_path: Path) -> None:
    done = alone(tmp_path, "--kind", "server", "--rate", "100", "--duration", "1s", "--output-tokens", "200", "--json")
    assert "at 1" in done.stderr.partition("16 local ports for one address")[0]
    assert "are used up as soon as answers take 0.1" in done.stderr
    assert done.returncode == 4, done.stderr
    (reason,) = (text for text in json.loads(done.stdout)["validity"]["reasons"] if "worker faults" in text)
    assert "connections failed on this host, not at the endpoint: Cannot assign requested address" in reason
    assert "16 ports are all that one address can have" in reason or "new connections/s" in reason
