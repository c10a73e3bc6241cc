"""Axes: from values to pixels, with ticks a person would have chosen and labels in human units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from plimsoll.reports.wording import units

_NS_PER_S = 1_000_000_000
_CLOCK_STEPS_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class Axis:
    """``low``..``high`` in values is ``start``..``end`` in pixels; ``ticks`` are values with their labels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    ticks: Sequence[tuple[float, str]] = ()

    def at(self, value: float) -> float:
        """The pixel of ``value``, kept within one length of the axis on either side."""
        if self.log:
            share = math.log(max(value, 1e-12) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, -1.0), 2.0) * (self.end - self.start)


def nice_step(span: float, count: int) -> float:
    """The least of 1, 2, 5 times a power of ten that cuts ``span`` in at most ``count`` parts."""
    raw = span / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return next((factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9)), 10 * power)


def _steps(low: float, high: float, step: float) -> list[float]:
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def from_zero(high: float, start: float, end: float, unit: str, count: int = 4) -> Axis:
    """A linear axis from 0 to a little above ``high``; the top tick never lies below the data."""
    high = high if high > 0 else 1.0
    whole = unit == "count"
    step = max(nice_step(high, count), 1.0) if whole else _value_step(high, unit, count)
    top = math.ceil(high / step - 1e-9) * step
    return Axis(0.0, top, start, end, ticks=[(v, tick(v, unit, step)) for v in _steps(0, top, step)])


def _value_step(span: float, unit: str, count: int) -> float:
    if unit == "ns" and span > 60 * _NS_PER_S:
        raw = span / _NS_PER_S / count
        return next((s for s in _CLOCK_STEPS_S if s >= raw), nice_step(span / _NS_PER_S, count)) * float(_NS_PER_S)
    scale = 1024.0 ** (max(math.log2(max(span, 1)), 0) // 10) if unit == "bytes" else 1.0
    return nice_step(span / scale, count) * scale


def tick(value: float, unit: str, step: float) -> str:
    """A tick's label: as many decimals as ``step`` needs and no more."""
    if value == 0:
        return "0"
    if unit == "ns":
        return units.seconds(value) if step >= 60 * _NS_PER_S else _plain_time(value)
    if unit in ("ratio", "fraction"):
        return f"{value * 100:.6g} %"
    if unit == "bytes":
        return units.limit(value, unit)
    return units.compact(value, 6).rstrip("0").rstrip(".") if value < 1000 else _prefixed(value)


def _prefixed(value: float) -> str:
    scale, prefix = next((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if value >= s)
    return f"{value / scale:.4g}{prefix}"


def _plain_time(value_ns: float) -> str:
    scale, name = next(
        ((s, u) for s, u in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if value_ns >= s * (1 - 1e-9)), (1.0, "ns")
    )
    return f"{value_ns / scale:.4g} {name}"


def logarithmic(low: float, high: float, start: float, end: float, unit: str, gap: float = 18) -> Axis:
    """A logarithmic axis over ``low``..``high`` (both > 0), ticks at round values at least ``gap`` pixels apart."""
    if high <= low * 1.0001:
        low, high = low / 1.5, high * 1.5
    bare = Axis(low, high, start, end, log=True)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for factors in ((1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [f * 10.0**p for p in powers for f in factors if low * 0.999 <= f * 10.0**p <= high * 1.001]
        if all(abs(bare.at(b) - bare.at(a)) >= gap for a, b in pairwise(ticks)):
            break
    if len(ticks) < 2:
        count = max(2, int(abs(end - start) // (2 * gap)))
        ticks = _steps(low, high, nice_step(high - low, count))
    return replace(bare, ticks=[(v, tick(v, unit, 0)) for v in ticks])


def clock(low_ns: float, high_ns: float, start: float, end: float, count: int = 8) -> Axis:
    """The run's own time, from ``low_ns`` to ``high_ns`` after t0, in seconds, minutes or hours."""
    span = max(high_ns - low_ns, 1.0)
    step = _value_step(span, "ns", count)
    if span > _NS_PER_S * count:
        raw = span / _NS_PER_S / count
        step = next((s for s in _CLOCK_STEPS_S if s >= raw), nice_step(span / _NS_PER_S, count)) * float(_NS_PER_S)
    return Axis(low_ns, low_ns + span, start, end, ticks=[(v, units.seconds(v)) for v in _steps(low_ns, high_ns, step)])


def tail(n: int, start: float, end: float) -> Axis:
    """Percentiles over log(1/(1-q)): each power of ten of the tail takes the same room; ends where ``n`` values do."""
    high = math.log10(2 * max(n, 2))
    marks = [(0.0, "0"), (math.log10(2), "50")]
    for power in range(1, 9):
        if power <= math.log10(max(n, 2)) + 0.01 and (high - power) / high > 0.04:
            text = f"{100 - 100 * 10.0**-power:.{max(0, power - 2)}f}"
            marks.append((float(power), text))
    return Axis(0.0, high, start, end, ticks=marks)


def tail_at(q: float, n: int) -> float:
    """Where quantile ``q`` of ``n`` values lies on ``tail``; the greatest value is put half a rank before the end."""
    return -math.log10(max(1.0 - q, 0.5 / max(n, 1)))
