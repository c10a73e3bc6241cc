"""The data of charts: frozen parts of a report, by the conventions of ``plimsoll.reports.parts.parts``, each of bounded size. Draws nothing."""

from __future__ import annotations

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Number


class Curve(BaseModel, frozen=True, extra="forbid"):
    """Exact quantiles of one indicator: ``value[i]`` is the nearest-rank quantile at ``q[i]``; null is
    infinite.
    """

    unit: str = "ns"
    n: int
    failed: int = 0
    q: list[float]
    value: list[Number]


class Distribution(BaseModel, frozen=True, extra="forbid"):
    """A histogram: ``counts[i]`` values lie in [edges[i], edges[i+1]); ``infinite`` more have no finite
    value.
    """

    unit: str = "ns"
    n: int
    edges: list[float]
    counts: list[int]
    infinite: int = 0


class Band(BaseModel, frozen=True, extra="forbid"):
    """Median and 99th percentile per bucket; null: no request, or the percentile is a failed one (see due)."""

    p50: list[Number]
    p99: list[Number]


class LagBand(BaseModel, frozen=True, extra="forbid"):
    """Schedule lag per bucket, in nanoseconds."""

    p50: list[int | None]
    p99: list[int | None]
    max: list[int | None]


class Timeline(BaseModel, frozen=True, extra="forbid"):
    """The run in buckets of ``bucket_ns``; bucket i starts at ``start_ns + i * bucket_ns`` after t0.

    Requests are put in the bucket they were due in, except ``completed_per_s`` and ``errors_per_s`` (the
    bucket they ended in), ``sent_per_s`` (sent in) and tokens (arrived in). The last bucket may be partial;
    its rates are over the part that lies inside the run.
    """

    bucket_ns: int
    start_ns: int
    end_ns: int
    due: list[int]
    planned_per_s: list[float]
    sent_per_s: list[float]
    completed_per_s: list[float]
    errors_per_s: list[float]
    in_flight_max: list[int]
    in_flight_mean: list[float]
    output_tokens_per_s: list[float] | None = None
    bands: dict[str, Band] = Field(default_factory=dict)
    lag: LagBand


class Heatmap(BaseModel, frozen=True, extra="forbid"):
    """``counts[row][column]`` requests had a value in [edges[row], edges[row + 1]) and were due in column ``column``,
    which begins at ``start_ns + column * column_ns`` after t0; ``failed[column]`` more failed. A null percentile: the column
    is empty, or a failure is that percentile.
    """

    metric: str
    unit: str = "ns"
    column_ns: int
    start_ns: int
    end_ns: int
    n: int
    edges: list[float]
    counts: list[list[int]]
    failed: list[int]
    p50: list[Number]
    p99: list[Number]


class PromptBin(BaseModel, frozen=True, extra="forbid"):
    """Requests whose prompt had ``low`` to ``high`` input tokens, both included; a null percentile is a failed one."""

    low: int
    high: int
    n: int
    failed: int = 0
    p50: Number = None
    p90: Number = None
    p99: Number = None


class ByPrompt(BaseModel, frozen=True, extra="forbid"):
    """One metric by prompt length. ``points``: (input tokens, value) of some requests, evenly taken in order of due time,
    and of the slowest of each bin.
    """

    metric: str
    unit: str = "ns"
    n: int
    unknown: int = Field(default=0, description="measured requests whose prompt length nobody told")
    planned: bool = Field(default=False, description="lengths are the plan's, because the server counted none")
    bins: list[PromptBin]
    points: list[tuple[int, Number]]


class Charts(BaseModel, frozen=True, extra="forbid"):
    """The data of every chart, of bounded size."""

    curves: dict[str, Curve] = Field(default_factory=dict)
    distributions: dict[str, Distribution] = Field(default_factory=dict)
    timeline: Timeline | None = None
    heatmap: Heatmap | None = None
    by_prompt: ByPrompt | None = None
