"""How late this host wakes a sleeper just now, and how long the engine therefore stays awake before each due time.

Asked before the load, by sleeping to absolute deadlines on the clock that the workers use, for a fifth of a second and
never more than ``LIMIT_NS``. Only where it changes something: an open loop that the compiled engine of this host sends,
with no ``target.options.spin`` given. Nothing is judged here: whether the run was on time is told by what happened in
it.

Awake for s before each due time costs a worker s times its rate of a core. So: s is the p90 of the lateness that was
found (then nine of ten wake-ups are hidden), at least what is stayed awake for without a probe (``native.SPIN_NS``), at
most ``MOST_NS``, and never more than a quarter of a core at the planned rate (``native.spin_of``). What is later than
``MOST_NS`` is not the timer but somebody else on the cores, and against that no waiting awake helps: a thread that
burns its core for long is put off for longer.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.generator import native
from plimsoll.harness.host.calibration_table import engine_of
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.slo.records.records import IntArray
from plimsoll.slo.statistics.distribution import quantile

SLEEP_NS = 1_000_000
SLEEPS = 200
LIMIT_NS = 400_000_000
#: Measured with 30 % of both cores stolen: 200 us awake cost nothing against 50, 1 ms made one request in five late
#: (docs/decisions/generator.md).
MOST_NS = 200_000
_QUANTILES = (("p50", "0.5"), ("p90", "0.9"), ("p99", "0.99"), ("max", "1"))


async def lateness(sleeps: int = SLEEPS, limit_ns: int | None = None) -> IntArray:
    """How late each of so many sleeps of 1 ms was, ascending; fewer where ``limit_ns`` is over before."""
    clock = LoopClock(asyncio.get_running_loop())
    over = asyncio.Event()
    late: list[int] = []
    due_ns = clock.now_ns() + SLEEP_NS
    until_ns = clock.now_ns() + limit_ns if limit_ns is not None else None

    def fire() -> None:
        nonlocal due_ns
        now = clock.now_ns()
        late.append(now - due_ns)
        due_ns = clock.now_ns() + SLEEP_NS
        if len(late) == sleeps or (until_ns is not None and now > until_ns):
            over.set()
        else:
            clock.wake_at(due_ns, fire)

    clock.wake_at(due_ns, fire)
    await over.wait()
    clock.close()
    return np.sort(np.array(late, dtype=np.int64))


def matters(target: Target, plan: Plan) -> bool:
    """Whether what the probe finds would change anything for this load, sent by workers of this host."""
    paced = plan.open_loop and plan.n_queries > 1
    return paced and target.spin_ns is None and protocols()[target.protocol].needs_url and engine_of(target) == "native"


def chosen(late: IntArray, plan: Plan, workers: int) -> dict[str, Any]:
    """What was found and what follows from it, as the manifest keeps it. ``late`` ascending, not empty."""
    ordered = late.astype(np.float64)
    found = {name: int(quantile(ordered, q)) for name, q in _QUANTILES}
    wanted = min(max(found["p90"], native.SPIN_NS), MOST_NS)
    spin_ns = native.spin_of(plan, wanted, workers)
    gap_ns = workers * int(np.ptp(plan.due_ns)) / plan.n_queries
    return {
        "late_ns": found,
        "sleeps": len(late),
        "spin_ns": spin_ns,
        "core_share": round(spin_ns / gap_ns, 6) if gap_ns else 0.0,
    }


async def tuned(target: Target, plan: Plan, workers: int) -> tuple[Target, dict[str, Any]]:
    """The target with its spin chosen, and what the manifest keeps of that; both unchanged where it does not matter."""
    if not matters(target, plan):
        return target, {}
    found = chosen(await lateness(limit_ns=LIMIT_NS), plan, workers)
    return replace(target, spin_ns=found["spin_ns"]), {"timer": found}
