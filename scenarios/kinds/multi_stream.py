"""MultiStream: queries of several samples each, done when their last sample is. MLPerf's scenario, and cameras.

Without ``frame_interval`` it is LoadGen's closed loop: one query at a time, the next when the last sample of this
one is there. With it, it is what N sensors do: an open loop of one query every interval, at absolute times, whatever
became of the ones before. A late query delays and drops no other: the next still leaves on time, so two or more are in
flight at once (``frame_overlap`` counts them), and each is judged by its own ``frame_deadline``.

``sensors`` that do not look at the same instant make sets: of each a query of its own, due when it looked. A set is due
with its first sensor and done with its last answer.
"""

from collections.abc import Iterator
from dataclasses import replace
from operator import not_
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.loops import closed_blocks, closed_warmup, open_blocks, open_plan, rows_for
from plimsoll.scenarios.plan.blocks import joined
from plimsoll.scenarios.plan.plan import BLOCK, IntArray, Plan, QueryLabels, Stop
from plimsoll.scenarios.plan.sampling import (
    StartOrder,
    Take,
    as_loadgen,
    chosen,
    loaded_set,
    places,
    require_samples,
)
from plimsoll.scenarios.plan.seeds import child, mixed
from plimsoll.scenarios.plugins import Frame, Kind, Warmup
from plimsoll.scenarios.text.fields import STRICT, Duration

#: MLPerf's.
_SAMPLES = 8


class Sensor(BaseModel):
    """One of a set, and when its sample comes."""

    model_config = STRICT
    name: str | None = Field(default=None, min_length=1, max_length=200, description="Label `sensor`; null: 1, 2, ...")
    offset_ns: Duration = Field(default=0, alias="offset", ge=0, description="After the set's beginning.")
    jitter_ns: Duration = Field(default=0, alias="jitter", ge=0, description="And up to so much later, drawn evenly.")


class MultiStreamParams(BaseModel):
    """``samples_per_query`` samples go out together (8 in MLPerf); with ``frame_interval`` at fixed times."""

    model_config = STRICT
    samples_per_query: int = Field(default=_SAMPLES, ge=1, le=10_000, description="Samples in one query.")
    order: StartOrder = Field(
        default="random", description="Where queries begin: random, loadgen or {process: loadgen, ...}."
    )
    frame_interval_ns: Duration | None = Field(
        default=None, alias="frame_interval", gt=0, description="Open loop: one query every so long. null: closed loop."
    )
    frame_deadline_ns: Duration | None = Field(
        default=None,
        alias="frame_deadline",
        gt=0,
        description="From due to the last answer of a query; null: as long as frame_interval.",
    )
    sensors: tuple[Sensor, ...] | None = Field(
        default=None,
        strict=False,
        min_length=1,
        max_length=1_000,
        exclude_if=not_,
        description="In place of samples_per_query: sets.",
    )

    @model_validator(mode="after")
    def _deadline_of_frames(self) -> Self:
        if self.frame_deadline_ns is not None and self.frame_interval_ns is None:
            raise ValueError("frame_deadline needs frame_interval: without it queries have no time of their own")
        return self

    @model_validator(mode="after")
    def _sets_of_sensors(self) -> Self:
        if self.sensors is None:
            return self
        if self.frame_interval_ns is None:
            raise ValueError("sensors need frame_interval: without it queries have no time of their own")
        if self.samples_per_query not in (_SAMPLES, len(self.sensors)):
            raise ValueError("sensors stand in place of samples_per_query. Take that out")
        if any(one.offset_ns + one.jitter_ns >= self.frame_interval_ns for one in self.sensors):
            raise ValueError("a sensor's offset and jitter must end before the next set. Give less than frame_interval")
        if len(set(self.names)) < len(self.names):
            raise ValueError("two sensors have one name. Give each its own")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Of the sensors."""
        return tuple(one.name or str(place) for place, one in enumerate(self.sensors or (), 1))

    @property
    def per_frame(self) -> int:
        """Samples, of one query or of a set."""
        return len(self.sensors) if self.sensors is not None else self.samples_per_query


def _payloads(params: MultiStreamParams, min_queries: int, n_samples: int, seed: int) -> Take:
    """As LoadGen: a random start and the samples that follow it, wrapping round at the end of the set."""
    per_query, own = params.per_frame, as_loadgen(params.order)
    if own is None:
        begin, samples = chosen("random", seed, n_samples), np.arange(n_samples)
    else:
        begin = places(own, n_samples, min_queries=min_queries, per_query=per_query)
        samples = loaded_set(own, n_samples)

    def take(n: int) -> IntArray:
        return np.asarray(samples[(begin(n // per_query)[:, None] + np.arange(per_query)) % n_samples]).ravel()

    return take


def _blocks(params: MultiStreamParams, stop: Stop, n_samples: int, seed: int) -> Iterator[Plan]:
    require_samples(n_samples)
    interval = params.frame_interval_ns
    if interval is not None:
        return _timed(params, _frames(params, interval, stop), interval, stop, n_samples, seed)
    take, per_query = _payloads(params, stop.min_queries, n_samples, seed), params.samples_per_query
    rows = rows_for(stop, n_samples, params.order)
    return closed_blocks(rows, take, stop, seed, slots=1, per_query=per_query)


def _frames(params: MultiStreamParams, interval: int, stop: Stop) -> int:
    """LoadGen's rule for an open loop: the last query is the first that is due at or after the minimum duration."""
    each = len(params.names) or 1
    rows = max(-(-stop.min_queries // each), -(-stop.min_duration_ns // interval) + 1, 1)
    return rows if stop.max_queries is None else min(rows, max(1, stop.max_queries // each))


def _timed(
    params: MultiStreamParams, rows: int, interval: int, stop: Stop, n_samples: int, seed: int, from_ns: int = 0
) -> Iterator[Plan]:
    take = _payloads(params, stop.min_queries, n_samples, seed)
    if params.sensors is not None:
        return _sets(params, rows, interval, stop, take, seed, from_ns)
    due = (np.arange(row, min(row + BLOCK, rows)) * interval + from_ns for row in range(0, rows, BLOCK))
    return open_blocks(due, take, stop, seed, per_query=params.samples_per_query)


def _sets(
    params: MultiStreamParams, sets: int, interval: int, stop: Stop, take: Take, seed: int, from_ns: int
) -> Iterator[Plan]:
    """Queries of one sample in the order in which their sensors look; ``frame_set`` is the id of a set's first one."""
    sensors = params.sensors or ()
    offset, jitter = (np.array([getattr(one, name) for one in sensors]) for name in ("offset_ns", "jitter_ns"))
    n, drawn_by = len(sensors), child(seed, "sensors")
    for begun in range(0, sets, most := max(1, BLOCK // n)):
        place = np.arange(begun * n, min(begun + most, sets) * n).reshape(-1, n)
        late = (mixed(drawn_by, place) * 2.0**-64 * jitter).astype(np.int64)
        due = place[:, :1] // n * interval + from_ns + offset + late
        order = np.argsort(due, axis=1, kind="stable")
        due, samples = (np.take_along_axis(one, order, 1).ravel() for one in (due, take(due.size).reshape(-1, n)))
        columns = {"sensor": order.ravel(), "frame_set": np.repeat(place[:, 0], n)}
        made = open_plan(due, samples, stop, seed, begun=begun * n)
        yield replace(made, labels=QueryLabels(columns, {"sensor": params.names}))


def _warmup(params: MultiStreamParams, warmup: Warmup) -> Plan:
    interval = params.frame_interval_ns
    if interval is None:
        return closed_warmup(_blocks)(params, warmup)
    require_samples(warmup.n_samples)
    rows = -(-warmup.duration_ns // interval)
    return joined(
        _timed(params, rows, interval, Stop(rows, 0), warmup.n_samples, warmup.seed, from_ns=-warmup.duration_ns)
    )


def _size(params: MultiStreamParams, stop: Stop) -> int:
    interval = params.frame_interval_ns
    rows = rows_for(stop, 1, params.order) if interval is None else _frames(params, interval, stop)
    return rows * params.per_frame


def _frame(params: Any) -> Frame | None:
    interval = params.frame_interval_ns
    return None if interval is None else Frame(interval, params.frame_deadline_ns or interval, not params.sensors)


KIND = Kind(
    name="multi_stream",
    summary="Queries of several contiguous samples: one at a time, or one every frame_interval.",
    headline="p99 query latency (MLPerf: the early-stopping estimate); its slowest sample counts",
    params=MultiStreamParams,
    open_loop=lambda params: params.frame_interval_ns is not None,
    blocks=_blocks,
    warmup=_warmup,
    slots=lambda params: 1 if params.frame_interval_ns is None else None,
    size=_size,
    frame=_frame,
    labels=lambda params: ("sensor", "frame_set") if params.sensors else (),
)
