"""OpenMetrics 1.0 text: a report as gauges, counters and summaries, and a live look for Prometheus to scrape.

A report's names start with ``plimsoll_``, a look's with ``plimsoll_live_``: one name must not be a summary here and a
histogram there. Times are in seconds; an infinite quantile is ``+Inf``. A histogram's counts are exact, its sum is of
the middles of bins.
"""

from collections.abc import Iterable, Mapping, Sequence

from plimsoll.reports.documents.live import BINS_AN_OCTAVE, LiveReport
from plimsoll.reports.format import Format
from plimsoll.reports.parts.parts import Metric, Number
from plimsoll.reports.report import Report
from plimsoll.reports.sections.budgets import BudgetPart
from plimsoll.reports.wording.units import seconds
from plimsoll.slo.metrics.indicator import title_of

#: Of each value the suffix of its name, its labels and itself.
_Samples = list[tuple[str, dict[str, str], Number]]
_OUTCOMES = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")
_QUANTILES = (("0.5", "p50"), ("0.9", "p90"), ("0.95", "p95"), ("0.99", "p99"), ("0.999", "p99_9"), ("1.0", "max"))


def render(report: Report) -> bytes:
    """The exposition, ending in ``# EOF``."""
    lines: list[str] = []
    run = report.run
    facts = {
        "run": run.id,
        "scenario": run.scenario.name,
        "kind": run.scenario.kind,
        "target": run.target.url,
        "plan": run.plan_fingerprint,
        "version": run.plimsoll,
    }
    lines += family("plimsoll_run", "info", "What was run.", [("_info", facts, 1)])
    states: _Samples = [("", {"plimsoll_verdict": name}, int(report.verdict.outcome == name)) for name in _OUTCOMES]
    lines += family("plimsoll_verdict", "stateset", "Outcome of the run.", states)
    lines += _objectives(report)
    lines += _budgets(report.budgets)
    lines += _flow(report)
    lines += _speech(report)
    statuses: _Samples = [("_total", {"status": name}, number) for name, number in report.counts.by_status.items()]
    lines += family("plimsoll_requests", "counter", "Measured requests by how they ended.", statuses)
    for name, metric in report.metrics.items():
        lines += _summary(name, metric)
    return ("\n".join([*lines, "# EOF"]) + "\n").encode()


def _objectives(report: Report) -> list[str]:
    # One family per quantity: a family can hold one unit only, objectives have several.
    results = [(result, {"objective": result.objective}) for result in report.verdict.objectives]
    met: _Samples = [("", label, int(r.outcome == "PASS")) for r, label in results]
    n: _Samples = [("", label, r.n) for r, label in results]
    states: _Samples = [
        ("", {**label, "plimsoll_objective": name}, int(r.outcome == name))
        for r, label in results
        for name in _OUTCOMES
    ]
    lines = family("plimsoll_objective_met", "gauge", "1 when the objective is shown to be met.", met)
    lines += family("plimsoll_objective", "stateset", "Outcome of each objective.", states)
    return lines + family("plimsoll_objective_values", "gauge", "Values that an objective rests on.", n)


def _budgets(budgets: Sequence[BudgetPart]) -> list[str]:
    """What is known of each budget; a quantity that is null has no sample, because nothing is not 0."""

    def gauge(name: str, text: str, found: Iterable[tuple[dict[str, str], Number]], unit: str = "") -> list[str]:
        samples = [("", labels, value) for labels, value in found if value is not None]
        return family(f"plimsoll_budget_{name}", "gauge", text, samples, unit)

    of = [(part, {"slo": part.name}) for part in budgets]
    lines = gauge("allowed_ratio", "Share that may be bad.", ((label, part.allowed) for part, label in of))
    bad = ((label, None if part.sli is None else 1 - part.sli) for part, label in of)
    lines += gauge("bad_ratio", "Share that was bad.", bad)
    lines += gauge("burn_rate", "Bad share over the allowed one.", ((label, part.burn) for part, label in of))
    text = "Part of the period's budget that the run spends, by time."
    lines += gauge("spent_ratio", text, ((label, part.spent_by_time) for part, label in of))
    periods = ((label, part.period_ns * 1e-9) for part, label in of)
    lines += gauge("period_seconds", "Period of the budget.", periods, "seconds")
    text = "Highest burn rate over each window that the run was long enough for."
    windows = ((label, window) for part, label in of for window in part.windows if window.observable)
    burns = (({**label, "window": seconds(window.window_ns)}, window.max_burn) for label, window in windows)
    lines += gauge("window_burn_rate_max", text, burns)
    text = "1 when the alert would have fired; no sample where that was not observable."
    alerts = ((label, alert) for part, label in of for alert in part.alerts if alert.fired is not None)
    fired = (
        ({**label, "alert": alert.name, "severity": alert.severity}, int(bool(alert.fired))) for label, alert in alerts
    )
    return lines + gauge("alert_fired", text, fired)


def _flow(report: Report) -> list[str]:
    flow, validity = report.throughput, report.validity
    gauges: list[tuple[str, str, Number]] = [
        ("requests_per_second", "Requests completed per second.", flow.requests_per_s),
        ("output_tokens_per_second", "Output tokens per second.", flow.output_tokens_per_s),
        ("goodput_per_second", "Good requests per second.", flow.goodput_per_s),
        ("good_ratio", "Good requests among all measured ones.", flow.good_fraction),
        ("offered_per_second", "Requests per second that the plan asked for.", validity.offered_per_s),
        ("achieved_per_second", "Requests per second that were sent.", validity.achieved_per_s),
        ("valid", "1 when the load generator kept its promise.", int(validity.outcome == "VALID")),
    ]
    lines: list[str] = []
    for name, text, value in gauges:
        if value is not None:
            lines += family(f"plimsoll_{name}", "gauge", text, [("", {}, value)])
    return lines


def _speech(report: Report) -> list[str]:
    """Audio per second and the pooled word errors, of all sessions and by slice."""
    part = report.speech
    if part is None:
        return []
    lines: list[str] = []
    for name, way, value in (("in", "sent", part.audio_in_per_s), ("out", "received", part.audio_out_per_s)):
        if value is not None:
            text = f"Seconds of audio {way} per second of the run."
            lines += family(f"plimsoll_audio_{name}_per_second", "gauge", text, [("", {}, value)])
    if part.wer is None:
        return lines
    rates = [({"normaliser": part.normaliser}, part.wer)]
    rates += [({"normaliser": part.normaliser, "slice": one.name}, one.wer) for one in part.slices if one.name]
    ratios: _Samples = [("", label, one.rate) for label, one in rates if one.rate is not None]
    words: _Samples = [("", label, one.words) for label, one in rates]
    lines += family("plimsoll_word_error_ratio", "gauge", "Word errors per word of the references, pooled.", ratios)
    return lines + family("plimsoll_reference_words", "gauge", "Words of the references.", words)


def _summary(name: str, metric: Metric) -> list[str]:
    seconds = metric.unit == "ns"
    of = f"plimsoll_{name}_seconds" if seconds else f"plimsoll_{name}"
    scale = 1e-9 if seconds else 1.0
    samples: _Samples = [
        ("", {"quantile": q}, _scaled(getattr(metric, column), scale)) for q, column in _QUANTILES if metric.n
    ]
    samples.append(("_count", {}, metric.n))
    if metric.mean is not None:
        samples.append(("_sum", {}, metric.mean * metric.n * scale))
    return family(of, "summary", metric.title or name, samples, "seconds" if seconds else "")


def _scaled(value: Number, scale: float) -> float:
    return float("inf") if value is None else value * scale


def family(
    name: str, kind: str, text: str, samples: Iterable[tuple[str, dict[str, str], Number]], unit: str = ""
) -> list[str]:
    """The lines of one metric, none without samples."""
    rows = [f"{name}{suffix}{_labels(labels)} {_value(value)}" for suffix, labels, value in samples]
    if not rows:
        return []
    units = [f"# UNIT {name} {unit}"] if unit else []
    return [f"# TYPE {name} {kind}", *units, f"# HELP {name} {_escape(text)}", *rows]


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items()) + "}" if labels else ""


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace("\r", " ").replace('"', r"\"")


def _value(value: Number) -> str:
    if value is None or value == float("inf"):
        return "+Inf"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_EXPOSED_STAGES = ("preparing", "warm-up", "running", "draining", "over")
#: Four buckets to the octave, each 19 % wide, from 2 ** 14 ns (16 us) to 2 ** 38 ns (275 s).
_PER_OCTAVE = 4
_EDGES = range(14 * _PER_OCTAVE, 38 * _PER_OCTAVE + 1)


def live(report: LiveReport) -> bytes:
    """The exposition, ending in ``# EOF``."""
    run = report.run
    who = {"run_id": run.id, "scenario": run.scenario}
    facts = {**who, "kind": run.kind, "target": run.url, "protocol": run.protocol, "version": run.plimsoll}
    lines = family("plimsoll_live_run", "info", "What is run.", [("_info", facts, 1)])
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

    parts, lines = report.objectives, list[str]()
    for name, kind, text, samples in (
        ("budget_allowed_ratio", "gauge", "Share that may be bad.", of({p.objective: p.allowed for p in parts})),
        (
            "budget_burn_rate",
            "gauge",
            "Share that is certainly bad so far over the share that may be: a lower bound.",
            of({p.objective: p.burn for p in parts}),
        ),
        (
            "budget_spent_ratio",
            "gauge",
            "Part of the whole run's error budget that is certainly used: a lower bound.",
            of({p.objective: p.spent for p in parts}),
        ),
        (
            "judged",
            "counter",
            "Measured requests that ended, by objective.",
            of({p.objective: p.n for p in parts}, "_total"),
        ),
        (
            "bad",
            "counter",
            "Of these, those that certainly break the objective's limit.",
            of({p.objective: p.bad for p in parts}, "_total"),
        ),
    ):
        lines += family(f"plimsoll_live_{name}", kind, text, samples)
    return lines


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


FORMAT = Format("openmetrics", ".om", "OpenMetrics text, for Prometheus and what speaks it", render)
