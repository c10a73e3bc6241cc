"""MultiStream at an interval: absolute times, LoadGen's rule for the end, and LoadGen's closed loop untouched without
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.scenarios import spec
from plimsoll.scenarios.kinds.multi_stream import KIND, MultiStreamParams
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.plugins import Frame, Warmup

MS, S = 1_000_000, 1_000_000_000


def built(stop: Stop, n_samples: int = 20, seed: int = 1, **params: Any) -> Plan:
    given = {"samples_per_query": 6, "frame_interval": "33ms", **params}
    return KIND.build(MultiStreamParams.model_validate(given), stop, n_samples, seed)


@given(
    interval=st.integers(1, 3 * S),
    queries=st.integers(1, 50),
    duration=st.integers(0, 60 * S),
    most=st.none() | st.integers(1, 60),
)
def test_frames_are_due_at_multiples_of_the_interval_and_end_as_loadgens_lists_do(
    interval: int, queries: int, duration: int, most: int | None
) -> None:
    if duration // interval > 5_000:
        return
    params = MultiStreamParams.model_construct(
        samples_per_query=2, order="random", frame_interval_ns=interval, frame_deadline_ns=None
    )
    plan = KIND.build(params, Stop(queries, duration, max_queries=most), 3, 1)
    n = plan.n_queries
    assert (plan.due_ns == np.arange(n) * interval).all()
    if most is None or n < most:
        assert n >= queries
        assert plan.due_ns[-1] >= duration, "the last is the first one at or after the minimum"
        assert n == max(queries, 1) or plan.due_ns[-2] < duration
    else:
        assert n == most
    assert KIND.size(params, plan.stop) == plan.n_samples == 2 * n


def test_a_frame_holds_contiguous_samples_and_is_as_random_as_a_closed_query() -> None:
    rows = built(Stop(50, 0)).payload_ix.reshape(-1, 6)
    assert (np.diff(rows, axis=1) % 20 == 1).all()
    closed = KIND.build(MultiStreamParams(samples_per_query=6), Stop(50, 0), 20, 1)
    assert (rows == closed.payload_ix.reshape(-1, 6)[:50]).all(), "the same seed starts at the same samples"


def test_shards_hold_whole_frames() -> None:
    plan = built(Stop(10, 0))
    parts = [plan.shard(i, 3) for i in range(3)]
    assert sorted(np.concatenate([part.query_id for part in parts]).tolist()) == list(range(10))
    assert all((np.diff(part.offsets) == 6).all() for part in parts)
    assert KIND.slots(MultiStreamParams.model_validate({"frame_interval": "33ms"})) is None


def test_the_warm_up_has_the_same_pace_before_t0() -> None:
    params = MultiStreamParams.model_validate({"samples_per_query": 6, "frame_interval": "40ms"})
    warmup = KIND.warmup(params, Warmup(S, 20, seed=3))
    assert warmup is not None
    assert (np.diff(warmup.due_ns) == 40 * MS).all()
    assert (warmup.due_ns[0], warmup.n_queries) == (-S, 25)
    assert warmup.open_loop


def test_the_deadline_is_the_interval_unless_it_is_given() -> None:
    def frame(**params: str) -> Frame | None:
        return spec.parse({"kind": "multi_stream", "params": params}).frame

    assert frame() is None
    assert frame(frame_interval="33ms") == Frame(33 * MS, 33 * MS)
    assert frame(frame_interval="33ms", frame_deadline="1s") == Frame(33 * MS, S)
    assert spec.parse({"kind": "server"}).frame is None
    with pytest.raises(spec.ScenarioError, match="frame_deadline needs frame_interval"):
        frame(frame_deadline="33ms")
    with pytest.raises(spec.ScenarioError, match=r"params.frame_interval: "):
        frame(frame_interval="0s")


def test_whether_it_is_an_open_loop_is_a_matter_of_its_params() -> None:
    for params, is_open in (({}, False), ({"frame_interval": "33ms"}, True)):
        made = spec.parse({"kind": "multi_stream", "params": params})
        plan = made.build(5)
        assert made.open_loop == plan.open_loop == is_open
        assert plan.cyclic != is_open
        assert spec.with_flags(made, queries=7).stop.max_queries == (None if is_open else 7)


SENSORS: list[dict[str, Any]] = [
    {"name": "front", "offset": "8ms", "jitter": "12ms"},
    {"name": "left"},
    {"name": "right", "offset": "15ms"},
]


def sensed(stop: Stop, **params: Any) -> Plan:
    given = {"frame_interval": "33ms", "sensors": SENSORS, **params}
    return KIND.build(MultiStreamParams.model_validate(given), stop, 20, 1)


def test_each_sensor_looks_at_its_own_instant_of_every_set() -> None:
    plan = sensed(Stop(30_000, 0))
    assert plan.labels is not None
    sensor, sets = plan.labels.columns["sensor"], plan.labels.columns["frame_set"]
    assert plan.labels.texts == {"sensor": ("front", "left", "right")}
    assert (plan.query_id == np.arange(30_000)).all()
    assert (sets == plan.query_id // 3 * 3).all()
    assert (np.diff(plan.due_ns) >= 0).all()
    late = plan.due_ns - sets // 3 * 33 * MS
    assert (late[sensor == 1] == 0).all()
    assert (late[sensor == 2] == 15 * MS).all()
    jitter = late[sensor == 0] - 8 * MS
    assert (jitter.min() >= 0, jitter.max() < 12 * MS) == (True, True)
    assert jitter.mean() == pytest.approx(6 * MS, rel=0.02), "drawn evenly from nothing to 12 ms"
    assert np.diff(np.sort(jitter)).max() < 0.02 * MS
    assert np.corrcoef(jitter[1:], jitter[:-1])[0, 1] == pytest.approx(0, abs=0.03)
    assert 0.35 < (sensor[2::3] == 0).mean() < 0.5, "it is the last of five in twelve sets"
    by_set = plan.payload_ix.reshape(-1, 3)[np.arange(10_000)[:, None], np.argsort(sensor.reshape(-1, 3), axis=1)]
    assert (np.diff(by_set, axis=1) % 20 == 1).all(), "the samples of a set follow each other, by sensor"


def test_queries_of_sensors_are_counted_one_by_one_and_sets_are_whole() -> None:
    for stop, n in ((Stop(10, 0), 12), (Stop(1, 100 * MS), 15), (Stop(1, S, max_queries=10), 9)):
        plan = sensed(stop)
        assert plan.n_queries == plan.n_samples == n
        params = MultiStreamParams.model_validate({"frame_interval": "33ms", "sensors": SENSORS})
        assert KIND.size(params, stop) == n
    warmup = KIND.warmup(params, Warmup(S, 20, seed=3))
    assert warmup is not None
    assert (warmup.due_ns[0], warmup.n_queries) == (-S, 93)
    assert KIND.frame(params) == Frame(33 * MS, 33 * MS, even=False)
    assert KIND.labels(params) == ("sensor", "frame_set")


@pytest.mark.parametrize(
    ("params", "part"),
    [
        ({"sensors": [{}]}, "sensors need frame_interval"),
        ({"sensors": [{}], "frame_interval": "33ms", "samples_per_query": 6}, "stand in place of samples_per_query"),
        ({"sensors": [{"offset": "20ms", "jitter": "13ms"}], "frame_interval": "33ms"}, "must end before the next"),
        ({"sensors": [{"name": "2"}, {}], "frame_interval": "33ms"}, "two sensors have one name"),
        ({"sensors": [], "frame_interval": "33ms"}, "params.sensors"),
    ],
)
def test_sensors_that_make_no_sets_are_refused(params: dict[str, Any], part: str) -> None:
    with pytest.raises(spec.ScenarioError, match=part):
        spec.parse({"kind": "multi_stream", "params": params})


def test_what_a_scenario_with_sensors_says_of_itself_can_be_read_again() -> None:
    made = spec.parse({"kind": "multi_stream", "params": {"frame_interval": "33ms", "sensors": SENSORS}})
    assert made.told_apart_by().keys() >= {"sensor", "frame_set"}
    assert spec.parse(made.to_mapping()).params == made.params
