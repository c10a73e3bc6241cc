"""Plans: what they refuse, how they are dealt to shards, what their fingerprint covers; child seeds and sample
choice.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from plimsoll.scenarios.plan.blocks import joined
from plimsoll.scenarios.plan.plan import Plan, QueryLabels, Stop
from plimsoll.scenarios.plan.sampling import choose
from plimsoll.scenarios.plan.seeds import SEED_MAX, child, mixed, stream, uniforms


def open_plan(lengths: list[int], after: list[int] | None = None, **changes: Any) -> Plan:
    n, m = len(lengths), sum(lengths)
    given: dict[str, Any] = {
        "due_ns": np.arange(n) * 10,
        "query_id": np.arange(n),
        "offsets": np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        "sample_ix": np.concatenate([np.arange(length) for length in lengths] or [np.empty(0)]).astype(np.int64),
        "payload_ix": np.arange(m) * 7 % 5,
        "after": np.full(n, -1) if after is None else np.asarray(after),
        "stop": Stop(),
        "seed": 1,
        "open_loop": True,
    }
    return Plan(**{**given, **changes})


def closed_plan(rows: int, slots: int, stop: Stop) -> Plan:
    return open_plan([1] * rows, stop=stop, open_loop=False, cyclic=True, max_in_flight=slots)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"due_ns": np.array([0, 20, 10])}, "not sorted: row 2"),
        ({"offsets": np.array([0, 1, 2])}, "3 due times need 4"),
        ({"offsets": np.array([0, 2, 1, 3])}, "start at 0 and rise"),
        ({"offsets": np.array([0, 1, 1, 3])}, "at least one sample"),
        ({"payload_ix": np.array([0, 1])}, "plan.payload_ix has 2 entries"),
        ({"payload_ix": np.array([0, 1, -1])}, "not negative"),
        ({"query_id": np.array([0, 2, 2])}, "rise from row to row"),
        ({"after": np.array([-1, 1, -1])}, "earlier query"),
        ({"seed": 1 << 64}, "2\\^64"),
        ({"max_in_flight": 0}, "at least 1"),
        ({"cyclic": True}, "either an open loop"),
        ({"cyclic": True, "open_loop": False}, "number of its slots"),
        ({"first_id": 1}, "first_id"),
        ({"due_ns": np.zeros((3, 1))}, "dimensions"),
    ],
)
def test_contradicting_fields_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        open_plan([1, 1, 1], **changes)


def test_negative_stop_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="min_queries is -1"):
        Stop(min_queries=-1)


def test_arrays_are_read_only_and_the_callers_own_stay_writeable() -> None:
    mine = np.arange(3) * 10
    plan = open_plan([1, 1, 1], due_ns=mine)
    with pytest.raises(ValueError, match="read-only"):
        plan.due_ns[0] = 5
    mine[0] = 0


def test_open_loop_deals_query_j_to_shard_j_mod_n() -> None:
    plan = open_plan([2, 1, 3, 1, 2])
    part = plan.shard(1, 2)
    assert part.query_id.tolist() == [1, 3]
    assert part.due_ns.tolist() == [10, 30]
    assert part.offsets.tolist() == [0, 1, 2]
    assert part.payload_ix.tolist() == [plan.payload_ix[2], plan.payload_ix[6]]


def test_a_session_stays_in_one_shard() -> None:
    plan = open_plan([1] * 6, after=[-1, 0, -1, 1, 2, -1])  # 0-1-3 and 2-4 belong together
    assert plan.shard(0, 2).query_id.tolist() == [0, 1, 2, 3, 4]
    assert plan.shard(1, 2).query_id.tolist() == [5]
    assert plan.shard(2, 3).query_id.tolist() == [2, 4, 5]


def test_one_query_deals_its_samples() -> None:
    plan = open_plan([5], max_in_flight=7)
    part = plan.shard(1, 3)
    assert part.query_id.tolist() == [0]
    assert part.sample_ix.tolist() == [1, 4]
    assert [plan.shard(i, 3).max_in_flight for i in range(3)] == [3, 2, 2]


def test_a_shard_without_samples_has_no_query() -> None:
    part = open_plan([2]).shard(2, 3)
    assert (part.n_queries, part.n_samples) == (0, 0)


def test_closed_loop_shares_ids_slots_and_counts() -> None:
    plan = closed_plan(8, slots=5, stop=Stop(min_queries=10, min_duration_ns=1, max_queries=11))
    parts = [plan.shard(i, 3) for i in range(3)]
    assert [(p.first_id, p.id_step) for p in parts] == [(0, 3), (1, 3), (2, 3)]
    assert [p.max_in_flight for p in parts] == [2, 2, 1]
    assert [p.stop.min_queries for p in parts] == [4, 3, 3]
    assert [p.stop.max_queries for p in parts] == [4, 4, 3]
    assert all(p.n_queries == 8 for p in parts)


def test_a_shard_of_a_shard_is_a_finer_shard() -> None:
    plan = closed_plan(8, slots=6, stop=Stop(min_queries=13, min_duration_ns=1))
    nested = plan.shard(1, 2).shard(2, 3)
    direct = plan.shard(5, 6)
    assert (nested.first_id, nested.id_step, nested.stop) == (direct.first_id, direct.id_step, direct.stop)


def test_more_shards_than_slots_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="Use at most 2 workers, or raise the concurrency to 3"):
        closed_plan(4, slots=2, stop=Stop()).shard(0, 3)


@pytest.mark.parametrize(("i", "n"), [(0, 0), (2, 2), (-1, 2)])
def test_a_shard_that_cannot_be_is_refused(i: int, n: int) -> None:
    with pytest.raises(ValueError, match="there is no shard"):
        open_plan([1, 1]).shard(i, n)


def test_every_field_is_in_the_fingerprint() -> None:
    plan = open_plan([1, 1, 2], after=[-1, 0, -1], max_in_flight=4)
    other: dict[str, Any] = {
        "due_ns": plan.due_ns + 1,
        "query_id": plan.query_id + np.array([0, 0, 1]),
        "offsets": np.array([0, 1, 3, 4]),
        "sample_ix": plan.sample_ix[::-1],
        "payload_ix": plan.payload_ix[::-1],
        "after": np.array([-1, -1, -1]),
        "stop": Stop(max_queries=3),
        "seed": 2,
        "max_in_flight": 5,
        "id_step": 2,
        "labels": QueryLabels({"class": np.array([0, -1, 0])}, {"class": ("chat",)}),
    }
    prints = {replace(plan, **{name: value}).fingerprint() for name, value in other.items()}
    prints.add(replace(plan, first_id=1, id_step=3).fingerprint())
    prints.add(replace(plan, open_loop=False, cyclic=True).fingerprint())
    assert len(prints | {plan.fingerprint()}) == len(other) + 3
    assert set(other) | {"open_loop", "cyclic", "first_id"} == {item.name for item in fields(Plan)}


def test_labels_are_in_the_fingerprint_and_go_with_their_queries() -> None:
    labels = QueryLabels({"class": np.array([0, 1, 0]), "turn": np.array([1, -1, 2])}, {"class": ("chat", "bulk")})
    plan = replace(open_plan([1, 2, 1]), labels=labels)
    others = (
        QueryLabels({**labels.columns, "turn": np.array([1, -1, 3])}, labels.texts),
        QueryLabels(labels.columns, {"class": ("chat", "batch")}),
        QueryLabels({"class": labels.columns["class"]}, labels.texts),
    )
    assert len({plan.fingerprint(), *(replace(plan, labels=one).fingerprint() for one in others)}) == 4
    second = plan.shard(1, 2)
    assert second.labels is not None
    assert {name: column.tolist() for name, column in second.labels.columns.items()} == {"class": [1], "turn": [-1]}
    pieces = [plan.select(np.array([0]), None), plan.select(np.array([1, 2]), None)]
    assert joined(pieces).fingerprint() == plan.fingerprint()
    with pytest.raises(ValueError, match="other labels, or other texts"):
        joined([pieces[0], replace(pieces[1], labels=None)])
    with pytest.raises(ValueError, match="a place without a text"):
        replace(plan, labels=QueryLabels({"class": np.array([0, 2, 0])}, labels.texts))


def test_a_shard_has_another_fingerprint_than_its_whole() -> None:
    plan = open_plan([1] * 4)
    assert plan.shard(0, 1).fingerprint() == plan.fingerprint()
    assert len({plan.fingerprint(), *(plan.shard(i, 2).fingerprint() for i in range(2))}) == 3


# -- seeds and sample choice ----------------------------------------------------------------------------------------


def test_paths_do_not_collide_by_concatenation() -> None:
    seeds = [child(7, *path) for path in (("ab", "c"), ("a", "bc"), ("abc",), ("a", "b", "c"), ("", "abc"), ())]
    assert len(set(seeds)) == len(seeds)


def test_child_seeds_never_change() -> None:
    assert child(42, "samples") == 8210316168421840403
    assert child(0, "arrival") == child(0, "arrival") != child(1, "arrival")


@pytest.mark.parametrize("root", [-1, SEED_MAX + 1])
def test_a_root_that_is_no_64_bit_number_is_refused(root: int) -> None:
    with pytest.raises(ValueError, match="2\\^64"):
        child(root, "x")


def test_uniforms_are_uniform_and_below_one() -> None:
    drawn = uniforms(stream(3), 20_000)
    assert 0 <= drawn.min() <= drawn.max() < 1
    assert stats.kstest(drawn, "uniform").pvalue > 0.01


@pytest.mark.parametrize("n_samples", [1, 2, 3, 7, 1000, 2**31 - 1])
def test_random_choice_stays_in_range(n_samples: int) -> None:
    chosen = choose("random", 5, 5000, n_samples)
    assert 0 <= chosen.min() <= chosen.max() < n_samples


def test_random_choice_is_uniform_with_replacement() -> None:
    counts = np.bincount(choose("random", 5, 50_000, 50), minlength=50)
    assert stats.chisquare(counts).pvalue > 0.01


def test_permutation_uses_every_sample_once_a_pass() -> None:
    chosen = choose("permutation", 5, 35, 10)
    for start in (0, 10, 20):
        assert sorted(chosen[start : start + 10].tolist()) == list(range(10))
    assert chosen[:10].tolist() != chosen[10:20].tolist()
    assert len(set(chosen[30:].tolist())) == 5


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        choose("random", 5, 10, 0)


def test_mixed_numbers_are_those_of_splitmix64() -> None:
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]
    assert mixed(0, np.arange(5)).tolist() == known
    assert mixed(0, np.array([3, 0])).tolist() == [known[3], known[0]]
