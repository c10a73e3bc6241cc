"""A comparison as one self-contained page: effects against the tolerance, curves over each other, ranking, costs, fronts.

Places what the document holds; decides and fetches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from plimsoll.reports.comparison import comparison_words as say
from plimsoll.reports.comparison.comparison_parts import (
    ArmPart,
    CandidatePart,
    ComparisonReport,
    EffectPart,
    FrontPart,
    RankingPart,
)
from plimsoll.reports.comparison.overlay import overlay
from plimsoll.reports.comparison.scatter import scatter
from plimsoll.reports.formats.html_ import render_page
from plimsoll.reports.svg.forest import Row, forest
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import in_order, title_of

_WIDE, _NARROW = 1040.0, 420.0
_HALF = Canvas(540, 300, right=92)
_SMALL = Canvas(420, 270, left=54, right=78)
_FRONT, _FRONT_SMALL = Canvas(1040, 430, top=30, bottom=44, right=24), Canvas(420, 320, top=26, bottom=44, left=52)
#: Colours that the style sheet has besides the base's.
_COLOURS = 6


def render(report: ComparisonReport) -> bytes:
    """The page, UTF-8."""
    return render_page("comparison.html.j2", content(report))


def content(report: ComparisonReport) -> dict[str, Any]:
    """Everything the template names."""
    classes = {report.base.name: "arm-0"}
    for index, arm in enumerate(report.arms):
        classes.setdefault(arm.name, f"arm-{index % _COLOURS + 1}")
    return {
        "more_css": Markup(
            files("plimsoll.reports.formats").joinpath("assets/comparison.css").read_text(encoding="utf-8")
        ),
        "symbol": lambda word: say.SYMBOLS.get(word, "•"),
        "report": report,
        "word": say.word(report),
        "headline": say.headline(report),
        "meta": _meta(report),
        "candidates": [_candidate(candidate, report) for candidate in report.candidates],
        "curves": _curves(report, classes),
        "rankings": [_ranking(ranking) for ranking in report.rankings],
        "cost_title": say.cost_title(report),
        "costs": [
            {
                "name": c.name,
                "cost": say.money(c),
                "per": say.PER[c.per],
                "rate": units.rate(c.per_s),
                "price": f"{c.price_per_hour:g}",
            }
            for c in report.costs
        ],
        "fronts": [(_front(front, classes), _beaten(front)) for front in report.fronts if front.points],
        "alarms": "" if report.false_alarms is None else say.alarms(report.false_alarms),
        "arms": [_arm(arm, arm is report.base) for arm in (report.base, *report.arms)],
        "footer": f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_} · the unit of replication is the run",
    }


def _meta(report: ComparisonReport) -> list[str]:
    shares = f"{report.share_tolerance * 100:g}"
    rule = (
        f"a regression is an interval wholly beyond {units.percent(report.tolerance)}; of shares, beyond {shares} "
        f"point{'' if shares == '1' else 's'}; the intervals of a candidate hold together at {units.percent(report.confidence)}"
    )
    if report.single_run:
        rule += " · judged within single runs, blind to how runs differ"
    if report.proof:
        rule += " · no difference must be shown, too"
    runs = ", ".join(f"{arm.name}: {units.many(len(arm.runs), 'run')}" for arm in (report.base, *report.arms))
    return [rule, runs]


def _candidate(candidate: CandidatePart, report: ComparisonReport) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "outcome": candidate.outcome,
        "reasons": candidate.reasons,
        "forests": _forests(candidate, report),
        "effects": [
            {
                "quantity": effect.quantity,
                "outcome": effect.outcome,
                "base": say.value(effect, effect.base),
                "candidate": say.value(effect, effect.candidate),
                "change": say.change(effect),
                "interval": say.interval(effect),
                "p": units.NOTHING if effect.missing else say.p_value(effect.adjusted_p),
                "test": say.TESTS[effect.method],
                "why": effect.finding,
            }
            for effect in candidate.effects
        ],
        "within": [say.within(e, e.one_run) for e in candidate.effects if e.one_run is not None],
        "paired": candidate.paired,
    }


def _forests(candidate: CandidatePart, report: ComparisonReport) -> list[Chart]:
    charts = []
    for scale, title in (("ratio", "Change against the base"), ("difference", "Change of shares, in points")):
        effects = [e for e in candidate.effects if e.scale == scale and not e.missing]
        if not effects:
            continue
        rows = [_row(effect) for effect in effects]
        label = "; ".join(f"{e.quantity} {say.change(e)} ({say.interval(e)}): {e.outcome}" for e in effects)
        note = (
            f"Dot: the typical change. Line: {say.together(candidate, report)}. Grey band: tolerance. "
            "Tinted: worse beyond it. A whole line beyond the band is a REGRESSION or an IMPROVEMENT."
        )
        wide, narrow = (forest(rows, scale == "ratio", label, width) for width in (_WIDE, _NARROW))
        charts.append(Chart(title, note, (), wide, narrow))
    return charts


def _row(effect: EffectPart) -> Row:
    low, high = effect.interval
    lowest = 0.0 if effect.scale == "ratio" else None
    return Row(
        effect.quantity,
        None if effect.effect is None else float(effect.effect),
        None if low is None or low == lowest else float(low),
        None if high is None else float(high),
        effect.tolerance,
        effect.better == "lower",
        effect.outcome.lower(),
        f"{say.SYMBOLS[effect.outcome]} {say.change(effect)}",
    )


def _curves(report: ComparisonReport, classes: Mapping[str, str]) -> list[Chart]:
    arms = {arm.name: arm for arm in (report.base, *report.arms)}
    names = dict.fromkeys(name for arm in arms.values() for name in arm.profiles)
    ordered = in_order(names)
    charts = []
    for name in ordered:
        parts = {arm: part.profiles[name] for arm, part in arms.items() if name in part.profiles}
        if len(parts) < 2 or not any(v is not None for part in parts.values() for v in part.middle):
            continue
        several = any(len(arms[arm].runs) > 1 for arm in parts)
        note = "Line: median of the runs. Band: least to greatest run." if several else "One run each."
        charts.append(
            chart(
                title_of(name),
                note,
                [Key(arm, classes[arm]) for arm in parts],
                lambda canvas, parts=parts, name=name: overlay(  # type: ignore[misc]
                    parts, classes, f"{title_of(name)} by percentile: {', '.join(parts)}", canvas
                ),
                _HALF,
                _SMALL,
            )
        )
    return charts


def _ranking(ranking: RankingPart) -> dict[str, Any]:
    rows = [
        {
            "name": place.name,
            "tier": say.tier(place),
            "first": index == 0 or ranking.places[index - 1].tier != place.tier,
            "value": units.human(place.value, ranking.unit, 4),
            "runs": ", ".join(units.human(v, ranking.unit) for v in place.values),
        }
        for index, place in enumerate(ranking.places)
    ]
    return {"quantity": ranking.quantity, "better": ranking.better, "rows": rows, "notes": say.ranked(ranking)}


def _front(front: FrontPart, classes: Mapping[str, str]) -> Chart:
    label = "; ".join(
        f"{p.name}: {units.significant(p.x)} {front.x_name}, {units.significant(p.y)} {front.y_name}"
        + (f", beaten by {p.dominated_by}" if p.dominated_by else "")
        for p in front.points
    )
    arms = dict.fromkeys(p.arm for p in front.points if p.arm)
    legend = [Key(arm, classes.get(arm, "arm-0"), "dots") for arm in arms] if len(arms) > 1 else []
    note = (
        "Filled: on the front, or not shown to be beaten. Hollow: beaten in both ways. Bars: the range of the runs. "
        "A chart explores: it strikes points out by a milder test than the one that makes tiers."
    )
    return chart(front.title, note, legend, lambda canvas: scatter(front, classes, label, canvas), _FRONT, _FRONT_SMALL)


def _beaten(front: FrontPart) -> list[str]:
    return [
        f"{p.name} is beaten by {p.dominated_by}"
        + ("." if p.shown else " in a single run of each, which proves nothing.")
        for p in front.points
        if p.dominated_by
    ]


def _arm(arm: ArmPart, base: bool) -> dict[str, Any]:
    return {
        "name": arm.name,
        "base": base,
        "runs": [
            {
                "run": run.run or run.directory or units.NOTHING,
                "pair": units.NOTHING if run.pair is None else str(run.pair),
                "requests": units.count(run.requests),
                "failed": units.count(run.failed),
                "state": "; ".join([*run.reasons, *([run.unstable] if run.unstable else [])]) or "valid",
                "plan": run.plan,
            }
            for run in arm.runs
        ],
    }
