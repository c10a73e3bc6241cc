"""The drawings of a search: what was observed at each load against the limit, and the probes in their order.

The answer is a band from the load that holds to the load that fails. Every mark is a probe with its number and a shape of its
own for each outcome: a disc passed, a cross failed, a hollow disc decided nothing, a square was no valid run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from plimsoll.reports.search import search_words as say
from plimsoll.reports.search.search_parts import ObjectivePart, ProbePart, SearchReport
from plimsoll.reports.svg.axis import Axis, from_zero, logarithmic
from plimsoll.reports.svg.ink import element, join, line, text
from plimsoll.reports.svg.plot import FONT, Canvas, Chart, Key, Picture, chart, grid, svg
from plimsoll.reports.wording import units

_WIDE, _NARROW = Canvas(1040, 330, left=64, top=34, bottom=44), Canvas(420, 280, left=58, top=34, bottom=44)
#: An axis of values whose ends differ by more than this factor is logarithmic.
_LOG_ABOVE = 6.0
#: A search halves by geometric means: on such an axis its steps are even.
_GEOMETRIC = 2.0
_R = 5.0
#: What says most lies on top.
_LAYERS = ("UNREACHABLE", "INVALID", "INCONCLUSIVE", "PASS", "FAIL")
#: Room above and below the data.
_AIR = 1.12


@dataclass(frozen=True, slots=True)
class Mark:
    """One probe on a picture; ``y`` None: infinite, or nothing was observed."""

    x: float
    y: float | None
    probe: ProbePart


def charts(report: SearchReport) -> list[Chart]:
    """One picture an objective, then the probes in order; nothing where there are no probes."""
    if not report.probes:
        return []
    seen: dict[str, list[ObjectivePart]] = {}
    for probe in report.probes:
        for part in probe.objectives:
            seen.setdefault(part.objective, []).append(part)
    # One that said the same at every load, such as no errors at all, has no picture.
    telling = [name for name, parts in seen.items() if len(parts) == 1 or len({part.observed for part in parts}) > 1]
    return [*(_observed(report, name) for name in telling), _order(report)]


def _legend(report: SearchReport) -> list[Key]:
    seen = {probe.outcome for probe in report.probes}
    marks = {"PASS": "dots", "FAIL": "cross", "INCONCLUSIVE": "dots", "INVALID": "bar"}
    found = [Key(name, f"probe-{name.lower()}", mark) for name, mark in marks.items() if name in seen]
    low, high = report.found.interval
    return [*found, *([Key("the line is here", "probe-line", "bar")] if low is not None and high is not None else [])]


def _observed(report: SearchReport, name: str) -> Chart:
    parts = [(probe, part) for probe in report.probes for part in probe.objectives if part.objective == name]
    unit, limit = parts[0][1].unit, parts[0][1].threshold
    marks = [Mark(probe.load, _finite(part), probe) for probe, part in parts]
    title = f"{name} at each load"
    label = f"{title}: " + "; ".join(
        f"{say.load(report, probe.load)} {say.observed(part)} ({probe.outcome})" for probe, part in parts
    )

    def draw(canvas: Canvas) -> Picture:
        x = _loads(report, canvas)
        values = [m.y for m in marks if m.y is not None and m.y > 0] + ([float(limit)] if limit else [])
        y = _values(values, unit, canvas)
        drawn = [_band(report, x, canvas), grid(canvas, x, y), _captions(report, name.partition(" ")[0], x, canvas)]
        if limit is not None:
            at = y.at(float(limit))
            drawn.append(line(canvas.left, at, x.end, at, "limit"))
            drawn.append(text(canvas.left + 6, at - 5, f"limit {units.limit(limit, unit)}", "note halo limit"))
        drawn.append(_marks(marks, x, y, canvas))
        return Picture(svg(canvas, join(drawn), label))

    note = "Numbers: the order of the probes. At the upper edge: failed requests reach it. An outcome is that of all objectives."
    return chart(title, note, _legend(report), draw, _WIDE, _NARROW)


def _order(report: SearchReport) -> Chart:
    label = "the probes in order: " + "; ".join(
        f"{p.number} {p.purpose} at {say.load(report, p.load)}: {p.outcome}" for p in report.probes
    )

    def draw(canvas: Canvas) -> Picture:
        rows = len(report.probes)
        tall = Canvas(canvas.width, canvas.top + canvas.bottom + 22.0 * rows, left=40, top=14, bottom=44)
        x = _loads(report, tall)
        y = Axis(0.5, rows + 0.5, tall.y_range[1], tall.y_range[0])
        drawn = [_band(report, x, tall), grid(tall, x, y), _captions(report, "", x, tall)]
        places = [(x.at(p.load), y.at(float(i))) for i, p in enumerate(report.probes, 1)]
        for (x1, y1), (x2, y2) in pairwise(places):
            drawn.append(line(x1, y1, x2, y2, "probe-path"))
        for (at, height), probe in zip(places, report.probes, strict=True):
            drawn.append(_mark(at, height, probe.outcome))
            drawn.append(text(tall.left - 8, height + 4, str(probe.number), "tick", "end"))
            said = f"{probe.purpose}, {probe.took_ns / 1e9:.0f} s" + (", cut" if probe.cut else "")
            wide = len(said) * FONT * 0.6
            right = at + 10 + wide < tall.width
            drawn.append(text(at + (10 if right else -10), height + 4, said, "note halo", None if right else "end"))
        return Picture(svg(tall, join(drawn), label))

    return chart("The probes in order", "From the first at the top to the last.", (), draw, _WIDE, _NARROW)


def _finite(part: ObjectivePart) -> float | None:
    return None if part.observed is None else float(part.observed)


def _loads(report: SearchReport, canvas: Canvas) -> Axis:
    loads = [probe.load for probe in report.probes]
    low, high = min(loads), max(loads)
    count = max(3, int(canvas.width // 130))
    if low > 0 and high / low > _GEOMETRIC:
        return logarithmic(low / _AIR, high * _AIR, *canvas.x_range, "1", 56)
    if high > low:  # a narrow bracket: beginning at 0 would push all of it together
        air = (high - low) * 0.12
        return _linear(low - air, high + air, canvas, count)
    return from_zero(high * 1.02, *canvas.x_range, "1", count)


def _linear(low: float, high: float, canvas: Canvas, count: int) -> Axis:
    whole = from_zero(high - low, *canvas.x_range, "1", count)
    step = whole.ticks[1][0] - whole.ticks[0][0] if len(whole.ticks) > 1 else high - low
    first = -(-low // step)
    ticks = [(k * step, f"{k * step:g}") for k in range(int(first), int(high // step) + 1)]
    return Axis(low, high, *canvas.x_range, ticks=ticks)


def _values(values: Sequence[float], unit: str, canvas: Canvas) -> Axis:
    high, low = max(values, default=1.0), min(values, default=1.0)
    if unit == "ratio" or high / low <= _LOG_ABOVE:
        top = min(high * _AIR, 1.0) if unit == "ratio" else high * _AIR
        return from_zero(top, *canvas.y_range, unit, 4)
    return logarithmic(low / _AIR, high * _AIR, *canvas.y_range, unit, 24)


def _band(report: SearchReport, x: Axis, canvas: Canvas) -> Markup:
    low, high = report.found.interval
    if low is None or high is None or high <= low:
        return Markup("")
    base, top = canvas.y_range
    left, right = x.at(low), x.at(high)
    wide = max(right - left, 2.0)  # a fine interval is still to be seen
    return element("rect", x=left, y=top, width=wide, height=base - top, class_="probe-line bar")


def _captions(report: SearchReport, value: str, x: Axis, canvas: Canvas) -> Markup:
    what = "offered requests/s" if report.variable == "rate" else "requests in flight"
    return text(canvas.left, canvas.top - 16, value, "tick", "start") + text(
        x.end, canvas.height - 4, what, "tick", "end"
    )


def _marks(marks: Sequence[Mark], x: Axis, y: Axis, canvas: Canvas) -> Markup:
    """The marks, and a number beside each; one that would lie on another is moved, or left out."""
    drawn: list[Markup] = []
    taken: list[tuple[float, float]] = []
    for mark in sorted(marks, key=lambda mark: _LAYERS.index(mark.probe.outcome)):
        at = x.at(mark.x)
        height = canvas.y_range[1] if mark.y is None else min(max(y.at(mark.y), canvas.y_range[1]), canvas.y_range[0])
        drawn.append(_mark(at, height, mark.probe.outcome))
        number = str(mark.probe.number)
        for dx, dy in ((0.0, -10.0), (0.0, 20.0), (13.0, 4.0), (-13.0, 4.0)):
            place = (at + dx, height + dy)
            if all(abs(place[0] - a) > 12 or abs(place[1] - b) > FONT for a, b in taken):
                taken.append(place)
                drawn.append(text(*place, number, "note halo", "middle"))
                break
    return join(drawn)


def _mark(at: float, height: float, outcome: str) -> Markup:
    class_ = f"probe probe-{outcome.lower()}"
    if outcome == "FAIL":
        strokes = line(at - _R, height - _R, at + _R, height + _R, "") + line(
            at - _R, height + _R, at + _R, height - _R, ""
        )
        return element("g", strokes, class_=class_)
    if outcome in ("INVALID", "UNREACHABLE"):
        return element("rect", x=at - _R, y=height - _R, width=2 * _R, height=2 * _R, class_=class_)
    return element("circle", cx=at, cy=height, r=_R, class_=class_)
