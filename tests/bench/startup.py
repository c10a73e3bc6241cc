"""What starting costs: CPU of verbs that do little, and of a worker until it is ready.

``python -m tests.bench.startup [TREE ...]`` prints medians over 11 rounds, interleaved, of this tree and of other
checkouts. CPU is what the system says of the ended child (user and system), with bytecode on disk, as an installed
program has it.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path

from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.spec import load

ROOT = Path(__file__).parents[2]
ROUNDS = 11
#: How a run is made that ``gate`` judges.
RUN = ("run", "--protocol", "null", "--rate", "100", "--queries", "500", "--slo", "p99(latency) <= 1s")
#: A run of which little but its start is left: what each test that makes one pays.
QUICK = (
    "run",
    "--protocol",
    "null",
    "--rate",
    "1000",
    "--queries",
    "500",
    "--duration",
    "0s",
    "--slo",
    RUN[-1],
    "--out",
)


def main(trees: list[Path]) -> None:
    """Measure and print a table."""
    with tempfile.TemporaryDirectory() as scratch, socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        run = str(Path(scratch) / "run")
        subprocess.run([sys.executable, "-m", "plimsoll", *RUN, "--out", run], check=True, capture_output=True)
        spec = worker_spec(f"http://127.0.0.1:{server.getsockname()[1]}", scratch)
        number = count()
        cases: dict[str, Callable[[Path], float]] = {
            "an empty program": partial(cpu_s, ["-c", "pass"]),
            "--version": partial(cpu_s, ["-m", "plimsoll", "--version"]),
            "scenarios list": partial(cpu_s, ["-m", "plimsoll", "scenarios", "list"]),
            "gate, 500 requests": partial(cpu_s, ["-m", "plimsoll", "gate", run]),
            "a run of 500, null": lambda tree: cpu_s(["-m", "plimsoll", *QUICK, f"{scratch}/{next(number)}"], tree),
            "a worker is ready": partial(cpu_s, ["-m", "plimsoll.harness.generator.worker"], spec=spec),
        }
        print(f"{'CPU, s':20}", *(f"{tree.name:>16}" for tree in trees))
        for name, case in cases.items():
            rounds = [[case(tree) for tree in trees] for _ in range(ROUNDS + 1)][1:]  # the first writes the bytecode
            print(
                f"{name:20}",
                *(f"{statistics.median(column):16.3f}" for column in zip(*rounds, strict=True)),
                flush=True,
            )


def cpu_s(arguments: list[str], tree: Path, spec: bytes = b"") -> float:
    """CPU of the program and its children to its end, or with ``spec`` until it has answered it: a worker whose
    coordinator is gone ends at once.
    """
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    if spec:
        child.stdin.write(spec)
        child.stdin.flush()
        ready = json.loads(child.stdout.readline())
        assert ready["type"] == "ready", ready
    child.stdin.close()
    child.stdout.read()
    used = os.wait4(child.pid, 0)[2]
    child.returncode = 0
    return used.ru_utime + used.ru_stime


def worker_spec(url: str, folder: str) -> bytes:
    """What a worker of the scenario ``smoke`` is told: ``plimsoll.harness.run.coordinator.worker_spec``."""
    scenario = load("smoke")
    target = Target(url, "openai-chat", "m")
    spec = {
        "type": "spec", "scenario": scenario.to_mapping(), "where": "smoke", "target": asdict(target), "run_id": "r",
        "shard": 0,
        "shards": 1, "dealing": "turns", "segments": folder, "drain_ns": 1, "max_outstanding": 1000,
    }  # fmt: skip
    return json.dumps(spec).encode() + b"\n"


if __name__ == "__main__":
    main([ROOT, *map(Path, sys.argv[1:])])
