"""generator_lag = ready - due, in ns: the lateness that is the load generator's own fault.

A run is valid only while this stays small. A request that was never taken up ranks as +inf; a failed one
that was taken up has its real lag.
"""

from __future__ import annotations

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, between
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    return between(records, "due_ns", "ready_ns")


INDICATOR = Indicator(
    name="generator_lag",
    title="Generator lag",
    group="last",
    rank=4,
    unit="ns",
    better="lower",
    scope="request",
    needs=("due_ns", "ready_ns"),
    formula="ready - due",
    from_due=True,
    source="Plimsoll's own health check",
    summary="how late the generator itself took the request up",
    compute=_compute,
    on_failure=OnFailure.WORST_IF_ABSENT,
)
