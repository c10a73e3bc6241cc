"""The page's content as strings and pictures, ready for a template that only places them.

Everything here is plain text (escaped later by the template) or ``Markup`` that ``plimsoll.reports.svg`` made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from plimsoll.reports.page.budget import budget_panels, budget_rows
from plimsoll.reports.page.pictures import (
    ENOUGH,
    curve_charts,
    distribution_charts,
    heat_chart,
    lag_chart,
    prompt_chart,
    timeline_charts,
)
from plimsoll.reports.parts.parts import Attainment, MergedChunks, Metric, Number, ObjectiveResult, Validity
from plimsoll.reports.report import Report
from plimsoll.reports.sections import attempts
from plimsoll.reports.sections.anatomy import HELD, REST, Anatomy, LatencyBand, heads, note, rows
from plimsoll.reports.sections.failures import FailureKind, Failures
from plimsoll.reports.sections.measures import LIVE
from plimsoll.reports.sections.peers import Peer
from plimsoll.reports.sections.slowest import STAGES, SlowRequest
from plimsoll.reports.sections.speech import Speech, facts, tables
from plimsoll.reports.sections.steadiness import Drift, Proposal, SteadinessPart
from plimsoll.reports.sentences import words
from plimsoll.reports.svg.bars import Bar, between, canvas_for, describe, waterfall, whisker
from plimsoll.reports.svg.ink import element, join, line
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, svg
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


def check_rows(validity: Validity) -> list[dict[str, Any]]:
    """Every check, the broken ones first."""
    ordered = sorted(validity.checks, key=lambda check: check.ok)
    return [{"name": check.name, "ok": check.ok, "seen": check.detail or check.seen} for check in ordered]


def merged_sentence(merged: MergedChunks) -> str:
    """How many chunks carry the time of another one; empty where none does."""
    if not merged.count:
        return ""
    late = (
        ""
        if merged.uncertainty_p99_ns is None
        else f", at most {units.duration(merged.uncertainty_p99_ns)} too late (p99)"
    )
    return (
        f"{units.many(merged.count, 'chunk')} ({units.percent(merged.share, 3)}) came in one read with a later one and "
        f"carry its time{late}."
    )


def steadiness_panel(part: SteadinessPart | None) -> dict[str, Any] | None:
    """Warm-up, drift and steady stretch in words; None where nothing was looked at."""
    if part is None:
        return None
    return {
        "notes": [words.sentence(note) for note in part.notes],
        "facts": [*_warmup(part.warmup), *_stretch(part)],
        "drift": [_drift(drift) for drift in part.drift],
        "metric": part.metric,
        "windows": max(len(part.edges_ns) - 1, 0),
    }


def _warmup(found: Proposal | None) -> list[tuple[str, str]]:
    if found is None:
        return [("Warm-up", "not judged: fewer than 100 values")]
    if found.incident:
        return [("Warm-up", f"none to leave out: {found.incident}")]
    if found.too_short:
        return [("Warm-up", "may be longer than half of the run")]
    if not found.proposed:
        return [("Warm-up", "none to leave out")]
    levels = ""
    if found.before_ns is not None and found.after_ns is not None:
        levels = f"; median {units.duration(found.before_ns)} before, {units.duration(found.after_ns)} after"
    return [
        (
            "Warm-up (MSER-5)",
            f"the first {units.duration(found.until_ns)}, {units.many(found.drop, 'request')}{levels}",
        ),
        ("Left out of the numbers", "nothing: the cut is a proposal"),
    ]


def _stretch(part: SteadinessPart) -> list[tuple[str, str]]:
    found = part.steady
    if found is None:
        return []
    if found.since_ns is None or found.until_ns is None:
        flat = (
            found.verdict == "not_found" and bool(part.drift) and all(drift.direction == "none" for drift in part.drift)
        )
        levels = "none covers half of the run: its levels move up and down, with no trend either way"
        return [("Steady stretch", levels if flat else found.verdict.replace("_", " "))]
    span = (
        f"{units.duration(found.since_ns)} to {units.duration(found.until_ns)}"
        if found.since_ns
        else (f"0 s to {units.duration(found.until_ns)}")
    )
    return [("Steady stretch", f"{found.verdict.replace('_', ' ')}, {span}")]


def _drift(drift: Drift) -> dict[str, str]:
    change = "" if drift.change is None or drift.direction == "none" else f" by {units.percent(abs(drift.change), 2)}"
    words_of = {"up": "rises", "down": "falls", "none": "no trend"}
    shift = units.NOTHING if drift.shift_at_ns is None else f"at {units.duration(drift.shift_at_ns)}"
    return {
        "percentile": drift.percentile,
        "trend": words_of[drift.direction] + change,
        "p": _probability(drift.p),
        "shift": shift,
        "low": _extreme(drift.value_ns, least=True),
        "high": _extreme(drift.value_ns, least=False),
    }


def _extreme(values: Sequence[int | float | None], least: bool) -> str:
    known = [float("inf") if value is None else float(value) for value in values]
    if not known:
        return units.NOTHING
    value = min(known) if least else max(known)
    return units.INFINITE if value == float("inf") else units.duration(value)


def _probability(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


_SPARK = Canvas(240, 34, left=0, right=0)


def failure_blocks(report: Report) -> list[dict[str, Any]]:
    """What the template places for each kind."""
    return [_failure_block(kind, report) for kind in report.failures.kinds]


def _failure_block(kind: FailureKind, report: Report) -> dict[str, Any]:
    return {
        "name": words.kind_name(kind),
        "text": kind.text or "no error text",
        "variants": words.variants(kind),
        "count": units.count(kind.count),
        "share": units.percent(kind.share, 3),
        "spark": _spark(kind, report.failures),
        "facts": _failure_facts(kind, report.slowest.ids_sent),
    }


def _failure_facts(kind: FailureKind, ids_sent: bool) -> list[tuple[str, str]]:
    first, last = _failure_moment(kind.first_ns), _failure_moment(kind.last_ns)
    facts = [("When", f"at {first}" if kind.count == 1 else f"{first} to {last}")]
    if kind.until_ns is not None:
        wait = kind.until_ns
        spread = units.duration(wait.p50)
        if kind.count > 1:
            spread = f"median {spread}, {units.duration(wait.min)} to {units.duration(wait.max)}"
        facts.append(("Failed after", f"{spread} since due"))
    else:
        facts.append(("Failed after", "never sent"))
    if kind.answered:
        facts.append(("After the first token", f"{units.count(kind.answered)} of {units.count(kind.count)}"))
    if kind.n_workers:
        more = f" and {kind.n_workers - len(kind.workers)} more" if kind.n_workers > len(kind.workers) else ""
        facts.append(("Workers", ", ".join(str(worker) for worker in kind.workers) + more))
    if kind.request_ids:
        facts.append(("Request ids" if ids_sent else "Rows (ids were not sent)", ", ".join(kind.request_ids)))
    return facts


def _failure_moment(at_ns: int) -> str:
    return units.duration(at_ns, 4) if at_ns else "0 s"


def _spark(kind: FailureKind, failures: Failures) -> Markup | None:
    """Failures of the kind over the run's time, as bars."""
    if not any(kind.steps):
        return None
    high, width = max(kind.steps), _SPARK.width / len(kind.steps)
    base = _SPARK.height - 3
    bars = [
        element(
            "rect", x=i * width, y=base - max(n / high * 28, 2.5), width=max(width - 1, 1.5),
            height=max(n / high * 28, 2.5), class_="s-error bar",
        )
        for i, n in enumerate(kind.steps)
        if n
    ]  # fmt: skip
    length = units.duration(failures.step_ns * len(kind.steps))
    label = f"{units.count(kind.count)} failures over {length}, at most {units.count(high)} in {units.duration(failures.step_ns)}"
    return svg(_SPARK, join([line(0, base + 0.5, _SPARK.width, base + 0.5, "base"), *bars]), label)


#: The stages that are drawn, by the stamp each ends with. The end of the headers is in the table only.
DRAWN = ("ready", "sent", "first_byte", "first_token", "first_answer", "last_token", "done")
_NAMES = MappingProxyType(
    {
        "ready": "generator late",
        "sent": "waits for a connection",
        "first_byte": "waits for the first byte",
        "first_token": "to the first token",
        "first_answer": "reasons",
        "last_token": "tokens",
        "done": "to the end",
    }
)
_SLOWEST = MappingProxyType({"ttft": "Slowest to their first token", "latency": "Slowest to their end"})
_SLOW_WIDE, _SLOW_NARROW = 1080.0, 420.0
#: A stage of less than this share of the longest bar is no more than a hair line: the legend leaves it out.
_VISIBLE = 0.003


def slowest_groups(report: Report) -> list[dict[str, Any]]:
    """By time to first token and by latency: a chart and a table each; empty when too little was measured."""
    groups = [(name, getattr(report.slowest, name)) for name in _SLOWEST]
    return [_slow_group(name, requests) for name, requests in groups if len(requests) > 1]


def slowest_note(report: Report) -> str:
    """What is not among them."""
    lost = report.slowest.failed
    ids = (
        "Ids are the x-request-id of each request" if report.slowest.ids_sent else "Ids were not sent with the requests"
    )
    failed = (
        f" {units.many(lost, 'failed request')} rank{'s' if lost == 1 else ''} as slower than all of these."
        if lost
        else ""
    )
    return f"Stages from when a request was due. {ids}; rows of requests.parquet have them too.{failed}"


def _slow_group(name: str, requests: Sequence[SlowRequest]) -> dict[str, Any]:
    bars = [Bar(_slow_label(request), _slow_stages(request)) for request in requests]
    short = [Bar(_slow_label(request, short=True), _slow_stages(request)) for request in requests]
    label = describe(bars, _SLOWEST[name])
    longest = max(end for bar in bars for _, _, end in bar.stages)
    used = {stage for bar in bars for stage, begin, end in bar.stages if end - begin > _VISIBLE * longest}
    legend = [Key(_NAMES[stage], f"to-{stage}", "bar") for stage in DRAWN if f"to-{stage}" in used]
    wide, narrow = canvas_for(_SLOW_WIDE, len(bars)), canvas_for(_SLOW_NARROW, len(bars))
    drawn = Chart(
        _SLOWEST[name],
        "",
        legend,
        Picture(waterfall(bars, label, wide)),
        Picture(waterfall(short, label, narrow)),
    )
    return {
        "chart": drawn,
        "stages": [stage.replace("_", " ") for stage in STAGES],
        "rows": [_slow_row(r) for r in requests],
    }


def _slow_stages(request: SlowRequest) -> list[tuple[str, int, int]]:
    stamps: list[tuple[str, int | None]] = [(stage, getattr(request.stages_ns, stage)) for stage in DRAWN]
    return between(stamps)


def _slow_label(request: SlowRequest, short: bool = False) -> str:
    parts = [request.request_id, units.duration(request.value_ns), f"due {units.duration(request.due_ns, 4)}"]
    if request.n_out is not None:
        whose = "planned " if request.n_in_planned else ""
        told = f"{units.count(request.n_in)} {whose}in, " if request.n_in is not None else ""
        parts.append(f"{told}{units.count(request.n_out)} out")
    if not short:
        parts += [request.server_timing] if request.server_timing else []
    return "  ·  ".join(parts)


def _slow_row(request: SlowRequest) -> dict[str, Any]:
    stamps = [getattr(request.stages_ns, stage) for stage in STAGES]
    return {
        "id": request.request_id,
        "due": units.duration(request.due_ns, 6) if request.due_ns else "0 s",
        "stamps": [units.NOTHING if at is None else units.duration(at) for at in stamps],
        "more": _slow_more(request),
    }


def _slow_more(request: SlowRequest) -> str:
    parts = [f"{request.status} {request.code}" if request.code is not None else request.status]
    parts += [f"worker {request.worker}"] if request.worker is not None else []
    parts.append(f"{request.stamp} stamps")
    if request.connect_ns is not None:
        parts.append(f"opened its connection in {units.duration(request.connect_ns)}")
    parts += [request.server_timing] if request.server_timing else []
    return " · ".join(parts)


_ANATOMY = "Where the time of p50 and of p99 goes"
_WIDE, _NARROW = 1080.0, 420.0
#: Colours there are for stages; the last one is for all that follow.
_COLOURS = 7


def anatomy_panel(part: Anatomy | None) -> dict[str, Any] | None:
    """The chart, the table and its note; None where no server named a stage."""
    if part is None:
        return None
    names = [stage.name for band in part.bands for stage in band.stages if not stage.part_of]
    colours = {name: f"stage-{min(i, _COLOURS - 1)}" for i, name in enumerate(dict.fromkeys(names))}
    bars = [Bar(_band_label(band), _band_stages(band, colours)) for band in part.bands]
    label = describe(bars, _ANATOMY)
    used = {class_ for bar in bars for class_, begin, end in bar.stages if end > begin}
    legend = [Key(HELD, "stage-held", "bar")] if "stage-held" in used else []
    legend += [Key(name, class_, "bar") for name, class_ in colours.items() if class_ in used]
    legend += [Key(REST, "stage-rest", "bar")] if "stage-rest" in used else []
    pictures = [Picture(waterfall(bars, label, canvas_for(width, len(bars)))) for width in (_WIDE, _NARROW)]
    return {
        "chart": Chart(_ANATOMY, "", legend, pictures[0], pictures[1]),
        "heads": heads(part),
        "rows": [
            {"name": row.name, "part": row.part, "cells": list(zip(row.values, row.shares, strict=True))}
            for row in rows(part)
        ],
        "note": note(part),
    }


def _band_label(band: LatencyBand) -> str:
    return f"p{band.percentile:g}  ·  {units.duration(band.latency_ns)}  ·  {units.many(band.n, 'request')}"


def _band_stages(band: LatencyBand, colours: dict[str, str]) -> list[tuple[str, int, int]]:
    """One after the other as they were named; the rest at the end, though the network has its share at both."""
    drawn: list[tuple[str, int, int]] = []
    at = 0
    whole = [(colours[stage.name], stage.ns) for stage in band.stages if not stage.part_of]
    for class_, ns in [("stage-held", band.held_ns), *whole, ("stage-rest", band.rest_ns)]:
        if ns > 0:
            drawn.append((class_, at, at + ns))
            at += ns
    return drawn


def peer_rows(peers: Mapping[str, Peer]) -> list[dict[str, str]]:
    """One row a variant, in the report's order."""
    return [_peer_row(name, peer) for name, peer in peers.items()]


def _peer_row(name: str, peer: Peer) -> dict[str, str]:
    single = peer.percentile == "value"
    return {
        "name": name,
        "n": units.count(peer.n),
        "mean": _peer_value(peer.value if single else peer.mean, peer),
        "p50": "" if single else _peer_value(peer.p50, peer),
        "p99": "" if single else _peer_value(peer.p99, peer),
        "definition": peer.definition,
        "more": " · ".join(part for part in (_peer_clock(peer), peer.note, peer.source) if part),
    }


def _peer_clock(peer: Peer) -> str:
    clock = f"from {peer.start}" if peer.start else ""
    rank = "" if peer.percentile in ("", "value") else f"{peer.percentile} percentiles"
    return ", ".join(part for part in (clock, rank) if part)


def _peer_value(value: Number, peer: Peer) -> str:
    """A percentile that is null is infinite; a single number that is null is none, and the note says why."""
    if value is None:
        return units.INFINITE if peer.n and peer.percentile != "value" else units.NOTHING
    return units.human(value, peer.unit)


def speech_panel(part: Speech | None, confidence: float) -> dict[str, Any] | None:
    """Facts and tables; None for a run without audio."""
    if part is None:
        return None
    return {"facts": facts(part), "tables": tables(part, confidence)}
