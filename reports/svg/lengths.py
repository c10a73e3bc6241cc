"""A metric by prompt length: a light cloud of requests, and quantile lines with one step a bin."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from plimsoll.reports.parts.chart_parts import ByPrompt, PromptBin
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, path, text
from plimsoll.reports.svg.plot import Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units

#: A p99 of fewer requests is their slowest one: it is in the cloud already.
ENOUGH_FOR_P99 = 100
_LOG_ABOVE = 12.0


def lengths(data: ByPrompt, label: str, canvas: Canvas) -> Picture:
    """The chart on ``canvas``."""
    x = logarithmic(data.bins[0].low * 0.97, data.bins[-1].high * 1.03, *canvas.x_range, "count", gap=52)
    y = _value_axis(data, canvas)
    lines = _lines(data)
    drawn = [grid(canvas, x, y), text(canvas.width - 2, canvas.height - 1, "input tokens", "tick", "end")]
    drawn.append(_cloud(data, x, y))
    drawn += [path(_steps(values, data.bins, x, y), class_) for _, class_, values in lines]
    drawn.append(_lost(data.bins, x, canvas))
    return Picture(svg(canvas, join(drawn), label), _hover(data, lines, x, y, canvas))


def _value_axis(data: ByPrompt, canvas: Canvas) -> Axis:
    values = [float(value) for _, value in data.points if value is not None]
    values += [float(value) for _, _, line in _lines(data) for value in line if value is not None]
    high, low = max(values, default=1.0), max(min(values, default=1.0), 1.0)
    if high / low > _LOG_ABOVE:
        return logarithmic(low * 0.85, high * 1.15, *canvas.y_range, data.unit, 24)
    return from_zero(high, *canvas.y_range, data.unit, 5)


def _lines(data: ByPrompt) -> list[tuple[str, str, list[Number]]]:
    """Name, class and one value a bin, back to front; a line that no bin can carry is left out."""
    lines: list[tuple[str, str, list[Number]]] = [
        ("p99", "s-p99", [part.p99 if part.n >= ENOUGH_FOR_P99 else None for part in data.bins]),
        ("p90", "s-p90", [part.p90 for part in data.bins]),
        ("p50", "s-p50", [part.p50 for part in data.bins]),
    ]
    return [line for line in lines if any(value is not None for value in line[2])]


def _steps(values: Sequence[Number], bins: Sequence[PromptBin], x: Axis, y: Axis) -> list[Point | None]:
    """A level stretch over each bin, joined to the next; broken where a value is infinite or a bin is empty."""
    points: list[Point | None] = []
    for index, (value, part) in enumerate(zip(values, bins, strict=True)):
        begin, end = float(part.low), float(part.high)
        if index and bins[index - 1].high + 1 == part.low:
            begin -= 0.5
        else:
            points.append(None)
        if index + 1 < len(bins) and bins[index + 1].low == part.high + 1:
            end += 0.5
        points += [None] if value is None else [(x.at(begin), y.at(value)), (x.at(end), y.at(value))]
    return points


def _cloud(data: ByPrompt, x: Axis, y: Axis) -> Markup:
    # One path of dots (round caps on lines without length) is a tenth of as many circles.
    dots = [f"M{x.at(n_in):.1f} {y.at(value):.1f}h0" for n_in, value in data.points if value is not None]
    return element("path", d="".join(dots), class_="cloud") if dots else Markup("")


def _lost(bins: Sequence[PromptBin], x: Axis, canvas: Canvas) -> Markup:
    """A cross at the top of each bin that had failures."""
    crosses = []
    for part in bins:
        if part.failed:
            centre = (x.at(part.low) + x.at(part.high)) / 2
            shape = f"M{centre - 3:.1f} {canvas.top + 1:.1f}l6 6m0 -6l-6 6"
            crosses.append(element("path", d=shape, class_="s-error cross"))
    return join(crosses)


def _hover(
    data: ByPrompt, lines: Sequence[tuple[str, str, list[Number]]], x: Axis, y: Axis, canvas: Canvas
) -> dict[str, object]:
    heads = [f"{units.count(part.low)} to {units.count(part.high)} input tokens" for part in data.bins]
    shown = [
        series(
            name,
            class_,
            [None if value is None else y.at(value) for value in values],
            [_value(part, name, data.unit) for part in data.bins],
        )
        for name, class_, values in lines
    ]
    counts = [
        units.count(part.n) + (f", {units.count(part.failed)} failed" if part.failed else "") for part in data.bins
    ]
    shown.append(series("requests", "s-planned", [None] * len(data.bins), counts))
    return hover(canvas, [(x.at(part.low) + x.at(part.high)) / 2 for part in data.bins], heads, shown)


def _value(part: PromptBin, name: str, unit: str) -> str:
    if name == "p99" and part.n < ENOUGH_FOR_P99:
        return units.NOTHING
    return units.human(getattr(part, name), unit)
