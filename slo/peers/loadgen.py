"""A run in the numbers of MLPerf LoadGen: its percentiles, means, throughputs, constraints and early stopping, by its
rules.

LoadGen knows no failure: it waits for ever. Here a sample that failed, or was never sent, takes ``NEVER``; it stays in
every percentile and count, completes nothing, and makes the result INVALID. Where LoadGen's own figure is a known
defect (negative TPOT of one-token answers, an end-to-end estimate overwritten by that of the TTFT, a blank TTFT
section) this module gives what was meant. It formats nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.records.records import BoolArray, IntArray, Records, Status
from plimsoll.slo.statistics.confidence import max_failures, n_required
from plimsoll.slo.statistics.distribution import exact
from plimsoll.slo.statistics.order import SLAB, ranked

#: The latency of what never completed: the largest number that LoadGen's own type holds.
NEVER = 2**63 - 1
#: The percentiles that LoadGen prints.
PRINTED = ("50.00", "90.00", "95.00", "97.00", "99.00", "99.90")
#: Its scenarios by kind, and the percentile of each that its score or its constraint is about.
QUANTILES: Mapping[str, Fraction] = MappingProxyType(
    {
        "single_stream": Fraction(9, 10),
        "multi_stream": Fraction(99, 100),
        "server": Fraction(99, 100),
        "offline": Fraction(99, 100),
    }
)
_TIMED = ("latency", "ttft", "tpot")
_TAIL = Fraction(99, 100)


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on one percentile of one measure: ``sorted[floor(quantile * n)] <= limit_ns``, in whole nanoseconds."""

    indicator: str
    quantile: Fraction
    limit_ns: int


@dataclass(frozen=True, slots=True)
class Spread:
    """``at[p]`` is ``sorted[floor(p n)]``; the mean is a whole number.

    All in ns, ``NEVER`` where failures reach; n = 0: all 0.
    """

    n: int
    min_ns: int
    max_ns: int
    mean_ns: int
    at: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """The criterion for one measure, with LoadGen's confidence of 99 %.

    ``over`` of ``n`` are above the limit and ``needed`` more within it would pass (0: met); of a stream instead
    ``estimate_ns`` is its score, after ``discarded`` values, and ``tail_ns`` the same at the 99th percentile (None: n
    is too small). ``least``: the number of queries without which there is no answer.
    """

    indicator: str
    met: bool
    n: int
    quantile: Fraction
    least: int
    over: int = 0
    needed: int = 0
    estimate_ns: int | None = None
    discarded: int = 0
    tail_ns: int | None = None
    tail_least: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What LoadGen would sum up:

    ``latency`` is of queries in a multi-stream, and of samples elsewhere. Rates are per second; None: the scenario has
    no such number.
    """

    kind: str
    tokens_mode: bool
    queries: int
    samples: int
    samples_per_query: int
    failed: int
    one_token: int
    limits: tuple[Limit, ...]
    latency: Spread
    of_samples: Spread
    ttft: Spread | None
    tpot: Spread | None
    percentile_ns: int
    ttft_percentile_ns: int | None
    over_latency: int | None
    constraints: Mapping[str, bool]
    early_stopping: tuple[EarlyStopping, ...]
    min_duration_met: bool
    min_queries_met: bool
    scheduled_per_s: float | None = None
    completed_per_s: float | None = None
    tokens_per_s: float | None = None
    qps_with_overhead: float | None = None
    qps_without_overhead: float | None = None
    tps_with_overhead: float | None = None
    tps_without_overhead: float | None = None
    offline_per_s: float | None = None

    @property
    def constraints_met(self) -> bool:
        """Every limit kept; a server run without one has shown nothing."""
        return all(self.constraints.values()) and (self.kind != "server" or bool(self.constraints))

    @property
    def early_stopping_met(self) -> bool:
        """Every criterion met; there is none for offline."""
        return all(one.met for one in self.early_stopping)

    @property
    def valid(self) -> bool:
        """LoadGen's four questions, and that nothing failed."""
        asked = self.min_duration_met and self.min_queries_met and self.constraints_met and self.early_stopping_met
        return asked and self.failed == 0 and self.samples > 0


def limits_of(objectives: Sequence[object]) -> tuple[Limit, ...]:
    """The limits that LoadGen would have been given: one percentile of each of latency, ttft and tpot.

    Of several on one measure the 99th percentile is taken, or else the highest. With a limit on ttft or tpot LoadGen
    looks at no other (token mode), so a limit on the latency is then left out.
    """
    found: dict[str, Limit] = {}
    for one in objectives:
        if not isinstance(one, Objective) or not one.of_all or one.quantile is None or one.indicator not in _TIMED:
            continue
        bound = one.exact_threshold
        whole = int(bound // 1) if one.operator == "<=" else int(-(-bound // 1)) - 1  # times are whole nanoseconds
        new = Limit(one.indicator, one.quantile, whole)
        old = found.get(one.indicator)
        found[one.indicator] = new if old is None else max(old, new, key=_weight)
    tokens = tuple(found[name] for name in ("ttft", "tpot") if name in found)
    return tokens or tuple(found.values())


def _weight(limit: Limit) -> tuple[bool, Fraction, int]:
    return limit.quantile == _TAIL, limit.quantile, -limit.limit_ns


def summarise(
    records: Records,
    kind: str,
    objectives: Sequence[object] = (),
    *,
    min_duration_ns: int = 0,
    min_queries: int = 1,
    planned: int = 0,
) -> Result:
    """LoadGen's summary of the measured rows; ``kind`` is one of ``QUANTILES``.

    ``planned`` samples, 0 where there is no list to work off: what of them has no row has failed. Token mode: with a
    limit on ttft or tpot; in a single stream and offline also where every answer counted its tokens and there is no
    limit on the latency.
    """
    rows = _in_order(records)
    samples = _Samples(rows)
    limits = limits_of(objectives) if kind == "server" else ()
    asked = {limit.indicator for limit in limits_of(objectives)}
    tokens_mode = kind != "multi_stream" and (
        bool(asked & {"ttft", "tpot"}) or (kind != "server" and "latency" not in asked and samples.counts_tokens)
    )
    quantile = limits[0].quantile if limits else QUANTILES[kind]
    ends = _query_ends(rows["query_id"])
    every = _Measure(samples.latency)
    slowest = kind == "multi_stream" and len(ends)  # a query takes as long as its slowest sample
    of_query = _Measure(np.maximum.reduceat(samples.latency, ends)) if slowest else every
    streamed = tokens_mode and kind != "offline"
    ttft, tpot = (_Measure(samples.ttft()), _Measure(samples.tpot())) if streamed else (None, None)
    measures = {"latency": of_query, "ttft": ttft, "tpot": tpot}
    of_samples = _spread(every)
    issued = np.asarray(rows.columns["status"] != Status.UNSENT)
    return Result(
        kind=kind,
        tokens_mode=tokens_mode,
        queries=len(ends),
        samples=len(rows),
        samples_per_query=len(rows) // len(ends) if len(ends) else 0,
        failed=int((~rows.ok).sum()) + max(planned - len(rows), 0),
        one_token=samples.one_token if tpot is not None else 0,
        limits=limits,
        latency=_spread(of_query),
        of_samples=of_samples,
        ttft=None if ttft is None else _spread(ttft),
        tpot=None if tpot is None else _spread(tpot),
        percentile_ns=_at(of_query, quantile),
        ttft_percentile_ns=None if ttft is None else _at(ttft, quantile),
        over_latency=_over_latency(kind, limits, of_query),
        constraints={one.indicator: _keeps(measures[one.indicator], one) for one in limits},
        early_stopping=_early_stopping(kind, limits, measures, quantile),
        min_duration_met=len(rows) > 0 and _elapsed_ns(rows, kind, issued) >= min_duration_ns,
        min_queries_met=_enough(rows, kind, issued, min_queries, planned),
        **_rates(rows, kind, samples, tokens_mode, of_samples),
    )


def _in_order(records: Records) -> Records:
    """The measured rows, each query's samples together, in the order of issue."""
    rows = records.measured()
    query, sample = rows["query_id"], rows["sample_ix"]
    step = query[1:] - query[:-1]
    if bool(((step > 0) | ((step == 0) & (sample[1:] >= sample[:-1]))).all()):
        return rows
    return rows.select(np.lexsort((sample, query)))


class _Measure:
    """Values int64[n] and their order, ``NEVER`` among the greatest."""

    __slots__ = ("_ordered", "n", "values")

    def __init__(self, values: IntArray) -> None:
        self.n, self.values = len(values), values
        few = self.n <= SLAB
        self._ordered: Any = np.sort(values) if few else ranked(np.where(values == NEVER, np.inf, values))

    def at(self, ranks: Sequence[int]) -> list[int]:
        """The values of these ranks, counted from 0."""
        return [NEVER if value == math.inf else int(value) for value in self._ordered[np.array(ranks)].tolist()]

    def below(self, limit_ns: int) -> int:
        """How many are not above it."""
        return int(self._ordered.searchsorted(limit_ns, "right"))

    def rank(self, p: Fraction) -> int:
        return int(p * self.n // 1)

    def mean(self) -> int:
        """Whole nanoseconds, rounded towards zero; sums are split because they may not fit."""
        if self.at([self.n - 1])[0] == NEVER:
            return NEVER
        total = 0
        for first in range(0, self.n, SLAB):
            part = self.values[first : first + SLAB]
            total += (int((part >> 20).sum()) << 20) + int((part & ((1 << 20) - 1)).sum())
        return total // self.n


class _Samples:
    """The measures of each sample, int64 ns; ``NEVER`` for what failed or lacks the stamps."""

    __slots__ = ("_rows", "counts_tokens", "latency", "one_token", "tokens")

    def __init__(self, rows: Records) -> None:
        ok, n_out = rows.ok, rows["n_out"]
        self._rows = rows
        self.latency = np.where(ok, rows["done_ns"] - rows["due_ns"], NEVER)
        self.one_token = int(np.count_nonzero(ok & ((n_out == 0) | (n_out == 1))))
        self.tokens = int(n_out.sum(where=ok & (n_out > 0)))
        counted = not bool((ok & ((n_out < 0) | (rows["first_token_ns"] < 0))).any())
        self.counts_tokens = counted and bool(ok.any())

    def ttft(self) -> IntArray:
        first = self._rows["first_token_ns"]
        return np.where(self._rows.ok & (first >= 0), first - self._rows["due_ns"], NEVER)

    def tpot(self) -> IntArray:
        """As LoadGen: to the completion of the sample, in whole ns per token after the first; answers of more tokens
        than one.
        """
        ok, first, n_out = self._rows.ok, self._rows["first_token_ns"], self._rows["n_out"]
        timed = ok & (first >= 0) & (n_out >= 2)
        tpot = np.where(timed, (self._rows["done_ns"] - first) // np.maximum(n_out - 1, 1), NEVER)
        several: IntArray = tpot[~(ok & ((n_out == 0) | (n_out == 1)))]
        return several


def _query_ends(query: IntArray) -> IntArray:
    """Where each query's first row is."""
    return np.append(0, np.flatnonzero(np.diff(query)) + 1)[: len(query)]


def _at(ordered: _Measure, p: Fraction) -> int:
    return ordered.at([ordered.rank(p)])[0] if ordered.n else 0


def _spread(ordered: _Measure) -> Spread:
    if not ordered.n:
        return Spread(0, 0, 0, 0, dict.fromkeys(PRINTED, 0))
    ranks = [ordered.rank(Fraction(name) / 100) for name in PRINTED]
    least, most, *values = ordered.at([0, ordered.n - 1, *ranks])
    return Spread(ordered.n, least, most, ordered.mean(), dict(zip(PRINTED, values, strict=True)))


def _keeps(ordered: _Measure | None, limit: Limit) -> bool:
    """No value is no proof."""
    return ordered is not None and ordered.n > 0 and _at(ordered, limit.quantile) <= limit.limit_ns


def _over_latency(kind: str, limits: tuple[Limit, ...], ordered: _Measure) -> int | None:
    """Samples above the limit on the latency; LoadGen counts all of them when there is none."""
    if kind != "server":
        return None
    own = [limit.limit_ns for limit in limits if limit.indicator == "latency"]
    return ordered.n - ordered.below(own[0] if own else NEVER - 1)


def _early_stopping(
    kind: str, limits: tuple[Limit, ...], measures: Mapping[str, _Measure | None], quantile: Fraction
) -> tuple[EarlyStopping, ...]:
    if kind == "server":
        return tuple(_server_stopping(limit, measures[limit.indicator]) for limit in limits)
    if kind == "offline":
        return ()
    names = [name for name in _TIMED if measures[name] is not None]
    return tuple(_stream_stopping(name, values, quantile) for name in names if (values := measures[name]) is not None)


def _server_stopping(limit: Limit, ordered: _Measure | None) -> EarlyStopping:
    n, within = (0, 0) if ordered is None else (ordered.n, ordered.below(limit.limit_ns))
    over = n - within
    wanted = n_required(over, limit.quantile)
    least = n_required(0, limit.quantile)
    return EarlyStopping(limit.indicator, n >= wanted, n, limit.quantile, least, over, max(wanted - n, 0))


def _stream_stopping(indicator: str, ordered: _Measure, quantile: Fraction) -> EarlyStopping:
    n = ordered.n
    left_out = max_failures(n, quantile)
    tail = max_failures(n, _TAIL)
    return EarlyStopping(
        indicator=indicator,
        met=left_out >= 1,
        n=n,
        quantile=quantile,
        least=n_required(1, quantile),
        estimate_ns=ordered.at([n - left_out])[0] if left_out >= 1 else None,
        discarded=max(left_out - 1, 0),
        tail_ns=ordered.at([n - tail])[0] if tail >= 1 else None,
        tail_least=n_required(1, exact(_TAIL)),
    )


def _elapsed_ns(rows: Records, kind: str, issued: BoolArray) -> int:
    """What is compared with the minimum: when the last query was due; offline when the last answer came.

    A failure lengthens no offline run: only answers count.
    """
    if kind == "offline":
        return int(rows["done_ns"][rows.ok].max(initial=0))
    return int(rows["due_ns"][issued].max(initial=0))


def _enough(rows: Records, kind: str, issued: BoolArray, min_queries: int, planned: int) -> bool:
    if kind == "offline":
        return len(rows) > 0 and int(issued.sum()) >= max(planned, 1)
    return len(_query_ends(rows["query_id"][issued])) >= max(min_queries, 1)


def _rates(rows: Records, kind: str, samples: _Samples, tokens_mode: bool, latency: Spread) -> dict[str, float]:
    """Every throughput, by LoadGen's formulas; only answers count, and a last query without one completes nothing."""
    rates: dict[str, float] = {}
    if not len(rows):
        return rates
    n_ok = int(rows.ok.sum())
    last = rows["query_id"] == rows["query_id"][-1]
    ended = int(rows["done_ns"][last].max()) / 1e9 if bool(rows.ok[last].all()) else 0.0
    final_due = int(rows["due_ns"].max()) / 1e9
    slowest = latency.max_ns / 1e9 if latency.max_ns != NEVER else 0.0
    if kind == "server":
        rates["scheduled_per_s"] = _per(len(rows) - 1, final_due)
        rates["completed_per_s"] = _per(n_ok - 1, ended)
        if tokens_mode:
            rates["tokens_per_s"] = _per(samples.tokens, ended)
            rates["tps_with_overhead"] = _per(samples.tokens, final_due)
    elif kind == "single_stream":
        mean = latency.mean_ns / 1e9 if latency.mean_ns != NEVER else 0.0
        rates["qps_with_overhead"] = _per(n_ok - 1, final_due)
        rates["qps_without_overhead"] = _per(1, mean)
        if tokens_mode:
            rates["tps_with_overhead"] = _per(samples.tokens, final_due)
            rates["tps_without_overhead"] = _per(samples.tokens / max(n_ok, 1), mean)
            rates["tokens_per_s"] = _per(samples.tokens, ended)
    elif kind == "offline":
        rates["offline_per_s"] = _per(n_ok, slowest)
        if tokens_mode:
            rates["tokens_per_s"] = _per(samples.tokens, slowest)
    return rates


def _per(count: float, seconds: float) -> float:
    return max(count, 0) / seconds if seconds > 0 else 0.0
