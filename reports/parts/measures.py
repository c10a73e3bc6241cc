"""Records to metrics, curves, histograms: every indicator measured once, and asked for its ranks.

A billion token gaps fit, because values of lists are counted and never held. Nothing is judged here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from plimsoll.reports.parts.charts import Curve, Distribution, curve, curve_ranks, distribution, number
from plimsoll.reports.parts.parts import LowEnd, Metric, Number, Statistics
from plimsoll.slo.metrics.indicator import Indicator, catalogue, in_order, measure, successes
from plimsoll.slo.metrics.plugin import PluginError
from plimsoll.slo.parts.asked import Asked
from plimsoll.slo.parts.evidence import Rows
from plimsoll.slo.parts.judge_parts import judgeable
from plimsoll.slo.records.records import FloatArray, IntArray, Records
from plimsoll.slo.statistics.distribution import DEFAULT_HDR, encode, hdr_counts, nearest
from plimsoll.slo.statistics.order import Folded, Ordered

#: What is waited for in live speech, where the latency is mostly the time that somebody spoke. The first one that a run
#: has is drawn where other runs draw the time to first token.
LIVE = ("voice_to_voice", "first_partial", "finalization")
#: The same of speech that is made: what a listener waits.
HEARD = ("first_audio_perceived",)
_LOW = MappingProxyType({"p10": "0.1", "p5": "0.05", "p1": "0.01", "p0_1": "0.001"})
_SHARES = MappingProxyType({"p50": "0.5", "p90": "0.9", "p95": "0.95", "p99": "0.99", "p99_9": "0.999"})


@dataclass(frozen=True, slots=True)
class Measures:
    """All that comes from values: ``banded`` holds, by name, the values, rows and unit that the timeline needs.
    ``notes``: which metrics of outside packages failed.
    """

    metrics: Mapping[str, Metric]
    curves: Mapping[str, Curve]
    distributions: Mapping[str, Distribution]
    histograms: Mapping[str, str]
    banded: Mapping[str, tuple[FloatArray, IntArray, str]]
    notes: tuple[str, ...] = ()


def measures(records: Records, wanted: frozenset[str] = frozenset()) -> Measures:
    """Measure every indicator of the catalogue. One with no value at all is left out unless it is in ``wanted``."""
    metrics: dict[str, Metric] = {}
    curves: dict[str, Curve] = {}
    distributions: dict[str, Distribution] = {}
    histograms: dict[str, str] = {}
    banded: dict[str, tuple[FloatArray, IntArray, str]] = {}
    notes: list[str] = []
    known = catalogue()
    for name in in_order({*known, *(one for one in wanted if one in known)}):
        indicator = known[name]
        try:
            found = measure(indicator, records)
        except PluginError as error:  # where an objective names it, there was no verdict
            notes.append(f"{name} has no value: {error}")
            continue
        if found.n == 0:
            if name in wanted:
                metrics[name] = _metric(indicator, np.empty(0), found.missing, 0, None)
            continue
        ordered, of_ok = found.ranked, None
        if indicator.chart:  # all ranks in one pass
            ordered[np.concatenate([_ranks(found.n, indicator), curve_ranks(ordered) - 1])]
        if found.failed:
            alone = successes(indicator, records, found)
            of_ok = _statistics(ordered if alone is None else alone.ranked, indicator)
        if indicator.drawn:
            banded[name] = (found.values, found.row, indicator.unit)
        metrics[name] = _metric(indicator, ordered, found.missing, found.failed, of_ok)
        if indicator.chart:
            curves[name] = curve(ordered, indicator.unit)
        if indicator.drawn:
            distributions[name] = distribution(ordered, indicator.unit)
        if indicator.unit == "ns":
            histograms[name] = _histogram(ordered)
    if "ttft" in banded or any(name in banded for name in LIVE):
        banded.pop("latency", None)
    return Measures(metrics, curves, distributions, histograms, banded, tuple(notes))


def of_group(records: Records, names: Sequence[str]) -> dict[str, Metric]:
    """These metrics of some rows of a run that has them; one without a value here is left out."""
    found, known = dict[str, Metric](), catalogue()
    for name in names:
        indicator = known[name]
        values = measure(indicator, records, judged=True)
        if values.n:
            alone = successes(indicator, records, values) if values.failed else None
            of_ok = _statistics((alone or values).ranked, indicator) if values.failed else None
            found[name] = _metric(indicator, values.ranked, values.missing, values.failed, of_ok)
    return found


def of_parts(rows: Rows, wanted: frozenset[str]) -> tuple[dict[str, Metric], dict[str, str], dict[str, Distribution]]:
    """Metrics and histograms of rows that lie in parts. One that parts can't tell of is left out."""
    metrics, histograms, known = dict[str, Metric](), dict[str, str](), catalogue()
    distributions: dict[str, Distribution] = {}
    for name in (one for one in in_order({*known, *(one for one in wanted if one in known)}) if judgeable(one)):
        indicator, found = known[name], rows.measured(name, judged=False)
        if not found.n and name not in wanted:
            continue
        alone = rows.alone(found, name) if found.failed else None
        of_ok = _statistics((alone or found).ordered, indicator) if found.failed else None
        metrics[name] = _metric(indicator, found.ordered, found.missing, found.failed, of_ok)
        if indicator.unit == "ns" and found.n:
            histograms[name] = _histogram(found.ordered)
        if indicator.drawn and found.n:
            distributions[name] = distribution(found.ordered, indicator.unit)
    return metrics, histograms, distributions


def _metric(indicator: Indicator, ordered: Ordered, missing: int, failed: int, of_ok: Statistics | None) -> Metric:
    return Metric(
        unit=indicator.unit,
        missing=missing,
        failed=failed,
        title=indicator.title,
        better=indicator.better,
        of_ok=of_ok,
        **_summary(ordered, indicator),
    )


def _statistics(ordered: Ordered, indicator: Indicator) -> Statistics | None:
    return Statistics(**_summary(ordered, indicator)) if len(ordered) else None


def _summary(ordered: Ordered, indicator: Indicator) -> dict[str, Any]:
    """Mean, extremes and nearest-rank percentiles of ascending values, as ``report.json`` writes them."""
    if len(ordered) == 0:
        return {"n": 0}
    unit = indicator.unit
    names = (*_SHARES, *_LOW, "min", "max") if indicator.better == "higher" else (*_SHARES, "min", "max")
    values = ordered[_ranks(len(ordered), indicator)].tolist()
    result: dict[str, Number] = {name: number(one, unit) for name, one in zip(names, values, strict=True)}
    low = LowEnd(**{name: result.pop(name) for name in _LOW}) if indicator.better == "higher" else None
    return {"n": len(ordered), "low": low, "mean": number(float(ordered.mean()), unit), **result}


def _ranks(n: int, indicator: Indicator) -> IntArray:
    """Which of n ascending values the summary shows, from 0."""
    shares = (*_SHARES.values(), *_LOW.values()) if indicator.better == "higher" else _SHARES.values()
    return np.array([*nearest(n, shares), 0, n - 1])


def _histogram(ordered: Ordered) -> str:
    """The finite values as an encoded HdrHistogram."""
    finite = int(ordered.searchsorted(np.inf))
    if not isinstance(ordered, Folded | Asked):
        return encode(hdr_counts(ordered[:finite])[0])
    counts = ordered.counts.copy()  # of buckets that those of the histogram are made of
    counts[-1:] -= len(ordered) - finite
    places = DEFAULT_HDR.index(np.clip(ordered.lows, 0, DEFAULT_HDR.highest).astype(np.int64))
    return encode(np.bincount(places, counts, DEFAULT_HDR.counts_len).astype(np.int64))
