"""The live page: one self-contained page, and the look inside it that is sent again as the run goes on.

Says what is known by now and how precisely. It gives no verdict of its own: that word comes from the sealed run.
"""

from __future__ import annotations

from importlib.resources import files
from types import MappingProxyType
from typing import Any

from markupsafe import Markup

from plimsoll.reports.dashboard.live_charts import burns, strips
from plimsoll.reports.dashboard.live_parts import BurnPart, LiveReport, Percentiles
from plimsoll.reports.formats.html_ import render_page
from plimsoll.reports.sentences import words
from plimsoll.reports.wording import units
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
    return render_page("dashboard.html.j2", {**content(report), "more_css": more["css"], "live_js": more["js"]})


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
        "tone": report.verdict.outcome.lower() if report.verdict is not None else "measured",
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
        return words.symbol(report.verdict.outcome)
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
