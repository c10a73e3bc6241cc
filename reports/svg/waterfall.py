"""Requests as bars over time since each was due, cut into the stages between its stamps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from plimsoll.reports.svg.axis import Axis, from_zero
from plimsoll.reports.svg.ink import element, join, line, text
from plimsoll.reports.svg.plot import Canvas, svg
from plimsoll.reports.wording import units

_ROW = 34.0
_BAR = 12.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One request: the line over its bar, and its stages as (class, begin, end) in ns since it was due."""

    label: str
    stages: Sequence[tuple[str, int, int]]


def canvas_for(width: float, rows: int) -> Canvas:
    """A drawing high enough for so many bars."""
    return Canvas(width, rows * _ROW + 30, left=4, right=16, top=2, bottom=26)


def waterfall(bars: Sequence[Bar], label: str, canvas: Canvas) -> Markup:
    """The bars, one below the other, on one axis from 0."""
    high = max((end for bar in bars for _, _, end in bar.stages), default=1)
    across = from_zero(float(high), *canvas.x_range, "ns", max(3, int(canvas.width // 150)))
    x = Axis(0.0, high * 1.02, *canvas.x_range, ticks=[tick for tick in across.ticks if tick[0] <= high * 1.02])
    base, top = canvas.y_range
    drawn = [line(x.at(v), base, x.at(v), top, "grid") for v, _ in x.ticks]
    for index, bar in enumerate(bars):
        y = canvas.top + index * _ROW
        drawn.append(text(canvas.left, y + 13, bar.label, "row halo"))
        drawn += [_stage(class_, begin, end, x, y + 17) for class_, begin, end in bar.stages if end > begin]
    drawn.append(line(x.start, base, x.end, base, "base"))
    drawn += [_tick(name, x.at(value), base, canvas) for value, name in x.ticks]
    return svg(canvas, join(drawn), label)


def _stage(class_: str, begin: int, end: int, x: Axis, y: float) -> Markup:
    return element(
        "rect", x=x.at(begin), y=y, width=max(x.at(end) - x.at(begin), 0.6), height=_BAR, class_=f"stage {class_}"
    )


def _tick(name: str, at: float, base: float, canvas: Canvas) -> Markup:
    half = len(name) * 3.6
    return text(min(max(at, half), canvas.width - half), base + 18, name, "tick", "middle")


def between(stamps: Sequence[tuple[str, int | None]]) -> list[tuple[str, int, int]]:
    """Stages between neighbouring stamps that happened; each is named after the stamp it ends with."""
    known = [("due", 0), *((name, at) for name, at in stamps if at is not None)]
    return [(f"to-{name}", begin, end) for (_, begin), (name, end) in pairwise(known)]


def describe(bars: Sequence[Bar], title: str) -> str:
    """The picture in words."""
    longest = max((end for bar in bars for _, _, end in bar.stages), default=0)
    return f"{title}: {units.many(len(bars), 'request')} by the stages of each, at most {units.duration(longest)}"
