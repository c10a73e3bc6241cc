"""A sweep in words for people, shared by its renderers."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from plimsoll.reports.sweep.sweep_curves import RISING
from plimsoll.reports.sweep.sweep_parts import LinePart, SeriesPart, Setting, SweepPoint, SweepReport
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import short_of, title_of

SYMBOLS = MappingProxyType(
    {
        "FOUND": "✓",
        "HOLDS": "✓",
        "PASS": "✓",
        "MEASURED": "≡",
        "FAIL": "✗",
        "INCONCLUSIVE": "?",
        "INVALID": "!",
        "UNREACHABLE": "!",
        "SKIPPED": "·",
        "PENDING": "·",
    }
)
_MOST_VALUES = 14
_AXES = MappingProxyType({"rate": "requests/s offered", "concurrency": "requests in flight"})


def setting(name: str, value: Setting) -> str:
    """One setting of a series: ``max_batch 4``."""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name.removeprefix('server.').removeprefix('option.')} {shown}"


def values(found: Sequence[Setting]) -> str:
    """The values of a variable, a long list by its ends."""
    shown = [number(v) if isinstance(v, int | float) and not isinstance(v, bool) else str(v) for v in found]
    if len(shown) > _MOST_VALUES:
        return f"{', '.join(shown[:3])} ... {shown[-1]} ({len(shown)} values)"
    return ", ".join(shown)


def axis(x: str) -> str:
    """What the x axis counts."""
    return _AXES.get(x, x.removeprefix("server.").removeprefix("option."))


def number(value: float) -> str:
    """A load in four digits, no zeros behind the point: 20, 12.5, 24.63."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def at(x: str, value: float) -> str:
    """One load: ``20/s``, ``8 in flight``, ``prompt_tokens 128``."""
    if x == "rate":
        return f"{number(value)}/s"
    return f"{number(value)} in flight" if x == "concurrency" else setting(x, float(number(value).replace(",", "")))


def short(name: str) -> str:
    """An indicator as the head of a column."""
    known = short_of(name)
    return known if known.isupper() else name.replace("_", " ")


def metric(name: str) -> str:
    """An indicator in full."""
    return title_of(name)


def time(value: float | None, there: bool) -> str:
    """A percentile: infinite when requests failed, a dash when nothing was measured."""
    return units.human(value, "ns") if there else units.NOTHING


def good(point: SweepPoint) -> float | None:
    """Its goodput, where limits say what a good request is."""
    return None if point.good_fraction is None else point.goodput_per_s


def outcome(point: SweepPoint) -> str:
    """A point's outcome in one or two words."""
    if point.unstable:
        return "UNSTABLE"
    return {"SKIPPED": "not run", "PENDING": "not run yet"}.get(point.outcome, point.outcome)


def headline(report: SweepReport) -> str:
    """The whole in one or two sentences."""
    counts = f"{units.many(len(report.points), 'point')} in {len(report.series)} series"
    if len(report.series) == 1:
        return sentence(report.series[0], report)
    if report.outcome in ("INVALID", "UNREACHABLE"):
        return "Nothing could be judged."
    invalid = sum(point.outcome == "INVALID" for point in report.points)
    spoiled = f" {invalid} of {len(report.points)} points are INVALID and say nothing." if invalid else ""
    highest = max((series.knee.x for series in report.series if series.knee is not None), default=None)
    if highest is None:
        return f"{counts}: no load holds in any of them.{spoiled}"
    best = [series for series in report.series if series.knee is not None and series.knee.x == highest]
    less = "".join(f" {more}" for series in best if (more := more_gives_less(series, report.x)))
    with_ = " and ".join(series.label for series in best)
    return f"{counts}: the highest load that holds is {at(report.x, highest)}, with {with_}.{less}{spoiled}"


def more_gives_less(series: SeriesPart, x: str, named: bool = True) -> str:
    """A sentence where the load that holds is answered more slowly than a lower one; else empty. ``named``: with the series."""
    knee = series.knee
    if knee is None or knee.most_x is None or knee.most_per_s is None or knee.achieved_per_s is None:
        return ""
    of = f" ({series.label})" if named and series.label else ""
    return (
        f"More load gives less: {units.rate(knee.most_per_s)} answered at {at(x, knee.most_x)}, "
        f"{units.rate(knee.achieved_per_s)} at {at(x, knee.x)}{of}."
    )


def sentence(series: SeriesPart, report: SweepReport) -> str:
    """One series: the line, its bracket and its knee; where x is no load, where it holds and where it fails."""
    if report.x not in RISING:
        return _where(series, report)
    if all(point.outcome == "PENDING" for point in series.points):
        return "Nothing was measured: the sweep was stopped before its first run ended."
    if not any(point.outcome in ("PASS", "FAIL", "INCONCLUSIVE") for point in series.points):
        return "Nothing could be judged."
    promised = bool(report.objectives)
    said = [_line(series.line, report.x)] if series.line is not None and promised else []
    if series.knee is None:
        said.append("There is no knee." if said else "No load is carried.")
    elif not promised:
        said.append(f"Carried up to {at(report.x, series.knee.x)} (nothing was promised).")
    else:
        said.append(f"Knee: {at(report.x, series.knee.x)}.")
    if less := more_gives_less(series, report.x, named=False):
        said.append(less)
    if series.knee is not None and series.knee.failed_below:
        below = ", ".join(at(report.x, x) for x in series.knee.failed_below)
        said.append(f"Below it {below} fails all the same: run more repeats.")
    if series.line is not None and (share := series.line.attainment) is not None:
        good = f"{units.percent(share.target)} of the requests are good up to {at(report.x, share.x)}"
        said.append(f"{good}, as DistServe interpolates.")
    if series.saturated_at is not None:
        said.append(f"It does not keep up from {at(report.x, series.saturated_at)} on.")
    return " ".join(said)


def _where(series: SeriesPart, report: SweepReport) -> str:
    told = []
    for word, what in (
        ("PASS", "Passes" if report.objectives else "Carried"),
        ("FAIL", "Fails"),
        ("INCONCLUSIVE", "Can't be told"),
    ):
        there = [at(report.x, point.x) for point in series.points if point.outcome == word]
        if there:
            told.append(f"{what} at {', '.join(there)}.")
    return " ".join(told) or "No point could be judged."


def _line(line: LinePart, x: str) -> str:
    if line.low is None and line.high is None:
        return "No point passes or fails for sure."
    if line.high is None:
        return f"Every objective holds up to {at(x, line.low or 0.0)}, the greatest load that passes; none fails."
    if line.low is None:
        return f"It fails from {at(x, line.high)} on: the line lies below the grid."
    text = f"The line lies between {at(x, line.low)} (passes) and {at(x, line.high)} (fails)"
    if line.interpolated is not None:
        text += f"; the curve of {line.by} crosses the limit at {at(x, line.interpolated)}, interpolated"
    if line.undecided:
        text += f"; {', '.join(at(x, value) for value in line.undecided)} between them can't be told"
    if line.interpolated is None and line.crossings:
        text += f"; no crossing can be read off, {line.crossings[0].why}"
    if line.passes_above:
        text += f"; {', '.join(at(x, value) for value in line.passes_above)} beyond them passes all the same"
    return f"{text}."


def line_range(line: LinePart | None, x: str) -> str:
    """The measured interval of the line for a table."""
    if line is None or (line.low is None and line.high is None):
        return units.NOTHING
    if line.high is None:
        return f"above {at(x, line.low or 0.0)}"
    return f"below {at(x, line.high)}" if line.low is None else f"{at(x, line.low)} to {at(x, line.high)}"


def objective(point: SweepPoint) -> str:
    """Why a point has its outcome, in a line."""
    return "; ".join(point.reasons[:2])


def times(point: SweepPoint, names: Sequence[str]) -> list[str]:
    """p50 and p99 of each indicator at a point, as cells of a table."""
    return [
        time(None if metric is None else value, metric is not None and point.measured)
        for metric in (point.metrics.get(name) for name in names)
        for value in ((None, None) if metric is None else (metric.p50, metric.p99))
    ]
