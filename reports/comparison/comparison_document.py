"""From a comparison to its document, ``plimsoll.comparison/1``: all that a renderer of ``plimsoll compare`` may show.

Nothing is decided here, and nothing is worded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from plimsoll.reports.comparison.comparison_parts import (
    SCHEMA,
    ArmPart,
    CandidatePart,
    ComparisonReport,
    CostPart,
    EffectPart,
    FalseAlarmPart,
    FrontPart,
    OneRunPart,
    PairingPart,
    PlacePart,
    PointPart,
    ProfilePart,
    RankingPart,
    RunPart,
)
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.sections.chart_data import number
from plimsoll.slo.comparison.arms import PROFILE_Q, Arm
from plimsoll.slo.comparison.compare import CandidateResult, Comparison, Effect
from plimsoll.slo.comparison.cost import Cost
from plimsoll.slo.comparison.false_alarm import FalseAlarms
from plimsoll.slo.comparison.pareto import Placed
from plimsoll.slo.comparison.tiers import Ranking
from plimsoll.slo.metrics.indicator import catalogue


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
    return ComparisonReport(
        title=title or " v ".join([*(arm.name for arm in candidates), base.name]),
        outcome=comparison.outcome,
        exit_code=comparison.exit_code if exit_code is None else exit_code,
        base=_arm(base),
        arms=[_arm(arm) for arm in candidates],
        candidates=[_candidate(result) for result in comparison.candidates],
        tolerance=comparison.tolerance,
        share_tolerance=comparison.share_tolerance,
        confidence=comparison.confidence,
        single_run=comparison.single_run,
        proof=comparison.proof,
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
    return ArmPart(
        name=arm.name,
        runs=[
            RunPart(
                run=run.run,
                pair=run.pair,
                directory=run.directory,
                plan=run.plan,
                requests=run.requests,
                failed=run.failed,
                reasons=list(run.reasons),
                unstable=run.unstable,
            )
            for run in arm.runs
        ],
        profiles={name: part for name in names if (part := _profile(arm, name)) is not None},
    )


def _profile(arm: Arm, name: str) -> ProfilePart | None:
    unit = catalogue()[name].unit if name in catalogue() else "1"
    table = np.array([run.profiles[name] for run in arm.runs if name in run.profiles], np.float64)
    known = np.asarray(~np.isnan(table).any(axis=0), np.bool_)  # as far up as every run goes
    if table.size == 0 or not known.any():
        return None
    table = table[:, known]
    middle, low, high = (
        [number(v, unit) for v in part.tolist()]
        for part in (np.median(table, axis=0), table.min(axis=0), table.max(axis=0))
    )
    q = [share for share, use in zip(PROFILE_Q, known.tolist(), strict=True) if use]
    return ProfilePart(unit=unit, q=q, middle=middle, low=low, high=high)


def _candidate(result: CandidateResult) -> CandidatePart:
    return CandidatePart(
        name=result.name,
        outcome=result.outcome,
        reasons=list(result.reasons),
        paired=result.paired,
        family=result.family,
        effects=[_effect(effect) for effect in result.effects],
    )


def _effect(effect: Effect) -> EffectPart:
    unit = effect.quantity.unit
    one = effect.one_run
    return EffectPart(
        quantity=str(effect.quantity),
        unit=unit,
        better=effect.quantity.better,
        scale=effect.quantity.scale,
        missing=math.isnan(effect.base) or math.isnan(effect.candidate),
        base=number(effect.base, unit),
        candidate=number(effect.candidate, unit),
        base_values=[number(v, unit) for v in effect.base_values],
        candidate_values=[number(v, unit) for v in effect.candidate_values],
        effect=number(effect.effect, "1"),
        interval=_bounds(effect.interval),
        tolerance=effect.tolerance,
        p=effect.p,
        adjusted_p=effect.adjusted_p,
        bh_p=effect.bh_p,
        outcome=effect.outcome,
        why=effect.why,
        finding=effect.finding,
        method=effect.method,
        runs_needed=effect.runs_needed,
        one_run=None
        if one is None
        else OneRunPart(
            interval=_bounds(one.interval),
            p=one.p,
            base_over=one.base_over,
            base_n=one.base_n,
            candidate_over=one.candidate_over,
            candidate_n=one.candidate_n,
        ),
    )


def _bounds(interval: tuple[float, float]) -> tuple[Number, Number]:
    return number(interval[0], "1"), number(interval[1], "1")


def ranking_part(ranking: Ranking) -> RankingPart:
    """A ranking as a document."""
    unit = ranking.quantity.unit
    return RankingPart(
        quantity=str(ranking.quantity),
        unit=unit,
        better=ranking.quantity.better,
        places=[
            PlacePart(
                name=place.name,
                tier=place.tier,
                last=place.last,
                value=number(place.value, unit),
                values=[number(v, unit) for v in place.values],
            )
            for place in ranking.places
        ],
        pairings=[
            PairingPart(
                first=pair.first,
                second=pair.second,
                effect=number(pair.effect, "1"),
                interval=_bounds(pair.interval),
                adjusted_p=pair.adjusted_p,
                outcome=pair.outcome,
            )
            for pair in ranking.pairings
        ],
        overlaps=[(overlap.above, overlap.below) for overlap in ranking.overlaps],
        because=[overlap.because for overlap in ranking.overlaps],
        circles=list(ranking.circles),
        excluded=list(ranking.excluded),
        runs_needed=ranking.runs_needed,
    )


def _cost(cost: Cost) -> CostPart:
    return CostPart(
        name=cost.name,
        per=cost.per,
        price_per_hour=cost.price_per_hour,
        per_s=cost.per_s,
        value=number(cost.value, "1"),
        interval=_bounds(cost.interval),
    )


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
        points=[
            PointPart(
                name=p.name,
                arm=p.arm,
                x=p.x,
                y=p.y,
                x_range=(min(p.x_values), max(p.x_values)),
                y_range=(min(p.y_values), max(p.y_values)),
                dominated_by=p.dominated_by,
                shown=p.shown,
            )
            for p in shown
        ],
    )


def false_alarm_part(found: FalseAlarms) -> FalseAlarmPart:
    """An A/A check as a document."""
    return FalseAlarmPart(
        runs=found.runs,
        per_arm=found.per_arm,
        splits=found.splits,
        alarms=found.alarms,
        undecided=found.undecided,
        rate=number(found.rate, "1"),
        interval=found.interval,
        every=found.every,
        expected=found.expected,
        in_order=found.in_order,
        in_turn=found.in_turn,
    )


__all__ = [
    "SCHEMA",
    "ComparisonReport",
    "CostPart",
    "FalseAlarmPart",
    "FrontPart",
    "RankingPart",
    "build",
    "false_alarm_part",
    "front_part",
    "json_schema",
    "ranking_part",
]
