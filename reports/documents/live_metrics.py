"""A live look as OpenMetrics 1.0 text, for Prometheus to scrape while the run goes on.

Names begin with ``plimsoll_live_``: the finished run's begin with ``plimsoll_`` and its times are summaries, and one name must
not be a histogram in one place and a summary in the other. Buckets are edges of the bins themselves, so their counts are exact;
a sum is made of the middles of the bins. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.reports.formats.openmetrics import family
from plimsoll.reports.models.live_parts import BINS_AN_OCTAVE, LiveReport
from plimsoll.reports.parts.parts import Number
from plimsoll.slo.metrics.indicator import title_of

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_EXPOSED_STAGES = ("preparing", "warm-up", "running", "draining", "over")
#: Four buckets to the octave, each 19 % wide, from 2 ** 14 ns (16 us) to 2 ** 38 ns (275 s).
_PER_OCTAVE = 4
_EDGES = range(14 * _PER_OCTAVE, 38 * _PER_OCTAVE + 1)

_Samples = list[tuple[str, dict[str, str], Number]]


def render(report: LiveReport) -> bytes:
    """The exposition, ending in ``# EOF``."""
    run = report.run
    who = {"run_id": run.id, "scenario": run.scenario}
    lines = family(
        "plimsoll_live_run",
        "info",
        "What is run.",
        [("_info", {**who, "kind": run.kind, "target": run.url, "protocol": run.protocol, "version": run.plimsoll}, 1)],
    )
    stages: _Samples = [("", {**who, "plimsoll_live_stage": one}, int(report.stage == one)) for one in _EXPOSED_STAGES]
    lines += family("plimsoll_live_stage", "stateset", "How far the run is.", stages)
    for name, text, number in (
        ("sent", "Requests sent, with those of the warm-up.", report.sent),
        ("done", "Requests that ended, with those of the warm-up.", report.done),
        ("failed", "Requests that failed, with those of the warm-up.", report.failed),
    ):
        lines += family(f"plimsoll_live_{name}", "counter", text, [("_total", who, number)])
    gauges: list[tuple[str, str, str, Number]] = [
        ("in_flight", "Requests in flight at the last look.", "", report.in_flight),
        ("planned_per_second", "Requests per second that the plan asks for now.", "", report.planned_per_s),
        ("sent_per_second", "Requests per second that are sent now.", "", report.sent_per_s),
        ("progress_ratio", "Share of the run that is over.", "", report.fraction),
        ("elapsed_seconds", "Time since the measured run began.", "seconds", report.elapsed_ns / 1e9),
    ]
    for name, text, unit, value in gauges:
        if value is not None:
            lines += family(f"plimsoll_live_{name}", "gauge", text, [("", who, value)], unit)
    lines += _exposed_objectives(report, who)
    for name, bins in report.spreads.items():
        lines += _histogram(name, bins, who)
    return ("\n".join([*lines, "# EOF"]) + "\n").encode()


def _exposed_objectives(report: LiveReport, who: Mapping[str, str]) -> list[str]:
    def of(values: Mapping[str, Number], suffix: str = "") -> _Samples:
        return [(suffix, {**who, "objective": name}, value) for name, value in values.items() if value is not None]

    parts = report.objectives
    lines = family(
        "plimsoll_live_budget_allowed_ratio",
        "gauge",
        "Share that may be bad.",
        of({p.objective: p.allowed for p in parts}),
    )
    lines += family(
        "plimsoll_live_budget_burn_rate",
        "gauge",
        "Share that is certainly bad so far over the share that may be: a lower bound.",
        of({p.objective: p.burn for p in parts}),
    )
    lines += family(
        "plimsoll_live_budget_spent_ratio",
        "gauge",
        "Part of the whole run's error budget that is certainly used: a lower bound.",
        of({p.objective: p.spent for p in parts}),
    )
    lines += family(
        "plimsoll_live_judged",
        "counter",
        "Measured requests that ended, by objective.",
        of({p.objective: p.n for p in parts}, "_total"),
    )
    return lines + family(
        "plimsoll_live_bad",
        "counter",
        "Of these, those that certainly break the objective's limit.",
        of({p.objective: p.bad for p in parts}, "_total"),
    )


def _histogram(name: str, bins: Mapping[int, int], who: Mapping[str, str]) -> list[str]:
    samples: _Samples = []
    below, keys = 0, sorted(bins)
    taken = 0
    for edge in _EDGES:
        while taken < len(keys) and keys[taken] < edge * BINS_AN_OCTAVE // _PER_OCTAVE:
            below += bins[keys[taken]]
            taken += 1
        samples.append(("_bucket", {**who, "le": f"{2.0 ** (edge / _PER_OCTAVE) * 1e-9:.6g}"}, below))
    total = sum(bins.values())
    samples.append(("_bucket", {**who, "le": "+Inf"}, total))
    samples.append(("_count", dict(who), total))
    samples.append(("_sum", dict(who), sum(_mean_ns(key) * count for key, count in bins.items()) * 1e-9))
    text = f"{title_of(name)} of measured requests that have one; the sum is within 1.1 %."
    return family(f"plimsoll_live_{name}_seconds", "histogram", text, samples, "seconds")


def _mean_ns(key: int) -> float:
    return float(2.0 ** (key / BINS_AN_OCTAVE) + 2.0 ** ((key + 1) / BINS_AN_OCTAVE)) / 2
