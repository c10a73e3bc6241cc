"""A heat map: time across, values upwards on a logarithmic axis, the share of each column's requests as depth of colour.

One hue, dark where many requests are, so that it reads in grey and without colour vision; failures have a row of their own
at the top. The median and p99 are lines over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup

from plimsoll.reports.parts.chart_parts import Heatmap
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, clock, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, path, text
from plimsoll.reports.svg.plot import Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units

#: A cell is of the deepest level whose share of its column it reaches.
LEVELS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
_FAILED_ROW = 14.0
_GAP = 5.0


def heat(data: Heatmap, label: str, canvas: Canvas) -> Picture:
    """The map on ``canvas``."""
    x = clock(data.start_ns, data.end_ns, *canvas.x_range, max(3, int(canvas.width // 110)))
    lost = any(data.failed)
    inner = _below_failures(canvas) if lost else canvas
    y = logarithmic(data.edges[0] * 0.985, data.edges[-1], *inner.y_range, data.unit, 22)
    edges = _columns(data, x)
    totals = [sum(column) for column in zip(*data.counts, data.failed, strict=True)]
    drawn = [grid(inner, x, y), _cells(data, edges, totals, y)]
    if lost:
        drawn.append(_failures(data, edges, totals, canvas))
    centres = [(left + right) / 2 for left, right in edges]
    drawn.append(_line(data.p99, centres, y, "heat-p99"))
    drawn.append(_line(data.p50, centres, y, "heat-p50"))
    return Picture(svg(canvas, join(drawn), label), _hover(data, edges, totals, y, inner))


def level(share: float) -> int:
    """The depth of colour of a share above 0: 1 to 6."""
    return max(index for index, least in enumerate(LEVELS, start=1) if share >= least)


def _below_failures(canvas: Canvas) -> Canvas:
    top = canvas.top + _FAILED_ROW + _GAP
    return Canvas(canvas.width, canvas.height, canvas.left, canvas.right, top, canvas.bottom)


def _columns(data: Heatmap, x: Axis) -> list[tuple[float, float]]:
    starts = [x.at(data.start_ns + index * data.column_ns) for index in range(len(data.failed))]
    return list(zip(starts, [*starts[1:], x.end], strict=True))


def _cells(data: Heatmap, edges: Sequence[tuple[float, float]], totals: Sequence[int], y: Axis) -> Markup:
    rows = []
    for counts, low, high in zip(data.counts, data.edges, data.edges[1:], strict=False):
        rows.append((counts, y.at(high), y.at(low)))
    return _levels(rows, edges, totals, "heat")


def _failures(data: Heatmap, edges: Sequence[tuple[float, float]], totals: Sequence[int], canvas: Canvas) -> Markup:
    top, bottom = canvas.top, canvas.top + _FAILED_ROW
    frame = element(
        "rect", x=canvas.left, y=top, width=canvas.x_range[1] - canvas.left, height=_FAILED_ROW, class_="slot"
    )
    label = text(canvas.left - 8, bottom - 3, "failed", "tick", "end")
    return frame + label + _levels([(data.failed, top, bottom)], edges, totals, "lost")


def _levels(
    rows: Sequence[tuple[Sequence[int], float, float]],
    edges: Sequence[tuple[float, float]],
    totals: Sequence[int],
    name: str,
) -> Markup:
    """One path a level; neighbours of one level are one rectangle: a page holds thousands of cells."""
    shapes: dict[int, list[str]] = {}
    for counts, top, bottom in rows:
        depth = [level(n / total) if n else 0 for n, total in zip(counts, totals, strict=True)]
        for deep, run in groupby(range(len(depth)), key=depth.__getitem__):
            if deep:
                cells = list(run)
                left, right = edges[cells[0]][0], edges[cells[-1]][1]
                shapes.setdefault(deep, []).append(f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z")
    return join(element("path", d="".join(shapes[deep]), class_=f"cell {name}-{deep}") for deep in sorted(shapes))


def _line(values: Sequence[Number], centres: Sequence[float], y: Axis, class_: str) -> Markup:
    points: list[Point | None] = [
        None if value is None else (at, y.at(value)) for value, at in zip(values, centres, strict=True)
    ]
    # The casing keeps the line in sight over dark cells.
    return path(points, f"{class_} casing") + path(points, class_)


def _hover(
    data: Heatmap, edges: Sequence[tuple[float, float]], totals: Sequence[int], y: Axis, canvas: Canvas
) -> dict[str, object]:
    starts = [data.start_ns + index * data.column_ns for index in range(len(totals))]
    heads = [
        f"{units.seconds(begin)} to {units.seconds(end)}: {units.many(total, 'request')}"
        for begin, end, total in zip(starts, [*starts[1:], data.end_ns], totals, strict=True)
    ]

    def shown(values: Sequence[Number]) -> list[str]:
        pairs = zip(values, totals, strict=True)
        return [units.NOTHING if not total else units.human(value, data.unit) for value, total in pairs]

    def heights(values: Sequence[Number]) -> list[float | None]:
        return [None if value is None else y.at(value) for value in values]

    lines = [series(name, f"heat-{name}", heights(v), shown(v)) for name, v in (("p99", data.p99), ("p50", data.p50))]
    if any(data.failed):
        lines.append(series("failed", "s-error", [None] * len(totals), [units.count(n) for n in data.failed]))
    return hover(canvas, [(left + right) / 2 for left, right in edges], heads, lines)
