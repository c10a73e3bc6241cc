"""Error budgets: burn rate over the run with the alerts that would have fired, the bad share against the allowed one,
and the part of the period's budget that is spent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from plimsoll.reports.parts.charts import BurnTimeline
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.axis import Axis, clock, from_zero
from plimsoll.reports.svg.ink import element, join, line, text, text_width
from plimsoll.reports.svg.plot import Canvas, Picture, grid, hover, series, svg
from plimsoll.reports.wording import units

#: Height that each alert takes above the bars.
ROW = 23.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alert on the time axis: from when to when (None: to the end of the run) and its name. Not ``sure``: whether it
    fires depends on what was not seen.
    """

    at_ns: int
    until_ns: int | None
    label: str
    sure: bool = True


def burn_chart(data: BurnTimeline, alarms: Sequence[Alarm], label: str, canvas: Canvas) -> Picture:
    """The chart on ``canvas``; each alarm takes a row of its own above the bars."""
    x = clock(data.start_ns, data.end_ns[-1], *canvas.x_range, max(3, int(canvas.width // 110)))
    inner = Canvas(
        canvas.width, canvas.height, canvas.left, canvas.right, canvas.top + ROW * len(alarms), canvas.bottom
    )
    known = [value for value in data.burn if value is not None]
    y = from_zero(max([*known, 1.25]), *inner.y_range, "1", 4)
    drawn = [grid(inner, x, y), _bars(data, x, y)]
    drawn.append(line(x.start, y.at(1.0), x.end, y.at(1.0), "limit"))
    drawn += [_alarm(alarm, index, x, canvas, inner) for index, alarm in enumerate(alarms)]
    return Picture(svg(canvas, join(drawn), label), _hover(data, x, y, inner))


def _bounds(data: BurnTimeline) -> list[tuple[int, int]]:
    return list(zip([data.start_ns, *data.end_ns[:-1]], data.end_ns, strict=True))


def _bars(data: BurnTimeline, x: Axis, y: Axis) -> Markup:
    """Two paths, one on either side of 1: hundreds of rectangles of their own would be most of the page."""
    shapes: dict[str, list[str]] = {}
    for (begin, end), value in zip(_bounds(data), data.burn, strict=True):
        if value:
            left, right = x.at(begin), x.at(end)
            right -= 0.8 if right - left > 4 else 0.0
            top = y.start - max(y.start - y.at(value), 1.0)
            class_ = "s-burn bar over" if value > 1 else "s-burn bar"
            shapes.setdefault(class_, []).append(f"M{left:.1f} {y.start:g}V{top:.1f}H{right:.1f}V{y.start:g}Z")
    return join(element("path", d="".join(drawn), class_=class_) for class_, drawn in sorted(shapes.items()))


def _alarm(alarm: Alarm, index: int, x: Axis, canvas: Canvas, inner: Canvas) -> Markup:
    base, _ = inner.y_range
    top = canvas.top + ROW * index
    begin = x.at(alarm.at_ns)
    end = x.end if alarm.until_ns is None else max(x.at(alarm.until_ns), begin + 3)
    width = text_width(alarm.label, 11.5)
    fits = begin + width + 10 < canvas.width
    label = text(begin + 6 if fits else begin - 6, top + 11, alarm.label, "note halo alarm", "start" if fits else "end")
    if not alarm.sure:
        return line(begin, top, begin, base, "alarm unsure") + label
    # The stretch in which it stands, under its name.
    return line(begin, top, begin, base, "alarm") + line(begin, top + 16, end, top + 16, "alarm firing") + label


def _hover(data: BurnTimeline, x: Axis, y: Axis, canvas: Canvas) -> dict[str, object]:
    bounds = _bounds(data)
    heads = [f"{units.seconds(begin)} to {units.seconds(end)}" for begin, end in bounds]
    shown = [units.NOTHING if value is None else units.significant(value) for value in data.burn]
    heights = [None if value is None else y.at(value) for value in data.burn]
    lines = [series("burn rate", "s-burn", heights, shown)]
    spent = [units.percent(value, 3) for value in data.spent]
    lines.append(series("budget spent", "s-planned", [None] * len(spent), spent))
    return hover(canvas, [(x.at(a) + x.at(b)) / 2 for a, b in bounds], heads, lines)


_GAUGE = Canvas(320, 56, left=4, right=4)
_SPENT = Canvas(320, 18, left=4, right=4)
_MIDDLE = 20.0


def bad_share(name: str, sli: float, allowed: float, interval: tuple[Number, Number] = (None, None)) -> Markup:
    """The bad share of a run as a bar, against the share that is allowed. ``interval``: of the good share."""
    bad = 1.0 - sli
    low, high = (None if end is None else 1.0 - end for end in reversed(interval))
    left, right = _GAUGE.x_range
    axis = Axis(0.0, min(1.0, max(allowed * 2, bad * 1.15, (high or 0.0) * 1.05)), left, right)
    limit = axis.at(allowed)
    drawn = [
        element("rect", x=left, y=8, width=limit - left, height=24, class_="zone good"),
        element("rect", x=limit, y=8, width=right - limit, height=24, class_="zone bad"),
        element(
            "rect", x=left, y=13, width=max(axis.at(bad) - left, 1.5) if bad > 0 else 0, height=14, class_="filled"
        ),
        _interval(low, high, axis),
        line(limit, 2, limit, 38, "threshold"),
        _label(f"allowed {units.percent(allowed, 3)}", limit),
    ]
    words = f"{units.percent(bad, 3)} bad, {units.percent(allowed, 3)} allowed"
    return svg(_GAUGE, join(drawn), f"{name}: {words}")


def _interval(low: Number, high: Number, axis: Axis) -> Markup:
    if low is None or high is None or high <= low:
        return Markup("")
    begin, end = axis.at(low), axis.at(high)
    return join(
        line(x1, y1, x2, y2, "interval thin")
        for x1, y1, x2, y2 in (
            (begin, _MIDDLE, end, _MIDDLE),
            (begin, _MIDDLE - 4, begin, _MIDDLE + 4),
            (end, _MIDDLE - 4, end, _MIDDLE + 4),
        )
    )


def _label(words: str, at: float) -> Markup:
    half = len(words) * 3.3
    return text(min(max(at, half + 2), _GAUGE.width - half - 2), 51, words, "tick", "middle")


def spent(name: str, share: float) -> Markup:
    """How much of the budget of the whole period the run would have spent."""
    left, right = _SPENT.x_range
    axis = Axis(0.0, 1.0, left, right)
    width = max(min(axis.at(share), right) - left, 1.0) if share > 0 else 0.0
    class_ = "filled over" if share > 1 else "filled"
    drawn = [
        element("rect", x=left, y=3, width=right - left, height=12, rx=6, class_="tank"),
        element("rect", x=left, y=3, width=width, height=12, rx=min(6.0, width / 2), class_=class_),
    ]
    words = f"{units.percent(share, 3)} of the period's error budget spent"
    return svg(_SPENT, join(drawn), f"{name}: {words}")
