"""A capacity plan for a terminal: a card with the answer, what it costs, and the sanity check in a few lines."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plimsoll.reports.capacity import capacity_words as say
from plimsoll.reports.capacity.capacity_parts import CapacityReport, SizedPart
from plimsoll.reports.wording import units
from plimsoll.reports.wording.plain import WIDTH, listed, plain

#: Between two columns, and the widest word of a heading.
_GAP = 3
_HEADING = 8


def render(report: CapacityReport) -> bytes:
    """The card without colour, 100 columns, UTF-8."""
    return plain(render_terminal(report))


def render_terminal(report: CapacityReport, width: int = WIDTH) -> RenderableType:
    """The card for ``rich``."""
    parts: list[RenderableType] = [_banner(report)]
    if report.sized is not None:
        parts.append(_facts(report, report.sized))
    if report.costs:
        parts.append(_costs(report, width))
    parts.append(_check(report))
    if report.warnings:
        parts.append(listed("Read with care", report.warnings))
    return Group(*(piece for part in parts for piece in (part, Text(""))))


def _banner(report: CapacityReport) -> RenderableType:
    style = "blue" if report.outcome == "SIZED" else "yellow"
    lines = [
        Text(say.headline(report), style="bold"),
        Text(f"{report.kind} {report.name}: {', '.join(report.objectives)}"),
    ]
    title = Text(f" {'●' if report.outcome == 'SIZED' else '?'} {report.outcome} ", style=f"bold reverse {style}")
    return Panel(Group(*lines), title=title, title_align="left", border_style=style, box=box.ROUNDED)


def _facts(report: CapacityReport, sized: SizedPart) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("capacity of one", Text(say.capacity(report)))
    if report.safe is not None:
        safe = f"{units.rate(report.safe.per_s)} a replica"
        if report.safe.of_saturation is not None:
            safe += (
                f": {units.percent(report.safe.of_saturation, 3)} of the {units.rate(report.safe.saturation_per_s)} at which it "
                f"saturates (the objectives permit {units.percent(report.safe.slo_of_saturation or 0, 3)})"
            )
        rows.add_row("safe to give", Text(safe))
    if report.growth:
        rows.add_row(
            "target", Text(f"{units.rate(report.target_per_s)}, {units.percent(report.growth, 3)} growth included")
        )
    rows.add_row("replicas", Text(f"{sized.replicas} ({say.binding(sized, report)})"))
    down = units.INFINITE if sized.one_down is None else units.percent(sized.one_down, 3)
    rows.add_row("utilisation", Text(f"{units.percent(sized.utilisation, 3)} with all, {down} with one down"))
    rows.add_row("uncertainty", Text(say.sensitivity(report)))
    if sized.per_hour is not None:
        rows.add_row("fleet", Text(f"{say.money_of(sized.per_hour, report)} an hour"))
    if report.gpus is not None and report.safe is not None:
        gpu = f"{report.gpus} a replica, {report.gpus_in_all} in all; {units.rate(report.safe.per_gpu_per_s)} each"
        if report.price_per_gpu_hour is not None:
            gpu += f"; {say.money_of(report.price_per_gpu_hour, report)} an hour each"
        rows.add_row("GPUs", Text(gpu))
    return rows


def _costs(report: CapacityReport, width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    rows = [
        (
            say.amount(cost.full),
            say.cost_range(cost.full_range),
            say.amount(cost.target),
            say.cost_range(cost.target_range),
        )
        for cost in report.costs
    ]
    needed = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    headings = ("fully\nused", "range", "at the\ntarget", "range")
    # On a narrow terminal words wrap; a number that lost its end would be another number.
    left = width - sum(max(one, _HEADING) + _GAP for one in needed)
    names = max(len(say.cost_name(cost)) for cost in report.costs)
    what = f"what it costs, {report.currency}" if report.currency else "what it costs"
    table.add_column(what, width=max(_HEADING, min(max(names, len(what)), left)))
    for name, least in zip(headings, needed, strict=True):
        table.add_column(name, justify="right", min_width=least)
    for cost, row in zip(report.costs, rows, strict=True):
        table.add_row(say.cost_name(cost), *map(Text, row))
    return table


def _check(report: CapacityReport) -> RenderableType:
    said = [say.laws(report)]
    said += [f"{law.run}, {law.view} times: {law.wrong}" for law in report.laws if law.wrong]
    if report.queues:
        last = [load for load in report.loads if load.against and not load.pin][-1:]
        if not last:
            said.append("Only one load can be compared, and the curves are pinned there: they predict nothing yet.")
        for load in last:
            ratios = ", ".join(
                f"{one.model} {units.significant(one.p99, 2)} x"
                if one.p99 is not None
                else f"{one.model} has no steady state"
                for one in load.against
            )
            said.append(f"p99 at {units.rate(load.rate_per_s)} over the curves pinned at the lowest load: {ratios}")
        said += say.beyond(report.loads, report.queues)
        said.append(say.BATCHING)
    return listed("Queueing, as a sanity check", said)
