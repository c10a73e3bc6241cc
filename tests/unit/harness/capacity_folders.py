"""Folders of a search and of a sweep as they would be left behind, of a simulated M/D/1 or batching endpoint.

Nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from plimsoll.harness.run import rundir
from plimsoll.harness.run.rundir import RunDirectory, Sealed
from plimsoll.reports.documents.search import AnswerPart, ProbePart, RangePart, SearchReport
from plimsoll.reports.models.sweep_parts import LinePart, SeriesPart, SweepPoint, SweepReport
from plimsoll.scenarios.flags import with_flags
from plimsoll.slo.records.records import IntArray, Records, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from tests.unit.harness.sealed_runs import HOST

MS = 1_000_000
SERVICE_NS = 8 * MS


def md1(rate: float, n: int, seed: int, service_ns: int = SERVICE_NS) -> tuple[IntArray, IntArray]:
    """Due and done of an M/D/1 queue, by Lindley's recursion."""
    rng = np.random.default_rng(seed)
    due = np.cumsum(rng.exponential(1e9 / rate, n)).astype(np.int64)
    done = np.empty(n, np.int64)
    free = 0
    for i, at in enumerate(due.tolist()):
        free = max(free, at) + service_ns
        done[i] = free
    return due, done


def rows(due: IntArray, done: IntArray, payload_ix: IntArray | int = -1) -> Records:
    n = len(due)
    return from_columns(
        n,
        query_id=np.arange(n),
        payload_ix=payload_ix,
        due_ns=due,
        ready_ns=due,
        sent_ns=due,
        first_byte_ns=done,
        first_token_ns=done,
        last_token_ns=done,
        done_ns=done,
        n_out=20,
        n_in=50,
        status=[0] * n,
    )


def sealed(path: Path, due: IntArray, done: IntArray, rate: float) -> None:
    """One sealed run of these records."""
    scenario = with_flags(None, kind="server", rate=rate, queries=len(due))
    facts = GeneratorFacts(open_loop=True, planned=len(due), planned_queries=len(due), elapsed_ns=int(due[-1]))
    plan = replace(scenario.build(1), due_ns=due)
    manifest = {
        "schema": "plimsoll.manifest/1",
        "run_id": path.name,
        "t0_wall_ns": 1,
        "t0_monotonic_ns": 0,
        "host": HOST,
        "started_at": "2026-11-21T10:00:00+00:00",
        "plimsoll": "0.1",
        "seed": 1,
        "plan_fingerprint": plan.fingerprint(),
        "workers": 1,
        "target": {"url": "http://127.0.0.1:1", "model": "m"},
    }
    path.mkdir(parents=True)
    whole = Sealed(RunDirectory(path), manifest, scenario.to_mapping(), rows(due, done, plan.payload_ix), facts)
    rundir._write(whole, plan, [])


def search(
    folder: Path,
    rates: Sequence[float] = (30, 60, 90, 110, 125),
    low: float | None = 110,
    high: float | None = 125,
    gpus: int = 2,
) -> Path:
    """A search whose probes are an M/D/1 queue of 8 ms; it holds at ``low`` and fails at ``high``."""
    probes = []
    for number, rate in enumerate(rates, 1):
        name = f"probes/{number:03d}-bracket"
        due, done = md1(rate, 600, number)
        sealed(folder / name, due, done, rate)
        achieved = 600e9 / float(done[-1])
        holds = low is not None and rate <= low
        probes.append(
            ProbePart(
                number=number,
                purpose="bracket",
                load=rate,
                length=1,
                length_ns=int(done[-1]),
                seed=number,
                outcome="PASS" if holds else "FAIL",
                run=name,
                n=600,
                achieved_per_s=rate,
                requests_per_s=achieved,
                unstable=not holds,
            )
        )
    at = next((probe for probe in probes if probe.load == low), None)
    answer = None
    if at is not None:
        answer = AnswerPart(
            run=at.run,
            confirmed=True,
            requests_per_s=at.requests_per_s or 0,
            goodput_per_s=at.requests_per_s,
            good_fraction=0.99,
            output_tokens_per_s=20 * (at.requests_per_s or 0),
            gpus=gpus,
        )
    report = SearchReport(
        name="chat",
        variable="rate",
        outcome="FOUND" if low else "NONE",
        exit_code=0 if low else 1,
        reasons=[] if low else ["the lowest rate fails"],
        objectives=["p99(latency) <= 80ms"],
        answer=answer,
        probes=probes,
        rate_per_s=RangePart(best=None if low is None else (low + (high or low)) / 2, interval=(low, high)),
    )
    rundir.write_json(folder / "search.json", report.document())
    return folder


def sweep(folder: Path, labels: Sequence[str] = ("batch 8",), x: str = "rate") -> Path:
    """A sweep over the rate with one point that holds and one that fails, for each label."""
    series = []
    for label in labels:
        points = []
        for number, rate in enumerate((60.0, 110.0), 1):
            name = f"runs/{label.replace(' ', '-')}-{number:03d}"
            due, done = md1(rate, 600, number)
            sealed(folder / name, due, done, rate)
            points.append(
                SweepPoint(
                    settings={x: rate},
                    x=rate,
                    outcome="PASS" if rate < 100 else "FAIL",
                    offered_per_s=rate,
                    achieved_per_s=rate * 0.99,
                    good_fraction=1.0,
                    runs=[name],
                )
            )
        series.append(SeriesPart(label=label, settings={}, points=points, line=LinePart(low=60.0, high=110.0)))
    report = SweepReport(
        name="grid",
        outcome="FOUND",
        variables={x: [60, 110]},
        x=x,
        objectives=["p99(latency) <= 80ms"],
        series=series,
        exit_code=0,
    )
    rundir.write_json(folder / "sweep.json", report.document())
    return folder
