"""A curve through the points of a sweep: what lies between two measured loads, and where it crosses a limit.

Interpolated is by monotone piecewise cubics (PCHIP): the curve goes through every point, and between two neighbours it
never leaves the range of their values, so that it shows no bump that nobody measured. Where all values are positive it is
drawn in logarithms, because latency near saturation grows by factors. Refused is every guess beyond the measured points:
there is no value outside them and none across a point at which the endpoint did not keep up.

Source: Fritsch and Butland, "A method for constructing local monotone piecewise cubic interpolants" (1984).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
        """The least x in ``low``..``high`` at which the curve has the value ``threshold``; None where it has it nowhere.

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
    return Curve(
        pieces=tuple(Piece(tuple(p[0] for p in run), tuple(p[1] for p in run)) for run in runs if run),
        log_x=all(point[0] > 0 for point in known),
        log_y=all(point[1] > 0 for point in known),
    )


def linear_crossing(x: Sequence[float], share: Sequence[float], target: float) -> float | None:
    """The load at which a share falls to ``target`` by straight lines between neighbours, x increasing.

    That is how DistServe's evaluation reads its attainment curves. The first fall counts; None where the share never falls
    from at least the target to below it.
    """
    for (x0, s0), (x1, s1) in pairwise(zip(x, share, strict=True)):
        if s0 >= target > s1:
            return x0 + (x1 - x0) * (s0 - target) / (s0 - s1)
    return None


def _scaled(value: float, log: bool) -> float:
    return float(np.log(value)) if log else value
