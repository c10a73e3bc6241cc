"""How an indicator is spread: as a histogram, over the run's time as a map, and by the length of the prompt."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from markupsafe import Markup

from plimsoll.reports.parts.charts import ByPrompt, Distribution, Heatmap, PromptBin
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, clock, from_zero, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, line, path, text, text_width
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
    inner = replace(canvas, top=canvas.top + depth)
    y = from_zero(max(data.counts), *inner.y_range, "count", 4)
    drawn = [grid(inner, x, y), _bars(name, data, x, y)]
    drawn += [_mark(mark, row, x, canvas, inner) for mark, row in zip(marks, rows, strict=True)]
    return Picture(svg(canvas, join(drawn), label), _bins_hover(name, data, x, y, inner))


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


def _bins_hover(name: str, data: Distribution, x: Axis, y: Axis, canvas: Canvas) -> dict[str, object]:
    pairs = list(zip(data.edges, data.edges[1:], strict=False))
    centres = [(x.at(a) + x.at(b)) / 2 for a, b in pairs]
    heads = [f"{units.human(a, data.unit)} to {units.human(b, data.unit)}" for a, b in pairs]
    shown = [
        f"{units.count(number)} ({units.percent(number / data.n, 3)})" if number else "0" for number in data.counts
    ]
    heights: list[float | None] = [y.at(number) for number in data.counts]
    return hover(canvas, centres, heads, [series("requests", f"s-{name}", heights, shown)])


#: A cell is of the deepest level whose share of its column it reaches.
LEVELS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
_FAILED_ROW = 14.0
_GAP = 5.0


def heat(data: Heatmap, label: str, canvas: Canvas) -> Picture:
    x = clock(data.start_ns, data.end_ns, *canvas.x_range, max(3, int(canvas.width // 110)))
    lost = any(data.failed)
    inner = replace(canvas, top=canvas.top + _FAILED_ROW + _GAP) if lost else canvas
    y = logarithmic(data.edges[0] * 0.985, data.edges[-1], *inner.y_range, data.unit, 22)
    edges = _columns(data, x)
    totals = [sum(column) for column in zip(*data.counts, data.failed, strict=True)]
    drawn = [grid(inner, x, y), _cells(data, edges, totals, y)]
    if lost:
        drawn.append(_failures(data, edges, totals, canvas))
    centres = [(left + right) / 2 for left, right in edges]
    drawn.append(_line(data.p99, centres, y, "heat-p99"))
    drawn.append(_line(data.p50, centres, y, "heat-p50"))
    return Picture(svg(canvas, join(drawn), label), _map_hover(data, edges, totals, y, inner))


def level(share: float) -> int:
    """The depth of colour of a share above 0: 1 to 6."""
    return max(index for index, least in enumerate(LEVELS, start=1) if share >= least)


def _columns(data: Heatmap, x: Axis) -> list[tuple[float, float]]:
    starts = [x.at(data.start_ns + index * data.column_ns) for index in range(len(data.failed))]
    return list(zip(starts, [*starts[1:], x.end], strict=True))


def _cells(data: Heatmap, edges: Sequence[tuple[float, float]], totals: Sequence[int], y: Axis) -> Markup:
    bounds = zip(data.counts, data.edges, data.edges[1:], strict=False)
    return _levels([(counts, y.at(high), y.at(low)) for counts, low, high in bounds], edges, totals, "heat")


def _failures(data: Heatmap, edges: Sequence[tuple[float, float]], totals: Sequence[int], canvas: Canvas) -> Markup:
    top, bottom = canvas.top, canvas.top + _FAILED_ROW
    width = canvas.x_range[1] - canvas.left
    frame = element("rect", x=canvas.left, y=top, width=width, height=_FAILED_ROW, class_="slot")
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


def _map_hover(
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


#: A p99 of fewer requests is their slowest one: it is in the cloud already.
ENOUGH_FOR_P99 = 100
_LOG_ABOVE = 12.0


def lengths(data: ByPrompt, label: str, canvas: Canvas) -> Picture:
    x = logarithmic(data.bins[0].low * 0.97, data.bins[-1].high * 1.03, *canvas.x_range, "count", gap=52)
    y = _value_axis(data, canvas)
    lines = _lines(data)
    drawn = [grid(canvas, x, y), text(canvas.width - 2, canvas.height - 1, "input tokens", "tick", "end")]
    drawn.append(_cloud(data, x, y))
    drawn += [path(_steps(values, data.bins, x, y), class_) for _, class_, values in lines]
    drawn.append(_lost(data.bins, x, canvas))
    return Picture(svg(canvas, join(drawn), label), _lengths_hover(data, lines, x, y, canvas))


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


def _lengths_hover(
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
