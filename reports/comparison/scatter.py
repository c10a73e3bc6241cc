"""A Pareto chart: one point per setting with the range of its runs, the front as steps, the beaten points faint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from plimsoll.reports.comparison.comparison_parts import FrontPart, PointPart
from plimsoll.reports.svg.axis import Axis, from_zero
from plimsoll.reports.svg.ink import Point, element, join, line, path, text, text_width
from plimsoll.reports.svg.plot import FONT, Canvas, Picture, grid, svg


def scatter(front: FrontPart, classes: Mapping[str, str], label: str, canvas: Canvas) -> Picture:
    """``classes``: the style class of each arm. Both axes begin at 0: half as far is half as much."""
    x = from_zero(max(p.x_range[1] for p in front.points), *canvas.x_range, "1", max(3, int(canvas.width // 150)))
    y = from_zero(max(p.y_range[1] for p in front.points), *canvas.y_range, "1", 5)
    drawn = [grid(canvas, x, y), text(canvas.left, canvas.top - 14, front.y_name, "tick", "start")]
    drawn.append(text(x.end, canvas.height - 2, front.x_name, "tick", "end"))
    drawn.append(path(_steps(front, x, y), "s s-front", step=False))
    drawn += [_point(p, classes.get(p.arm, "arm-0"), x, y) for p in front.points]
    drawn.append(_names(front.points, classes, x, y, canvas))
    return Picture(svg(canvas, join(drawn), label))


def _steps(front: FrontPart, x: Axis, y: Axis) -> list[Point | None]:
    """The edge of what is reachable: nothing is known beyond it, and what is inside can be had."""
    kept = sorted((p for p in front.points if not p.dominated_by), key=lambda p: (p.x, p.y))
    points: list[Point | None] = []
    for before, after in zip([None, *kept], kept, strict=False):
        if before is not None:
            # From one point to the next by way of the corner that both dominate.
            corner = (
                min(before.x, after.x) if front.x_better == "higher" else max(before.x, after.x),
                min(before.y, after.y) if front.y_better == "higher" else max(before.y, after.y),
            )
            points.append((x.at(corner[0]), y.at(corner[1])))
        points.append((x.at(after.x), y.at(after.y)))
    return points if len(kept) > 1 else []


def _point(p: PointPart, class_: str, x: Axis, y: Axis) -> Markup:
    at, height = x.at(p.x), y.at(p.y)
    bars = Markup("")
    if p.x_range[0] < p.x_range[1]:
        bars += line(x.at(p.x_range[0]), height, x.at(p.x_range[1]), height, "range")
    if p.y_range[0] < p.y_range[1]:
        bars += line(at, y.at(p.y_range[0]), at, y.at(p.y_range[1]), "range")
    where = "beaten" if p.dominated_by else "front"
    # Filled or hollow: the colour only says whose it is.
    return element("g", bars + element("circle", cx=at, cy=height, r=4.5), class_=f"point {where} {class_}")


def _names(points: Sequence[PointPart], classes: Mapping[str, str], x: Axis, y: Axis, canvas: Canvas) -> Markup:
    """Names beside their points; one that would lie on another on every side is left out."""
    taken: list[tuple[float, float, float]] = []
    drawn = []
    for p in sorted(points, key=lambda p: bool(p.dominated_by)):
        wide = text_width(p.name, FONT)
        for left, height in _places(x.at(p.x), y.at(p.y), wide, canvas):
            if not any(left < b and a < left + wide and abs(height - h) < FONT + 2 for a, b, h in taken):
                taken.append((left, left + wide, height))
                drawn.append(text(left, height, p.name, f"note halo {classes.get(p.arm, 'arm-0')}"))
                break
    return join(drawn)


def _places(at: float, height: float, wide: float, canvas: Canvas) -> list[tuple[float, float]]:
    """Where a name may stand, best first: above or below, right or left, within the picture."""
    return [
        (left, height + down)
        for down in (-7, FONT + 5)
        for left in (at + 9, at - 9 - wide)
        if left >= canvas.x_range[0] and left + wide < canvas.width and height + down < canvas.y_range[0]
    ]
