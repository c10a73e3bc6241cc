"""The parts of a comparison's document, one class per key of ``comparison.json``. Schema ``plimsoll.comparison/1``.

Times are integer nanoseconds, rates per second, shares 0..1. An infinite number is null, as in ``report.json``; where a null
means "no data" the ``missing`` beside it is true. Nothing is computed here.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from plimsoll.reports.parts.parts import Number, Text
from plimsoll.slo.comparison.compare import Outcome
from plimsoll.slo.comparison.effects import Method

SCHEMA: Final = "plimsoll.comparison/1"


class RunPart(BaseModel, frozen=True, extra="forbid"):
    """One run of an arm."""

    run: Text = ""
    pair: int | None = None
    directory: Text = ""
    plan: Text = ""
    requests: int = 0
    failed: int = 0
    reasons: list[Text] = Field(default_factory=list, description="why the run is INVALID")
    unstable: Text | None = None


class ProfilePart(BaseModel, frozen=True, extra="forbid"):
    """One indicator of an arm by percentile: the median over its runs, the least and the greatest; null where failed."""

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


class ComparisonReport(BaseModel, frozen=True, extra="forbid"):
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

    def document(self) -> dict[str, Any]:
        """Plain dicts and lists with the public key names."""
        return self.model_dump(mode="json", by_alias=True)
