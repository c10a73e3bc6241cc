"""Measured latencies over the rate, with the textbook queues laid over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from markupsafe import Markup

from plimsoll.reports.capacity.capacity_parts import CapacityReport, LoadPart, QueuePart
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, line, path, text
from plimsoll.reports.svg.plot import Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units

Which = Literal["p50", "p99"]
#: Of the measured points, and of each queue in turn.
MEASURED, QUEUES = "arm-1", ("arm-2", "arm-3", "arm-4")
#: A curve that goes to infinity may not flatten what was measured.
_ABOVE = 4.0


def overlay(report: CapacityReport, which: Which, label: str, canvas: Canvas) -> Picture:
    """One quantile: a dot per run, hollow where the endpoint did not keep up, and a line per queue."""
    index = 1 if which == "p50" else 2
    shown = [(load, value) for load in report.loads if (value := _value(load, which)) is not None]
    high = max(float(value) for _, value in shown)
    low = min(float(value) for _, value in shown)
    drawn_curves = [
        [(point[0], point[index]) for point in queue.curve if point[index] <= _ABOVE * high] for queue in report.queues
    ]
    tops = [value for curve in drawn_curves for _, value in curve]
    rates = [load.rate_per_s for load, _ in shown] + (
        [report.capacity.high] if report.capacity and report.capacity.high else []
    )
    x = from_zero(float(max(rates)), *canvas.x_range, "1", max(3, int(canvas.width // 130)))
    least = min([low, *tops])
    y = logarithmic(max(least, 1.0) * 0.8, max([high, *tops]) * 1.15, *canvas.y_range, "ns", 24)
    drawn = [grid(canvas, x, y), text(x.end, canvas.height - 2, "requests/s offered", "tick", "end")]
    drawn += _capacity(report, x, canvas)
    for queue_class, curve in zip(QUEUES, drawn_curves, strict=False):
        points: list[Point | None] = [(x.at(rate), y.at(value)) for rate, value in curve]
        drawn.append(path(points, f"s {queue_class}"))
    drawn += [_dot(load, float(value), x, y) for load, value in shown]
    return Picture(svg(canvas, join(drawn), label), _hover(report.queues, shown, which, x, y, canvas))


def _value(load: LoadPart, which: Which) -> Number:
    return load.p50_ns if which == "p50" else load.p99_ns


def _capacity(report: CapacityReport, x: Axis, canvas: Canvas) -> list[Markup]:
    """The lower end of the capacity, and the part of it that is safe to use."""
    if report.capacity is None or report.safe is None:
        return []
    base, top = canvas.y_range
    drawn = []
    for rate, name in ((report.safe.per_s, "safe"), (report.capacity.low, "capacity")):
        if rate <= x.high:
            drawn.append(line(x.at(rate), base, x.at(rate), top, "limit"))
            drawn.append(text(x.at(rate) - 5, top + 11, name, "limit note halo", "end"))
    return drawn


def _dot(load: LoadPart, value: float, x: Axis, y: Axis) -> Markup:
    tip = element("title", f"{load.run}: {units.rate(load.rate_per_s)}, {units.duration(value)}")
    circle = element("circle", tip, cx=x.at(load.rate_per_s), cy=y.at(value), r=4.0)
    return element("g", circle, class_=f"point {'front' if load.stable else 'beaten'} {MEASURED}")


def _hover(
    queues: Sequence[QueuePart],
    shown: Sequence[tuple[LoadPart, Number]],
    which: Which,
    x: Axis,
    y: Axis,
    canvas: Canvas,
) -> dict[str, object]:
    """At each run: what was measured, and how many times each curve that is."""
    values = [float(value or 0) for _, value in shown]
    lines = [
        series("measured", MEASURED, [y.at(value) for value in values], [units.duration(value) for value in values])
    ]
    for queue, class_ in zip(queues, QUEUES, strict=False):
        ratios = []
        for load, _ in shown:
            one = next((against for against in load.against if against.model == queue.model), None)
            ratio = None if one is None else one.p50 if which == "p50" else one.p99
            ratios.append(units.NOTHING if ratio is None else f"{units.significant(ratio, 3)} x the curve")
        lines.append(series(queue.model, class_, [None] * len(shown), ratios))
    heads = [f"{units.rate(load.rate_per_s)} ({load.run})" for load, _ in shown]
    return hover(canvas, [x.at(load.rate_per_s) for load, _ in shown], heads, lines)
