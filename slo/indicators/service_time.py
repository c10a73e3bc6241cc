"""service_time = done - sent, in ns: how long the endpoint worked, without the wait before sending.

A diagnostic: it hides every request that had to wait to be sent, so judge ``latency`` instead. A failed
request ranks as +inf. Source: YCSB (service time against intended time); wrk2's uncorrected histogram.
"""

from plimsoll.slo.metrics.indicator import Indicator, between

INDICATOR = Indicator(
    name="service_time",
    title="Service time",
    short="service",
    group="answer",
    rank=6,
    chart="answer",
    needs=("sent_ns", "done_ns"),
    formula="done - sent",
    source="YCSB (service time against intended time); wrk2's uncorrected histogram",
    summary="from the first byte sent to the last byte of the answer",
    compute=lambda records: between(records, "sent_ns", "done_ns"),
)
