"""Replay: requests come when they came. An open loop whose due times are a recording, faster or slower if asked.

``trace`` is a file (see ``scenarios/samples/traces.py`` for the formats) or a run directory, whose incident it repeats:
the same queries with the same samples at the same times. The window is cut by the recording's own time, then its first
request is put at 0 and every gap divided by ``speed``. With source ``trace`` of the same file request i has the lengths
and shared prefixes of row i; with any other source only the times are the recording's. The recording's length is the
run's: the minima of ``stop`` don't stretch it, ``max_queries`` cuts it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.loops import open_plan
from plimsoll.scenarios.plan.plan import IntArray, Plan, Stop
from plimsoll.scenarios.plan.sampling import choose, require_samples
from plimsoll.scenarios.plugins import Kind, Warmup
from plimsoll.scenarios.samples.traces import Columns, Format, Trace, Unit, read
from plimsoll.scenarios.text.fields import STRICT, Duration, FileName, format_duration

#: Fewer bytes than a request takes in any format: for an estimate without reading.
_BYTES_PER_REQUEST = 20


class Window(BaseModel):
    """A part of the recording, by its own time from its first request: start <= t < end."""

    model_config = STRICT
    start_ns: Duration = Field(default=0, alias="start")
    end_ns: Duration | None = Field(default=None, alias="end", description="null: to the end.")

    @model_validator(mode="after")
    def _ordered(self) -> Window:
        if self.end_ns is not None and self.end_ns <= self.start_ns:
            raise ValueError(
                f"end {format_duration(self.end_ns)} is not after start. Give a later end, or leave it out"
            )
        return self


class ReplayParams(BaseModel):
    """Which recording, which part of it, and how fast."""

    model_config = STRICT
    trace: FileName | None = Field(default=None, description="A trace file, or a run directory. Always needed.")
    format: Format = Field(default="auto", description="auto, mooncake, azure, jsonl, csv or run.")
    columns: Columns = Field(default_factory=Columns, description="Names of the columns, of formats jsonl and csv.")
    time_unit: Unit = Field(
        default="s", description="Unit of a time that is a number, of jsonl and csv: s, ms, us, ns."
    )
    speed: float = Field(default=1.0, gt=0, le=1_000_000, allow_inf_nan=False, description="2: twice as fast.")
    window: Window = Field(default_factory=Window, description="{start: 10m, end: 20m} of the recording.")


def _trace(params: ReplayParams) -> Trace:
    if params.trace is None:
        raise ValueError("params.trace is not given. Name the file or run directory to replay (--trace)")
    return read(Path(params.trace), "params.trace", params.format, params.columns, params.time_unit)


def _build(params: ReplayParams, stop: Stop, n_samples: int, seed: int) -> Plan:
    require_samples(n_samples)
    trace = _trace(params)
    payload = _payloads(trace, n_samples, seed)
    row = _within(trace, params.window)
    begins = np.flatnonzero(np.append(True, trace.query[row][1:] != trace.query[row][:-1]))
    if stop.max_queries is not None and len(begins) > stop.max_queries:
        row, begins = row[: begins[stop.max_queries]], begins[: stop.max_queries]
    at = trace.at_ns[row[begins]]
    n, sizes = len(begins), np.diff(np.append(begins, len(row)))
    return Plan(
        due_ns=np.rint((at - at[0]) / params.speed).astype(np.int64),
        query_id=np.arange(n),
        offsets=np.append(begins, len(row)),
        sample_ix=np.arange(len(row)) - np.repeat(begins, sizes),
        payload_ix=payload[row],
        after=np.full(n, -1),
        stop=replace(stop, min_queries=min(stop.min_queries, n), min_duration_ns=0),
        seed=seed,
        open_loop=True,
    )


def _within(trace: Trace, window: Window) -> IntArray:
    last = int(trace.at_ns[-1])
    end = last + 1 if window.end_ns is None else window.end_ns
    row = np.flatnonzero((trace.at_ns >= window.start_ns) & (trace.at_ns < end))
    if not len(row):
        raise ValueError(
            f"params.window holds no request: the recording lasts {last / 1e9:.6g} s. Give a part with some"
        )
    return row


def _payloads(trace: Trace, n_samples: int, seed: int) -> IntArray:
    """The sample of each row: what a run of ours sent, row by row of the same file, else at random."""
    if trace.payload_ix is not None:
        most = int(trace.payload_ix.max()) + 1
        if most > n_samples > 1:  # of one sample: somebody asks for times alone
            raise ValueError(
                f"the run that is replayed used {most} samples and the source has {n_samples}. Give it the source of "
                "that run"
            )
        return trace.payload_ix % n_samples
    return np.arange(len(trace)) if len(trace) == n_samples else choose("random", seed, len(trace), n_samples)


def _warmup(params: ReplayParams, warmup: Warmup) -> Plan:
    """Samples at random, evenly, at the mean rate of the part that is replayed."""
    plan = _build(params, Stop(1, 0), warmup.n_samples, warmup.seed)
    span = max(int(plan.due_ns[-1]), 1)
    n = max(1, min(plan.n_queries, round(plan.n_queries * warmup.duration_ns / span)))
    due = np.arange(n) * warmup.duration_ns // n - warmup.duration_ns
    return open_plan(due, choose("random", warmup.seed, n, warmup.n_samples), Stop(n, 0), warmup.seed)


def _size(params: ReplayParams, stop: Stop) -> int:
    path = Path(params.trace) if params.trace is not None else None
    file = path / "requests.parquet" if path is not None and path.is_dir() else path
    n = file.stat().st_size // _BYTES_PER_REQUEST if file is not None and file.is_file() else 0
    return n if stop.max_queries is None else min(n, stop.max_queries)


KIND = Kind(
    name="replay",
    summary="Open loop: due times from a trace file or a run directory, at any speed.",
    headline="the objectives, under load as it was",
    params=ReplayParams,
    open_loop=lambda params: True,
    blocks=lambda *given: iter((_build(*given),)),
    warmup=_warmup,
    slots=lambda params: None,
    whole=True,
    size=_size,
    sample_file='{"timestamp": 0, "input_length": 600, "output_length": 8, "hash_ids": [0, 1]}\n'
    '{"timestamp": 900, "input_length": 40, "output_length": 8, "hash_ids": [2]}\n'
    '{"timestamp": 2100, "input_length": 700, "output_length": 4, "hash_ids": [0, 3]}\n',
)
