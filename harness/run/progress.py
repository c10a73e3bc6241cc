"""Live progress: a watcher adds the workers' status lines up and draws them on stderr while the run goes on.

Its percentiles come from coarse histograms (2.2 % wide) and are for the eye only; reports never use them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plimsoll.harness.generator.recorder import FRESH, spread_quantile, spreads_of
from plimsoll.harness.run.watcher import Beginning, Watcher


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known right now. ``fraction`` and ``eta_s`` are nan when the end can't be foreseen."""

    elapsed_s: float
    fraction: float
    eta_s: float
    sent: int
    done: int
    failed: int
    in_flight: int
    rate_per_s: float
    quantiles: dict[str, tuple[float, float]] = field(default_factory=dict)
    over: bool = False


class Progress(Watcher):
    """Adds up status lines and calls ``show`` with a snapshot."""

    def __init__(self, show: Callable[[Snapshot], None]) -> None:
        self._show = show
        self._latest: dict[int, Mapping[str, Any]] = {}
        self._spreads: dict[str, dict[str, int]] = {name: {} for name in FRESH}
        self._history: list[tuple[float, int]] = []
        self._t0_ns = 0
        self._span_s = 0.0
        self._planned = self._unseen = 0

    def begin(self, beginning: Beginning) -> None:
        """What the whole run is, to tell how much of it is done."""
        plan = beginning.plan
        self._t0_ns = beginning.t0_ns
        self._planned = 0 if plan.cyclic else plan.n_samples
        last_due = 0 if plan.cyclic else plan.last_ns
        self._span_s = max(last_due, plan.stop.min_duration_ns if plan.cyclic else 0) / 1e9
        self._min_queries = plan.stop.max_queries or plan.stop.min_queries

    def heard(self, worker: int, message: Mapping[str, Any]) -> None:
        """Take one worker's status line."""
        self._latest[worker] = message
        for name, bins in spreads_of(message):
            histogram = self._spreads.setdefault(name, {})
            for key, count in bins.items():
                histogram[key] = histogram.get(key, 0) + count
        self._unseen += 1
        if 4 * self._unseen >= len(self._latest):  # a picture is a sum over all: of a thousand not one for each line
            self._unseen = 0
            self._tell(self.snapshot())

    def end(self) -> None:
        """A last picture."""
        if self._latest:
            self._tell(self.snapshot(over=True))

    def _tell(self, snapshot: Snapshot) -> None:
        try:
            self._show(snapshot)
        except (OSError, ValueError):  # nobody reads stderr any more: the run goes on without an audience
            self._show = lambda snapshot: None

    def snapshot(self, over: bool = False) -> Snapshot:
        now_s = (time.monotonic_ns() - self._t0_ns) / 1e9
        total = {
            key: sum(int(m[key]) for m in self._latest.values()) for key in ("sent", "done", "failed", "in_flight")
        }
        self._history.append((now_s, total["sent"]))
        recent = [item for item in self._history if item[0] >= now_s - 3.0]
        self._history = recent
        span = recent[-1][0] - recent[0][0]
        rate = (recent[-1][1] - recent[0][1]) / span if span > 0.2 else float("nan")
        fraction = self._fraction(now_s, total["done"])
        eta = max(0.0, self._span_s - now_s) if self._span_s else float("nan")
        quantiles = {
            name: (spread_quantile(histogram, 0.5), spread_quantile(histogram, 0.99))
            for name, histogram in self._spreads.items()
            if histogram
        }
        return Snapshot(
            now_s, 1.0 if over else fraction, 0.0 if over else eta, total["sent"], total["done"], total["failed"],
            total["in_flight"], rate, quantiles, over,
        )  # fmt: skip

    def _fraction(self, now_s: float, done: int) -> float:
        by_time = now_s / self._span_s if self._span_s else 1.0
        needed = self._planned or self._min_queries
        by_count = done / needed if needed else 1.0
        if self._planned and self._span_s:
            return min(1.0, max(0.0, by_time))
        return min(1.0, max(0.0, min(by_time, by_count)))


def human_ns(value: float) -> str:
    """A duration for the eye: three digits and a unit."""
    if value != value:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} ns"


class LiveDisplay:
    """Draws snapshots: a live panel on a terminal, a line every few seconds anywhere else."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._said_s = -1e9

    def __call__(self, snapshot: Snapshot) -> None:
        if self._live is not None:
            if not self._live.is_started:
                self._live.start()
            self._live.update(self._draw(snapshot))
            if snapshot.over:
                self._live.stop()
        elif snapshot.over or snapshot.elapsed_s - self._said_s >= 5.0:
            self._said_s = snapshot.elapsed_s
            self._console.print(_line(snapshot), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None and self._live.is_started:
            self._live.stop()

    def _draw(self, snapshot: Snapshot) -> RenderableType:
        head = Text(self._title, style="bold")
        bar = ProgressBar(total=1.0, completed=min(1.0, snapshot.fraction), width=56)
        row = Table.grid(padding=(0, 2))
        row.add_row(bar, _clock(snapshot))
        table = Table.grid(padding=(0, 3))
        table.add_row(
            "sent",
            f"{snapshot.sent:,}",
            "rate",
            "–" if math.isnan(snapshot.rate_per_s) else f"{snapshot.rate_per_s:,.1f}/s",
            "in flight",
            f"{snapshot.in_flight:,}",
        )
        failed = Text(f"{snapshot.failed:,}", style="bold red" if snapshot.failed else "")
        table.add_row("done", f"{snapshot.done:,}", "errors", failed, "", "")
        figures = Table.grid(padding=(0, 3))
        for name, (p50, p99) in snapshot.quantiles.items():
            figures.add_row(name, f"p50 {human_ns(p50)}", f"p99 {human_ns(p99)}")
        return Group(head, row, table, figures)


def _clock(snapshot: Snapshot) -> str:
    if snapshot.elapsed_s < 0:
        return f"warm-up, t0 in {-snapshot.elapsed_s:.0f} s"
    if snapshot.eta_s != snapshot.eta_s:
        return f"{snapshot.elapsed_s:.0f} s"
    if snapshot.eta_s <= 0 and snapshot.fraction < 1.0:
        return f"{snapshot.elapsed_s:.0f} s"
    if snapshot.eta_s <= 0:
        return f"{snapshot.elapsed_s:.0f} s, draining"
    return f"{snapshot.elapsed_s:.0f} s, {snapshot.eta_s:.0f} s left"


def _line(snapshot: Snapshot) -> str:
    parts = [
        f"[{_clock(snapshot)}]",
        f"sent {snapshot.sent}",
        f"done {snapshot.done}",
        f"errors {snapshot.failed}",
        f"in flight {snapshot.in_flight}",
    ]
    if snapshot.rate_per_s == snapshot.rate_per_s:
        parts.append(f"{snapshot.rate_per_s:.1f}/s")
    for name, (p50, p99) in snapshot.quantiles.items():
        parts.append(f"{name} p50 {human_ns(p50)} p99 {human_ns(p99)}")
    return "  ".join(parts)
