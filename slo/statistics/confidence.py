"""How sure a finite run makes us: bounds on percentiles, shares and means, and how many requests a proof takes.

Everything about percentiles and shares is exact binomial arithmetic on the regularised incomplete beta
function, found by bisection, so n = 10^7 costs microseconds. All of it assumes independent values;
latencies under load are correlated, so real confidence is lower. Nothing here knows of requests.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.order import Ordered

Probability = Fraction | str | float

#: No run has more requests than this; beyond it we say that no number would do.
MOST = 10**12
#: Shares so near to the limit that it takes more are on it.
MOST_DECIDING = 10**11
#: A verdict that looks for memory asks for more than the exact test even where there is none, because chance looks like
#: a little of it: with this many times the requests it decides at least as often. docs/evidence/statistics.md has the
#: simulation.
CLUSTERED = Fraction(6, 5)
#: The same for values of which not one is bad: the exact test asks for so few of them that chance costs more.
CLUSTERED_NONE = Fraction(9, 5)


def binomial_at_most(k: float, n: float, q: Probability) -> float:
    """P[Binomial(n, q) <= k]; of effective counts, which need not be whole, by the beta function that it is."""
    from plimsoll.slo.statistics.special import betainc

    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    return float(betainc(n - k, k + 1, float(1 - exact(q))))


def binomial_at_least(k: float, n: float, q: Probability) -> float:
    """P[Binomial(n, q) >= k], without cancellation in the far tail; counts need not be whole."""
    from plimsoll.slo.statistics.special import betainc

    if k <= 0:
        return 1.0
    if k > n:
        return 0.0
    return float(betainc(k, n - k + 1, float(exact(q))))


def _first(holds: Callable[[int], bool], low: int, most: int = MOST) -> int | None:
    """The smallest i >= low with holds(i), where holds stays true once it is; None beyond ``most``."""
    if holds(low):
        return low
    step = 1
    while not holds(low + step):
        step *= 2
        if low + step > most:
            return None
    bad, good = low + step // 2, low + step
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if holds(middle) else (middle, good)
    return good


def _open(name: str, value: Probability) -> Fraction:
    p = exact(value)
    if not 0 < p < 1:
        raise ValueError(f"{name} {value}: lies strictly between 0 and 1")
    return p


def n_required(t: int, p: Probability, c: Probability = "0.99", d: Probability = 0.0) -> int:
    """Queries needed to show, at confidence c, an under-latency share of at least p with t queries over the limit.

    The smallest n with P[Binomial(n, 1 - p + d) <= t] < 1 - c: MLPerf LoadGen, early_stopping.cc (which fixes c = 0.99
    and d = 0). ``n_required(0, 0.99)`` = 459. Raises ValueError unless 0 <= t, 0 < p - d and c in (0, 1).
    """
    if t < 0:
        raise ValueError(f"t {t}: a count is at least 0")
    over = 1 - _open("p - d", exact(p) - exact(d))
    limit = float(1 - _open("c", c))
    found = _first(lambda under: binomial_at_most(t, under + t, over) < limit, 1)
    if found is None:
        raise ValueError(f"no number of queries below {MOST} would do for t = {t}, p = {p}")
    return found + t


def max_failures(n: int, p: Probability) -> int:
    """The largest t with ``n_required(t, p) <= n``; -1 when even t = 0 needs more."""
    over = 1 - _open("p", p)
    limit = float(1 - exact("0.99"))
    found = _first(lambda t: binomial_at_most(t, n, over) >= limit, 0)
    return -1 if found is None or found == 0 else found - 1


def order_statistic_bounds(n: int, p: Probability, confidence: Probability = "0.95", sides: int = 2) -> tuple[int, int]:
    """Ranks (1-based) l and u so that the l-th and u-th smallest of n values bound the p-quantile.

    Distribution-free binomial interval (e.g. Hahn & Meeker). ``sides=2``: together they cover it with at
    least ``confidence``, equal tails. ``sides=1``: each alone does. l = 0 or u = n + 1: the sample is too
    small for that bound.
    """
    q = _open("p", p)
    alpha = float((1 - _open("confidence", confidence)) / sides)
    # The largest l with P[N <= l - 1] <= alpha; the smallest u with P[N >= u] <= alpha.
    first_above = _first(lambda k: binomial_at_most(k, n, q) > alpha, 0)
    upper = _first(lambda u: binomial_at_least(u, n, q) <= alpha, 0)
    assert first_above is not None
    assert upper is not None
    return first_above, upper


def clopper_pearson(k: int, n: int, confidence: Probability = "0.95", sides: int = 2) -> tuple[float, float]:
    """Exact interval (lo, hi) for a share after k of n (Clopper & Pearson 1934); (0, 1) when n = 0.

    ``sides=1``: each bound alone has the confidence.
    """
    from plimsoll.slo.statistics.special import betaincinv

    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n}: a count lies in 0..n")
    alpha = float((1 - _open("confidence", confidence)) / sides)
    low = 0.0 if k == 0 else float(betaincinv(k, n - k + 1, alpha))
    high = 1.0 if k == n else 1.0 - float(betaincinv(n - k, k + 1, alpha))
    return low, high


def mean_interval(values: Ordered, confidence: Probability = "0.95", sides: int = 2) -> tuple[float, float]:
    """Student's t interval of the mean of values in any order, or of what stands for them; (-inf, inf) for fewer than
    two, (inf, inf) with an infinite one.
    """
    from plimsoll.slo.statistics.special import stdtrit

    alpha = float((1 - _open("confidence", confidence)) / sides)
    ordered = np.sort(values) if isinstance(values, np.ndarray) else values
    n = len(ordered)
    if n and not np.isfinite(ordered[np.array([0, n - 1])]).all():
        return float("inf"), float("inf")
    if n < 2:
        return float("-inf"), float("inf")
    half = float(stdtrit(n - 1, 1 - alpha)) * float(ordered.std(ddof=1)) / math.sqrt(n)
    return float(ordered.mean()) - half, float(ordered.mean()) + half


def relative_entropy(y: float, mean: float) -> float:
    """KL(y || mean) of two coins, in nats; infinite where ``mean`` rules ``y`` out."""
    total = 0.0
    for a, b in ((y, mean), (1 - y, 1 - mean)):
        if a > 0:
            if b <= 0:
                return math.inf
            total += a * math.log(a / b)
    return max(total, 0.0)


def shows_few(k: int, n: int, limit: Probability, confidence: Probability = "0.95") -> bool:
    """k bad of n show that the true bad share is at most ``limit``: the upper Clopper-Pearson bound is."""
    return n > 0 and binomial_at_most(k, n, limit) <= float(1 - exact(confidence))


def shows_many(k: int, n: int, limit: Probability, confidence: Probability = "0.95") -> bool:
    """k bad of n show that the true bad share is above ``limit``: the lower Clopper-Pearson bound is."""
    return n > 0 and binomial_at_least(k, n, limit) <= float(1 - exact(confidence))


def most_bad_allowed(n: int, limit: Probability, confidence: Probability = "0.95") -> int:
    """The largest k for which ``shows_few(k, n, limit)``; -1 when n is too small for any."""
    found = _first(lambda k: not shows_few(k, n, limit, confidence), 0)
    return -1 if found is None else found - 1


def n_needed(k: int, n: int, limit: Probability, confidence: Probability = "0.95") -> int | None:
    """The total, above n, that decides about the bad share ``limit`` in nine runs of ten if the share k/n is the true
    one.

    0 when k of n decide already. None when no total up to 10^12 would: the share is on the limit. With n = 0 the share
    is taken as 0.
    """
    bound = _open("limit", limit)
    if shows_few(k, n, bound, confidence) or shows_many(k, n, bound, confidence):
        return 0
    found = deciding(Fraction(k, n) if n else Fraction(0), bound, confidence)
    return None if found is None else max(found, n + 1)


def deciding(
    share: Fraction, limit: Probability, confidence: Probability = "0.95", power: Probability = "0.9"
) -> int | None:
    """The least n from which on a run decides with probability ``power``, PASS or FAIL, when ``share`` is bad in truth.

    Exact binomial arithmetic on independent entries, times ``CLUSTERED`` where some are bad. None for a share on the
    limit.
    """
    bound = _open("limit", limit)
    if share == bound:
        return None
    found = passing(bound, share, confidence, power) if share < bound else failing(bound, share, confidence, power)
    return found if found is None or share in (0, 1) else math.ceil(found * CLUSTERED)


def passing(limit: Fraction, share: Fraction, confidence: Probability, power: Probability) -> int | None:
    """The least n from which on a run passes with probability ``power`` when ``share`` of the values is bad in truth.

    With t bad ones allowed the probability of passing falls while n grows, until one more is allowed: a saw. What
    counts is the low end of each tooth, so that a run that ends some requests later is not the less likely to pass.
    """
    least = float(exact(power))
    if share >= limit:
        return None
    if share == 0:
        return _first(lambda total: shows_few(0, total, limit, confidence), 1)

    def first(t: int) -> int:
        return n_required(t, 1 - limit, confidence)

    def holds(t: int) -> bool:
        return binomial_at_most(t, first(t + 1) - 1, share) >= least

    found = _first(holds, 0, int(MOST_DECIDING * limit))
    return None if found is None else first(found)


def failing(limit: Fraction, share: Fraction, confidence: Probability, power: Probability) -> int | None:
    """The least n from which on a run fails with probability ``power`` when ``share`` of the values is bad in truth.

    A saw too: ``last(j)`` requests are the most of which j bad ones show too many, and the low end of a tooth is one
    more.
    """
    least = float(exact(power))
    if share <= limit:
        return None

    def last(j: int) -> int:
        beyond = _first(lambda n: not shows_many(j, n, limit, confidence), j)
        return (beyond or j) - 1

    def holds(j: int) -> bool:
        n = max(last(j - 1) + 1, j)
        return n <= last(j) and binomial_at_least(j, n, share) >= least

    found = _first(holds, 1, int(MOST_DECIDING * share))
    return None if found is None else max(last(found - 1) + 1, found)


# -- how many requests an objective takes ------------------------------------------------------------------------------

# How many requests an objective takes, before the run: the same binomial arithmetic as the verdict, read backwards.
# Pure arithmetic on shares. It assumes nothing about latencies, and cannot know how many requests will in truth break
# the limit: that share is an assumption, and is said to be one. Dependence between requests enters as a design effect,
# by which every count is multiplied.


@dataclass(frozen=True, slots=True)
class Sample:
    """What one objective on a share or a percentile takes.

    ``limit``: the share of values that may break it. ``least``: values for a PASS if not one is bad. ``assumed``: the
    bad share that ``with_bad`` is for: the least number from which on a run passes with probability ``power``; None
    when none would, because the assumed share is not below the limit or too close to it. ``loadgen`` and
    ``loadgen_estimate``: what MLPerf LoadGen's early stopping asks for at 99 % with none over, and for its percentile
    estimate.
    """

    limit: Fraction
    least: int
    assumed: Fraction
    power: float
    with_bad: int | None
    loadgen: int
    loadgen_estimate: int


def sample(
    limit: Fraction,
    confidence: Probability = "0.95",
    assumed: Probability | None = None,
    power: Probability = "0.9",
    design_effect: float = 1.0,
) -> Sample:
    """How many values show that fewer than ``limit`` are bad. ``assumed``: the true bad share, half of the limit by
    default.

    ``design_effect`` >= 1: one over the worth of a request beside an independent one (ValueError below 1).
    """
    if not design_effect >= 1:
        raise ValueError(
            f"design effect {design_effect}: 1 is independent, dependent requests are worth less. Give 1 or more"
        )
    share = limit / 2 if assumed is None else exact(assumed)
    least = n_needed(0, 0, limit, confidence)
    assert least is not None  # without a bad one some number always does
    with_bad = passing(limit, share, confidence, power)
    allowance = CLUSTERED if share else Fraction(1)
    return Sample(
        limit,
        _dependent(least, design_effect),
        share,
        float(exact(power)),
        None
        if with_bad is None
        else max(_dependent(with_bad * allowance, design_effect), _dependent(least, design_effect)),
        n_required(0, 1 - limit),
        n_required(1, 1 - limit),
    )


def _dependent(n: int | Fraction, design_effect: float) -> int:
    return math.ceil(n * Fraction(str(design_effect)))


def chance_to_pass(
    n: int, limit: Fraction, share: Probability, confidence: Probability = "0.95", design_effect: float = 1.0
) -> float:
    """About how likely a run of n values is to pass when ``share`` of them is bad in truth."""
    bad = exact(share)
    worth = int(n / Fraction(str(design_effect)))
    without = float(1 - bad) ** worth if most_bad_allowed(worth, limit, confidence) >= 0 else 0.0
    counted = int(worth / CLUSTERED) if bad else worth
    allowed = most_bad_allowed(counted, limit, confidence)
    return max(without, 0.0 if allowed < 0 else binomial_at_most(allowed, counted, bad))


def without_bad(burns: Sequence[Fraction], confidence: Probability = "0.95", design_effect: float = 1.0) -> int:
    """The least n at which a composite passes when no component has a bad entry among n.

    ``burns``: weight over allowed share of each; the burn of the whole is the sum of these times the bad shares, at
    most 1. Each of m components is bounded at 1 - (1 - confidence) / m, because nothing is known of how they depend.
    """
    alpha = float(1 - exact(confidence)) / len(burns)
    total = float(sum(burns))
    # 0 of n shows a share below u = 1 - alpha^(1/n), and total * u <= 1.
    return _dependent(max(1, math.ceil(math.log(alpha) / math.log1p(-1 / total))), design_effect) if total > 1 else 1
