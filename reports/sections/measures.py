"""Records to metrics, curves, histograms: every indicator measured once, its values sorted once, then let
go.

Fifty million token gaps fit because only one indicator's values are in memory at a time. Nothing is judged
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from plimsoll.reports.parts.chart_parts import Curve, Distribution
from plimsoll.reports.parts.parts import LowEnd, Metric, Number, Statistics
from plimsoll.reports.sections.chart_data import curve, distribution, number
from plimsoll.slo.metrics.indicator import Indicator, catalogue, measure, of_successes
from plimsoll.slo.records.records import FloatArray, IntArray, Records
from plimsoll.slo.statistics.distribution import DEFAULT_HDR, encode, hdr_counts, merge, quantile

#: Order in every report; others follow by name.
ORDER = ("ttft", "ttft_answer", "tpot", "itl", "e2e", "latency", "service_time", "ttfb")
SPEECH = (
    *("session_ready", "first_partial", "first_partial_from_stream_start", "first_partial_after_speech_end"),
    *("word_emission", "transcript_lag", "lag_slope", "endpointing", "false_endpoints", "finalization"),
    *(
        "first_final_after_speech_end",
        "voice_to_voice",
        "first_audio",
        "first_audio_perceived",
        "first_audio_from_text_end",
    ),
    *("stall_ratio", "longest_stall", "playback_stalls", "startup_delay", "audio_per_second", "rtf", "rtfx", "wer"),
    "partial_churn",
)
LAST = ("audio_frame_lag", "output_rate", "output_tokens", "lag", "generator_lag", "connect", "error")

#: What is waited for in live speech, where the latency is mostly the time that somebody spoke. The first one that a run
#: has is drawn where other runs draw the time to first token.
LIVE = ("voice_to_voice", "first_partial", "finalization")
#: The same of speech that is made: what a listener waits.
HEARD = ("first_audio_perceived",)
_DRAWN = ("ttft", "tpot", "latency", *LIVE, *HEARD)
_CURVES = (*_DRAWN, "itl", "service_time", "word_emission", "first_audio")
_TITLES = MappingProxyType(
    {
        "ttft": "Time to first token",
        "ttft_answer": "Time to first answer token",
        "tpot": "Time per output token",
        "itl": "Inter-token latency",
        "e2e": "Time to last token",
        "latency": "Latency",
        "service_time": "Service time",
        "ttfb": "Time to first byte",
        "output_rate": "Tokens per second of a request",
        "output_tokens": "Output tokens of a request",
        "lag": "Schedule lag",
        "generator_lag": "Generator lag",
        "connect": "Connection set-up",
        "error": "Error",
        "session_ready": "Time to a ready session",
        "first_partial": "Time to first partial",
        "first_partial_from_stream_start": "First partial from stream start",
        "first_partial_after_speech_end": "First partial after speech end",
        "word_emission": "Word emission latency",
        "finalization": "Finalization latency",
        "first_final_after_speech_end": "First final after speech end",
        "endpointing": "Endpointing delay",
        "false_endpoints": "False endpoints",
        "transcript_lag": "Transcript lag",
        "lag_slope": "Slope of the transcript lag",
        "voice_to_voice": "Voice to voice",
        "first_audio": "Time to first audio",
        "first_audio_from_text_end": "First audio from text end",
        "first_audio_perceived": "Time to first audible audio",
        "stall_ratio": "Stalled share of playing time",
        "longest_stall": "Longest stall",
        "playback_stalls": "Stalls",
        "startup_delay": "Required start-up delay",
        "audio_per_second": "Audio per second of a request",
        "rtf": "Real-time factor",
        "rtfx": "Inverse real-time factor",
        "wer": "Word error rate of a request",
        "partial_churn": "Rewritten words per word",
        "audio_frame_lag": "Lag of audio frames",
    }
)
_LOW = MappingProxyType({"p10": "0.1", "p5": "0.05", "p1": "0.01", "p0_1": "0.001"})
_SLAB = 4_000_000


@dataclass(frozen=True, slots=True)
class Measures:
    """All that comes from values: ``banded`` holds, by name, the values, rows and unit that the timeline
    needs.
    """

    metrics: Mapping[str, Metric]
    curves: Mapping[str, Curve]
    distributions: Mapping[str, Distribution]
    histograms: Mapping[str, str]
    banded: Mapping[str, tuple[FloatArray, IntArray, str]]


def measures(records: Records, wanted: frozenset[str] = frozenset()) -> Measures:
    """Measure every indicator of the catalogue. One with no value at all is left out unless it is in
    ``wanted``.
    """
    metrics: dict[str, Metric] = {}
    curves: dict[str, Curve] = {}
    distributions: dict[str, Distribution] = {}
    histograms: dict[str, str] = {}
    banded: dict[str, tuple[FloatArray, IntArray, str]] = {}
    for name, indicator in _ordered(catalogue()):
        found = measure(indicator, records)
        if found.n == 0:
            if name in wanted:
                metrics[name] = _metric(indicator, np.empty(0), found.missing, 0, None)
            continue
        values, row = found.values, found.row
        missing, failed = found.missing, found.failed
        of_ok = _statistics(np.sort(values[of_successes(indicator, records, found)]), indicator) if failed else None
        del found
        if name in _DRAWN:
            banded[name] = (values, row, indicator.unit)
        del row
        ordered = np.sort(values)
        del values
        metrics[name] = _metric(indicator, ordered, missing, failed, of_ok)
        if name in _CURVES:
            curves[name] = curve(ordered, indicator.unit)
        if name in _DRAWN:
            distributions[name] = distribution(ordered, indicator.unit)
        if indicator.unit == "ns":
            histograms[name] = _histogram(ordered)
    if "ttft" in banded or any(name in banded for name in LIVE):
        banded.pop("latency", None)
    return Measures(metrics, curves, distributions, histograms, banded)


def _ordered(known: Mapping[str, Indicator]) -> list[tuple[str, Indicator]]:
    first = [name for name in (*ORDER, *SPEECH) if name in known]
    last = [name for name in LAST if name in known]
    middle = sorted(known.keys() - set(first) - set(last))
    return [(name, known[name]) for name in (*first, *middle, *last)]


def title(name: str) -> str:
    """What people call an indicator."""
    return _TITLES.get(name, name.replace("_", " ").capitalize())


def _metric(indicator: Indicator, ordered: FloatArray, missing: int, failed: int, of_ok: Statistics | None) -> Metric:
    return Metric(
        unit=indicator.unit,
        missing=missing,
        failed=failed,
        title=title(indicator.name),
        better=indicator.better,
        of_ok=of_ok,
        **_summary(ordered, indicator),
    )


def _statistics(ordered: FloatArray, indicator: Indicator) -> Statistics | None:
    return Statistics(**_summary(ordered, indicator)) if len(ordered) else None


def _summary(ordered: FloatArray, indicator: Indicator) -> dict[str, Any]:
    """Mean, extremes and nearest-rank percentiles of ascending values, as ``report.json`` writes them."""
    if len(ordered) == 0:
        return {"n": 0}
    unit = indicator.unit
    shares = {"p50": "0.5", "p90": "0.9", "p95": "0.95", "p99": "0.99", "p99_9": "0.999"}
    result: dict[str, Number] = {name: number(quantile(ordered, share), unit) for name, share in shares.items()}
    result["mean"] = number(float(ordered.mean()), unit)
    result["min"], result["max"] = number(float(ordered[0]), unit), number(float(ordered[-1]), unit)
    low = None
    if indicator.better == "higher":
        low = LowEnd(**{name: number(quantile(ordered, share), unit) for name, share in _LOW.items()})
    return {"n": len(ordered), "low": low, **result}


def _histogram(ordered: FloatArray) -> str:
    """The finite values as an encoded HdrHistogram; counted in slabs, because the index needs much scratch
    room.
    """
    finite = ordered[: int(np.searchsorted(ordered, np.inf, side="left"))]
    parts = [hdr_counts(finite[first : first + _SLAB])[0] for first in range(0, max(len(finite), 1), _SLAB)]
    return encode(merge(parts), DEFAULT_HDR)
