"""How one indicator is distributed: bars over a logarithmic axis, with the median, p99 and the limits
marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plimsoll.reports.parts.chart_parts import Distribution
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import element, join, line, text, text_width
from plimsoll.reports.svg.plot import FONT, Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line with a label: ``class_`` is ``quantile`` or ``limit``."""

    value: float
    label: str
    class_: str


def histogram(name: str, data: Distribution, marks: Sequence[Mark], label: str, canvas: Canvas) -> Picture:
    """Bars of ``data`` with ``marks`` over them; the marks' labels stand in as many rows as they need."""
    inside = [mark.value for mark in marks if mark.value > 0]
    low, high = min([data.edges[0], *inside]), max([data.edges[-1], *inside])
    x = logarithmic(low * 0.97, high * 1.03, *canvas.x_range, data.unit, gap=52)
    rows = _rows(marks, x, canvas)
    depth = (max(rows) + 1) * (FONT + 4) if rows else 0
    inner = Canvas(canvas.width, canvas.height, canvas.left, canvas.right, canvas.top + depth, canvas.bottom)
    y = from_zero(max(data.counts), *inner.y_range, "count", 4)
    drawn = [grid(inner, x, y), _bars(name, data, x, y)]
    drawn += [_mark(mark, row, x, canvas, inner) for mark, row in zip(marks, rows, strict=True)]
    return Picture(svg(canvas, join(drawn), label), _hover(name, data, x, y, inner))


def _bars(name: str, data: Distribution, x: Axis, y: Axis) -> Markup:
    bars = []
    for left, right, number in zip(data.edges, data.edges[1:], data.counts, strict=False):
        if number == 0:
            continue
        begin, end = x.at(left), x.at(right)
        # Half a pixel at least: one request in a far bin must be seen.
        height = max(y.start - y.at(number), 1.5)
        width = max(end - begin - 0.8, 0.8)
        bars.append(
            element("rect", x=begin + 0.4, y=y.start - height, width=width, height=height, class_=f"s-{name} bar")
        )
    return join(bars)


def _rows(marks: Sequence[Mark], x: Axis, canvas: Canvas) -> list[int]:
    """Label rows from left to right: each label takes the first row where it touches no other."""
    ends: list[float] = []
    rows = [0] * len(marks)
    for index in sorted(range(len(marks)), key=lambda i: marks[i].value):
        left, right = _extent(marks[index], x, canvas)
        row = next((r for r, end in enumerate(ends) if left > end + 8), len(ends))
        ends[row : row + 1] = [right]
        rows[index] = row
    return rows


def _extent(mark: Mark, x: Axis, canvas: Canvas) -> tuple[float, float]:
    width = text_width(mark.label, FONT)
    # The first column is the vertical axis's own: its topmost number stands as high as a label.
    left = min(max(x.at(mark.value) - width / 2, canvas.x_range[0]), canvas.width - width - 2)
    return left, left + width


def _mark(mark: Mark, row: int, x: Axis, canvas: Canvas, inner: Canvas) -> Markup:
    left, right = _extent(mark, x, canvas)
    label_base = canvas.top + (row + 1) * (FONT + 4) - 6
    base, _ = inner.y_range
    stem = line(x.at(mark.value), label_base + 4, x.at(mark.value), base, mark.class_)
    return stem + text((left + right) / 2, label_base, mark.label, f"note halo {mark.class_}", "middle")


def _hover(name: str, data: Distribution, x: Axis, y: Axis, canvas: Canvas) -> dict[str, object]:
    pairs = list(zip(data.edges, data.edges[1:], strict=False))
    centres = [(x.at(a) + x.at(b)) / 2 for a, b in pairs]
    heads = [f"{units.human(a, data.unit)} to {units.human(b, data.unit)}" for a, b in pairs]
    shown = [
        f"{units.count(number)} ({units.percent(number / data.n, 3)})" if number else "0" for number in data.counts
    ]
    heights: list[float | None] = [y.at(number) for number in data.counts]
    return hover(canvas, centres, heads, [series("requests", f"s-{name}", heights, shown)])
