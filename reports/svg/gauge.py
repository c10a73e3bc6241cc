"""Gauges of an error budget: the bad share against the allowed one, and the part of the period's budget that is spent."""

from __future__ import annotations

from markupsafe import Markup

from plimsoll.reports.sections.budgets import BudgetPart
from plimsoll.reports.svg.axis import Axis
from plimsoll.reports.svg.ink import element, join, line, text
from plimsoll.reports.svg.plot import Canvas, svg
from plimsoll.reports.wording import units

_CANVAS = Canvas(320, 56, left=4, right=4)
_SPENT = Canvas(320, 18, left=4, right=4)
_MIDDLE = 20.0


def bad_share(part: BudgetPart) -> Markup | None:
    """The bad share of the run as a bar with its interval, against the share that is allowed; None without data."""
    if part.sli is None:
        return None
    bad = 1.0 - part.sli
    low, high = _bad_interval(part)
    left, right = _CANVAS.x_range
    axis = Axis(0.0, min(1.0, max(part.allowed * 2, bad * 1.15, (high or 0.0) * 1.05)), left, right)
    limit = axis.at(part.allowed)
    drawn = [
        element("rect", x=left, y=8, width=limit - left, height=24, class_="zone good"),
        element("rect", x=limit, y=8, width=right - limit, height=24, class_="zone bad"),
        element(
            "rect", x=left, y=13, width=max(axis.at(bad) - left, 1.5) if bad > 0 else 0, height=14, class_="filled"
        ),
        _interval(low, high, axis),
        line(limit, 2, limit, 38, "threshold"),
        _label(f"allowed {units.percent(part.allowed, 3)}", limit),
    ]
    words = f"{units.percent(bad, 3)} bad, {units.percent(part.allowed, 3)} allowed"
    return svg(_CANVAS, join(drawn), f"{part.name}: {words}")


def _bad_interval(part: BudgetPart) -> tuple[float | None, float | None]:
    """The interval of the bad share: that of the good one, turned round."""
    low, high = part.sli_interval
    return (None if high is None else 1.0 - high), (None if low is None else 1.0 - low)


def _interval(low: float | None, high: float | None, axis: Axis) -> Markup:
    if low is None or high is None or high <= low:
        return Markup("")
    begin, end = axis.at(low), axis.at(high)
    return join(
        line(x1, y1, x2, y2, "interval thin")
        for x1, y1, x2, y2 in (
            (begin, _MIDDLE, end, _MIDDLE),
            (begin, _MIDDLE - 4, begin, _MIDDLE + 4),
            (end, _MIDDLE - 4, end, _MIDDLE + 4),
        )
    )


def _label(words: str, at: float) -> Markup:
    half = len(words) * 3.3
    return text(min(max(at, half + 2), _CANVAS.width - half - 2), 51, words, "tick", "middle")


def spent(part: BudgetPart) -> Markup | None:
    """How much of the budget of the whole period the run would have spent; None without data."""
    if part.spent_by_time is None:
        return None
    left, right = _SPENT.x_range
    axis = Axis(0.0, 1.0, left, right)
    over = part.spent_by_time > 1
    width = max(min(axis.at(part.spent_by_time), right) - left, 1.0) if part.spent_by_time > 0 else 0.0
    drawn = [
        element("rect", x=left, y=3, width=right - left, height=12, rx=6, class_="tank"),
        element(
            "rect",
            x=left,
            y=3,
            width=width,
            height=12,
            rx=min(6.0, width / 2),
            class_="filled over" if over else "filled",
        ),
    ]
    words = f"{units.percent(part.spent_by_time, 3)} of the period's error budget spent"
    return svg(_SPENT, join(drawn), f"{part.name}: {words}")
