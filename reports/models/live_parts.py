"""What is known of a run while it goes on: the document behind the live page, ``/state.json`` and ``/metrics``.

Times in ns, rates per second. Percentiles come from bins of equal ratio, ``BINS_AN_OCTAVE`` to the octave, 2.2 % wide; null
is infinite: that percentile is a failed request. A verdict never rests on any of these numbers. Nothing is computed or
drawn here.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BaseModel, Field, PlainSerializer

SCHEMA = "plimsoll.live/1"
#: Of the workers' coarse histograms: bin b holds values from 2 ** (b / 32) ns to 2 ** ((b + 1) / 32) ns.
BINS_AN_OCTAVE = 32

#: Of one kind of value: bin -> how many.
Bins = Mapping[int, int]
Stage = Literal["preparing", "warm-up", "running", "draining", "over"]
Rate = Annotated[float, PlainSerializer(lambda value: float(f"{value:.6g}"), return_type=float)]


class RunPart(BaseModel, frozen=True, extra="forbid"):
    """Which run. ``url`` has neither user nor password nor query in it."""

    id: str = ""
    plimsoll: str = ""
    scenario: str = ""
    kind: str = ""
    url: str = ""
    protocol: str = ""
    workers: int = 0


class Percentiles(BaseModel, frozen=True, extra="forbid"):
    """Of ``n`` values and ``failed`` requests without one, over the run so far; null is infinite."""

    n: int
    failed: int
    p50: int | None
    p90: int | None
    p99: int | None


class Band(BaseModel, frozen=True, extra="forbid"):
    """The same for each interval: ``n[i]`` is 0 and the percentiles null where there was nothing."""

    n: list[int]
    p50: list[int | None]
    p90: list[int | None]
    p99: list[int | None]


class BurnPart(BaseModel, frozen=True, extra="forbid"):
    """The error budget of one objective in this run.

    ``allowed``: the share that may be bad. ``bad``: how many of ``n`` certainly are so far; a few more may be, so everything
    from it is a lower bound. ``burn``: that share over the allowed one, 1 spends exactly the budget. ``spent``: of what the
    whole planned run may have; null where its size isn't known. ``interval_n``, ``interval_bad``: the same by interval.
    """

    objective: str
    indicator: str
    threshold_ns: int | None
    allowed: float
    n: int
    bad: int
    burn: float | None
    spent: float | None
    interval_n: list[int]
    interval_bad: list[int]

    def burns(self) -> list[float | None]:
        """The burn rate of each interval; None where nothing ended."""
        return [
            bad / n / self.allowed if n else None for n, bad in zip(self.interval_n, self.interval_bad, strict=True)
        ]


class Intervals(BaseModel, frozen=True, extra="forbid"):
    """Equal stretches of ``interval_ns`` from ``start_ns`` after t0; only those that are over. The last ends at
    ``end_ns``: after the run it takes the remainder.

    ``planned_per_s``: null of a closed loop, which has no plan in time. ``in_flight_max``: the most that was seen, by looks a
    quarter of a second apart; null where nobody looked. ``failed``: requests, not a rate.
    """

    interval_ns: int
    start_ns: int
    end_ns: int
    planned_per_s: list[Rate] | None
    sent_per_s: list[Rate]
    done_per_s: list[Rate]
    failed: list[int]
    in_flight_max: list[int | None]
    bands: dict[str, Band] = Field(default_factory=dict)

    def seconds(self) -> list[float]:
        """How long each is: the last one of a run that is over may be half to one and a half as long as the others."""
        n = len(self.sent_per_s)
        last = self.end_ns - self.start_ns - (n - 1) * self.interval_ns
        return [self.interval_ns / 1e9] * (n - 1) + [last / 1e9] * bool(n)


class VerdictPart(BaseModel, frozen=True, extra="forbid"):
    """What the sealed run was found to be, and where the report lies on the host that ran it."""

    outcome: str
    reasons: list[str] = Field(default_factory=list)
    report: str = ""


class LiveReport(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """One look at the run.

    ``elapsed_ns``: since t0, negative in warm-up. ``left_ns``, ``fraction``: null when the end can't be foreseen. ``sent``,
    ``done``, ``failed``: requests so far, with those of the warm-up. ``planned``: requests of the whole plan, null of a closed
    loop; ``planned_so_far``: of them, those due by now. ``spreads`` are the bins of ``metrics``.
    """

    schema_: str = Field(default=SCHEMA, alias="schema")
    run: RunPart
    stage: Stage = "preparing"
    elapsed_ns: int = 0
    left_ns: int | None = None
    fraction: float | None = None
    sent: int = 0
    done: int = 0
    failed: int = 0
    in_flight: int = 0
    planned: int | None = None
    planned_so_far: int | None = None
    planned_per_s: Rate | None = None
    sent_per_s: Rate | None = None
    metrics: dict[str, Percentiles] = Field(default_factory=dict)
    objectives: list[BurnPart] = Field(default_factory=list)
    unfollowed: list[str] = Field(default_factory=list)
    intervals: Intervals | None = None
    verdict: VerdictPart | None = None
    spreads: dict[str, dict[int, int]] = Field(default_factory=dict, exclude=True)


SHARES = (Fraction(1, 2), Fraction(9, 10), Fraction(99, 100))


def percentiles(bins: Bins, infinite: int = 0) -> tuple[int | None, int | None, int | None]:
    """p50, p90 and p99 in ns of the values in ``bins`` and of ``infinite`` more; None is infinite, or no value at all."""
    total = sum(bins.values()) + infinite
    wanted = [-(-share * total // 1) for share in SHARES]
    found: list[int | None] = []
    seen = 0
    for key in sorted(bins):
        seen += bins[key]
        while len(found) < len(wanted) and seen >= wanted[len(found)]:
            found.append(round(middle(key)))
    found += [None] * (len(wanted) - len(found))
    return found[0], found[1], found[2]


def middle(key: int) -> float:
    """The geometric middle of a bin, in ns: at most 1.1 % from every value in it."""
    return float(2.0 ** ((key + 0.5) / BINS_AN_OCTAVE))
