"""Objectives on what the server says of itself: read, and judged in three ways, never in favour of what is unknown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.slo.objectives.objective import ObjectiveError, parse
from plimsoll.slo.server.canonical import NAMES
from plimsoll.slo.server.courses import Course, Kind
from plimsoll.slo.server.served import Asked, Origin, Served
from plimsoll.slo.server.server_side import ServerSide
from plimsoll.slo.verdict.on_server import judge_server

S = 1_000_000_000
NAN = float("nan")


def side(name: str, values: list[float], kind: Kind = "gauge", weights: list[float] | None = None) -> ServerSide:
    ends = np.arange(1, len(values) + 1) * S
    begins = ends - (S if kind != "gauge" else 1000)
    held = np.array(weights if weights is not None else np.ones(len(values)), float)
    course = Course(name, kind, begins, ends, np.array(values, float), held, "vllm", ("x",), ("a",), 1, ends - S)
    asked = Asked(Origin("a", "http://a", S, S, 0), begins, begins, ends, np.ones(len(ends)))
    return ServerSide(Served({"a": asked}, ()), {name: course}, {"server.batch": "not exposed by vLLM"}, (), ())


@pytest.mark.parametrize(
    ("text", "values", "kind", "outcome"),
    [
        ("max(server.kv_usage) <= 95%", [0.5, 0.9], "gauge", "PASS"),
        ("max(server.kv_usage) <= 95%", [0.5, 0.96], "gauge", "FAIL"),
        ("max(server.kv_usage) <= 95%", [0.5, NAN, 0.9], "gauge", "INCONCLUSIVE"),
        ("max(server.kv_usage) <= 95%", [0.96, NAN], "gauge", "FAIL"),
        ("max(server.kv_usage) <= 95%", [NAN, NAN], "gauge", "INCONCLUSIVE"),
        ("min(gpu.clock) >= 1.5GHz", [1.6e9, NAN], "gauge", "INCONCLUSIVE"),
        ("min(gpu.clock) >= 1.5GHz", [1.4e9, NAN], "gauge", "FAIL"),
        ("mean(gpu.utilisation) >= 60%", [0.5, 0.8], "gauge", "PASS"),
        ("mean(gpu.utilisation) >= 60%", [0.5, 0.8, NAN], "gauge", "INCONCLUSIVE"),
        ("mean(gpu.utilisation) >= 60%", [0.8] * 20 + [NAN], "gauge", "PASS"),
        ("mean(gpu.utilisation) >= 60%", [0.6] * 10, "gauge", "PASS"),  # whose sum is 5.999999999999999
        ("mean(server.kv_usage) <= 70%", [0.7] * 11, "gauge", "PASS"),
        ("rate(server.preempted) <= 0", [0, 0, 0], "counter", "PASS"),
        ("rate(server.preempted) <= 0", [0, 1, 0], "counter", "FAIL"),
        ("rate(server.preempted) <= 0", [0, NAN, 0], "counter", "INCONCLUSIVE"),
        ("rate(server.preempted) <= 0", [1, NAN, 0], "counter", "FAIL"),
        ("rate(server.generated_tokens) >= 5/s", [10, NAN, 10], "counter", "PASS"),
        ("rate(server.generated_tokens) >= 9/s", [10, NAN, 10], "counter", "INCONCLUSIVE"),
        ("max(host.rss) <= 8GiB", [2.0**33], "gauge", "PASS"),
    ],
)
def test_what_is_unknown_never_helps(text: str, values: list[float], kind: Kind, outcome: str) -> None:
    objective = parse(text)
    found = judge_server(objective, side(objective.indicator, values, kind))
    assert found.outcome == outcome
    if found.n:
        assert f"sampled every 1 s: {found.n} samples" in found.detail


def test_a_mean_of_no_events_is_not_unknown() -> None:
    objective = parse("max(server.ttft) <= 50ms")
    found = judge_server(objective, side("server.ttft", [4e7, NAN, 3e7], "mean", [2, 0, 1]))
    assert (found.outcome, found.n, found.observed) == ("PASS", 2, 4e7)
    found = judge_server(parse("mean(server.ttft) <= 50ms"), side("server.ttft", [4e7, NAN, 1e7], "mean", [2, 0, 1]))
    assert found.observed == pytest.approx(3e7)
    assert judge_server(objective, side("server.ttft", [4e7, NAN], "mean", [2, NAN])).outcome == "INCONCLUSIVE"


def test_what_nobody_said_is_no_data() -> None:
    objective = parse("max(server.batch) <= 8")
    assert judge_server(objective, None).outcome == "INCONCLUSIVE"
    assert "not exposed by vLLM" in judge_server(objective, side("server.queue", [1])).detail


@given(
    values=st.lists(st.one_of(st.floats(0, 1), st.just(NAN)), min_size=1, max_size=30),
    place=st.integers(0, 29),
    statistic=st.sampled_from(["max", "mean", "min"]),
)
def test_losing_a_sample_never_turns_anything_into_a_pass(values: list[float], place: int, statistic: str) -> None:
    objective = parse(f"{statistic}(server.kv_usage) <= 50%")
    before = judge_server(objective, side("server.kv_usage", values)).outcome
    lost = [*values[: place % len(values)], NAN, *values[place % len(values) + 1 :]]
    after = judge_server(objective, side("server.kv_usage", lost)).outcome
    if statistic != "mean":  # a mean is of the samples that there are, up to one in twenty
        assert after != "PASS" or before == "PASS"


@pytest.mark.parametrize("name", NAMES)
def test_every_name_takes_the_objectives_that_its_error_names(name: str) -> None:
    unit = {"ns": "ms", "ratio": "%", "per_s": "/s", "1": "", "bytes": "GiB", "W": "W", "Hz": "MHz", "J": "W", "s": ""}
    sign = ">=" if NAMES[name].better == "higher" else "<="
    statistic = "rate" if NAMES[name].counted else "max"
    text = f"{statistic}({name}) {sign} 3{unit[NAMES[name].unit]}"
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)
    for wrong in (f"p99({name}) {sign} 3", f"{name} {sign} 3", f"{statistic}({name}{{class=a}}) {sign} 3"):
        with pytest.raises(ObjectiveError):
            parse(wrong)


def test_none_at_all_needs_no_unit() -> None:
    assert str(parse("rate(server.preempted) <= 0")) == "rate(server.preempted) <= 0/s"
    with pytest.raises(ObjectiveError, match="write one of /s"):
        parse("rate(server.preempted) <= 1")
