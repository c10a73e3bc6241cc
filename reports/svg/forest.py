"""A forest plot: one row per quantity, its change with its interval, against the band of the tolerance.

Right of the band is more, left is less; which of them is worse differs by quantity, so each row shades its worse side.
An interval without end leaves the drawing by an arrow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plimsoll.reports.svg.axis import Axis, nice_step
from plimsoll.reports.svg.ink import element, join, line, text
from plimsoll.reports.svg.plot import Canvas, Picture, svg

ROW = 34.0
_FOOT = 26.0
#: Room of the words "no interval", in px.
_WORDS = 96.0
#: Changes that an axis of ratios may name.
_TICKS = (
    0.01,
    0.1,
    0.2,
    0.33,
    0.5,
    0.67,
    0.8,
    0.9,
    0.95,
    0.98,
    1.0,
    1.02,
    1.05,
    1.1,
    1.2,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    100.0,
)


@dataclass(frozen=True, slots=True)
class Row:
    """``low``, ``high``: None for an end that is infinite; ``middle``: None when there is no number to draw.

    ``tone``: the outcome in small letters, a class of the style sheet. ``shown``: the change in words.
    """

    name: str
    middle: float | None
    low: float | None
    high: float | None
    tolerance: float
    lower_is_better: bool
    tone: str
    shown: str


def forest(rows: Sequence[Row], ratio: bool, label: str, width: float) -> Picture:
    """All rows on one axis; ``ratio``: a logarithmic axis around 1, else a linear one around 0."""
    narrow = width < 600
    left, right = (144.0, 84.0) if narrow else (150.0, 150.0)
    canvas = Canvas(width, len(rows) * ROW + _FOOT, left=left, right=right, top=4, bottom=_FOOT)
    axis = _axis(rows, ratio, canvas)
    drawn = [_row(row, index, axis, canvas, ratio) for index, row in enumerate(rows)]
    base, top = canvas.y_range
    zero = axis.at(1.0 if ratio else 0.0)
    drawn.append(line(zero, top, zero, base, "threshold"))
    drawn += [text(axis.at(v), base + 18, name, "tick", "middle") for v, name in axis.ticks]
    return Picture(svg(canvas, join(drawn), label))


def _axis(rows: Sequence[Row], ratio: bool, canvas: Canvas) -> Axis:
    start, end = canvas.x_range
    seen = [v for row in rows for v in (row.low, row.middle, row.high) if v is not None and (v > 0 or not ratio)]
    band = [(1.0 if ratio else 0.0) + side * row.tolerance for row in rows for side in (-1, 1)]
    if not ratio:
        low, high = min([*seen, *band]), max([*seen, *band])
        room = (high - low) * 0.08 or 0.01
        low, high = max(low - room, -1.0), min(high + room, 1.0)
        step = nice_step(high - low, max(3, int((end - start) // 90)))
        ticks = [(i * step, _points(i * step)) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
        return Axis(low, high, start, end, ticks=ticks)
    # Beyond a hundredfold the size of an effect is no longer read off a drawing.
    low, high = max(min([*seen, *band]), 0.01) / 1.06, min(max([*seen, *band]), 100.0) * 1.06
    axis = Axis(low, high, start, end, log=True)
    kept: list[float] = [1.0]
    for value in sorted(_TICKS, key=lambda v: abs(math.log(v))):
        if low <= value <= high and all(abs(axis.at(value) - axis.at(other)) >= 52 for other in kept):
            kept.append(value)
    return Axis(low, high, start, end, log=True, ticks=[(v, _percent(v)) for v in sorted(kept)])


def _percent(ratio: float) -> str:
    if ratio == 1:
        return "same"
    if ratio >= 3:
        return f"× {ratio:g}"
    return f"{round((ratio - 1) * 100):+d} %".replace("-", "−")


def _points(share: float) -> str:
    return "same" if abs(share) < 1e-12 else f"{share * 100:+.3g} pt".replace("-", "−")


def _row(row: Row, index: int, axis: Axis, canvas: Canvas, ratio: bool) -> Markup:
    top = canvas.top + index * ROW
    middle = top + ROW / 2
    centre = 1.0 if ratio else 0.0
    first, last = (min(max(axis.at(centre + side * row.tolerance), axis.start), axis.end) for side in (-1, 1))
    bad_from, bad_to = (last, axis.end) if row.lower_is_better else (axis.start, first)
    drawn = [
        text(canvas.left - 10, middle + 4, row.name, "name", "end"),
        element("rect", x=first, y=top + 3, width=max(last - first, 1), height=ROW - 6, class_="zone good"),
        element("rect", x=bad_from, y=top + 3, width=max(bad_to - bad_from, 0), height=ROW - 6, class_="zone bad"),
        _whisker(row, middle, axis),
        text(axis.end + 10, middle + 4, row.shown, "shown"),
    ]
    return element("g", join(drawn), class_=f"effect {row.tone}")


def _whisker(row: Row, y: float, axis: Axis) -> Markup:
    if row.low is None and row.high is None:
        # The words stand on the side that the dot leaves free.
        beside = row.middle is not None and axis.at(row.middle) < axis.start + _WORDS
        x, anchor = (axis.end - 6, "end") if beside else (axis.start + 6, "start")
        return text(x, y + 4, "no interval", "tick", anchor) + _dot(row, y, axis)
    low = axis.start if row.low is None else axis.at(row.low)
    high = axis.end if row.high is None else axis.at(row.high)
    # An interval may lie beyond the axis as a whole.
    cut_low, cut_high = (min(max(x, axis.start), axis.end) for x in (low, high))
    drawn = line(cut_low, y, cut_high, y, "interval")
    drawn += _end(cut_low, y, -1, row.low is None or low < axis.start)
    drawn += _end(cut_high, y, 1, row.high is None or high > axis.end)
    return drawn + _dot(row, y, axis)


def _end(x: float, y: float, side: int, open_: bool) -> Markup:
    if not open_:
        return line(x, y - 6, x, y + 6, "interval")
    return element("path", d=f"M{x - side * 7:g} {y - 5:g}L{x:g} {y:g}L{x - side * 7:g} {y + 5:g}", class_="interval")


def _dot(row: Row, y: float, axis: Axis) -> Markup:
    if row.middle is None:
        return Markup("")
    return element("circle", cx=min(max(axis.at(row.middle), axis.start), axis.end), cy=y, r=5, class_="observed")
