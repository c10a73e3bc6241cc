"""Server: queries come when they come. An open loop that waits for no answer; MLPerf's Server scenario."""

from collections.abc import Iterator
from typing import Self

import numpy as np
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.loops import open_blocks, open_plan
from plimsoll.scenarios.plan.arrival import (
    Arrival,
    Rate,
    RateProfile,
    constant_rate,
    due_blocks,
    expected_queries,
    process,
    profile,
)
from plimsoll.scenarios.plan.plan import IntArray, Plan, Stop
from plimsoll.scenarios.plan.sampling import SampleOrder, draw, drawn
from plimsoll.scenarios.plan.seeds import child
from plimsoll.scenarios.plugins import Kind, Warmup
from plimsoll.scenarios.text.fields import STRICT


class ServerParams(BaseModel):
    """``rate`` in queries per second (a number, a ramp or steps) and the arrival process around it."""

    model_config = STRICT
    rate: Rate = Field(default=1.0, description="Queries per second: a number, {ramp: ...} or {steps: [...]}.")
    arrival: Arrival = Field(default="poisson", description="poisson, constant, loadgen, or {process: gamma, ...}.")
    order: SampleOrder = Field(
        default="random",
        description="random: with replacement; permutation: equal use of samples; loadgen or {process: loadgen, ...}.",
    )

    @model_validator(mode="after")
    def _loadgen_is_plain(self) -> Self:
        if process(self.arrival)[0] == "loadgen" and not isinstance(self.rate, (int, float)):
            raise ValueError("loadgen arrivals know only one constant rate. Give rate as a number, or use poisson")
        return self


def _blocks(params: ServerParams, stop: Stop, n_samples: int, seed: int) -> Iterator[Plan]:
    due = _arrivals(params, profile(params.rate), stop, seed)
    take = drawn(params.order, seed, n_samples, min_queries=stop.min_queries)
    return open_blocks(_first(due, stop.max_queries), take, stop, seed)


def _arrivals(params: ServerParams, rate: RateProfile, stop: Stop, seed: int) -> Iterator[IntArray]:
    name, burstiness = process(params.arrival)
    return due_blocks(
        name,
        rate,
        # LoadGen's schedule belongs to its seed: the root seed as it is, so published schedules come out.
        seed if name == "loadgen" else child(seed, "arrival"),
        min_queries=max(stop.min_queries, 1),
        min_duration_ns=stop.min_duration_ns,
        burstiness=burstiness,
    )


def _first(blocks: Iterator[IntArray], most: int | None) -> Iterator[IntArray]:
    left = most
    for due in blocks:
        yield due[:left]
        if left is not None:
            left -= len(due)
            if left <= 0:
                return


def _warmup(params: ServerParams, warmup: Warmup) -> Plan:
    """The same arrivals at the rate the profile starts with, due in [-duration, 0)."""
    rate = constant_rate(profile(params.rate).initial)
    due = np.concatenate([*_arrivals(params, rate, Stop(1, warmup.duration_ns), warmup.seed)])
    early = due[due < warmup.duration_ns] - warmup.duration_ns
    stop = Stop(len(early), 0)
    chosen = draw(params.order, warmup.seed, len(early), warmup.n_samples, min_queries=stop.min_queries)
    return open_plan(early, chosen, stop, warmup.seed)


def _size(params: ServerParams, stop: Stop) -> int:
    n = expected_queries(profile(params.rate), stop.min_queries, stop.min_duration_ns)
    return n if stop.max_queries is None else min(n, stop.max_queries)


KIND = Kind(
    name="server",
    summary="Open loop: queries are due at random or fixed times and wait for nobody. Latency is from due.",
    headline="the highest rate that still meets the objectives",
    params=ServerParams,
    open_loop=lambda params: True,
    blocks=_blocks,
    warmup=_warmup,
    slots=lambda params: None,
    size=_size,
)
