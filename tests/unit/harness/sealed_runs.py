"""Run directories as a run would leave them, made without sending anything."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from plimsoll.harness.process import writing
from plimsoll.harness.run import rundir
from plimsoll.harness.run.rundir import RunDirectory, Sealed
from plimsoll.scenarios.flags import with_flags
from plimsoll.slo.records.records import Records, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

MS = 1_000_000
HOST = {"hostname": "h", "cpu": "c1", "cpus_allowed": 2, "machine": "x86_64", "os": "Linux 6", "python": "3.12"}


def records(n: int, ttft_ms: float, failed: int = 0, seed: int = 0) -> Records:
    """``n`` streamed answers one after the other, TTFT within 1 % of ``ttft_ms``; the last ``failed`` time out."""
    noise = np.random.default_rng(seed).uniform(0.99, 1.01, n)
    due = np.arange(n) * 100 * MS
    first = due + (ttft_ms * MS * noise).astype(np.int64)
    last = first + 10 * MS
    return from_columns(
        n, query_id=np.arange(n), due_ns=due, ready_ns=due, sent_ns=due, first_byte_ns=first, first_token_ns=first,
        last_token_ns=last, done_ns=last, n_out=3, n_in=2, status=[0] * (n - failed) + [3] * failed,
        chunks=[[int(a), int(a) + 5 * MS, int(b)] for a, b in zip(first, last, strict=True)],
    )  # fmt: skip


def sealed_run(path: Path, ttft_ms: float = 50.0, *, failed: int = 0, seed: int = 42, **flags: Any) -> Path:
    """A sealed run directory of a closed loop with 40 requests."""
    host = {**HOST, **flags.pop("host", {})}
    scenario = with_flags(None, kind="concurrency", concurrency=1, queries=40, seed=seed, **flags)
    plan = scenario.build(1)
    made = records(40, ttft_ms, failed, crc32(path.name.encode()) % 1000)
    facts = GeneratorFacts(
        open_loop=False, planned=40, planned_queries=40, min_queries=40, elapsed_ns=4_000 * MS, kernel_reads=40
    )
    manifest = {
        "schema": "plimsoll.manifest/1", "run_id": f"id-{path.parent.name}-{path.name}",
        "t0_wall_ns": crc32(path.name.encode()),
        "t0_monotonic_ns": 0, "started_at": "2026-11-21T10:00:00+00:00", "plimsoll": "0.1", "host": host, "seed": seed,
        "target": {"url": "http://127.0.0.1:1", "model": "m"}, "plan_fingerprint": plan.fingerprint(), "workers": 1,
    }  # fmt: skip
    path.mkdir(parents=True)
    rundir._write(Sealed(RunDirectory(path), manifest, scenario.to_mapping(), made, facts), plan, [])
    return path


class Full:
    """A disk that takes no file in ``folder`` itself any more, once it is full."""

    def __init__(self, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._whole = writing.whole
        self.full = False
        monkeypatch.setattr(writing, "whole", self)

    def __call__(self, path: Path, content: Any, *, sync: bool = False, named: bool = False) -> None:
        if self.full and path.parent == Path(self._folder):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        self._whole(path, content, sync=sync, named=named)
