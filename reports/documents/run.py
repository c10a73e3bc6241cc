"""A run as a document: the banner, what was judged, the key figures, charts and metrics, each section, and how to
repeat the run.

The page, Markdown and the terminal show the same; a terminal and a comment on a pull request have room for less of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from rich.console import RenderableType

from plimsoll.reports.blocks.document import (
    Block,
    Brush,
    Card,
    Case,
    Cell,
    Column,
    Command,
    Document,
    Drawings,
    Facts,
    Figures,
    Grid,
    Line,
    Notes,
    On,
    Quantity,
    Reading,
    Row,
    Section,
    Sentence,
    Suite,
    Table,
    Tiles,
    Warnings,
    table,
)
from plimsoll.reports.blocks.section import sections
from plimsoll.reports.blocks.terminal import WIDTH, draw
from plimsoll.reports.documents import pictures, words
from plimsoll.reports.parts.measures import LIVE
from plimsoll.reports.parts.parts import MergedChunks, Metric, Number, ObjectiveResult, Statistics, Validity
from plimsoll.reports.parts.provenance import repeated
from plimsoll.reports.report import Report
from plimsoll.reports.sections import budgets
from plimsoll.reports.svg.bars import whisker
from plimsoll.reports.wording import units
from plimsoll.reports.wording.phrases import expression, sentence
from plimsoll.slo.metrics.plugin import PluginError

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
#: The width at which each percentile of a table of metrics has room, by place: the columns stay as even as can be.
_ROOM = (0, 72, 83, 0, 94, 61)
#: Narrower than this, nothing is said of the bounds, for the table of objectives goes without them.
_ROOM_FOR_BOUNDS = 88
_NONE: Mapping[str, str] = MappingProxyType({})
#: Of a row for a spreadsheet.
_STATISTICS = ("mean", "min", "p50", "p90", "p95", "p99", "p99_9", "max")


def document(report: Report, on: On = On.ALL, files: Mapping[str, str] = _NONE) -> Document:
    """``on``: where it will be shown, for charts take their time. ``files``: what was written, by what it is; a
    terminal names it last.
    """
    word, run = words.outcome(report), report.run
    name = run.scenario.name or run.id
    reasons = report.validity.reasons if report.validity.outcome == "INVALID" else []
    return Document(
        kind=run.id,
        word=word,
        name=name or "load test",
        heading=name or "Load test",
        headline=words.headline(report),
        more=repeated(report.attempts),
        meta=_meta(report),
        lines=_lines(report, reasons),
        blocks=[*_invalid(reasons), *_blocks(report, on, files)],
        style="",
        started_at=run.started_at,
        plimsoll=run.plimsoll,
        footer=f"Plimsoll {run.plimsoll}".strip()
        + f" · {report.schema_} · times start when a request was due, not when it was sent",
        suites=[_suite(report, name or "run")],
        sheet=list(_sheet(report)),
        told=_told(report, name or "load test"),
        properties=_properties(report),
    )


def by(render: Callable[[Document], bytes], on: On = On.WRITTEN) -> Callable[[Report], bytes]:
    """How a format that renders documents renders a run. ``on``: where it is shown, if blocks matter to it."""
    return lambda report: render(document(report, on))


def render_terminal(report: Report, files: Mapping[str, str] = _NONE, width: int = WIDTH) -> RenderableType:
    """The summary for ``rich``; ``files`` are named last."""
    return draw(document(report, On.TERMINAL, files), width)


def _blocks(report: Report, on: On, files: Mapping[str, str]) -> Iterator[Block]:
    """Ours and every section's, by their order."""
    warnings = [Warnings(report.warnings, on=On.PAGE | On.MARKDOWN)] if report.warnings else []
    placed: list[tuple[int, Sequence[Block]]] = [
        (5, [_tiles(report), *_broken(report)] if on & On.PAGE else []),
        (10, _objectives(report)),
        (20, _attainments(report)),
        (50, [*_flow(report), *warnings]),
        (60, _charts(report) if on & On.PAGE else []),
        (80, _metrics(report)),
        (86, budgets.further(report.budgets)),
        (130, _generator(report)),
        (150, [Warnings(report.warnings, on=On.TERMINAL)] if report.warnings else []),
        (160, _provenance(report)),
        (170, _end(report, files)),
    ]
    for one in sections().values():
        part = report.sections.get(one.name) if one.model else getattr(report, one.name)
        if isinstance(part, Mapping) and one.model:  # of a report that was read from its file
            part = one.model.model_validate(part)
        if part is not None:
            try:
                placed.append((one.order, one.blocks(part, report)))
            except PluginError as error:
                placed.append((one.order, [Section(one.name, [Sentence(str(error))])]))
    for _, blocks in sorted(placed, key=lambda pair: pair[0]):
        yield from blocks


# -- the banner -----------------------------------------------------------------------------------------------


def _meta(report: Report) -> list[str]:
    run = report.run
    items = [run.scenario.kind, run.target.url, run.target.protocol]
    if report.throughput.span_ns:
        items.append(f"{units.duration(report.throughput.span_ns)} of load")
    if run.seed is not None:
        items.append(f"seed {run.seed}")
    return [line for line in [run.scenario.description, " · ".join(item for item in items if item)] if line]


def _lines(report: Report, reasons: Sequence[str]) -> list[tuple[str, str]]:
    """The card of a terminal."""
    run = report.run
    title = " · ".join(part for part in (run.scenario.name, run.scenario.kind, run.target.url) if part)
    again = repeated(report.attempts)
    return [
        *([(title, "bold")] if title else []),
        (words.headline(report), ""),
        *((f"- {sentence(reason)}", "") for reason in reasons[1:]),
        *([(again, "")] if again else []),
        (f"Generator {report.validity.outcome}: {words.health(report.validity)}.", "dim"),
    ]


def _invalid(reasons: Sequence[str]) -> list[Block]:
    if not reasons:
        return []
    text = "Everything below is shown so that the cause can be found. Don't compare, quote or gate on it."
    why: list[Block] = [Notes(reasons), Sentence(text)]
    return [Notes(reasons, on=On.MARKDOWN), Section("Why this run is invalid", why, look="problems", on=On.PAGE)]


# -- for programs ---------------------------------------------------------------------------------------------


def _suite(report: Report, name: str) -> Suite:
    """The generator's validity and each objective as a case."""
    reasons = report.validity.reasons if report.validity.outcome == "INVALID" else None
    promise = "the load generator kept its promise"
    first = Case(promise, "PASS", "")
    if reasons is not None:
        first = Case(promise, "INVALID", words.headline(report), details="\n".join(reasons))
    cases = [_case(result, reasons is None) for result in report.verdict.objectives]
    return Suite(f"plimsoll.{name}", f"plimsoll.{name}", [first, *cases], report.throughput.span_ns / 1e9)


def _case(result: ObjectiveResult, valid: bool) -> Case:
    text = words.explain(result)
    if result.outcome == "INVALID":
        why = "the generator was too late to tell" if result.bracket else "the run is invalid, so nothing was shown"
        return Case(result.objective, "INVALID", why, as_of="" if valid else "SKIPPED", details=text)
    if result.outcome == "PASS":
        return Case(result.objective, "PASS", "", output=text)
    return Case(result.objective, result.outcome, text, details=result.reason)


def _told(report: Report, name: str) -> list[Case]:
    """Each objective; the run where it is invalid or nothing was judged."""
    results = report.verdict.objectives
    if report.verdict.outcome == "INVALID" or not results:
        return [Case(name, words.outcome(report), words.headline(report))]
    return [Case(result.objective, result.outcome, sentence(words.explain(result))) for result in results]


def _properties(report: Report) -> list[tuple[str, str]]:
    run = report.run
    facts = [
        ("verdict", words.outcome(report)),
        ("run", run.id),
        ("target", run.target.url),
        ("plan_fingerprint", run.plan_fingerprint),
        ("percentiles", report.percentile_definition),
    ]
    return [(key, value) for key, value in facts if value]


def _sheet(report: Report) -> Iterator[Sequence[object]]:
    """A row for each metric, in the units of ``report.json``; ``rows`` is ``all``, ``ok`` (successful requests only), a
    value of a label or a slice of word errors. An infinite value is ``inf``; no value is an empty cell.
    """
    yield "metric", "rows", "unit", "n", "missing", "failed", *(name.replace("_", ".") for name in _STATISTICS)
    for name, metric in report.metrics.items():
        yield name, "all", metric.unit, metric.n, metric.missing, metric.failed, *_numbers(metric)
        if metric.of_ok is not None:
            yield name, "ok", metric.unit, metric.of_ok.n, "", "", *_numbers(metric.of_ok)
    for label, groups in (report.by or {}).items():
        for value, group in groups.items():
            for name, metric in group.metrics.items():
                rows = f"{label}={value}"
                yield name, rows, metric.unit, metric.n, metric.missing, metric.failed, *_numbers(metric)
    part = report.speech
    if part is not None and part.wer is not None:
        rates = [("all", part.wer), *((f"slice {one.name or '-'}", one.wer) for one in part.slices)]
        for rows, one in rates:  # n is words, failed errors, and the pooled rate stands under mean
            yield "accuracy(wer)", rows, "ratio", one.words, "", one.errors, one.rate, *[""] * (len(_STATISTICS) - 1)


def _numbers(part: Metric | Statistics) -> list[Number | str]:
    found: list[Number] = [getattr(part, name) for name in _STATISTICS]
    return ["inf" if value is None and part.n else value for value in found]


# -- what was judged ------------------------------------------------------------------------------------------


def _objectives(report: Report) -> list[Block]:
    """A card for each on the page, a row elsewhere; then what the bounds are."""
    results = report.verdict.objectives
    if not results:
        return []
    rows = table(
        results,
        (Column("", right=False), lambda result: Cell(result.outcome, result.outcome)),
        (Column("objective", right=False, titled="Objective"), words.named),
        (Column("observed", titled="Observed"), words.observed),
        (Column("limit", titled="Limit", least_width=_ROOM_FOR_BOUNDS), _limit),  # the objective says its limit
        (Column(units.bounds(report.confidence), least_width=_ROOM_FOR_BOUNDS), words.interval),
        (Column("n"), lambda result: units.count(result.n)),
        (Column("n needed"), words.needed),
        title="Objectives",
        on=On.WRITTEN,
    )
    cards = [_objective_card(result) for result in results]
    found: list[Block] = [Grid(cards, {1: 1, 2: 2, 4: 2}.get(len(results), 3)), rows]
    told = (On.WRITTEN if words.bounded(report) else On(0)) | On.PAGE
    if words.bounded(report) or report.budgets:
        note = words.bounds_note(report)
        found.append(Sentence(note, fine=True, close=True, least_width=_ROOM_FOR_BOUNDS, on=told))
    return found


def _limit(result: ObjectiveResult) -> str:
    limit = units.NOTHING if result.threshold is None else units.limit(result.threshold, result.unit)
    return f"{expression(result.operator)} {limit}"


def _objective_card(result: ObjectiveResult) -> Card:
    seen = words.interval(result)
    fine = "judged as observed" if seen == words.AS_OBSERVED else "" if seen == words.LOST else f"bounds {seen}"
    picture: Block = Drawings([("", partial(whisker, result))])
    if result.n == 0 or result.threshold is None:
        picture = Sentence("No data was measured, and no data is not a pass.")
    return Card(
        [
            Reading(words.observed(result), f"limit {_limit(result)}"),
            picture,
            Sentence(sentence(words.explain(result))),
            *([Sentence(fine, fine=True)] if result.n and fine else []),
        ],
        name=result.title,
        code=expression(result.objective),
        outcome=result.outcome,
        look=f"objective {result.outcome.lower()}",
    )


def _attainments(report: Report) -> list[Block]:
    """How many requests met each limit on a request."""
    if not report.verdict.request_objectives:
        return []
    title = "A request is good when it met all of these"
    met = table(
        report.verdict.request_objectives,
        (
            Column("limit for every request", right=False, titled="Limit for every request", names=True, code=True),
            lambda part: expression(part.objective),
        ),
        (Column("met", on=On.TERMINAL | On.PAGE), lambda part: units.count(part.met)),
        (Column("of", on=On.TERMINAL | On.PAGE), lambda part: units.count(part.n)),
        (Column("met", on=On.MARKDOWN), lambda part: f"{units.count(part.met)} of {units.count(part.n)}"),
        (Column("share"), lambda part: units.NOTHING if part.attainment is None else units.percent(part.attainment)),
        title=title,
    )
    return [Section(title, [Card([met])])]


# -- the key figures ------------------------------------------------------------------------------------------


def _tiles(report: Report) -> Tiles:
    flow, counts = report.throughput, report.counts
    total = counts.ok + counts.failed
    done = units.count(counts.ok) if counts.ok == total else f"{units.count(counts.ok)} of {units.count(total)}"
    more = f"{done} {'request' if total == 1 else 'requests'}"
    tiles = [Quantity("Completed", units.rate(flow.requests_per_s), more)]
    if flow.goodput_per_s is not None and report.verdict.request_objectives:
        share = "" if flow.good_fraction is None else f"{units.percent(flow.good_fraction)} good"
        tiles.append(Quantity("Goodput", units.rate(flow.goodput_per_s), share))
    live = any(name in report.metrics and report.metrics[name].n for name in LIVE)
    for name, title in _TILES.items():
        metric = report.metrics.get(name)
        if metric is not None and metric.n and not (live and name == "latency"):
            middle = f"p50 {units.human(metric.p50, metric.unit)}"
            tiles.append(Quantity(title, units.human(metric.p99, metric.unit), middle, metric.p99 is None))
    if flow.output_tokens_per_s:
        tokens = "" if flow.output_tokens is None else units.many(flow.output_tokens, "token")
        tiles.append(Quantity("Output tokens", units.rate(flow.output_tokens_per_s), tokens))
    share = units.percent(counts.failed / total, 3) if total else units.NOTHING
    tiles.append(Quantity("Failed", share, units.many(counts.failed, "request"), counts.failed > 0))
    return Tiles(tiles)


def _broken(report: Report) -> list[Block]:
    charts, group = pictures.broken_chart(report)
    return [Card([Figures(charts, bare=True, group=group)], look="broken")] if charts else []


def _flow(report: Report) -> list[Block]:
    """The same in a line; a terminal, which has the generator in its banner, says how many requests were good."""
    flow, counts = report.throughput, report.counts
    first, last = [Quantity("completed", units.rate(flow.requests_per_s))], []
    if flow.output_tokens_per_s:
        last.append(Quantity("output tokens", units.rate(flow.output_tokens_per_s)))
    of = f"of {units.many(counts.ok + counts.failed, 'request')} failed"
    last.append(Quantity(of, units.count(counts.failed), bad=counts.failed > 0))
    brief, full = [], []
    if flow.goodput_per_s is not None and report.verdict.request_objectives:
        share = "" if flow.good_fraction is None else f" ({units.percent(flow.good_fraction)} of requests)"
        brief = [Quantity("good", units.rate(flow.goodput_per_s))]
        full = [Quantity(f"good{share}", units.rate(flow.goodput_per_s))]
    health = f"Generator {report.validity.outcome}: {words.health(report.validity)}"
    return [Line([*first, *full, *last], on=On.TERMINAL), Line([*first, *brief, *last], under=health, on=On.MARKDOWN)]


# -- charts and metrics ---------------------------------------------------------------------------------------


def _charts(report: Report) -> list[Block]:
    found: list[Block] = []
    if silence := _silence(report):
        found.append(Card([Sentence(silence)], look="silence", on=On.PAGE))
    fast: list[Block] = []
    for charts in (pictures.curve_charts(report), pictures.distribution_charts(report), pictures.prompt_chart(report)):
        fast += [Figures(charts, paired=True)] if charts else []
    found += [Section("How fast", fast, on=On.PAGE)] if fast else []
    strips = pictures.timeline_charts(report)
    if strips and report.charts.timeline is not None:
        note = (
            f"Buckets of {units.seconds(report.charts.timeline.bucket_ns)}. Latencies are put where the request was "
            "due. Where a failure is the p99 of a bucket, a mark stands at the top. Warm-up is not shown."
        )
        heat = [Figures(charts, paired=True)] if (charts := pictures.heat_chart(report)) else []
        over = Card([Figures(strips, bare=True, group="time"), Sentence(note, fine=True)])
        window = report.window
        brush = [] if window is None else [Brush(lambda: window.block)]
        found.append(Section("Over the run", [*brush, over, *heat], on=On.PAGE))
    return found


def _silence(report: Report) -> str:
    """Why there are no latency charts, when there are none."""
    counts = report.counts
    if counts.ok == 0:
        return "No request succeeded, so there is no latency to draw." if counts.failed else "No request was measured."
    if counts.ok + counts.failed < pictures.ENOUGH:
        return "Too few requests to draw: the numbers are below."
    return ""


def _metrics(report: Report) -> list[Block]:
    """The metrics that a person wants, and the generator's own error beside them; the page has more of both."""
    if not report.metrics:
        return []
    own = Sentence(words.own_error(report), fine=True, close=True)
    definition = f"Percentiles: {report.percentile_definition}."
    brief = [_brief_table(shown) for shown in words.metric_tables(report, brief=True)]
    full = [_full_table(shown) for shown in words.metric_tables(report)]
    written: list[Block] = [*brief, own, Sentence(definition, on=On.MARKDOWN)]
    page: list[Block] = [*full, own, Sentence(definition, fine=True)]
    return [
        Section("Metrics", written, folded="Metrics", on=On.WRITTEN),
        Section("The numbers", [Card(page)], on=On.PAGE),
    ]


def _brief_table(shown: words.MetricTable) -> Table:
    columns = [Column("", right=False, titled=shown.title), Column("n")]
    columns += [Column(head, least_width=_ROOM[place]) for place, (_, head) in enumerate(shown.columns)]
    rows = [row for name, metric in shown.metrics.items() for row in _rows(name, metric, shown.columns)]
    return Table(columns, rows, title=shown.title)


def _full_table(shown: words.MetricTable) -> Table:
    heads = (*shown.columns, ("mean", "mean"))
    columns = [Column(shown.title, right=False, names=True), Column("n"), *(Column(head) for _, head in heads)]
    rows = []
    for name, metric in shown.metrics.items():
        rows += _rows(Cell(metric.title or name, code=name), metric, heads)
    return Table(columns, rows, look="metrics")


def _rows(name: str | Cell, metric: Metric, columns: Sequence[tuple[str, str]]) -> list[Row]:
    """The metric of all requests and, where some failed, of the successful ones."""
    keys = [key for key, _ in columns]
    found = [Row([name, units.count(metric.n), *(words.cell(metric, metric.unit, key) for key in keys)])]
    some = metric.of_ok if metric.failed else None
    if some is not None and some.n:
        cells = [words.cell(some, metric.unit, key) for key in keys]
        found.append(Row(["successful only", units.count(some.n), *cells], "sub"))
    return found


# -- the generator --------------------------------------------------------------------------------------------


def _generator(report: Report) -> list[Block]:
    seen = report.validity
    shown: list[Block] = [Sentence(words.health(seen), outcome=seen.outcome)]
    for text in (_own_numbers(seen), words.own_error(report), merged_sentence(seen.merged_chunks)):
        shown += [Sentence(text, fine=True)] if text else []
    shown.append(Figures(partial(pictures.lag_chart, report), bare=True, group="time"))
    if seen.checks:
        columns = [
            Column("Check", right=False, names=True),
            Column("What was seen, and the limit", right=False, words=True),
        ]
        shown.append(Table(columns, check_rows(seen), look="checks"))
    return [Section("Did the generator keep its promise?", [Card(shown)], on=On.PAGE)]


def _own_numbers(seen: Validity) -> str:
    """The generator's own numbers, beyond the line on its health."""
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
    return sentence("; ".join(facts))


def check_rows(validity: Validity) -> list[Row]:
    """Every check, the broken ones first."""
    found = []
    for check in sorted(validity.checks, key=lambda check: check.ok):
        name = Cell(check.name, "PASS" if check.ok else "FAIL", hint="kept" if check.ok else "broken")
        found.append(Row([name, check.detail or check.seen], "" if check.ok else "bad"))
    return found


def merged_sentence(merged: MergedChunks) -> str:
    """How many chunks carry the time of another one; empty where none does."""
    if not merged.count:
        return ""
    most = merged.uncertainty_p99_ns
    late = "" if most is None else f", at most {units.duration(most)} too late (p99)"
    return (
        f"{units.many(merged.count, 'chunk')} ({units.percent(merged.share, 3)}) came in one read with a later one and "
        f"carry its time{late}."
    )


# -- how to repeat it -----------------------------------------------------------------------------------------


def _provenance(report: Report) -> list[Block]:
    run = report.run
    begun = [("Run", run.id), ("Started", run.started_at)]
    planned = [("Seed", "" if run.seed is None else str(run.seed)), ("Plan fingerprint", run.plan_fingerprint)]
    made = [("Host timer", words.host_timer(run.timer)), ("Kept", run.kept)]
    brief = [*begun, ("Target", run.target.url), *planned, ("Plimsoll", run.plimsoll), *made]
    full = [
        *begun,
        ("Plimsoll", run.plimsoll),
        ("Scenario", " · ".join(part for part in (run.scenario.name, run.scenario.kind) if part)),
        ("Target", " · ".join(part for part in (run.target.url, run.target.protocol) if part)),
        *planned,
        ("Workers", "" if run.workers is None else str(run.workers)),
        *made,
        ("Run directory", run.directory),
        ("Arrival stamps", report.validity.stamp),
        ("Confidence", f"{units.percent(report.confidence)} of each bound, one-sided"),
        ("Warm-up requests, not measured", units.count(report.counts.warmup) if report.counts.warmup else ""),
        *((name.replace("_", " "), value) for name, value in run.host.items()),
        ("Libraries", ", ".join(f"{name} {version}" for name, version in run.libraries.items())),
    ]
    command = [Command(run.command)] if run.command else []
    repeat: list[tuple[str, str | Command]] = [(name, value) for name, value in brief if value]
    repeat += [("Command", one) for one in command]
    title = "How to repeat it"
    return [
        Section(title, [Facts(repeat)], folded=title, on=On.MARKDOWN),
        Section(title, [Card([Facts([(name, value) for name, value in full if value]), *command])], on=On.PAGE),
    ]


def _end(report: Report, files: Mapping[str, str]) -> list[Block]:
    """The last lines of a terminal."""
    run, timer = report.run, words.host_timer(report.run.timer)
    seed = "" if run.seed is None else f"seed {run.seed}"
    plan = f"plan {run.plan_fingerprint}" if run.plan_fingerprint else ""
    facts = " · ".join(part for part in (f"run {run.id}" if run.id else "", seed, plan) if part)
    dim = [
        facts,
        f"Host timer: {timer}." if timer else "",
        f"Kept: {run.kept}." if run.kept else "",
        f"Percentiles: {report.percentile_definition}.",
    ]
    plain = {"Records": run.directory} if run.directory and not files else files
    texts = [*((text, True) for text in dim if text), *((f"{what}: {where}", False) for what, where in plain.items())]
    return [Sentence(text, fine=fine, close=place > 0, on=On.TERMINAL) for place, (text, fine) in enumerate(texts)]
