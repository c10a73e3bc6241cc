"""``python -m tests.bench.big_report [REQUESTS] [CHUNKS_PER_REQUEST]``: time and memory of a report on a very large run.

It makes up the records of a Poisson run (1,000,000 requests of 50 chunks by default), seals them as a run would, and then
times ``plimsoll report``: every metric, the verdict, report.json and report.html, in a process of its own.
"""  # noqa: E501

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from plimsoll.harness.run import rundir
from plimsoll.harness.run.rundir import Sealed
from plimsoll.scenarios.spec import with_flags
from plimsoll.slo.records.records import Records, from_arrays, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000


def made_up(n: int, chunks: int, rate: float = 5000.0) -> Records:
    """n successes of a Poisson run with ``chunks`` chunks each."""
    rng = np.random.default_rng(7)
    due = np.cumsum(rng.exponential(1e9 / rate, n)).astype(np.int64)
    sent = due + rng.integers(20_000, 80_000, n)
    first = sent + rng.gamma(20, MS, n).astype(np.int64)
    gaps = rng.gamma(10, MS, (n, chunks)).astype(np.int64)
    gaps[:, 0] = 0
    times = (np.cumsum(gaps, axis=1) + first[:, None]).ravel()
    last = times[chunks - 1 :: chunks]
    columns = from_columns(
        n, due_ns=due, ready_ns=due + 15_000, sent_ns=sent, headers_ns=first, first_byte_ns=first, first_token_ns=first,
        first_answer_ns=first, last_token_ns=last, done_ns=last + 100_000, n_in=100, n_out=chunks, n_chunks=chunks,
        payload_ix=0, sample_ix=0, code=200, stamp=0, tokens_from=1, worker=0, bytes_in=200 * chunks, bytes_out=600,
    )  # fmt: skip
    return from_arrays(dict(columns.columns), times, np.arange(n + 1) * chunks, (), ())


def main() -> int:
    """Make it, report it, print the figures."""
    n, chunks = (int(text) for text in (*sys.argv[1:], *("1000000", "50")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        scenario = with_flags(
            None, kind="server", rate=5000.0, queries=n, url="http://127.0.0.1:1", protocol="openai-chat"
        )
        sealed = Sealed(
            rundir.create(Path(folder) / "run"),
            {
                "schema": "plimsoll.manifest/1",
                "run_id": "big",
                "t0_monotonic_ns": 0,
                "target": {"url": "http://127.0.0.1:1"},
            },
            scenario.to_mapping(),
            made_up(n, chunks),
            GeneratorFacts(
                open_loop=True, planned=n, planned_queries=n, process="poisson", elapsed_ns=int(n / 5000 * 1e9)
            ),
        )
        rundir._write(sealed, scenario.build(1), [])
        del sealed
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "plimsoll", "report", str(Path(folder) / "run"), "--slo", "p99(ttft) <= 200ms", "--slo", "p99(itl) <= 40ms", "--json"],  # noqa: E501
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        took = time.monotonic() - begun
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        size = (Path(folder) / "run" / "report.html").stat().st_size
    report = json.loads(done.stdout)
    print(f"{report['metrics']['latency']['n']:,} requests, {n * chunks:,} chunks: {report['verdict']['outcome']}")
    print(f"{took:.1f} s, {peak / 1e6:.2f} GB, report.html {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
