"""Properties of plans, arrivals, durations and scenarios over generated inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.scenarios import spec
from plimsoll.scenarios.plan.arrival import RateProfile, Segment
from plimsoll.scenarios.plan.plan import Dealing, Plan, Stop
from plimsoll.scenarios.text.fields import MAX_NS, format_duration, parse_duration
from tests.due_times import PROCESSES, due_times

S = 1_000_000_000

rates = st.floats(min_value=0.5, max_value=200)
profiles = st.builds(
    RateProfile,
    st.lists(
        st.builds(Segment, st.one_of(st.just(0.0), rates), st.one_of(st.just(0.0), rates), st.integers(1, 3 * S)),
        max_size=4,
    ).map(tuple),
    rates,
)
kinds = st.sampled_from(["server", "offline", "concurrency", "single_stream", "multi_stream"])
seeds = st.integers(0, (1 << 64) - 1)
dealings: st.SearchStrategy[Dealing] = st.sampled_from(["turns", "lots"])


def samples_of(plan: Plan) -> list[tuple[int, int, int, int]]:
    """(query id, sample position, payload, due) of every sample."""
    row = np.repeat(np.arange(plan.n_queries), np.diff(plan.offsets))
    columns = (plan.query_id[row], plan.sample_ix, plan.payload_ix, plan.due_ns[row])
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(
    kind=kinds,
    queries=st.integers(1, 60),
    n_samples=st.integers(1, 20),
    seed=seeds,
    n=st.integers(1, 9),
    data=st.data(),
)
def test_shards_partition_the_plan(
    kind: str, queries: int, n_samples: int, seed: int, n: int, data: st.DataObject
) -> None:
    params: dict[str, Any] = {"concurrency": {"concurrency": data.draw(st.integers(9, 30))}}.get(kind, {})
    stop = {"min_queries": queries, "min_duration": "1s"}
    plan = spec.parse({"kind": kind, "params": params, "seed": seed, "stop": stop}).build(n_samples)
    if plan.max_in_flight is not None:
        n = min(n, plan.max_in_flight)
    dealing = data.draw(dealings)
    parts = [plan.shard(i, n, dealing) for i in range(n)]
    if plan.max_in_flight is not None:
        assert sum(part.max_in_flight or 0 for part in parts) == plan.max_in_flight
        assert min(part.max_in_flight or 0 for part in parts) >= 1
    if plan.cyclic:
        assert sum(part.stop.min_queries for part in parts) == plan.stop.min_queries
        ids = sorted(part.first_id + k * part.id_step for part in parts for k in range(part.stop.min_queries))
        assert ids == list(range(plan.stop.min_queries))
        assert all(np.array_equal(part.payload_ix, plan.payload_ix) for part in parts)
    else:
        assert sorted(item for part in parts for item in samples_of(part)) == sorted(samples_of(plan))
        owners = plan.owners(n, dealing)
        for i, part in enumerate(parts):
            mine = zip(owners.tolist(), samples_of(plan), strict=True)
            assert [sample for owner, sample in mine if owner == i] == samples_of(part)


@given(counts=st.lists(st.integers(1, 4), min_size=2, max_size=30), n=st.integers(1, 6), data=st.data())
def test_shards_keep_queries_whole_and_sessions_together(counts: list[int], n: int, data: st.DataObject) -> None:
    after = [data.draw(st.sampled_from([-1, *range(i)])) for i in range(len(counts))]
    offsets = np.concatenate(([0], np.cumsum(counts)))
    plan = Plan(
        due_ns=np.arange(len(counts)),
        query_id=np.arange(len(counts)),
        offsets=offsets,
        sample_ix=np.concatenate([np.arange(count) for count in counts]),
        payload_ix=np.arange(offsets[-1]),
        after=np.asarray(after),
        stop=Stop(),
        seed=0,
        open_loop=True,
    )
    dealing = data.draw(dealings)
    parts = [plan.shard(i, n, dealing) for i in range(n)]
    assert sorted(item for part in parts for item in samples_of(part)) == samples_of(plan)
    owners = plan.owners(n, dealing)[offsets[:-1]]
    for i, part in enumerate(parts):
        mine = set(part.query_id.tolist())
        assert mine == set(np.flatnonzero(owners == i).tolist())
        assert all(wait in mine for wait in part.after.tolist() if wait >= 0)


@given(
    process=st.sampled_from([process for process in PROCESSES if process != "loadgen"]),
    profile=profiles,
    seed=seeds,
    n=st.integers(1, 300),
    duration_ns=st.integers(0, 5 * S),
    burstiness=st.floats(0.1, 20),
)
def test_any_schedule_starts_at_zero_is_sorted_and_meets_both_minima(
    process: Any, profile: RateProfile, seed: int, n: int, duration_ns: int, burstiness: float
) -> None:
    def due() -> Any:
        return due_times(process, profile, seed, min_queries=n, min_duration_ns=duration_ns, burstiness=burstiness)

    first = due()
    assert first[0] == 0
    assert (np.diff(first) >= 0).all()
    assert len(first) >= n
    assert first[-1] >= duration_ns
    assert len(first) == n or first[-2] < duration_ns
    assert np.array_equal(first, due())


@given(profile=profiles, seed=seeds)
def test_constant_arrivals_carry_out_the_expected_number(profile: RateProfile, seed: int) -> None:
    due = due_times("constant", profile, seed, min_queries=1, min_duration_ns=6 * S)
    for t in (S, 3 * S, 6 * S):
        assert abs(np.searchsorted(due, t) - profile.expected(t)) <= 1.001


@given(st.integers(0, MAX_NS))
def test_durations_round_trip(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


lengths = st.one_of(
    st.integers(1, 500),
    st.builds(
        lambda a, b: {"dist": "uniform", "min": min(a, b), "max": max(a, b)}, st.integers(1, 99), st.integers(1, 99)
    ),
    st.builds(lambda m, s: {"dist": "lognormal", "mean": m, "stdev": s}, st.floats(1, 500), st.floats(0, 100)),
)
server_params = st.fixed_dictionaries(
    {},
    optional={
        "rate": st.one_of(
            rates,
            st.builds(lambda a, b: {"ramp": {"from": a, "to": b, "over": "2s"}}, rates, rates),
            st.builds(lambda a, b: {"steps": [{"rate": a, "for": 1.5}, {"rate": b}]}, rates, rates),
        ),
        "arrival": st.sampled_from(["poisson", "constant", {"process": "gamma", "burstiness": 2}]),
        "order": st.sampled_from(["random", "permutation"]),
    },
)


@given(params=server_params, prompt=lengths, seed=seeds, warmup=st.integers(0, 3 * S), timeout=st.integers(1, 10**12))
def test_any_valid_scenario_round_trips_and_builds_the_same_plan(
    params: dict[str, Any], prompt: Any, seed: int, warmup: int, timeout: int
) -> None:
    mapping = {
        "kind": "server",
        "params": params,
        "source": {"kind": "synthetic_text", "prompt_tokens": prompt, "count": 5},
        "seed": seed,
        "stop": {"min_queries": 5, "min_duration": "1s"},
        "warmup": format_duration(warmup),
        "timeout": format_duration(timeout),
    }
    scenario = spec.parse(mapping)
    again = spec.parse(scenario.to_mapping())
    assert again == scenario
    assert again.build(5).fingerprint() == scenario.build(5).fingerprint()
    assert again.source_object().payload(4) == scenario.source_object().payload(4)


junk = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
keys = st.sampled_from(
    [
        "name",
        "kind",
        "params",
        "target",
        "source",
        "seed",
        "stop",
        "warmup",
        "timeout",
        "drain",
        "objectives",
        "workers",
        "x",
    ]
)
values = st.one_of(
    junk,
    st.dictionaries(
        st.sampled_from(
            ["kind", "rate", "arrival", "prompt_tokens", "url", "headers", "min_duration", "path", "inputs"]
        ),
        st.one_of(
            junk, st.sampled_from(["server", "jsonl", "synthetic_text", "tensors", {"ramp": {}}, {"steps": [3]}])
        ),
    ),
)


@given(st.dictionaries(keys, values), st.sampled_from([None, "server", "offline", "concurrency"]))
def test_garbage_raises_only_scenario_errors_that_end_with_a_next_step(
    mapping: dict[str, Any], kind: str | None
) -> None:
    if kind is not None:
        mapping["kind"] = kind
    try:
        spec.parse(mapping, "f")
    except spec.ScenarioError as error:
        errors = error.errors
    else:
        return
    assert errors
    assert all(text.startswith("f:") and text.endswith(".") for text in errors)
