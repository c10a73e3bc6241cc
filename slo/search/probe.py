"""The values of a search: what it was asked, what each probe found, what it asks for next, and its answer.

Values only: ``plimsoll.slo.search.search`` decides, the harness runs. Loads are requests per second, or requests at a
time; lengths are multiples of the shortest probe's, whatever that is in seconds or requests.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from plimsoll.slo.metrics.indicator import catalogue
from plimsoll.slo.objectives.goodput import entries, failing
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.statistics.confidence import Probability, binomial_at_least
from plimsoll.slo.statistics.distance import MULTIPLES, tail
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.memory import BLOCKS, EXCESS_WEIGHT, MIN_BLOCK, MIN_BLOCKS

Variable = Literal["rate", "concurrency"]
Purpose = Literal["bracket", "bisect", "longer", "repeat", "confirm", "ceiling"]
Found = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID", "UNREACHABLE"]
AnswerOutcome = Literal["FOUND", "NONE", "OPEN", "INCONCLUSIVE", "INVALID", "UNREACHABLE"]

#: Finer than this no run of any length decides.
FINEST = 1e-4
#: Most times the shortest probe that the longest may last.
MOST_LENGTH = 10_000
_MASK = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Settings:
    """What is searched, and how hard. Raises ValueError with a line for each setting that can't be honoured.

    ``start``, ``lowest`` and ``highest`` (None: no limit) are loads. ``resolution``: relative width at which the search
    is content; of a concurrency never finer than 1. ``longest``: the longest probe, in multiples of the shortest.
    ``growth``: the factor from one load to the next while the line is not yet bracketed. ``repeats`` of an INVALID
    probe before its load counts as undecided. ``confirm``: run once more, with fresh seeds, at both ends of the answer.
    ``seed``: root of every probe's own. ``confidence`` that the objectives are judged at, which the answer's is
    reckoned from.
    """

    variable: Variable
    start: float
    lowest: float
    highest: float | None = None
    resolution: float = 0.02
    longest: float = 8.0
    growth: float = 2.0
    repeats: int = 2
    confirm: bool = True
    seed: int = 0
    confidence: Probability = "0.95"

    def __post_init__(self) -> None:
        if mistakes := self._mistakes():
            raise ValueError("\n".join(mistakes))

    def _mistakes(self) -> list[str]:
        top = math.inf if self.highest is None else self.highest
        found = []
        if not 0 < self.lowest <= self.start <= top or math.isinf(self.start):
            found.append(
                f"lowest {self.lowest:g}, start {self.start:g}, highest {top:g}: give 0 < lowest <= start <= highest"
            )
        if self.variable == "concurrency" and any(
            load is not None and load != math.floor(load) for load in (self.lowest, self.start, self.highest)
        ):
            found.append("a concurrency is a whole number of requests: give whole numbers")
        if not FINEST <= self.resolution <= 1:
            found.append(f"resolution {self.resolution:g}: give a share between {FINEST:g} and 1, such as 0.02 for 2 %")
        if not 1 <= self.longest <= MOST_LENGTH:
            found.append(
                f"longest {self.longest:g}: give how many times the shortest probe the longest may last, 1 to "
                f"{MOST_LENGTH}"
            )
        if not 1.1 <= self.growth <= 10:
            found.append(f"growth {self.growth:g}: give a factor from 1.1 to 10")
        if not 0 <= self.repeats <= 20:
            found.append(f"repeats {self.repeats}: give 0 to 20")
        return found

    @property
    def seeking(self) -> float:
        """The longest probe but for the fresh runs."""
        return seeking(self.longest)

    @property
    def alpha(self) -> float:
        """The chance of error of one end of the interval."""
        return float(1 - exact(self.confidence))


def seeking(longest: float) -> float:
    """The longest probe that seeks, where a fresh run lasts ``longest``: half, since a PASS picked for being one needs
    more the next time.
    """
    return max(1.0, longest / 2)


@dataclass(frozen=True, slots=True)
class Next:
    """The probe to make now: ``load``, ``length`` in multiples of the shortest, and a ``seed`` of its own (below 2^53).

    ``then``: lengths of the fresh runs that the answer takes after it, if the first at each end says what is hoped.
    """

    number: int
    purpose: Purpose
    load: float
    length: float
    seed: int
    then: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe that was made. ``number`` to ``seed`` are those of the ``Next`` that asked for it.

    ``outcome``: the verdict of the run, where FAIL also means that the endpoint did not keep up (``Validity.unstable``)
    or that it was ``cut``: stopped early because it could only fail. ``n`` values were judged; ``n_needed`` in all
    would decide an INCONCLUSIVE one, None where no number would or it isn't known. ``reasons`` are the verdict's.
    """

    number: int
    purpose: Purpose
    load: float
    length: float
    seed: int
    outcome: Found
    reasons: tuple[str, ...] = ()
    n: int = 0
    n_needed: int | None = None
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the line is: ``low`` <= line <= ``high``, as far as the probes say.

    FOUND: both ends were confirmed. OPEN: ``best`` holds and no load was found that does not. NONE: not even the lowest
    load holds. INCONCLUSIVE: the probes don't say, or time ran out. INVALID: the generator is the limit, and where
    ``best`` was confirmed it holds all the same. UNREACHABLE: there was nothing to ask. ``best`` is the highest load at
    which the objectives hold, None when there is none; ``low`` is the same, or 0; ``high`` may be infinite.
    ``confidence``: that both ends are right together; None where an end rests on a run that the search picked for its
    outcome. ``confirmed_by``: number of the probe that confirmed ``best``. ``hurried``: time was short, so it went to
    the fresh runs before it had closed in.
    """

    outcome: AnswerOutcome
    best: float | None
    low: float
    high: float
    confidence: float | None
    reasons: tuple[str, ...]
    confirmed_by: int | None = None
    hurried: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        return self.low, self.high


def probe_seed(root: int, number: int) -> int:
    """The seed of a probe: the ``number``-th output of splitmix64 from ``root`` (Steele, Lea and Flood 2014), its top
    53 bits.

    Below 2^53, so that every JSON reader keeps it whole. Not of ``plimsoll.scenarios.plan.seeds``: this package imports
    nothing of ours but slo, and the scenario makes its own child seeds from the one it is given here.
    """
    state = (root + number * 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return (state ^ (state >> 31)) >> 11


# -- curtailed sampling ------------------------------------------------------------------------------------------------

# Curtailed sampling: whether a run that is under way can still end in anything but FAIL. Nothing is estimated here and
# no error is added. Let a run plan N measured requests, and let ``bad`` of their values be over the limit already,
# whatever is still to come. ``plimsoll.slo.statistics.share`` says FAIL when two p values are at most alpha, and both
# can be bounded now:
#
# 1. The exact binomial one depends on counts alone. With n <= N values in the end (a request may have none) and at
#    least ``bad`` bad ones, P[Binomial(n, L) >= bad] <= P[Binomial(N, L) >= bad].
# 2. Errors are judged by blocks as well, b of at most s = ceil(N / b). It is not enough to know that the rest might be
#    good: bad ones that all lie in the first half say less than as many that lie evenly. So the worst place for them is
#    taken. A block is better than the limit by at most L s, whatever lies in it, hence t >= (bad - L N - L s) / (L s
#    sqrt(W b)), W being the weight of squared excess.
# 3. How long the endpoint remembers shows in the values, and only in the end. So of values the bound that holds
#    whatever the memory is taken, Markov's: a share of at least bad / N where L may be has a chance of at most L N /
#    bad.
# 4. The verdict takes Markov's bound at multiples of a limit on times as well (``plimsoll.slo.statistics.distance``):
#    beyond m times the limit only ``tail(L, m)`` may be. Values beyond it that were answered stay there, so that bound
#    is taken too.
#
# Values that are still to come and are bad only lower both (one more bad value never improves an outcome). So where
# both bounds are at most alpha, the whole run would have said FAIL: stopping gives its answer, sooner. Among m
# objectives alpha / m is used, with which a FAIL stands at any step of Holm's correction
# (``plimsoll.slo.objectives.quantified.holm``).
#
# At 95 % a percentile is past hope once bad values reach twenty times the share allowed of the whole plan: of a p99
# when a fifth of the plan is over the limit; of a p90, whose own bound makes nothing certain before the end, when a
# quarter is over eight times the limit or an eighth over sixteen times, which an overloaded open loop comes to soon. Of
# errors, from 300 requests on, 1.57 times the share that is allowed of the whole plan is enough.

#: Keeps a bound that is met exactly on the safe side of rounding.
_ROUNDING = 1 - 1e-9
#: Shares of all measured requests: one entry each.
_RATIOS = ("good", "error")


def multiples(objective: Objective) -> tuple[float, ...]:
    """Of its limit: those at which a count of values can make a run past hope; 1 always."""
    timed = objective.quantile is not None and objective.unit == "ns" and objective.operator in ("<=", "<")
    timed = timed and objective.of_all and objective.threshold > 0
    return (1.0, *MULTIPLES) if timed and _one_value_a_request(objective) else (1.0,)


def hopeless(
    objective: Objective,
    n_planned: int,
    bad: int,
    confidence: Probability = "0.95",
    among: int = 1,
    multiple: float = 1.0,
) -> str | None:
    """Why the run can only FAIL this objective now, or None.

    ``bad`` is of those beyond a ``multiple`` of the limit, beyond 1 of answered ones only. ``n_planned`` measured
    requests in the whole run, none of which will be left out; at least ``bad`` of them are certain to be over the
    limit. ``among``: how many objectives on shares and percentiles are judged with it. Always None for an objective
    that is not over the run, or is no share of requests (a mean, a rate, gaps between tokens).
    """
    least = hopeless_at(objective, n_planned, confidence, among, multiple)
    if least is None or bad < least:
        return None
    if objective.statistic in ("max", "min"):
        return f"{objective}: {bad} values are over the limit, and one is enough"
    limit = objective.allowed
    assert limit is not None
    what = (
        f"{entries(objective.indicator)} {failing(objective.indicator)}"
        if objective.statistic == "ratio"
        else f"values break {objective.operator} {objective.threshold_text}"
    )
    what, share = (what, limit) if multiple == 1 else (f"{what} {multiple:g} times over", tail(float(limit), multiple))
    return (
        f"{objective}: {bad} {what} already, and {least} of the {n_planned} planned are enough to FAIL even if all "
        f"the rest are good ({float(share) * 100:.4g} % may)"
    )


def hopeless_at(
    objective: Objective, n_planned: int, confidence: Probability = "0.95", among: int = 1, multiple: float = 1.0
) -> int | None:
    """The least number of values beyond a multiple of the limit that makes the run ``hopeless``; None when no number
    does.

    Raises ValueError for ``n_planned`` or ``among`` below 1, or a confidence outside (0, 1).
    """
    if n_planned < 1 or among < 1:
        raise ValueError(f"{n_planned} requests, {among} objectives: give at least 1 of each")
    if not 0 < exact(confidence) < 1:
        raise ValueError(f"confidence {confidence}: lies strictly between 0 and 1")
    if objective.scope != "run" or not objective.of_all:
        return None
    if (objective.statistic == "max" and objective.operator in ("<=", "<")) or (
        objective.statistic == "min" and objective.operator in (">=", ">")
    ):
        return 1
    limit = objective.allowed
    if limit is None or not 0 < limit < 1 or not _one_value_a_request(objective):
        return None
    alpha = float(1 - exact(confidence)) / among * _ROUNDING
    low, high = 0, n_planned
    values = objective.indicator != "error"
    beyond = float(limit) if multiple == 1 else tail(float(limit), multiple)
    if not _certain(high, n_planned, limit, alpha, values, beyond):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _certain(middle, n_planned, limit, alpha, values, beyond) else (middle, high)
    return high


def _one_value_a_request(objective: Objective) -> bool:
    if objective.statistic == "ratio":
        return objective.indicator in _RATIOS
    return objective.quantile is not None and catalogue()[objective.indicator].scope == "request"


def _certain(bad: int, n: int, limit: Fraction, alpha: float, values: bool, beyond: float) -> bool:
    """Both bounds above; of values the share ``beyond`` may be where the bad ones are."""
    if binomial_at_least(bad, n, limit) > alpha:
        return False
    if values:
        return beyond * n <= alpha * bad
    blocks = max(1, min(BLOCKS, n // MIN_BLOCK))
    if blocks < MIN_BLOCKS:
        return True
    from plimsoll.slo.statistics.special import stdtr

    most = float(limit) * math.ceil(n / blocks)
    gap = bad - float(limit) * n - most
    return gap > 0 and float(stdtr(blocks - 1, -gap / (most * math.sqrt(EXCESS_WEIGHT * blocks)))) <= alpha
