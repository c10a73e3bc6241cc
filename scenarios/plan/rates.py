"""How a rate and an arrival process are written in a scenario, and what they become for
``plimsoll.scenarios.plan.arrival``.

A rate is a number of queries per second, ``{ramp: {from: 1, to: 50, over: 60s}}`` or
``{steps: [{rate: 5, for: 20s}, {rate: 50, for: 10s}, {rate: 5}]}``. An arrival process is a name, or
``{process: gamma, burstiness: 0.5}``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from plimsoll.scenarios.plan.arrival import Process, RateProfile, Segment, constant_rate
from plimsoll.scenarios.text.durations import Duration
from plimsoll.scenarios.text.strict import STRICT

PerSecond = Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False, description="Queries per second.")]
PositivePerSecond = Annotated[
    float, Field(ge=1e-6, le=10_000_000, allow_inf_nan=False, description="Queries per second.")
]


class Ramp(BaseModel):
    """A rate that goes linearly from one value to another, then holds the last."""

    model_config = STRICT
    start: PerSecond = Field(alias="from")
    to: PositivePerSecond
    over_ns: Duration = Field(alias="over", gt=0)


class RampRate(BaseModel):
    """``{ramp: {from, to, over}}``."""

    model_config = STRICT
    ramp: Ramp


class Step(BaseModel):
    """One rate, for a time. A rate of 0 is a pause."""

    model_config = STRICT
    rate: PerSecond
    for_ns: Duration | None = Field(default=None, alias="for", description="How long; not needed on the last step.")


class StepsRate(BaseModel):
    """``{steps: [{rate, for}, ...]}``: one after another; the last holds."""

    model_config = STRICT
    steps: tuple[Step, ...] = Field(strict=False, min_length=1, max_length=10_000)

    @model_validator(mode="after")
    def _whole(self) -> StepsRate:
        for i, step in enumerate(self.steps[:-1]):
            if not step.for_ns:
                raise ValueError(f"steps[{i}] does not say for how long. Add for: 10s (only the last may go without)")
        if self.steps[-1].rate <= 0:
            raise ValueError("the last step holds to the end of the run and has rate 0. Give it a rate above 0")
        return self


def _rate_tag(value: Any) -> str:
    if isinstance(value, RampRate) or (isinstance(value, dict) and "steps" not in value):
        return "<ramp>"
    if isinstance(value, (StepsRate, dict)):
        return "<steps>"
    return "<number>"


Rate = Annotated[
    Annotated[PositivePerSecond, Tag("<number>")]
    | Annotated[RampRate, Tag("<ramp>")]
    | Annotated[StepsRate, Tag("<steps>")],
    Discriminator(_rate_tag),
]


class Gamma(BaseModel):
    """Gamma gaps of mean 1/rate. Burstiness is the shape: 1 is Poisson, less is burstier, more smoother."""

    model_config = STRICT
    process: Literal["gamma"]
    burstiness: float = Field(default=1.0, ge=0.01, le=1_000_000, allow_inf_nan=False)


class Plain(BaseModel):
    """An arrival process that has nothing to set: the same as writing its name alone."""

    model_config = STRICT
    process: Process


def _arrival_tag(value: Any) -> str:
    if isinstance(value, Gamma) or (isinstance(value, dict) and value.get("process") == "gamma"):
        return "<gamma>"
    return "<plain>" if isinstance(value, (Plain, dict)) else "<name>"


Arrival = Annotated[
    Annotated[Process, Tag("<name>")] | Annotated[Plain, Tag("<plain>")] | Annotated[Gamma, Tag("<gamma>")],
    Discriminator(_arrival_tag),
]


def profile(rate: float | RampRate | StepsRate) -> RateProfile:
    """The rate as ``arrival`` wants it."""
    if isinstance(rate, RampRate):
        ramp = rate.ramp
        return RateProfile((Segment(ramp.start, ramp.to, ramp.over_ns),), ramp.to)
    if isinstance(rate, StepsRate):
        held = tuple(Segment(step.rate, step.rate, step.for_ns or 0) for step in rate.steps[:-1])
        return RateProfile(held, rate.steps[-1].rate)
    return constant_rate(rate)


def process(arrival: Process | Plain | Gamma) -> tuple[Process, float]:
    """(process, burstiness)."""
    if isinstance(arrival, Gamma):
        return "gamma", arrival.burstiness
    return (arrival.process if isinstance(arrival, Plain) else arrival), 1.0
