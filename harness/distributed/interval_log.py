"""``intervals.hlog`` of a distributed run: the agents' increments added up, or, where they can't be right, a count of the records that came.

Increments and records travel apart, so of an agent that was lost midway the two may differ. The file is of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from plimsoll.harness.distributed.intervals import Merged, rows_of
from plimsoll.harness.generator.segments import read_segment
from plimsoll.harness.process.writing import whole
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.spec import Scenario
from plimsoll.slo.records import cancelled
from plimsoll.slo.records.records import Records

FILE = "intervals.hlog"


def marking(scenario: Scenario, build: Callable[[], Plan]) -> Callable[[Records], Records]:
    """What sets apart the queries that the scenario cancels on purpose: they are in no metric. ``build``: the plan, if it is needed."""
    if not scenario.cancel:
        return lambda records: records
    plan = build()
    return lambda records: cancelled.marked(
        records, cancellation.chosen(scenario.cancel, scenario.seed, plan, records["query_id"])
    )


def counted(folder: Path, kept: Iterable[Records], marked: Callable[[Records], Records]) -> Merged:
    """The intervals of every readable segment in ``folder``, one after the other, and of rows ``kept`` in memory."""
    merged = Merged()
    for path in sorted(folder.glob("w*.seg")):
        try:
            records = read_segment(path)
        except (OSError, ValueError, KeyError):
            continue  # sealing says so
        merged.add(rows_of(marked(records)))
    for records in kept:
        merged.add(rows_of(marked(records)))
    return merged


def write(merged: Merged, t0_wall_ns: int, run: Path) -> None:
    """The file in the run directory, if there is an interval. Raises OSError."""
    if len(merged):
        whole(run / FILE, merged.log(t0_wall_ns).encode("ascii"))
