"""The live page: one self-contained page, and the look inside it that is sent again as the run goes on.

Says what is known by now and how precisely. It gives no verdict of its own: that word comes from the sealed run.
"""

from __future__ import annotations

from importlib.resources import files
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from plimsoll.reports.formats.html_ import render_page
from plimsoll.reports.models.live_parts import Band, BurnPart, Intervals, LiveReport, Percentiles
from plimsoll.reports.parts.chart_parts import LagBand, Timeline
from plimsoll.reports.sections.budgets import BudgetPart, BurnTimeline
from plimsoll.reports.sentences import words
from plimsoll.reports.svg.burn import burn_chart
from plimsoll.reports.svg.gauge import bad_share
from plimsoll.reports.svg.plot import Canvas, Chart, Key, Picture, chart
from plimsoll.reports.svg.strip import Layer, Strip, strip
from plimsoll.reports.wording import signs, units
from plimsoll.slo.metrics.indicator import in_order, short_of, title_of

_TILES = ("ttft", "first_partial", "finalization", "voice_to_voice", "first_audio", "tpot", "latency")
#: Metrics that get a tile.
_MOST_TILES = 3
_WORDS = MappingProxyType(
    {
        "preparing": "GETTING READY",
        "warm-up": "WARM-UP",
        "running": "RUNNING",
        "draining": "DRAINING",
        "over": "OVER",
    }
)


def page(report: LiveReport) -> bytes:
    """The whole page with the look of this moment in it, UTF-8."""
    more = {name: Markup(_asset(f"dashboard.{name}")) for name in ("css", "js")}
    return render_page(
        "dashboard.html.j2",
        {**content(report), "plimsoll": report.run.plimsoll, "more_css": more["css"], "live_js": more["js"]},
    )


def look(report: LiveReport) -> str:
    """What changes: the inside of the page's ``main``, in parts that the script puts in place of the old ones."""
    return render_page("dashboard_look.html.j2", content(report)).decode("utf-8")


def _asset(name: str) -> str:
    return files("plimsoll.reports.formats").joinpath(f"assets/{name}").read_text(encoding="utf-8")


def content(report: LiveReport) -> dict[str, Any]:
    """Everything the templates name."""
    word = report.verdict.outcome if report.verdict is not None else _WORDS[report.stage]
    return {
        "run": report.run,
        "word": word,
        "tone": signs.tone(report.verdict.outcome) if report.verdict is not None else "measured",
        "seal": _seal(report),
        "title": report.run.scenario or "Load test",
        "headline": _headline(report),
        "meta": _meta(report),
        "reasons": [words.sentence(text) for text in (report.verdict.reasons if report.verdict else [])],
        "report_path": report.verdict.report if report.verdict is not None else "",
        "fraction": report.fraction,
        "over": report.stage == "over",
        "final": report.verdict is not None,
        "tiles": _tiles(report),
        "cards": [_card(part, gauge, chart, report) for part, gauge, chart in burns(report)],
        "rows": [_row(part) for part in report.objectives],
        "unfollowed": report.unfollowed,
        "strips": strips(report),
        "strips_note": _strips_note(report),
        "metrics": [_metric(name, report.metrics[name]) for name in _ordered(report)],
        "precision": _PRECISION,
    }


_PRECISION = (
    "Live percentiles come from bins that are 2.2 % wide and are at most 1.1 % off; measured requests that failed count as "
    "infinite. The verdict and the report never use them: they are made of the exact records."
)


def _ordered(report: LiveReport) -> list[str]:
    return in_order(report.metrics)


def _seal(report: LiveReport) -> str:
    if report.verdict is not None:
        return signs.mark(report.verdict.outcome)
    if report.stage in ("running", "draining") and report.fraction is not None:
        return f"{int(report.fraction * 100)}%"
    return {"over": "■", "preparing": "…", "warm-up": "…"}.get(report.stage, "▶")


def _headline(report: LiveReport) -> str:
    elapsed = units.duration(max(report.elapsed_ns, 0))
    if report.verdict is not None:
        return f"The run is over after {elapsed}. This is the last live picture; the verdict is of the exact records."
    if report.stage == "over":
        return f"The run is over after {elapsed}. It is being judged; this is the last live picture."
    if report.stage == "preparing":
        return "The load generator is getting ready: nothing has been sent yet."
    if report.stage == "warm-up":
        return f"Warm-up: the measured run begins in {_clock(-report.elapsed_ns)}."
    if report.stage == "draining":
        return f"{_clock(report.elapsed_ns)} in. Everything is sent; answers in flight are waited for."
    if report.left_ns:
        return f"{_clock(report.elapsed_ns)} in, {_clock(report.left_ns)} left."
    return f"{_clock(report.elapsed_ns)} in."


def _clock(value_ns: int) -> str:
    """Whole seconds: more would only flicker."""
    seconds = max(0, round(value_ns / 1e9))
    if seconds >= 3600:
        return units.duration(seconds * 1e9)
    return f"{seconds // 60} min {seconds % 60:02d} s" if seconds >= 120 else f"{seconds} s"


def _meta(report: LiveReport) -> list[str]:
    run = report.run
    parts = (run.kind, units.many(run.workers, "worker") if run.workers else "")
    target = " · ".join(part for part in (run.url, run.protocol) if part)
    return [text for text in (" · ".join(part for part in parts if part), target) if text]


def _tiles(report: LiveReport) -> list[dict[str, str]]:
    if report.stage == "preparing" or report.intervals is None:
        return []
    warmed = report.intervals.start_ns < 0
    behind = (
        "" if report.planned is None else f"of {units.count(report.planned)} planned" + ", and the warm-up" * warmed
    )
    planned = "a closed loop" if report.planned is None else f"{units.rate(report.planned_per_s)} planned"
    if report.planned is not None and report.planned_per_s is None:
        planned = ""
    share = (
        f"{units.percent(report.failed / report.done, 3)} of those that ended" if report.failed and report.done else ""
    )
    tiles = [
        _tile("Sent per second", _number(report.sent_per_s), "", planned),
        _tile("In flight", units.count(report.in_flight), "", "at the last look"),
    ] * (report.stage != "over")
    tiles += [
        _tile("Sent", units.count(report.sent), "", behind),
        _tile("Errors", units.count(report.failed), "", share, "bad" if report.failed else ""),
    ]
    for name in [name for name in _TILES if name in report.metrics][:_MOST_TILES]:
        value, _, unit = _value(report.metrics[name].p99, report.metrics[name]).partition(" ")
        tiles.append(_tile(f"{_short(name)} p99", value, unit, "of the run so far"))
    return tiles


def _tile(name: str, value: str, unit: str, more: str, class_: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "unit": unit, "more": more, "class": class_}


def _short(name: str) -> str:
    known = short_of(name)
    return known if known.isupper() else title_of(name)


def _number(rate: float | None) -> str:
    if rate is None:
        return units.NOTHING
    return units.count(rate) if rate >= 1000 else units.significant(rate)


def _value(value: int | None, of: Percentiles) -> str:
    return units.human(value, "ns") if of.n + of.failed else units.NOTHING


def _card(part: BurnPart, gauge: Markup | None, chart: Any, report: LiveReport) -> dict[str, Any]:
    return {
        "name": words.expression(part.objective),
        "class": "over" if (part.burn or 0) > 1 else "within",
        "burn": units.NOTHING if part.burn is None else units.significant(part.burn),
        "figure": (
            "times the share that is allowed" if part.burn is not None else "nothing has ended yet"
        ),
        "gauge": gauge,
        "chart": chart,
        "fine": _spoken(part, report),
    }  # fmt: skip


def _spoken(part: BurnPart, report: LiveReport) -> str:
    if not part.n:
        return ""
    text = (
        f"At least {units.count(part.bad)} of {units.count(part.n)} are bad ({units.percent(part.bad / part.n, 3)}); "
        f"{units.percent(part.allowed, 3)} may be."
    )
    if part.spent is not None and report.stage != "over":
        text += f" Of the whole run's budget at least {units.percent(part.spent, 3)} is used."
    return text


def _row(part: BurnPart) -> dict[str, str]:
    return {
        "name": words.expression(part.objective),
        "bad": units.count(part.bad),
        "n": units.count(part.n),
        "share": units.percent(part.bad / part.n, 3) if part.n else units.NOTHING,
        "allowed": units.percent(part.allowed, 3),
        "burn": units.NOTHING if part.burn is None else units.significant(part.burn),
        "spent": units.NOTHING if part.spent is None else units.percent(part.spent, 3),
        "class": "bad" if (part.burn or 0) > 1 else "",
    }


def _strips_note(report: LiveReport) -> str:
    if report.intervals is None:
        return ""
    return (
        f"Intervals of {units.seconds(report.intervals.interval_ns)}. Rates and percentiles are by when requests ended, as the "
        "workers said it four times a second; the report puts them where they were due. A cross is a percentile that is a "
        "failed request."
    )


def _metric(name: str, found: Percentiles) -> dict[str, Any]:
    return {
        "title": title_of(name),
        "name": name,
        "n": units.count(found.n),
        "values": [_value(value, found) for value in (found.p50, found.p90, found.p99)],
    }


#: Of more objectives than these only the fastest burning ones are drawn; all of them have a row.
MAX_BURNS = 4
_MARKS = MappingProxyType({"line": "line", "planned": "dash", "fill": "area", "bars": "cross"})
_WIDE, _NARROW = 1080.0, 420.0
_BURN, _BURN_NARROW = Canvas(_WIDE, 128, left=66, right=16, top=10), Canvas(_NARROW, 128, left=58, right=10, top=10)


def strips(report: LiveReport) -> list[Chart]:
    """Rates, requests in flight, errors and percentiles over the run so far, one above the other; none before the first interval."""
    found = report.intervals
    if found is None or not found.sent_per_s:
        return []
    timeline = _timeline(found)
    data = [_rates(found), _in_flight(found)]
    if any(found.failed):
        data.append(_errors(found))
    names = in_order(found.bands)
    data += [_band(name, found.bands[name], report) for name in names]
    return [_draw(one, timeline, last=index == len(data) - 1) for index, one in enumerate(data)]


def burns(report: LiveReport) -> list[tuple[BurnPart, Markup | None, Chart | None]]:
    """The objectives that burn fastest, each with the gauge of its bad share and its burn rate over the run."""
    drawn = sorted(report.objectives, key=lambda part: -(part.burn or 0.0))[:MAX_BURNS]
    return [(part, _gauge(part), _burn(part, report)) for part in report.objectives if part in drawn]


def _timeline(found: Intervals) -> Timeline:
    """The same intervals as the report's buckets, for the axis; what is drawn is in the layers."""
    n = len(found.sent_per_s)
    empty: list[int | None] = [None] * n
    return Timeline(
        bucket_ns=found.interval_ns,
        start_ns=found.start_ns,
        end_ns=max(found.end_ns, found.start_ns + 1),
        due=[0] * n,
        planned_per_s=found.planned_per_s or [],
        sent_per_s=found.sent_per_s,
        completed_per_s=found.done_per_s,
        errors_per_s=[],
        in_flight_max=[],
        in_flight_mean=[],
        lag=LagBand(p50=empty, p99=empty, max=empty),
    )


def _rates(found: Intervals) -> Strip:
    errors = [number / seconds for number, seconds in zip(found.failed, found.seconds(), strict=True)]
    layers = [Layer("errors", "s-error", errors, "bars")] * any(errors)
    if found.planned_per_s is not None:
        layers.append(Layer("planned", "s-planned", found.planned_per_s, "planned"))
    layers.append(Layer("sent", "s-sent", found.sent_per_s))
    layers.append(Layer("completed", "s-completed", found.done_per_s))
    return Strip("Requests per second", "per_s", layers)


def _in_flight(found: Intervals) -> Strip:
    layers = [
        Layer("", "s-flight", found.in_flight_max, "fill"),
        Layer("most seen", "s-flight", found.in_flight_max),
    ]
    return Strip("Requests in flight", "count", layers)


def _errors(found: Intervals) -> Strip:
    total = list(accumulate(found.failed))
    return Strip("Errors so far", "count", [Layer("", "s-error", total, "fill"), Layer("errors", "s-error", total)])


def _band(name: str, band: Band, report: LiveReport) -> Strip:
    lost = [value is None and n > 0 for value, n in zip(band.p99, band.n, strict=True)]
    layers = [
        Layer("", f"s-{name}", band.p99, "fill", lower=band.p50, infinite=lost),
        Layer("p99", f"s-{name}", band.p99, infinite=lost),
        Layer("p90", f"s-{name} p90", band.p90),
        Layer("p50", f"s-{name}", band.p50, "planned"),
    ]
    limits = [
        (float(part.threshold_ns), words.expression(part.objective))
        for part in report.objectives
        if part.indicator == name and part.threshold_ns is not None and part.allowed <= 0.1
    ]
    return Strip(title_of(name), "ns", layers, limits[:1])


def _draw(data: Strip, timeline: Timeline, last: bool) -> Chart:
    tail = 26 if last else 8
    wide = Canvas(_WIDE, 112 + tail, left=66, right=16, top=12, bottom=tail)
    narrow = Canvas(_NARROW, 112 + tail, left=58, right=10, top=12, bottom=tail)
    label = f"{data.title} so far, in intervals of {units.seconds(timeline.bucket_ns)}"
    legend = [Key(layer.label, layer.class_, _MARKS[layer.kind]) for layer in data.layers if layer.label]

    def draw(canvas: Canvas) -> Picture:
        return strip(data, timeline, label, canvas, last)

    return chart(data.title, "", legend, draw, wide, narrow)


def _burn(part: BurnPart, report: LiveReport) -> Chart | None:
    found = report.intervals
    if found is None or not any(part.interval_bad):
        return None
    ends = [found.start_ns + (index + 1) * found.interval_ns for index in range(len(part.interval_n))]
    ends[-1] = max(found.end_ns, found.start_ns + 1)
    data = BurnTimeline(start_ns=found.start_ns, end_ns=ends, burn=part.burns(), spent=_spent(part, report.planned))
    label = f"Burn rate of {part.objective} by interval, at least; 1 uses exactly this run's budget"

    def draw(canvas: Canvas) -> Picture:
        return burn_chart(data, (), label, canvas)

    legend = [Key("at least, by interval", "s-burn", "bar")]
    return chart(f"Burn rate of {words.expression(part.objective)}", "", legend, draw, _BURN, _BURN_NARROW)


def _spent(part: BurnPart, planned: int | None) -> list[float]:
    """Of the whole run's budget, or, when nobody knows how long the run is, of the budget of the requests so far."""
    bad = list(accumulate(part.interval_bad))
    if planned:
        return [number / (part.allowed * planned) for number in bad]
    return [
        number / (part.allowed * n) if n else 0.0 for number, n in zip(bad, accumulate(part.interval_n), strict=True)
    ]


def _gauge(part: BurnPart) -> Markup | None:
    """The report's picture of a bad share; what it holds besides that share is of the report's period and not drawn."""
    if not part.n:
        return None
    return bad_share(
        BudgetPart(
            name=part.objective, objective=part.objective, target=1 - part.allowed, allowed=part.allowed, period_ns=0,
            budget_ns=0, entry="request", n=part.n, bad=part.bad, span_ns=0, covered_ns=0, confidence=0.0,
            interval_method="none", sli=1 - part.bad / part.n,
        )
    )  # fmt: skip
