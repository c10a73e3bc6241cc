"""Server: queries come when they come. An open loop that waits for no answer; MLPerf's Server scenario."""

from __future__ import annotations

from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.loops import open_plan
from plimsoll.scenarios.plan.arrival import (
    Arrival,
    Rate,
    RateProfile,
    constant_rate,
    due_times,
    expected_queries,
    process,
    profile,
)
from plimsoll.scenarios.plan.plan import IntArray, Plan, Stop
from plimsoll.scenarios.plan.sampling import OneSample, SampleOrder, draw
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
    def _loadgen_is_plain(self) -> ServerParams:
        if process(self.arrival)[0] == "loadgen" and not isinstance(self.rate, (int, float)):
            raise ValueError("loadgen arrivals know only one constant rate. Give rate as a number, or use poisson")
        return self


def _build(params: ServerParams, stop: Stop, n_samples: int, seed: int) -> Plan:
    due = _arrivals(params, profile(params.rate), stop, seed)
    return _open_plan(due[: stop.max_queries], params.order, stop, n_samples, seed)


def _arrivals(params: ServerParams, rate: RateProfile, stop: Stop, seed: int) -> IntArray:
    name, burstiness = process(params.arrival)
    return due_times(
        name,
        rate,
        # LoadGen's schedule belongs to its seed: the root seed as it is, so published schedules come out.
        seed if name == "loadgen" else child(seed, "arrival"),
        min_queries=max(stop.min_queries, 1),
        min_duration_ns=stop.min_duration_ns,
        burstiness=burstiness,
    )


def _open_plan(due: IntArray, order: OneSample, stop: Stop, n_samples: int, seed: int) -> Plan:
    return open_plan(due, draw(order, seed, len(due), n_samples, min_queries=stop.min_queries), stop, seed)


def _warmup(params: ServerParams, warmup: Warmup) -> Plan:
    """The same arrivals at the rate the profile starts with, due in [-duration, 0)."""
    rate = constant_rate(profile(params.rate).initial)
    due = _arrivals(params, rate, Stop(1, warmup.duration_ns), warmup.seed)
    early = due[due < warmup.duration_ns] - warmup.duration_ns
    return _open_plan(early, params.order, Stop(len(early), 0), warmup.n_samples, warmup.seed)


def _size(params: ServerParams, stop: Stop) -> int:
    n = expected_queries(profile(params.rate), stop.min_queries, stop.min_duration_ns)
    return n if stop.max_queries is None else min(n, stop.max_queries)


KIND = Kind(
    name="server",
    summary="Open loop: queries are due at random or fixed times and wait for nobody. Latency is from due.",
    headline="the highest rate that still meets the objectives",
    params=ServerParams,
    open_loop=lambda params: True,
    build=_build,
    warmup=_warmup,
    slots=lambda params: None,
    size=_size,
)
