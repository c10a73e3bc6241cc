"""Latencies of a replay beside those that were recorded: the same requests on both sides, whole and by the hour."""

from __future__ import annotations

from typing import Any

import numpy as np
from jsonschema import Draft202012Validator
from made_reports import MANIFEST, MS, SCENARIO, facts, records

from plimsoll.reports.documents.run import document
from plimsoll.reports.report import Report, build, json_schema
from plimsoll.slo.judge import judge
from plimsoll.slo.records.records import Phase, Records

HOUR = 3_600_000_000_000


def reported(made: Records, **columns: Any) -> Report:
    n = len(made)
    plain = {"at_ns": np.arange(n), "latency_ns": np.full(n, -1), "ttft_ns": np.full(n, -1), "status": np.full(n, -1)}
    known = {"query_id": made["query_id"], "sample_ix": made["sample_ix"], **plain, **columns}
    return build(MANIFEST, SCENARIO, made, judge(made, facts(made)), known)


def test_both_sides_are_of_the_requests_that_somebody_timed() -> None:
    made = records(200)
    took = np.where(np.arange(200) < 50, (np.arange(200) + 1) * MS, -1)
    report = reported(made, latency_ns=took)
    assert report.recorded is not None
    both = report.recorded.whole.latency
    assert both is not None
    assert report.recorded.whole.ttft is None
    assert (both.n, both.recorded.p50, both.recorded.p90) == (50, 25 * MS, 45 * MS)
    now = np.sort((made["done_ns"] - made["due_ns"])[:50])
    assert (both.replayed.p50, both.replayed.p99) == (now[24], now[49])
    Draft202012Validator(json_schema()).validate(report.document())


def test_a_failure_then_and_now_took_for_ever() -> None:
    made = records(100, fail_every=4)
    status = np.where(np.arange(100) % 2, 0, 3)
    report = reported(made, latency_ns=np.full(100, 7 * MS), status=status)
    assert report.recorded is not None
    both = report.recorded.whole.latency
    assert both is not None
    assert (both.n, both.recorded.p50, both.recorded.p90, both.replayed.p99) == (100, 7 * MS, None, None)


def test_hours_are_those_of_the_recording() -> None:
    made = records(90)
    hour = np.repeat([0, 1, 5], 30)
    report = reported(made, at_ns=hour * HOUR, latency_ns=(hour + 1) * MS, ttft_ns=hour + 1)
    assert report.recorded is not None
    assert [(one.hour, one.latency and one.latency.recorded.p50) for one in report.recorded.hours] == [
        (0, MS), (1, 2 * MS), (5, 6 * MS),
    ]  # fmt: skip
    section = next(block for block in document(report).blocks if getattr(block, "title", "") == "As recorded, and now")
    rows = section.blocks[0].blocks[0].rows  # type: ignore[union-attr]
    assert [row.cells[:3] for row in rows] == [
        ["all", "90", "2.00 ms"], ["0", "30", "1.00 ms"], ["1", "30", "2.00 ms"], ["5", "30", "6.00 ms"],
    ]  # fmt: skip


def test_rows_that_were_not_recorded_are_left_out_and_a_run_of_none_has_no_such_part() -> None:
    made = records(40)
    known = {"query_id": np.arange(100, 140), "latency_ns": np.full(40, MS)}
    assert reported(made, **known).recorded is None
    half = reported(made, query_id=np.arange(40) + 20, latency_ns=np.full(40, MS)).recorded
    assert half is not None
    assert half.whole.latency is not None
    assert half.whole.latency.n == 20
    assert "recorded" not in build(MANIFEST, SCENARIO, made, judge(made, facts(made))).document()


def test_the_warm_up_which_counts_its_queries_from_0_again_has_no_part_in_it() -> None:
    made = records(60)
    phase = np.where(np.arange(60) < 15, int(Phase.WARMUP), made["phase"])
    found = reported(made.with_columns(phase=phase), latency_ns=np.full(60, MS)).recorded
    assert found is not None
    assert found.whole.latency is not None
    assert found.whole.latency.n == 45
