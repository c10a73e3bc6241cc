"""Requests dropped on purpose: a phase of their own, in no number of the endpoint's and in all of the generator's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from plimsoll.reports.parts.judgement import cancellation_notes, cancellation_part
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import goodput, throughput
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records import cancelled, tables
from plimsoll.slo.records.cancelled import CANCEL, chosen, endings, marked, planned
from plimsoll.slo.records.records import Phase, Records, Status, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess
from plimsoll.slo.verdict.counts import count
from plimsoll.slo.verdict.verdict import judge

MS = 1_000_000
N = 1000


def run(share: int = 4, status: Status = Status.CANCELLED, **columns: Any) -> Records:
    """A request each 10 ms that takes 20 ms; of every ``share`` one was to be cancelled after 10."""
    due = np.arange(N) * 10 * MS
    picked = np.arange(N) % share == 0
    given = {
        "due_ns": due, "ready_ns": due, "sent_ns": due, "first_byte_ns": due + 5 * MS, "headers_ns": due + 5 * MS,
        "done_ns": due + np.where(picked, 10, 20) * MS, "status": np.where(picked, int(status), 0), "n_out": 7,
    }  # fmt: skip
    return marked(from_columns(N, **(given | columns)), picked)


def test_chosen_rows_are_in_no_metric_ratio_or_rate() -> None:
    some = run()
    assert (len(some), len(some.measured()), int(chosen(some).sum())) == (N, 750, 250)
    for name in ("latency", "error", "ttfb"):
        assert measure(catalogue()[name], some).n == 750
    assert measure(catalogue()["latency"], some).values.max() == 20 * MS
    assert (goodput(some, []).n, goodput(some, []).good_fraction) == (750, 1.0)
    assert throughput(some).output_tokens == 750 * 7
    facts = GeneratorFacts(open_loop=True, planned=N, planned_queries=N, process="constant", elapsed_ns=10**15)
    promises = [parse("ratio(error) <= 1%"), parse("p99(latency) <= 30ms")]
    seen = assess(some, facts, promises)
    assert (seen.outcome, seen.planned, seen.sent, seen.unsent) == ("VALID", N, N, 0), seen.reasons
    judged = judge(some, promises, seen)
    assert [(one.outcome, one.n) for one in judged.objectives] == [("PASS", 750), ("PASS", 750)]


def test_one_that_was_over_before_its_time_is_left_out_too_and_counted() -> None:
    """Else the quick ones of the chosen would count and the slow ones not: percentiles would be too good."""
    for status in (Status.OK, Status.HTTP):
        some = run(status=status)
        assert measure(catalogue()["latency"], some).n == 750
        assert endings(some) == {status.name: 250}
    mixed = np.where(np.arange(N) % 4 == 0, int(Status.CANCELLED), 0)
    mixed[:8:4] = [int(Status.OK), int(Status.TIMEOUT)]
    some = run(status=Status.OK)
    columns: dict[str, Any] = {name: some[name] for name in ("due_ns", "ready_ns", "sent_ns", "done_ns")}
    some = marked(from_columns(N, **columns, status=mixed), np.arange(N) % 4 == 0)
    found = cancelled.cancelled(some)
    part = cancellation_part(found)
    assert part is not None
    assert part.model_dump() == {"chosen": 250, "by_status": {"OK": 1, "TIMEOUT": 1, "CANCELLED": 248}}
    (recorded,) = cancellation_notes(found, recorded=True)
    assert "given up when they were recorded" in recorded
    assert "no random part" in recorded
    (text,) = cancellation_notes(found)
    assert text.startswith("250 of 1000 requests were chosen at random")
    assert "248 were, 2 were over before their time (1 OK, 1 TIMEOUT)" in text
    assert cancelled.cancelled(from_columns(3)) is None
    assert (cancellation_part(None), cancellation_notes(None)) == (None, [])


def test_a_request_given_up_for_another_reason_is_the_failure_it_was() -> None:
    some = from_columns(4, due_ns=0, done_ns=5, status=[0, 0, 0, int(Status.CANCELLED)])
    assert not chosen(some).any()
    assert measure(catalogue()["latency"], some).values.tolist()[-1] == float("inf")
    assert measure(catalogue()["error"], some).values.sum() == 1


def test_a_warm_up_row_is_never_chosen_and_what_the_generator_sent_is_whole() -> None:
    phase = np.zeros(N, int)
    phase[:10] = Phase.WARMUP
    some = run(phase=phase)
    assert chosen(some)[:10].sum() == 0
    assert len(planned(some)) == N - 10
    assert planned(some).in_measure.all()
    assert count(some).warmup == 10
    assert count(some).by_status == {"OK": len(some.measured())}


def test_the_phase_is_kept_on_disk(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    some = run()
    requests, chunks = tables.to_tables(some, [str(i) for i in range(N)])
    pq.write_table(requests, tmp_path / "requests.parquet")
    pq.write_table(chunks, tmp_path / "chunks.parquet")
    assert set(requests.column("phase").to_pylist()) == {"measure", cancelled.NAME}
    again = tables.load(tmp_path)
    assert (again["phase"] == some["phase"]).all()
    assert (again["phase"] == CANCEL).sum() == 250
