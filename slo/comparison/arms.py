"""Arms of a comparison: each run as a few numbers, each arm as its runs.

The unit of replication is the run, not the request: placement, clocks, caches and neighbours differ between runs, and no
number of requests in one run shows by how much. So a run enters a comparison as one value per quantity. Nothing is
compared here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from plimsoll.slo.comparison.one_run import Within
from plimsoll.slo.comparison.quantity import Quantity
from plimsoll.slo.metrics.indicator import Measured, catalogue, measure
from plimsoll.slo.objectives.goodput import Goodput, against, goodput, throughput
from plimsoll.slo.objectives.objective import Objective
from plimsoll.slo.records.records import FloatArray, Records
from plimsoll.slo.statistics import share
from plimsoll.slo.statistics.distribution import quantile
from plimsoll.slo.validity.validity import Validity

#: Quantiles of a profile: dense at both ends, the same for every run, so that profiles can be laid over each other.
PROFILE_Q: tuple[float, ...] = tuple(
    sorted(
        {*np.round(1 - np.power(10.0, -np.linspace(0.0045, 6, 150)), 9).tolist(), 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999}
    )
)
_NO_PROFILES: Mapping[str, tuple[float, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reading:
    """One quantity of one run.

    ``value`` in the quantity's unit; +inf (0, where more is better) when failures reach it, NaN for no data. ``n`` values,
    ``failed`` of them a failure's. ``within``: None when the run's own spread was not kept.
    """

    value: float
    n: int
    failed: int = 0
    within: Within | None = None


@dataclass(frozen=True, slots=True)
class RunSample:
    """One run of an arm.

    ``pair``: runs of two arms with the same pair number ran next to each other under one schedule; None when not.
    ``reasons``: why the run is INVALID, empty when it is not. ``unstable``: why the endpoint did not keep up, else None.
    ``plan``: fingerprint of the schedule, "" when unknown. ``requests``, ``failed``: of the measured phase.
    ``profiles``: by indicator, its value at each of ``PROFILE_Q`` (NaN where the run is too short for it).
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
) -> RunSample:
    """One run as what a comparison needs of it.

    ``objectives``: limits on single requests say what ``good`` means. ``within``: keep each quantity's values; only a
    comparison of one run with one run looks at them.
    """
    good = goodput(records, objectives)
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
        # One indicator at a time, measured and sorted once: a run may hold 50 million gaps.
        measured = measure(catalogue()[name], records)
        ordered = np.sort(measured.values)
        for quantity in wanted:
            readings[str(quantity)] = _statistic(quantity, measured, ordered, along)
        profiles[name] = _profile(ordered)
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
        profiles=MappingProxyType(profiles),
    )


def _statistic(quantity: Quantity, measured: Measured, ordered: FloatArray, along: share.Course | None) -> Reading:
    if len(ordered) == 0:
        return Reading(float("nan"), 0)
    if quantity.quantile is not None:
        value = quantile(ordered, quantity.quantile)
    else:
        picks = {"max": ordered[-1], "min": ordered[0], "mean": ordered.mean()}
        value = float(picks[quantity.statistic])
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
    due = np.argsort(records["due_ns"][row], kind="stable")
    spread = Within(np.empty(0), share.counted(fell[due]).design, bad, n) if within else None
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


def _profile(ordered: FloatArray) -> tuple[float, ...]:
    n = len(ordered)
    return tuple(quantile(ordered, round(q, 9)) if n and q <= 1 - 1 / n else float("nan") for q in PROFILE_Q)
