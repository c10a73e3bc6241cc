"""Did the endpoint keep up, or did a backlog grow for as long as the run lasted?

With a growing backlog every latency depends on the length of the run: the numbers are those of a queue and no property
of the endpoint, and a promise that they keep was kept by stopping in time. That is no fault of the generator: this
module only finds it, and ``slo/verdict/verdict.py`` says what it means. It looks for no other trend.

In flight at t: requests due by t and not over by t. Its growth over a window is arrivals minus completions, and the sum
of the growth in BLOCKS equal parts. While an endpoint is saturated the parts are nearly independent, so the sum divided by
its standard error, estimated from the parts, is a t statistic. While it keeps up, its queue comes back to where it was:
the parts cancel, and the statistic is far smaller than by chance (so the noise of a busy but stable queue, which is
strongly autocorrelated and defeats a regression of the queue length, does not trip it). docs/reference/validity.md has the numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.records.records import FloatArray, IntArray

#: With fewer arrivals in the window nothing can be said.
MIN_ARRIVALS = 150
BLOCKS = 20
#: One-sided 99 % of Student's t with 19 degrees of freedom is 2.54.
T_LIMIT = 2.6
#: Growth of less than this share of the arrivals is not worth a word (completions at 0.99 of the arrivals or more).
MATERIAL = 0.01
#: Standard errors by which latencies must have grown too.
Z_LIMIT = 3.0
#: By Little's law a queue that grew by G raises latencies by G / rate, and the median of one half over the other's by half
#: of that. Latencies that grew by less than a tenth of it drift for some other reason, while the endpoint still fills up.
EXPLAINED = 0.1


@dataclass(frozen=True, slots=True)
class Backlog:
    """What happened between ``since_ns`` and ``until_ns``.

    ``in_flight`` at both ends; ``arrivals`` between them; ``statistic``: t of the growth; ``latency_ns``: median latency of
    the requests due in the first and in the second half, infinite for what was never over. ``growing``: the growth is more
    than 1 % of the arrivals, more than chance, and requests take longer by what such a queue means.
    """

    since_ns: int
    until_ns: int
    in_flight: tuple[int, int]
    arrivals: int
    statistic: float
    latency_ns: tuple[float, float]
    growing: bool


def backlog(due_ns: IntArray, done_ns: IntArray) -> Backlog | None:
    """Judge an open loop of constant rate by when requests were due and when they were over (-1: never).

    The window is the last two thirds of the schedule: during the first an endpoint fills up. Where answers take longer than
    that, requests in flight still grow in the window, and only latencies that grow as well tell a queue from filling up.
    None: too few requests to say.
    """
    if len(due_ns) < MIN_ARRIVALS:
        return None
    since, until = int(due_ns.min() + np.ptp(due_ns) // 3), int(due_ns.max())
    edges = np.linspace(since, until, BLOCKS + 1)
    over = np.sort(np.where(done_ns == -1, np.iinfo(np.int64).max, done_ns))
    arrived = np.searchsorted(np.sort(due_ns), edges, side="right")
    flying = arrived - np.searchsorted(over, edges, side="right")
    arrivals = int(arrived[-1] - arrived[0])
    if arrivals < MIN_ARRIVALS:
        return None
    parts = np.diff(flying).astype(np.float64)
    growth = float(parts.sum())
    error = float(parts.std(ddof=1)) * math.sqrt(BLOCKS)
    statistic = growth / error if error else math.inf * growth if growth else 0.0
    took = np.where(done_ns == -1, np.inf, (done_ns - due_ns).astype(np.float64))
    middle = (since + until) // 2
    early, late = took[(due_ns > since) & (due_ns <= middle)], took[due_ns > middle]
    medians = float(np.median(early)), float(np.median(late))
    slower = medians[1] - medians[0] if math.isfinite(medians[1]) else math.inf
    explained = slower * arrivals / (until - since) > EXPLAINED * growth / 2
    growing = growth > MATERIAL * arrivals and statistic > T_LIMIT and _shift(early, late) > Z_LIMIT and explained
    return Backlog(since, until, (int(flying[0]), int(flying[-1])), arrivals, statistic, medians, growing)


def _shift(early: FloatArray, late: FloatArray) -> float:
    """Mann-Whitney's U in standard errors: positive where late values are the larger ones. Ties count half."""
    n, m = len(early), len(late)
    if not n or not m:
        return 0.0
    ordered = np.sort(early)
    below = np.searchsorted(ordered, late, side="left") + np.searchsorted(ordered, late, side="right")
    return (float(below.sum()) / 2 - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
