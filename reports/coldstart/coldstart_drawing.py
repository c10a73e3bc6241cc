"""Two drawings of cold starts: the phases of each on one time axis, and every start's latencies in the order of issue."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from plimsoll.reports.coldstart.coldstart_parts import RepeatPart
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import Point, element, join, path, text
from plimsoll.reports.svg.plot import Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units

#: The style sheet has so many colours; further repeats take them again.
_COLOURS = 6
#: field of a repeat that ends a phase, its name, its class.
PHASES = (
    ("port_ns", "until the port is open", "arm-5"),
    ("ready_ns", "until it is ready", "arm-1"),
    ("first_answer_ns", "until the first answer", "arm-2"),
    ("steady_ns", "until it is steady", "arm-4"),
)
_ROW = 26.0


def class_of(number: int) -> str:
    """The style class of a repeat: the first one has a colour and a dash of its own."""
    return "arm-0" if number == 1 else f"arm-{(number - 2) % _COLOURS + 1}"


def phases(repeats: Sequence[RepeatPart], label: str, width: float) -> Picture:
    """One bar per start, cut where its phases end."""
    canvas = Canvas(width, _ROW * len(repeats) + 40, left=64, right=84)
    ends = [value for part in repeats for field, _, _ in PHASES if (value := getattr(part, field)) is not None]
    x = from_zero(float(max(ends, default=1)), *canvas.x_range, "ns", max(3, int(width // 170)))
    y = Axis(0.0, 1.0, *canvas.y_range)
    drawn = [grid(canvas, x, y)]
    for index, part in enumerate(repeats):
        drawn.append(_bar(part, x, canvas.top + index * _ROW, canvas))
    return Picture(svg(canvas, join(drawn), label))


def _bar(part: RepeatPart, x: Axis, top: float, canvas: Canvas) -> Markup:
    drawn = [text(canvas.left - 8, top + 17, f"start {part.number}", "tick", "end")]
    at = x.start
    for field, name, class_ in PHASES:
        value = getattr(part, field)
        if value is None or x.at(value) < at:
            continue
        tip = element("title", f"start {part.number}, {name}: {units.duration(value)}")
        drawn.append(element("rect", tip, x=at, y=top + 4, width=max(x.at(value) - at, 0.6), height=_ROW - 9, class_=f"{class_} bar"))  # fmt: skip
        at = x.at(value)
    last = [value for field, _, _ in PHASES if (value := getattr(part, field)) is not None]
    if last:
        drawn.append(text(at + 6, top + 17, units.duration(max(last)), "note halo"))
    return join(drawn)


def curves(repeats: Sequence[RepeatPart], label: str, canvas: Canvas) -> Picture:
    """Latency by request number, both on logarithmic axes: what matters is in the first few."""
    drawn_ones = [part for part in repeats if part.curve]
    values = [value for part in drawn_ones for _, value in part.curve if value]
    last = max(part.curve[-1][0] for part in drawn_ones)
    x = logarithmic(1.0, float(max(last, 2)), *canvas.x_range, "count", 30)
    y = logarithmic(min(values, default=1) * 0.85, max(values, default=1) * 1.15, *canvas.y_range, "ns", 24)
    drawn = [grid(canvas, x, y), text(x.end, canvas.height - 2, "request", "tick", "end")]
    for part in reversed(drawn_ones):  # the first start on top
        points: list[Point | None] = [None if v is None else (x.at(n), y.at(v)) for n, v in part.curve]
        drawn.append(path(points, f"s {class_of(part.number)}"))
        drawn.append(_mark(part, x, y))
    return Picture(svg(canvas, join(drawn), label), _hover(drawn_ones, x, y, canvas))


def _mark(part: RepeatPart, x: Axis, y: Axis) -> Markup:
    """Where the steady state begins."""
    if part.steady_after is None or part.steady_level_ns is None:
        return Markup("")
    at, height = x.at(part.steady_after + 1), y.at(part.steady_level_ns)
    tip = element("title", f"start {part.number}: steady from request {part.steady_after + 1}")
    circle = element("circle", tip, cx=at, cy=height, r=4.5)
    return element("g", circle, class_=f"point beaten {class_of(part.number)}")


def _hover(repeats: Sequence[RepeatPart], x: Axis, y: Axis, canvas: Canvas) -> dict[str, object]:
    longest = max(repeats, key=lambda part: len(part.curve)).curve
    lines = []
    for part in repeats:
        known = dict(part.curve)
        heights = [None if not (value := known.get(n)) else y.at(value) for n, _ in longest]
        shown = [units.NOTHING if n not in known else units.human(known[n], "ns") for n, _ in longest]
        lines.append(series(f"start {part.number}", class_of(part.number), heights, shown))
    return hover(canvas, [x.at(n) for n, _ in longest], [f"request {n}" for n, _ in longest], lines)
