"""The points of a sweep set against its promises: the knee, the interval that holds the line, and when to stop.

Nothing here assumes that more load is worse: a point that passes above one that fails is named and not explained away.
Interpolates nothing (see ``plimsoll.slo.search.curve``) and judges no run: the outcomes come in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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

    ``span_ns``: from the first request to the last answer. One typical latency is taken off it, which a slow endpoint that
    keeps up needs too: with the same latency W for all, n / (T + W - W) is the offered rate. With capacity C below the rate
    the median wait is half of the last one, and the pace 2 / (1 + rate / C).
    """
    rest = span_ns - latency_ns
    if n < _FEW or rest <= 0 or offered_per_s <= 0:
        return 1.0
    return min(n * 1e9 / rest / offered_per_s, 1.0)


def knee(points: Sequence[Standing], completion: float = COMPLETION) -> Standing | None:
    """The greatest load that is carried: answered by at least ``completion``, kept up with, and PASS (SEMANTICS E.3)."""
    carried = [p for p in points if p.outcome == "PASS" and not p.hopeless and p.completion >= completion]
    return max(carried, key=lambda p: p.x, default=None)


def bracket(points: Sequence[Standing]) -> Bracket:
    """The interval that the points leave for the line."""
    ordered = sorted(points, key=lambda p: p.x)
    high = next((p.x for p in ordered if p.outcome == "FAIL"), None)
    passed = [p.x for p in ordered if p.outcome == "PASS"]
    low = max((x for x in passed if high is None or x < high), default=None)
    neither = [p.x for p in ordered if p.outcome in ("INCONCLUSIVE", "INVALID")]
    return Bracket(
        low,
        high,
        tuple(x for x in neither if (low is None or x > low) and (high is None or x < high)),
        tuple(x for x in passed if high is not None and x > high),
    )


def max_distance(x: Sequence[float], y: Sequence[float], shape: Literal["convex", "concave"]) -> float | None:
    """The x at which a curve is furthest from the chord of its ends, both axes scaled to 0..1; None below three points.

    As the Kneedle method does before it smooths: information, never a limit. ``convex``: latency over load, far below the
    chord; ``concave``: throughput over load, far above it. None too for a curve with no bend that way.
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
