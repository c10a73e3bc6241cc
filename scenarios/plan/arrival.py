"""From a seed to due times: arrival processes under a rate profile, and how both are written in a scenario. Pure.

A rate is a number of queries per second, ``{ramp: {from: 1, to: 50, over: 60s}}`` or
``{steps: [{rate: 5, for: 20s}, {rate: 50, for: 10s}, {rate: 5}]}``. An arrival process is a name, or
``{process: gamma, burstiness: 0.5}``; LoadGen's own is separate, bit-exact, and knows only a constant rate.

A process is generated at unit rate as points S_0 = 0 < S_1 < ... and each point is put at the time where the cumulative
rate L(t) reaches it: due_k = L^-1(S_k), exact for Poisson whatever the profile. Points are whole multiples of 2^-32, so
their sum is exact.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Discriminator, Field, Tag, model_validator

from plimsoll.scenarios.plan.plan import BLOCK, IntArray
from plimsoll.scenarios.plan.seeds import stream, uniforms
from plimsoll.scenarios.text.fields import STRICT, Duration

Process = Literal["poisson", "constant", "gamma", "loadgen"]

#: More queries than this are refused: their points at unit rate no longer fit 31 bits of whole numbers and 32 of
#: fraction.
MAX_QUERIES = 2_000_000_000

_BITS = 32
_ONE = 1 << _BITS
_SECOND_NS = 1_000_000_000


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


def due_blocks(
    process: Process,
    profile: RateProfile,
    seed: int,
    *,
    min_queries: int,
    min_duration_ns: int,
    burstiness: float = 1.0,
) -> Iterator[IntArray]:
    """Due times in ns from t0, sorted, starting at 0: consecutive pieces of at most ``BLOCK``, one in memory at a time.

    The list ends by LoadGen's rule: queries are appended while the previous one is due before ``min_duration_ns`` or
    there are fewer than ``min_queries``; so the last is the first arrival at or after the minimum duration. A longer
    list with the same seed starts with the shorter one.

    ``burstiness`` is the shape of the gamma gaps (mean 1/rate): 1 is Poisson, less is burstier, more is smoother. It is
    the number vLLM's benchmark calls burstiness; that tool also stretches the list so that the last arrival lands at
    exactly N/rate, which makes the count certain and the process no longer gamma. This one does not.

    Raises ``ValueError`` at once for a list of more than ``MAX_QUERIES`` or one that would last more than centuries.
    """
    expected = expected_queries(profile, min_queries, min_duration_ns)
    if expected > MAX_QUERIES:
        raise ValueError(
            f"this schedule has about {expected:,} queries, more than {MAX_QUERIES:,}. Lower the rate or the minima, "
            "or send it as several runs"
        )
    if process == "loadgen":
        if profile.segments:
            raise ValueError("loadgen arrivals know only one constant rate. Give rate as a plain number")
        return _cut(_loadgen(seed, profile.hold), min_queries, min_duration_ns)
    if (4 * expected + 64) / profile.hold * _SECOND_NS > 1 << 62:
        raise ValueError(f"{expected:,} queries at {profile.hold}/s last too long. Raise the rate")
    points = _constant() if process == "constant" else _random(process, seed, burstiness)
    return _cut(_stretched(points, profile), min_queries, min_duration_ns)


def _cut(blocks: Iterator[IntArray], min_queries: int, min_duration_ns: int) -> Iterator[IntArray]:
    """LoadGen's end rule: up to the first that is due at or after the minimum duration, and to the minimum's last."""
    made = 0
    for due in blocks:
        wanted = max(min_queries, made + int(np.searchsorted(due, min_duration_ns, side="left")) + 1)
        if wanted <= made + len(due):
            yield due[: wanted - made]
            return
        made += len(due)
        yield due


# -- points at unit rate: multiples of 2^-32 without end, the first one 0 --------------------------------------------


def _constant() -> Iterator[IntArray]:
    for count in range(0, 1 << 31, BLOCK):
        yield np.arange(count, count + BLOCK, dtype=np.int64) << _BITS


def _random(process: Process, seed: int, burstiness: float) -> Iterator[IntArray]:
    bits = stream(seed)
    gamma = np.random.Generator(bits)
    last = 0
    while last < (1 << 63) - (1 << 58):  # a block is less than the difference
        if process == "gamma":
            gaps = gamma.standard_gamma(burstiness, BLOCK)
            gaps /= burstiness
            gaps *= _ONE
        else:  # 1 - u is in (0, 1], so the logarithm is always finite
            gaps = uniforms(bits, BLOCK)
            np.log(np.subtract(1.0, gaps, out=gaps), out=gaps)
            gaps *= -_ONE
        points = np.empty(BLOCK + 1, np.int64)
        points[0] = last
        np.copyto(points[1:], np.rint(gaps, out=gaps), casting="unsafe")
        last = int(np.cumsum(points, out=points)[-1])
        yield points[:-1]
    raise ValueError(
        f"this schedule has more than {MAX_QUERIES:,} queries. Lower the rate or the minima, or send it as several runs"
    )


# -- points become times: each is put where the cumulative rate reaches it. A pause delays only what follows --------


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A segment of a profile between two points at unit rate (the second included); None: the rate that holds."""

    begins: int
    ends: int
    start_ns: int
    segment: Segment | None


def _stretches(profile: RateProfile) -> list[_Stretch]:
    found, start_ns, reached = [], 0, Fraction(0)
    for segment in profile.segments:
        ends = reached + (_exact(segment.rate_from) + _exact(segment.rate_to)) / 2 * segment.over_ns / _SECOND_NS
        found.append(_Stretch(round(reached * _ONE), round(ends * _ONE), start_ns, segment))
        start_ns, reached = start_ns + segment.over_ns, ends
    return [*found, _Stretch(round(reached * _ONE), 1 << 63, start_ns, None)]


def _stretched(blocks: Iterator[IntArray], profile: RateProfile) -> Iterator[IntArray]:
    stretches = _stretches(profile)
    ends = [one.ends for one in stretches]
    last_ns = 0
    for points in blocks:
        due = np.empty_like(points)
        done = 0
        for one in stretches[bisect_left(ends, int(points[0])) :]:
            stop = int(np.searchsorted(points, one.ends, side="right")) if one.segment else len(points)
            if stop > done:
                part = points[done:stop] - one.begins if one.begins else points[done:stop]
                due[done:stop] = _within(part, one.segment) if one.segment else _at_rate(part, profile.hold)
                if one.start_ns:
                    due[done:stop] += one.start_ns
                done = stop
            if done == len(points):
                break
        # Rounding may swap two neighbours by 1 ns where a ramp is steep; the order of the points is the truth.
        due[0] = max(int(due[0]), last_ns)
        if (due[1:] < due[:-1]).any():
            np.maximum.accumulate(due, out=due)
        last_ns = int(due[-1])
        yield due


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
    whole, rest, gap = _gap(rate)
    count = points >> _BITS
    fraction = count * rest
    fraction += (points & (_ONE - 1)) * (gap / _ONE)
    count *= whole
    count += np.rint(fraction, out=fraction).astype(np.int64)
    return count


@lru_cache(maxsize=64)
def _gap(rate: float) -> tuple[int, float, float]:
    """The time between two queries in ns: its whole part, the rest, and all of it."""
    gap = _SECOND_NS / _exact(rate)
    return int(gap), float(gap - int(gap)), float(gap)


def _exact(rate: float) -> Fraction:
    """The decimal number the user wrote, not its binary neighbour: 0.1/s is one query every 10 s exactly."""
    return Fraction(repr(rate))


def _loadgen(seed: int, rate: float) -> Iterator[IntArray]:
    """MLPerf LoadGen's Server schedule, bit for bit (``loadgen.cc``, libstdc++ build).

    std::mt19937 seeded with ``seed`` mod 2^32; two 32-bit draws g0, g1 a gap; u = (g0 + g1*2^32) / 2^64 in
    double; gap = -ln(1 - u) / rate seconds, truncated to whole ns. The realised mean rate is not rescaled.
    """
    bits = np.random.MT19937()
    bits._legacy_seeding(seed % (1 << 32))
    last_ns = 0
    while True:
        draws = bits.random_raw(2 * BLOCK).astype(np.float64)
        u = np.minimum((draws[0::2] + draws[1::2] * 2.0**32) / 2.0**64, np.nextafter(1.0, 0.0))
        # The C library's logarithm, one at a time: numpy's vector version may differ in the last bit.
        log = np.fromiter(map(math.log, (1.0 - u).tolist()), dtype=np.float64, count=BLOCK)
        due = np.cumsum(np.append(last_ns, (-log / rate * 1e9).astype(np.int64)))
        last_ns = int(due[-1])
        yield due[:-1]


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
    def _whole(self) -> Self:
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
