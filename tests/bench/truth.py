"""``python -m tests.bench.truth``: what Plimsoll records against what a server that stamps its own writes has done.

The oracle is on one core and the one worker on another. At each load the run's records are joined with the oracle's by
request id: first tokens, gaps between tokens, and where latency is counted from. Each load runs with the kernel's
stamps and with userland ones, interleaved. A token whose write took the oracle long is judged by the nearer end of the
write.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.oracle.truth_file import OracleRow, read_truth
from plimsoll.slo.records import tables
from tests.bench.pinned import two_cores
from tests.e2e.oracle import Oracle, oracle

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one run, in ns: recorded minus true arrivals, of first tokens and of gaps, and when those truly were
    (CLOCK_MONOTONIC; a gap has the times of both its tokens); the oracle's own lateness, and how long its writes took:
    that is how exactly the truth is known.
    """

    ttft: Array
    ttft_at: Array
    itl: Array
    itl_at: Array
    oracle_late: Array
    writes: Array
    lag: Array
    merged_share: float
    facts: dict[str, Any]

    @staticmethod
    def p(values: Array, percent: float) -> float:
        """A percentile of the sizes, in us; nan without values."""
        return float(np.percentile(np.abs(values), percent)) / 1000 if len(values) else float("nan")


def compare(run: Path, rows: list[OracleRow]) -> Errors:
    """Join a run's directory with the oracle's rows. Every request that succeeded must be in both."""
    manifest = json.loads((run / "manifest.json").read_text())
    facts = json.loads((run / "generator.json").read_text())["facts"]
    report = json.loads((run / "report.json").read_text())
    records = tables.load(run)
    t0 = manifest["t0_monotonic_ns"]
    truth = {row.request_id: row for row in rows}
    ttft, ttft_at, itl, itl_at, late, writes = [], [], [], [], [], []
    for i in np.flatnonzero((records["phase"] == 0) & records.ok).tolist():
        row = truth[f"{manifest['run_id']}-{records['query_id'][i]}-{records['sample_ix'][i]}"]
        seen = records.chunk_ns[records.chunk_offsets[i] : records.chunk_offsets[i + 1]] + t0
        stamps = np.array(row.stamps_ns, dtype=np.int64).reshape(-1, 2)
        assert len(stamps) == len(seen), f"{row.request_id}: {len(seen)} chunks of {len(stamps)}"
        error = off(seen, stamps)
        ttft.append(int(error[0]))
        ttft_at.append(int(stamps[0, 1]))
        itl.append(np.diff(error))
        itl_at.append(np.stack((stamps[:-1, 1], stamps[1:, 1]), axis=1))
        writes.append(stamps[:, 1] - stamps[:, 0])
        late.append(stamps[:, 1] - row.first_due_ns - np.arange(len(stamps)) * row.itl_ns)
    measured = (records["phase"] == 0) & (records["ready_ns"] != -1)
    return Errors(
        np.array(ttft),
        np.array(ttft_at),
        np.concatenate(itl),
        np.concatenate(itl_at),
        np.concatenate(late),
        np.concatenate(writes),
        (records["ready_ns"] - records["due_ns"])[measured],
        report["validity"]["merged_chunks"]["share"],
        facts | {"validity": report["validity"]["outcome"], "reasons": report["validity"]["reasons"]},
    )


def off(seen: Array, stamps: Array) -> Array:
    """How far each arrival is outside the write that caused it (before, after): 0 inside, negative before."""
    return np.where(seen < stamps[:, 0], seen - stamps[:, 0], np.maximum(seen - stamps[:, 1], 0))


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Children started inside run on this core only."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def oracle_on(core: int, *arguments: str) -> Iterator[Oracle]:
    """An oracle on a core of its own; the caller stays where it was."""
    with ExitStack() as stack:
        with pinned(core):
            server = stack.enter_context(oracle(*arguments))
        yield server


def measure(rate: float, seconds: float, tokens: int, itl_ms: float, stamps: str, *options: str) -> Errors:
    """One Poisson run of streams against a fresh oracle."""
    cores = two_cores()
    asked = ("--ttft", "20ms", "--itl", f"{itl_ms}ms", "--tokens", str(tokens), "--truth-mb", "1024")
    with tempfile.TemporaryDirectory() as folder, oracle_on(cores.server, *asked) as server:
        command = [
            sys.executable, "-m", "plimsoll", "run", "--url", server.url, "--protocol", "openai-chat", "--model",
            "oracle",
            "--kind", "server", "--rate", str(rate), "--duration", f"{seconds}s", "--warmup", "1s", "--output-tokens",
            str(tokens), "--option", f"stamps={stamps}", *options, "--out", f"{folder}/run", "--json",
        ]  # fmt: skip
        with pinned(cores.client):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode in (0, 4), done.stderr
        rows = list(read_truth(server.get("/truth.bin")))
        return compare(Path(folder) / "run", rows)


def show(name: str, found: list[Errors]) -> str:
    """One line of the table: medians over the rounds."""

    def middle(value: Any) -> float:
        return statistics.median(value(run) for run in found)

    cells = [
        name,
        *(f"{middle(lambda r, q=q: r.p(r.ttft, q)):.1f}" for q in (50, 99)),
        *(f"{middle(lambda r, q=q: r.p(r.itl, q)):.1f}" for q in (50, 99)),
        *(f"{middle(lambda r, q=q: r.p(r.oracle_late, q)):.0f}" for q in (50, 99)),
        f"{middle(lambda r: r.p(r.writes, 99)):.0f}",
        *(f"{middle(lambda r, q=q: r.p(r.lag, q)):.0f}" for q in (50, 99)),
        f"{middle(lambda r: r.merged_share):.3%}",
        f"{middle(lambda r: max(r.facts['engine_cpu'] or r.facts['worker_cpu'])):.0%}",
        f"{middle(lambda r: max(r.facts['worker_cpu'])):.0%}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| load | TTFT error p50 us | p99 | ITL error p50 us | p99 | oracle late p50 us | p99 | its writes p99 us | lag "
    "p50 us | p99 | merged | engine CPU | worker CPU |\n|---|" + "---|" * 12
)


def main() -> int:
    """Rates as arguments, or the standard ones."""
    rounds = 3
    rates = [float(text) for text in sys.argv[1:]] or [50.0, 200.0, 400.0, 600.0]
    tokens, itl_ms = 128, 10.0
    print(HEAD, flush=True)
    for rate in rates:
        found: dict[str, list[Errors]] = {"kernel": [], "user": []}
        for _ in range(rounds):
            for stamps, runs in found.items():
                runs.append(measure(rate, 8, tokens, itl_ms, stamps))
        for stamps, runs in found.items():
            print(show(f"{rate * tokens:,.0f} events/s, {stamps}", runs), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
