"""Times between an answer and the next question: how they are written in a scenario and how they are drawn.

``200ms`` is always that; ``{dist: lognormal, mean: 8s, stdev: 6s}`` has the mean and standard deviation of the times
themselves. What is drawn outside [min, max] is put on the nearer limit.
"""

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.text.fields import MAX_NS, STRICT, Duration


class Drawn(BaseModel):
    """A distribution of times: ``uniform`` from min to max, else of this mean, cut to [min, max]."""

    model_config = STRICT
    dist: Literal["uniform", "exponential", "lognormal"]
    mean_ns: Duration = Field(default=0, alias="mean")
    stdev_ns: Duration = Field(default=0, alias="stdev")
    min_ns: Duration = Field(default=0, alias="min")
    max_ns: Duration = Field(default=MAX_NS, alias="max")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.min_ns > self.max_ns:
            raise ValueError("min is above max. Swap them")
        given = {"mean": self.mean_ns > 0, "stdev": self.stdev_ns > 0, "max": self.max_ns < MAX_NS}
        wanted = {"uniform": ("max",), "exponential": ("mean",), "lognormal": ("mean", "stdev")}[self.dist]
        if not all(given[name] for name in wanted) or any(given[name] for name in {"mean", "stdev"} - {*wanted}):
            raise ValueError(
                f"{self.dist} is drawn by its {' and '.join(wanted)}. Give that, and min and max as limits"
            )
        return self


def _tag(value: Any) -> str:
    if isinstance(value, (Drawn, dict)):
        return "<drawn>"
    return "<word>" if value in ("none", "recorded") else "<time>"


#: How long a user thinks: a duration, a distribution, ``none`` (no time at all), or ``recorded`` (as the data says).
Think = Annotated[
    Annotated[Literal["none", "recorded"], Tag("<word>")]
    | Annotated[Duration, Tag("<time>")]
    | Annotated[Drawn, Tag("<drawn>")],
    Discriminator(_tag),
]


def draw_think(think: int | str | Drawn, seed: int, n: int) -> IntArray:
    """int64[n]: ``n`` times in ns; 0 where there are none, or the data has them."""
    if not isinstance(think, Drawn):
        return np.full(n, think if isinstance(think, int) else 0, np.int64)
    rng = np.random.Generator(np.random.PCG64(seed))
    if think.dist == "uniform":
        return rng.integers(think.min_ns, think.max_ns, n, endpoint=True)
    if think.dist == "exponential":
        drawn = rng.exponential(think.mean_ns, n)
    else:
        sigma2 = math.log1p((think.stdev_ns / think.mean_ns) ** 2)
        drawn = rng.lognormal(math.log(think.mean_ns) - sigma2 / 2, math.sqrt(sigma2), n)
    return np.rint(np.clip(drawn, think.min_ns, think.max_ns)).astype(np.int64)
