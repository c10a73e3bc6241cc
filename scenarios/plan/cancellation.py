"""Cancellation: a share of the queries dropped by us after a delay, as users do who close the tab.

Which queries, and after how long, is drawn before the run from the seed, each query by itself: one process or forty,
either engine and whoever reads the run afterwards come to the same ones. The chosen queries are left out of every
metric as a whole, whatever became of them, and the report counts them by how they ended.

``cancel: recorded`` drops those that a recording's clients gave up, as long after their start as they did.

A cancelled request has status CANCELLED and keeps what had come of its answer; HTTP/1.1 cancels by closing the
connection. The delay counts from the moment the request was taken up, as ``timeout`` does. The warm-up is not
cancelled.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from plimsoll.scenarios.plan.blocks import Extent
from plimsoll.scenarios.plan.plan import IntArray, Plan
from plimsoll.scenarios.plan.seeds import child, mixed
from plimsoll.scenarios.text.fields import STRICT, Duration


class UniformDelay(BaseModel):
    """Any delay from min to max, equally likely."""

    model_config = STRICT
    dist: Literal["uniform"]
    min_ns: Duration = Field(alias="min", ge=0)
    max_ns: Duration = Field(alias="max", gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_ns > self.max_ns:
            raise ValueError("min is above max. Swap them")
        return self


class ExponentialDelay(BaseModel):
    """As if each user's patience ran out at a constant rate."""

    model_config = STRICT
    dist: Literal["exponential"]
    mean_ns: Duration = Field(alias="mean", gt=0)


def _tag(value: Any) -> str | None:
    if isinstance(value, (UniformDelay, ExponentialDelay)):
        return f"<{value.dist}>"
    if isinstance(value, dict):
        return {"uniform": "<uniform>", "exponential": "<exponential>"}.get(str(value.get("dist")))
    return "<delay>"


Delay = Annotated[
    Annotated[Duration, Field(gt=0), Tag("<delay>")]
    | Annotated[UniformDelay, Tag("<uniform>")]
    | Annotated[ExponentialDelay, Tag("<exponential>")],
    Discriminator(
        _tag,
        custom_error_type="choice",
        custom_error_message="does not say its distribution. Give dist: one of uniform, exponential",
    ),
]


class CancelSection(BaseModel):
    """Drop a ``share`` of the queries ``after`` they were taken up; all samples of a query together."""

    model_config = STRICT
    share: float = Field(gt=0, le=1, description="Of the queries, each drawn by itself: 0.1 is about one in ten.")
    after: Delay = Field(description="500ms, {dist: uniform, min: 100ms, max: 2s} or {dist: exponential, mean: 500ms}.")

    def least_ns(self) -> int:
        """The shortest delay there can be."""
        if isinstance(self.after, UniformDelay):
            return self.after.min_ns
        return 0 if isinstance(self.after, ExponentialDelay) else self.after


def _written(value: Any) -> str:
    return "<recorded>" if isinstance(value, str) else "<cancel>"


#: What a scenario may say, and what comes of it: of a recording a delay for each query, looked up.
Cancel = Annotated[
    Annotated[CancelSection, Tag("<cancel>")] | Annotated[Literal["recorded"], Tag("<recorded>")],
    Discriminator(_written),
]
Section = CancelSection | Callable[[IntArray], IntArray]


def delays(section: Section, seed: int, query_ids: IntArray) -> IntArray:
    """int64[n]: after how many ns each of these queries is cancelled, -1 for those that are not.

    Depends on the id alone, not on its place or its neighbours. ``seed`` is the scenario's root seed.
    """
    if not isinstance(section, CancelSection):
        return section(query_ids)
    return drawn(section.share, section.after, seed, "cancel", query_ids)


def drawn(share: float, after: Any, seed: int, name: str, ids: IntArray) -> IntArray:
    """int64[n]: for a ``share`` of the ids a delay, -1 for the others; ``name`` is the draw's own."""
    chosen = _uniforms(child(seed, name), ids) < share
    u = _uniforms(child(seed, name, "after"), ids)
    if isinstance(after, UniformDelay):
        found = after.min_ns + u * (after.max_ns - after.min_ns)
    elif isinstance(after, ExponentialDelay):
        found = np.array([-math.log1p(-x) for x in u.tolist()], np.float64) * after.mean_ns
    else:
        found = np.full(len(ids), after, np.float64)
    return np.where(chosen, np.maximum(np.rint(found).astype(np.int64), 0), -1)


def rows(section: Section | None, seed: int, plan: Plan) -> IntArray | None:
    """The delays of a plan's rows (of a shard too), None without cancellation.

    A closed loop's queries take their row's.
    """
    if section is None:
        return None
    return delays(section, seed, plan.query_id)


def chosen(section: Section | None, seed: int, plan: Plan | Extent, query_ids: IntArray) -> npt.NDArray[np.bool_]:
    """bool[n]: which of these queries of the (whole) plan were to be cancelled."""
    if section is None:
        return np.zeros(len(query_ids), np.bool_)
    return np.asarray(delays(section, seed, query_ids % plan.n_queries if plan.cyclic else query_ids) >= 0)


def _uniforms(key: int, ids: IntArray) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each id."""
    return (mixed(key, ids) >> np.uint64(11)).astype(np.float64) * 2.0**-53
