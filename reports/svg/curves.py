"""Latency by percentile, on the axis where each further nine takes the same room.

Failed requests are shown, not hidden: where a curve reaches them it rises out of the chart, labelled ∞.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plimsoll.reports.parts.charts import Curve
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic, tail, tail_at
from plimsoll.reports.svg.ink import Point, element, join, line, path, spread, text
from plimsoll.reports.svg.plot import FONT, Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units
from plimsoll.slo.metrics.indicator import short_of

_LOG_ABOVE = 12.0


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold to draw: on which indicator, at which quantile (None: for every request) and how it reads."""

    indicator: str
    q: float | None
    value: float
    label: str
    met: bool | None = None


def percentiles(curves: Mapping[str, Curve], limits: Sequence[Limit], label: str, canvas: Canvas) -> Picture:
    """Every curve over one percentile axis, with the limits that apply to them."""
    n = max(curve.n for curve in curves.values())
    x = tail(n, *canvas.x_range)
    y = _value_axis(curves, limits, canvas)
    drawn = [grid(canvas, x, y), text(x.end + 6, y.start + 18, "percentile", "tick")]
    drawn += [_limit(limit, x, y, canvas, n) for limit in limits]
    drawn += [_curve(name, curve, x, y) for name, curve in curves.items()]
    drawn.append(_end_labels(curves, x, y, canvas))
    drawn.append(_limit_labels(limits, y, canvas))
    return Picture(svg(canvas, join(drawn), label), _hover(curves, x, y, canvas))


def _value_axis(curves: Mapping[str, Curve], limits: Sequence[Limit], canvas: Canvas) -> Axis:
    finite = [v for curve in curves.values() for v in curve.value if v is not None]
    limit_values = [limit.value for limit in limits]
    # Room above a limit for its label.
    high = max([*finite, *(1.15 * value for value in limit_values)], default=1.0)
    positive = [v for v in [*finite, *limit_values] if v > 0]
    low = min(positive, default=high)
    if positive and high / low > _LOG_ABOVE:
        return logarithmic(low * 0.85, high * 1.15, *canvas.y_range, "ns", 24)
    return from_zero(high, *canvas.y_range, "ns", 5)


def _points(curve: Curve, x: Axis, y: Axis) -> list[Point | None]:
    # Two chunks of one read have a gap of 0, which a logarithmic axis puts at minus infinity: the floor stands for it.
    return [
        None if value is None else (x.at(tail_at(q, curve.n)), min(y.at(value), y.start))
        for q, value in zip(curve.q, curve.value, strict=True)
    ]


def _curve(name: str, curve: Curve, x: Axis, y: Axis) -> Markup:
    points = _points(curve, x, y)
    drawn = path(points, f"s s-{name}")
    if curve.failed:
        # The last finite point rises to the top of the chart: from this percentile on, requests failed.
        last = next((p for p in reversed(points) if p is not None), (x.start, y.start))
        edge = max(_lost_from(curve, x), last[0])
        drawn += line(edge, last[1], edge, y.end, f"s s-{name} line lost")
    return drawn


def _end_labels(curves: Mapping[str, Curve], x: Axis, y: Axis, canvas: Canvas) -> Markup:
    wanted = []
    for curve in curves.values():
        last = next((v for v in reversed(curve.value) if v is not None), None)
        wanted.append(y.end + 4 if curve.failed or last is None else y.at(last) + 4)
    places = spread(wanted, FONT + 3, y.end + 4, y.start)
    labels = []
    for (name, curve), place in zip(curves.items(), places, strict=True):
        shown = f"{short_of(name)} ∞" if curve.failed else short_of(name)
        at = x.at(tail_at(1.0, curve.n)) if not curve.failed else min(_lost_from(curve, x), x.end)
        labels.append(text(at + 6, place, shown, f"end halo s-{name}"))
    return join(labels)


def _lost_from(curve: Curve, x: Axis) -> float:
    """The pixel from which on a curve's requests failed: its last finite point, or the left edge if all did."""
    if curve.failed >= curve.n:
        return x.start
    return x.at(tail_at(1 - curve.failed / curve.n, curve.n))


def _limit(limit: Limit, x: Axis, y: Axis, canvas: Canvas, n: int) -> Markup:
    height = y.at(limit.value)
    end = x.end if limit.q is None else min(x.at(tail_at(limit.q, max(n, 10**9))), x.end)
    drawn = line(x.start, height, end, height, f"limit s-{limit.indicator}")
    if limit.q is not None:
        # The gate: the curve must pass below this bar.
        drawn += line(end, height - 6, end, height + 6, f"gate s-{limit.indicator}")
    return drawn


def _limit_labels(limits: Sequence[Limit], y: Axis, canvas: Canvas) -> Markup:
    """Percentile limits are named on the left, limits on every request on the right, so that neighbours don't meet."""
    left, right = canvas.x_range
    quantiles = [limit for limit in limits if limit.q is not None]
    requests = [limit for limit in limits if limit.q is None]
    lines = [y.at(limit.value) for limit in limits]
    return _column(quantiles, lines, y, left + 6, "start") + _column(requests, lines, y, right - 4, "end")


def _column(limits: Sequence[Limit], lines: Sequence[float], y: Axis, x: float, anchor: str) -> Markup:
    wanted = []
    for limit in limits:
        at = y.at(limit.value)
        crossed = any(at - FONT - 6 < other < at - 2 for other in lines)
        wanted.append(at + FONT + 1 if crossed else at - 5)
    places = spread(wanted, FONT + 2, y.end + FONT - 2, y.start - 4)
    return join(
        text(x, place, limit.label, f"note halo s-{limit.indicator}", anchor)
        for limit, place in zip(limits, places, strict=True)
    )


def value_at(curve: Curve, q: float) -> Number:
    """The value at the first point whose quantile is at least ``q``."""
    index = min(bisect_left(curve.q, q - 1e-12), len(curve.q) - 1)
    return curve.value[index]


def _hover(curves: Mapping[str, Curve], x: Axis, y: Axis, canvas: Canvas) -> dict[str, object]:
    widest = max(curves.values(), key=lambda curve: curve.n)
    positions = [x.at(tail_at(q, widest.n)) for q in widest.q]
    lines = []
    for name, curve in curves.items():
        values = [value_at(curve, q) for q in widest.q]
        heights = [None if v is None else y.at(v) for v in values]
        lines.append(series(short_of(name), f"s-{name}", heights, [units.human(v, curve.unit) for v in values]))
    return hover(canvas, positions, [units.quantile_name(q) for q in widest.q], lines)


def legend_mark(class_: str, mark: str) -> Markup:
    """A small sample of a line, dash, area, bar or cross for a legend, in the colour of ``class_``."""
    shapes = {
        "line": line(1, 6, 19, 6, f"s {class_} line"),
        "dash": line(1, 6, 19, 6, f"s {class_} line planned"),
        "area": element("rect", x=1, y=2, width=18, height=8, class_=f"{class_} area"),
        "bar": element("rect", x=5, y=1, width=9, height=10, class_=f"{class_} bar"),
        "dots": element("circle", cx=10, cy=6, r=2.6, class_=f"s {class_} dot"),
        "cross": element("path", d="M6 2L14 10M14 2L6 10", class_=f"{class_} cross"),
    }
    return element("svg", shapes[mark], viewBox="0 0 20 12", class_="key", aria_hidden="true")
