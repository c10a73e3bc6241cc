"""e2e = last_token - due, in ns: to the last chunk that carried output.

The trailing usage chunk and the end marker don't count, which is the difference to ``latency``. Needs a
streamed answer: a success without the stamp ranks as +inf where others have it. A failed request ranks as
+inf. Source: vLLM's benchmark ends latency at the last token chunk; ours starts at the due time.
"""

from plimsoll.slo.metrics.indicator import Indicator, between

INDICATOR = Indicator(
    name="e2e",
    title="Time to last token",
    group="answer",
    rank=4,
    needs=("due_ns", "last_token_ns"),
    formula="last_token - due",
    from_due=True,
    source="vLLM bench (latency ends at the last token chunk), from the due time",
    summary="from when the request was due to the last token of output",
    compute=lambda records: between(records, "due_ns", "last_token_ns"),
    awaited=True,
)
