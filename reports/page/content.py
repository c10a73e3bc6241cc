"""The page's content as strings and pictures, ready for a template that only places them.

Everything here is plain text (escaped later by the template) or ``Markup`` that ``plimsoll.reports.svg`` made.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from plimsoll.reports.page.anatomy_panel import anatomy_panel
from plimsoll.reports.page.budget import budget_panels, budget_rows
from plimsoll.reports.page.failures_panel import failure_blocks
from plimsoll.reports.page.peers_panel import peer_rows
from plimsoll.reports.page.pictures import ENOUGH, curve_charts, distribution_charts, lag_chart, timeline_charts
from plimsoll.reports.page.slowest_panel import slowest_groups, slowest_note
from plimsoll.reports.page.speech_panel import speech_panel
from plimsoll.reports.page.spread import heat_chart, prompt_chart
from plimsoll.reports.page.validity import check_rows, merged_sentence, steadiness_panel
from plimsoll.reports.parts.parts import Attainment, Metric, ObjectiveResult
from plimsoll.reports.report import Report
from plimsoll.reports.sections import attempts
from plimsoll.reports.sections.measures import LIVE
from plimsoll.reports.sentences import words
from plimsoll.reports.svg.whisker import whisker
from plimsoll.reports.wording import units

_TILES = MappingProxyType(
    {
        "first_partial": "First partial p99",
        "finalization": "Finalization p99",
        "voice_to_voice": "Voice to voice p99",
        "first_audio_perceived": "First audible p99",
        "ttft": "TTFT p99",
        "latency": "Latency p99",
        "tpot": "TPOT p99",
    }
)
_MEAN = (("mean", "mean"),)


def content(report: Report) -> dict[str, Any]:
    """Everything the template names."""
    return {
        "run": report.run,
        "word": words.outcome(report),
        "title": report.run.scenario.name or report.run.id or "Load test",
        "started": _started(report.run.started_at),
        "headline": words.headline(report),
        "attempts": attempts.said(report.attempts),
        "meta": _meta(report),
        "problems": report.validity.reasons if report.validity.outcome == "INVALID" else [],
        "objectives": [_objective(result) for result in report.verdict.objectives],
        "bounds_note": words.bounds_note(report) if words.bounded(report) or report.budgets else "",
        "columns": {1: 1, 2: 2, 4: 2}.get(len(report.verdict.objectives), 3),
        "answers": [] if report.accuracy is None else words.answers(report.accuracy),
        "answered": "" if report.accuracy is None else words.answered(report.accuracy),
        "attainments": [_attainment(part) for part in report.verdict.request_objectives],
        "tiles": _tiles(report),
        "warnings": report.warnings,
        "curves": curve_charts(report),
        "distributions": distribution_charts(report),
        "silence": _silence(report),
        "timeline": timeline_charts(report),
        "timeline_note": _timeline_note(report),
        "metrics": [_metrics(table) for table in words.metric_tables(report)],
        "own_error": words.own_error(report),
        "definition": f"Percentiles: {report.percentile_definition}.",
        "statuses": [
            {"name": name, "count": units.count(number)} for name, number in report.counts.by_status.items() if number
        ],
        "other_failures": _other_failures(report),
        "validity": report.validity,
        "health": words.health(report.validity),
        "checks": check_rows(report.validity),
        "merged": merged_sentence(report.validity.merged_chunks),
        "steadiness": steadiness_panel(report.steadiness),
        "asked_budgets": budget_panels([part for part in report.budgets if words.names_its_period(part.objective)]),
        **_further_budgets(report),
        "peers": peer_rows(report.peers),
        "heat": heat_chart(report),
        "by_prompt": prompt_chart(report),
        "failure_blocks": failure_blocks(report),
        **_panels(report),
        "generator": _generator(report),
        "lag": lag_chart(report),
        "facts": _facts(report),
        "footer": f"Plimsoll {report.run.plimsoll}".strip() + f" · {report.schema_} · "
        "times start when a request was due, not when it was sent",
    }


def _further_budgets(report: Report) -> dict[str, Any]:
    """Budgets that nobody asked for: of a period that is the usual one and not the objective's own."""
    further = [part for part in report.budgets if not words.names_its_period(part.objective)]
    return {"budgets": budget_panels(further), "budget_rows": budget_rows(further)}


def _panels(report: Report) -> dict[str, Any]:
    """What a run may have or not."""
    return {
        "anatomy": anatomy_panel(report.anatomy),
        "speech": speech_panel(report.speech, report.confidence),
        "slowest": slowest_groups(report),
        "slowest_note": slowest_note(report),
    }


def _started(text: str) -> str:
    return text.replace("T", " ").replace("+00:00", " UTC").removesuffix("Z").partition(".")[0] if text else ""


def _meta(report: Report) -> list[str]:
    run = report.run
    items = [run.scenario.kind, run.target.url, run.target.protocol]
    if report.throughput.span_ns:
        items.append(f"{units.duration(report.throughput.span_ns)} of load")
    if run.seed is not None:
        items.append(f"seed {run.seed}")
    return [line for line in [run.scenario.description, " · ".join(item for item in items if item)] if line]


def _objective(result: ObjectiveResult) -> dict[str, Any]:
    limit = units.limit(result.threshold, result.unit) if result.threshold is not None else units.NOTHING
    sign = words.expression(result.operator)
    seen = words.interval(result)
    fine = "judged as observed" if seen == words.AS_OBSERVED else "" if seen == words.LOST else f"bounds {seen}"
    return {
        "expression": words.expression(result.objective),
        "title": result.title,
        "outcome": result.outcome,
        "observed": words.observed(result),
        "against": f"limit {sign} {limit}",
        "picture": whisker(result),
        "said": words.sentence(words.explain(result)),
        "fine": fine if result.n else "",
    }


def _attainment(part: Attainment) -> dict[str, Any]:
    share = part.attainment
    return {
        "expression": words.expression(part.objective),
        "met": units.count(part.met),
        "n": units.count(part.n),
        "share": units.NOTHING if share is None else units.percent(share),
    }


def _tile(name: str, value: str, more: str = "", bad: bool = False) -> dict[str, str]:
    number, _, unit = value.partition(" ")
    if not unit and number.endswith("/s"):
        number, unit = number[:-2], "/s"
    return {"name": name, "value": number, "unit": unit, "more": more, "class": "bad" if bad else ""}


def _tiles(report: Report) -> list[dict[str, str]]:
    flow, counts = report.throughput, report.counts
    total = counts.ok + counts.failed
    done = units.count(counts.ok) if counts.ok == total else f"{units.count(counts.ok)} of {units.count(total)}"
    tiles = [_tile("Completed", units.rate(flow.requests_per_s), f"{done} {'request' if total == 1 else 'requests'}")]
    if flow.goodput_per_s is not None and report.verdict.request_objectives:
        share = "" if flow.good_fraction is None else f"{units.percent(flow.good_fraction)} good"
        tiles.append(_tile("Goodput", units.rate(flow.goodput_per_s), share))
    live = any(name in report.metrics and report.metrics[name].n for name in LIVE)
    for name, title in _TILES.items():
        metric = report.metrics.get(name)
        if metric is not None and metric.n and not (live and name == "latency"):
            middle = f"p50 {units.human(metric.p50, metric.unit)}"
            tiles.append(_tile(title, units.human(metric.p99, metric.unit), middle, metric.p99 is None))
    if flow.output_tokens_per_s:
        tokens = "" if flow.output_tokens is None else units.many(flow.output_tokens, "token")
        tiles.append(_tile("Output tokens", units.rate(flow.output_tokens_per_s), tokens))
    share = units.percent(counts.failed / total, 3) if total else units.NOTHING
    tiles.append(_tile("Failed", share, units.many(counts.failed, "request"), counts.failed > 0))
    return tiles


def _timeline_note(report: Report) -> str:
    timeline = report.charts.timeline
    if timeline is None:
        return ""
    return (
        f"Buckets of {units.seconds(timeline.bucket_ns)}. Latencies are put where the request was due. "
        "A cross marks errors, or a bucket whose p99 is a failed request. Warm-up is not shown."
    )


def _silence(report: Report) -> str:
    """Why there are no latency charts, when there are none."""
    counts = report.counts
    if counts.ok == 0:
        return "No request succeeded, so there is no latency to draw." if counts.failed else "No request was measured."
    if counts.ok + counts.failed < ENOUGH:
        return "Too few requests to draw: the numbers are below."
    return ""


def _metrics(table: words.MetricTable) -> dict[str, Any]:
    columns = (*table.columns, *_MEAN)
    rows = [_metric(name, metric, columns) for name, metric in table.metrics.items()]
    return {"title": table.title, "heads": [head for _, head in columns], "rows": rows}


def _metric(name: str, metric: Metric, columns: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    some = metric.of_ok if metric.failed and metric.of_ok is not None and metric.of_ok.n else None
    return {
        "name": name,
        "title": metric.title or name,
        "n": units.count(metric.n),
        "values": [words.cell(metric, metric.unit, key) for key, _ in columns],
        "of_ok": [] if some is None else [words.cell(some, metric.unit, key) for key, _ in columns],
        "ok_n": "" if some is None else units.count(some.n),
    }


def _other_failures(report: Report) -> str:
    other = report.failures.other
    return f"{units.many(other, 'more failure')} of other kinds." if other else ""


def _generator(report: Report) -> str:
    """The generator's own numbers, beyond the line on its health."""
    seen = report.validity
    facts = []
    own = seen.generator_lag_ns
    if own.p99 is not None and own.max is not None:
        facts.append(f"own lateness p99 {units.duration(own.p99)}, max {units.duration(own.max)}")
    if seen.arrivals is not None and seen.arrivals.dispersion_planned is not None:
        sent = seen.arrivals.dispersion_sent
        shown = units.NOTHING if sent is None else f"{sent:.2f}"
        facts.append(f"index of dispersion {shown} sent, {seen.arrivals.dispersion_planned:.2f} planned")
    if seen.arrivals is not None and seen.arrivals.ks_p is not None:
        facts.append(f"Kolmogorov-Smirnov p = {seen.arrivals.ks_p:.2g} against Poisson")
    if seen.loop_stall_count:
        stalls = units.many(seen.loop_stall_count, "stall")
        facts.append(f"{stalls} of the event loop, at most {units.duration(seen.loop_stall_max_ns)}")
    if seen.worker_cpu:
        facts.append(f"busiest worker {units.percent(max(seen.worker_cpu), 3)} of a core")
    if seen.stamp == "mixed":
        facts.append(f"{units.percent(seen.kernel_share)} of answers stamped by the kernel")
    return words.sentence("; ".join(facts))


def _facts(report: Report) -> list[tuple[str, str]]:
    run = report.run
    facts = [
        ("Run", run.id),
        ("Started", run.started_at),
        ("Plimsoll", run.plimsoll),
        ("Scenario", " · ".join(part for part in (run.scenario.name, run.scenario.kind) if part)),
        ("Target", " · ".join(part for part in (run.target.url, run.target.protocol) if part)),
        ("Seed", "" if run.seed is None else str(run.seed)),
        ("Plan fingerprint", run.plan_fingerprint),
        ("Workers", "" if run.workers is None else str(run.workers)),
        ("Host timer", words.host_timer(run.timer)),
        ("Run directory", run.directory),
        ("Arrival stamps", report.validity.stamp),
        ("Confidence", f"{units.percent(report.confidence)} of each bound, one-sided"),
        ("Warm-up requests, not measured", units.count(report.counts.warmup) if report.counts.warmup else ""),
        *((name.replace("_", " "), value) for name, value in run.host.items()),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in run.libraries.items())),
    ]
    return [(name, value) for name, value in facts if value]
