"""A run cut into parts, judged where its rows are: what is said to be exact is ``plimsoll.slo.judge`` on the whole, bit
for bit, however the rows were dealt.
"""

from __future__ import annotations

import contextlib
import json
import math
import struct
import tracemalloc
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reports.documents.pictures import ENOUGH
from plimsoll.reports.format import formats
from plimsoll.reports.parts.charts import Charts
from plimsoll.reports.report import build as build_whole
from plimsoll.reports.report_of_parts import build as report_of
from plimsoll.reports.sections.failures import FailureKind
from plimsoll.slo.judge import judge
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.parts import asked as order
from plimsoll.slo.parts import course, evidence
from plimsoll.slo.parts.judge_parts import JudgedParts, judge_parts
from plimsoll.slo.parts.part import Part
from plimsoll.slo.parts.wire import Digest, Of, Question, merge
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import Phase, Records, Status, concat, from_columns
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.memory import Memory, independent
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.verdict.counts import shape
from tests.bench.parts import ALLOWED, cell, mm1, rows_of, run_of
from tests.memory_held import memory_held
from tests.property.slo.slo_strategies import build
from tests.property.slo.slo_strategies import rows as drawn_rows

MS = 1_000_000
FACTS = GeneratorFacts(open_loop=True, planned=0, process="poisson", planned_queries=2)
METRICS = ("latency", "ttft", "itl", "tpot", "e2e", "output_tokens", "lag", "error")
PROMISED = (
    "p99(latency) <= 200ms",
    "p50(latency) <= 40ms",
    "p95(ttft) < 60ms",
    "p90(itl) <= 20ms",
    "p5(output_rate) >= 20/s",
    "mean(latency) <= 100ms",
    "max(ttft) <= 1s",
    "ratio(error) <= 5%",
    "rate(ok) >= 10/s",
    "rate(output_tokens) >= 10/s",
)


def made(seed: int, n: int, late: bool = False) -> Records:
    """Streams of several chunks, with failures of several kinds, warm-up, and rows that were never sent."""
    rng = np.random.default_rng(seed)
    due = np.sort(rng.choice(n * 10 * MS, n, replace=False)) + 1
    took = (rng.lognormal(3.5, 0.7, n) * MS).astype(np.int64) + 20
    status = rng.choice([0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 4, 9], n) if seed % 3 else np.zeros(n, np.int64)
    ready = due + (np.where(rng.random(n) < 0.02, 7 * MS, 0) if late else 0)
    sent = np.where(status == Status.UNSENT, -1, ready)
    many = rng.integers(1, 6, n)
    chunks = [np.sort(rng.integers(s + 1, s + t, k)).tolist() for s, t, k in zip(ready, took, many, strict=True)]
    whole = status == 0
    chunks = [one if ok else [] for one, ok in zip(chunks, whole, strict=True)]
    first = np.array([one[0] if one else -1 for one in chunks])
    last = np.array([one[-1] if one else -1 for one in chunks])
    texts = ["timed out", "refused", "HTTP 500", "réfusé"]
    return from_columns(
        n, due_ns=due, ready_ns=np.where(sent == -1, -1, ready), sent_ns=sent,
        first_byte_ns=first, headers_ns=first, first_token_ns=first, first_answer_ns=first, last_token_ns=last,
        done_ns=np.where(status == Status.UNSENT, -1, ready + took), status=status, chunks=chunks,
        phase=np.where(rng.random(n) < 0.05, int(Phase.WARMUP), int(Phase.MEASURE)),
        n_out=np.where(whole, many, -1), n_in=np.where(whole, 7, -1), tokens_from=1,
        errors=[None if ok else texts[i % (1 + seed % 4)] for i, ok in enumerate(whole)],
    )  # fmt: skip


def dealt(records: Records, k: int, seed: int) -> list[Records]:
    """By lot, as agents get a plan's queries; some parts may get none."""
    owner = np.random.default_rng(seed).integers(0, k, len(records))
    return [records.select(np.flatnonzero(owner == part)) for part in range(k)]


def in_parts(parts: Sequence[Records], promises: Promises, facts: GeneratorFacts = FACTS) -> JudgedParts:
    objectives = promises.objectives
    there = [Part(part, facts, objectives) for part in parts]
    return judge_parts(lambda question: [part.answer(question) for part in there], facts, promises)


#: What of the verdict on the generator is of all rows.
EXACT = (
    "outcome", "planned", "sent", "unsent", "offered_per_s", "achieved_per_s", "lag_ns", "generator_lag_ns", "stamp",
    "kernel_share", "unstable", "paced", "pooled",
)  # fmt: skip


@contextmanager
def memory_given() -> Iterator[None]:
    """Every series counts as independent, in parts and as a whole."""

    def none(told: Digest, *_: object) -> Memory:
        return independent(int(told["+bins"][0].sum()))

    with memory_held(), mock.patch.object(evidence, "memory_of", none):
        yield


@pytest.fixture(params=[order.FEW, 3])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are fetched at once, and are divided to the end."""
    monkeypatch.setattr(order, "FEW", request.param)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("seed", "k"), [(0, 1), (1, 4), (2, 4), (3, 7), (4, 40)])
def test_counts_percentiles_bounds_and_ratios_of_parts_are_those_of_the_whole(seed: int, k: int) -> None:
    """With the memory given: that alone is estimated otherwise than from rows. Texts, p values and bounds included."""
    promises = Promises(tuple(map(parse, PROMISED)))
    parts = dealt(made(seed, 300 + 97 * seed), k, seed)
    with memory_given():
        whole, found = judge(concat(parts), FACTS, promises), in_parts(parts, promises)
    assert found.counts == whole.counts
    assert found.throughput == whole.throughput
    for name in ("n", "good_fraction", "goodput_per_s", "span_ns", "attainment"):
        assert getattr(found.goodput, name) == getattr(whole.goodput, name)
    assert found.verdict == whole.verdict
    for name in (*EXACT, "reasons"):
        assert getattr(found.validity, name) == getattr(whole.validity, name), name
    for metric in METRICS:
        ordered = np.sort(measure(catalogue()[metric], concat(parts)).values)
        mine = found.rows.measured(metric, judged=False).ordered
        assert len(mine) == len(ordered), metric
        ranks = np.unique(np.linspace(0, len(ordered) - 1, 40).astype(np.int64))
        assert np.array_equal(np.asarray(mine[ranks]), ordered[ranks]), metric
        limits = np.append(ordered[ranks], [0.0, 1.5, math.inf])
        for side in ("left", "right"):
            assert np.array_equal(mine.searchsorted(limits, side), np.searchsorted(ordered, limits, side)), metric
        lows, counts = found.histogram(metric)
        assert counts.sum() == len(ordered)
        assert np.array_equal(np.searchsorted(ordered, lows[lows > 0]), np.cumsum(counts)[lows > 0] - counts[lows > 0])


@given(rows=drawn_rows, times=st.integers(1, 12), k=st.integers(1, 5), seed=st.integers(0, 99), open_=st.booleans())
def test_whatever_befell_requests_what_parts_say_is_true_of_the_whole(
    rows: list[dict[str, object]], times: int, k: int, seed: int, open_: bool
) -> None:
    """Requests of any fate, due in any order and many at once: those of one moment are in an order by lot, so blocks
    of errors may differ there.
    """
    some = concat([build(rows)] * times)
    some = some.with_columns(query_id=np.arange(len(some)), sample_ix=np.zeros(len(some), np.int64))
    promises = Promises(tuple(map(parse, (*PROMISED, "latency <= 300ms", "ratio(good) >= 50%"))))
    parts, facts = dealt(some, k, seed), FACTS if open_ else replace(FACTS, open_loop=False, process=None)
    with memory_given():
        whole, found = judge(concat(parts), facts, promises), in_parts(parts, promises, facts)
    assert found.counts == whole.counts
    assert found.throughput == whole.throughput
    assert found.goodput.attainment == whole.goodput.attainment
    for name in EXACT:
        assert getattr(found.validity, name) == getattr(whole.validity, name), name
    for mine, theirs in zip(found.verdict.objectives, whole.verdict.objectives, strict=True):
        for name in ("observed", "n", "bad", "failed", "missing", "max_bad_allowed", "observed_ok"):
            mine_, theirs_ = getattr(mine, name), getattr(theirs, name)
            if not (mine.bracket or theirs.bracket):  # the lower end may be the one that is told
                assert mine_ == theirs_ or (math.isnan(mine_) and math.isnan(theirs_)), (mine.text, name)


@pytest.mark.parametrize("sample", [course.SAMPLE, 256])
def test_the_memory_does_not_depend_on_who_measured_what(sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do the bounds: sums of whole numbers add up in any order."""
    monkeypatch.setattr(course, "SAMPLE", sample)
    records = made(3, 2000)
    found = [in_parts(dealt(records, k, k), Promises(tuple(map(parse, PROMISED)))) for k in (1, 4, 40)]
    for metric in ("latency", "itl", "output_rate"):
        assert len({str(one.rows.series(metric).memory) for one in found}) == 1
        assert len({str(one.percentile(metric, "0.9")) for one in found}) == 1
    assert found[0].verdict == found[1].verdict == found[2].verdict


@pytest.mark.parametrize("cut", [False, True])
def test_a_run_that_is_looked_at_in_full_remembers_as_long_as_its_rows_say(cut: bool) -> None:
    """Up to the place of the cells' edges, and twice as many of them; with a rate that rises as well."""
    rng = np.random.default_rng(5)
    gaps, took = mm1(rng, 8000, 0.8)
    records = run_of(gaps * (np.linspace(2, 0.5, 8000) if cut else 1.0), took)
    along = share.course(records, planned=True)
    assert (along.window is not None) == cut
    latency = (records["done_ns"] - records["due_ns"]).astype(np.float64)
    whole, rows = share.series(latency, np.arange(8000), along).memory, rows_of(dealt(records, 4, 1))
    mine = rows.series("latency").memory
    assert (rows.frame.cut is not None) == cut
    assert mine.requests == whole.requests
    assert mine.design == pytest.approx(whole.design, rel=0.15)
    assert mine.doubt == whole.doubt == 1.0


def test_values_of_one_request_that_are_slow_together_count_as_one() -> None:
    rng = np.random.default_rng(6)
    due = np.cumsum(rng.integers(1, 20, 2000)) * MS
    pace = rng.lognormal(2, 1, 2000)
    gaps = (pace[:, None] * rng.uniform(0.9, 1.1, (2000, 20)) * MS).astype(np.int64)
    chunks = (due[:, None] + np.cumsum(gaps, axis=1)).tolist()
    records = from_columns(
        2000, due_ns=due, sent_ns=due, ready_ns=due, done_ns=[one[-1] for one in chunks], chunks=chunks
    )
    whole = measure(catalogue()["itl"], records)
    theirs, mine = share.lay(whole, share.course(records)), rows_of(dealt(records, 5, 2)).series("itl")
    assert theirs.memory.within > 10
    assert mine.memory.within == pytest.approx(theirs.memory.within, rel=0.02)
    bad = share.Beyond(">", 20.0 * MS)
    one, other = mine.beyond(bad), theirs.beyond(bad)
    assert (one.n, one.bad, one.requests) == (other.n, other.bad, other.requests)
    assert one.design == pytest.approx(other.design, rel=0.1)


@pytest.mark.parametrize("seed", range(6))
def test_the_lower_end_of_lateness_is_never_above_that_of_the_whole(seed: int) -> None:
    """Who does not see all rows takes more lateness off, so nothing fails that the whole does not fail."""
    promises = Promises(tuple(map(parse, ("p90(latency) <= 90ms", "p50(ttft) <= 15ms", "mean(latency) <= 30ms"))))
    parts = dealt(made(seed, 700, late=True), 4, seed)
    with memory_given():
        whole, found = judge(concat(parts), FACTS, promises), in_parts(parts, promises)
    for mine, theirs in zip(found.verdict.objectives, whole.verdict.objectives, strict=True):
        assert mine.bracket is not None
        assert theirs.bracket is not None
        assert mine.bracket.upper == theirs.bracket.upper
        assert mine.bracket.lower <= theirs.bracket.lower
        assert mine.bracket.lateness_ns >= theirs.bracket.lateness_ns > 0
        assert not (mine.outcome == "FAIL" and theirs.outcome != "FAIL")


def test_who_was_sent_again_and_what_that_would_change_is_said() -> None:
    records = made(0, 400)
    again = records.with_columns(attempts=np.where(np.arange(400) % 5 == 0, 2, records["attempts"]))
    promises = Promises((parse("ratio(error) <= 5%"), parse("p50(latency) <= 40ms")))
    with memory_given():
        whole, found = judge(again, FACTS, promises), in_parts(dealt(again, 3, 0), promises)
    assert "counted as failed it is FAIL" in whole.verdict.objectives[0].repeats
    assert [one.repeats for one in found.verdict.objectives] == [one.repeats for one in whole.verdict.objectives]


@pytest.mark.parametrize(("seed", "n"), [(0, 900), (1, 37), (2, 900), (4, 1)])
def test_the_timeline_and_the_distributions_of_parts_are_those_of_all_rows(seed: int, n: int) -> None:
    records = made(seed, n, late=True)
    found = in_parts(dealt(records, 4, seed), Promises())
    report = report_of({}, {}, found, FACTS, Promises(), "")
    whole = build_whole({}, {}, records, judge(records, FACTS, Promises())).charts
    mine, theirs = report.charts.timeline, whole.timeline
    assert mine is not None
    assert theirs is not None
    unknown = {"in_flight_max", "output_tokens_per_s", "bands", "lag"}
    assert mine.model_dump(exclude=unknown) == theirs.model_dump(exclude=unknown)
    assert mine.lag.max == theirs.lag.max
    assert sum(mine.due) > 0
    assert mine.in_flight_max == []
    assert report.charts.distributions == {name: whole.distributions[name] for name in report.charts.distributions}
    assert {*whole.distributions} - {*report.charts.distributions} <= {"e2e"}
    for name in ("text", "markdown", "json", "csv"):
        assert formats()[name].render(report)
    assert (b"Requests per second over the run" in formats()["html"].render(report)) == (sum(mine.due) >= ENOUGH)


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_kinds_of_failure_of_parts_are_those_of_all_rows(seed: int) -> None:
    n, found = 900, made(seed, 900)
    texts = [*(f"no answer to {at}" for at in range(7)), "refused"]
    error = np.where(np.arange(n) % 9 == 8, np.arange(n) % 7, 7)
    found = found.with_columns(
        code=500 + np.arange(n) % 2, worker=np.arange(n) % 23, error=np.where(found.ok, -1, error)
    )
    records = Records(found.columns, None, None, texts, found.timings, found.session, found.chunks)
    report = report_of({}, {}, in_parts(dealt(records, 3, seed), Promises()), FACTS, Promises(), "")
    mine, theirs = report.failures, build_whole({}, {}, records, judge(records, FACTS, Promises())).failures
    assert (mine.start_ns, mine.step_ns, mine.other) == (theirs.start_ns, theirs.step_ns, theirs.other)
    assert bool(mine.kinds) == (seed % 3 > 0)

    def comparable(kind: FailureKind) -> FailureKind:
        return kind.model_copy(update={"until_ns": None, "request_ids": [], "texts": 1, "text": shape(kind.text)})

    every = [comparable(kind) for kind in theirs.kinds]
    assert all(comparable(kind) in every for kind in mine.kinds if kind.count > mine.kinds[-1].count)
    assert [kind.count for kind in mine.kinds] == [kind.count for kind in theirs.kinds]
    assert all(kind.texts == 1 for kind in mine.kinds if kind.text == "refused")
    page = formats()["html"].render(report).decode()
    assert "never sent" not in page
    assert ("of all" in page and "refused" in page) == bool(mine.kinds)


def test_a_run_without_a_measured_row_has_no_timeline() -> None:
    none = made(1, 5).select(np.zeros(0, np.int64))
    assert report_of({}, {}, in_parts([none, none], Promises()), FACTS, Promises(), "").charts == Charts()


def test_how_digests_are_merged_on_the_way_changes_nothing() -> None:
    promises = Promises(tuple(map(parse, PROMISED)))
    parts = dealt(made(1, 900), 6, 1)
    there = [Part(part, FACTS, promises.objectives) for part in parts]

    def merged(question: bytes) -> list[bytes]:
        answers = [Digest.from_bytes(part.answer(question)) for part in there]
        return [merge(answers[first : first + 2]).to_bytes() for first in (0, 2, 4)]

    found, flat = judge_parts(merged, FACTS, promises), in_parts(parts, promises)
    assert found.verdict == flat.verdict
    assert found.validity == flat.validity


def test_a_run_of_nothing_and_parts_of_nothing_are_judged_like_the_whole() -> None:
    promises = Promises(tuple(map(parse, PROMISED)))
    none = made(1, 5).select(np.zeros(0, np.int64))
    for parts in ([none, none], [none, made(4, 40), none]):
        with memory_given():
            whole, found = judge(concat(parts), FACTS, promises), in_parts(parts, promises)
        assert str(found.verdict) == str(whole.verdict)
        assert found.counts == whole.counts


def test_errors_of_one_moment_are_dealt_to_blocks_by_lot() -> None:
    """All of an offline run is due at once: its errors are in an order by lot, whichever part has them."""
    n = 3000
    bad = np.arange(n) < 300
    run = from_columns(
        n, due_ns=0, ready_ns=0, sent_ns=0, done_ns=5 * MS + np.arange(n), attempts=1, status=np.where(bad, 1, 0)
    )
    parts = [run.select(np.flatnonzero(bad)), run.select(np.flatnonzero(~bad))]
    found = in_parts(parts, Promises((parse("ratio(error) <= 12%"),)), replace(FACTS, open_loop=False, process=None))
    blocks = found.rows.blocks("error")
    assert blocks.bad.sum() == 300
    assert blocks.size.tolist() == [100] * 30
    assert 1 < blocks.bad.std() < 5, "as of a draw of 100 of 3,000 without replacement"


def test_what_needs_rows_is_refused_with_all_its_reasons() -> None:
    promises = Promises((parse("ratio(frame_missed) <= 1%"), parse("p50(query_latency) <= 1s")))
    with pytest.raises(ValueError, match=r"frame_missed.*query_latency.*Bring the rows home"):
        in_parts([made(1, 40)], promises)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for read in (Digest.from_bytes, Question.from_bytes):
        with pytest.raises(ValueError, match="use one version"):
            read(b"PLd1" + data)


@given(st.binary(min_size=1, max_size=6), st.integers(0, 10_000))
def test_a_damaged_message_is_refused_or_read_and_nothing_else(damage: bytes, at: int) -> None:
    whole = Question("below", Of("itl"), {"keys": np.arange(30) * 1000, "limit": np.array([1.5])}).to_bytes()
    body = bytearray(zlib.decompress(whole[16:]))
    body[at % len(body) : at % len(body) + len(damage)] = damage
    (heading,) = struct.unpack("<I", whole[12:16])
    message = whole[:4] + struct.pack("<QI", len(body), heading) + zlib.compress(bytes(body))
    for read in (Digest.from_bytes, Question.from_bytes):
        with contextlib.suppress(ValueError):
            read(message)


@pytest.mark.parametrize(
    ("heading", "body"),
    [
        ([{}, [["&values", 4, 0, [9 << 20]]]], bytes(9 << 20)),  # a byte each: they would be 72 MB
        ([{}, [["+x", 1, None, [-1]]]], b""),
        ([{}, [["+x", 4, None, [0]]] * 60_000], b""),
        ([{}, [[]] * 400_000], b""),
    ],
)
def test_a_small_message_that_would_fill_memory_is_refused(heading: Any, body: bytes) -> None:
    head = json.dumps(heading).encode()
    data = b"PLd1" + struct.pack("<QI", len(head) + len(body), len(head)) + zlib.compress(head + body)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="no message of a part"):
            Digest.from_bytes(data)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "asked",
    [
        Question("below", Of("latency")),
        Question("crowd", Of("latency")),
        Question("late", Of(), {"edges": np.array([1 << 40] * 3)}),
        Question("values", Of("latency"), text="x"),
        Question("inside", Of("no_such_metric")),
    ],
)
def test_a_question_that_lacks_something_is_a_value_error_whatever_it_lacks(asked: Question) -> None:
    part = Part(from_columns(5, done_ns=range(5)), FACTS, [parse(text) for text in PROMISED])
    with pytest.raises(ValueError, match=r"can't be answered so|nobody here answers"):
        part.answer(asked.to_bytes())


@pytest.mark.parametrize("extent", [[math.inf], [math.nan], ["x"], 7])
def test_a_question_of_an_extent_that_is_none_is_refused(extent: Any) -> None:
    head = json.dumps([{"kind": "n", "of": ["x", "", False, False, extent], "text": ""}, []]).encode()
    with pytest.raises(ValueError, match="no question"):
        Question.from_bytes(b"PLd1" + struct.pack("<QI", len(head), len(head)) + zlib.compress(head))


def test_questions_and_digests_survive_the_wire() -> None:
    some = {"+n": np.array([1 << 40]), "&values": np.array([0.1, math.inf]), "#cells": np.array([[1, 9], [2, 300]])}
    digest = Digest.from_bytes(Digest(some).to_bytes())
    assert {name: array.tolist() for name, array in digest.arrays.items()} == {k: v.tolist() for k, v in some.items()}
    keys = np.array([-(1 << 63), -5, (1 << 63) - 1])
    asked = Question("below", Of("itl", "times", True, False, (5, 60, 2)), {"keys": keys}, "<")
    back = Question.from_bytes(asked.to_bytes())
    assert (back.kind, back.of, back.text, back.arrays["keys"].tolist()) == ("below", asked.of, "<", keys.tolist())
    rising = np.arange(10_000) * 3 + 10**15
    assert len(Digest({"&due": rising}).to_bytes()) < 200
    assert np.array_equal(Digest.from_bytes(Digest({"&due": rising}).to_bytes())["&due"], rising)
    twice = merge([Digest(some), Digest(some)])
    assert twice["#cells"].tolist() == [[1, 9], [4, 600]]
    with pytest.raises(ValueError, match="nobody here answers"):
        Part(made(1, 9), FACTS).answer(Question("rows of all").to_bytes())
    with pytest.raises(ValueError, match="began anew"):
        Part(made(1, 9), FACTS).answer(Question("tally", Of(end="times")).to_bytes())


@pytest.mark.parametrize("name", ["M/M/1 0.7", "AR(1) 0.95", "i.i.d."])
def test_a_verdict_by_sums_of_parts_keeps_its_level(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of docs/evidence/statistics.md, small: windows hold an eighth of the requests."""
    monkeypatch.setattr(course, "SAMPLE", 3000 // 8)
    runs = 60
    found, ratio = cell(name, 3000, 3, runs)
    assert np.median(ratio) == pytest.approx(1.0, abs=0.1)
    most = runs * (0.05 + 3 * math.sqrt(0.05 * 0.95 / runs))
    for allowed in ALLOWED:
        for outcome in ("PASS", "FAIL"):
            assert found[allowed, "parts", outcome] <= most, (allowed, outcome)
