"""Concurrency: a fixed number of queries always in flight, like that many users who never think.

A closed loop: a slow answer delays the next question, so stalls hide (coordinated omission). Use ``server``
to judge latency under a given load; use this to find throughput at a given concurrency.
"""

from collections.abc import Iterator

from pydantic import BaseModel, Field

from plimsoll.scenarios.loops import closed_warmup, rows_for, single_sample_blocks
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.plan.sampling import Order
from plimsoll.scenarios.plugins import Kind
from plimsoll.scenarios.text.fields import STRICT


class ConcurrencyParams(BaseModel):
    """``concurrency`` queries in flight at any moment."""

    model_config = STRICT
    concurrency: int = Field(default=8, ge=1, le=100_000, description="Queries in flight at any moment.")
    order: Order = Field(default="random", description="random: with replacement; permutation: equal use of samples.")


def _blocks(params: ConcurrencyParams, stop: Stop, n_samples: int, seed: int) -> Iterator[Plan]:
    return single_sample_blocks(params.order, stop, n_samples, seed, slots=params.concurrency)


KIND = Kind(
    name="concurrency",
    summary="Closed loop: a fixed number of queries in flight; the next starts when one ends.",
    headline="throughput at this concurrency",
    params=ConcurrencyParams,
    open_loop=lambda params: False,
    blocks=_blocks,
    warmup=closed_warmup(_blocks),
    slots=lambda params: int(params.concurrency),
    size=lambda params, stop: rows_for(stop, 1),
)
