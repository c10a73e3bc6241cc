"""Plot: a canvas with axes and grid, and the value each chart function returns.

Every chart is drawn twice, wide and narrow, because text in a scaled-down drawing can't be read on a telephone; the
style sheet shows one of the two. Charts never decide colours: they name classes and the style sheet does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from plimsoll.reports.svg.axis import Axis
from plimsoll.reports.svg.ink import element, join, line, text

FONT = 12.0


@dataclass(frozen=True, slots=True)
class Canvas:
    """Size of the drawing and of its margins, in its own pixels."""

    width: float
    height: float
    left: float = 58
    right: float = 16
    top: float = 12
    bottom: float = 26

    @property
    def x_range(self) -> tuple[float, float]:
        """Left and right pixel of the plotting area."""
        return self.left, self.width - self.right

    @property
    def y_range(self) -> tuple[float, float]:
        """Bottom and top pixel of the plotting area: values grow upwards."""
        return self.height - self.bottom, self.top


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: ``mark`` is line, dash, area, bar or cross."""

    label: str
    class_: str
    mark: str = "line"


@dataclass(frozen=True, slots=True)
class Picture:
    """One drawing and what a pointer reads off it (see ``hover``)."""

    svg: Markup
    hover: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chart:
    """A finished chart: a title, one sentence that says what it shows, its legend and both drawings."""

    title: str
    note: str
    legend: Sequence[Key]
    wide: Picture
    narrow: Picture


def chart(
    title: str, note: str, legend: Sequence[Key], draw: Callable[[Canvas], Picture], wide: Canvas, narrow: Canvas
) -> Chart:
    """Draw once on each canvas."""
    return Chart(title, note, tuple(legend), draw(wide), draw(narrow))


def grid(canvas: Canvas, x: Axis, y: Axis, x_labels: bool = True) -> Markup:
    """Grid lines, tick labels and the base line. Labels that would touch their left neighbour are left out."""
    left, right = canvas.x_range
    base, top = canvas.y_range
    parts = [line(left, y.at(v), right, y.at(v), "grid") for v, _ in y.ticks if abs(y.at(v) - base) > 1]
    parts += [text(left - 8, y.at(v) + 4, label, "tick", "end") for v, label in y.ticks]
    parts += [line(x.at(v), base, x.at(v), top, "grid faint") for v, _ in x.ticks]
    parts.append(line(left, base, right, base, "base"))
    if x_labels:
        edge = -1e9
        for v, label in x.ticks:
            half = len(label) * FONT * 0.3
            centre = min(max(x.at(v), half), canvas.width - half)
            if centre - half < edge + 6:
                continue
            edge = centre + half
            parts.append(text(centre, base + 18, label, "tick", "middle"))
    return join(parts)


def svg(canvas: Canvas, content: Markup, label: str) -> Markup:
    """The drawing as an image that screen readers announce with ``label``."""
    box = f"0 0 {canvas.width:g} {canvas.height:g}"
    return element("svg", content, viewBox=box, role="img", aria_label=label, preserveAspectRatio="xMidYMid meet")


def series(label: str, class_: str, y: Sequence[float | None], shown: Sequence[str]) -> dict[str, Any]:
    """One line of a read-out: pixel heights (None: no dot) and the text for each position."""
    return {"label": label, "class": class_, "y": [None if v is None else round(v, 1) for v in y], "text": list(shown)}


def hover(canvas: Canvas, x: Sequence[float], head: Sequence[str], lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the script needs: pixel positions along x, a heading for each and the lines below it."""
    base, top = canvas.y_range
    return {
        "width": canvas.width,
        "top": top,
        "base": base,
        "x": [round(v, 1) for v in x],
        "head": list(head),
        "series": list(lines),
    }
