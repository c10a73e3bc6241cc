"""ttfb = first_byte - due, in ns: the first byte of the answer, headers included.

A streaming server may send its headers long before the first token, so this is not ``ttft``. A failed
request ranks as +inf. Source: curl's time_starttransfer, but taken from the due time.
"""

from plimsoll.slo.metrics.indicator import Indicator, between

INDICATOR = Indicator(
    name="ttfb",
    title="Time to first byte",
    group="answer",
    rank=7,
    needs=("due_ns", "first_byte_ns"),
    formula="first_byte - due",
    from_due=True,
    source="curl's time_starttransfer, taken from the due time",
    summary="from when the request was due to the first byte of the answer",
    compute=lambda records: between(records, "due_ns", "first_byte_ns"),
)
