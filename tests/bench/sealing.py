"""``python -m tests.bench.sealing [ROWS] [CHUNKS] [WORKERS]``: CPU time and memory of sealing a run of any length.

It writes the segments of an open loop as workers would (1,000,000 rows without chunks and 4 workers by default; 20,000
rows a segment, in the order in which answers end, one in 1,000 much later than its neighbours), and seals them in a
process of its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from plimsoll.harness.generator.segments import segment_name, write_segment
from plimsoll.harness.run import rundir
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.spec import Scenario, with_flags
from plimsoll.slo.records.records import IntArray, Records, from_arrays, from_columns
from plimsoll.slo.validity.accounts import digests
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000
SEGMENT_ROWS = 20_000
#: Requests that are under way at a time, and how much later one in a thousand ends, in requests of its worker.
IN_FLIGHT, LATE = 200, 50_000


def scenario_of(rows: int) -> Scenario:
    return with_flags(
        None, kind="server", rate=20_000.0, queries=rows, url="http://127.0.0.1:1", protocol="openai-chat"
    )


def recorded(query: IntArray, due: IntArray, worker: int, chunks: int) -> Records:
    """Answers to these queries with so many chunks each."""
    n = len(query)
    rng = np.random.default_rng(int(query[0]))
    sent = due + rng.integers(20_000, 80_000, n)
    first = sent + rng.gamma(20, MS, n).astype(np.int64)
    gaps = rng.gamma(10, MS, (n, max(1, chunks))).astype(np.int64)
    gaps[:, 0] = 0
    times = np.cumsum(gaps, axis=1) + first[:, None]
    last = times[:, -1]
    columns = from_columns(
        n, query_id=query, due_ns=due, ready_ns=due + 15_000, sent_ns=sent, headers_ns=first, first_byte_ns=first,
        first_token_ns=first, first_answer_ns=first, last_token_ns=last, done_ns=last + 100_000, n_in=100, n_out=chunks,
        n_chunks=chunks, payload_ix=0, sample_ix=0, code=200, stamp=0, tokens_from=1, worker=worker,
        bytes_in=200 * chunks, bytes_out=600, attempts=1,
    )  # fmt: skip
    kept = times.ravel() if chunks else np.empty(0, np.int64)
    return from_arrays(dict(columns.columns), kept, np.arange(n + 1) * chunks, (), ())


def write_worker(folder: Path, plan: Blocks, worker: int, workers: int, chunks: int) -> dict[str, int]:
    """The segments of one worker; returns its account."""
    rng = np.random.default_rng(worker)
    digest = segments = rows = 0
    waiting = [np.empty(0, np.int64)] * 3  # query, due, and when it ends: in requests of this worker

    def write(least: int, most_turn: float) -> None:
        nonlocal digest, segments, waiting
        order = np.argsort(waiting[2])
        query, due, turn = (column[order] for column in waiting)
        ready = int(np.searchsorted(turn, most_turn))
        begin = 0
        while ready - begin >= least:
            end = min(begin + SEGMENT_ROWS, ready)
            some = recorded(query[begin:end], due[begin:end], worker, chunks)
            digest = (digest + sum(digests(some).values())) % (1 << 64)
            write_segment(folder / segment_name(worker, segments), some)
            segments, begin = segments + 1, end
        waiting = [column[begin:] for column in (query, due, turn)]

    for piece in plan.shard(worker, workers):
        n = piece.n_queries
        turn = rows + np.arange(n) + rng.exponential(IN_FLIGHT, n) + LATE * (rng.random(n) < 0.001)
        rows += n
        waiting = [np.concatenate(both) for both in zip(waiting, (piece.query_id, piece.due_ns, turn), strict=True)]
        write(SEGMENT_ROWS, float(rows))
    write(1, np.inf)
    return {"sent": rows, "rows": rows, "digest": digest, "segments": segments}


def seal(folder: Path, rows: int, workers: int) -> None:
    """In a process of its own: seal, and print what it took."""
    scenario = scenario_of(rows)
    plan = scenario.blocks(1).survey()
    accounts = json.loads((folder / "accounts.json").read_text())
    directory = rundir.RunDirectory(folder / "run")
    members = [
        Member(at, done={"account": {**account, "unwritten": []}, "folders": [str(directory.segments)]})
        for at, account in enumerate(accounts)
    ]
    manifest = {"run_id": "big", "t0_monotonic_ns": 0, "plan_fingerprint": plan.fingerprint, "source_samples": 1}
    facts = GeneratorFacts(open_loop=True, planned=rows, planned_queries=rows, process="poisson")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, clock = time.process_time(), time.monotonic()
    sealed = rundir.seal(directory, manifest, scenario.to_mapping(), plan.pieces, members, facts)
    took, wall = time.process_time() - began, time.monotonic() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(sealed.records) == rows
    assert sealed.facts.account_faults == sealed.facts.plan_faults == ()
    speed = f"{took:.2f} CPU-s ({took / rows * 1e6:.2f} us a row), {wall:.1f} s"
    print(f"{speed}; {before >> 10} MB before, peak {peak >> 10} MB")


def made(folder: Path, rows: int, chunks: int, workers: int) -> int:
    """The segments of a run of so many rows, and its workers' accounts; returns the bytes of the segments."""
    directory = rundir.create(folder / "run")
    plan = scenario_of(rows).blocks(1)
    make = partial(write_worker, directory.segments, plan, workers=workers, chunks=chunks)
    accounts = [make(worker) for worker in range(workers)]
    (folder / "accounts.json").write_text(json.dumps(accounts))
    return sum(file.stat().st_size for file in directory.segments.iterdir())


def sealing(folder: Path, rows: int, workers: int) -> list[str]:
    """The command that seals what ``made`` made."""
    call = f"seal(Path({str(folder)!r}), {rows}, {workers})"
    return [sys.executable, "-c", f"from tests.bench.sealing import seal; from pathlib import Path; {call}"]


def main() -> int:
    """Make the segments, seal them, print the figures."""
    given = [int(text) for text in sys.argv[1:4]]
    rows, chunks, workers = (*given, *(1_000_000, 0, 4)[len(given) :])
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        size = made(folder, rows, chunks, workers)
        subprocess.run(sealing(folder, rows, workers), check=True)
        sealed = sum((folder / "run" / f"{name}.parquet").stat().st_size for name in ("requests", "chunks"))
    print(f"{rows:,} rows of {chunks} chunks: segments {size / rows:.0f} bytes a row, Parquet {sealed / rows:.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
