"""What the endpoint got done: throughput, and goodput, the part of it that kept every promise to its request.

One span for every rate: from t0 (of the rows of a phase: from the first that was due) to the last ``done`` of a
measured request, failed ones included, so neither cutting off stragglers nor giving up early makes a rate higher.
Nothing here passes or fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll.slo.metrics.indicator import catalogue, extremes, measure
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.objectives.selector import SINCE, rows_of
from plimsoll.slo.records.records import BoolArray, FloatArray, IntArray, Records, Status, TokensFrom

# -- what counts against a ratio --------------------------------------------------------------------------------------

# The first two are shares of requests, the last one of frames: queries with a deadline.


def against(name: str, records: Records, good: BoolArray) -> tuple[BoolArray, IntArray]:
    """(bad bool[m], row int64[m]): of every entry whether it counts against the ratio, and its record, ascending.

    ``good`` bool[records] is the goodput's. Frames without a deadline are no entries.
    """
    if name in ("frame_missed", "retried", "degraded", "talked_over"):
        found = measure(catalogue()[name], records)
        return found.values > 0, found.row
    rows = np.flatnonzero(records.in_measure)
    if name == "refused":
        return (records["status"] == Status.REFUSED)[rows], rows
    return ~(good if name == "good" else records.ok)[rows], rows


def entries(name: str) -> str:
    return "frames" if name == "frame_missed" else "requests"


def failing(name: str) -> str:
    """What an entry that counts against it is, for people."""
    return {
        "error": "failed",
        "good": "not good",
        "frame_missed": "missed their deadline",
        "refused": "were turned away",
        "retried": "were sent again",
        "degraded": "were answered by a fallback",
        "talked_over": "were spoken over",
    }[name]


@dataclass(frozen=True, slots=True)
class Attainment:
    """How many of the ``n`` measured requests succeeded and met one limit, whatever the other limits say."""

    objective: Objective
    met: int
    n: int

    @property
    def fraction(self) -> float:
        """met / n; 0 for no requests."""
        return self.met / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Goodput:
    """``good`` bool[records]: measured, succeeded and met every limit on a single request (at once, not each).

    ``n`` measured requests; ``good_fraction`` of n, with failed and unsent ones in it; ``goodput_per_s`` good ones per
    second of ``span_ns``. Both are 0 when there is nothing to divide by. ``severity`` float64[records]: how many times
    over its hardest limit each request is, +inf where it failed or lacks a value.
    """

    good: BoolArray
    n: int
    good_fraction: float
    goodput_per_s: float
    span_ns: int
    attainment: tuple[Attainment, ...]
    severity: FloatArray


@dataclass(frozen=True, slots=True)
class Throughput:
    """Successful requests and their tokens per second of ``span_ns``; tokens are None when no request
    counted any. ``input_tokens`` are those that a server counted, ``input_tokens_planned`` the plan's lengths of the
    requests that none counted: an estimate, in no rate.
    """

    requests_per_s: float
    output_tokens_per_s: float | None
    input_tokens_per_s: float | None
    output_tokens: int | None
    input_tokens: int | None
    span_ns: int
    input_tokens_planned: int | None = None


def span_ns(records: Records) -> int:
    """From t0, of a phase from the first due time in it, to the last ``done`` of a measured request, in ns; 0 when none
    ended.
    """
    done = records["done_ns"][records.in_measure]
    return max(int(done.max()) - int(records.kept.get(SINCE, 0)), 0) if len(done) else 0


def per_second(count: float, span: int) -> float:
    """``count`` per second of ``span`` ns; 0 for no span."""
    return count * 1e9 / span if span > 0 else 0.0


def held(objective: Objective, records: Records) -> tuple[BoolArray, FloatArray]:
    """(met bool[n], severity float64[n]): the request succeeded and met this limit on a single request, and how many
    times over the limit it is.

    A success outside the indicator's definition (one token has no TPOT, one chunk no gap) meets it; one without the
    stamp it needs does not, for no data is not a pass. Of several gaps all must meet it. Raises ValueError for an
    objective over the run. One about other rows asks nothing of a request but to succeed.
    """
    if objective.scope != "request":
        raise ValueError(f"{objective}: is about the run; only a limit on single requests can be met by one")
    indicator = catalogue()[objective.indicator]
    upper = objective.operator in ("<=", "<")
    worst, has_value = extremes(indicator, records, upper)
    met = has_value & objective.met_by(worst)
    severity = np.where(has_value, over(objective, worst), np.inf)
    if indicator.outside is not None:
        outside = ~has_value & indicator.outside(records)
        met |= outside
        severity[outside] = 0.0
    if objective.where:
        others = ~rows_of(objective.where, records)
        met |= others
        severity[others] = 0.0
    severity[~records.ok] = np.inf
    return np.asarray(met & records.ok), severity


def over(objective: Objective, values: FloatArray) -> FloatArray:
    """float64[m]: how many times over the objective's limit each value is; at least 0, +inf for the worst of all."""
    limit = objective.threshold
    with np.errstate(divide="ignore", invalid="ignore"):
        if objective.operator in ("<=", "<"):
            found = values / limit if limit > 0 else np.where(objective.met_by(values), 0.0, np.inf)
        else:
            found = np.where(values > 0, limit / values, np.inf)
    found = np.nan_to_num(np.asarray(found), copy=False, nan=0.0, posinf=np.inf)
    return np.asarray(np.maximum(found, 0.0, out=np.asarray(found)))


def goodput(records: Records, objectives: Sequence[Objective]) -> Goodput:
    """Goodput under the limits on single requests among ``objectives``; without any, good means succeeded.

    The definition is DistServe's joint attainment, but with every request in the denominator.
    """
    measured = records.in_measure
    n = int(np.count_nonzero(measured))
    good = records.ok & measured
    attainment = []
    severity = np.where(records.ok, 0.0, np.inf)
    for objective in objectives:
        if objective.scope == "request":
            met, times = held(objective, records)
            met, severity = met & measured, np.maximum(severity, times)
            among = measured & rows_of(objective.where, records) if objective.where else measured
            attainment.append(Attainment(objective, int(np.count_nonzero(met & among)), int(np.count_nonzero(among))))
            good = good & met
    count, span = int(np.count_nonzero(good)), span_ns(records)
    return Goodput(good, n, count / n if n else 0.0, per_second(count, span), span, tuple(attainment), severity)


def throughput(records: Records) -> Throughput:
    """Requests and tokens per second of the measured requests that succeeded."""
    span = span_ns(records)
    counted = records.ok & records.in_measure
    planned = records["n_in_from"] == TokensFrom.PLAN
    out, given = _sum(records["n_out"], counted), _sum(records["n_in"], counted & ~planned)
    out_rate, in_rate = (None if total is None else per_second(total, span) for total in (out, given))
    requests = per_second(int(np.count_nonzero(counted)), span)
    return Throughput(requests, out_rate, in_rate, out, given, span, _sum(records["n_in"], counted & planned))


def _sum(values: IntArray, rows: BoolArray) -> int | None:
    """The sum of the known values of the given rows; None: there is none."""
    known = values[rows & (values >= 0)]
    return int(known.sum()) if len(known) else None
