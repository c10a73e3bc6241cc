"""OpenMetrics 1.0 text: the report as gauges, counters and summaries, to be pushed or scraped once.

Names start with ``plimsoll_``, times are in seconds. Statistics of metrics that more is better of and of
ratios are written the same way; an infinite quantile is ``+Inf``. No timestamps: the run's start is a
metric of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.reports.format import Format
from plimsoll.reports.parts.parts import Metric, Number
from plimsoll.reports.report import Report
from plimsoll.reports.sections.budgets import BudgetPart
from plimsoll.reports.wording.units import seconds

_OUTCOMES = ("PASS", "FAIL", "INCONCLUSIVE", "INVALID")
_QUANTILES = (
    ("0.5", "p50"),
    ("0.9", "p90"),
    ("0.95", "p95"),
    ("0.99", "p99"),
    ("0.999", "p99_9"),
    ("1.0", "max"),
)


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
    states: list[tuple[str, dict[str, str], Number]] = [
        ("", {"plimsoll_verdict": name}, int(report.verdict.outcome == name)) for name in _OUTCOMES
    ]
    lines += family("plimsoll_verdict", "stateset", "Outcome of the run.", states)
    lines += _objectives(report)
    lines += _budgets(report.budgets)
    lines += _flow(report)
    lines += _speech(report)
    statuses: list[tuple[str, dict[str, str], Number]] = [
        ("_total", {"status": name}, number) for name, number in report.counts.by_status.items()
    ]
    lines += family("plimsoll_requests", "counter", "Measured requests by how they ended.", statuses)
    for name, metric in report.metrics.items():
        lines += _summary(name, metric)
    return ("\n".join([*lines, "# EOF"]) + "\n").encode()


def _objectives(report: Report) -> list[str]:
    # One family per quantity: a family can hold one unit only, objectives have several.
    results = [(result, {"objective": result.objective}) for result in report.verdict.objectives]
    met: list[tuple[str, dict[str, str], Number]] = [("", label, int(r.outcome == "PASS")) for r, label in results]
    n: list[tuple[str, dict[str, str], Number]] = [("", label, r.n) for r, label in results]
    states: list[tuple[str, dict[str, str], Number]] = [
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
    lines += gauge(
        "bad_ratio", "Share that was bad.", ((label, None if p.sli is None else 1 - p.sli) for p, label in of)
    )
    lines += gauge("burn_rate", "Bad share over the allowed one.", ((label, part.burn) for part, label in of))
    lines += gauge(
        "spent_ratio",
        "Part of the period's budget that the run spends, by time.",
        ((label, p.spent_by_time) for p, label in of),
    )
    lines += gauge(
        "period_seconds", "Period of the budget.", ((label, p.period_ns * 1e-9) for p, label in of), "seconds"
    )
    lines += gauge(
        "window_burn_rate_max",
        "Highest burn rate over each window that the run was long enough for.",
        (({**label, "window": seconds(w.window_ns)}, w.max_burn) for p, label in of for w in p.windows if w.observable),
    )
    return lines + gauge(
        "alert_fired",
        "1 when the alert would have fired; no sample where that was not observable.",
        (
            (
                {**label, "alert": alert.name, "severity": alert.severity},
                None if alert.fired is None else int(alert.fired),
            )
            for part, label in of
            for alert in part.alerts
        ),
    )


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
    ratios: list[tuple[str, dict[str, str], Number]] = [
        ("", label, one.rate) for label, one in rates if one.rate is not None
    ]
    words: list[tuple[str, dict[str, str], Number]] = [("", label, one.words) for label, one in rates]
    lines += family("plimsoll_word_error_ratio", "gauge", "Word errors per word of the references, pooled.", ratios)
    return lines + family("plimsoll_reference_words", "gauge", "Words of the references.", words)


def _summary(name: str, metric: Metric) -> list[str]:
    seconds = metric.unit == "ns"
    of = f"plimsoll_{name}_seconds" if seconds else f"plimsoll_{name}"
    scale = 1e-9 if seconds else 1.0
    samples: list[tuple[str, dict[str, str], Number]] = [
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
    """The lines of one metric: ``samples`` are the suffix of its name, its labels and the value; none without samples."""
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


FORMAT = Format("openmetrics", ".om", "OpenMetrics text, for Prometheus and what speaks it", render)
