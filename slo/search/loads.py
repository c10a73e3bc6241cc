"""Which load comes next: steps, means and gaps, on loads that a person can read. Arithmetic and no judgement."""

from __future__ import annotations

import math

from plimsoll.slo.search.probe import Settings


def _tidy(settings: Settings, load: float) -> float:
    """Two digits more than the resolution can tell, four at least; whole numbers of a concurrency."""
    if settings.variable == "concurrency":
        return float(round(load))
    digits = max(4, math.ceil(-math.log10(settings.resolution)) + 2)
    return float(f"{load:.{digits}g}")


def above(settings: Settings, load: float) -> float:
    """The next load up while bracketing."""
    grown = max(_tidy(settings, load * settings.growth), _next_whole(settings, load))
    return grown if settings.highest is None else min(grown, settings.highest)


def below(settings: Settings, load: float) -> float:
    """The next load down while bracketing."""
    shrunk = _tidy(settings, load / settings.growth)
    return max(min(shrunk, load - 1) if settings.variable == "concurrency" else shrunk, settings.lowest)


def closed(settings: Settings, low: float, high: float) -> bool:
    """Whether two loads are as near to each other as the search is asked to tell apart."""
    width = high - low
    if settings.variable == "concurrency" and width <= 1:
        return True
    return width <= settings.resolution * low * (1 + 1e-9)


def middle(settings: Settings, low: float, high: float) -> float:
    """The geometric mean of two loads whose gap is not closed, strictly between them."""
    mean = _tidy(settings, math.sqrt(low * high))
    if settings.variable == "concurrency":
        return min(max(mean, low + 1), high - 1)
    return mean if low < mean < high else math.sqrt(low * high)


def stepped_down(settings: Settings, load: float, attempt: int) -> float | None:
    """A load below, 1, 2, 4 and so on resolutions away; None at the lowest."""
    if load <= settings.lowest:
        return None
    far = _tidy(settings, load / (1 + settings.resolution * 2.0**attempt))
    return max(min(far, load - 1) if settings.variable == "concurrency" else far, settings.lowest)


def stepped_up(settings: Settings, load: float, attempt: int) -> float | None:
    """The same upwards; None at the highest."""
    top = math.inf if settings.highest is None else settings.highest
    if load >= top:
        return None
    far = _tidy(settings, load * (1 + settings.resolution * 2.0**attempt))
    return min(max(far, load + 1) if settings.variable == "concurrency" else far, top)


def _next_whole(settings: Settings, load: float) -> float:
    return load + 1 if settings.variable == "concurrency" else load
