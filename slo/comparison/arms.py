"""Arms of a comparison: each run as a few numbers, each arm as its runs.

The unit of replication is the run, not the request: placement, clocks, caches and neighbours differ between runs, and
no number of requests in one run shows by how much. So a run enters a comparison as one value per quantity. Nothing is
compared here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from plimsoll.slo.comparison.quantity import Quantity, back, worse
from plimsoll.slo.comparison.ranks import fisher
from plimsoll.slo.metrics.indicator import Measured, catalogue, measure
from plimsoll.slo.objectives.goodput import Goodput, against, goodput, throughput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.selector import selected
from plimsoll.slo.records.records import FloatArray, Records
from plimsoll.slo.server.beside import of_side
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.confidence import clopper_pearson
from plimsoll.slo.statistics.distribution import nearest, quantile
from plimsoll.slo.statistics.order import Ordered
from plimsoll.slo.validity.validity import Validity

if TYPE_CHECKING:
    from plimsoll.slo.server.server_side import ServerSide

#: Quantiles of a profile: dense at both ends, the same for every run, so that profiles can be laid over each other.
PROFILE_Q: tuple[float, ...] = tuple(
    sorted(
        {*np.round(1 - np.power(10.0, -np.linspace(0.0045, 6, 150)), 9).tolist(), 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999}
    )
)
_NO_PROFILES: Mapping[str, tuple[float, ...]] = MappingProxyType({})
_NO_FIGURES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reading:
    """One quantity of one run.

    ``value`` in the quantity's unit; +inf (0, where more is better) when failures reach it, NaN for no data. ``n``
    values, ``failed`` of them a failure's. ``within``: None when the run's own spread was not kept.
    """

    value: float
    n: int
    failed: int = 0
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class RunSample:
    """One run of an arm.

    ``pair``: runs of two arms with the same pair number ran next to each other under one schedule; None when not.
    ``reasons``: why the run is INVALID, empty when it is not. ``unstable``: why the endpoint did not keep up, else
    None. ``plan``: fingerprint of the schedule, "" when unknown. ``requests``, ``failed``: of the measured phase,
    which took ``span_ns`` (0: unknown).
    ``profiles``: by indicator, its value at each of ``PROFILE_Q`` (NaN where the run is too short for it).
    ``server``: what its server said of itself (``plimsoll.slo.server.beside``).
    """

    run: str
    readings: Mapping[str, Reading]
    pair: int | None = None
    directory: str = ""
    reasons: tuple[str, ...] = ()
    unstable: str | None = None
    plan: str = ""
    requests: int = 0
    failed: int = 0
    profiles: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: _NO_PROFILES)
    span_ns: int = 0
    server: Mapping[str, float] = field(default_factory=lambda: _NO_FIGURES)

    @property
    def valid(self) -> bool:
        """The generator kept its promise."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs of one endpoint, build or configuration."""

    name: str
    runs: tuple[RunSample, ...]

    def values(self, quantity: Quantity) -> FloatArray:
        """float64[runs]: one value per run, NaN where a run has none."""
        nothing = Reading(float("nan"), 0)
        return np.array([run.readings.get(str(quantity), nothing).value for run in self.runs], np.float64)


def sample(
    records: Records,
    quantities: Sequence[Quantity],
    validity: Validity | None = None,
    objectives: Sequence[Objective] = (),
    *,
    run: str = "",
    pair: int | None = None,
    directory: str = "",
    plan: str = "",
    within: bool = False,
    side: ServerSide | None = None,
) -> RunSample:
    """One run as what a comparison needs of it.

    ``objectives``: limits on single requests say what ``good`` means. ``within``: keep each quantity's values; only a
    comparison of one run with one run looks at them. ``side``: what the server said of itself.
    """
    said, quantities = [one for one in quantities if one.of_server], [one for one in quantities if not one.of_server]
    good = goodput(records, objectives)
    readings = {str(one): _said(one, side) for one in said}
    profiles: dict[str, tuple[float, ...]] = {}
    for where in dict.fromkeys(quantity.where for quantity in quantities):
        part = selected(records, where)
        some = [quantity for quantity in quantities if quantity.where == where]
        found = _readings(part, some, goodput(part, objectives) if where else good, within)
        readings |= found[0]
        profiles |= {} if where else found[1]
    invalid = validity is not None and validity.outcome == "INVALID"
    return RunSample(
        run=run,
        readings=MappingProxyType(readings),
        pair=pair,
        directory=directory,
        reasons=(validity.reasons or ("the generator broke its promise",)) if validity and invalid else (),
        unstable=validity.unstable if validity is not None else None,
        plan=plan,
        requests=good.n,
        failed=int(np.count_nonzero(records.in_measure & ~records.ok)),
        span_ns=good.span_ns,
        profiles=MappingProxyType(profiles),
        server=_NO_FIGURES if side is None else MappingProxyType(of_side(side)),
    )


def _said(quantity: Quantity, side: ServerSide | None) -> Reading:
    """No value where the server did not say it, or where some of the run is unknown."""
    from plimsoll.slo.server.server_side import summary  # what reads series, which hardly any run has

    course = None if side is None else side.courses.get(quantity.indicator)
    if course is None or course.unknown.any():
        return Reading(float("nan"), 0)
    value = summary(course).get("per_s" if quantity.statistic == "rate" else quantity.statistic)
    return Reading(float("nan") if value is None else value, int(course.known.sum()))


def _readings(
    records: Records, quantities: Sequence[Quantity], good: Goodput, within: bool
) -> tuple[dict[str, Reading], dict[str, tuple[float, ...]]]:
    """What these rows show of each quantity, and the profile of each indicator."""
    along = share.course(records) if within else None
    readings: dict[str, Reading] = {}
    profiles: dict[str, tuple[float, ...]] = {}
    by_indicator: dict[str, list[Quantity]] = {}
    for quantity in quantities:
        if quantity.statistic == "ratio":
            readings[str(quantity)] = _share(quantity, records, good, within)
        elif quantity.statistic == "rate":
            readings[str(quantity)] = _rate(quantity, records, good)
        else:
            by_indicator.setdefault(quantity.indicator, []).append(quantity)
    for name, wanted in by_indicator.items():
        # One indicator at a time: a run may hold a billion gaps.
        measured = measure(catalogue()[name], records)
        ordered = measured.ranked
        for quantity in wanted:
            readings[str(quantity)] = _statistic(quantity, measured, ordered, along)
        profiles[name] = _profile(ordered)
    return readings, profiles


def _statistic(quantity: Quantity, measured: Measured, ordered: Ordered, along: share.Course | None) -> Reading:
    if len(ordered) == 0:
        return Reading(float("nan"), 0)
    if quantity.quantile is not None:
        value = quantile(ordered, quantity.quantile)
    else:
        picks = {"max": lambda: ordered[-1], "min": lambda: ordered[0], "mean": ordered.mean}
        value = float(picks[quantity.statistic]())
    spread = None
    if along is not None and quantity.quantile is not None:
        worse = measured.values > value if quantity.better == "lower" else measured.values < value
        laid = share.series(measured.values, measured.row, along)
        spread = Within(ordered, laid.count(worse).design)
    return Reading(value, measured.n, measured.failed, spread)


def _share(quantity: Quantity, records: Records, good: Goodput, within: bool) -> Reading:
    ok = int(np.count_nonzero(records.ok & records.in_measure))
    fell, row = against(quantity.indicator, records, good.good)
    bad, n = int(np.count_nonzero(fell)), len(row)
    if n == 0:
        return Reading(float("nan"), 0)
    observed = bad / n if quantity.better == "lower" else (n - bad) / n
    spread = None
    if within:
        due = np.argsort(records["due_ns"][row], kind="stable")
        spread = Within(np.empty(0), share.counted(fell[due]).design, bad, n)
    return Reading(observed, n, good.n - ok, spread)


def _rate(quantity: Quantity, records: Records, good: Goodput) -> Reading:
    done = throughput(records)
    value: float | None = {
        "good": good.goodput_per_s,
        "ok": done.requests_per_s,
        "output_tokens": done.output_tokens_per_s,
    }[quantity.indicator]
    measured = records.in_measure
    if value is None and not (records.ok & measured).any():
        value = 0.0  # nothing succeeded: no token was delivered, counted or not
    if value is None or good.n == 0:
        return Reading(float("nan"), 0)
    return Reading(value, good.n, int(np.count_nonzero(measured & ~records.ok)))


def _profile(ordered: Ordered) -> tuple[float, ...]:
    n = len(ordered)
    known = [round(q, 9) for q in PROFILE_Q if n and q <= 1 - 1 / n]
    values = ordered[np.array(nearest(n, known), np.int64)].tolist()
    return (*values, *[float("nan")] * (len(PROFILE_Q) - len(known)))


# -- one run on each side ----------------------------------------------------------------------------------------------

# What one run on each side says of itself: between-run variance is unknown, so it holds for these two runs only.
# Requests of one run depend on each other: a queue that is long stays long for a while. So counts are divided by the
# base's design effect, the verdict's own (``plimsoll.slo.statistics.share``), before they are tested. Percentiles are
# compared by the exact exceedance test and the interval of all ratios that it does not reject, shares by the interval
# of their difference; there is no second method beside either.
#
# It says nothing of other runs, and nothing here judges.


@dataclass(frozen=True, slots=True)
class Within:
    """What one run knows about its own spread.

    ``ordered`` float64[n]: its values, ascending. ``design_effect``: how many of them carry as much as one independent
    value would. ``bad``, ``of``: for a share, its counts.
    """

    ordered: Ordered
    design_effect: float
    bad: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class OneRun:
    """A single pair of runs, by one quantity.

    ``interval``: of the ratio, or of the difference of shares; ``low``, ``high``: the same where up is worse, infinite
    where there are too few values. ``base_over`` of ``base_n`` and ``candidate_over`` of ``candidate_n``: requests
    beyond the base's value (failed ones, for a share). ``p``: Fisher's exact test, one-sided, that the candidate has
    more of them by chance; ``p_less``: fewer.
    """

    interval: tuple[float, float]
    low: float
    high: float
    p: float
    p_less: float
    base_over: int
    base_n: int
    candidate_over: int
    candidate_n: int


def of_shares(quantity: Quantity, base: Within, candidate: Within, alpha: Fraction) -> OneRun:
    """Two shares of bad requests; each end of the interval is wrong with ``alpha`` at most.

    The ends are Newcombe's (1998) from exact bounds of both shares: they only rise when the candidate has one more bad.
    """
    weigh = _Weighing(base.design_effect)
    low = _least_step(weigh, base, candidate, alpha)
    high = -_least_step(weigh, candidate, base, alpha)
    return OneRun(
        back(low, high, quantity),
        low,
        high,
        weigh.more(base.bad, base.of, candidate.bad, candidate.of),
        weigh.more(candidate.bad, candidate.of, base.bad, base.of),
        base.bad,
        base.of,
        candidate.bad,
        candidate.of,
    )


def _least_step(weigh: _Weighing, first: Within, second: Within, alpha: Fraction) -> float:
    """Lower bound of how much greater the second share of bad ones is."""
    if not first.of or not second.of:
        return -math.inf
    (a, of_a), (b, of_b) = weigh.fewer(first.bad, first.of, second.bad, second.of)
    most, least = clopper_pearson(a, of_a, 1 - 2 * alpha)[1], clopper_pearson(b, of_b, 1 - 2 * alpha)[0]
    return b / of_b - a / of_a - math.hypot(b / of_b - least, most - a / of_a)


def of_percentiles(quantity: Quantity, value: float, base: Within, candidate: Within, alpha: Fraction) -> OneRun:
    """Two percentiles, the base's being ``value``: how many requests of the candidate lie beyond it, however stretched.

    A ratio is in the interval when the exceedance test at ``alpha`` does not reject it in either direction. The limit
    is an order statistic of the base, so the test counts the base as random, too.
    """
    weigh = _Weighing(base.design_effect)
    limit = float(worse(np.array([value]), quantity)[0])
    n, more_n = len(base.ordered), len(candidate.ordered)
    over, more = (_beyond(one.ordered, value, quantity) for one in (base, candidate))
    # No more of the candidate's than of the base's, in proportion, can't show that there are more, nor the other way
    # round.
    alike = min(math.ceil(over * more_n / max(n, 1)), more_n)
    enough = _first(lambda count: weigh.more(over, n, count, more_n) <= alpha, more_n, alike)
    few = alike - _first(lambda gone: weigh.more(alike - gone, more_n, over, n) <= alpha, alike)
    # ``enough`` lie beyond every limit below the enough-th largest, at most ``few`` beyond the next smaller one.
    low = -math.inf if enough > more_n else _step(_worst(candidate.ordered, enough, quantity), limit, -math.inf)
    high = math.inf if few < 0 else _step(_worst(candidate.ordered, few + 1, quantity), limit, math.inf)
    return OneRun(
        back(low, high, quantity),
        low,
        high,
        weigh.more(over, n, more, more_n),
        weigh.more(more, more_n, over, n),
        over,
        n,
        more,
        more_n,
    )


def _beyond(ordered: Ordered, value: float, quantity: Quantity) -> int:
    """How many values are worse than this one, on the scale on which they are compared."""
    lower = quantity.better == "lower"
    limit, past = worse(np.array([value]), quantity)[0], value
    while worse(np.array([past]), quantity)[0] <= limit:  # neighbours of a value have its logarithm
        if math.isinf(past) or (past == 0 and not lower and quantity.scale != "difference"):
            return 0
        past = float(np.nextafter(past, math.inf if lower else -math.inf))
    return len(ordered) - int(ordered.searchsorted(past)) if lower else int(ordered.searchsorted(past, "right"))


def _worst(ordered: Ordered, rank: int, quantity: Quantity) -> float:
    """The rank-th worst value, on the scale on which they are compared."""
    place = len(ordered) - rank if quantity.better == "lower" else rank - 1
    return float(worse(np.array([ordered[place]]), quantity)[0])


def _first(holds: Callable[[int], bool], top: int, low: int = 0) -> int:
    """The least of low..top that ``holds``, which stays true once it is; top + 1 when none does."""
    high = top + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _step(later: float, earlier: float, unknown: float) -> float:
    """The difference; infinite from infinite is ``unknown``."""
    return unknown if later == earlier and math.isinf(later) else later - earlier


@dataclass(frozen=True, slots=True)
class _Weighing:
    """Counts as if only every ``by``-th request were worth counting, rounded against what is to be shown.

    By the base's design effect alone: the candidate's would grow with its own slowness and excuse it.
    """

    by: float

    def fewer(self, bad: int, n: int, more_bad: int, more_n: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Both counts with their totals: the first rounded up, the second down."""
        if self.by <= 1:
            return (bad, n), (more_bad, more_n)
        few, many = math.ceil(n / self.by), math.ceil(more_n / self.by)
        return (min(math.ceil(bad / self.by), few), few), (math.floor(more_bad / self.by), many)

    def more(self, bad: int, n: int, more_bad: int, more_n: int) -> float:
        """Fisher's one-sided p that the second has more."""
        first, second = self.fewer(bad, n, more_bad, more_n)
        return fisher(*first, *second)
