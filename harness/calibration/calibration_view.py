"""A calibration for people: what the machine keeps, and every probe behind it. Computes nothing."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from plimsoll.harness.host.capability import SATURATED, Probe, Spread, Table
from plimsoll.harness.run.progress import human_ns


def tables(table: Table) -> list[RenderableType]:
    """The parts of the page, in order."""
    return [_summary(table), *(_probes(title, unit, found) for title, unit, found in _climbs(table) if found)]


def _climbs(table: Table) -> tuple[tuple[str, str, list[Probe]], ...]:
    return (
        ("Small answers, Poisson arrivals", "requests/s", table.open_loop),
        ("Streams, a token a millisecond", "requests/s", table.tokens),
        ("Streams at once, a token in 50 ms", "streams", table.streams),
    )


def _summary(table: Table) -> Grid:
    grid = _grid(f"One worker on this machine ({table.day}, {table.host.engine} engine, {table.took_s:.0f} s)")
    grid.add_column("")
    grid.add_column("", justify="right")
    grid.add_column("", overflow="fold")
    closed = table.closed_loop
    slow = " (the server was the limit)" if closed.cpu < SATURATED else ""
    grid.add_row("open loop", _number(table.requests_per_s, "requests/s"), _kept(table, table.open_loop))
    grid.add_row("closed loop", _number(closed.requests_per_s, "requests/s"), f"64 connections{slow}")
    grid.add_row("token events", _number(table.token_events_per_s, "events/s"), _kept(table, table.tokens))
    grid.add_row("streams at once", _number(table.concurrency, "streams"), _kept(table, table.streams))
    if table.added is not None:
        share = f"{table.added.kernel_share:.0%} kernel stamps"
        half = f"at {table.added.token_events_per_s:,.0f} token events/s, {share}"
        grid.add_row("error of TTFT", _spread(table.added.ttft_error_ns), half)
        grid.add_row("error of ITL", _spread(table.added.itl_error_ns), half)
        grid.add_row("lag", _spread(table.added.lag_ns), "the same run")
    grid.add_row("bare timer", _spread(table.timer_late_ns), "late, with nothing else to do")
    grid.add_row("cores", str(table.host.cores), table.host.cpu)
    grid.add_row("open files", f"{table.open_files:,}", "per process, hard limit")
    grid.add_row("local ports", f"{table.ports:,}", "connections to one address")
    where = "on a core of its own" if table.pinned else "on the same core: every figure is lower than it could be"
    grid.add_row("server", table.server, where)
    return grid


def _kept(table: Table, probes: list[Probe]) -> str:
    if not any(probe.kept for probe in probes):
        return "none was kept: is the machine busy?"
    return "at least: the server was the limit" if table.server_limited(probes) else "with lag and error p99 <= 1 ms"


def _probes(title: str, unit: str, probes: list[Probe]) -> Grid:
    grid = _grid(title)
    for name in (unit, "token events/s", "lag p99", "TTFT error p99", "CPU"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("kept", overflow="fold")
    for probe in sorted(probes, key=lambda one: one.asked):
        limited = "the server did not keep up; " if probe.server_limited else ""
        grid.add_row(
            f"{probe.asked:,.0f}",
            f"{probe.token_events_per_s:,.0f}" if probe.token_events_per_s else "",
            _p99(probe.lag_ns),
            _p99(probe.ttft_error_ns),
            f"{probe.cpu:.0%}",
            Text("yes" if probe.kept else f"no: {limited}{probe.reason}"),
        )
    return grid


def _grid(title: str) -> Grid:
    return Grid(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2))


def _number(value: float | None, unit: str) -> str:
    return f"no {unit}" if value is None else f"{value:,.0f} {unit}"


def _spread(spread: Spread) -> str:
    if spread.p50 is None or spread.p99 is None:
        return "-"
    return f"{human_ns(spread.p50)} / {human_ns(spread.p99)}"


def _p99(spread: Spread) -> str:
    return "-" if spread.p99 is None else human_ns(spread.p99)
