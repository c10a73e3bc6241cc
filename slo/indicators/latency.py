"""latency = done - due, in ns: what a user who came at the scheduled moment waited for.

Starts when the request was due, not when we got round to it, so a stalled endpoint is charged for the requests that
queued behind the stall. In a closed loop due is the moment the slot came free, and coordinated omission is inherent. A
failed request ranks as +inf. Source: MLPerf LoadGen (latency is taken from the scheduled time); wrk2.
"""

from plimsoll.slo.metrics.indicator import Indicator, between

INDICATOR = Indicator(
    name="latency",
    title="Latency",
    group="answer",
    rank=5,
    chart="answer",
    drawn=True,
    needs=("due_ns", "done_ns"),
    formula="done - due",
    from_due=True,
    source="MLPerf LoadGen (latency from the scheduled time); wrk2",
    summary="from when the request was due to the last byte of its answer",
    compute=lambda records: between(records, "due_ns", "done_ns"),
)
