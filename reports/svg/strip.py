"""Strips: quantities over the run's own time, stacked one above the other on one time axis."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plimsoll.reports.parts.charts import Band, Timeline
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, clock, from_zero
from plimsoll.reports.svg.ink import Point, area, element, join, line, path, text
from plimsoll.reports.svg.plot import Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units

_CROSSES = 50  # more marked bars than this speak for themselves
_ROOM = 9  # pixels above the axis for marks of what is infinite


@dataclass(frozen=True, slots=True)
class Layer:
    """One quantity of a strip.

    ``kind`` is line, planned (dashed), bars (drawn from the base), dots, read (not drawn, only read out), or fill (down
    to ``lower``). Where ``infinite`` holds a bucket, its null is drawn as a mark at the top instead of as a gap.
    """

    label: str
    class_: str
    values: Sequence[Number]
    kind: str = "line"
    lower: Sequence[Number] = ()
    infinite: Sequence[bool] = ()


@dataclass(frozen=True, slots=True)
class Strip:
    """What to draw in one strip: its layers (back to front), their unit, horizontal limits with labels, and vertical
    marks (ns after t0) with labels. ``reaches``: the axis goes up to this at least, so that strips can be compared.
    """

    title: str
    unit: str
    layers: Sequence[Layer]
    limits: Sequence[tuple[float, str]] = ()
    marks: Sequence[tuple[int, str]] = ()
    reaches: float = 0.0


def strip(data: Strip, timeline: Timeline, label: str, canvas: Canvas, x_labels: bool) -> Picture:
    x = clock(timeline.start_ns, timeline.end_ns, *canvas.x_range, max(3, int(canvas.width // 110)))
    finite = [v for layer in data.layers if layer.kind != "read" for v in layer.values if v is not None]
    high = max(data.reaches, float(max(finite, default=0.0)))
    # A limit far above the data would flatten it: such a limit is named in the caption, not drawn.
    shown = [(value, name) for value, name in data.limits if value <= 4 * high]
    top = max([high * 1.04, *(value for value, _ in shown)])
    base, roof = canvas.y_range
    y = from_zero(
        top, base, roof + (_ROOM if any(map(any, (one.infinite for one in data.layers))) else 0), data.unit, 3
    )
    drawn = [grid(canvas, x, y, x_labels)]
    for value, name in shown:
        drawn.append(line(x.start, y.at(value), x.end, y.at(value), "limit"))
        drawn.append(text(x.end - 4, y.at(value) - 4, name, "note halo limit", "end"))
    drawn += [_layer(layer, timeline, x, y) for layer in data.layers]
    drawn += [_mark(at, name, x, y) for at, name in data.marks]
    return Picture(svg(canvas, join(drawn), label), _hover(data, timeline, x, y, canvas))


def band_layers(name: str, band: Band, due: Sequence[int]) -> list[Layer]:
    """Median and p99 of a metric. Where a failure is the p99, the line goes on as that of the successful requests and a
    mark at the top says so: one failure makes no wall, and is not hidden.
    """
    lost = [high is None and number > 0 for high, number in zip(band.p99, due, strict=True)]
    line, class_ = band.p99_ok or band.p99, f"s-{name}"
    layers = [Layer("p50 to p99", class_, line, "fill", lower=band.p50)]
    if any(lost):
        beside = [any(lost[max(i - 1, 0) : i + 2]) for i in range(len(lost))]
        joined = [ok if high is None else high for ok, high in zip(line, band.p99, strict=True)]
        values = [value if near else None for value, near in zip(joined, beside, strict=True)]
        layers.append(Layer("p99 of the successful", f"{class_} thin", values))
    layers += [Layer("p99", class_, band.p99, infinite=lost), Layer("p50", class_, band.p50, "planned")]
    return [*layers, Layer("failed", "s-error", band.failed, "read")] if any(band.failed) else layers


def bucket_bounds(timeline: Timeline) -> list[tuple[int, int]]:
    """Begin and end of every bucket; the last one ends with the run."""
    starts = [timeline.start_ns + index * timeline.bucket_ns for index in range(len(timeline.due))]
    return list(zip(starts, [*starts[1:], timeline.end_ns], strict=True))


def _centres(timeline: Timeline, x: Axis) -> list[float]:
    return [x.at((begin + end) / 2) for begin, end in bucket_bounds(timeline)]


def _points(values: Sequence[Number], centres: Sequence[float], y: Axis) -> list[Point | None]:
    return [None if v is None else (at, y.at(v)) for v, at in zip(values, centres, strict=True)]


def _layer(layer: Layer, timeline: Timeline, x: Axis, y: Axis) -> Markup:
    centres = _centres(timeline, x)
    points = _points(layer.values, centres, y)
    if layer.kind == "read":
        return Markup("")
    if layer.kind == "bars":
        return _bars(layer, timeline, x, y)
    if layer.kind == "dots":
        return join(
            element("circle", cx=p[0], cy=p[1], r=2, class_=f"s {layer.class_} dot") for p in points if p is not None
        )
    if layer.kind == "fill":
        lower = _points(layer.lower, centres, y) if layer.lower else [(at, y.start) for at in centres]
        # One failure makes a bucket's p99 infinite: the band breaks off there, and the line's cross says why.
        return area(points, lower, layer.class_)
    class_ = f"s {layer.class_}" + (" planned" if layer.kind == "planned" else "")
    return path(points, class_) + _lost(layer, timeline, x, y)


def _lost(layer: Layer, timeline: Timeline, x: Axis, y: Axis) -> Markup:
    """A rail along the top, over each stretch of buckets that are infinite."""
    pieces: list[tuple[float, float]] = []
    for (begin, end), lost in zip(bucket_bounds(timeline), layer.infinite, strict=False):
        if lost:
            first = pieces.pop()[0] if pieces and pieces[-1][1] >= x.at(begin) else x.at(begin)
            pieces.append((first, x.at(end)))
    rail = y.end - _ROOM / 2
    return join(
        element("rect", x=a, y=rail - 2, width=max(b - a, 3.0), height=4, class_="s-error bar") for a, b in pieces
    )


def _cross(x: float, y: float) -> Markup:
    shape = f"M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"
    return element("path", d=shape, class_="s-error cross")


def _bars(layer: Layer, timeline: Timeline, x: Axis, y: Axis) -> Markup:
    bars = []
    sparse = sum(1 for value in layer.values if value) <= _CROSSES
    for (begin, end), value in zip(bucket_bounds(timeline), layer.values, strict=True):
        if not value:
            continue
        width = max(x.at(end) - x.at(begin) - 1, 2.0)
        height = max(y.start - y.at(value), 3.0)
        centre = (x.at(begin) + x.at(end)) / 2
        left, top, class_ = centre - width / 2, y.start - height, f"{layer.class_} bar"
        bars.append(element("rect", x=left, y=top, width=width, height=height, class_=class_))
        if sparse:
            bars.append(_cross(centre, y.start - height - 6))
    return join(bars)


def _mark(at_ns: int, name: str, x: Axis, y: Axis) -> Markup:
    at = x.at(at_ns)
    label = text(at + 5, y.end + 10, name, "note halo cut", "start") if name else Markup("")
    return line(at, y.start, at, y.end, "cut") + label


def _hover(data: Strip, timeline: Timeline, x: Axis, y: Axis, canvas: Canvas) -> dict[str, object]:
    heads = [f"{units.seconds(begin)} to {units.seconds(end)}" for begin, end in bucket_bounds(timeline)]
    lines = [
        series(
            layer.label,
            layer.class_,
            [None if v is None or layer.kind == "read" else y.at(v) for v in layer.values],
            [_shown(v, index, layer, data.unit) for index, v in enumerate(layer.values)],
        )
        for layer in data.layers
        if not layer.lower  # a band between two lines that are read out on their own
    ]
    return hover(canvas, _centres(timeline, x), heads, lines)


def _shown(value: Number, index: int, layer: Layer, unit: str) -> str:
    if value is None:
        lost = index < len(layer.infinite) and layer.infinite[index]
        return units.INFINITE if lost else units.NOTHING
    return units.count(value) if unit == "count" or layer.kind == "read" else units.human(value, unit)
