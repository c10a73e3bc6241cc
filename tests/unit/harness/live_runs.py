"""Made-up runs for the live view: a plan at an even rate and the status lines that its workers would write."""

from __future__ import annotations

from typing import Any

import numpy as np

from plimsoll.harness.generator.recorder import FRESH, spread
from plimsoll.harness.run.watcher import Beginning
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.spec import parse

S = 1_000_000_000
MS = 1_000_000


def open_plan(per_s: int, seconds: int) -> Plan:
    """Constant arrivals of one sample each."""
    n = per_s * seconds
    due = np.arange(n) * (S // per_s)
    return Plan(
        due,
        np.arange(n),
        np.arange(n + 1),
        np.zeros(n, np.int64),
        np.zeros(n, np.int64),
        np.full(n, -1),
        Stop(),
        1,
        True,
    )


def beginning(plan: Plan, t0_ns: int, warmup: str = "0s", **more: Any) -> Beginning:
    """A run of that plan."""
    scenario = parse({"name": "made up", "kind": "server", "params": {"rate": 10}, "warmup": warmup, **more}, "made up")
    return Beginning("abc123", scenario, cut(plan).survey(), t0_ns)


def status(sent: int, done: int, failed: int = 0, in_flight: int = 0, **values: Any) -> dict[str, Any]:
    """One status line; ``values``: ns by name of ``FRESH``."""
    return {
        "type": "status", "sent": sent, "done": done, "failed": failed, "bad": failed, "measured": done,
        "in_flight": in_flight, **{name: spread(values.get(name, ())) for name in FRESH},
    }  # fmt: skip
