"""Sweeps made without a run: an M/M/1 queue of 100/s whose p99 is worked out, and what a generator or a stop may do to
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plimsoll.reports.models.sweep_building import About, Course, Figures, Judged, Place, Seen, build
from plimsoll.reports.models.sweep_parts import MetricPart, SweepReport
from plimsoll.reports.parts.parts import ObjectiveResult

MU = 100.0
LIMIT_NS = 200e6
OBJECTIVE = "p99(latency) <= 200ms"


def p99_ns(rate: float) -> float:
    """Of the time in an M/M/1 queue, which is exponential: ln(100) / (mu - lambda)."""
    return 4.605170186 / (MU - rate) * 1e9


def seen(rate: float, outcome: Judged | None = None, run: str = "", **changed: Any) -> Seen:
    """One run at a rate; by default judged by its own p99, and above 100/s it did not keep up."""
    unstable = rate >= MU
    value = 1e9 if unstable else p99_ns(rate)
    judged = outcome or ("FAIL" if value > LIMIT_NS else "PASS")
    objective = ObjectiveResult(
        objective=OBJECTIVE, outcome=judged, observed=value, threshold=LIMIT_NS, unit="ns", n=100, indicator="latency",
        statistic="p99"
    )  # fmt: skip
    times = {
        "latency": MetricPart(p50=value * 0.15, p90=value / 2, p99=value),
        "tpot": MetricPart(p50=1e6, p90=2e6, p99=3e6),
    }
    figures: dict[str, Any] = {
        "outcome": judged, "reasons": ("too slow",) if judged != "PASS" else (), "unstable": unstable,
        "offered_per_s": rate,
        "achieved_per_s": min(rate, MU), "goodput_per_s": min(rate, MU) * 0.9,
        "good_fraction": 0.97 if judged == "PASS" else 0.6,
        "output_tokens_per_s": min(rate, MU) * 8, "completion": 1.0, "requests": 100, "metrics": times,
        "objectives": (objective,), "started_at": "2026-11-21T10:00:00+00:00",
    }  # fmt: skip
    return Seen(run or f"runs/{rate:g}", "done", Figures(**{**figures, **changed}))


def place(rate: float, *runs: Seen, **more: Any) -> Place:
    return Place({"rate": rate, **more}, rate, runs or (seen(rate),))


def sweep(*places: Place, promised: bool = True, name: str = "queue") -> SweepReport:
    """One series."""
    about = About(name, {"rate": [p.x for p in places]}, "rate", promised, [OBJECTIVE] if promised else [])
    return build(about, [Course({}, places)])


def two_series(rates: Sequence[float] = (20.0, 40.0, 80.0)) -> SweepReport:
    """The queue by two settings of a server, told apart by name only."""
    courses = [
        Course({"server.slots": n}, tuple(Place({"rate": r, "server.slots": n}, r, (seen(r,
            run=f"runs/{n}-{r:g}"),)) for r in rates))
        for n in (1, 2)
    ]  # fmt: skip
    return build(About("queue", {"rate": list(rates), "server.slots": [1, 2]}, "rate", True, [OBJECTIVE]), courses)
