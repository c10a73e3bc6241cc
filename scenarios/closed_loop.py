"""Closed-loop plans: a fixed number of slots and an endless list of rows; due means a slot is free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plimsoll.scenarios.kind import Warmup
from plimsoll.scenarios.plan.loadgen_samples import ROWS, OneSample, as_loadgen, draw
from plimsoll.scenarios.plan.plan import IntArray, Plan, Stop

#: Rows before a closed loop's list repeats, at least.
MIN_ROWS = 1024


def rows_for(stop: Stop, n_samples: int, order: OneSample = "random") -> int:
    """Rows of the list: enough for the minimum, for every sample once, and for ``MIN_ROWS`` (``ROWS`` of LoadGen's)."""
    return max(stop.min_queries, n_samples, MIN_ROWS if as_loadgen(order) is None else ROWS)


def closed_plan(payload_ix: IntArray, stop: Stop, seed: int, *, slots: int, per_query: int = 1) -> Plan:
    """A cyclic plan over these samples, ``per_query`` to a row."""
    rows = len(payload_ix) // per_query
    return Plan(
        due_ns=np.zeros(rows, dtype=np.int64),
        query_id=np.arange(rows),
        offsets=np.arange(0, rows * per_query + 1, per_query),
        sample_ix=np.tile(np.arange(per_query), rows),
        payload_ix=payload_ix,
        after=np.full(rows, -1),
        stop=stop,
        seed=seed,
        open_loop=False,
        cyclic=True,
        max_in_flight=slots,
    )


def single_sample_plan(order: OneSample, stop: Stop, n_samples: int, seed: int, *, slots: int) -> Plan:
    """A cyclic plan of one-sample queries. A permutation order gets whole passes: the repeat is equal too."""
    rows = rows_for(stop, n_samples, order)
    if order == "permutation":
        rows = -(-rows // max(n_samples, 1)) * n_samples
    return closed_plan(draw(order, seed, rows, n_samples, min_queries=stop.min_queries), stop, seed, slots=slots)


def warmup_stop(warmup: Warmup) -> Stop:
    """Run until t0; one query is enough."""
    return Stop(min_queries=1, min_duration_ns=warmup.duration_ns)


def before_t0(plan: Plan, warmup: Warmup) -> Plan:
    """The same plan, to begin at -duration instead of t0."""
    return replace(plan, due_ns=plan.due_ns - warmup.duration_ns)
