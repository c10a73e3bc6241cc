"""The parts of a sweep's document, one class per key of ``sweep.json``. Schema ``plimsoll.sweep/1``.

Times are nanoseconds, rates per second, shares 0..1. An infinite number is null; so is every figure of a point that was not
run or whose runs are INVALID (see ``outcome``). Nothing is computed here.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.models.comparison_parts import FrontPart
from plimsoll.reports.parts.parts import Number, Text

SCHEMA: Final = "plimsoll.sweep/1"

#: SKIPPED: not run, because the series was saturated already. PENDING: the sweep was stopped before it.
PointOutcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID", "UNREACHABLE", "SKIPPED", "PENDING"]
Outcome = Literal["FOUND", "HOLDS", "FAIL", "INCONCLUSIVE", "INVALID", "UNREACHABLE", "MEASURED"]
Setting = int | float | str | bool


class MetricPart(BaseModel, frozen=True, extra="forbid"):
    """Percentiles of one indicator at one point: the median over its runs."""

    unit: str = "ns"
    p50: Number = None
    p90: Number = None
    p99: Number = None


class PromisePart(BaseModel, frozen=True, extra="forbid"):
    """One objective at one point; ``observed`` is the median over its runs."""

    objective: Text
    outcome: str
    observed: Number = None
    threshold: Number = None
    unit: str = ""
    indicator: str = ""
    statistic: str = ""
    operator: str = "<="


class SweepPoint(BaseModel, frozen=True, extra="forbid"):
    """One combination of settings. With several runs every figure is their median, and ``outcome`` is theirs if they agree."""

    settings: dict[str, Setting]
    x: float
    outcome: PointOutcome
    reasons: list[Text] = Field(default_factory=list)
    unstable: bool = Field(default=False, description="it did not keep up: its latencies depend on the run's length")
    offered_per_s: float | None = None
    achieved_per_s: float | None = Field(default=None, description="requests answered, over the span of the run")
    goodput_per_s: float | None = None
    good_fraction: float | None = None
    output_tokens_per_s: float | None = None
    completion: float | None = Field(default=None, description="share of the requests that were answered")
    pace: float | None = Field(default=None, description="answers over requests, each per second; at most 1")
    requests: int = Field(default=0, description="measured, over all runs")
    achieved_range: tuple[float, float] | None = Field(
        default=None, description="least and greatest run; null: one run"
    )
    metrics: dict[str, MetricPart] = Field(default_factory=dict)
    objectives: list[PromisePart] = Field(default_factory=list)
    runs: list[Text] = Field(default_factory=list, description="run directories, from this document's folder")

    @property
    def measured(self) -> bool:
        """Whether its latencies are those of an endpoint that kept up."""
        return self.outcome in ("PASS", "FAIL", "INCONCLUSIVE") and not self.unstable


class KneePart(BaseModel, frozen=True, extra="forbid"):
    """The greatest load that is answered (99 %), kept up with, and PASS."""

    x: float
    offered_per_s: float | None = None
    achieved_per_s: float | None = None
    goodput_per_s: float | None = None
    output_tokens_per_s: float | None = None
    completion: float | None = None
    most_x: float | None = Field(
        default=None, description="a lower load at which clearly more was answered; null: none"
    )
    most_per_s: float | None = Field(default=None, description="what was answered there")
    failed_below: list[float] = Field(default_factory=list, description="lower loads that fail all the same")


class CrossingPart(BaseModel, frozen=True, extra="forbid"):
    """Where the curve of one objective crosses its limit; null with the reason why nobody can say."""

    objective: Text
    x: float | None
    why: Text = ""


class AttainmentPart(BaseModel, frozen=True, extra="forbid"):
    """Where the share of good requests falls to ``target``, by straight lines between the points, as DistServe reads it."""

    x: float
    target: float
    method: str = "DistServe: linear interpolation of the attainment curve"


class LinePart(BaseModel, frozen=True, extra="forbid"):
    """Up to where the objectives hold. ``low``..``high`` is what was measured; ``interpolated`` lies in it and is a guess."""

    low: float | None = Field(description="the greatest load that passes below the first that fails; null: none")
    high: float | None = Field(description="the first load that fails; null: none")
    interpolated: float | None = Field(default=None, description="the first crossing of a limit by monotone cubics")
    by: Text = Field(default="", description="whose limit is crossed there")
    crossings: list[CrossingPart] = Field(default_factory=list)
    attainment: AttainmentPart | None = None
    undecided: list[float] = Field(default_factory=list, description="between low and high, and neither pass nor fail")
    passes_above: list[float] = Field(default_factory=list, description="beyond high, and pass all the same")


class BendPart(BaseModel, frozen=True, extra="forbid"):
    """The point furthest from the chord of a curve's ends: information, never a limit."""

    x: float
    of: str


class SeriesPart(BaseModel, frozen=True, extra="forbid"):
    """One curve: everything but x is fixed by ``settings``."""

    label: Text
    settings: dict[str, Setting]
    points: list[SweepPoint]
    knee: KneePart | None = None
    line: LinePart | None = Field(default=None, description="null: no objective was given")
    bend: BendPart | None = None
    saturated_at: float | None = Field(
        default=None, description="the first of two loads in a row at which it fell behind"
    )


class SweepReport(BaseModel, frozen=True, extra="forbid"):
    """The whole sweep."""

    schema_: Literal["plimsoll.sweep/1"] = Field(default=SCHEMA, alias="schema")
    name: Text
    outcome: Outcome
    variables: dict[str, list[Setting]]
    x: str
    objectives: list[Text] = Field(default_factory=list)
    repeats: int = 1
    series: list[SeriesPart]
    fronts: list[FrontPart] = Field(default_factory=list)
    warnings: list[Text] = Field(default_factory=list)
    exit_code: int
    plimsoll: Text = ""
    command: Text = ""
    started_at: Text = ""

    @property
    def points(self) -> list[SweepPoint]:
        """Of all series."""
        return [point for series in self.series for point in series.points]

    def document(self) -> dict[str, Any]:
        """Plain dicts and lists with the public key names."""
        return self.model_dump(mode="json", by_alias=True)
