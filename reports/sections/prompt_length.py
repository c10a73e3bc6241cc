"""How the wait for an answer grows with the length of the prompt: quantiles by length, and a light sample of points.

A failed request has no token count from its server; where a successful one sent the same payload, its count is taken, so
that failures stay in the group that they belong to. What stays unknown is counted and shown, never guessed. No line is
fitted: prefill is rarely linear, and a fit would hide where it is not.
"""

from __future__ import annotations

import numpy as np

from plimsoll.reports.parts.chart_parts import ByPrompt, PromptBin
from plimsoll.reports.sections.chart_data import number
from plimsoll.slo.records.records import FloatArray, IntArray, Records, TokensFrom
from plimsoll.slo.statistics.distribution import quantile

MAX_BINS = 12
MAX_POINTS = 300
#: Requests that a bin should hold on average, and the ratio of lengths below which there is nothing to compare.
_PER_BIN = 8
_VARIES = 1.25


def by_prompt(name: str, values: FloatArray, row: IntArray, unit: str, records: Records) -> ByPrompt | None:
    """``values[i]`` (+inf for a failure) belongs to row ``row[i]``. None where lengths are unknown or hardly vary."""
    lengths = prompt_lengths(records)[row]
    known = lengths > 0
    if not known.any():
        return None
    n_in, found = lengths[known], values[known]
    low, high = int(n_in.min()), int(n_in.max())
    if high < low * _VARIES:
        return None
    bounds = _bounds(low, high, len(n_in))
    place = np.searchsorted(bounds, n_in, side="right") - 1
    order = np.lexsort((found, place))
    ends = np.cumsum(np.bincount(place, minlength=len(bounds)))
    bins, slowest, begin = [], [], 0
    for index, end in enumerate(ends.tolist()):
        if end > begin:
            top = high if index == len(bounds) - 1 else int(bounds[index + 1]) - 1
            bins.append(_bin(int(bounds[index]), top, found[order[begin:end]], unit))
            slowest.append(order[begin + max(bins[-1].n - bins[-1].failed, 1) - 1])
        begin = end
    picked = np.unique(np.concatenate((_even(len(found), MAX_POINTS - len(slowest)), np.array(slowest))))
    return ByPrompt(
        metric=name,
        unit=unit,
        n=len(found),
        unknown=int(np.count_nonzero(~known)),
        planned=lengths_planned(records),
        bins=bins,
        points=[(int(n_in[i]), number(float(found[i]), unit)) for i in picked if np.isfinite(found[i])],
    )


def prompt_lengths(records: Records) -> IntArray:
    """int64[n]: input tokens of each row as the server counted them, -1 where unknown.

    A row that failed takes the count of a success with the same payload: its own is at best an estimate of ours, in other
    tokens than the server's. Where no success was counted, all rows have the plan's lengths (``lengths_planned``).
    """
    n_in, payload = records["n_in"], records["payload_ix"]
    if lengths_planned(records):
        return n_in
    ok = records.ok & (records["n_in_from"] != TokensFrom.PLAN)
    told = ok & (n_in >= 0) & (payload >= 0)
    if ok.all() or not told.any():
        return np.where(ok, n_in, -1)
    known, first = np.unique(payload[told], return_index=True)
    lost = ~ok
    at = np.minimum(np.searchsorted(known, payload[lost]), len(known) - 1)
    filled = n_in.copy()
    filled[lost] = np.where(known[at] == payload[lost], n_in[told][first][at], -1)
    return filled


def lengths_planned(records: Records) -> bool:
    """No server counted any: the lengths there are, are the plan's."""
    known = records["n_in_from"][records.ok & (records["n_in"] >= 0)]
    return len(known) > 0 and bool((known == TokensFrom.PLAN).all())


def _bounds(low: int, high: int, n: int) -> IntArray:
    """First length of each bin: equal ratios, whole numbers, no two alike."""
    bins = min(MAX_BINS, max(2, n // _PER_BIN))
    return np.unique(np.floor(np.geomspace(low, high + 1, bins + 1)[:-1] + 1e-9).astype(np.int64))


def _bin(low: int, high: int, ordered: FloatArray, unit: str) -> PromptBin:
    p50, p90, p99 = (number(quantile(ordered, share), unit) for share in ("0.5", "0.9", "0.99"))
    failed = int(np.count_nonzero(np.isinf(ordered)))
    return PromptBin(low=low, high=high, n=len(ordered), failed=failed, p50=p50, p90=p90, p99=p99)


def _even(n: int, at_most: int) -> IntArray:
    """At most so many positions of 0..n-1, evenly apart."""
    return np.unique(np.linspace(0, n - 1, min(n, at_most)).astype(np.int64))
