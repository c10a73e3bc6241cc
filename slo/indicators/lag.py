"""lag = sent - due, in ns: how late the request left, whoever's fault that was.

The generator's own part is ``generator_lag``; the rest is waiting for a connection, which is the endpoint's
back-pressure. A request that was never sent ranks as +inf; a failed one that was sent has its real lag.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, between

INDICATOR = Indicator(
    name="lag",
    title="Schedule lag",
    group="last",
    rank=3,
    needs=("due_ns", "sent_ns"),
    formula="sent - due",
    from_due=True,
    source="Gil Tene on coordinated omission; Plimsoll's own health check",
    summary="how late the request was sent: the generator's lateness plus any wait for a connection",
    compute=lambda records: between(records, "due_ns", "sent_ns"),
    on_failure=OnFailure.WORST_IF_ABSENT,
)
