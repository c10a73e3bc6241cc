"""The values of a search: what it was asked, what each probe found, what it asks for next, and its answer.

Values only: ``plimsoll.slo.search.search`` decides, the harness runs. Loads are requests per second, or requests at a time;
lengths are multiples of the shortest probe's, whatever that is in seconds or requests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from plimsoll.slo.statistics.confidence import Probability
from plimsoll.slo.statistics.distribution import exact

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

    ``start``, ``lowest`` and ``highest`` (None: no limit) are loads. ``resolution``: relative width at which the search is
    content; of a concurrency never finer than 1. ``longest``: the longest probe, in multiples of the shortest. ``growth``:
    the factor from one load to the next while the line is not yet bracketed. ``repeats`` of an INVALID probe before its
    load counts as undecided. ``confirm``: run once more, with fresh seeds, at both ends of the answer. ``seed``: root of every
    probe's own. ``confidence`` that the objectives are judged at, which the answer's is reckoned from.
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
                f"longest {self.longest:g}: give how many times the shortest probe the longest may last, 1 to {MOST_LENGTH}"
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
    """The longest probe that seeks, where a fresh run lasts ``longest``: half, since a PASS picked for being one needs more the next time."""
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

    ``outcome``: the verdict of the run, where FAIL also means that the endpoint did not keep up (``Validity.unstable``) or
    that it was ``cut``: stopped early because it could only fail. ``n`` values were judged; ``n_needed`` in all would
    decide an INCONCLUSIVE one, None where no number would or it isn't known. ``reasons`` are the verdict's.
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
    load holds. INCONCLUSIVE: the probes don't say, or time ran out. INVALID: the generator is the limit, and where ``best`` was
    confirmed it holds all the same. UNREACHABLE: there
    was nothing to ask. ``best`` is the highest load at which the objectives hold, None when there is none; ``low`` is the
    same, or 0; ``high`` may be infinite. ``confidence``: that both ends are right together; None where an end rests on a run
    that the search picked for its outcome. ``confirmed_by``: number of the probe that confirmed ``best``. ``hurried``: time
    was short, so it went to the fresh runs before it had closed in.
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
        """Both ends."""
        return self.low, self.high


def probe_seed(root: int, number: int) -> int:
    """The seed of a probe: the ``number``-th output of splitmix64 from ``root`` (Steele, Lea and Flood 2014), its top 53 bits.

    Below 2^53, so that every JSON reader keeps it whole. Not of ``plimsoll.scenarios.plan.seeds``: this package imports nothing of ours
    but slo, and the scenario makes its own child seeds from the one it is given here.
    """
    state = (root + number * 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return (state ^ (state >> 31)) >> 11
