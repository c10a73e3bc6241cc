"""MultiStream: one query of several samples at a time, done when its last sample is. MLPerf's scenario."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, Field

from scenarios.closed_loop import before_t0, closed_plan, rows_for, warmup_stop
from scenarios.kind import Kind, Warmup
from scenarios.loadgen_samples import StartOrder, as_loadgen, loaded_set, places
from scenarios.plan import Plan, Stop
from scenarios.sampling import choose, require_samples
from scenarios.strict import STRICT


class MultiStreamParams(BaseModel):
    """``samples_per_query`` samples go out together (8 in MLPerf)."""

    model_config = STRICT
    samples_per_query: int = Field(default=8, ge=1, le=10_000, description="Samples in one query.")
    order: StartOrder = Field(
        default="random", description="Where queries begin: random, loadgen or {process: loadgen, ...}."
    )


def _build(params: MultiStreamParams, stop: Stop, n_samples: int, seed: int) -> Plan:
    """As LoadGen: a random start and the samples that follow it, wrapping round at the end of the set."""
    require_samples(n_samples)
    per_query, own = params.samples_per_query, as_loadgen(params.order)
    rows = rows_for(stop, n_samples, params.order)
    if own is None:
        starts, samples = choose("random", seed, rows, n_samples), np.arange(n_samples)
    else:
        starts = places(own, rows, n_samples, min_queries=stop.min_queries, per_query=per_query)
        samples = loaded_set(own, n_samples)
    payload_ix = samples[(starts[:, None] + np.arange(per_query)) % n_samples]
    return closed_plan(payload_ix.ravel(), stop, seed, slots=1, per_query=per_query)


def _warmup(params: MultiStreamParams, warmup: Warmup) -> Plan:
    return before_t0(_build(params, warmup_stop(warmup), warmup.n_samples, warmup.seed), warmup)


KIND = Kind(
    name="multi_stream",
    summary="Closed loop: one query of several contiguous samples at a time.",
    headline="p99 query latency (MLPerf: the early-stopping estimate); its slowest sample counts",
    params=MultiStreamParams,
    open_loop=False,
    build=_build,
    warmup=_warmup,
    slots=lambda params: 1,
    size=lambda params, stop: rows_for(stop, 1, params.order) * int(params.samples_per_query),
)
