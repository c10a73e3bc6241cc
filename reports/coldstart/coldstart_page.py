"""A cold start as one self-contained page: times over all repeats, the phases of each, every repeat's curve. Decides nothing."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from markupsafe import Markup

from plimsoll.reports.coldstart import coldstart_words as say
from plimsoll.reports.coldstart.coldstart_drawing import PHASES, class_of, curves, phases
from plimsoll.reports.coldstart.coldstart_parts import QUANTITIES, ColdstartReport, RepeatPart
from plimsoll.reports.formats.html_ import render_page
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.wording import units

_WIDE, _NARROW = Canvas(1040, 390, bottom=42), Canvas(420, 310, left=54, bottom=42)


def render(report: ColdstartReport) -> bytes:
    """The page, UTF-8."""
    return render_page("coldstart.html.j2", content(report))


def content(report: ColdstartReport) -> dict[str, Any]:
    """Everything the template names."""
    return {
        "more_css": Markup(
            files("plimsoll.reports.formats").joinpath("assets/comparison.css").read_text(encoding="utf-8")
        ),
        "symbol": lambda word: say.SYMBOLS.get(word, "•"),
        "report": report,
        "headline": say.headline(report),
        "certainty": say.certainty(report),
        "tone": {
            "MEASURED": "ranked",
            "UNREACHABLE": "fail",
            "INTERRUPTED": "inconclusive",
            "STOPPED": "inconclusive",
        }.get(report.outcome, report.outcome.lower()),
        "meta": [
            f"{units.many(sum(part.complete for part in report.repeats), 'complete start')} of {report.wanted} asked for",
            report.url,
        ],
        "times": [
            {
                "title": say.TITLES[part.quantity],
                "what": QUANTITIES[part.quantity],
                "median": units.human(part.median, "ns"),
                "least": units.human(part.least, "ns"),
                "greatest": units.human(part.greatest, "ns"),
                "interval": say.interval(part, report),
                "first": units.NOTHING if part.first is None else units.human(part.first, "ns"),
                "later": units.NOTHING if part.later is None else units.human(part.later, "ns"),
                "differs": part.first_differs,
            }
            for part in report.spreads
        ],
        "goals": [{"goal": goal, "worst": units.human(goal.worst, "ns")} for goal in report.goals],
        "charts": _charts(report),
        "repeats": [_repeat(part) for part in report.repeats],
        "footer": f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
    }


def _charts(report: ColdstartReport) -> list[Chart]:
    started = [part for part in report.repeats if part.ready_ns is not None]
    charts = []
    if started:
        label = "; ".join(f"start {part.number} ready after {units.duration(part.ready_ns or 0)}" for part in started)
        legend = [Key(name, class_, "bar") for _, name, class_ in PHASES]
        note = "From the instant at which the command was spawned. Time in which nothing was in flight is left out."
        wide, narrow = (phases(started, label, canvas.width) for canvas in (_WIDE, _NARROW))
        charts.append(Chart("Each start", note, legend, wide, narrow))
    drawn = [part for part in report.repeats if part.curve and any(value for _, value in part.curve)]
    if drawn:
        label = "; ".join(f"start {part.number} steady {say.steady(part)}" for part in drawn)
        charts.append(
            chart(
                "Latency by request, from the first one on",
                "Both axes are logarithmic. Circle: where the steady state begins. A gap: the request failed.",
                [Key(f"start {part.number}", class_of(part.number)) for part in drawn],
                lambda canvas: curves(drawn, label, canvas),
                _WIDE,
                _NARROW,
            )
        )
    return charts


def _repeat(part: RepeatPart) -> dict[str, Any]:
    def shown(value: int | None) -> str:
        return units.NOTHING if value is None else units.duration(value)

    return {
        "number": part.number,
        "complete": part.complete,
        "at": part.started_at,
        "port": shown(part.port_ns),
        "ready": shown(part.ready_ns),
        "late": say.late(part),
        "route": part.route or "port only",
        "ttft": shown(part.first_ttft_ns),
        "latency": shown(part.first_latency_ns),
        "status": part.first_status or units.NOTHING,
        "answer": shown(part.first_answer_ns),
        "steady": say.steady(part),
        "level": shown(part.steady_level_ns),
        "excess": shown(part.excess_ns),
        "failed": f"{part.failed} of {part.requests}",
        "idle": shown(part.idle_ns),
        "stop": units.NOTHING
        if part.stop_ns is None
        else f"{units.duration(part.stop_ns)}{', killed' if part.stop_forced else ''}",
        "folder": part.folder,
    }
