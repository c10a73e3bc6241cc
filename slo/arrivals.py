"""Did the requests leave as the plan said? The shape of the actual send times beside the planned ones.

A seeded plan may be an unlucky draw of its process; that is no fault of the generator. So the judgement
compares the actual times with the planned times, and the goodness of fit to the process is only reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slo.records import IntArray

#: Below this many requests a shape is noise.
MIN_SAMPLES = 200
#: Mean number of requests per counting window of the index of dispersion.
PER_WINDOW = 10
#: Largest difference between actual and planned index of dispersion, relative to the planned one or to 1.
DISPERSION_TOLERANCE = 0.5


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Index of dispersion of counts (variance over mean, in windows of 10 mean gaps): 1 for Poisson, 0 for
    constant.

    ``dispersion_planned`` of the due times, ``dispersion_ready`` of the moments the generator took requests
    up, ``dispersion_sent`` of the moments they left. ``ks_p``: Kolmogorov-Smirnov p-value of the sent gaps
    against the exponential distribution of their mean, None for other processes; conservative, since the
    mean is estimated. ``kept``: ready is as dispersed as planned.
    """

    dispersion_planned: float
    dispersion_ready: float
    dispersion_sent: float
    ks_p: float | None
    kept: bool


def rate_per_s(times_ns: IntArray) -> float:
    """(n - 1) / (last - first), per second; 0 for fewer than two moments."""
    if len(times_ns) < 2:
        return 0.0
    span = int(np.ptp(times_ns))
    return (len(times_ns) - 1) * 1e9 / span if span else 0.0


def dispersion(times_ns: IntArray, window_ns: float) -> float:
    """Variance over mean of the counts in whole windows from the first moment on; NaN for fewer than two
    windows.
    """
    windows = int(np.ptp(times_ns) // window_ns) if len(times_ns) and window_ns > 0 else 0
    if windows < 2:
        return math.nan
    place = ((times_ns - times_ns.min()) / window_ns).astype(np.int64)
    counts = np.bincount(place[place < windows], minlength=windows)
    return float(counts.var() / counts.mean())


def exponential_fit(gaps_ns: npt.NDArray[np.float64]) -> float:
    """Kolmogorov-Smirnov p-value of gaps against the exponential distribution with their mean."""
    from scipy.special import kolmogorov

    n = len(gaps_ns)
    mean = float(gaps_ns.mean()) if n else 0.0
    if mean <= 0.0:
        return 0.0
    fitted = -np.expm1(-np.sort(gaps_ns) / mean)
    steps = np.arange(n + 1) / n
    distance = float(max((steps[1:] - fitted).max(), (fitted - steps[:-1]).max()))
    return float(kolmogorov(math.sqrt(n) * distance))


def compare(due_ns: IntArray, ready_ns: IntArray, sent_ns: IntArray, process: str | None) -> Arrivals | None:
    """The three shapes; None when all requests are due at once, or so few that there are not two windows."""
    span = int(np.ptp(due_ns))
    window = PER_WINDOW * span / max(len(due_ns) - 1, 1)
    planned, ready = dispersion(due_ns, window), dispersion(ready_ns, window)
    sent = dispersion(sent_ns, window)
    if math.isnan(planned):
        return None
    ks_p = None
    if process == "poisson" and len(sent_ns) >= MIN_SAMPLES:
        ks_p = exponential_fit(np.diff(np.sort(sent_ns)).astype(np.float64))
    # A ready dispersion of NaN means that everything left at once: certainly not as planned.
    kept = abs(ready - planned) <= DISPERSION_TOLERANCE * max(1.0, planned)
    return Arrivals(planned, ready, sent, ks_p, kept)
