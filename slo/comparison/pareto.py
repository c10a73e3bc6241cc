"""Pareto fronts: throughput against interactivity, goodput against rate. Which settings are beaten on both counts?

A point is dominated when another is better in one way and at least as good in the other, and the data show it: the runs of
the two must be told apart in one and not be worse in the other. Points that are not told apart stay on the front. With one
run a point nothing is shown, and domination is by value alone and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.comparison.ranks import benjamini_hochberg, mann_whitney
from plimsoll.slo.records.records import FloatArray
from plimsoll.slo.statistics.distribution import exact

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: a value per run on each axis, runs in one order."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    arm: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """A point of the chart. ``x``, ``y``: medians. ``dominated_by``: who beats it, "" on the front.

    ``shown``: told by runs, not only by value.
    """

    name: str
    arm: str
    x: float
    y: float
    x_values: tuple[float, ...]
    y_values: tuple[float, ...]
    dominated_by: str
    shown: bool

    @property
    def on_front(self) -> bool:
        """Nobody beats it."""
        return not self.dominated_by


def interactivity(tpot_ns: FloatArray) -> FloatArray:
    """Tokens per second that one user sees, 1 / TPOT (give the p90 of TPOT for nearly all users); 0 for failures.

    A TPOT of 0 (the whole answer in one chunk) is no speed: NaN.
    """
    with np.errstate(divide="ignore"):
        return np.where(tpot_ns > 0, 1e9 / np.where(tpot_ns > 0, tpot_ns, 1.0), np.nan)


def front(
    points: Sequence[Point],
    x_better: Better = "higher",
    y_better: Better = "higher",
    confidence: Fraction | str | float = "0.95",
) -> tuple[Placed, ...]:
    """Every point with who dominates it, in the order given. Points with no or unknown values are dominated by nobody."""
    turned = [(_turn(p.x, x_better), _turn(p.y, y_better)) for p in points]
    alpha = float(1 - exact(confidence))
    pairs = [(i, j) for i in range(len(points)) for j in range(len(points)) if i != j and _ahead(turned[i], turned[j])]
    # Told apart in the way in which it is ahead most clearly. A chart explores: of the points struck out a share is wrong.
    adjusted = benjamini_hochberg([min(_p(turned[i][axis], turned[j][axis]) for axis in (0, 1)) * 2 for i, j in pairs])
    several = all(len(p.x) > 1 for p in points)
    beaten: dict[int, int] = {}
    for (i, j), p in zip(pairs, adjusted, strict=True):
        # Of several that beat it the one furthest ahead is named.
        if (not several or p <= alpha) and (j not in beaten or _ahead(turned[i], turned[beaten[j]])):
            beaten[j] = i
    return tuple(
        Placed(
            name=point.name,
            arm=point.arm,
            x=_middle(point.x),
            y=_middle(point.y),
            x_values=point.x,
            y_values=point.y,
            dominated_by=points[beaten[i]].name if i in beaten else "",
            shown=several and i in beaten,
        )
        for i, point in enumerate(points)
    )


def _turn(values: Sequence[float], better: Better) -> FloatArray:
    return np.asarray(values, np.float64) * (1.0 if better == "higher" else -1.0)


def _middle(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else float("nan")


def _ahead(a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray]) -> bool:
    """At least as good in both ways by medians, and better in one; never with unknown values."""
    steps = [_middle(first.tolist()) - _middle(second.tolist()) for first, second in zip(a, b, strict=True)]
    return all(step >= 0 for step in steps) and any(step > 0 for step in steps)


def _p(ahead: FloatArray, behind: FloatArray) -> float:
    """One-sided p that ``ahead`` is greater."""
    return mann_whitney(behind, ahead).p_up if len(ahead) and len(behind) else 1.0
