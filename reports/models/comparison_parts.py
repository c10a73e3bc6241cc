"""The parts of a comparison's document, one class per key of ``comparison.json``. Schema ``plimsoll.comparison/1``.

Times are integer nanoseconds, rates per second, shares 0..1. An infinite number is null, as in ``report.json``; where a
null means "no data" the ``missing`` beside it is true. ``build`` gathers them from a comparison and decides nothing.
"""

import math
from collections.abc import Sequence
from operator import not_
from typing import Any, Final, Literal

import numpy as np
from pydantic import BaseModel, Field

from plimsoll.reports.parts.charts import number
from plimsoll.reports.parts.parts import Number, Result, Text, part
from plimsoll.slo.comparison.arms import PROFILE_Q, Arm
from plimsoll.slo.comparison.compare import Comparison, Effect, FalseAlarms, Outcome
from plimsoll.slo.comparison.effects import Method
from plimsoll.slo.comparison.tiers import Cost, Placed, Ranking
from plimsoll.slo.metrics.indicator import catalogue

SCHEMA: Final = "plimsoll.comparison/1"


class RunPart(BaseModel, frozen=True, extra="forbid"):
    """One run of an arm."""

    run: Text = ""
    pair: int | None = None
    directory: Text = ""
    plan: Text = ""
    requests: int = 0
    failed: int = 0
    span_ns: int = Field(default=0, description="how long its load took; 0: unknown")
    reasons: list[Text] = Field(default_factory=list, description="why the run is INVALID")
    unstable: Text | None = None
    server: dict[str, float] = Field(
        default_factory=dict,
        description="what its server said of itself, by quantity; absent: not measured",
        exclude_if=not_,
    )


class ProfilePart(BaseModel, frozen=True, extra="forbid"):
    """One indicator of an arm by percentile: median, least and greatest over its runs; null where failed."""

    unit: str
    q: list[float]
    middle: list[Number]
    low: list[Number]
    high: list[Number]


class ArmPart(BaseModel, frozen=True, extra="forbid"):
    """One arm and its runs."""

    name: Text
    runs: list[RunPart]
    profiles: dict[str, ProfilePart] = Field(default_factory=dict)


class OneRunPart(BaseModel, frozen=True, extra="forbid"):
    """What a single pair of runs says of itself, blind to how runs differ."""

    interval: tuple[Number, Number]
    p: float
    base_over: int
    base_n: int
    candidate_over: int
    candidate_n: int


class EffectPart(BaseModel, frozen=True, extra="forbid"):
    """One quantity, candidate against base."""

    quantity: str
    unit: str
    better: Literal["lower", "higher"]
    scale: Literal["ratio", "difference"]
    missing: bool
    base: Number
    candidate: Number
    base_values: list[Number]
    candidate_values: list[Number]
    effect: Number = Field(description="candidate / base, or candidate - base of a share")
    interval: tuple[Number, Number]
    tolerance: float
    p: float
    adjusted_p: float
    bh_p: float
    outcome: Outcome
    why: Text
    finding: Text = ""
    method: Method
    runs_needed: int
    one_run: OneRunPart | None = None


class CandidatePart(BaseModel, frozen=True, extra="forbid"):
    """One candidate against the base."""

    name: Text
    outcome: Outcome
    reasons: list[Text]
    paired: bool
    family: int = Field(default=1, description="so many intervals and adjusted p hold together at the confidence")
    effects: list[EffectPart]


class PlacePart(BaseModel, frozen=True, extra="forbid"):
    """One arm's place in a ranking."""

    name: Text
    tier: int
    last: int = Field(default=0, description="the lowest tier that would contradict no pair; 0: not said")
    value: Number
    values: list[Number]


class PairingPart(BaseModel, frozen=True, extra="forbid"):
    """Two arms of a ranking, the second against the first, judged as a candidate is against a base."""

    first: Text
    second: Text
    effect: Number
    interval: tuple[Number, Number]
    adjusted_p: float
    outcome: Outcome


class RankingPart(BaseModel, frozen=True, extra="forbid"):
    """Arms from best to worst in tiers that follow from ``pairings``: of one tier no two are told apart."""

    quantity: str
    unit: str
    better: Literal["lower", "higher"]
    places: list[PlacePart]
    pairings: list[PairingPart] = Field(default_factory=list)
    overlaps: list[tuple[Text, Text]] = Field(
        description="in different tiers, and not told apart; the lower one second"
    )
    because: list[Text] = Field(
        default_factory=list, description="of each overlap, who was shown to be better than the lower one"
    )
    circles: list[tuple[Text, Text]] = Field(
        default_factory=list, description="told apart, but in one tier: others between them are the other way round"
    )
    excluded: list[tuple[Text, Text]]
    runs_needed: int


class CostPart(BaseModel, frozen=True, extra="forbid"):
    """Price of a million; null: infinite."""

    name: Text
    per: str
    price_per_hour: float
    per_s: float
    value: Number
    interval: tuple[Number, Number]


class PointPart(BaseModel, frozen=True, extra="forbid"):
    """One setting on a Pareto chart: medians, and the range of its runs."""

    name: Text
    arm: Text
    x: float
    y: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    dominated_by: Text
    shown: bool


class FrontPart(BaseModel, frozen=True, extra="forbid"):
    """A Pareto chart."""

    title: Text
    x_name: Text
    y_name: Text
    x_better: Literal["lower", "higher"] = "higher"
    y_better: Literal["lower", "higher"] = "higher"
    points: list[PointPart]


class FalseAlarmPart(BaseModel, frozen=True, extra="forbid"):
    """A/A: how often splits of one arm's runs end in a REGRESSION."""

    runs: int
    per_arm: int
    splits: int
    alarms: int
    undecided: int
    rate: Number
    interval: tuple[float, float]
    every: bool
    expected: float
    in_order: Outcome
    in_turn: Outcome


class ComparisonReport(Result, frozen=True):
    """The whole comparison."""

    schema_: Literal["plimsoll.comparison/1"] = Field(default=SCHEMA, alias="schema")
    title: Text = ""
    outcome: Outcome
    exit_code: int
    base: ArmPart
    arms: list[ArmPart]
    candidates: list[CandidatePart]
    tolerance: float
    share_tolerance: float
    confidence: float
    single_run: bool
    proof: bool
    rankings: list[RankingPart] = Field(
        default_factory=list, description="of a bake-off; the first one names the outcome"
    )
    costs: list[CostPart] = Field(default_factory=list)
    currency: Text = Field(default="", description="of every cost; empty: there is none")
    fronts: list[FrontPart] = Field(default_factory=list)
    false_alarms: FalseAlarmPart | None = None
    warnings: list[Text] = Field(default_factory=list)
    plimsoll: Text = ""
    command: Text = ""
    started_at: Text = ""


class LevelPart(BaseModel, frozen=True, extra="forbid"):
    """One load of a bake-off. ``passed``: of each arm, how many of its runs are PASS."""

    level: Text
    sound: bool = Field(description="no run is INVALID, and every endpoint kept up")
    passed: dict[Text, int]
    rankings: list[RankingPart]
    comparison: ComparisonReport


class BakeoffReport(ComparisonReport, frozen=True, extra="forbid"):
    """A whole bake-off: every load, and beside them the comparison at the load that decides."""

    schema_: Literal["plimsoll.bakeoff/1"] = Field(default="plimsoll.bakeoff/1", alias="schema")  # type: ignore[assignment]
    name: Text
    deciding_level: Text | None = Field(description="null: no load at which a ranking means anything")
    levels: list[LevelPart]


def json_schema() -> dict[str, Any]:
    """JSON schema of ``comparison.json``."""
    schema = ComparisonReport.model_json_schema(by_alias=True, mode="serialization")
    schema["$id"] = SCHEMA
    return schema


def build(
    comparison: Comparison,
    base: Arm,
    candidates: Sequence[Arm],
    *,
    title: str = "",
    rankings: Sequence[Ranking] = (),
    costs: Sequence[Cost] = (),
    currency: str = "",
    fronts: Sequence[FrontPart] = (),
    false_alarms: FalseAlarms | None = None,
    warnings: Sequence[str] = (),
    plimsoll: str = "",
    command: str = "",
    started_at: str = "",
    exit_code: int | None = None,
) -> ComparisonReport:
    """Gather all that a renderer may show. ``exit_code``: None for the comparison's own (a bake-off has another)."""
    return part(
        ComparisonReport,
        comparison,
        title=title or " v ".join([*(arm.name for arm in candidates), base.name]),
        exit_code=comparison.exit_code if exit_code is None else exit_code,
        base=_arm(base),
        arms=[_arm(arm) for arm in candidates],
        candidates=[
            part(CandidatePart, one, effects=[_effect(e) for e in one.effects]) for one in comparison.candidates
        ],
        rankings=[ranking_part(ranking) for ranking in rankings],
        costs=[_cost(cost) for cost in costs],
        currency=currency if costs else "",
        fronts=list(fronts),
        false_alarms=None if false_alarms is None else false_alarm_part(false_alarms),
        warnings=[*comparison.warnings, *warnings],
        plimsoll=plimsoll,
        command=command,
        started_at=started_at,
    )


def _arm(arm: Arm) -> ArmPart:
    names = dict.fromkeys(name for run in arm.runs for name in run.profiles)
    profiles = {name: made for name in names if (made := _profile(arm, name)) is not None}
    return ArmPart(name=arm.name, runs=[part(RunPart, run) for run in arm.runs], profiles=profiles)


def _profile(arm: Arm, name: str) -> ProfilePart | None:
    unit = catalogue()[name].unit if name in catalogue() else "1"
    table = np.array([run.profiles[name] for run in arm.runs if name in run.profiles], np.float64)
    known = np.asarray(~np.isnan(table).any(axis=0), np.bool_)  # as far up as every run goes
    if table.size == 0 or not known.any():
        return None
    table = table[:, known]
    middle, low, high = (
        [number(v, unit) for v in column.tolist()]
        for column in (np.median(table, axis=0), table.min(axis=0), table.max(axis=0))
    )
    q = [share for share, use in zip(PROFILE_Q, known.tolist(), strict=True) if use]
    return ProfilePart(unit=unit, q=q, middle=middle, low=low, high=high)


def _effect(effect: Effect) -> EffectPart:
    unit, one = effect.quantity.unit, effect.one_run
    return part(
        EffectPart,
        effect,
        effect.quantity,
        quantity=str(effect.quantity),
        missing=math.isnan(effect.base) or math.isnan(effect.candidate),
        base=number(effect.base, unit),
        candidate=number(effect.candidate, unit),
        base_values=[number(v, unit) for v in effect.base_values],
        candidate_values=[number(v, unit) for v in effect.candidate_values],
        effect=number(effect.effect, "1"),
        interval=_bounds(effect.interval),
        one_run=None if one is None else part(OneRunPart, one, interval=_bounds(one.interval)),
    )


def _bounds(interval: tuple[float, float]) -> tuple[Number, Number]:
    return number(interval[0], "1"), number(interval[1], "1")


def ranking_part(ranking: Ranking) -> RankingPart:
    """A ranking as a document."""
    unit = ranking.quantity.unit
    return part(
        RankingPart,
        ranking,
        ranking.quantity,
        quantity=str(ranking.quantity),
        places=[
            part(PlacePart, place, value=number(place.value, unit), values=[number(v, unit) for v in place.values])
            for place in ranking.places
        ],
        pairings=[
            part(PairingPart, pair, effect=number(pair.effect, "1"), interval=_bounds(pair.interval))
            for pair in ranking.pairings
        ],
        overlaps=[(overlap.above, overlap.below) for overlap in ranking.overlaps],
        because=[overlap.because for overlap in ranking.overlaps],
    )


def _cost(cost: Cost) -> CostPart:
    return part(CostPart, cost, value=number(cost.value, "1"), interval=_bounds(cost.interval))


def front_part(
    title: str,
    x_name: str,
    y_name: str,
    points: Sequence[Placed],
    x_better: Literal["lower", "higher"] = "higher",
    y_better: Literal["lower", "higher"] = "higher",
) -> FrontPart:
    """A Pareto chart of the points whose place is known and finite."""
    shown = [p for p in points if p.x_values and np.isfinite((*p.x_values, *p.y_values)).all()]
    return FrontPart(
        title=title,
        x_name=x_name,
        y_name=y_name,
        x_better=x_better,
        y_better=y_better,
        points=[part(PointPart, p, x_range=_range(p.x_values), y_range=_range(p.y_values)) for p in shown],
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def false_alarm_part(found: FalseAlarms) -> FalseAlarmPart:
    """An A/A check as a document."""
    return part(FalseAlarmPart, found, rate=number(found.rate, "1"))
