"""A run in the numbers of MLPerf LoadGen: its percentiles, means, throughputs, constraints and early stopping, by its
rules.

LoadGen knows no failure: it waits for ever. Here a sample that failed, or was never sent, takes ``NEVER``; it stays in
every percentile and count, completes nothing, and makes the result INVALID. Where LoadGen's own figure is a known
defect (negative TPOT of one-token answers, an end-to-end estimate overwritten by that of the TTFT, a blank TTFT
section) this module gives what was meant. It formats nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.records.records import BoolArray, IntArray, Records, Status
from plimsoll.slo.statistics.confidence import max_failures, n_required
from plimsoll.slo.statistics.distribution import exact

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
        if not isinstance(one, Objective) or one.quantile is None or one.indicator not in _TIMED:
            continue
        bound = one.exact_threshold
        whole = int(bound // 1) if one.operator == "<=" else int(-(-bound // 1)) - 1  # times are whole nanoseconds
        new = Limit(one.indicator, one.quantile, whole)
        old = found.get(one.indicator)
        if old is None or (new.quantile == _TAIL, new.quantile, -whole) > (
            old.quantile == _TAIL,
            old.quantile,
            -old.limit_ns,
        ):
            found[one.indicator] = new
    tokens = tuple(found[name] for name in ("ttft", "tpot") if name in found)
    return tokens or tuple(found.values())


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
    ends = _query_ends(rows)
    slowest = kind == "multi_stream" and len(ends)  # a query takes as long as its slowest sample
    of_query = np.sort(np.maximum.reduceat(samples.latency, ends) if slowest else samples.latency)
    ttft, tpot = (np.sort(samples.ttft), np.sort(samples.tpot)) if tokens_mode and kind != "offline" else (None, None)
    measures = {"latency": of_query, "ttft": ttft, "tpot": tpot}
    of_samples = _spread(np.sort(samples.latency))
    issued = rows["status"] != Status.UNSENT
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
    order = np.lexsort((rows["sample_ix"], rows["query_id"]))
    return rows if bool((order == np.arange(len(order))).all()) else rows.select(order)


class _Samples:
    """The measures of each sample, int64 ns; ``NEVER`` for what failed or lacks the stamps."""

    __slots__ = ("counts_tokens", "latency", "one_token", "tokens", "tpot", "ttft")

    def __init__(self, rows: Records) -> None:
        ok, done, first, n_out = rows.ok, rows["done_ns"], rows["first_token_ns"], rows["n_out"]
        due = rows["due_ns"]
        self.latency = np.where(ok, done - due, NEVER)
        self.ttft = np.where(ok & (first >= 0), first - due, NEVER)
        short = ok & ((n_out == 0) | (n_out == 1))
        timed = ok & (first >= 0) & (n_out >= 2)
        # As LoadGen: to the completion of the sample, in whole nanoseconds per token after the first.
        tpot = np.where(timed, (done - first) // np.maximum(n_out - 1, 1), NEVER)
        self.tpot = tpot[~short]
        self.one_token = int(short.sum())
        self.tokens = int(n_out[ok & (n_out > 0)].sum())
        self.counts_tokens = bool(ok.any()) and bool((n_out[ok] >= 0).all()) and bool((first[ok] >= 0).all())


def _query_ends(rows: Records) -> IntArray:
    """Where each query's first row is."""
    query = rows["query_id"]
    return np.flatnonzero(np.r_[True, query[1:] != query[:-1]]) if len(query) else np.empty(0, np.int64)


def _at(ordered: IntArray, p: Fraction) -> int:
    n = len(ordered)
    return int(ordered[int(p * n // 1)]) if n else 0


def _spread(ordered: IntArray) -> Spread:
    n = len(ordered)
    if not n:
        return Spread(0, 0, 0, 0, dict.fromkeys(PRINTED, 0))
    at = {name: _at(ordered, Fraction(name) / 100) for name in PRINTED}
    return Spread(n, int(ordered[0]), int(ordered[-1]), _mean(ordered), at)


def _mean(ordered: IntArray) -> int:
    """Whole nanoseconds, rounded towards zero; the sum is split because it may not fit."""
    if int(ordered[-1]) == NEVER:
        return NEVER
    high, low = ordered >> 20, ordered & ((1 << 20) - 1)
    return ((int(high.sum()) << 20) + int(low.sum())) // len(ordered)


def _keeps(ordered: IntArray | None, limit: Limit) -> bool:
    """No value is no proof."""
    return ordered is not None and len(ordered) > 0 and _at(ordered, limit.quantile) <= limit.limit_ns


def _over_latency(kind: str, limits: tuple[Limit, ...], ordered: IntArray) -> int | None:
    """Samples above the limit on the latency; LoadGen counts all of them when there is none."""
    if kind != "server":
        return None
    own = [limit.limit_ns for limit in limits if limit.indicator == "latency"]
    return int(len(ordered) - np.searchsorted(ordered, own[0], side="right")) if own else int((ordered == NEVER).sum())


def _early_stopping(
    kind: str, limits: tuple[Limit, ...], measures: Mapping[str, IntArray | None], quantile: Fraction
) -> tuple[EarlyStopping, ...]:
    if kind == "server":
        return tuple(_server_stopping(limit, measures[limit.indicator]) for limit in limits)
    if kind == "offline":
        return ()
    names = [name for name in _TIMED if measures[name] is not None]
    return tuple(_stream_stopping(name, values, quantile) for name in names if (values := measures[name]) is not None)


def _server_stopping(limit: Limit, ordered: IntArray | None) -> EarlyStopping:
    values = np.empty(0, np.int64) if ordered is None else ordered
    n = len(values)
    over = n - int(np.searchsorted(values, limit.limit_ns, side="right"))
    wanted = n_required(over, limit.quantile)
    least = n_required(0, limit.quantile)
    return EarlyStopping(limit.indicator, n >= wanted, n, limit.quantile, least, over, max(wanted - n, 0))


def _stream_stopping(indicator: str, ordered: IntArray, quantile: Fraction) -> EarlyStopping:
    n = len(ordered)
    left_out = max_failures(n, quantile)
    tail = max_failures(n, _TAIL)
    return EarlyStopping(
        indicator=indicator,
        met=left_out >= 1,
        n=n,
        quantile=quantile,
        least=n_required(1, quantile),
        estimate_ns=int(ordered[n - left_out]) if left_out >= 1 else None,
        discarded=max(left_out - 1, 0),
        tail_ns=int(ordered[n - tail]) if tail >= 1 else None,
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
    return len(np.unique(rows["query_id"][issued])) >= max(min_queries, 1)


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
