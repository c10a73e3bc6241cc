"""Conversations by turns: each turn once, however a data set tells them; and the think times of a scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios.plan.think import Drawn, draw_think
from plimsoll.scenarios.samples.conversations import Conversations, conversations
from plimsoll.scenarios.samples.payload import Payload, PayloadList
from plimsoll.scenarios.scenario import Scenario
from plimsoll.scenarios.spec import ScenarioError, parse

MS = 1_000_000


def said(*texts: str) -> tuple[dict[str, Any], ...]:
    """u: of the user, a: of the assistant, s: of the system."""
    roles = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    return tuple({"role": roles[text[0]], "content": text} for text in texts)


def turns(found: Conversations) -> list[list[list[str]]]:
    texts = [[one["content"] for one in payload.messages or ()] for payload in found.payloads]
    return [texts[begin:end] for begin, end in zip(found.starts[:-1], found.starts[1:], strict=True)]


def test_a_cumulative_log_is_one_conversation_and_another_that_begins_alike_is_its_own() -> None:
    rows = [said("u1"), said("u1", "a1", "u2"), said("u1", "a1", "u2", "a2", "u3"), said("u1", "a9", "u2"), said("u5")]
    found = conversations(PayloadList(tuple(Payload(messages=one) for one in rows)), recorded=False)
    assert turns(found) == [[["u1"], ["u2"], ["u3"]], [["u1"], ["u2"]], [["u5"]]]
    assert found.cumulative == 2
    recorded = conversations(PayloadList(tuple(Payload(messages=one) for one in rows)), recorded=True)
    assert turns(recorded)[0] == [["u1"], ["u1", "a1", "u2"], ["u1", "a1", "u2", "a2", "u3"]]
    assert sum(map(len, turns(recorded))) == sum(map(len, turns(found))) == 6


def test_every_turn_keeps_the_system_message_and_what_tools_said() -> None:
    rows = PayloadList((Payload(messages=said("s0", "u1", "a1", "t1", "u2", "a2", "u3"), max_output_tokens=7),))
    found = conversations(rows, recorded=False)
    assert turns(found) == [[["s0", "u1"], ["s0", "t1", "u2"], ["s0", "u3"]]]
    assert {one.max_output_tokens for one in found.payloads} == {7}
    assert turns(conversations(PayloadList((Payload(prompt="p"),)), recorded=True)) == [[[]]]


def test_sharegpt_gives_whole_conversations_as_far_as_its_limits_go(tmp_path: Path) -> None:
    talk = [("human", "one two three four"), ("gpt", "five six seven eight nine")] * 3
    entry = {"id": "1", "conversations": [{"from": who, "value": text} for who, text in talk]}
    (tmp_path / "s.json").write_text(json.dumps([entry]))

    def found(**limits: int) -> list[Payload]:
        source = {"kind": "sharegpt", "path": str(tmp_path / "s.json"), "turns": "all", "min_tokens": 1, **limits}
        made = parse({"name": "x", "kind": "sessions", "params": {"turns": "data"}, "source": source})
        source_of = made.source_object()
        plan = made.build(len(source_of))
        assert plan.labels is not None
        assert int(plan.labels.columns["turn"].max()) == len(source_of)
        return [source_of.payload(ix) for ix in range(len(source_of))]

    assert [(len(one.messages or ()), one.max_output_tokens) for one in found()] == [(1, 6), (1, 6), (1, 6)]
    assert len(found(max_total_tokens=23)) == 2


def scenario(**params: Any) -> Scenario:
    return parse({"name": "x", "kind": "sessions", "params": params})


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"history": "recorded"}, "history: recorded needs turns: data"),
        ({"think": "recorded"}, "think: recorded needs turns: data"),
        ({"think": {"dist": "exponential"}}, "exponential is drawn by its mean"),
        ({"think": {"dist": "uniform", "mean": "1s", "max": "2s"}}, "uniform is drawn by its max"),
        ({"think": {"dist": "uniform", "min": "3s", "max": "2s"}}, "min is above max"),
        ({"concurrency": 3, "rate": 5}, "concurrency and rate or arrival are both given"),
        ({"arrival": "loadgen"}, "LoadGen knows no sessions"),
        ({"affinity": {"header": "a b"}}, "params.affinity"),
    ],
)
def test_what_no_session_can_be_is_refused(params: dict[str, Any], why: str) -> None:
    with pytest.raises(ScenarioError) as told:
        scenario(**params)
    assert why in "; ".join(told.value.errors)


@pytest.mark.parametrize("dist", ["uniform", "exponential", "lognormal"])
def test_think_times_have_the_mean_asked_for_and_keep_their_limits(dist: str) -> None:
    given: dict[str, Any] = {"uniform": {"min": "1s", "max": "3s"}, "exponential": {"mean": "2s"}}.get(
        dist, {"mean": "2s", "stdev": "1s"}
    )
    drawn = draw_think(Drawn(dist=dist, **given), 7, 100_000)  # type: ignore[arg-type]
    assert drawn.mean() == pytest.approx(2e9, rel=0.02)
    assert (np.diff(np.sort(drawn)) >= 0).all()
    cut = draw_think(Drawn(dist=dist, **{**given, "min": "1500ms", "max": "2500ms"}), 7, 1000)  # type: ignore[arg-type]
    assert (cut.min(), cut.max()) >= (1_500 * MS, 2_000 * MS)
    assert cut.max() <= 2_500 * MS
