"""Arms: one schedule dealt by lot, every query to exactly one arm, the same ones whoever asks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.spec import Scenario, ScenarioError, parse

LOAD: dict[str, Any] = {
    "name": "arms",
    "kind": "server",
    "params": {"rate": 200},
    "source": {"kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": 4},
    "stop": {"min_queries": 1, "min_duration": "20s"},
}
CANARY = {"target": {"url": "http://127.0.0.1:9"}}


def arms(base: Any, canary: Any, **more: Any) -> Scenario:
    return parse({**LOAD, **more, "arms": {"base": {"share": base}, "canary": {"share": canary, **CANARY}}}, "f")


def test_the_arms_together_are_the_schedule_and_each_has_its_share() -> None:
    whole = parse(LOAD, "f").build(50)
    plans = {name: one.build(50) for name, one in arms("80%", "20%").classes.items()}
    together = np.sort(np.concatenate([plan.due_ns for plan in plans.values()]))
    assert np.array_equal(together, whole.due_ns)
    assert plans["canary"].n_queries == pytest.approx(0.2 * whole.n_queries, rel=0.15)
    assert all(np.array_equal(plan.query_id, np.arange(plan.n_queries)) for plan in plans.values())


def test_an_arm_that_grows_keeps_the_queries_that_it_had() -> None:
    small, grown = (
        arms(base, canary).classes["canary"].build(50)
        for base, canary in (("95%", "5%"), ({"0s": "95%", "10s": "50%"}, {"0s": "5%", "10s": "50%"}))
    )
    early = grown.due_ns < 10_000_000_000
    assert np.array_equal(grown.due_ns[early], small.due_ns[small.due_ns < 10_000_000_000])
    assert set(small.due_ns) <= set(grown.due_ns)
    assert (~early).sum() == pytest.approx(1_000, rel=0.15)


def test_a_session_goes_whole_to_one_arm() -> None:
    made = arms("50%", "50%", kind="sessions", params={"rate": 5, "turns": 4})
    plans = [one.build(64) for one in made.classes.values()]
    assert all((plan.after >= 0).any() for plan in plans)
    whole = parse({**made.to_mapping()["mix"]["base"], "lot": [], "name": "x", "seed": made.seed}, "f").build(64)
    assert sum(plan.n_queries for plan in plans) == whole.n_queries
    assert sum(int((plan.after == -1).sum()) for plan in plans) == int((whole.after == -1).sum())


def test_what_a_run_writes_down_is_the_same_scenario() -> None:
    made = arms({"0s": "95%", "10s": "50%"}, {"0s": "5%", "10s": "50%"})
    again = parse(made.to_mapping(), "f")
    assert again == made
    assert again.classes["canary"].build(50).fingerprint() == made.classes["canary"].build(50).fingerprint()
    assert made.told_apart_by()["arm"] == ("base", "canary")
    assert made.classes["canary"].target.url == CANARY["target"]["url"]
    assert made.classes["base"].target.url is None


def test_a_warm_up_is_dealt_too() -> None:
    made = arms("50%", "50%", warmup="5s")
    parts = [one.build_warmup(50) for one in made.classes.values()]
    whole = parse({**LOAD, "warmup": "5s"}, "f").build_warmup(50)
    sizes = [part.extent().n_queries for part in parts if isinstance(part, Blocks)]
    assert isinstance(whole, Plan)
    assert len(sizes) == 2
    assert sum(sizes) == whole.n_queries


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"base": {"share": "80%"}, "canary": {"share": "30%"}}, "makes 110 % from 0s on, not 100 %"),
        ({"base": {"share": "much"}, "canary": {"share": "20%"}}, "arms.base.share: 'much' is no share"),
        ({"base": {"share": {"5s": "80%"}}, "canary": {"share": "20%"}}, "does not say the share from 0s on"),
        ({"base": {"share": "80%", "rate": 5}, "canary": {"share": "20%"}}, "arms.base.rate: is not of an arm"),
        ({"base": {"share": "100%"}}, "does not name two arms"),
    ],
)
def test_a_wrong_arm_is_told_with_its_place(change: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=said.replace("(", r"\(")):
        parse({**LOAD, "arms": change}, "f")


def test_all_errors_of_the_load_and_of_its_arms_come_at_once() -> None:
    bad = {**LOAD, "params": {"rate": -1}, "arms": {"base": {"share": "80%"}, "canary": {"share": "90%"}}}
    with pytest.raises(ScenarioError) as caught:
        parse(bad, "f")
    assert len(caught.value.errors) == 2


def test_a_closed_loop_has_nothing_to_deal() -> None:
    with pytest.raises(ScenarioError, match="kind concurrency as it is has no schedule"):
        arms("80%", "20%", kind="concurrency", params={"concurrency": 4})
