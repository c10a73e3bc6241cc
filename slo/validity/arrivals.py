"""Did the requests leave as the plan said, and was the plan what it claims? Shapes of times, beside each other.

A seeded plan may be an unlucky draw of its process; that is no fault of the generator. So the judgement of the generator
compares the actual times with the planned times. The plan itself is held against its process apart from that, and so that
no draw is unlucky enough: what fails has another law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plimsoll.slo.records.records import IntArray

#: Below this many requests a shape is noise.
MIN_SAMPLES = 200
#: Mean number of requests per counting window of the index of dispersion.
PER_WINDOW = 10
#: Largest difference between actual and planned index of dispersion, relative to the planned one or to 1.
DISPERSION_TOLERANCE = 0.5
#: Largest difference between the actual and the planned correlation of counts of successive windows, and the windows it needs.
DEPENDENCE_TOLERANCE = 0.3
DEPENDENCE_NEEDS = 100
#: A stall empties windows and fills the next one: this share of them, and at least two, is left out, of plan and actual alike.
STALLED_SHARE = 0.01
#: A plan whose gaps would be an exponential draw less often than this is no Poisson plan. The fit estimates the mean, so
#: honest plans fall below far more rarely still.
P_CLAIM = 1e-6


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Index of dispersion of counts (variance over mean, in windows of 10 mean gaps): 1 for Poisson, 0 for
    constant.

    ``dispersion_planned`` of the due times, ``dispersion_ready`` of the moments the generator took requests
    up, ``dispersion_sent`` of the moments they left. ``ks_p``: Kolmogorov-Smirnov p-value of the sent gaps
    against the exponential distribution of their mean, None for other processes; conservative, since the
    mean is estimated. ``moved``: by how much the dispersion of what left is off the planned one, and ``leaned``: the
    correlation of the counts of successive windows, both without the windows of stalls; None: too few. ``kept``: both small.
    """

    dispersion_planned: float
    dispersion_ready: float
    dispersion_sent: float
    ks_p: float | None
    moved: float
    leaned: float | None
    kept: bool


def rate_per_s(times_ns: IntArray, at_once: int = 1) -> float:
    """(n - at_once) / (last - first), per second; 0 for fewer than two moments.

    ``at_once``: so many began together (see ``at_once``), in no time. Counted, they would make two queries of eight samples twice as
    fast as they came.
    """
    span = int(np.ptp(times_ns)) if len(times_ns) else 0
    return max(0, len(times_ns) - at_once) * 1e9 / span if span else 0.0


def at_once(due_ns: IntArray, over_ns: int | None = None) -> int:
    """How many began the load together: those due at its first moment, and where requests wait for answers all that were due
    before any answer made room for them (``over_ns``: the first end of a request from t0 on, of the warm-up too).
    """
    if not len(due_ns):
        return 1
    tied = int(np.count_nonzero(due_ns == due_ns.min()))
    return tied if over_ns is None else max(tied, int(np.count_nonzero(due_ns < over_ns)))


def slope(due_ns: IntArray, left_ns: IntArray) -> float:
    """Least squares of the times left over the times due: 1 for the planned rate, more for a load that falls behind."""
    x = due_ns - due_ns.mean()
    spread = float(np.square(x).sum())
    return float((x * (left_ns - left_ns.mean())).sum()) / spread if spread else 1.0


def counts(times_ns: IntArray, start_ns: int, window_ns: float, windows: int) -> IntArray:
    """int64[windows]: the moments in each window from ``start_ns`` on."""
    place = ((times_ns - start_ns) / window_ns).astype(np.int64)
    return np.bincount(place[(place >= 0) & (place < windows)], minlength=windows).astype(np.int64)


def dispersion(times_ns: IntArray, window_ns: float) -> float:
    """Variance over mean of the counts in whole windows from the first moment on; NaN for fewer than two
    windows.
    """
    windows = int(np.ptp(times_ns) // window_ns) if len(times_ns) and window_ns > 0 else 0
    if windows < 2:
        return math.nan
    seen = counts(times_ns, int(times_ns.min()), window_ns, windows)
    return float(seen.var() / seen.mean())


def exponential_fit(gaps_ns: npt.NDArray[np.float64], grain_ns: float = 0.0) -> float:
    """Kolmogorov-Smirnov p-value of gaps against the exponential distribution with their mean.

    ``grain_ns``: times are whole multiples of this, which moves the distribution by up to so much of the mean.
    """
    from scipy.special import kolmogorov

    n = len(gaps_ns)
    mean = float(gaps_ns.mean()) if n else 0.0
    if mean <= 0.0:
        return 0.0
    fitted = -np.expm1(-np.sort(gaps_ns) / mean)
    steps = np.arange(n + 1) / n
    distance = float(max((steps[1:] - fitted).max(), (fitted - steps[:-1]).max()))
    return float(kolmogorov(math.sqrt(n) * max(0.0, distance - grain_ns / mean)))


def claimed(due_ns: IntArray, process: str | None) -> str | None:
    """Why the planned times (of each query, ascending) are not of the process that they claim; None: they may be, or are too few.

    Poisson: exponential gaps, of whole ns. Constant: equal ones. Others claim nothing that can be tested without their settings.
    """
    gaps = np.diff(due_ns).astype(np.float64)
    if len(gaps) < MIN_SAMPLES:
        return None
    if process == "poisson":
        p = exponential_fit(gaps, 2.0)
        spread = float(gaps.std() / gaps.mean()) if gaps.mean() else math.nan
        return (
            None
            if p >= P_CLAIM
            else f"{len(gaps)} gaps, exponential with p = {p:.1g}, their spread over their mean {spread:.2f}"
        )
    if process == "constant":
        off = float(np.abs(gaps - gaps.mean()).max())
        return (
            None if off <= 2.0 + 0.01 * gaps.mean() else f"one of {len(gaps)} gaps is {off / 1e6:.3g} ms off their mean"
        )
    return None


def compare(
    due_ns: IntArray, ready_ns: IntArray, sent_ns: IntArray, process: str | None, left_ns: IntArray | None = None
) -> Arrivals | None:
    """The three shapes; None when all requests are due at once, or so few that there are not two windows.

    Judged is ``left_ns``, of each due time when the generator let go of it: ``ready_ns``, unless it held requests back after that.
    """
    span = int(np.ptp(due_ns))
    window = PER_WINDOW * span / max(len(due_ns) - 1, 1)
    planned, ready = dispersion(due_ns, window), dispersion(ready_ns, window)
    sent = dispersion(sent_ns, window)
    if math.isnan(planned):
        return None
    ks_p = None
    if process == "poisson" and len(sent_ns) >= MIN_SAMPLES:
        ks_p = exponential_fit(np.diff(np.sort(sent_ns)).astype(np.float64))
    moved, leaned = _apart(due_ns, ready_ns if left_ns is None else left_ns, window)
    # A ready dispersion of NaN means that everything left at once: certainly not as planned.
    kept = not math.isnan(ready) and abs(moved) <= DISPERSION_TOLERANCE * max(1.0, planned)
    return Arrivals(planned, ready, sent, ks_p, moved, leaned, kept and abs(leaned or 0.0) <= DEPENDENCE_TOLERANCE)


def _apart(due_ns: IntArray, left_ns: IntArray, window_ns: float) -> tuple[float, float | None]:
    """(difference of dispersion, difference of the correlation of successive counts): what left, less what was planned."""
    windows = int(np.ptp(due_ns) // window_ns)
    start = int(due_ns.min())
    planned, left = (counts(times, start, window_ns, windows) for times in (due_ns, left_ns))
    most = max(2, int(STALLED_SHARE * windows))
    kept = np.ones(windows, np.bool_)
    if windows > most:
        kept[np.argsort(np.abs(left - planned), kind="stable")[windows - most :]] = False
    mean = float(planned.mean())
    both = [float(np.square(seen[kept] - mean).mean() / mean) for seen in (left, planned)]
    if windows < DEPENDENCE_NEEDS:
        return both[0] - both[1], None
    pairs = kept[1:] & kept[:-1]
    leans = []
    for seen in (left, planned):
        off = seen - mean
        scale = max(float(np.square(off[kept]).mean()), mean)
        leans.append(float((off[1:] * off[:-1])[pairs].mean()) / scale)
    return both[0] - both[1], leans[0] - leans[1]
