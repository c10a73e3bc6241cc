"""Queueing theory as a check on measured data: Little's law, reference curves, capacity. Arithmetic and no judgement.

The curves are for servers that take one request at a time, or c of them. A server that batches breaks their assumptions
(its rate grows with what it holds), so they are an overlay for the eye and never a limit. Service times are the unit of
time where none is given: mu = 1, and rho = lambda / (c mu).

Sources: Little (1961); Kleinrock, Queueing Systems I (1975) for M/M/1, M/M/c and Pollaczek-Khinchine; Erlang (1909) for
the waiting time of M/D/1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from plimsoll.slo.records.records import IntArray
from plimsoll.slo.statistics.distribution import exact


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many requests were in the system over [0, T], counted two ways.

    ``by_sweep_ns`` and ``by_overlap_ns``: the integral of N(t) in request-nanoseconds, by events and by requests; they are
    equal or the records contradict themselves. ``mean`` = L; ``rate_per_ns`` and ``response_ns``: lambda and W of the
    requests that came within [0, T); ``bound``: (N(0) + N(T)) W_max / T, which edge effects can explain.
    """

    by_sweep_ns: int
    by_overlap_ns: int
    mean: float
    rate_per_ns: float
    response_ns: float
    bound: float

    @property
    def gap(self) -> float:
        """L - lambda W: an edge effect and nothing else, if it stays within ``bound``."""
        return self.mean - self.rate_per_ns * self.response_ns


def occupancy(arrived_ns: IntArray, left_ns: IntArray, until_ns: int) -> Occupancy:
    """Little's law over [0, until_ns] from arrivals and departures (-1: never left, and so in the system to the end).

    Raises ValueError for ``until_ns`` < 1, no request, or one that left before it came.
    """
    if until_ns < 1 or not len(arrived_ns):
        raise ValueError("Little's law wants a window of some length and at least one request")
    left = np.where(left_ns == -1, max(until_ns, int(arrived_ns.max())), left_ns)
    if (left < arrived_ns).any():
        raise ValueError(f"request {int(np.argmax(left < arrived_ns))} left before it came: the stamps are wrong")
    start, end = np.clip(arrived_ns, 0, until_ns), np.clip(left, 0, until_ns)
    overlap = int((end - start).sum())
    # The low bit orders ties: departures (0) before arrivals (1).
    key = np.sort(np.concatenate((start * 2 + 1, end * 2)))
    level = np.cumsum((key & 1) * 2 - 1)
    sweep = int((np.diff(key >> 1) * level[:-1]).sum())
    inside = (arrived_ns >= 0) & (arrived_ns < until_ns)
    took = (left - arrived_ns).astype(np.float64)
    at_start = int(np.count_nonzero((arrived_ns < 0) & (left > 0)))
    at_end = int(np.count_nonzero((arrived_ns <= until_ns) & (left > until_ns) | (left_ns == -1)))
    response = float(took[inside].mean()) if inside.any() else 0.0
    bound = (at_start + at_end) * float(took.max()) / until_ns
    return Occupancy(sweep, overlap, overlap / until_ns, int(np.count_nonzero(inside)) / until_ns, response, bound)


def _stable(rho: float) -> float:
    if not 0 <= rho < 1:
        raise ValueError(f"utilisation {rho}: at 1 and above there is no steady state, the queue grows for ever")
    return rho


def mm1_mean(rho: float) -> float:
    """Mean time in M/M/1, in service times: 1 / (1 - rho)."""
    return 1 / (1 - _stable(rho))


def mm1_quantile(rho: float, q: float) -> float:
    """Quantile of the time in M/M/1, in service times: -ln(1 - q) / (1 - rho)."""
    return -math.log1p(-q) / (1 - _stable(rho))


def mm1_utilisation(q: float, within: float) -> float:
    """The highest rho at which the q-quantile of the time in M/M/1 is within so many service times; 0 for none."""
    return max(0.0, 1 + math.log1p(-q) / within)


def pollaczek_khinchine(rho: float, cv2: float) -> float:
    """Mean wait in M/G/1, in service times: rho (1 + cv^2) / (2 (1 - rho)); cv^2 of the service time."""
    return rho * (1 + cv2) / (2 * (1 - _stable(rho)))


def md1_mean(rho: float) -> float:
    """Mean time in M/D/1, in service times."""
    return 1 + pollaczek_khinchine(rho, 0.0)


def md1_waits_at_most(rho: float, t: float) -> float:
    """P[wait <= t] in M/D/1: (1 - rho) sum over k <= t of [-lambda (t - k)]^k / k! e^(lambda (t - k)).

    The terms alternate and grow like e^t, so they are summed in decimals with as many digits as they need.
    """
    _stable(rho)
    if t < 0:
        return 0.0
    with localcontext() as context:
        context.prec = 30 + math.ceil(t)
        rate, total = Decimal(rho), Decimal(0)
        for k in range(math.floor(t) + 1):
            x = rate * (Decimal(t) - k)
            total += ((-x) ** k if k else 1) / Decimal(math.factorial(k)) * x.exp()
        return float((1 - rate) * total)


def md1_quantile(rho: float, q: float) -> float:
    """Quantile of the time in M/D/1, in service times: of the wait, and one service."""
    return 1 + _quantile(lambda t: md1_waits_at_most(rho, t), q)


def heavy_traffic_quantile(rho: float, cv2: float, q: float) -> float:
    """Quantile of the time in M/G/1 by the exponential tail P[wait > t] = rho e^(-t / w), w = mean wait / rho, and one
    service. For M/D/1 13 % high at rho = 0.5, under 3 % at 0.9.
    """
    mean = pollaczek_khinchine(rho, cv2) / rho if rho else 0.0
    return 1 + (mean * math.log(rho / (1 - q)) if rho > 1 - q else 0.0)


def erlang_c(servers: int, rho: float) -> float:
    """P[an arrival waits] in M/M/c at utilisation rho of each server. Erlang B by its recursion, so c may be large."""
    load, blocked = _stable(rho) * servers, 1.0
    for c in range(1, servers + 1):
        blocked = load * blocked / (c + load * blocked)
    return blocked / (1 - rho * (1 - blocked))


def mmc_within(servers: int, rho: float, t: float) -> float:
    """P[time in M/M/c <= t], in service times: a wait of rate c (1 - rho) for those that wait, then a service."""
    waits, drain = erlang_c(servers, rho), servers * (1 - rho)
    if math.isclose(drain, 1.0):  # two equal exponential stages
        late = (1 + t) * math.exp(-t)
    else:
        late = (drain * math.exp(-t) - math.exp(-drain * t)) / (drain - 1)
    return 1 - (1 - waits) * math.exp(-t) - waits * late


def mmc_quantile(servers: int, rho: float, q: float) -> float:
    """Quantile of the time in M/M/c, in service times."""
    return _quantile(lambda t: mmc_within(servers, rho, t), q)


def _quantile(cdf: Callable[[float], float], q: float) -> float:
    """The smallest t >= 0 with cdf(t) >= q, by doubling and bisection."""
    if not 0 < q < 1:
        raise ValueError(f"{q}: a quantile lies strictly between 0 and 1")
    if cdf(0.0) >= q:
        return 0.0
    low, high = 0.0, 1.0
    while cdf(high) < q:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cdf(middle) >= q else (middle, high)
    return high


def overload_wait(arrived_at: float, offered: float, served: float) -> float:
    """Wait of what arrives ``arrived_at`` after the start of an overload: t (lambda / mu - 1), in the unit of t; 0 when
    lambda <= mu.
    """
    return max(0.0, arrived_at * (offered / served - 1))


def replicas(
    peak_per_s: Fraction | str | float, capacity_per_s: Fraction | str | float, headroom: Fraction | str | float
) -> int:
    """N = ceil(peak / (capacity * headroom)).

    ``capacity_per_s``: goodput of one replica within its objectives, by preference the lower bound of it, and not the rate
    at which it saturates. ``headroom``: the share of it to use, above 0 and at most 1.
    """
    usable = _positive("capacity_per_s", capacity_per_s) * _share("headroom", headroom)
    return math.ceil(_positive("peak_per_s", peak_per_s) / usable)


def replicas_with_one_down(
    peak_per_s: Fraction | str | float, capacity_per_s: Fraction | str | float, most: Fraction | str | float
) -> int:
    """N so that N - 1 replicas carry the peak at a utilisation of at most ``most``: ceil(peak / (capacity * most)) + 1."""
    return replicas(peak_per_s, capacity_per_s, most) + 1


def _share(name: str, value: Fraction | str | float) -> Fraction:
    share = exact(value)
    if share == 0:
        raise ValueError(f"{name} is 0: nothing may be used, and no number of replicas is enough")
    return share


def _positive(name: str, value: Fraction | str | float) -> Fraction:
    number = value if isinstance(value, Fraction) else Fraction(str(value))
    if number <= 0:
        raise ValueError(f"{name} is {value}. Give a rate above 0")
    return number
