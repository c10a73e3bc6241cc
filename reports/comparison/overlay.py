"""Percentile curves of several arms over each other: the median of each arm's runs, and the range of its runs as a band.

Where bands overlap the arms differ no more than their own runs do. Failed requests are infinite: the line ends there.
"""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from plimsoll.reports.comparison.comparison_parts import ProfilePart
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic, tail, tail_at
from plimsoll.reports.svg.ink import Point, area, join, line, path, spread, text
from plimsoll.reports.svg.plot import FONT, Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units

_LOG_ABOVE = 12.0
_MOST_LABEL = 14


def overlay(arms: Mapping[str, ProfilePart], classes: Mapping[str, str], label: str, canvas: Canvas) -> Picture:
    """One line and one band per arm; ``classes``: the style class of each."""
    unit = next(iter(arms.values())).unit
    n = max(_size(part) for part in arms.values())
    x = tail(n, *canvas.x_range)
    finite = [float(v) for part in arms.values() for v in (*part.low, *part.high) if v is not None]
    y = _value_axis(finite, unit, canvas)
    drawn = [grid(canvas, x, y), text(x.end + 6, y.start + 18, "percentile", "tick")]
    for name, part in arms.items():
        drawn.append(area(_upper(part, x, y, n), _points(part, part.low, x, y, n), f"s {classes[name]}"))
    for name, part in arms.items():
        points = _points(part, part.middle, x, y, n)
        drawn.append(path(points, f"s {classes[name]}"))
        if part.middle[-1] is None:
            last = next((p for p in reversed(points) if p is not None), (x.start, y.start))
            drawn.append(line(last[0], last[1], last[0], y.end, f"s {classes[name]} line lost"))
    drawn.append(_labels(arms, classes, x, y, n))
    return Picture(svg(canvas, join(drawn), label), _hover(arms, classes, x, y, n, canvas))


def _size(part: ProfilePart) -> int:
    return max(2, round(1 / max(1 - part.q[-1], 1e-9)))


def _value_axis(finite: list[float], unit: str, canvas: Canvas) -> Axis:
    high = max(finite, default=1.0)
    positive = [v for v in finite if v > 0]
    low = min(positive, default=high)
    if positive and high / low > _LOG_ABOVE:
        return logarithmic(low * 0.85, high * 1.15, *canvas.y_range, unit, 24)
    return from_zero(high, *canvas.y_range, unit, 5)


def _points(part: ProfilePart, values: list[Number], x: Axis, y: Axis, n: int) -> list[Point | None]:
    return [
        None if value is None else (x.at(tail_at(q, n)), min(y.at(float(value)), y.start))
        for q, value in zip(part.q, values, strict=True)
    ]


def _upper(part: ProfilePart, x: Axis, y: Axis, n: int) -> list[Point | None]:
    """The upper edge of a band: where a run's requests failed there is none, so it is drawn to the top."""
    edge = _points(part, part.high, x, y, n)
    return [point or (x.at(tail_at(q, n)), y.end) for q, point in zip(part.q, edge, strict=True)]


def _labels(arms: Mapping[str, ProfilePart], classes: Mapping[str, str], x: Axis, y: Axis, n: int) -> Markup:
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


def _hover(
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
