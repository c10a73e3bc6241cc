"""A curve through the points of a sweep: what lies between two measured loads, and where it crosses a limit.

It interpolates by monotone piecewise cubics (PCHIP; Fritsch and Butland, 1984), in logarithms where all values are
positive: it goes through every point and shows no bump that nobody measured. It refuses every guess beyond the measured
points, and across a point at which the endpoint did not keep up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from plimsoll.slo.records.records import FloatArray

#: Points that are drawn between two measured ones.
_BETWEEN = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Measured neighbours without a gap, x strictly increasing; a lone point is a piece too."""

    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """Made by ``through``. ``log_x``, ``log_y``: interpolated in logarithms of that axis."""

    pieces: tuple[Piece, ...]
    log_x: bool
    log_y: bool

    def at(self, x: float) -> float | None:
        """The value at ``x``; None where nothing was measured on both sides of it."""
        return self.sampled([x])[0]

    def sampled(self, x: Sequence[float]) -> list[float | None]:
        """The values at each of ``x``, as ``at`` gives them."""
        found: list[float | None] = [None] * len(x)
        for piece in self.pieces:
            known = dict(zip(piece.x, piece.y, strict=True))
            between = [i for i, value in enumerate(x) if piece.x[0] < value < piece.x[-1] and value not in known]
            if between:
                values = self._values(piece, np.asarray([x[i] for i in between], np.float64))
                for index, value in zip(between, values.tolist(), strict=True):
                    found[index] = value
            for index, at in enumerate(x):
                found[index] = known.get(at, found[index])
        return found

    def drawn(self) -> tuple[tuple[tuple[float, float], ...], ...]:
        """Points to draw, one tuple per piece: the measured ones exactly, and some between them."""
        made = []
        for piece in self.pieces:
            x = [piece.x[0]]
            for low, high in pairwise(piece.x):
                x += [*self._spaced(low, high).tolist(), high]
            y = Curve((piece,), self.log_x, self.log_y).sampled(x)
            made.append(tuple((at, value) for at, value in zip(x, y, strict=True) if value is not None))
        return tuple(made)

    def crossing(self, threshold: float, low: float, high: float) -> float | None:
        """The least x in ``low``..``high`` at which the curve has the value ``threshold``; None where it has it
        nowhere.

        None too where the curve has a gap between the two: what happens there is not known.
        """
        if self.log_y and threshold <= 0:
            return None
        for piece in self.pieces:
            if piece.x[0] <= low and high <= piece.x[-1]:
                return self._crossing(piece, threshold, low, high)
        return None

    def _crossing(self, piece: Piece, threshold: float, low: float, high: float) -> float | None:
        # A limit met exactly at a point has its root there up to rounding, which may put it outside.
        at_points = zip(piece.x, piece.y, strict=True)
        found = [x for x, y in at_points if math.isclose(y, threshold, rel_tol=1e-12) and low <= x <= high]
        if len(piece.x) > 1:
            roots = self._fitted(piece).solve(_scaled(threshold, self.log_y), extrapolate=False)
            values = [float(np.exp(root) if self.log_x else root) for root in roots if np.isfinite(root)]
            found += [
                min(max(value, low), high) for value in values if low * (1 - 1e-12) <= value <= high * (1 + 1e-12)
            ]
        return min(found, default=None)

    def _fitted(self, piece: Piece) -> Any:
        from scipy.interpolate import PchipInterpolator  # most of a second to import, and needed by this alone

        x = np.asarray([_scaled(value, self.log_x) for value in piece.x])
        y = np.asarray([_scaled(value, self.log_y) for value in piece.y])
        return PchipInterpolator(x, y, extrapolate=False)

    def _values(self, piece: Piece, x: FloatArray) -> FloatArray:
        found = self._fitted(piece)(np.log(x) if self.log_x else x)
        values: FloatArray = np.exp(found) if self.log_y else found
        # Rounding through a logarithm may leave the range of the points by the last digit.
        return np.clip(values, min(piece.y), max(piece.y))

    def _spaced(self, low: float, high: float) -> FloatArray:
        inside: FloatArray = (np.geomspace if self.log_x else np.linspace)(low, high, _BETWEEN + 2)[1:-1]
        return inside


def through(x: Sequence[float], y: Sequence[float | None]) -> Curve:
    """The curve through the points, x in any order. A ``y`` of None, or one that is not finite, breaks it.

    Raises ValueError for an x that is given twice or is not finite, and for lists of different lengths.
    """
    pairs = sorted(zip(x, y, strict=True), key=lambda pair: pair[0])
    if any(not np.isfinite(one) for one, _ in pairs) or any(a[0] == b[0] for a, b in pairwise(pairs)):
        raise ValueError("each point needs a finite x of its own")
    runs: list[list[tuple[float, float]]] = [[]]
    for at, value in pairs:
        if value is None or not np.isfinite(value):
            runs.append([])
        else:
            runs[-1].append((float(at), float(value)))
    known = [point for run in runs for point in run]
    pieces = tuple(Piece(*map(tuple, zip(*run, strict=True))) for run in runs if run)
    return Curve(pieces, log_x=all(x > 0 for x, _ in known), log_y=all(y > 0 for _, y in known))


def linear_crossing(x: Sequence[float], share: Sequence[float], target: float) -> float | None:
    """The load at which a share falls to ``target`` by straight lines between neighbours, x increasing.

    That is how DistServe's evaluation reads its attainment curves. The first fall counts; None where the share never
    falls from at least the target to below it.
    """
    for (x0, s0), (x1, s1) in pairwise(zip(x, share, strict=True)):
        if s0 >= target > s1:
            return x0 + (x1 - x0) * (s0 - target) / (s0 - s1)
    return None


def _scaled(value: float, log: bool) -> float:
    return float(np.log(value)) if log else value


# -- the points of a sweep against its promises -----------------------------------------------------------------------

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID"]

#: Share of the offered requests that must have been answered for a load to count as carried.
COMPLETION = 0.99
#: With a smaller share than this answered, more load teaches nothing.
HOPELESS = 0.5
#: Nor where answers came this much more slowly than requests.
BEHIND = 0.75
#: So many hopeless points one after the other end a series.
_IN_A_ROW = 2
_FEW = 30


@dataclass(frozen=True, slots=True)
class Standing:
    """One load of a series. ``completion``: share of its requests that were answered; ``unstable``: it did not keep up.

    ``pace``: answers over requests, each per second (see ``pace``); 1 where that can't be said.
    """

    x: float
    outcome: Outcome
    completion: float
    unstable: bool = False
    pace: float = 1.0

    @property
    def hopeless(self) -> bool:
        """The endpoint fell behind, or most requests failed. What the generator spoiled says nothing of it."""
        behind = self.unstable or self.completion < HOPELESS or self.pace < BEHIND
        return self.outcome != "INVALID" and behind


@dataclass(frozen=True, slots=True)
class Bracket:
    """Between which loads the line lies.

    ``low``: the greatest that holds below the first that fails; ``high``: the first that fails; None: there is none.
    ``undecided``: loads between them that say neither; ``passes_above``: loads beyond ``high`` that hold all the same.
    """

    low: float | None
    high: float | None
    undecided: tuple[float, ...]
    passes_above: tuple[float, ...]


def pace(n: int, offered_per_s: float, span_ns: float, latency_ns: float) -> float:
    """How fast ``n`` answers came, over how fast they were asked for, at most 1; 1 too below 30 requests.

    ``span_ns``: from the first request to the last answer. One typical latency is taken off it, which a slow endpoint
    that keeps up needs too: with the same latency W for all, n / (T + W - W) is the offered rate. With capacity C below
    the rate the median wait is half of the last one, and the pace 2 / (1 + rate / C).
    """
    rest = span_ns - latency_ns
    if n < _FEW or rest <= 0 or offered_per_s <= 0:
        return 1.0
    return min(n * 1e9 / rest / offered_per_s, 1.0)


def knee(points: Sequence[Standing], completion: float = COMPLETION) -> Standing | None:
    """The greatest load that is carried: at least ``completion`` answered, kept up with, and PASS (SEMANTICS E.3)."""
    carried = [p for p in points if p.outcome == "PASS" and not p.hopeless and p.completion >= completion]
    return max(carried, key=lambda p: p.x, default=None)


def bracket(points: Sequence[Standing]) -> Bracket:
    """The interval that the points leave for the line."""
    ordered = sorted(points, key=lambda p: p.x)
    high = next((p.x for p in ordered if p.outcome == "FAIL"), None)
    passed = [p.x for p in ordered if p.outcome == "PASS"]
    low = max((x for x in passed if high is None or x < high), default=None)
    neither = [p.x for p in ordered if p.outcome in ("INCONCLUSIVE", "INVALID")]
    undecided = tuple(x for x in neither if (low is None or x > low) and (high is None or x < high))
    return Bracket(low, high, undecided, tuple(x for x in passed if high is not None and x > high))


def max_distance(x: Sequence[float], y: Sequence[float], shape: Literal["convex", "concave"]) -> float | None:
    """The x at which a curve is furthest from the chord of its ends, both axes scaled to 0..1; None below three points.

    As the Kneedle method does before it smooths: information, never a limit. ``convex``: latency over load, far below
    the chord; ``concave``: throughput over load, far above it. None too for a curve with no bend that way.
    """
    if len(x) < 3:
        return None
    at, values = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if not np.isfinite(values).all() or at[-1] == at[0] or values.max() == values.min():
        return None
    across = (at - at[0]) / (at[-1] - at[0])
    up = (values - values.min()) / (values.max() - values.min())
    chord = up[0] + across * (up[-1] - up[0])
    distance = chord - up if shape == "convex" else up - chord
    best = int(np.argmax(distance))
    return float(at[best]) if distance[best] > 1e-9 else None


def saturated(points: Sequence[Standing]) -> float | None:
    """The load from which on a series need not go on: the first of two neighbouring points that are hopeless."""
    ordered = sorted((p for p in points if p.outcome != "INVALID"), key=lambda p: p.x)
    for index in range(len(ordered) - _IN_A_ROW + 1):
        if all(p.hopeless for p in ordered[index : index + _IN_A_ROW]):
            return ordered[index].x
    return None
