"""Accuracy mode: a plan that issues every sample of the source exactly once, by the rule of its kind, in a seeded random order.

As MLPerf LoadGen's accuracy run: the same scenario, nothing about how long it should take. It compares nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel

from plimsoll.scenarios.kind import Kind
from plimsoll.scenarios.plan.plan import IntArray, Plan, Stop
from plimsoll.scenarios.plan.sampling import choose, require_samples
from plimsoll.scenarios.plan.seeds import child


def accuracy_plan(kind: Kind, params: BaseModel, stop: Stop, n_samples: int, seed: int) -> Plan:
    """The kind's own plan, cut to one pass over the source. Raises ``ValueError`` for a source without samples.

    A multi-stream's last query has what is left. Of the stop rule only ``max_duration`` stays: a run that takes longer than
    it is cut short, and says so.
    """
    require_samples(n_samples)
    once = Stop(n_samples, 0, stop.max_duration_ns, n_samples)
    plan = kind.build(_one_pass(params, n_samples), once, n_samples, seed)
    chosen = choose("permutation", child(seed, "accuracy"), n_samples, n_samples)
    if plan.open_loop and plan.n_samples == n_samples:
        return replace(plan, payload_ix=chosen, stop=once if plan.n_queries > 1 else replace(once, min_queries=1))
    return _cut(plan, chosen, once)


def _one_pass(params: BaseModel, n_samples: int) -> BaseModel:
    """Params that make no more samples than there are, and whose order is ours."""
    own: dict[str, Any] = {"samples": n_samples} if "samples" in type(params).model_fields else {}
    fields = type(params).model_fields
    if "order" in fields:
        own["order"] = fields["order"].default
    return params.model_copy(update=own)


def _cut(plan: Plan, chosen: IntArray, once: Stop) -> Plan:
    """As many rows, of as many samples each, as it takes."""
    per_query = int(plan.offsets[1])
    rows = -(-len(chosen) // per_query)
    offsets = np.minimum(np.arange(rows + 1) * per_query, len(chosen))
    return replace(
        plan,
        due_ns=plan.due_ns[:rows],
        query_id=np.arange(rows),
        offsets=offsets,
        sample_ix=np.arange(len(chosen)) % per_query,
        payload_ix=chosen,
        after=np.full(rows, -1),
        stop=replace(once, min_queries=rows, max_queries=rows),
    )
