"""SingleStream: one query at a time, the next when the last is done. MLPerf's one-user scenario."""

from collections.abc import Iterator

from pydantic import BaseModel, Field

from plimsoll.scenarios.loops import closed_warmup, rows_for, single_sample_blocks
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.plan.sampling import SampleOrder
from plimsoll.scenarios.plugins import Kind
from plimsoll.scenarios.text.fields import STRICT


class SingleStreamParams(BaseModel):
    """Nothing to set but how samples are chosen."""

    model_config = STRICT
    order: SampleOrder = Field(
        default="random",
        description="random: with replacement; permutation: equal use of samples; loadgen or {process: loadgen, ...}.",
    )


def _blocks(params: SingleStreamParams, stop: Stop, n_samples: int, seed: int) -> Iterator[Plan]:
    return single_sample_blocks(params.order, stop, n_samples, seed, slots=1)


KIND = Kind(
    name="single_stream",
    summary="Closed loop: one query of one sample at a time.",
    headline="p90 latency (MLPerf: the early-stopping estimate)",
    params=SingleStreamParams,
    open_loop=lambda params: False,
    blocks=_blocks,
    warmup=closed_warmup(_blocks),
    slots=lambda params: 1,
    size=lambda params, stop: rows_for(stop, 1, params.order),
)
