"""A comparison or a bake-off as a document: effects against the tolerance, curves over each other, ranking, costs and
fronts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from markupsafe import Markup

from plimsoll.reports.blocks.document import (
    Block,
    Card,
    Case,
    Cell,
    Column,
    Command,
    Document,
    Figures,
    Folded,
    Notes,
    On,
    Row,
    Section,
    Sentence,
    Suite,
    Table,
    table,
)
from plimsoll.reports.documents import on_server
from plimsoll.reports.format import Renderers
from plimsoll.reports.models.comparison_parts import (
    CandidatePart,
    ComparisonReport,
    CostPart,
    EffectPart,
    FalseAlarmPart,
    FrontPart,
    OneRunPart,
    PlacePart,
    PointPart,
    ProfilePart,
    RankingPart,
)
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg import forest as forests
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic, tail, tail_at
from plimsoll.reports.svg.ink import Point, area, element, join, line, path, spread, text, text_width
from plimsoll.reports.svg.plot import FONT, Canvas, Chart, Key, Picture, chart, grid, hover, series, svg
from plimsoll.reports.wording import signs, units
from plimsoll.slo.comparison.effects import signed
from plimsoll.slo.metrics.indicator import in_order, title_of
from plimsoll.slo.server.beside import medians

_WIDE, _NARROW = 1040.0, 420.0
_HALF = Canvas(540, 300, right=92)
_SMALL = Canvas(420, 270, left=54, right=78)
_FRONT, _FRONT_SMALL = Canvas(1040, 430, top=30, bottom=44, right=24), Canvas(420, 320, top=26, bottom=44, left=52)
#: Colours that the style sheet has besides the base's.
_COLOURS = 6
_LOG_ABOVE = 12.0
_MOST_LABEL = 14
#: Of points that are beaten, more than that are counted and not named.
_MOST_BEATEN = 12
PER = MappingProxyType({"output_tokens": "output tokens", "requests": "requests", "good_requests": "good requests"})


def document(report: ComparisonReport) -> Document:
    """The whole comparison."""
    shown, said = word(report), headline(report)
    arms = (report.base, *report.arms)
    runs = ", ".join(f"{arm.name} {units.many(len(arm.runs), 'run')}" for arm in arms)
    classes = {report.base.name: "arm-0"}
    for index, arm in enumerate(report.arms):
        classes.setdefault(arm.name, f"arm-{index % _COLOURS + 1}")
    charts = _curves(report, classes)
    curves: list[Block] = [Section("By percentile", [Figures(charts, paired=True)], on=On.PAGE)] if charts else []
    # A picture first where there is one: of a ranking the fronts and the curves; a plain comparison has its own charts.
    first = [*curves, *_ranked(report, On.PAGE)] if report.rankings else []
    return Document(
        kind="compare",
        word=shown,
        name=report.title,
        headline=said,
        meta=_meta(report),
        lines=[(report.title, "bold"), (said, ""), (f"{runs} (base first)", "dim")],
        warnings=tuple(report.warnings),
        blocks=[
            *(_front_figure(front, classes) for front in report.fronts if front.points),
            *first,
            *_candidates(report),
            *([] if report.rankings else curves),
            *_ranked(report, On.TERMINAL | On.MARKDOWN if report.rankings else On.ALL),
            *(block for front in report.fronts for block in front_blocks(front, ", ")),
            *on_server.table("arm", [(arm.name, medians([run.server for run in arm.runs])) for arm in arms]),
            *_false_alarms(report),
        ],
        appendix=_runs(report),
        started_at=report.started_at,
        plimsoll=report.plimsoll,
        footer=f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_} · the unit of replication is the run",
        suites=_suites(report),
    )


#: By the name that ``--format NAME=PATH`` says.
FORMATS = Renderers(document)


def _candidates(report: ComparisonReport) -> list[Block]:
    cards = []
    for one in report.candidates:
        blocks: list[Block] = [
            Sentence(f" against {report.base.name}: {one.outcome}", lead=one.name, on=On.MARKDOWN),
            Figures(_forests(one, report), bare=True),
            _effects(one, report),
        ]
        if one.reasons:
            blocks.append(Notes(one.reasons, f"{one.name}: why {one.outcome}", on=On.TERMINAL))
            blocks.append(Folded("Why", [Notes(one.reasons)], on=On.MARKDOWN))
        inside = [within(effect, effect.one_run) for effect in one.effects if effect.one_run is not None]
        if inside:
            blocks.append(Notes(inside, "Within this pair of runs only, blind to how runs differ", on=On.TERMINAL))
            blocks.append(Notes(inside, "Within this pair of runs only:", on=On.PAGE | On.MARKDOWN))
            told = "How much runs differ from each other is not in these numbers, and can't be known from one run."
            blocks.append(Sentence(told, fine=True, on=On.PAGE))
        cards.append(Card(blocks, name=one.name, outcome=one.outcome))
    return [Section(f"Against {report.base.name}", cards)] if cards else []


def _effects(candidate: CandidatePart, report: ComparisonReport) -> Table:
    sure = together(candidate, report)
    return table(
        candidate.effects,
        (Column("", right=False), lambda effect: Cell(effect.outcome, effect.outcome)),
        (Column("quantity", right=False, titled="Quantity", names=True, code=True), lambda effect: effect.quantity),
        (Column("base", least_width=100), lambda effect: value(effect, effect.base)),
        (Column("candidate", least_width=100), lambda effect: value(effect, effect.candidate)),
        (Column("change"), change),
        (Column("interval", titled=sure), interval),
        (
            Column("adjusted p", on=On.PAGE | On.MARKDOWN),
            lambda effect: units.NOTHING if effect.missing else p_value(effect.adjusted_p),
        ),
        (Column("finding", right=False, words=True, on=On.PAGE), lambda effect: effect.finding),
        title=f"{candidate.name} against {report.base.name}: {sure}",
    )


def _ranked(report: ComparisonReport, on: On) -> list[Block]:
    """Rankings and what each arm costs."""
    blocks: list[Block] = []
    for ranking in report.rankings:
        title = f"Ranking by {ranking.quantity}, {ranking.better} is better"
        columns = [
            Column("tier", right=False, titled="Tier"),
            Column("arm", right=False, titled="Arm", names=True),
            Column("median of the runs", titled=ranking.quantity),
            Column("each run", right=False, on=On.PAGE),
        ]
        rows, above = [], 0
        for place in ranking.places:
            each = ", ".join(units.human(v, ranking.unit) for v in place.values)
            cells = [tier(place), place.name, units.human(place.value, ranking.unit, 4), each]
            rows.append(Row(cells, "tier" if place.tier != above else ""))
            above = place.tier
        fine = (
            "No two arms of one tier are told apart by these runs, by the test that judges every pair on this page; "
            "their order inside it means nothing."
        )
        blocks.append(
            Section(title, [Card([Table(columns, rows, title=title, notes=ranked(ranking), fine=fine)])], on=on)
        )
    if report.costs:
        title = "What a million costs" + (f", in {report.currency}" if report.currency else "")
        costs = table(
            report.costs,
            (Column("arm", right=False, titled="Arm", names=True), lambda cost: cost.name),
            (Column("of", right=False, titled="A million"), lambda cost: PER[cost.per]),
            (Column("cost (interval)", titled=f"costs {report.currency}".strip()), money),
            (Column("throughput"), lambda cost: units.rate(cost.per_s)),
            (Column("price an hour", on=On.PAGE | On.TERMINAL), lambda cost: f"{cost.price_per_hour:g}"),
            title=title,
            fine="The interval is that of the throughput between runs; fewer than six runs have none. "
            "Idle hours are not in it.",
        )
        blocks.append(Section(title, [Card([costs])], on=on))
    return blocks


def _false_alarms(report: ComparisonReport) -> list[Block]:
    if report.false_alarms is None:
        return []
    said = alarms(report.false_alarms)
    return [
        Section("A/A: does the gate cry when nothing changed?", [Card([Sentence(said)])], on=On.PAGE),
        Notes([said], "A/A", on=On.TERMINAL),
        Sentence(f": {said}", lead="A/A", on=On.MARKDOWN),
    ]


def front_blocks(front: FrontPart, between: str) -> list[Block]:
    """A front in words, where there is no picture of it."""
    kept = between.join(point.name for point in front.points if not point.dominated_by)
    beaten = [f"{point.name}: beaten by {point.dominated_by}" for point in front.points if point.dominated_by]
    return [
        Notes([f"on the front: {kept}", *beaten], front.title, on=On.TERMINAL),
        Sentence(f": on the front {kept}", lead=front.title, on=On.MARKDOWN),
    ]


def _front_figure(front: FrontPart, classes: Mapping[str, str]) -> Figures:
    note = (
        "Filled: on the front, or not shown to be beaten. Hollow: beaten in both ways. Bars: the range of the runs. "
        "A chart explores: it strikes points out by a milder test than the one that makes tiers."
    )
    return front_figure(front, classes, note)


def front_figure(front: FrontPart, classes: Mapping[str, str], note: str) -> Figures:
    """The picture of a front, and who is beaten by whom."""
    label = "; ".join(
        f"{p.name}: {units.significant(p.x)} {front.x_name}, {units.significant(p.y)} {front.y_name}"
        + (f", beaten by {p.dominated_by}" if p.dominated_by else "")
        for p in front.points
    )
    arms = dict.fromkeys(p.arm for p in front.points if p.arm)
    legend = [Key(arm, classes.get(arm, "arm-0"), "dots") for arm in arms] if len(arms) > 1 else []
    drawn = chart(
        front.title, note, legend, lambda canvas: scatter(front, classes, label, canvas), _FRONT, _FRONT_SMALL
    )
    beaten = [
        f"{p.name} is beaten by {p.dominated_by}"
        + ("." if p.shown else " in a single run of each, which proves nothing.")
        for p in front.points
        if p.dominated_by
    ]
    more = len(beaten) - _MOST_BEATEN
    return Figures([drawn], beaten if more <= 0 else [*beaten[:_MOST_BEATEN], f"So are {more} more."])


def _runs(report: ComparisonReport) -> list[Block]:
    arms = (report.base, *report.arms)
    made = table(
        [(arm, run) for arm in arms for run in arm.runs],
        (Column("Arm", right=False, names=True), lambda one: one[0].name + " (base)" * (one[0] is report.base)),
        (Column("Run", right=False), lambda one: one[1].run or one[1].directory or units.NOTHING),
        (Column("pair"), lambda one: units.NOTHING if one[1].pair is None else str(one[1].pair)),
        (Column("requests"), lambda one: units.count(one[1].requests)),
        (Column("failed"), lambda one: units.count(one[1].failed)),
        (
            Column("Generator and endpoint", right=False),
            lambda one: "; ".join([*one[1].reasons, *filter(None, [one[1].unstable])]) or "valid",
        ),
        (Column("Plan", right=False, code=True), lambda one: one[1].plan[:12]),
    )
    said = [
        f"{arm.name}: {units.many(len(arm.runs), 'run')}" + "".join(f", {run.run}" for run in arm.runs if run.run)
        for arm in arms
    ]
    command = [Command(report.command)] if report.command else []
    return [
        Section("The runs", [Card([made, *command])], on=On.PAGE),
        Folded("The runs", [Notes(said)], on=On.MARKDOWN),
    ]


def _suites(report: ComparisonReport) -> list[Suite]:
    """Each quantity of each candidate a test case; an INVALID candidate is a case of its own before them."""
    suites = []
    for candidate in report.candidates:
        cases = [(e.quantity, e.outcome, e.why) for e in candidate.effects]
        if candidate.outcome == "INVALID" or not cases:
            cases.insert(0, ("comparison", candidate.outcome, "\n".join(candidate.reasons)))
        name = f"{candidate.name} against {report.base.name}"
        runs = next((arm.runs for arm in report.arms if arm.name == candidate.name), [])
        seconds = sum(run.span_ns for run in runs) / 1e9  # the base's runs would be counted for each candidate
        suites.append(Suite(name, f"plimsoll.compare.{candidate.name}", [_case(*case) for case in cases], seconds))
    nothing = Case("comparison", report.outcome, "nothing was compared", as_of="INCONCLUSIVE")
    return suites or [Suite("plimsoll compare", "plimsoll.compare", [nothing])]


def _case(name: str, outcome: str, why: str) -> Case:
    return Case(name, outcome, why, f"{outcome}: {why}" if signs.level(outcome).result == "ok" else "")


def _meta(report: ComparisonReport) -> list[str]:
    shares = f"{report.share_tolerance * 100:g}"
    rule = (
        f"a regression is an interval wholly beyond {units.percent(report.tolerance)}; of shares, beyond {shares} "
        f"point{'' if shares == '1' else 's'}; the intervals of a candidate hold together at "
        f"{units.percent(report.confidence)}"
    )
    if report.single_run:
        rule += " · judged within single runs, blind to how runs differ"
    if report.proof:
        rule += " · no difference must be shown, too"
    runs = ", ".join(f"{arm.name}: {units.many(len(arm.runs), 'run')}" for arm in (report.base, *report.arms))
    return [rule, runs]


def word(report: ComparisonReport) -> str:
    """The word of the banner: the outcome, or of a bake-off whether it could rank anybody."""
    if not report.rankings:
        return report.outcome
    return ranking_word(report.rankings[0])


def ranking_word(ranking: RankingPart) -> str:
    """Whether it could rank anybody."""
    if ranking.runs_needed or len(ranking.places) < 2:
        return "INCONCLUSIVE"
    return "RANKED" if ranking.places[-1].tier > 1 else "INDISTINGUISHABLE"


def leaders(ranking: RankingPart) -> str:
    """A ranking in one sentence."""
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
        return leaders(report.rankings[0])
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
    return signed(effect.scale, effect.effect)


def interval(effect: EffectPart) -> str:
    """``+8.1 % to +16.0 %``; a dash where the runs are too few for any."""
    low, high = effect.interval
    unbounded = (low in (None, 0.0) if effect.scale == "ratio" else low is None) and high is None
    if effect.missing or unbounded:
        return units.NOTHING
    first = "−∞" if low is None else signed(effect.scale, low)
    last = units.INFINITE if high is None else signed(effect.scale, high)
    number, _, unit = first.rpartition(" ")
    # One unit for both ends where they share it.
    return f"{number if unit and last.endswith(' ' + unit) and '×' not in first else first} to {last}"


def within(effect: EffectPart, one: OneRunPart) -> str:
    """What one pair of runs says of itself."""
    low, high = one.interval
    spread = ""
    if low is not None and high is not None:
        spread = f"{signed(effect.scale, low)} to {signed(effect.scale, high)} by the requests of these two runs; "
    over = (
        f"{units.count(one.base_over)} of {units.count(one.base_n)}",
        f"{units.count(one.candidate_over)} of {units.count(one.candidate_n)}",
    )
    counts = " against ".join(over)
    what = "requests" if effect.scale == "difference" else "values beyond the base's"
    p = p_value(one.p) if one.p < 0.0001 else f"= {p_value(one.p)}"
    return f"{effect.quantity}: {spread}{counts} {what}, Fisher's one-sided p {p}"


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
        f"{a} and {b} stand in different tiers, but can't be told apart from each other: {b} stands lower because "
        f"{why} was shown to be better than it."
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


def _forests(candidate: CandidatePart, report: ComparisonReport) -> list[Chart]:
    charts = []
    for scale, title in (("ratio", "Change against the base"), ("difference", "Change of shares, in points")):
        effects = [e for e in candidate.effects if e.scale == scale and not e.missing]
        if not effects:
            continue
        rows = [_row(effect) for effect in effects]
        label = "; ".join(f"{e.quantity} {change(e)} ({interval(e)}): {e.outcome}" for e in effects)
        note = (
            f"Dot: the typical change. Line: {together(candidate, report)}. Grey band: tolerance. "
            "Tinted: worse beyond it. A whole line beyond the band is a REGRESSION or an IMPROVEMENT."
        )
        wide, narrow = (forests.forest(rows, scale == "ratio", label, width) for width in (_WIDE, _NARROW))
        charts.append(Chart(title, note, (), wide, narrow))
    return charts


def _row(effect: EffectPart) -> forests.Row:
    low, high = effect.interval
    lowest = 0.0 if effect.scale == "ratio" else None
    return forests.Row(
        effect.quantity,
        None if effect.effect is None else float(effect.effect),
        None if low is None or low == lowest else float(low),
        None if high is None else float(high),
        effect.tolerance,
        effect.better == "lower",
        effect.outcome.lower(),
        f"{signs.mark(effect.outcome)} {change(effect)}",
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
        label = f"{title_of(name)} by percentile: {', '.join(parts)}"
        keys = [Key(arm, classes[arm]) for arm in parts]
        charts.append(chart(title_of(name), note, keys, partial(_overlay, parts, classes, label), _HALF, _SMALL))
    return charts


def _overlay(arms: Mapping[str, ProfilePart], classes: Mapping[str, str], label: str, canvas: Canvas) -> Picture:
    """One line and one band per arm; ``classes``: the style class of each."""
    unit = next(iter(arms.values())).unit
    n = max(_size(part) for part in arms.values())
    x = tail(n, *canvas.x_range)
    finite = [float(v) for part in arms.values() for v in (*part.low, *part.high) if v is not None]
    y = _value_axis(finite, unit, canvas)
    drawn = [grid(canvas, x, y), text(x.end + 6, y.start + 18, "percentile", "tick")]
    for name, part in arms.items():
        drawn.append(area(_upper(part, x, y, n), _curve_points(part, part.low, x, y, n), f"s {classes[name]}"))
    for name, part in arms.items():
        points = _curve_points(part, part.middle, x, y, n)
        drawn.append(path(points, f"s {classes[name]}"))
        if part.middle[-1] is None:
            last = next((p for p in reversed(points) if p is not None), (x.start, y.start))
            drawn.append(line(last[0], last[1], last[0], y.end, f"s {classes[name]} line lost"))
    drawn.append(_curve_labels(arms, classes, x, y, n))
    return Picture(svg(canvas, join(drawn), label), _curve_hover(arms, classes, x, y, n, canvas))


def _size(part: ProfilePart) -> int:
    return max(2, round(1 / max(1 - part.q[-1], 1e-9)))


def _value_axis(finite: list[float], unit: str, canvas: Canvas) -> Axis:
    high = max(finite, default=1.0)
    positive = [v for v in finite if v > 0]
    low = min(positive, default=high)
    if positive and high / low > _LOG_ABOVE:
        return logarithmic(low * 0.85, high * 1.15, *canvas.y_range, unit, 24)
    return from_zero(high, *canvas.y_range, unit, 5)


def _curve_points(part: ProfilePart, values: list[Number], x: Axis, y: Axis, n: int) -> list[Point | None]:
    return [
        None if value is None else (x.at(tail_at(q, n)), min(y.at(float(value)), y.start))
        for q, value in zip(part.q, values, strict=True)
    ]


def _upper(part: ProfilePart, x: Axis, y: Axis, n: int) -> list[Point | None]:
    """The upper edge of a band: where a run's requests failed there is none, so it is drawn to the top."""
    edge = _curve_points(part, part.high, x, y, n)
    return [point or (x.at(tail_at(q, n)), y.end) for q, point in zip(part.q, edge, strict=True)]


def _curve_labels(arms: Mapping[str, ProfilePart], classes: Mapping[str, str], x: Axis, y: Axis, n: int) -> Markup:
    wanted, places = [], []
    for part in arms.values():
        last = next(
            ((q, v) for q, v in zip(reversed(part.q), reversed(part.middle), strict=True) if v is not None), None
        )
        wanted.append(y.end + 4 if last is None or part.middle[-1] is None else y.at(float(last[1])) + 4)
        places.append(x.at(tail_at(part.q[-1] if last is None else last[0], n)))
    heights = spread(wanted, FONT + 3, y.end + 4, y.start)
    return join(
        text(
            place + 6, height, _short(name) + ("" if part.middle[-1] is not None else " ∞"), f"end halo {classes[name]}"
        )
        for (name, part), place, height in zip(arms.items(), places, heights, strict=True)
    )


def _short(name: str) -> str:
    return name if len(name) <= _MOST_LABEL else name[: _MOST_LABEL - 1] + "…"


def _curve_hover(
    arms: Mapping[str, ProfilePart], classes: Mapping[str, str], x: Axis, y: Axis, n: int, canvas: Canvas
) -> dict[str, object]:
    longest = max(arms.values(), key=lambda part: len(part.q))
    lines = []
    for name, part in arms.items():
        known = dict(zip(part.q, part.middle, strict=True))
        values = [known.get(q) for q in longest.q]
        heights = [None if v is None else min(y.at(float(v)), y.start) for v in values]
        shown = [units.NOTHING if q not in known else units.human(known[q], part.unit) for q in longest.q]
        lines.append(series(name, classes[name], heights, shown))
    return hover(canvas, [x.at(tail_at(q, n)) for q in longest.q], [units.quantile_name(q) for q in longest.q], lines)


def scatter(front: FrontPart, classes: Mapping[str, str], label: str, canvas: Canvas) -> Picture:
    """``classes``: the style class of each arm. Both axes begin at 0: half as far is half as much."""
    x = from_zero(max(p.x_range[1] for p in front.points), *canvas.x_range, "1", max(3, int(canvas.width // 150)))
    y = from_zero(max(p.y_range[1] for p in front.points), *canvas.y_range, "1", 5)
    drawn = [grid(canvas, x, y), text(canvas.left, canvas.top - 14, front.y_name, "tick", "start")]
    drawn.append(text(x.end, canvas.height - 2, front.x_name, "tick", "end"))
    drawn.append(path(_steps(front, x, y), "s s-front", step=False))
    drawn += [_point(p, classes.get(p.arm, "arm-0"), x, y) for p in front.points]
    drawn.append(_names(front.points, classes, x, y, canvas))
    return Picture(svg(canvas, join(drawn), label))


def _steps(front: FrontPart, x: Axis, y: Axis) -> list[Point | None]:
    """The edge of what is reachable: nothing is known beyond it, and what is inside can be had."""
    kept = sorted((p for p in front.points if not p.dominated_by), key=lambda p: (p.x, p.y))
    points: list[Point | None] = []
    for before, after in zip([None, *kept], kept, strict=False):
        if before is not None:
            # From one point to the next by way of the corner that both dominate.
            corner = (
                min(before.x, after.x) if front.x_better == "higher" else max(before.x, after.x),
                min(before.y, after.y) if front.y_better == "higher" else max(before.y, after.y),
            )
            points.append((x.at(corner[0]), y.at(corner[1])))
        points.append((x.at(after.x), y.at(after.y)))
    return points if len(kept) > 1 else []


def _point(p: PointPart, class_: str, x: Axis, y: Axis) -> Markup:
    at, height = x.at(p.x), y.at(p.y)
    bars = Markup("")
    if p.x_range[0] < p.x_range[1]:
        bars += line(x.at(p.x_range[0]), height, x.at(p.x_range[1]), height, "range")
    if p.y_range[0] < p.y_range[1]:
        bars += line(at, y.at(p.y_range[0]), at, y.at(p.y_range[1]), "range")
    where = "beaten" if p.dominated_by else "front"
    # Filled or hollow: the colour only says whose it is.
    return element("g", bars + element("circle", cx=at, cy=height, r=4.5), class_=f"point {where} {class_}")


def _names(points: Sequence[PointPart], classes: Mapping[str, str], x: Axis, y: Axis, canvas: Canvas) -> Markup:
    """Names beside their points; one that would lie on another on every side is left out."""
    taken: list[tuple[float, float, float]] = []
    drawn = []
    for p in sorted(points, key=lambda p: bool(p.dominated_by)):
        wide = text_width(p.name, FONT)
        for left, height in _places(x.at(p.x), y.at(p.y), wide, canvas):
            if not any(left < b and a < left + wide and abs(height - h) < FONT + 2 for a, b, h in taken):
                taken.append((left, left + wide, height))
                drawn.append(text(left, height, p.name, f"note halo {classes.get(p.arm, 'arm-0')}"))
                break
    return join(drawn)


def _places(at: float, height: float, wide: float, canvas: Canvas) -> list[tuple[float, float]]:
    """Where a name may stand, best first: above or below, right or left, within the picture."""
    return [
        (left, height + down)
        for down in (-7, FONT + 5)
        for left in (at + 9, at - 9 - wide)
        if left >= canvas.x_range[0] and left + wide < canvas.width and height + down < canvas.y_range[0]
    ]
