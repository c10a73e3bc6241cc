"""Drill-downs: the heat map, prompt lengths, slowest requests and kinds of failure keep every request and stay
bounded. The timeline against slow, obvious re-computations.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import MANIFEST, MS, S, built, facts, records, report

from plimsoll.reports.format import formats
from plimsoll.reports.parts import charts
from plimsoll.reports.parts.charts import (
    MAX_BINS,
    MAX_COLUMNS,
    MAX_POINTS,
    MAX_ROWS,
    ByPrompt,
    Heatmap,
    by_prompt,
    grouped,
    heatmap,
    prompt_lengths,
    timeline,
)
from plimsoll.reports.parts.parts import MAX_BUCKETS
from plimsoll.reports.sections.failures import MAX_KINDS, MAX_STEPS, Failures, failures_part
from plimsoll.reports.sections.slowest import MAX_SLOWEST, slowest_part
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Phase, Records, Status, from_columns
from plimsoll.slo.records.trace_ids import TraceIds
from plimsoll.slo.verdict.counts import shape


def mapped(rows: Records, name: str = "ttft") -> Heatmap | None:
    found = measure(catalogue()[name], rows)
    drawn = timeline(rows, {})
    assert drawn is not None
    return heatmap(name, found.values, rows["due_ns"][found.row], "ns", drawn)


def grown(rows: Records, name: str = "ttft") -> ByPrompt | None:
    found = measure(catalogue()[name], rows)
    return by_prompt(name, found.values, found.row, "ns", rows)


def changed(rows: Records, **columns: Any) -> Records:
    full = dict(rows.columns)
    for name, values in columns.items():
        full[name] = np.broadcast_to(np.asarray(values, full[name].dtype), (len(rows),)).copy()
    return replace(rows, columns=full)


# -- heat map -------------------------------------------------------------------------------------------------


@given(st.integers(1, 400), st.integers(0, 7), st.sampled_from([0.5, 50.0, 5000.0]))
def test_every_request_is_in_exactly_one_cell_of_a_bounded_map(n: int, fail_every: int, rate: float) -> None:
    rows = records(n, fail_every=fail_every, rate=rate)
    found = mapped(rows)
    if found is None:
        assert not rows.ok.any()
        return
    assert len(found.counts) == len(found.edges) - 1 <= MAX_ROWS
    assert len(found.failed) == len(found.p50) == len(found.p99) <= MAX_COLUMNS
    assert sum(map(sum, found.counts)) == rows.ok.sum()
    assert sum(found.failed) == (~rows.ok).sum()
    assert found.n == n
    assert found.edges == sorted(found.edges)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.integers(1, 36))
def test_a_value_is_in_the_row_whose_edges_it_lies_between(values: list[int], number_of: int) -> None:
    given = np.array(values, np.float64)
    edges = np.geomspace(given.min(), given.max() * 1.1, number_of + 1)
    near = np.concatenate([given, edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf)])
    wanted = np.clip(np.searchsorted(edges, near, side="right") - 1, 0, number_of - 1)
    assert charts._rows(near, edges).tolist() == wanted.tolist()


def test_a_column_counts_what_was_due_in_it_and_its_lines_are_exact() -> None:
    rows = records(2000, fail_every=90)
    found = mapped(rows)
    assert found is not None
    ttft = np.where(rows.ok, rows["first_token_ns"] - rows["due_ns"], np.inf)
    column = np.minimum(rows["due_ns"] // found.column_ns, len(found.failed) - 1)
    totals = [sum(cells) for cells in zip(*found.counts, found.failed, strict=True)]
    assert totals == np.bincount(column, minlength=len(found.failed)).tolist()
    p99 = grouped(ttft, column, len(found.failed), ("0.99",))[0]
    known = [None if not np.isfinite(value) else round(value) for value in p99.tolist()]
    assert found.p99 == known
    assert None in known


def test_slower_requests_move_up_the_map_and_failures_to_its_top_row() -> None:
    slow, lost = mapped(records(2000)), mapped(records(2000, fail_every=2))
    assert slow is not None
    assert lost is not None
    busy = [sum(cells[i] for cells in slow.counts[len(slow.counts) // 3 :]) for i in range(len(slow.failed))]
    middle = int(len(busy) * 0.62)  # the stretch that is slower
    assert busy[middle] > 3 * busy[2]
    assert sum(lost.failed) == 1000


def test_a_map_of_nothing_finite_is_none_and_of_one_value_has_room() -> None:
    assert mapped(records(50, fail_every=1)) is None
    one = mapped(records(1))
    assert one is not None
    assert one.edges[0] < one.edges[-1]


# -- prompt lengths -------------------------------------------------------------------------------------------


def prompts(n: int = 3000, fail_every: int = 0) -> Records:
    n_in = (16 * 2 ** (8 * np.mod(np.arange(1, n + 1) * 0.6180339887498949, 1.0))).astype(np.int64)
    rows = records(n, fail_every=fail_every)
    first = np.where(rows.ok, rows["due_ns"] + 20 * MS + n_in * 100_000, -1)
    return changed(rows, n_in=n_in, payload_ix=np.arange(n) % 100, first_token_ns=first)


def test_bins_hold_every_request_once_and_rise_with_the_length() -> None:
    found = grown(prompts())
    assert found is not None
    assert sum(part.n for part in found.bins) == found.n == 3000
    assert len(found.bins) <= MAX_BINS
    assert all(a.high < b.low for a, b in zip(found.bins, found.bins[1:], strict=False))
    middles = [part.p50 for part in found.bins if part.p50 is not None]
    assert middles == sorted(middles)
    assert len(middles) == len(found.bins)


def test_a_failure_takes_the_length_of_a_success_with_its_payload_and_ranks_as_infinite() -> None:
    lengths = np.repeat([100, 1000], 200)
    payload = np.repeat([0, 1], 200)
    status = np.where(np.arange(400) % 4 == 0, Status.HTTP, Status.OK)
    due = np.arange(400) * MS
    rows = from_columns(
        400,
        due_ns=due,
        first_token_ns=np.where(status == Status.OK, due + lengths * 1000, -1),
        done_ns=due + 5 * MS,
        n_in=np.where(status == Status.OK, lengths, 7),  # an estimate in other tokens
        payload_ix=payload,
        status=status,
    )
    assert prompt_lengths(rows).tolist() == lengths.tolist()
    found = grown(rows)
    assert found is not None
    assert [(part.n, part.failed, part.p50, part.p90) for part in (found.bins[0], found.bins[-1])] == [
        (200, 50, 100_000, None),
        (200, 50, 1_000_000, None),
    ]
    nobody = grown(changed(rows, payload_ix=-1))
    assert nobody is not None
    assert nobody.unknown == 100


def test_points_are_few_the_same_each_time_and_hold_the_slowest() -> None:
    rows = prompts(5000, fail_every=9)
    found = grown(rows)
    assert found is not None
    assert found == grown(rows)
    assert 100 < len(found.points) <= MAX_POINTS
    worst = int((rows["first_token_ns"] - rows["due_ns"])[rows.ok].max())
    assert worst in [value for _, value in found.points]


@pytest.mark.parametrize("n_in", [-1, 0, 128], ids=["unknown", "empty", "all alike"])
def test_lengths_that_say_nothing_make_no_chart(n_in: int) -> None:
    assert grown(changed(records(500), n_in=n_in)) is None


# -- slowest --------------------------------------------------------------------------------------------------


def test_the_slowest_are_the_slowest_with_ids_and_stamps_since_due() -> None:
    rows = records(2000, warmup=300, fail_every=70)
    found = slowest_part(rows, "run7")
    took = np.where(rows.ok & rows.in_measure, rows["done_ns"] - rows["due_ns"], -1)
    order = np.lexsort((np.arange(2000), -took))[:MAX_SLOWEST]
    assert [request.query_id for request in found.latency] == order.tolist()
    assert [request.value_ns for request in found.latency] == took[order].tolist()
    first = found.latency[0]
    assert first.request_id == f"run7-{order[0]}-0"
    assert first.stages_ns.done == first.value_ns
    assert first.stages_ns.sent == rows["sent_ns"][order[0]] - rows["due_ns"][order[0]]
    assert found.failed == (rows.in_measure & ~rows.ok).sum()


def test_ties_are_settled_by_order_and_what_has_no_token_is_not_ranked_by_it() -> None:
    due = np.arange(40) * MS
    rows = from_columns(40, due_ns=due, sent_ns=due, done_ns=due + 9 * MS)
    found = slowest_part(rows, "r")
    assert [request.query_id for request in found.latency] == list(range(10))
    assert found.ttft == []
    assert found.latency[0].stages_ns.first_token is None


def test_a_run_that_sends_no_ids_says_so() -> None:
    scenario = {"target": {"options": {"request_id": False}}}
    assert not report(records(50), scenario=scenario).slowest.ids_sent
    assert report(records(50)).slowest.ids_sent


def test_the_slowest_and_the_failed_name_their_traces_and_the_page_links_them() -> None:
    rows, said = records(2000, warmup=300, fail_every=70), {**MANIFEST, "run_id": "run7", "traceparent": 0.5}
    scenario = {"target": {"options": {"trace_url": "http://jaeger/trace/{trace_id}"}}}
    found = built(said, scenario, rows, facts(rows), [])
    ids = TraceIds.of("run7", 0.5)
    names = dict(zip(tables.request_ids("run7", rows).to_pylist(), ids.texts(rows), strict=True))
    for request in (*found.slowest.latency, *found.slowest.ttft):
        assert request.trace_id == names[request.request_id]
        assert request.sampled == ids.sampled(request.trace_id)
    assert {request.sampled for request in found.slowest.latency} == {True, False}
    for kind in found.failures.kinds:
        assert kind.trace_ids == [names[one] for one in kind.request_ids]
    page = formats()["html"].render(found).decode()
    for request in found.slowest.latency:
        sampled = "sampled" if request.sampled else "not sampled"
        assert f'<a href="http://jaeger/trace/{request.trace_id}">{sampled}</a>' in page
    none = built(MANIFEST, scenario, rows, facts(rows), [])
    assert "jaeger" not in formats()["html"].render(none).decode()
    assert "trace" not in str(none.document()["slowest"])


# -- failures -------------------------------------------------------------------------------------------------


def failed(texts: list[str], **columns: Any) -> Records:
    n = len(texts)
    due = np.arange(n) * MS
    return from_columns(
        n,
        **{"due_ns": due, "sent_ns": due + 10, "done_ns": due + 2 * MS, "status": Status.HTTP, "worker": 0} | columns,
        errors=texts,
    )


def test_texts_that_differ_in_numbers_are_one_kind_and_codes_are_not() -> None:
    texts = [f"request 8a41f3c09b{i:02d} gave up after {i}.5 s" for i in range(20)] + ["no such model"] * 3
    found = failures_part(failed(texts, code=np.where(np.arange(23) < 10, 500, 404)), "r")
    assert [(kind.code, kind.count, kind.texts) for kind in found.kinds] == [(404, 10, 10), (500, 10, 10), (404, 3, 1)]
    assert found.kinds[2].text == "no such model"
    assert found.kinds[2].request_ids == ["r-20-0", "r-21-0", "r-22-0"]


def test_a_shape_keeps_words_and_drops_what_varies() -> None:
    assert shape("session 4f9d1c77-e0aa timed out after 30.2 s") == "session # timed out after #.# s"
    assert shape("decade of facade") == "decade of facade"  # letters alone are a word, not a number


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from("abc"), st.integers(-5, 50)), min_size=1, max_size=60))
def test_every_failure_is_in_one_kind_or_in_other(drawn: list[tuple[int, str, int]]) -> None:
    n = len(drawn)
    due = np.arange(n) * MS
    rows = from_columns(
        n,
        due_ns=due,
        sent_ns=due,
        done_ns=[-1 if wait < 0 else int(at) + wait * MS for (_, _, wait), at in zip(drawn, due, strict=True)],
        status=[status for status, _, _ in drawn],
        errors=[f"text {text}" for _, text, _ in drawn],
    )
    found = failures_part(rows, "r")
    assert sum(kind.count for kind in found.kinds) + found.other == n
    assert len(found.kinds) <= MAX_KINDS
    for kind in found.kinds:
        assert sum(kind.steps) == kind.count
        assert len(kind.steps) == MAX_STEPS
        assert kind.first_ns <= kind.last_ns
        assert 1 <= len(kind.request_ids) <= 3
    assert [kind.count for kind in found.kinds] == sorted((kind.count for kind in found.kinds), reverse=True)


def test_a_kind_says_when_from_where_and_after_how_long() -> None:
    rows = failed(["cut"] * 5, worker=[0, 1, 1, 3, 3], first_token_ns=[-1, -1, 5 * MS, -1, 9 * MS])
    kind = failures_part(rows, "r").kinds[0]
    assert (kind.workers, kind.n_workers, kind.answered) == ([0, 1, 3], 3, 2)
    assert (kind.first_ns, kind.last_ns) == (2 * MS, 6 * MS)
    assert kind.until_ns is not None
    assert (kind.until_ns.min, kind.until_ns.p50, kind.until_ns.max) == (2 * MS, 2 * MS, 2 * MS)


def test_what_was_never_sent_failed_when_it_was_due_and_took_no_time() -> None:
    kind = failures_part(failed(["not sent"] * 3, sent_ns=-1, done_ns=-1, status=Status.UNSENT), "r").kinds[0]
    assert kind.until_ns is None
    assert (kind.first_ns, kind.last_ns) == (0, 2 * MS)


def test_a_run_without_failures_has_none() -> None:
    assert failures_part(records(100), "r") == Failures()


# -- size -----------------------------------------------------------------------------------------------------


def test_a_million_requests_are_drilled_into_in_seconds() -> None:
    n = 1_000_000
    rng = np.random.default_rng(1)
    due = np.arange(n) * 200_000
    first = due + rng.gamma(20, MS, n).astype(np.int64)
    status = np.where(rng.random(n) < 0.01, Status.HTTP, Status.OK)
    rows = from_columns(
        n, due_ns=due, ready_ns=due, sent_ns=due, first_token_ns=first, done_ns=first + S, status=status,
        n_in=rng.integers(10, 8000, n), payload_ix=np.arange(n) % 5000,
    )  # fmt: skip
    found = measure(catalogue()["ttft"], rows)
    drawn = timeline(rows, {})
    assert drawn is not None
    begun = time.process_time()
    assert heatmap("ttft", found.values, rows["due_ns"][found.row], "ns", drawn) is not None
    assert by_prompt("ttft", found.values, found.row, "ns", rows) is not None
    slowest_part(rows, "r")
    failures_part(rows, "r")
    assert time.process_time() - begun < 15


# -- the timeline ---------------------------------------------------------------------------------------------------

spans = st.lists(st.tuples(st.integers(0, 20 * S), st.integers(1, 5 * S)), min_size=1, max_size=40)


def _requests(drawn: list[tuple[int, int]]) -> Records:
    sent = np.array([a for a, _ in drawn])
    return from_columns(due_ns=sent, ready_ns=sent, sent_ns=sent, done_ns=sent + np.array([d for _, d in drawn]))


def _bounds(start: int, width: int, end: int, n: int) -> list[tuple[int, int]]:
    return [(start + i * width, end if i == n - 1 else start + (i + 1) * width) for i in range(n)]


@given(spans)
def test_in_flight_agrees_with_overlap_sums_and_a_direct_count(drawn: list[tuple[int, int]]) -> None:
    made = timeline(_requests(drawn), {})
    assert made is not None
    moments = sorted({a for a, _ in drawn})
    for index, (low, high) in enumerate(_bounds(made.start_ns, made.bucket_ns, made.end_ns, len(made.due))):
        area = sum(max(0, min(a + d, high) - max(a, low)) for a, d in drawn)
        assert made.in_flight_mean[index] == pytest.approx(area / (high - low), rel=1e-5, abs=1e-9)
        # The level only rises when a request is sent, so its peak is at a send or at the bucket's begin.
        points = [low, *(t for t in moments if low <= t < high or (t == high == made.end_ns))]
        levels = [sum(a <= t < a + d for a, d in drawn) for t in points]
        assert made.in_flight_max[index] == max(levels)


@given(spans)
def test_rates_times_widths_give_back_every_request(drawn: list[tuple[int, int]]) -> None:
    made = timeline(_requests(drawn), {})
    assert made is not None
    assert 1 <= len(made.due) <= MAX_BUCKETS
    widths = [(high - low) / S for low, high in _bounds(made.start_ns, made.bucket_ns, made.end_ns, len(made.due))]
    for rates in (made.planned_per_s, made.sent_per_s, made.completed_per_s):
        assert sum(r * w for r, w in zip(rates, widths, strict=True)) == pytest.approx(len(drawn), rel=1e-4)
    assert sum(made.due) == len(drawn)


def test_no_token_is_lost_between_chunks_and_buckets() -> None:
    made = records(300)
    line = timeline(made, {})
    assert line is not None
    assert line.output_tokens_per_s is not None
    bounds = _bounds(line.start_ns, line.bucket_ns, line.end_ns, len(line.due))
    total = sum(r * (high - low) / S for r, (low, high) in zip(line.output_tokens_per_s, bounds, strict=True))
    assert total == pytest.approx(int(made["n_out"].sum()), rel=1e-4)


def test_tokens_of_an_answer_in_one_piece_count_where_it_ended() -> None:
    whole = from_columns(due_ns=[0, 0], sent_ns=[0, 0], done_ns=[100 * MS, 10 * S], n_out=[7, 0])
    line = timeline(whole, {})
    assert line is not None
    assert line.output_tokens_per_s is not None
    assert line.output_tokens_per_s[0] * line.bucket_ns / S == pytest.approx(7)
    assert sum(line.output_tokens_per_s[1:]) == 0


def test_a_run_without_tokens_has_no_token_rate() -> None:
    line = timeline(records(50, tokens=False), {})
    assert line is not None
    assert line.output_tokens_per_s is None


def test_warm_up_is_no_part_of_the_timeline() -> None:
    made = records(100, warmup=40)
    line = timeline(made, {})
    assert line is not None
    assert sum(line.due) == 60
    assert timeline(made.select(made["phase"] == Phase.WARMUP), {}) is None


def test_unfinished_requests_are_errors_at_the_end_they_had_and_unsent_ones_are_no_events() -> None:
    rows = from_columns(
        due_ns=[0, 0, 0],
        ready_ns=[0, -1, 0],
        sent_ns=[0, -1, 0],
        done_ns=[10 * S, -1, -1],
        status=[Status.OK, Status.UNSENT, Status.UNFINISHED],
    )
    line = timeline(rows, {})
    assert line is not None
    width = line.end_ns - line.start_ns - line.bucket_ns * (len(line.due) - 1)
    assert line.errors_per_s[-1] * width / S == pytest.approx(1)
    assert line.in_flight_max[0] == 2
