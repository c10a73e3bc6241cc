"""ttft = first_token - due, in ns: the first non-empty chunk of output, visible or reasoning.

Role-only and empty chunks don't count. Needs a streamed answer. A success without the stamp ranks as +inf
where others have it: an empty answer is no fast one. So does a failed request, even if its first token came.
Source: MLPerf LoadGen's token mode (from the scheduled time).
"""

from plimsoll.slo.metrics.indicator import Indicator, between

INDICATOR = Indicator(
    name="ttft",
    title="Time to first token",
    short="TTFT",
    group="answer",
    chart="answer",
    drawn=True,
    needs=("due_ns", "first_token_ns"),
    formula="first_token - due",
    from_due=True,
    source="MLPerf LoadGen token mode (TTFT = first token - scheduled time)",
    summary="from when the request was due to the first token of output, reasoning included",
    compute=lambda records: between(records, "due_ns", "first_token_ns"),
    awaited=True,
)
