"""Percentiles of coarse bins, with failed requests as infinite ones: nearest rank, and the middle of the bin it falls into."""

from __future__ import annotations

from fractions import Fraction

from plimsoll.reports.dashboard.live_parts import BINS_AN_OCTAVE, Bins

SHARES = (Fraction(1, 2), Fraction(9, 10), Fraction(99, 100))


def percentiles(bins: Bins, infinite: int = 0) -> tuple[int | None, int | None, int | None]:
    """p50, p90 and p99 in ns of the values in ``bins`` and of ``infinite`` more; None is infinite, or no value at all."""
    total = sum(bins.values()) + infinite
    wanted = [-(-share * total // 1) for share in SHARES]
    found: list[int | None] = []
    seen = 0
    for key in sorted(bins):
        seen += bins[key]
        while len(found) < len(wanted) and seen >= wanted[len(found)]:
            found.append(round(middle(key)))
    found += [None] * (len(wanted) - len(found))
    return found[0], found[1], found[2]


def middle(key: int) -> float:
    """The geometric middle of a bin, in ns: at most 1.1 % from every value in it."""
    return float(2.0 ** ((key + 0.5) / BINS_AN_OCTAVE))
