"""generator_lag = ready - due, in ns: the lateness that is the load generator's own fault.

A run is valid only while this stays small. A request that was never taken up ranks as +inf; a failed one
that was taken up has its real lag.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, between

INDICATOR = Indicator(
    name="generator_lag",
    title="Generator lag",
    group="last",
    rank=4,
    needs=("due_ns", "ready_ns"),
    formula="ready - due",
    from_due=True,
    source="Plimsoll's own health check",
    summary="how late the generator itself took the request up",
    compute=lambda records: between(records, "due_ns", "ready_ns"),
    on_failure=OnFailure.WORST_IF_ABSENT,
)
