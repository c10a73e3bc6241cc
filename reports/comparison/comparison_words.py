"""A comparison in words and numbers for people; shared by its renderers."""

from __future__ import annotations

from types import MappingProxyType

from plimsoll.reports.comparison.comparison_parts import (
    CandidatePart,
    ComparisonReport,
    CostPart,
    EffectPart,
    FalseAlarmPart,
    OneRunPart,
    PlacePart,
    RankingPart,
)
from plimsoll.reports.wording import units

SYMBOLS = MappingProxyType(
    {
        "IMPROVEMENT": "▲",
        "INDISTINGUISHABLE": "≈",
        "INCONCLUSIVE": "?",
        "REGRESSION": "▼",
        "INVALID": "!",
        "RANKED": "≡",
    }
)
TESTS = MappingProxyType(
    {
        "mann-whitney": "Mann-Whitney",
        "signed-rank": "Wilcoxon signed-rank, by pairs",
        "fisher": "Fisher's exact, within one pair of runs",
        "none": "–",
    }
)
PER = MappingProxyType({"output_tokens": "output tokens", "requests": "requests", "good_requests": "good requests"})


def word(report: ComparisonReport) -> str:
    """The word of the banner: the outcome, or of a bake-off whether it could rank anybody."""
    if not report.rankings:
        return report.outcome
    ranking = report.rankings[0]
    if ranking.runs_needed or len(ranking.places) < 2:
        return "INCONCLUSIVE"
    return "RANKED" if ranking.places[-1].tier > 1 else "INDISTINGUISHABLE"


def _leaders(ranking: RankingPart) -> str:
    tiers: dict[int, list[str]] = {}
    for place in ranking.places:
        tiers.setdefault(place.tier, []).append(f"{place.name} at {units.human(place.value, ranking.unit)}")
    if not tiers:
        return "No arm has a place: see why below."
    said = "; then ".join(
        " and ".join(names) + (" (indistinguishable)" if len(names) > 1 else "") for names in tiers.values()
    )
    few = f" Run at least {ranking.runs_needed} of each to tell them apart." if ranking.runs_needed else ""
    return f"By {ranking.quantity}, best first: {said}.{few}"


def headline(report: ComparisonReport) -> str:
    """The outcome in one sentence."""
    if report.rankings:
        return _leaders(report.rankings[0])
    sure = f"{units.percent(report.confidence)} confidence"
    found = [c for c in report.candidates if c.outcome == report.outcome]
    if not report.candidates:
        return "Nothing was compared."
    names = ", ".join(candidate.name for candidate in found)
    if report.outcome == "INDISTINGUISHABLE":
        return f"No regression of {names} against {report.base.name} was shown at {sure}."
    if report.outcome == "IMPROVEMENT":
        return f"{names}: better than {report.base.name} beyond the tolerance, at {sure}, and nothing worse."
    if not found[0].reasons:
        return f"{names}: {report.outcome.lower()}."
    first, others = found[0], [candidate.name for candidate in found[1:]]
    reason = first.reasons[0] + ("" if first.reasons[0].endswith(("?", ".", "!")) else ".")
    # The run that is at fault may be the base's: the reason names it.
    name = f"{first.name} against {report.base.name}" if report.outcome == "INVALID" else first.name
    # The reason has the numbers of one candidate: whoever else ended so is named behind it.
    return f"{name}: {reason}" + (f" {report.outcome} too: {', '.join(others)}." if others else "")


def value(effect: EffectPart, amount: int | float | None) -> str:
    """A value of a quantity; a dash for no data."""
    return units.NOTHING if effect.missing else units.human(amount, effect.unit, 4)


def change(effect: EffectPart) -> str:
    """``+12.3 %``, ``−0.40 pt``; a dash where there is no number."""
    if effect.missing:
        return units.NOTHING
    if effect.effect is None:
        return units.INFINITE if effect.candidate is None and effect.base is not None else units.NOTHING
    return step(effect, effect.effect)


def step(effect: EffectPart, amount: float) -> str:
    """A ratio or a difference of shares as a signed change."""
    if effect.scale == "difference":
        return _signed(amount * 100, "pt")
    return f"× {units.significant(amount)}" if amount >= 3 else _signed((amount - 1) * 100, "%")


def _signed(amount: float, unit: str) -> str:
    text = f"{amount:+.2f}" if abs(amount) < 10 else f"{amount:+.1f}"
    return f"{'0.00' if float(text) == 0 else text.replace('-', '−')} {unit}"


def interval(effect: EffectPart) -> str:
    """``+8.1 % to +16.0 %``; a dash where the runs are too few for any."""
    low, high = effect.interval
    unbounded = (low in (None, 0.0) if effect.scale == "ratio" else low is None) and high is None
    if effect.missing or unbounded:
        return units.NOTHING
    first = "−∞" if low is None else step(effect, low)
    last = units.INFINITE if high is None else step(effect, high)
    number, _, unit = first.rpartition(" ")
    # One unit for both ends where they share it.
    return f"{number if unit and last.endswith(' ' + unit) and '×' not in first else first} to {last}"


def within(effect: EffectPart, one: OneRunPart) -> str:
    """What one pair of runs says of itself."""
    low, high = one.interval
    spread = ""
    if low is not None and high is not None:
        spread = f"{step(effect, low)} to {step(effect, high)} by the requests of these two runs; "
    counts = f"{units.count(one.base_over)} of {units.count(one.base_n)} against {units.count(one.candidate_over)} of {units.count(one.candidate_n)}"
    what = "requests" if effect.scale == "difference" else "values beyond the base's"
    return f"{effect.quantity}: {spread}{counts} {what}, Fisher's one-sided p {p_value(one.p) if one.p < 0.0001 else '= ' + p_value(one.p)}"


def p_value(p: float) -> str:
    """Two significant digits, never 0."""
    return "< 0.0001" if p < 0.0001 else units.significant(p, 2)


def money(cost: CostPart) -> str:
    """``1.23 (1.10 to 1.40)``; no interval with too few runs."""
    middle = units.INFINITE if cost.value is None else units.significant(float(cost.value))
    low, high = cost.interval
    if not low or high is None:
        return middle
    return f"{middle} ({units.significant(float(low))} to {units.significant(float(high))})"


def cost_title(report: ComparisonReport) -> str:
    """``What a million costs, in USD``."""
    return "What a million costs" + (f", in {report.currency}" if report.currency else "")


def tier(place: PlacePart) -> str:
    """``1``, or ``1–2`` where no pair says which."""
    return f"{place.tier}–{place.last}" if place.last > place.tier else str(place.tier)


def together(candidate: CandidatePart, report: ComparisonReport) -> str:
    """How sure the intervals of a candidate are: of one, or of all at once."""
    sure = units.percent(report.confidence)
    return f"{sure} interval" if candidate.family == 1 else f"{sure} interval over all {candidate.family} together"


def ranked(ranking: RankingPart) -> list[str]:
    """What a ranking says, and what it does not."""
    said = []
    top = max((place.tier for place in ranking.places), default=0)
    for tier in range(1, top + 1):
        names = [place.name for place in ranking.places if place.tier == tier]
        if len(names) > 1:
            said.append(f"{', '.join(names)}: indistinguishable by {ranking.quantity}.")
    if ranking.runs_needed:
        said.append(f"Too few runs to tell any two apart: run at least {ranking.runs_needed} of each.")
    said += [
        f"{a} and {b} stand in different tiers, but can't be told apart from each other: {b} stands lower because {why} was "
        "shown to be better than it."
        for (a, b), why in zip(ranking.overlaps, ranking.because, strict=True)
    ]
    said += [
        f"{a} and {b} share a tier, though they are told apart: by other arms, they are the other way round."
        for a, b in ranking.circles
    ]
    return said + [f"{name} has no place: {reason}." for name, reason in ranking.excluded]


def alarms(found: FalseAlarmPart) -> str:
    """An A/A check in a sentence or two."""
    if found.rate is None:
        return f"{units.many(found.runs, 'run')} can't be split in two arms: run at least 10 of one endpoint."
    how = "all" if found.every else "random"
    low, high = (units.percent(bound, 3) for bound in found.interval)
    text = (
        f"{found.alarms} of {how} {units.many(found.splits, 'split')} of {found.runs} runs in {found.per_arm} against "
        f"{found.per_arm} ended in a false REGRESSION: {units.percent(float(found.rate), 3)} ({low} to {high}; "
        f"the design allows {units.percent(found.expected)}). "
        f"First half against second: {found.in_order}. Every other run against the rest: {found.in_turn}."
    )
    if found.in_order == "REGRESSION" and found.in_turn != "REGRESSION":
        text += " The host drifts: interleave, and don't compare with runs from long ago."
    if found.undecided == found.splits:
        text += " So few runs can decide nothing: run more."
    return text
