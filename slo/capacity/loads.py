"""Which load comes next: steps, means and gaps, on loads that a person can read. Arithmetic and no judgement."""

from __future__ import annotations

import math
from collections.abc import Sequence

from slo.capacity.probe import Settings


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


def stepped_down(settings: Settings, load: float, attempt: int, passed: Sequence[float]) -> float | None:
    """A load below, 1, 1, 2, 4 and so on resolutions away, or one that ``passed`` on the way there; None at the lowest.

    Never nearer than one resolution, unless the lowest is.
    """
    if load <= settings.lowest:
        return None
    near, far = (load / (1 + settings.resolution * times) for times in (1, _times(attempt)))
    if settings.variable == "concurrency":
        near, far = load - 1, min(far, load - 1)
    far = _tidy(settings, far)
    return max([far, settings.lowest, *(one for one in passed if far < one <= near)])


def stepped_up(settings: Settings, load: float, attempt: int, failed: Sequence[float]) -> float | None:
    """The same upwards; None at the highest."""
    if settings.highest is not None and load >= settings.highest:
        return None
    near, far = (load * (1 + settings.resolution * times) for times in (1, _times(attempt)))
    if settings.variable == "concurrency":
        near, far = load + 1, max(far, load + 1)
    far = _tidy(settings, far)
    top = math.inf if settings.highest is None else settings.highest
    return min([far, top, *(one for one in failed if near <= one < far)])


def _times(attempt: int) -> int:
    return 1 << max(0, attempt - 1)


def _next_whole(settings: Settings, load: float) -> float:
    return load + 1 if settings.variable == "concurrency" else load
