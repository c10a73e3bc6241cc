"""Curves over the load, or over throughput: lines through measured points, limits across, marks where something was
found.

A hollow mark at the top is a point that has no value to show: it did not keep up. Nothing is interpolated here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, line, path, spread, text
from plimsoll.reports.svg.plot import FONT, Canvas, Picture, grid, hover, svg
from plimsoll.reports.svg.plot import series as reading

_LOG_ABOVE = 12.0
_MOST_LABEL = 24


@dataclass(frozen=True, slots=True)
class Dot:
    """One point. ``y`` None: nothing to show, drawn hollow at the top. ``said``: what a pointer reads. ``void``: it
    says nothing at all, and a cross on the axis marks where it would be.
    """

    x: float
    y: float | None
    said: str
    hollow: bool = False
    void: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One curve: its label at the end ("" for none), its style, the interpolated pieces and the measured points."""

    label: str
    class_: str
    pieces: Sequence[Sequence[tuple[float, float]]]
    dots: Sequence[Dot] = ()


@dataclass(frozen=True, slots=True)
class Upright:
    """A vertical line at ``x``, or a band to ``until``; ``class_`` is knee, line or bracket."""

    x: float
    label: str
    class_: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """Everything on one chart. ``limits``: (value, label). ``diagonal``: draw y = x, what was asked for."""

    traces: Sequence[Trace]
    x_name: str
    y_unit: str
    x_unit: str = "1"
    limits: Sequence[tuple[float, str]] = ()
    uprights: Sequence[Upright] = ()
    diagonal: bool = False
    top: float | None = None


def load_curve(plot: Plot, label: str, canvas: Canvas) -> Picture:
    """The chart; the x axis begins at 0 unless its loads span more than a factor of twelve."""
    x = _x_axis(plot, canvas)
    y = _y_axis(plot, canvas)
    drawn = [grid(canvas, x, y), text(x.end, canvas.height - 2, plot.x_name, "tick", "end")]
    drawn += [_upright(one, x, y) for one in plot.uprights]
    if plot.diagonal:
        # Both ends inside the picture; on a logarithmic axis the line through equal values is no straight one.
        ends = [x.low + (x.high - x.low) * step / 60 for step in range(61)]
        drawn.append(path([_at(v, v, x, y) for v in ends if y.low <= v <= y.high], "s s-planned planned"))
    drawn += [line(x.start, y.at(value), x.end, y.at(value), "limit") for value, _ in plot.limits]
    for trace in plot.traces:
        for piece in trace.pieces:
            if len(piece) > 1:
                drawn.append(path([_at(a, b, x, y) for a, b in piece], f"s {trace.class_}"))
    drawn += [_dot(dot, trace.class_, x, y) for trace in plot.traces for dot in trace.dots]
    drawn += [_labels(plot, x, y, canvas), _limit_labels(plot, x, y)]
    drawn.append(_upright_labels(plot, x, y, canvas))
    return Picture(svg(canvas, join(drawn), label), _hover(plot, x, y, canvas))


def _at(a: float, b: float, x: Axis, y: Axis) -> Point:
    return x.at(a), min(max(y.at(b), y.end - 3), y.start)


def _x_axis(plot: Plot, canvas: Canvas) -> Axis:
    at = [dot.x for trace in plot.traces for dot in trace.dots] or [1.0]
    low, high = min(at), max(at)
    if low > 0 and high / low > _LOG_ABOVE:
        return logarithmic(low / 1.06, high * 1.06, *canvas.x_range, plot.x_unit, 34)
    return from_zero(high, *canvas.x_range, plot.x_unit, max(3, int(canvas.width // 90)))


def _y_axis(plot: Plot, canvas: Canvas) -> Axis:
    values = [y for trace in plot.traces for piece in trace.pieces for _, y in piece]
    values += [dot.y for trace in plot.traces for dot in trace.dots if dot.y is not None]
    limits = [value for value, _ in plot.limits]
    high = plot.top or max([*values, *(1.12 * value for value in limits)], default=1.0)
    positive = [v for v in (*values, *limits) if v > 0]
    if plot.y_unit == "ns" and positive and high / min(positive) > _LOG_ABOVE:
        return logarithmic(min(positive) * 0.8, high * 1.25, *canvas.y_range, plot.y_unit, 24)
    return from_zero(high, *canvas.y_range, plot.y_unit, 5)


def _dot(dot: Dot, class_: str, x: Axis, y: Axis) -> Markup:
    if dot.void:
        across, foot = x.at(dot.x), y.start
        arms = [[(across - 4, foot - 4), (across + 4, foot + 4)], [(across - 4, foot + 4), (across + 4, foot - 4)]]
        return element("g", join([element("title", dot.said), *(path(arm, f"s {class_} void") for arm in arms)]))
    at, height = _at(dot.x, dot.y, x, y) if dot.y is not None else (x.at(dot.x), y.end)
    style = f"s {class_} mark" + (" hollow" if dot.hollow or dot.y is None else "")
    return element("circle", element("title", dot.said), cx=at, cy=height, r=4.0, class_=style)


def _limit_labels(plot: Plot, x: Axis, y: Axis) -> Markup:
    places = spread([y.at(value) - 5 for value, _ in plot.limits], FONT + 2, y.end + FONT - 2, y.start - 4)
    return join(
        text(x.start + 6, place, label, "note halo limit")
        for (_, label), place in zip(plot.limits, places, strict=True)
    )


def _upright(one: Upright, x: Axis, y: Axis) -> Markup:
    at = x.at(one.x)
    if one.until is None:
        return line(at, y.start, at, y.end, f"upright {one.class_}")
    wide = max(x.at(one.until) - at, 1.0)
    return element("rect", x=at, y=y.end, width=wide, height=y.start - y.end, class_=f"upright {one.class_}")


def _upright_labels(plot: Plot, x: Axis, y: Axis, canvas: Canvas) -> Markup:
    """Above the plot, one row each, so that a knee and a line near each other can both be read."""
    drawn = []
    for row, one in enumerate(one for one in plot.uprights if one.label):
        at = x.at(one.x)
        left = at < (canvas.x_range[0] + canvas.x_range[1]) / 2
        drawn.append(
            text(
                at + (5 if left else -5),
                y.end + 10 + row * (FONT + 3),
                one.label,
                f"note halo {one.class_}",
                "start" if left else "end",
            )
        )
    return join(drawn)


def _labels(plot: Plot, x: Axis, y: Axis, canvas: Canvas) -> Markup:
    ends = [(t, t.pieces[-1][-1] if t.pieces and t.pieces[-1] else None) for t in plot.traces if t.label]
    known = [(trace, end) for trace, end in ends if end is not None]
    places = spread([_at(*end, x, y)[1] + 4 for _, end in known], FONT + 3, y.end + 4, y.start)
    drawn = []
    for (trace, end), place in zip(known, places, strict=True):
        name = trace.label if len(trace.label) <= _MOST_LABEL else trace.label[: _MOST_LABEL - 1] + "…"
        at = x.at(end[0]) + 8
        fits = at + len(name) * FONT * 0.6 < canvas.width
        where = (at, place, "start") if fits else (at - 16, place - 8, "end")
        drawn.append(text(where[0], where[1], name, f"end halo {trace.class_}", where[2]))
    return join(drawn)


def _hover(plot: Plot, x: Axis, y: Axis, canvas: Canvas) -> dict[str, object]:
    """Read off at the measured points, where the traces share them; curves over throughput have none in common."""
    positions = sorted({dot.x for trace in plot.traces for dot in trace.dots})
    if plot.x_unit != "load" or not positions:
        return {}
    lines = []
    for trace in plot.traces:
        there = {dot.x: dot for dot in trace.dots}
        dots = [there.get(position) for position in positions]
        heights = [None if dot is None or dot.y is None else _at(dot.x, dot.y, x, y)[1] for dot in dots]
        lines.append(reading(trace.label, trace.class_, heights, ["–" if dot is None else dot.said for dot in dots]))
    return hover(canvas, [x.at(p) for p in positions], [f"{p:g} {plot.x_name}" for p in positions], lines)
