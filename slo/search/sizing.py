"""How many replicas a load takes and what they cost, from a capacity that was validated and how sure it is.

The capacity of a replica is the lower end of the interval in which its objectives were shown to hold: the point
estimate is wrong half of the time. Of two rules the one that wants more decides: no replica fuller than the headroom,
and none fuller than a second share when one is lost (SEMANTICS E.4). Nothing here knows the right price or headroom.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Literal

import numpy as np

from plimsoll.slo.comparison.tiers import million
from plimsoll.slo.records.records import IntArray, Records, Status
from plimsoll.slo.statistics.distribution import exact, quantile

Binding = Literal["headroom", "one down", "both"]
Per = Literal["requests", "good_requests", "output_tokens", "input_tokens"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """Requests per second of one replica within its objectives.

    ``high``: where they fail; None: nobody has seen that.
    """

    low: float
    best: float
    high: float | None


@dataclass(frozen=True, slots=True)
class Sized:
    """``replicas`` satisfy both rules; ``by_headroom``, ``by_one_down``: what each asks for by itself.

    ``utilisation``: load over the capacity of all; ``one_down``: of all but one.
    """

    replicas: int
    by_headroom: int
    by_one_down: int
    utilisation: float
    one_down: float

    @property
    def binding(self) -> Binding:
        if self.by_headroom == self.by_one_down:
            return "both"
        return "headroom" if self.by_headroom > self.by_one_down else "one down"


def size(peak_per_s: float, capacity_per_s: float, headroom: str, one_down: str) -> Sized:
    """The fleet for a peak. 1000/s over 120/s at 70 % and 85 %: 12 (12 by headroom, 11 by one down).

    Raises ValueError for a peak or a capacity that is not above 0, or shares outside 0..1.
    """
    by_headroom = replicas(peak_per_s, capacity_per_s, headroom)
    by_one_down = replicas(peak_per_s, capacity_per_s, one_down) + 1
    load, count = Fraction(str(peak_per_s)) / Fraction(str(capacity_per_s)), max(by_headroom, by_one_down)
    return Sized(count, by_headroom, by_one_down, float(load / count), float(load / (count - 1)))


@dataclass(frozen=True, slots=True)
class Row:
    """One number of replicas: how full they are, and whether both rules hold."""

    replicas: int
    utilisation: float
    one_down: float
    headroom_kept: bool
    one_down_kept: bool


def around(peak_per_s: float, capacity_per_s: float, headroom: str, one_down: str, width: int = 2) -> tuple[Row, ...]:
    """Fleets of some replicas less and more than ``size`` says. Raises ValueError as that does."""
    needed = size(peak_per_s, capacity_per_s, headroom, one_down)
    load = Fraction(str(peak_per_s)) / Fraction(str(capacity_per_s))
    rows = []
    for n in range(max(1, needed.replicas - width), needed.replicas + width + 1):
        down = load / (n - 1) if n > 1 else None
        kept = load / n <= exact(headroom), down is not None and down <= exact(one_down)
        rows.append(Row(n, float(load / n), math.inf if down is None else float(down), *kept))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Yield:
    """What one request brings: share of good ones, tokens out and in (None: not known)."""

    good_fraction: float | None = None
    output_tokens: float | None = None
    input_tokens: float | None = None

    def each(self) -> tuple[tuple[Per, float], ...]:
        """Units of each kind per request; kinds that are not known, or of which there are none, are left out."""
        known: tuple[tuple[Per, float | None], ...] = (
            ("requests", 1.0),
            ("good_requests", self.good_fraction),
            ("output_tokens", self.output_tokens),
            ("input_tokens", self.input_tokens),
        )
        return tuple((per, amount) for per, amount in known if amount)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a million of ``per``, in the price's currency, at the lower end of the capacity.

    ``full``: with every replica at its headroom; ``target``: of the whole fleet at the target rate, idle share
    included. ``full_range``, ``target_range``: from the upper end of the capacity to the lower; None where no upper end
    is known.
    """

    per: Per
    full: float
    full_range: tuple[float, float] | None
    target: float
    target_range: tuple[float, float] | None


def costs(
    price_per_hour: float, peak_per_s: float, capacity: Capacity, brings: Yield, headroom: str, one_down: str
) -> tuple[Cost, ...]:
    """What a million costs, for an hourly price of one replica. Raises ValueError for a price below 0 or infinite."""
    if not 0 <= price_per_hour < math.inf:
        raise ValueError(f"a price of {price_per_hour} an hour: write what a replica costs an hour, at least 0")
    share = float(exact(headroom))

    def whole(rate: float) -> float:
        return price_per_hour * size(peak_per_s, rate, headroom, one_down).replicas

    found = []
    for per, amount in brings.each():
        full = million(price_per_hour, capacity.low * share * amount)
        target = million(whole(capacity.low), peak_per_s * amount)
        full_range = target_range = None
        if capacity.high is not None:
            full_range = million(price_per_hour, capacity.high * share * amount), full
            target_range = million(whole(capacity.high), peak_per_s * amount), target
        found.append(Cost(per, full, full_range, target, target_range))
    return tuple(found)


# -- queueing theory over measured runs --------------------------------------------------------------------------------

# Queueing theory over measured runs: does Little's law hold in the log, and how far from a textbook queue is the
# endpoint? A sanity check and never a gate. The curves are pinned at the mean response of the lowest load and predict
# the rest, so that they assume no more than that the model is right; an endpoint that batches breaks all of them (its
# rate grows with what it holds), and lies below them at high load. Little's law assumes nothing: where it fails the
# stamps are wrong. Sources: SEMANTICS E.1, E.2; the formulas are below.

Model = Literal["M/M/1", "M/D/1", "M/M/c"]
View = Literal["response", "service"]
#: Beyond this utilisation the exact sum of M/D/1 gets long, and the exponential tail is within 2 % of it.
_EXACT_MD1 = 0.95
#: No curve is drawn beyond: it goes to infinity, and the chart with it.
_DRAWN = 0.97
#: Rounding of means over millions of rows.
_ROUNDING = 1e-9
#: A run with fewer answers has no p99 worth a ratio.
FEWEST = 50


@dataclass(frozen=True, slots=True)
class Little:
    """Little's law on one run. ``view``: due to done (in the system), or sent to done (in service).

    ``mean``: L; ``rate_per_s``, ``took_ns``: lambda and W; ``bound``: what the edges of the window can explain of
    L - lambda W. ``wrong``: why the log contradicts itself, "" when it does not.
    """

    view: View
    mean: float
    rate_per_s: float
    took_ns: float
    bound: float
    wrong: str = ""

    @property
    def product(self) -> float:
        return self.rate_per_s * self.took_ns / 1e9


def little(records: Records) -> tuple[Little, ...]:
    """Little's law from t0 to the last arrival, on response and on service times; () for a run without requests.

    Requests that never left count as in the system to the end; those that were never sent were never there.
    """
    rows = records.measured()
    rows = rows.select(rows["status"] != Status.UNSENT)
    found = []
    since_when: dict[View, str] = {"response": "due_ns", "service": "sent_ns"}
    for view, since in since_when.items():
        came = rows[since] >= 0
        arrived, left = rows[since][came], rows["done_ns"][came]
        lost = int(np.count_nonzero((left == -1) & rows.ok[came]))
        if len(arrived) and int(arrived.max()) > 0:
            found.append(_little(view, arrived, left, lost))
    return tuple(found)


def _little(view: View, arrived: IntArray, left: IntArray, lost: int) -> Little:
    try:
        seen = occupancy(arrived, left, int(arrived.max()))
    except ValueError as error:
        return Little(view, 0.0, 0.0, 0.0, 0.0, str(error))
    wrong = ""
    if lost:
        wrong = f"{lost} requests were answered and have no time at which that was over"
    elif seen.by_sweep_ns != seen.by_overlap_ns:
        by_events = f"counted by events {seen.by_sweep_ns} request-nanoseconds were spent"
        wrong = f"{by_events}, counted by requests {seen.by_overlap_ns}"
    elif abs(seen.gap) > seen.bound + _ROUNDING * (1 + seen.mean):
        wrong = f"L and lambda W are {abs(seen.gap):.3g} apart, and the edges of the window explain {seen.bound:.3g}"
    return Little(view, seen.mean, seen.rate_per_ns * 1e9, seen.response_ns, seen.bound, wrong)


@dataclass(frozen=True, slots=True)
class Load:
    """One run as a point over the rate:

    ``n`` answers, ``failed`` others; latency due to done, infinite where failures reach.
    """

    run: str
    rate_per_s: float
    n: int
    failed: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    stable: bool = True

    @property
    def usable(self) -> bool:
        """Enough answers, and an endpoint that kept up: beyond that latencies are those of the run's length."""
        return self.stable and self.n >= FEWEST


def load(run: str, rate_per_s: float, records: Records, stable: bool) -> Load:
    """A run's latencies. ``rate_per_s``: what was offered.

    Failures are infinitely slow; the mean is that of the answers.
    """
    rows = records.measured()
    took = np.where(rows.ok, (rows["done_ns"] - rows["due_ns"]).astype(np.float64), np.inf)
    good = took[np.isfinite(took)]
    ordered = np.sort(took)
    p50, p99 = (quantile(ordered, q) if len(ordered) else float("nan") for q in ("0.5", "0.99"))
    mean = float(good.mean()) if len(good) else float("nan")
    return Load(run, rate_per_s, len(good), len(took) - len(good), mean, p50, p99, stable)


@dataclass(frozen=True, slots=True)
class Queue:
    """A textbook queue with its service time. ``limit_per_s``: the rate at which its utilisation is 1."""

    model: Model
    servers: int
    service_ns: float

    @property
    def limit_per_s(self) -> float:
        return self.servers * 1e9 / self.service_ns

    def utilisation(self, rate_per_s: float) -> float:
        """The utilisation law: X S / c. At 1 and beyond the model has no steady state."""
        return rate_per_s / self.limit_per_s

    def quantile_ns(self, rate_per_s: float, q: float) -> float | None:
        """Response time that the model predicts, or None where it has none."""
        rho = self.utilisation(rate_per_s)
        if rho >= 1:
            return None
        if self.model == "M/M/1":
            units = mm1_quantile(rho, q)
        elif self.model == "M/M/c":
            units = mmc_quantile(self.servers, rho, q)
        else:
            units = md1_quantile(rho, q) if rho <= _EXACT_MD1 else heavy_traffic_quantile(rho, 0.0, q)
        return units * self.service_ns


def pinned(model: Model, servers: int, rate_per_s: float, mean_ns: float) -> Queue:
    """The queue whose mean response at a rate is the measured one. Raises ValueError for a rate or mean not above 0.

    The mean grows with the service time, so bisection finds it: 0 < S <= mean, and S below c / rate.
    """
    if not rate_per_s > 0 or not mean_ns > 0:
        raise ValueError("a queue is pinned at a rate and a mean response above 0")
    low, high = 0.0, min(mean_ns, servers * 1e9 / rate_per_s)
    for _ in range(200):
        middle = (low + high) / 2
        rho = rate_per_s * middle / (servers * 1e9)
        if rho < 1 and _mean(model, servers, rho) * middle <= mean_ns:
            low = middle
        else:
            high = middle
    return Queue(model, servers, low or high)


def _mean(model: Model, servers: int, rho: float) -> float:
    if model == "M/D/1":
        return md1_mean(rho)
    if model == "M/M/1":
        return mm1_mean(rho)
    return 1 + erlang_c(servers, rho) / (servers * (1 - rho))


@dataclass(frozen=True, slots=True)
class Overlay:
    """Measured loads in order, the queues pinned at the lowest usable one, and each one's curve as (rate, p50, p99)."""

    loads: tuple[Load, ...]
    pin: Load
    queues: tuple[Queue, ...]
    curves: tuple[tuple[tuple[float, float, float], ...], ...]


def overlay(loads: Sequence[Load], servers: int = 1, points: int = 40) -> Overlay | None:
    """Curves over measured loads. None: no load is usable."""
    ordered = tuple(sorted(loads, key=lambda one: (one.rate_per_s, one.run)))
    usable = [one for one in ordered if one.usable and one.rate_per_s > 0 and one.mean_ns > 0]
    if not usable:
        return None
    pin = usable[0]
    models: tuple[Model, ...] = ("M/M/1", "M/D/1") if servers == 1 else ("M/M/1", "M/D/1", "M/M/c")
    queues = tuple(pinned(model, servers if model == "M/M/c" else 1, pin.rate_per_s, pin.mean_ns) for model in models)
    most = ordered[-1].rate_per_s
    return Overlay(ordered, pin, queues, tuple(_curve(queue, pin.rate_per_s, most, points) for queue in queues))


def _curve(queue: Queue, least: float, most: float, points: int) -> tuple[tuple[float, float, float], ...]:
    """From the pin to the highest load, or to where the model explodes."""
    end = max(min(most, queue.limit_per_s * _DRAWN), least)
    found = []
    for rate in np.linspace(least, end, points if end > least else 1).tolist():
        p50, p99 = queue.quantile_ns(rate, 0.5), queue.quantile_ns(rate, 0.99)
        if p50 is not None and p99 is not None:
            found.append((rate, p50, p99))
    return tuple(found)


# -- the textbook queues -----------------------------------------------------------------------------------------------

# Queueing theory as a check on measured data: Little's law, reference curves, capacity. Arithmetic and no judgement.
# The curves are for servers that take one request at a time, or c of them. A server that batches breaks their
# assumptions (its rate grows with what it holds), so they are an overlay for the eye and never a limit. Service times
# are the unit of time where none is given: mu = 1, and rho = lambda / (c mu).
#
# Sources: Little (1961); Kleinrock, Queueing Systems I (1975) for M/M/1, M/M/c and Pollaczek-Khinchine; Erlang (1909)
# for the waiting time of M/D/1.


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many requests were in the system over [0, T], counted two ways.

    ``by_sweep_ns`` and ``by_overlap_ns``: the integral of N(t) in request-nanoseconds, by events and by requests; they
    are equal or the records contradict themselves. ``mean`` = L; ``rate_per_ns`` and ``response_ns``: lambda and W of
    the requests that came within [0, T); ``bound``: (N(0) + N(T)) W_max / T, which edge effects can explain.
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


def pollaczek_khinchine(rho: float, cv2: float) -> float:
    """Mean wait in M/G/1, in service times: rho (1 + cv^2) / (2 (1 - rho)); cv^2 of the service time."""
    return rho * (1 + cv2) / (2 * (1 - _stable(rho)))


def md1_mean(rho: float) -> float:
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


def replicas(peak_per_s: float, capacity_per_s: float, headroom: str) -> int:
    """N = ceil(peak / (capacity * headroom)); with one more the others carry the peak when one is lost.

    ``capacity_per_s``: goodput of one replica within its objectives, by preference the lower bound of it, and not the
    rate at which it saturates. ``headroom``: the share of it to use, above 0 and at most 1. Else ValueError.
    """
    share = exact(headroom)
    if not share:
        raise ValueError("a share of 0: nothing may be used, and no number of replicas is enough")
    for name, rate in (("capacity_per_s", capacity_per_s), ("peak_per_s", peak_per_s)):
        if not rate > 0:
            raise ValueError(f"{name} is {rate}. Give a rate above 0")
    return math.ceil(Fraction(str(peak_per_s)) / (Fraction(str(capacity_per_s)) * share))
