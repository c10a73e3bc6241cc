"""Exact order statistics of more values than one wants to sort or to hold: a few ranks of fifty million gaps.

A sample brackets each rank, one pass counts what lies below the bracket and keeps what lies in it, and the kept few are
sorted. When a bracket misses its rank, which a sample can't rule out, everything is sorted after all: the result is
always the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from plimsoll.slo.records.records import IntArray

#: Up to so many values sorting is as quick.
SORTED = 2_000_000
#: Values of the sample; a bracket reaches this many standard deviations to either side.
SAMPLE = 100_000
REACH = 6.0


def order_statistics(parts: Callable[[], Iterable[IntArray]], n: int, ranks: Sequence[int]) -> list[int]:
    """The values at these 0-based ranks of all ``n`` values in ``parts()``, which is gone through at most three times."""
    if n <= SORTED:
        return _sorted(parts, ranks)
    sample = np.sort(np.concatenate([_some(part, n) for part in parts()]))
    brackets = [_bracket(sample, rank / n) for rank in ranks]
    below = [0] * len(ranks)
    inside: list[list[IntArray]] = [[] for _ in ranks]
    for part in parts():
        for i, (low, high) in enumerate(brackets):
            if i and brackets[i] == brackets[i - 1]:
                continue
            below[i] += int(np.count_nonzero(part < low))
            inside[i].append(part[(part >= low) & (part <= high)])
    found: list[int] = []
    kept = np.empty(0, np.int64)
    for i, rank in enumerate(ranks):
        if i and brackets[i] == brackets[i - 1]:
            below[i] = below[i - 1]
        else:
            kept = np.sort(np.concatenate(inside[i]))
        place = rank - below[i]
        if not 0 <= place < len(kept):
            return _sorted(parts, ranks)
        found.append(int(kept[place]))
    return found


def _sorted(parts: Callable[[], Iterable[IntArray]], ranks: Sequence[int]) -> list[int]:
    values = np.concatenate([np.empty(0, np.int64), *parts()])
    values.sort()
    return [int(values[rank]) for rank in ranks]


def _some(part: IntArray, n: int) -> IntArray:
    """This part's share of the sample, drawn at random by a fixed seed: every k-th value would be the same gap of each
    answer when answers have k chunks.
    """
    size = -(-len(part) * SAMPLE // n)
    return part[np.random.default_rng(1).integers(0, len(part), size)] if len(part) else part


def _bracket(sample: IntArray, share: float) -> tuple[int, int]:
    """Two values that the quantile of this share very likely lies between."""
    size = len(sample)
    reach = REACH * float(np.sqrt(size * share * (1 - share))) + REACH
    low, high = int(share * size - reach), int(share * size + reach) + 1
    limits = np.iinfo(np.int64)
    return (int(sample[low]) if low >= 0 else limits.min, int(sample[high]) if high < size else limits.max)
