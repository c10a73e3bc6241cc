"""Offline: everything is due at once. One query with all samples; MLPerf's scenario for batch throughput.

``rest_of`` goes on with a run that was cut short: the samples that got no answer there, and no other.
"""

from collections.abc import Iterator
from dataclasses import replace
from operator import not_
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.loops import before_t0, closed_plan, open_plan
from plimsoll.scenarios.plan.plan import BLOCK, IntArray, Plan, Stop
from plimsoll.scenarios.plan.sampling import FillOrder, as_loadgen, loaded_set, require_samples
from plimsoll.scenarios.plugins import Kind, Warmup
from plimsoll.scenarios.samples.recording import OK
from plimsoll.scenarios.samples.traces import read
from plimsoll.scenarios.text.document import ScenarioError
from plimsoll.scenarios.text.fields import STRICT, FileName

#: A warm-up sends at most this many samples.
WARMUP_SAMPLES = 8


class OfflineParams(BaseModel):
    """How many samples, and how many of them may be on the wire at once.

    Without ``samples`` their number is LoadGen's: max(min_queries, trunc(1.1 * min_duration *
    expected_rate)), enough to keep an endpoint that does ``expected_rate`` samples per second busy for the
    minimum duration. Every sample is due at 0 however long it waits for its turn on the wire.
    """

    model_config = STRICT
    samples: int | None = Field(default=None, ge=1, description="Samples in the one query; overrides the stop rule.")
    expected_rate: float = Field(default=1.0, gt=0, le=10_000_000, description="Samples per second you expect.")
    max_in_flight: int = Field(default=512, ge=1, le=100_000, description="Samples on the wire at once, at most.")
    order: FillOrder = Field(
        default="in_turn", description="in_turn: the set as it is; loadgen or {process: loadgen, ...}."
    )
    rest_of: FileName | None = Field(
        default=None, exclude_if=not_, description="A run directory: only the samples that got no answer there."
    )

    @model_validator(mode="after")
    def _one_choice_of_samples(self) -> Self:
        if self.rest_of is not None and (self.samples is not None or self.order != "in_turn"):
            raise ValueError("rest_of says which samples are sent, and in which order. Take samples and order out")
        return self


def _rest(run: str) -> IntArray:
    """int64[n]: the samples of that run without an answer. Raises ScenarioError, also where there is none."""
    recording = read(Path(run), "params.rest_of", "run")
    left = [np.empty(0, np.int64)]
    for begin in range(0, len(recording), BLOCK):
        sent = recording.rows(begin, begin + BLOCK).payload_ix
        if sent is not None and recording.knows("status"):
            left.append(sent[recording.column("status", begin, begin + BLOCK) != OK])
    if not (found := np.concatenate(left)).size:
        raise ScenarioError([f"params.rest_of: every sample of {run} was answered. Nothing is left to send."])
    return found


def _samples(params: OfflineParams, stop: Stop) -> int:
    if params.rest_of is not None:
        return len(_rest(params.rest_of))
    if params.samples is not None:
        return params.samples
    # In doubles, in this order: LoadGen's own arithmetic. At 0.7/s and 600 s it makes 461 of what is 462 exactly.
    expected = 1.1 * (stop.min_duration_ns / 1_000_000_000) * params.expected_rate
    return max(stop.min_queries, int(expected), 1)


def _blocks(params: OfflineParams, stop: Stop, n_samples: int, seed: int) -> Iterator[Plan]:
    require_samples(n_samples)
    rest = None if params.rest_of is None else _rest(params.rest_of)
    n = _samples(params, stop) if rest is None else len(rest)
    own = as_loadgen(params.order)
    samples = np.arange(n_samples) if own is None else loaded_set(own, n_samples)
    one_query = replace(stop, min_queries=1, max_queries=None)  # as LoadGen sets it
    if rest is not None:
        one_query = replace(one_query, min_duration_ns=0)
        if rest.max() >= n_samples > 1:  # of one sample: somebody asks for times alone
            raise ValueError(f"params.rest_of: that run had more samples than these {n_samples}. Give its own source")
        samples, n_samples = rest % n_samples, n
    for begin in range(0, n, BLOCK):
        at = np.arange(begin, min(begin + BLOCK, n))
        plan = open_plan(np.zeros(1, np.int64), samples[at % n_samples], one_query, seed, per_query=len(at))
        yield replace(plan, sample_ix=at, max_in_flight=params.max_in_flight)


def _warmup(params: OfflineParams, warmup: Warmup) -> Plan:
    """A handful of samples, one at a time in each worker."""
    require_samples(warmup.n_samples)
    n = max(WARMUP_SAMPLES, warmup.workers)
    stop = Stop(min_queries=n, min_duration_ns=0, max_queries=n, max_duration_ns=warmup.duration_ns)
    plan = closed_plan(np.arange(n) % warmup.n_samples, stop, warmup.seed, slots=warmup.workers)
    return before_t0(plan, warmup)


KIND = Kind(
    name="offline",
    summary="One query with all samples, all due at the start.",
    headline="samples (and tokens) per second until the last sample is done",
    params=OfflineParams,
    open_loop=lambda params: True,
    blocks=_blocks,
    warmup=_warmup,
    slots=lambda params: int(params.max_in_flight),
    size=_samples,
    one_query=True,
    aliases={"rate": "expected_rate"},
)
