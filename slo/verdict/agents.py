"""The measured requests of a run by who sent them: figures of each group of workers, and which groups differ beyond
noise.

A failed request ranks as infinitely slow, as everywhere. Each metric is sorted once for each way of grouping, as
integers that hold group and time, so that no copy is made for a group and a thousand groups cost no more than two.
Nothing here is part of a verdict.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.records.records import FloatArray, IntArray, Records
from plimsoll.slo.statistics.confidence import binomial_at_least, binomial_at_most
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.validity.lateness import LAG_FLOOR_NS

#: The chance that any group of a run is said to differ though none does.
CHANCE = 0.01
#: What differs by less than this share of the figure of all, or by less than a generator may be late, is not said.
MATERIAL = 0.10
#: The same for a share of failed requests.
MATERIAL_FAILED = 0.001
#: Times are held to so many bits of nanoseconds: 52 days. All ones: it never came.
_BITS = 52

What = Literal["failed", "p50", "p90"]
Group = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Percentiles in nanoseconds by nearest rank, +inf where failed requests reach that far down."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Share:
    """What one group of workers sent; None: it has no such value."""

    requests: int
    failed: int
    latency: Ranks | None
    ttft: Ranks | None
    lag: Ranks | None


@dataclass(frozen=True, slots=True)
class Apart:
    """A group that differs: ``own`` and ``whole`` are its figure and that of all it is compared with, in nanoseconds
    or, of ``failed``, as a share; ``p``: how likely so large a difference is where there is none.
    """

    group: int
    what: What
    own: float
    whole: float
    p: float

    @property
    def worse(self) -> bool:
        return self.own > self.whole


class Ordered:
    """Values in ascending order within each group. ``values`` float64[m] ns, ``group`` int16[m] in 0..groups-1."""

    def __init__(self, values: FloatArray, group: Group, groups: int) -> None:
        self._bits = min(_BITS, 63 - groups.bit_length())
        self.never = (1 << self._bits) - 1
        keys = group.astype(np.int64)
        keys <<= self._bits
        keys |= np.clip(values, 0, self.never).astype(np.int64)
        keys.sort()
        self._keys = keys
        self._starts = np.searchsorted(keys, np.arange(groups + 1) << self._bits)

    def size(self, group: int) -> int:
        return int(self._starts[group + 1] - self._starts[group])

    def at(self, group: int, p: str) -> float:
        """The percentile of a group that is not empty; +inf: it never came."""
        rank = max(int(-(-(exact(p) * self.size(group)) // 1)), 1)
        return self.known(int(self._keys[self._starts[group] + rank - 1]) & self.never)

    def known(self, value: int) -> float:
        return float("inf") if value == self.never else float(value)

    def ranks(self, group: int) -> Ranks | None:
        return Ranks(*(self.at(group, p) for p in ("0.5", "0.9", "0.99"))) if self.size(group) else None

    def above(self, pool: IntArray, value: int) -> IntArray:
        """int64[len(pool)]: how many values of each of these groups are above ``value``."""
        upto = np.searchsorted(self._keys, (pool << self._bits) + value, side="right")
        return np.asarray(self._starts[pool + 1] - upto)

    def of_all(self, pool: IntArray, p: str) -> int:
        """The percentile of these groups together, found by halving what it may be; ``never``: it never came."""
        total = int((self._starts[pool + 1] - self._starts[pool]).sum())
        rank = max(int(-(-(exact(p) * total) // 1)), 1)
        low, high = 0, self.never
        while low < high:
            middle = (low + high) // 2
            if total - int(self.above(pool, middle).sum()) >= rank:
                high = middle
            else:
                low = middle + 1
        return low


@dataclass(frozen=True, slots=True)
class Split:
    """A run by groups. ``metric``: what they are compared by, ``ttft`` where there is one, else ``latency``.

    ``clump``: samples of a query, which come and fail together.
    """

    shares: tuple[Share, ...]
    metric: Literal["ttft", "latency"]
    ordered: Ordered
    clump: float

    def apart(self, pools: Sequence[Sequence[int]]) -> list[Apart]:
        """Which groups differ from the pool that they are in, most unlikely first; the worse ones, of a pool that has
        any.

        Where it makes no difference who sends, each query may as well have gone to any group: that is so where a plan
        is dealt by lot, whatever the endpoint did and when, and nearly so in a closed loop whose groups sent at the
        same time. It is not so for the turns of conversations, which stay together: then the limit on size
        (``MATERIAL``) has to hold the noise off. So the number of a group's requests beyond the pool's p50, beyond
        its p90, and of those that failed, is held against a binomial with the pool's share, which spreads wider than
        drawing without replacement does. The chances of all tests together are ``CHANCE`` (Bonferroni).
        """
        found = [(pool, self._tests(pool)) for pool in map(_groups, pools) if len(pool) > 1]
        tests = sum(len(some) for _, some in found)
        told: list[Apart] = []
        for _, some in found:
            real = [one for one in some if one.p * tests <= CHANCE and self._matters(one)]
            told += _first_of_each([one for one in real if one.worse] or real)
        return sorted(told, key=lambda one: one.p)

    def _tests(self, pool: IntArray) -> list[Apart]:
        asked = np.array([self.shares[group].requests for group in pool])
        failed = np.array([self.shares[group].failed for group in pool])
        pool, asked, failed = pool[asked > 0], asked[asked > 0], failed[asked > 0]
        share = failed / np.maximum(asked, 1)
        found = [*self._held(pool, "failed", failed, asked, share, float(failed.sum() / max(asked.sum(), 1)))]
        have = np.array([self.ordered.size(group) for group in pool.tolist()])
        pool, have = pool[have > 0], have[have > 0]
        places: Sequence[tuple[What, str]] = (("p50", "0.5"), ("p90", "0.9"))
        for what, p in places:
            whole = self.ordered.of_all(pool, p)
            if whole != self.ordered.never and len(pool) > 1:
                own = np.array([self.ordered.at(group, p) for group in pool.tolist()])
                found += self._held(pool, what, self.ordered.above(pool, whole), have, own, float(whole))
        return found

    def _held(
        self, pool: IntArray, what: What, beyond: IntArray, n: IntArray, own: FloatArray, whole: float
    ) -> Iterator[Apart]:
        """Each group's count against the share of all of them."""
        share = Fraction(int(beyond.sum()), max(int(n.sum()), 1))
        if not 0 < share < 1 or len(pool) < 2:
            return
        for group, count, of, value in zip(pool.tolist(), beyond.tolist(), n.tolist(), own.tolist(), strict=True):
            tail = binomial_at_least if count > share * of else binomial_at_most
            chance = min(1.0, 2 * tail(count / self.clump, of / self.clump, share))
            yield Apart(group, what, value, whole, chance)

    def _matters(self, one: Apart) -> bool:
        if one.what == "failed":
            return abs(one.own - one.whole) >= MATERIAL_FAILED
        return abs(one.own - one.whole) >= max(MATERIAL * one.whole, LAG_FLOOR_NS)


def split(records: Records, shards: Sequence[Sequence[int]]) -> Split:
    """The measured rows by groups; ``shards[g]``: the workers of group g, at most 32,000 groups."""
    groups = len(shards)
    most = max((worker for mine in shards for worker in mine), default=-1)
    table = np.full(most + 2, groups, np.int16)  # the last entry is everybody else's
    for group, mine in enumerate(shards):
        table[list(mine)] = group
    of_row = table[np.clip(records["worker"], -1, most + 1)]
    measured = records.in_measure
    requests = np.bincount(of_row[measured], minlength=groups)
    failed = np.bincount(of_row[measured & ~records.ok], minlength=groups)
    queries = int(np.count_nonzero(measured & (records["sample_ix"] == 0)))
    sorted_by = {}
    for name in ("latency", "ttft", "generator_lag"):
        found = measure(catalogue()[name], records)
        sorted_by[name] = Ordered(found.values, of_row[found.row], groups + 1)
        del found
    latency, ttft, lag = sorted_by.values()
    heard = any(ttft.size(group) for group in range(groups))
    return Split(
        shares=tuple(
            Share(int(requests[group]), int(failed[group]), latency.ranks(group), ttft.ranks(group), lag.ranks(group))
            for group in range(groups)
        ),
        metric="ttft" if heard else "latency",
        ordered=ttft if heard else latency,
        clump=max(1.0, int(np.count_nonzero(measured)) / max(queries, 1)),
    )


def _first_of_each(found: Sequence[Apart]) -> Iterable[Apart]:
    return {one.group: one for one in reversed(found)}.values()


def _groups(pool: Sequence[int]) -> IntArray:
    return np.array(pool, np.int64)
