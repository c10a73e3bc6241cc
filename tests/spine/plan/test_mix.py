"""Several classes of traffic in one scenario: each has its own schedule, and nobody else moves it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.plugins import kinds
from plimsoll.scenarios.spec import Scenario, ScenarioError, parse, with_flags

CHAT: dict[str, Any] = {"kind": "server", "params": {"rate": 40}}
BULK: dict[str, Any] = {"kind": "concurrency", "params": {"concurrency": 3}, "until": "others"}
STOP = {"min_queries": 30, "min_duration": "1s"}

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,5}", fullmatch=True)
classes = st.one_of(
    st.builds(lambda rate: {"kind": "server", "params": {"rate": rate}}, st.floats(1, 90)),
    st.builds(lambda slots: {"kind": "concurrency", "params": {"concurrency": slots}}, st.integers(1, 9)),
    st.just({"kind": "offline", "params": {"samples": 7}}),
)


def mixed(**given: Any) -> Scenario:
    return parse({"name": "m", "stop": STOP, **given})


def alike(one: Plan, other: Plan) -> bool:
    return one.fingerprint() == other.fingerprint() and np.array_equal(one.due_ns, other.due_ns)


@given(
    mix=st.dictionaries(names, classes, min_size=1, max_size=4),
    own=classes,
    seed=st.integers(0, 2**64 - 1),
    at=st.data(),
)
def test_other_classes_move_no_schedule_whatever_they_are_and_in_whatever_order(
    mix: dict[str, Any], own: dict[str, Any], seed: int, at: st.DataObject
) -> None:
    alone = mixed(mix={"mine": own}, seed=seed).mix["mine"]
    order = at.draw(st.permutations([*({**mix, "mine": own}).items()]))
    found = mixed(mix=dict(order), seed=seed)
    assert alike(alone.build(5), found.mix["mine"].build(5))
    others = [one.seed for name, one in found.mix.items() if name != "mine"]
    assert len({*others, found.mix["mine"].seed, seed}) == len(others) + 2, "each has a seed of its own"


def test_a_mix_is_read_back_as_it_was_written() -> None:
    made = mixed(mix={"chat": CHAT | {"objectives": ["p99(ttft) <= 1s"]}, "bulk": BULK}, target={"headers": {"a": "1"}})
    assert parse(made.to_mapping()) == made
    assert made.to_mapping()["mix"]["bulk"]["until"] == "others"


def test_a_class_has_what_stands_at_the_top_unless_it_says_otherwise() -> None:
    target = {"url": "http://h:1", "headers": {"a": "1", "b": "1"}}
    own = {**CHAT, "target": {"model": "m", "headers": {"b": "2"}}, "timeout": "3s"}
    made = mixed(mix={"chat": own, "bulk": BULK}, target=target, timeout="9s", warmup="1s").mix
    chat, bulk = made["chat"], made["bulk"]
    assert (chat.target.url, chat.target.model, chat.target.headers) == ("http://h:1", "m", {"a": "1", "b": "2"})
    assert (bulk.target.headers, chat.timeout_ns, bulk.timeout_ns) == (target["headers"], 3 * 10**9, 9 * 10**9)
    assert {one.warmup_ns for one in made.values()} == {10**9}
    assert (chat.stop.min_queries, chat.endless, bulk.endless) == (30, False, True)


def test_flags_go_over_every_class_and_those_of_one_load_are_refused() -> None:
    made = mixed(mix={"chat": {**CHAT, "target": {"url": "http://own:1"}}, "bulk": BULK})
    over = with_flags(made, url="http://all:2", duration="7s", seed=5, objectives=["p99(ttft) <= 1s"])
    assert {one.target.url for one in over.mix.values()} == {"http://all:2"}
    assert (over.mix["chat"].stop.min_duration_ns, over.mix["bulk"].endless) == (7 * 10**9, True)
    assert over.mix["chat"].seed != made.mix["chat"].seed
    with pytest.raises(ScenarioError) as refused:
        with_flags(made, rate=3, prompt_tokens=9, url="nowhere")
    assert refused.value.errors == [
        "--rate: m is a mix of chat, bulk, and this is of one load. Write it in the file, in its class under mix.",
        "--prompt-tokens: m is a mix of chat, bulk, and this is of one load. Write it in the file, in its class under "
        "mix.",
        "--url: 'nowhere' is not a URL. Write scheme, host and port: http://127.0.0.1:8000.",
    ]


def test_a_load_moves_in_one_class_or_in_all_by_its_share() -> None:
    made = mixed(mix={"chat": CHAT, "more": {"kind": "server", "params": {"rate": 10}}, "bulk": BULK})

    def rates(scenario: Scenario) -> dict[str, Any]:
        return {name: one.params.model_dump().get("rate") for name, one in scenario.mix.items()}

    one, every = (with_flags(made, loads=loads) for loads in ({"rate{class=chat}": 8}, {"rate": 25}))
    assert rates(one) == {"chat": 8, "more": 10, "bulk": None}
    assert rates(every) == {"chat": 20, "more": 5, "bulk": None}
    assert one.mix["more"] == made.mix["more"]
    slots = with_flags(made, loads={"concurrency{class=bulk}": 7}).mix["bulk"]
    assert (slots.params.model_dump()["concurrency"], slots.endless) == (7, True)


def test_everything_that_is_wrong_is_told_at_once_with_its_place() -> None:
    with pytest.raises(ScenarioError) as refused:
        parse(
            {
                "kind": "server", "mode": "accuracy",
                "mix": {
                    "a b": CHAT, "x": {"kind": "server", "params": {"rat": 1}, "seed": 3}, "z": 3, "w": {},
                    "o": {"kind": "offline", "until": "others"}, "u": {**BULK, "stop": STOP},
                    "v": {**BULK, "until": "x"},
                },
            },
            "f.yaml",
        )  # fmt: skip
    assert refused.value.errors == [
        "f.yaml:kind: does not go with mix. Write it in each class, as mix.NAME.",
        "f.yaml:mode: does not go with mix: an accuracy run sends each sample of one source. Leave one out.",
        "f.yaml:mix.a b: is no name of a class. Use letters, digits, _ and -, begin with a letter or a digit, at "
        "most 40.",
        "f.yaml:mix.x.seed: is the run's. Write it at the top of the file.",
        "f.yaml:mix.x.params.rat: unknown key. Did you mean rate? Known keys here: arrival, order, rate.",
        "f.yaml:mix.z: is no mapping. Write kind, params, source and what else the class has below it.",
        f"f.yaml:mix.w.kind: is missing. Give one of {', '.join(sorted(kinds()))}.",
        "f.yaml:mix.o.until: others is of a class that has no end of its own, and kind offline as it is has one. Use "
        "kind concurrency, or give stop.",
        "f.yaml:mix.u.stop: does not go with until: others, which ends the class. Keep one of them.",
        "f.yaml:mix.v.until: is 'x'. Write others, or leave it out.",
    ]
    with pytest.raises(ScenarioError, match="mix: names no classes"):
        parse({"mix": {}})
