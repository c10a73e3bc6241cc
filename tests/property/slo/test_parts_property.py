"""A run cut into parts, judged where its rows are: what is said to be exact is ``plimsoll.slo.judge`` on the whole, bit
for bit, however the rows were dealt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.judge import judge
from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.parts import asked as order
from plimsoll.slo.parts.judging import JudgedParts, judge_parts
from plimsoll.slo.parts.part import Part
from plimsoll.slo.parts.wire import Digest, Of, Question, merge
from plimsoll.slo.promises import Promises
from plimsoll.slo.records.records import Phase, Records, Status, concat, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts
from tests.property.slo.slo_strategies import build
from tests.property.slo.slo_strategies import rows as drawn_rows

MS = 1_000_000
FACTS = GeneratorFacts(open_loop=True, planned=0, process="poisson", planned_queries=2)
METRICS = ("latency", "ttft", "itl", "tpot", "e2e", "output_tokens", "error")
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
    """Streams of several chunks from a queue, with failures of several kinds, warm-up, and rows that were never sent."""
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
    there = [Part(part, replace(facts, planned=len(part)), objectives) for part in parts]
    return judge_parts(lambda question: [part.answer(question) for part in there], facts, promises)


@pytest.fixture(params=[order.FEW, 3])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges are fetched at once, and are divided to the end."""
    monkeypatch.setattr(order, "FEW", request.param)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("k", [1, 4, 40])
def test_counts_percentiles_and_ratios_of_parts_are_those_of_the_whole(seed: int, k: int) -> None:
    promises = Promises(tuple(map(parse, PROMISED)))
    parts = dealt(made(seed, 300 + 97 * seed), k, seed)
    whole, found = judge(concat(parts), FACTS, promises), in_parts(parts, promises)
    assert found.counts == whole.counts
    assert found.throughput == whole.throughput
    for name in ("n", "good_fraction", "goodput_per_s", "span_ns", "attainment"):
        assert getattr(found.goodput, name) == getattr(whole.goodput, name)
    for mine, theirs in zip(found.verdict.objectives, whole.verdict.objectives, strict=True):
        for name in ("objective", "observed", "n", "bad", "failed", "missing", "max_bad_allowed", "observed_ok"):
            assert getattr(mine, name) == getattr(theirs, name), (mine.text, name)
        if mine.objective.indicator == "error":  # blocks by due time are those of the whole
            assert mine == theirs
    along = found.rows.course
    for metric in METRICS:
        ordered = np.sort(measure(catalogue()[metric], concat(parts)).values)
        mine = found.rows.measured(metric, judged=False).ordered
        assert len(mine) == len(ordered), metric
        ranks = np.unique(np.linspace(0, len(ordered) - 1, 40).astype(np.int64))
        assert np.array_equal(np.asarray(mine[ranks]), ordered[ranks]), metric
        limits = np.append(ordered[ranks], [0.0, 1.5, math.inf])
        for side in ("left", "right"):
            assert np.array_equal(mine.searchsorted(limits, side), np.searchsorted(ordered, limits, side)), metric
        assert found.histogram(metric)[1].sum() == len(ordered)
    assert along.number == whole.counts.measured
