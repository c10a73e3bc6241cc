"""Plans in pieces: the same plan, the same shards, the same fingerprint, in the memory of one piece."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.scenarios import spec
from plimsoll.scenarios.plan.blocks import Blocks, cut, joined
from plimsoll.scenarios.plan.plan import ARRAYS, BLOCK, Dealing, Plan, Stop

KINDS: list[dict[str, Any]] = [
    {"kind": "server", "params": {"rate": 5000}},
    {"kind": "server", "params": {"rate": {"steps": [{"rate": 100, "for": "1s"}, {"rate": 9000}]}}},
    {"kind": "server", "params": {"rate": 5000, "arrival": "constant", "order": "permutation"}},
    {"kind": "server", "params": {"rate": 5000, "arrival": "loadgen", "order": "loadgen"}},
    {"kind": "concurrency", "params": {"concurrency": 8}},
    {"kind": "single_stream"},
    {"kind": "multi_stream", "params": {"samples_per_query": 3}},
    {"kind": "multi_stream", "params": {"samples_per_query": 3, "frame_interval": "1ms"}},
    {"kind": "offline", "params": {"samples": 20_000}},
]


def same(one: Plan, other: Plan) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS) and replace(
        one, **{name: getattr(other, name) for name in ARRAYS}
    ).fingerprint() == (other.fingerprint())


@pytest.mark.parametrize("scenario", KINDS, ids=lambda given: f"{given['kind']}-{given.get('params')}")
def test_pieces_of_every_kind_are_its_plan(scenario: dict[str, Any]) -> None:
    made = spec.parse({**scenario, "stop": {"min_queries": 2 * BLOCK + 77, "min_duration": "0s"}})
    plan, blocks = made.build(300), made.blocks(300)
    Plan(**{name: getattr(plan, name) for name in (*ARRAYS, *SCALARS)})  # looked at: it is one
    assert all(piece.n_queries <= BLOCK for piece in blocks)
    assert same(blocks.whole(), plan)
    assert blocks.fingerprint() == blocks.held().fingerprint() == blocks.held(BLOCK).fingerprint() == plan.fingerprint()
    assert next(iter(held := blocks.held())) is next(iter(held))
    assert [piece.fingerprint() for piece in blocks] == [piece.fingerprint() for piece in blocks]
    extent = blocks.extent()
    assert (extent.n_queries, extent.n_samples) == (plan.n_queries, plan.n_samples)
    assert (extent.first_ns, extent.last_ns) == (plan.due_ns[0], plan.due_ns[-1])
    shards = 1 if plan.max_in_flight == 1 else 3
    dealings: tuple[Dealing, ...] = ("turns", "lots")
    for dealing in dealings:
        for i in range(shards):
            assert same(blocks.shard(i, shards, dealing).whole(), plan.shard(i, shards, dealing))


SCALARS = ("stop", "seed", "open_loop", "cyclic", "max_in_flight", "first_id", "id_step")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    n = draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    m = sum(lengths)
    ids = sorted(draw(st.sets(st.integers(0, 20), min_size=n, max_size=n)))
    waits = [draw(st.sampled_from([-1, -1, *ids[:row]])) for row in range(n)]
    return Plan(
        due_ns=np.cumsum(draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))),
        query_id=np.array(ids),
        offsets=np.append(0, np.cumsum(lengths)),
        sample_ix=np.array(draw(st.lists(st.integers(0, 3), min_size=m, max_size=m))),
        payload_ix=np.array(draw(st.lists(st.integers(0, 5), min_size=m, max_size=m))),
        after=np.array(waits),
        stop=Stop(1, 0),
        seed=7,
        open_loop=True,
    )


@given(plan=plans(), data=st.data())
def test_the_fingerprint_is_the_same_in_any_pieces_and_of_no_other_plan(plan: Plan, data: st.DataObject) -> None:
    pieces, row = [], 0
    while row < plan.n_queries:
        until = data.draw(st.integers(row + 1, plan.n_queries))
        pieces.append(rows_of(plan, row, until))
        row = until
    assert Blocks(lambda: iter(pieces)).fingerprint() == plan.fingerprint()
    assert same(joined(pieces), plan)
    name = data.draw(st.sampled_from([name for name in ARRAYS if name != "offsets"]))
    column = getattr(plan, name).copy()
    column[data.draw(st.integers(0, len(column) - 1))] += data.draw(st.sampled_from([-1, 1, 1 << 40]))
    assert replace(plan, **{name: column}, check=False).fingerprint() != plan.fingerprint()


def rows_of(plan: Plan, row: int, until: int) -> Plan:
    first, last = plan.offsets[row], plan.offsets[until]
    rows, samples = slice(row, until), slice(first, last)
    return replace(
        plan,
        due_ns=plan.due_ns[rows],
        query_id=plan.query_id[rows],
        after=plan.after[rows],
        offsets=plan.offsets[row : until + 1] - first,
        sample_ix=plan.sample_ix[samples],
        payload_ix=plan.payload_ix[samples],
        check=False,
    )


@given(plans(), plans())
@settings(max_examples=300)
def test_two_plans_have_one_fingerprint_only_if_they_are_one(one: Plan, other: Plan) -> None:
    assert (one.fingerprint() == other.fingerprint()) == same(one, other)


@given(plan=plans(), times=st.lists(st.integers(-3, 60), min_size=1), window=st.integers(1, 30))
def test_a_timeline_counts_what_is_due_before_a_time(plan: Plan, times: list[int], window: int) -> None:
    found = cut(plan).survey()
    due = np.repeat(plan.due_ns, np.diff(plan.offsets))
    assert found.timeline.until(times).tolist() == [int((due < time).sum()) for time in times]
    most = max(int(((due >= first) & (due < first + window)).sum()) for first in plan.due_ns)
    assert found.timeline.busiest(window) == most
    assert (found.widest, found.fingerprint) == (np.diff(plan.offsets).max(), plan.fingerprint())
    assert found.pieces.extent() is found.pieces.extent()


@pytest.mark.parametrize("scenario", [KINDS[0], KINDS[1], KINDS[7]], ids=["even", "steps", "frames"])
def test_a_timeline_of_few_marks_is_off_by_less_than_the_rows_between_two(
    scenario: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.scenarios.plan.blocks.MARKS", 500)
    made = spec.parse({**scenario, "stop": {"min_queries": 5 * BLOCK, "min_duration": "0s"}}).blocks(300)
    plan, timeline = made.whole(), made.extent().timeline
    assert timeline.step == 256
    assert len(timeline.due_ns) <= 500
    times = np.linspace(-10, plan.due_ns[-1] + 10, 10_000).astype(np.int64)
    exact = plan.offsets[np.searchsorted(plan.due_ns, times, side="left")]
    off = np.abs(timeline.until(times) - exact)
    assert off.max() <= timeline.step * np.diff(plan.offsets).max()
    assert off.mean() < timeline.step * np.diff(plan.offsets).max() / 8
    assert timeline.until([-1, plan.due_ns[-1] + 1]).tolist() == [0, plan.n_samples]


def test_a_query_that_goes_on_from_piece_to_piece_is_one() -> None:
    blocks = spec.parse({"kind": "offline", "params": {"samples": 3 * BLOCK + 5}}).blocks(300)
    plan, found = blocks.whole(), blocks.survey()
    assert [(piece.n_queries, piece.n_samples) for piece in blocks] == [(1, BLOCK)] * 3 + [(1, 5)]
    assert plan.offsets.tolist() == [0, 3 * BLOCK + 5]
    assert plan.sample_ix.tolist() == [*range(3 * BLOCK + 5)]
    assert (found.fingerprint, found.widest) == (plan.fingerprint(), plan.n_samples)
    assert found.timeline.until([-1, 0, 1]).tolist() == [0, 0, plan.n_samples]
    shards = [blocks.shard(i, 7) for i in range(7)]  # the last piece has no sample for two of them
    assert [shard.whole().sample_ix.tolist() for shard in shards] == [[*range(i, 3 * BLOCK + 5, 7)] for i in range(7)]
    assert [shard.extent().n_queries for shard in shards] == [1] * 7


def test_a_plan_in_memory_is_cut_unless_queries_wait() -> None:
    plan = spec.parse({"kind": "server", "params": {"rate": 1}, "stop": {"min_queries": 3 * BLOCK}}).build(5)
    assert [piece.n_queries for piece in cut(plan)] == [BLOCK] * 3
    assert same(cut(plan).whole(), plan)
    waiting = replace(plan, after=np.append(np.full(3 * BLOCK - 1, -1), 0))
    assert [piece.n_queries for piece in cut(waiting)] == [3 * BLOCK]


def test_a_shard_that_cannot_be_is_refused_and_one_without_queries_is_empty() -> None:
    blocks = spec.parse({"kind": "server", "params": {"rate": 1}, "stop": {"min_queries": 2 * BLOCK}}).blocks(5)
    with pytest.raises(ValueError, match="no shard 3 of 3"):
        blocks.shard(3, 3)
    empty = blocks.shard(2 * BLOCK + 5, 2 * BLOCK + 9).whole()
    assert (empty.n_queries, empty.seed) == (0, 42)
    with pytest.raises(ValueError, match="no pieces"):
        Blocks(lambda: iter(())).whole()


@pytest.mark.parametrize(
    "load",
    [{"kind": "server", "params": {"rate": 10_000}}, {"kind": "offline", "params": {"max_in_flight": 2000}}],
    ids=lambda given: str(given["kind"]),
)
def test_ten_million_samples_need_the_memory_of_a_piece(load: dict[str, Any]) -> None:
    """Shard, extent and fingerprint of a plan that would take 480 MB, of one query 160: less than 10 MB more."""
    code = f"""
import resource
from plimsoll.scenarios import spec
stop = {{"min_queries": 10_000_000, "min_duration": "0s"}}
blocks = spec.parse({{**{load}, "stop": stop}}).blocks(100)
short = spec.parse({{**{load}, "stop": {{**stop, "min_queries": 50_000}}}}).blocks(100)
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
short.shard(3, 1000, "lots").whole(), short.extent(), short.fingerprint()
before = used()
kept = blocks.shard(3, 1000, "lots").whole()
blocks.extent(), blocks.fingerprint()
print(kept.n_samples, used() - before)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout
    n, grown_kb = map(int, made.split())
    assert n == pytest.approx(10_000, rel=0.05)
    assert grown_kb < 10_000
