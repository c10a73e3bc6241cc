"""Distributions of lengths (tokens or bytes): how they are written in a scenario and how they are drawn.

A plain number is a fixed length. ``{dist: lognormal, mean: 200, stdev: 100, min: 8, max: 2000}``: mean and
standard deviation are those of the lengths themselves, not of their logarithms. Draws are rounded to whole
numbers; one outside [min, max] is drawn again up to 64 times and then put on the nearer limit. Narrow limits
therefore move the mean: it is the untruncated distribution that has the mean asked for.
"""

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.text.fields import STRICT

MAX_LENGTH = 10_000_000
REDRAWS = 64

_BRANCHES = {"fixed": "<fixed>", "uniform": "<uniform>", "normal": "<spread>", "lognormal": "<spread>"}

Whole = Annotated[int, Field(ge=1, le=MAX_LENGTH)]
Positive = Annotated[float, Field(gt=0, le=MAX_LENGTH, allow_inf_nan=False)]


class Fixed(BaseModel):
    """Every length the same."""

    model_config = STRICT
    dist: Literal["fixed"]
    value: Whole


class Uniform(BaseModel):
    """Whole numbers from min to max, both included, equally likely."""

    model_config = STRICT
    dist: Literal["uniform"]
    min: Whole
    max: Whole

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_limits(self.min, self.max)
        return self


class Spread(BaseModel):
    """A normal or lognormal distribution, cut to [min, max]."""

    model_config = STRICT
    dist: Literal["normal", "lognormal"]
    mean: Positive
    stdev: float = Field(ge=0, le=MAX_LENGTH, allow_inf_nan=False)
    min: Whole = 1
    max: Whole = MAX_LENGTH

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_limits(self.min, self.max)
        if not self.min <= self.mean <= self.max:
            raise ValueError(f"mean {self.mean} is not between min {self.min} and max {self.max}. Widen the limits")
        return self


def _check_limits(low: int, high: int) -> None:
    if low > high:
        raise ValueError(f"min {low} is above max {high}. Swap them")


def _tag(value: Any) -> str | None:
    if isinstance(value, (Fixed, Uniform, Spread)):
        value = {"dist": value.dist}
    if isinstance(value, dict):
        return _BRANCHES.get(str(value.get("dist")))
    return "<number>"


Length = Annotated[
    Annotated[Whole, Tag("<number>")]
    | Annotated[Fixed, Tag("<fixed>")]
    | Annotated[Uniform, Tag("<uniform>")]
    | Annotated[Spread, Tag("<spread>")],
    Discriminator(
        _tag,
        custom_error_type="choice",
        custom_error_message=f"does not say its distribution. Give dist: one of {', '.join(_BRANCHES)}",
    ),
]


def draw_lengths(length: int | Fixed | Uniform | Spread, seed: int, n: int) -> IntArray:
    """``n`` lengths, whole numbers of at least 1."""
    rng = np.random.Generator(np.random.PCG64(seed))
    if isinstance(length, Uniform):
        return rng.integers(length.min, length.max, n, endpoint=True)
    if not isinstance(length, Spread):
        return np.full(n, length.value if isinstance(length, Fixed) else length, dtype=np.int64)
    drawn = np.rint(_spread(length, rng, n))
    for _ in range(REDRAWS):
        outside = np.flatnonzero((drawn < length.min) | (drawn > length.max))
        if not len(outside):
            break
        drawn[outside] = np.rint(_spread(length, rng, len(outside)))
    return np.clip(drawn, length.min, length.max).astype(np.int64)


def _spread(length: Spread, rng: np.random.Generator, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if length.dist == "normal":
        return rng.normal(length.mean, length.stdev, n)
    # mean = exp(mu + sigma^2/2) and variance = (exp(sigma^2) - 1) * mean^2, solved for mu and sigma.
    sigma2 = math.log1p((length.stdev / length.mean) ** 2)
    return rng.lognormal(math.log(length.mean) - sigma2 / 2, math.sqrt(sigma2), n)
