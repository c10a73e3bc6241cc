"""From a seed to due times: arrival processes under a rate profile, and how both are written in a scenario. Pure.

A rate is a number of queries per second, ``{ramp: {from: 1, to: 50, over: 60s}}`` or
``{steps: [{rate: 5, for: 20s}, {rate: 50, for: 10s}, {rate: 5}]}``. An arrival process is a name, or
``{process: gamma, burstiness: 0.5}``; LoadGen's own is separate, bit-exact, and knows only a constant rate.

A process is generated at unit rate as points S_0 = 0 < S_1 < ... and each point is put at the time where the cumulative
rate L(t) reaches it: due_k = L^-1(S_k), exact for Poisson whatever the profile. Points are whole multiples of 2^-32, so
their sum is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from plimsoll.scenarios.plan.plan import IntArray
from plimsoll.scenarios.plan.seeds import stream, uniforms
from plimsoll.scenarios.text.fields import STRICT, Duration

Process = Literal["poisson", "constant", "gamma", "loadgen"]
PROCESSES: tuple[Process, ...] = get_args(Process)

#: More queries than this are refused before anything is allocated.
MAX_QUERIES = 50_000_000

_BITS = 32
_ONE = 1 << _BITS
_SECOND_NS = 1_000_000_000
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of time over which the rate (queries per second) goes linearly from one value to another."""

    rate_from: float
    rate_to: float
    over_ns: int


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Rate over time: the segments one after another, then ``hold`` for ever. Rates are queries per second.

    Raises ``ValueError`` for a negative or infinite rate, or a final rate of zero (the list would never end).
    """

    segments: tuple[Segment, ...]
    hold: float

    def __post_init__(self) -> None:
        for rate in (*(r for s in self.segments for r in (s.rate_from, s.rate_to)), self.hold):
            if not math.isfinite(rate) or rate < 0:
                raise ValueError(f"rate {rate} is not a rate. Give queries per second, 0 or more")
        if any(segment.over_ns <= 0 for segment in self.segments):
            raise ValueError("a stretch of the rate profile lasts no time. Give it a duration above 0")
        if self.hold <= 0:
            raise ValueError("the last rate holds to the end of the run and is 0. Give a last rate above 0")

    @property
    def initial(self) -> float:
        """The rate at t = 0, or if that is zero the first rate of a segment's end that is not."""
        rates = [rate for segment in self.segments for rate in (segment.rate_from, segment.rate_to)]
        return next(rate for rate in (*rates, self.hold) if rate > 0)

    def expected(self, t_ns: int) -> float:
        """Expected number of queries in [0, t_ns)."""
        total = 0.0
        for segment in self.segments:
            span = min(segment.over_ns, t_ns)
            end = segment.rate_from + (segment.rate_to - segment.rate_from) * span / max(segment.over_ns, 1)
            total += (segment.rate_from + end) / 2 * span / _SECOND_NS
            t_ns -= span
        return total + self.hold * t_ns / _SECOND_NS


def constant_rate(per_s: float) -> RateProfile:
    """One rate for the whole run."""
    return RateProfile((), per_s)


def expected_queries(profile: RateProfile, min_queries: int, min_duration_ns: int) -> int:
    """How many queries a list that meets both minima will hold, on average, rounded up."""
    return max(min_queries, math.ceil(profile.expected(min_duration_ns)) + 1)


def due_times(
    process: Process,
    profile: RateProfile,
    seed: int,
    *,
    min_queries: int,
    min_duration_ns: int,
    burstiness: float = 1.0,
) -> IntArray:
    """Due times in ns from t0, sorted, starting at 0.

    The list ends by LoadGen's rule: queries are appended while the previous one is due before ``min_duration_ns`` or
    there are fewer than ``min_queries``; so the last is the first arrival at or after the minimum duration. A longer
    list with the same seed starts with the shorter one.

    ``burstiness`` is the shape of the gamma gaps (mean 1/rate): 1 is Poisson, less is burstier, more is smoother. It is
    the number vLLM's benchmark calls burstiness; that tool also stretches the list so that the last arrival lands at
    exactly N/rate, which makes the count certain and the process no longer gamma. This one does not.

    Raises ``ValueError`` for a list of more than ``MAX_QUERIES`` or one that would last more than centuries.
    """
    expected = expected_queries(profile, min_queries, min_duration_ns)
    if expected > MAX_QUERIES:
        raise ValueError(f"this schedule has about {expected:,} queries, more than {MAX_QUERIES:,}")
    if process == "loadgen":
        if profile.segments:
            raise ValueError("loadgen arrivals know only one constant rate. Give rate as a plain number")
        return _loadgen(seed, profile.hold, min_queries, min_duration_ns)
    if (4 * expected + 64) / profile.hold * _SECOND_NS > 1 << 62:
        raise ValueError(f"{expected:,} queries at {profile.hold}/s last too long. Raise the rate")
    return _until(_UnitPoints(process, seed, burstiness), profile, expected, min_queries, min_duration_ns)


class _UnitPoints:
    """The unit-rate process as multiples of 2^-32, block by block."""

    __slots__ = ("_bits", "_burstiness", "_count", "_gamma", "_process", "_sum")

    def __init__(self, process: Process, seed: int, burstiness: float) -> None:
        self._process = process
        self._burstiness = burstiness
        self._bits = stream(seed)
        self._gamma = np.random.Generator(self._bits)
        self._sum = 0
        self._count = 0

    def take(self, n: int) -> IntArray:
        """The next ``n`` points. The first one ever is 0."""
        if self._process == "constant":
            points = np.arange(self._count, self._count + n, dtype=np.int64) << _BITS
        else:
            gaps = np.rint(self._gaps(n) * _ONE).astype(np.int64)
            after = np.cumsum(gaps) + self._sum
            points = np.concatenate(([self._sum], after[:-1]))
            self._sum = int(after[-1])
        self._count += n
        return points

    def _gaps(self, n: int) -> npt.NDArray[np.float64]:
        if self._process == "gamma":
            return self._gamma.standard_gamma(self._burstiness, n) / self._burstiness
        # 1 - u is in (0, 1], so the logarithm is always finite.
        return -np.log(1.0 - uniforms(self._bits, n))


def _until(
    source: _UnitPoints, profile: RateProfile, expected: int, min_queries: int, min_duration_ns: int
) -> IntArray:
    points = source.take(expected + 4 * math.isqrt(expected) + 16)
    due = _stretch(points, profile)
    while due[-1] < min_duration_ns or len(due) < min_queries:
        points = np.concatenate((points, source.take(_BLOCK)))
        if len(points) > 2 * MAX_QUERIES:
            raise ValueError(f"this schedule has more than {MAX_QUERIES:,} queries")
        due = _stretch(points, profile)
    return _cut(due, min_queries, min_duration_ns)


def _cut(due: IntArray, min_queries: int, min_duration_ns: int) -> IntArray:
    """LoadGen's end rule on a list that is long enough."""
    before = int(np.searchsorted(due, min_duration_ns, side="left"))
    return np.ascontiguousarray(due[: max(min_queries, before + 1)])


def _stretch(points: IntArray, profile: RateProfile) -> IntArray:
    """Put unit-rate points where the cumulative rate reaches them. A pause delays only what follows."""
    due = np.empty_like(points)
    start_ns, reached, done = 0, Fraction(0), 0
    for segment in profile.segments:
        ends = reached + (_exact(segment.rate_from) + _exact(segment.rate_to)) / 2 * segment.over_ns / _SECOND_NS
        stop = int(np.searchsorted(points, round(ends * _ONE), side="right"))
        due[done:stop] = start_ns + _within(points[done:stop] - round(reached * _ONE), segment)
        start_ns, reached, done = start_ns + segment.over_ns, ends, max(done, stop)
    due[done:] = start_ns + _at_rate(points[done:] - round(reached * _ONE), profile.hold)
    # Rounding may swap two neighbours by 1 ns where a ramp is steep; the order of the points is the truth.
    return np.maximum.accumulate(due)


def _within(points: IntArray, segment: Segment) -> IntArray:
    """Solve a*t + (b - a)/(2*over)*t^2 = s for t, in the form that loses no digits when a or s is small."""
    if segment.rate_from == segment.rate_to:
        return _at_rate(points, segment.rate_from) if segment.rate_from else np.zeros_like(points)
    work = points / _ONE
    slope = (segment.rate_to - segment.rate_from) / segment.over_ns * _SECOND_NS
    root = np.sqrt(np.maximum(segment.rate_from**2 + 2.0 * slope * work, 0.0))
    below = segment.rate_from + root
    seconds = np.divide(2.0 * work, below, out=np.zeros_like(work), where=below > 0)
    within: IntArray = np.minimum(np.rint(seconds * _SECOND_NS).astype(np.int64), segment.over_ns)
    return within


def _at_rate(points: IntArray, rate: float) -> IntArray:
    """Points over a constant rate, rounded to the ns; whole and fractional ns are kept apart."""
    gap = _SECOND_NS / _exact(rate)
    whole = int(gap)
    count, rest = points >> _BITS, points & (_ONE - 1)
    fraction = count * float(gap - whole) + rest * (float(gap) / _ONE)
    return count * whole + np.rint(fraction).astype(np.int64)


def _exact(rate: float) -> Fraction:
    """The decimal number the user wrote, not its binary neighbour: 0.1/s is one query every 10 s exactly."""
    return Fraction(repr(rate))


def _loadgen(seed: int, rate: float, min_queries: int, min_duration_ns: int) -> IntArray:
    """MLPerf LoadGen's Server schedule, bit for bit (``loadgen.cc``, libstdc++ build).

    std::mt19937 seeded with ``seed`` mod 2^32; two 32-bit draws g0, g1 a gap; u = (g0 + g1*2^32) / 2^64 in
    double; gap = -ln(1 - u) / rate seconds, truncated to whole ns. The realised mean rate is not rescaled.
    """
    bits = np.random.MT19937()
    bits._legacy_seeding(seed % (1 << 32))
    take = expected_queries(constant_rate(rate), min_queries, min_duration_ns)
    take += 4 * math.isqrt(take) + 16
    due = np.zeros(1, dtype=np.int64)
    while due[-1] < min_duration_ns or len(due) < min_queries:
        draws = bits.random_raw(2 * take).astype(np.float64)
        u = np.minimum((draws[0::2] + draws[1::2] * 2.0**32) / 2.0**64, np.nextafter(1.0, 0.0))
        # The C library's logarithm, one at a time: numpy's vector version may differ in the last bit.
        log = np.fromiter(map(math.log, (1.0 - u).tolist()), dtype=np.float64, count=take)
        gaps = (-log / rate * 1e9).astype(np.int64)
        due = np.concatenate((due, due[-1] + np.cumsum(gaps)))
        take = _BLOCK
    return _cut(due, min_queries, min_duration_ns)


PerSecond = Annotated[float, Field(ge=0, le=10_000_000, allow_inf_nan=False, description="Queries per second.")]
PositivePerSecond = Annotated[
    float, Field(ge=1e-6, le=10_000_000, allow_inf_nan=False, description="Queries per second.")
]


class Ramp(BaseModel):
    """A rate that goes linearly from one value to another, then holds the last."""

    model_config = STRICT
    start: PerSecond = Field(alias="from")
    to: PositivePerSecond
    over_ns: Duration = Field(alias="over", gt=0)


class RampRate(BaseModel):
    """``{ramp: {from, to, over}}``."""

    model_config = STRICT
    ramp: Ramp


class Step(BaseModel):
    """One rate, for a time. A rate of 0 is a pause."""

    model_config = STRICT
    rate: PerSecond
    for_ns: Duration | None = Field(default=None, alias="for", description="How long; not needed on the last step.")


class StepsRate(BaseModel):
    """``{steps: [{rate, for}, ...]}``: one after another; the last holds."""

    model_config = STRICT
    steps: tuple[Step, ...] = Field(strict=False, min_length=1, max_length=10_000)

    @model_validator(mode="after")
    def _whole(self) -> StepsRate:
        for i, step in enumerate(self.steps[:-1]):
            if not step.for_ns:
                raise ValueError(f"steps[{i}] does not say for how long. Add for: 10s (only the last may go without)")
        if self.steps[-1].rate <= 0:
            raise ValueError("the last step holds to the end of the run and has rate 0. Give it a rate above 0")
        return self


def _rate_tag(value: Any) -> str:
    if isinstance(value, RampRate) or (isinstance(value, dict) and "steps" not in value):
        return "<ramp>"
    if isinstance(value, (StepsRate, dict)):
        return "<steps>"
    return "<number>"


Rate = Annotated[
    Annotated[PositivePerSecond, Tag("<number>")]
    | Annotated[RampRate, Tag("<ramp>")]
    | Annotated[StepsRate, Tag("<steps>")],
    Discriminator(_rate_tag),
]


class Gamma(BaseModel):
    """Gamma gaps of mean 1/rate. Burstiness is the shape: 1 is Poisson, less is burstier, more smoother."""

    model_config = STRICT
    process: Literal["gamma"]
    burstiness: float = Field(default=1.0, ge=0.01, le=1_000_000, allow_inf_nan=False)


class Plain(BaseModel):
    """An arrival process that has nothing to set: the same as writing its name alone."""

    model_config = STRICT
    process: Process


def _arrival_tag(value: Any) -> str:
    if isinstance(value, Gamma) or (isinstance(value, dict) and value.get("process") == "gamma"):
        return "<gamma>"
    return "<plain>" if isinstance(value, (Plain, dict)) else "<name>"


Arrival = Annotated[
    Annotated[Process, Tag("<name>")] | Annotated[Plain, Tag("<plain>")] | Annotated[Gamma, Tag("<gamma>")],
    Discriminator(_arrival_tag),
]


def profile(rate: float | RampRate | StepsRate) -> RateProfile:
    """The rate as ``arrival`` wants it."""
    if isinstance(rate, RampRate):
        ramp = rate.ramp
        return RateProfile((Segment(ramp.start, ramp.to, ramp.over_ns),), ramp.to)
    if isinstance(rate, StepsRate):
        held = tuple(Segment(step.rate, step.rate, step.for_ns or 0) for step in rate.steps[:-1])
        return RateProfile(held, rate.steps[-1].rate)
    return constant_rate(rate)


def process(arrival: Process | Plain | Gamma) -> tuple[Process, float]:
    """(process, burstiness)."""
    if isinstance(arrival, Gamma):
        return "gamma", arrival.burstiness
    return (arrival.process if isinstance(arrival, Plain) else arrival), 1.0
