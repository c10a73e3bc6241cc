"""A capacity plan as one self-contained page: the answer, replicas and cost, the queueing overlay. Decides nothing."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from markupsafe import Markup

from plimsoll.reports.capacity import capacity_words as say
from plimsoll.reports.capacity.capacity_drawing import MEASURED, QUEUES, Which, overlay
from plimsoll.reports.capacity.capacity_parts import AgainstPart, CapacityReport, LittlePart, LoadPart
from plimsoll.reports.formats.html_ import render_page
from plimsoll.reports.parts.parts import Number
from plimsoll.reports.svg.plot import Canvas, Chart, Key, chart
from plimsoll.reports.wording import units

_WIDE, _NARROW = Canvas(540, 330, bottom=42), Canvas(420, 300, left=54, bottom=42)


def render(report: CapacityReport) -> bytes:
    """The page, UTF-8."""
    return render_page("capacity.html.j2", content(report))


def content(report: CapacityReport) -> dict[str, Any]:
    """Everything the template names."""
    return {
        "more_css": Markup(
            files("plimsoll.reports.formats").joinpath("assets/comparison.css").read_text(encoding="utf-8")
        ),
        "symbol": lambda word: {"SIZED": "●"}.get(word, "?"),
        "report": report,
        "tone": "ranked" if report.outcome == "SIZED" else "inconclusive",
        "headline": say.headline(report),
        "meta": [f"{report.kind} {report.name}", *report.objectives],
        "facts": _facts(report),
        "rows": _rows(report),
        "sensitivity": say.sensitivity(report),
        "costs": [
            {
                "name": say.cost_name(cost),
                "full": say.money_of(cost.full, report),
                "full_range": say.cost_range(cost.full_range),
                "target": say.money_of(cost.target, report),
                "target_range": say.cost_range(cost.target_range),
            }
            for cost in report.costs
        ],
        "charts": _charts(report),
        "queues": [say.fitted(queue) for queue in report.queues],
        "models": [queue.model for queue in report.queues],
        "loads": [_load(load) for load in report.loads],
        "beyond": say.beyond(report.loads, report.queues),
        "batching": say.BATCHING,
        "laws": say.laws(report),
        "wrong": [f"{law.run}, {law.view} times: {law.wrong}" for law in report.laws if law.wrong],
        "little": [_law(law) for law in report.laws],
        "footer": f"Plimsoll {report.plimsoll}".strip() + f" · {report.schema_}",
    }


def _facts(report: CapacityReport) -> list[tuple[str, str]]:
    sized, safe = report.sized, report.safe
    if sized is None or safe is None:
        return []
    facts = [("Capacity of one replica", say.capacity(report)), ("Safe to give a replica", units.rate(safe.per_s))]
    if safe.saturation_per_s is not None:
        facts.append(("It saturates at", units.rate(safe.saturation_per_s)))
        facts.append(("Of that the objectives permit", units.percent(safe.slo_of_saturation or 0, 3)))
        facts.append(("Of that in use at the headroom", units.percent(safe.of_saturation or 0, 3)))
    facts.append(("Replicas", f"{sized.replicas}: {say.binding(sized, report)}"))
    if report.growth:
        facts.append(
            ("Target", f"{units.rate(report.target_per_s)}, {units.percent(report.growth, 3)} growth included")
        )
    if sized.per_hour is not None:
        facts.append(("The fleet costs", f"{say.money_of(sized.per_hour, report)} an hour"))
    if report.gpus is not None:
        gpus = f"{report.gpus} a replica, {report.gpus_in_all} in all, {units.rate(safe.per_gpu_per_s)} each"
        if report.price_per_gpu_hour is not None:
            gpus += f", {say.money_of(report.price_per_gpu_hour, report)} an hour each"
        facts.append(("GPUs", gpus))
    return facts


def _rows(report: CapacityReport) -> list[dict[str, Any]]:
    return [
        {
            "n": row.replicas,
            "chosen": report.sized is not None and row.replicas == report.sized.replicas,
            "utilisation": units.percent(row.utilisation, 3),
            "one_down": units.INFINITE if row.one_down is None else units.percent(row.one_down, 3),
            "rules": _rules(row.headroom_kept, row.one_down_kept),
            "per_hour": say.money_of(row.per_hour, report),
        }
        for row in report.rows
    ]


def _rules(headroom: bool, one_down: bool) -> str:
    if headroom and one_down:
        return "both kept"
    broken = [name for name, kept in (("headroom", headroom), ("one down", one_down)) if not kept]
    return f"too few by {' and '.join(broken)}"


def _charts(report: CapacityReport) -> list[Chart]:
    charts = []
    which: Which
    for which in ("p50", "p99"):
        values = [load.p50_ns if which == "p50" else load.p99_ns for load in report.loads]
        if not report.queues or not any(value is not None for value in values):
            continue
        label = f"{which} of the latency by rate: " + "; ".join(
            f"{units.rate(load.rate_per_s)} {units.human(value, 'ns')}"
            for load, value in zip(report.loads, values, strict=True)
        )
        legend = [Key("measured", MEASURED, "dots")]
        legend += [Key(queue.model, class_) for queue, class_ in zip(report.queues, QUEUES, strict=False)]
        charts.append(
            chart(
                f"Latency, {which}",
                "Dots: runs; hollow: it did not keep up. Lines: queues with the mean of the lowest load.",
                legend,
                lambda canvas, which=which, label=label: overlay(report, which, label, canvas),  # type: ignore[misc]
                _WIDE,
                _NARROW,
            )
        )
    return charts


def _load(load: LoadPart) -> dict[str, Any]:
    return {
        "run": load.run,
        "rate": units.rate(load.rate_per_s),
        "n": units.count(load.n),
        "state": "" if load.stable else "did not keep up",
        "pin": load.pin,
        "p50": units.human(load.p50_ns, "ns"),
        "p99": units.human(load.p99_ns, "ns"),
        "in_flight": units.NOTHING if load.in_flight is None else units.significant(float(load.in_flight), 3),
        "against": [_against(one) for one in load.against],
    }


def _against(one: AgainstPart) -> str:
    if one.p50 is None and one.p99 is None:
        return f"ρ {_times(one.utilisation)}: full" if one.utilisation >= 1 else units.NOTHING
    return f"ρ {_times(one.utilisation)}: {_times(one.p50)}, {_times(one.p99)}"


def _times(ratio: Number) -> str:
    return units.NOTHING if ratio is None else units.significant(float(ratio), 3)


def _law(law: LittlePart) -> dict[str, str]:
    return {
        "run": law.run,
        "view": law.view,
        "mean": units.significant(law.mean, 4),
        "product": units.significant(law.product, 4),
        "gap": units.significant(abs(law.mean - law.product), 2),
        "bound": units.significant(law.bound, 2),
        "holds": law.wrong or "holds",
    }
