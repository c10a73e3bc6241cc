"""Replay: requests come when they came. An open loop whose due times are a recording, faster or slower if asked.

``trace`` is a file (see ``scenarios/samples/traces.py`` for the formats) or a run directory, whose incident it repeats:
the same queries with the same samples at the same times. The window is cut by the recording's own time, then its first
request is put at 0 and every gap divided by ``speed``. With source ``trace`` of the same file request i has the lengths
and shared prefixes of row i; with any other source only the times are the recording's. The recording's length is the
run's: the minima of ``stop`` don't stretch it, ``max_queries`` cuts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field, model_validator

from plimsoll.scenarios.loops import open_plan
from plimsoll.scenarios.plan.plan import BLOCK, IntArray, Plan, Stop
from plimsoll.scenarios.plan.sampling import choose, chosen, require_samples
from plimsoll.scenarios.plugins import Kind, Warmup
from plimsoll.scenarios.samples.recording import Recording, Trace
from plimsoll.scenarios.samples.traces import Columns, FormatName, Unit, read
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
    format: FormatName = Field(default="auto", description="auto, or a format of recordings.")
    columns: Columns = Field(default_factory=Columns, description="Names of the columns, of formats jsonl and csv.")
    time_unit: Unit = Field(
        default="s", description="Unit of a time that is a number, of jsonl and csv: s, ms, us, ns."
    )
    speed: float = Field(default=1.0, gt=0, le=1_000_000, allow_inf_nan=False, description="2: twice as fast.")
    window: Window = Field(default_factory=Window, description="{start: 10m, end: 20m} of the recording.")


#: A year. Due times hold some 292.
_LONGEST_NS = 365 * 86_400 * 10**9


def _blocks(params: ReplayParams, stop: Stop, n_samples: int, seed: int) -> Iterator[Plan]:
    require_samples(n_samples)
    if params.trace is None:
        raise ValueError("params.trace is not given. Name the file or run directory to replay (--trace)")
    recording = read(Path(params.trace), "params.trace", params.format, params.columns, params.time_unit)
    payloads = _payloads(recording, n_samples, seed)
    begin, end = _within(recording, params.window)
    n = _counted(recording, begin, end)
    n = n if stop.max_queries is None else min(n, stop.max_queries)
    stop = replace(stop, min_queries=min(stop.min_queries, n), min_duration_ns=0)
    made, first_ns = 0, int(recording.rows(begin, begin + 1).at_ns[0])
    lasts_ns = (int(recording.rows(end - 1, end).at_ns[0]) - first_ns) / params.speed
    if lasts_ns > _LONGEST_NS:
        raise ValueError(
            f"params.speed: at {params.speed:g} the recording lasts {lasts_ns / _LONGEST_NS:,.3g} years. Give a larger "
            "one, or a window of less than a year"
        )
    for row, rows, begins in recording.queries(begin, end, BLOCK):
        bounds = np.append(begins, len(rows))[: n - made + 1]
        begins, m = bounds[:-1], int(bounds[-1])
        at = rows.at_ns[begins]
        yield Plan(
            due_ns=np.rint((at - first_ns) / params.speed).astype(np.int64),
            query_id=np.arange(made, made + len(begins)),
            offsets=bounds,
            sample_ix=np.arange(m) - np.repeat(begins, np.diff(bounds)),
            payload_ix=payloads(row, rows, m),
            after=np.full(len(begins), -1),
            stop=stop,
            seed=seed,
            open_loop=True,
            check=False,
        )
        made += len(begins)
        if made >= n:
            return


@lru_cache(maxsize=1)  # whoever asks for a plan's first piece gets it without another pass
def _counted(recording: Recording, begin: int, end: int) -> int:
    """The queries of this part."""
    if not recording.grouped:
        return end - begin
    return sum(len(begins) for _, _, begins in recording.queries(begin, end, BLOCK))


def _within(recording: Recording, window: Window) -> tuple[int, int]:
    """Its rows: from, and to."""
    end = len(recording) if window.end_ns is None else recording.before(window.end_ns)
    begin = recording.before(window.start_ns)
    if begin >= end:
        raise ValueError(
            f"params.window holds no request: the recording lasts {recording.last_ns / 1e9:.6g} s. Give a part with "
            "some"
        )
    return begin, end


def _payloads(recording: Recording, n_samples: int, seed: int) -> Callable[[int, Trace, int], IntArray]:
    """The samples of the first so many of these rows, the first of which is number ``row``: what a run of ours sent,
    row by row of the same file, else at random.
    """
    if recording.grouped:
        most = recording.n_payloads
        if most > n_samples > 1:  # of one sample: somebody asks for times alone
            raise ValueError(
                f"the run that is replayed used {most} samples and the source has {n_samples}. Give it the source of "
                "that run"
            )
        return lambda row, rows, n: _sent(rows)[:n] % n_samples
    if len(recording) == n_samples:
        return lambda row, rows, n: np.arange(row, row + n)
    take, taken = chosen("random", seed, n_samples), 0

    def drawn(row: int, rows: Trace, n: int) -> IntArray:
        nonlocal taken
        while taken < row:  # what comes before the window is drawn too
            taken += len(take(min(BLOCK, row - taken)))
        taken += n
        return take(n)

    return drawn


def _sent(rows: Trace) -> IntArray:
    assert rows.payload_ix is not None  # a run has them
    return rows.payload_ix


def _warmup(params: ReplayParams, warmup: Warmup) -> Plan:
    """Samples at random, evenly, at the mean rate of the part that is replayed."""
    queries, last_ns = 0, 0
    for piece in _blocks(params, Stop(1, 0), warmup.n_samples, warmup.seed):
        queries, last_ns = queries + piece.n_queries, int(piece.due_ns[-1])
    n = max(1, min(queries, round(queries * warmup.duration_ns / max(last_ns, 1))))
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
    blocks=_blocks,
    warmup=_warmup,
    slots=lambda params: None,
    size=_size,
    sample_file='{"timestamp": 0, "input_length": 600, "output_length": 8, "hash_ids": [0, 1]}\n'
    '{"timestamp": 900, "input_length": 40, "output_length": 8, "hash_ids": [2]}\n'
    '{"timestamp": 2100, "input_length": 700, "output_length": 4, "hash_ids": [0, 3]}\n',
)
