"""Arms: one load dealt by lot. Together they are the plan, each query in one of them at its own moment."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.run.contradictions import check_labels
from plimsoll.harness.run.job import promised
from plimsoll.scenarios import spec
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.spec import ScenarioError
from plimsoll.slo.objectives.objective import parse

LOAD: dict[str, Any] = {"kind": "server", "params": {"rate": 50}, "stop": {"min_duration": "20s"}}


def arms(shares: dict[str, float], **more: Any) -> Scenario:
    return spec.parse({**LOAD, "arms": {name: {"share": f"{share}%"} for name, share in shares.items()}, **more})


@given(cuts=st.lists(st.integers(5, 95), min_size=1, max_size=4, unique=True), seed=st.integers(0, 2**40))
def test_arms_partition_the_plan(cuts: list[int], seed: int) -> None:
    edges = [0, *sorted(cuts), 100]
    made = arms({f"a{i}": high - low for i, (low, high) in enumerate(pairwise(edges))}, seed=seed)
    whole = spec.parse({**LOAD, "seed": seed}).build(64)
    parts = [one.build(64) for one in made.mix.values()]
    assert sorted(np.concatenate([one.due_ns for one in parts]).tolist()) == whole.due_ns.tolist()
    pairs = [pair for one in parts for pair in zip(one.due_ns.tolist(), one.payload_ix.tolist(), strict=True)]
    assert sorted(pairs) == sorted(zip(whole.due_ns.tolist(), whole.payload_ix.tolist(), strict=True))
    for (name, one), plan in zip(made.mix.items(), parts, strict=True):
        assert plan.query_id.tolist() == list(range(plan.n_queries))
        assert plan.labels is not None
        assert plan.labels.texts["arm"] == (name,)
        assert one.lot is not None
        expected = (one.lot.high - one.lot.low) * whole.n_queries
        assert abs(plan.n_queries - expected) <= 6 * np.sqrt(whole.n_queries) / 2


def test_sessions_stay_together() -> None:
    load = {"kind": "sessions", "params": {"rate": 5, "turns": 3, "think": "100ms"}, "stop": {"min_duration": "20s"}}
    made = spec.parse({**load, "arms": {"a": {"share": "50%"}, "b": {"share": "50%"}}})
    for one in made.mix.values():
        plan = one.build(64)
        assert (plan.after < plan.query_id).all()
        first = plan.after < 0
        assert plan.labels is not None
        assert np.array_equal(plan.labels.columns["session"][first], plan.query_id[first])
        assert np.isin(plan.labels.columns["session"], plan.query_id[first]).all()


def test_a_run_directory_says_the_arms_again() -> None:
    made = arms({"base": 80, "canary": 20}, workers=2)
    again = spec.parse(made.to_mapping())
    assert [one.build(64).fingerprint() for one in again.mix.values()] == [
        one.build(64).fingerprint() for one in made.mix.values()
    ]


def test_an_arm_has_its_own_target_and_objectives() -> None:
    canary = {"share": "20%", "target": {"url": "http://127.0.0.1:9"}, "objectives": ["p90(ttft) <= 1s"]}
    target = {"url": "http://127.0.0.1:8", "model": "m"}
    made = spec.parse({**LOAD, "target": target, "arms": {"base": {"share": "80%"}, "canary": canary}})
    assert [(one.target.url, one.target.model) for one in made.mix.values()] == [
        ("http://127.0.0.1:8", "m"),
        ("http://127.0.0.1:9", "m"),
    ]
    assert promised(made) == ["p90(ttft{class=canary}) <= 1s"]
    assert check_labels(made, [parse("p90(ttft{arm=canary}) <= 40ms")]) == []
    assert "never canarry" in check_labels(made, [parse("p90(ttft{arm=canarry}) <= 40ms")])[0]


@pytest.mark.parametrize(
    ("given_arms", "says"),
    [
        ({"a": {"share": "80%"}, "b": {"share": "30%"}}, "has shares of 110 % together. Give 100 %"),
        ({"a": {"share": "100%"}}, "takes two arms or more"),
        ({"a": {"share": "50"}, "b": {}}, "a.share: is no share above 0 %. Write share: 10%"),
        (
            {"a": {"share": "50%"}, "b": {"share": "50%", "taget": {}}},
            "arms.b.taget: unknown key. Did you mean target?",
        ),
        ({"a": {"shar": "50%"}, "b": {"share": "50%"}}, "f.yaml:arms.a.shar: unknown key."),
        ({"a": {"shar": "50%"}, "b": 3}, "arms.b.share: is no share above 0 %"),
    ],
)
def test_what_is_wrong_with_arms_is_said(given_arms: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        spec.parse({**LOAD, "arms": given_arms}, "f.yaml")
    assert any(says in text for text in caught.value.errors)


def test_a_closed_loop_has_no_queries_to_deal() -> None:
    load = {"kind": "concurrency", "params": {"concurrency": 4}}
    made = spec.parse({**load, "arms": {"a": {"share": "50%"}, "b": {"share": "50%"}}})
    with pytest.raises(ScenarioError, match="the queries of an open loop"):
        made.mix["a"].build(8)


def test_shares_change_with_time_and_an_arm_that_grows_keeps_its_queries() -> None:
    steps = {"base": {"share": {"0s": "95%", "10s": "50%"}}, "canary": {"share": {"0s": "5%", "10s": "50%"}}}
    load = {**LOAD, "params": {"rate": 100}, "stop": {"min_queries": 1, "min_duration": "20s"}}
    whole = spec.parse(load).build(64)
    made = spec.parse({**load, "arms": steps})
    base, canary = (one.build(64) for one in made.mix.values())
    assert np.array_equal(np.sort(np.concatenate([base.due_ns, canary.due_ns])), whole.due_ns)
    even = spec.parse({**load, "arms": {"base": {"share": "50%"}, "canary": {"share": "50%"}}}).mix["canary"].build(64)
    small = spec.parse({**load, "arms": {"base": {"share": "95%"}, "canary": {"share": "5%"}}}).mix["canary"].build(64)
    late = canary.due_ns >= 10_000_000_000
    assert np.array_equal(canary.due_ns[late], even.due_ns[even.due_ns >= 10_000_000_000])
    assert np.array_equal(canary.due_ns[~late], small.due_ns[small.due_ns < 10_000_000_000])
    assert spec.parse(made.to_mapping()).mix["canary"].build(64).fingerprint() == canary.fingerprint()


@pytest.mark.parametrize(
    ("share", "says"),
    [
        ({"5s": "50%"}, "does not say the share from 0s on"),
        ({"0s": "50%", "10s": "40%"}, "has shares of 90 % together from 10s on. Give 100 %"),
        ({"0s": "half"}, "is no share above 0 %"),
        ({"0s": "50%", "soon": "50%"}, "'soon' is not a duration"),
    ],
)
def test_a_wrong_share_of_a_time_is_said(share: dict[str, str], says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        spec.parse({**LOAD, "arms": {"a": {"share": share}, "b": {"share": "50%"}}})
    assert any(says in text for text in caught.value.errors), caught.value.errors


def test_a_copy_sends_the_whole_plan_besides_and_no_objective_is_about_it() -> None:
    made = spec.parse({**LOAD, "seed": 7, "arms": {"primary": {"share": "100%"}, "shadow": {"share": "copy"}}})
    primary, shadow = (one.build(64) for one in made.mix.values())
    whole = spec.parse({**LOAD, "seed": 7}).build(64)
    for plan in (primary, shadow):
        assert plan.due_ns.tolist() == whole.due_ns.tolist()
        assert plan.payload_ix.tolist() == whole.payload_ix.tolist()
    assert list(made.judged) == ["primary"]
    assert spec.parse(made.to_mapping()).mix["shadow"].copied
    assert "copied" not in made.to_mapping()["mix"]["primary"]
    assert check_labels(made, [parse("p99(ttft{arm=primary}) <= 1s")]) == []
    (said,) = check_labels(made, [parse("p99(ttft{arm=shadow}) <= 1s")])
    assert "arm is primary, and never shadow" in said


def test_copies_alone_are_refused() -> None:
    with pytest.raises(ScenarioError, match="shares of 0 % together"):
        spec.parse({**LOAD, "arms": {"a": {"share": "copy"}, "b": {"share": "copy"}}})


def test_a_copy_beside_two_arms_leaves_their_shares_alone() -> None:
    arms = {"a": {"share": "40%"}, "b": {"share": "60%"}, "c": {"share": "copy"}}
    made = spec.parse({**LOAD, "arms": arms})
    sizes = {name: one.build(64).n_queries for name, one in made.mix.items()}
    assert sizes["a"] + sizes["b"] == sizes["c"]


def test_a_url_of_the_command_line_is_that_of_the_arms_without_one() -> None:
    """It once sent both arms to one server, where no canary is worse."""
    one, two, three = ({"url": f"http://127.0.0.1:{port}"} for port in (8001, 8002, 8003))
    mixed = {"base": {"share": "80%"}, "canary": {"share": "20%", "target": two}}
    made = spec.with_flags(spec.parse({**LOAD, "arms": mixed}), **one)
    assert {name: arm.target.url for name, arm in made.mix.items()} == {"base": one["url"], "canary": two["url"]}
    made = spec.with_flags(spec.parse({**LOAD, "target": three, "arms": mixed}), **one)
    assert {name: arm.target.url for name, arm in made.mix.items()} == {"base": one["url"], "canary": two["url"]}
    each = {"base": {"share": "80%", "target": three}, "canary": {"share": "20%", "target": two}}
    with pytest.raises(ScenarioError, match="--url: base and canary say where they send"):
        spec.with_flags(spec.parse({**LOAD, "arms": each}), **one)
