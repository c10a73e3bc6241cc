"""Bars: the stages of requests since each was due, and one objective with what was observed against its limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from plimsoll.reports.parts.parts import ObjectiveResult
from plimsoll.reports.svg.axis import Axis, from_zero
from plimsoll.reports.svg.ink import element, join, line, text
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, svg
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


def staged(title: str, legend: Sequence[Key], wide: Sequence[Bar], narrow: Sequence[Bar]) -> Chart:
    """The chart of these bars; a narrow one has shorter labels."""
    label = describe(wide, title)
    drawn = [waterfall(bars, label, canvas_for(width, len(bars))) for bars, width in ((wide, 1080.0), (narrow, 420.0))]
    return Chart(title, "", legend, *map(Picture, drawn))


def between(stamps: Sequence[tuple[str, int | None]]) -> list[tuple[str, int, int]]:
    """Stages between neighbouring stamps that happened; each is named after the stamp it ends with."""
    known = [("due", 0), *((name, at) for name, at in stamps if at is not None)]
    return [(f"to-{name}", begin, end) for (_, begin), (name, end) in pairwise(known)]


def describe(bars: Sequence[Bar], title: str) -> str:
    """The picture in words."""
    longest = max((end for bar in bars for _, _, end in bar.stages), default=0)
    return f"{title}: {units.many(len(bars), 'request')} by the stages of each, at most {units.duration(longest)}"


_CANVAS = Canvas(320, 40, left=4, right=4)
_MIDDLE = 20.0


def whisker(result: ObjectiveResult) -> Markup | None:
    """The interval as a whisker against the limit; None when there is nothing to draw (no data, no threshold)."""
    if result.n == 0 or result.threshold is None:
        return None
    known = [v for v in (result.threshold, result.observed, *result.interval) if v is not None]
    axis = _axis(known, result)
    threshold = axis.at(result.threshold)
    lower_is_good = result.operator.startswith("<")
    left, right = _CANVAS.x_range
    bad_from, bad_to = (threshold, right) if lower_is_good else (left, threshold)
    good_from, good_to = (left, threshold) if lower_is_good else (threshold, right)
    drawn = [
        element("rect", x=good_from, y=8, width=max(good_to - good_from, 0), height=24, class_="zone good"),
        element("rect", x=bad_from, y=8, width=max(bad_to - bad_from, 0), height=24, class_="zone bad"),
        line(threshold, 1, threshold, 39, "threshold"),
        _interval(result, axis),
        _observed(result, axis),
    ]
    return svg(_CANVAS, join(drawn), _whisker_words(result))


def _axis(known: list[int | float], result: ObjectiveResult) -> Axis:
    low, high = float(min(known)), float(max(known))
    room = (high - low) * 0.18 or abs(high) * 0.1 or 1.0
    low, high = low - room, high + room
    if result.unit in ("ratio", "fraction"):
        low, high = max(low, -0.02 * (high - low)), min(high, 1.0 + 0.02 * (high - low))
    elif min(known) >= 0:
        low = max(low, 0.0)
    return Axis(low, max(high, low + 1e-9), *_CANVAS.x_range)


def _interval(result: ObjectiveResult, axis: Axis) -> Markup:
    low, high = result.interval
    if (low is None and high is None) or low == high:
        return Markup("")
    begin = axis.start if low is None else axis.at(low)
    end = axis.end if high is None else axis.at(high)
    drawn = line(begin, _MIDDLE, end, _MIDDLE, "interval")
    drawn += line(begin, _MIDDLE - 6, begin, _MIDDLE + 6, "interval") if low is not None else Markup("")
    if high is None:
        tip = f"M{end - 7:g} {_MIDDLE - 5:g}L{end:g} {_MIDDLE:g}L{end - 7:g} {_MIDDLE + 5:g}"
        return drawn + element("path", d=tip, class_="interval")
    return drawn + line(end, _MIDDLE - 6, end, _MIDDLE + 6, "interval")


def _observed(result: ObjectiveResult, axis: Axis) -> Markup:
    if result.observed is None:
        return text(axis.end - 6, _MIDDLE + 7, units.INFINITE, "infinite", "end")
    low, high = result.interval
    # Inside a very short interval the dot shrinks, so that the ends of the whisker stay in sight.
    tight = low is not None and high is not None and low < high and axis.at(high) - axis.at(low) < 18
    return element("circle", cx=axis.at(result.observed), cy=_MIDDLE, r=2.5 if tight else 5, class_="observed")


def _whisker_words(result: ObjectiveResult) -> str:
    """The picture in words, for people who can't see it."""
    low, high = (units.human(v, result.unit, 4) for v in result.interval)
    said = result.sentence or f"observed {units.human(result.observed, result.unit, 4)}"
    limit = units.limit(result.threshold, result.unit)
    return f"{result.objective}: {said}; bounds {low} to {high}, limit {limit}: {result.outcome}"
