"""One objective as a picture: what was observed, how sure we are, and on which side of the limit it lies."""

from __future__ import annotations

from markupsafe import Markup

from plimsoll.reports.parts.parts import ObjectiveResult
from plimsoll.reports.svg.axis import Axis
from plimsoll.reports.svg.ink import element, join, line, text
from plimsoll.reports.svg.plot import Canvas, svg
from plimsoll.reports.wording import units

_CANVAS = Canvas(320, 40, left=4, right=4)
_MIDDLE = 20.0


def whisker(result: ObjectiveResult) -> Markup | None:
    """The interval as a whisker against the limit; None when there is nothing to draw (no data, no
    threshold).
    """
    if result.n == 0 or result.threshold is None:
        return None
    known = [v for v in (result.threshold, result.observed, *result.interval) if v is not None]
    axis = _axis(known, result)
    threshold = axis.at(result.threshold)
    lower_is_good = result.operator.startswith("<")
    left, right = _CANVAS.x_range
    bad_from, bad_to = (threshold, right) if lower_is_good else (left, threshold)
    good_from, good_to = (left, threshold) if lower_is_good else (threshold, right)
    drawn = [
        element("rect", x=good_from, y=8, width=max(good_to - good_from, 0), height=24, class_="zone good"),
        element("rect", x=bad_from, y=8, width=max(bad_to - bad_from, 0), height=24, class_="zone bad"),
        line(threshold, 1, threshold, 39, "threshold"),
        _interval(result, axis),
        _observed(result, axis),
    ]
    return svg(_CANVAS, join(drawn), describe(result))


def _axis(known: list[int | float], result: ObjectiveResult) -> Axis:
    low, high = float(min(known)), float(max(known))
    room = (high - low) * 0.18 or abs(high) * 0.1 or 1.0
    low, high = low - room, high + room
    if result.unit in ("ratio", "fraction"):
        low, high = max(low, -0.02 * (high - low)), min(high, 1.0 + 0.02 * (high - low))
    elif min(known) >= 0:
        low = max(low, 0.0)
    return Axis(low, max(high, low + 1e-9), *_CANVAS.x_range)


def _interval(result: ObjectiveResult, axis: Axis) -> Markup:
    low, high = result.interval
    if (low is None and high is None) or low == high:
        return Markup("")
    begin = axis.start if low is None else axis.at(low)
    end = axis.end if high is None else axis.at(high)
    drawn = line(begin, _MIDDLE, end, _MIDDLE, "interval")
    drawn += line(begin, _MIDDLE - 6, begin, _MIDDLE + 6, "interval") if low is not None else Markup("")
    if high is None:
        tip = f"M{end - 7:g} {_MIDDLE - 5:g}L{end:g} {_MIDDLE:g}L{end - 7:g} {_MIDDLE + 5:g}"
        return drawn + element("path", d=tip, class_="interval")
    return drawn + line(end, _MIDDLE - 6, end, _MIDDLE + 6, "interval")


def _observed(result: ObjectiveResult, axis: Axis) -> Markup:
    if result.observed is None:
        return text(axis.end - 6, _MIDDLE + 7, units.INFINITE, "infinite", "end")
    low, high = result.interval
    # Inside a very short interval the dot shrinks, so that the ends of the whisker stay in sight.
    tight = low is not None and high is not None and low < high and axis.at(high) - axis.at(low) < 18
    return element("circle", cx=axis.at(result.observed), cy=_MIDDLE, r=2.5 if tight else 5, class_="observed")


def describe(result: ObjectiveResult) -> str:
    """The picture in words, for people who can't see it."""
    low, high = (units.human(v, result.unit, 4) for v in result.interval)
    said = result.sentence or f"observed {units.human(result.observed, result.unit, 4)}"
    limit = units.limit(result.threshold, result.unit)
    return f"{result.objective}: {said}; bounds {low} to {high}, limit {limit}: {result.outcome}"
