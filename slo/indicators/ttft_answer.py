"""ttft_answer = first_answer - due, in ns: the first non-empty chunk of the answer proper, after any reasoning.

What the user of a reasoning model waits for. Equals ``ttft`` when nothing is reasoned aloud; a success that
only reasoned ranks as +inf where others answered. A failed request ranks as +inf. Source: ours.
"""

from plimsoll.slo.metrics.indicator import Indicator, between

INDICATOR = Indicator(
    name="ttft_answer",
    title="Time to first answer token",
    group="answer",
    rank=1,
    needs=("due_ns", "first_answer_ns"),
    formula="first_answer - due",
    from_due=True,
    source="ours; equals ttft for a model that does not reason aloud",
    summary="from when the request was due to the first token of the answer itself, after any reasoning",
    compute=lambda records: between(records, "due_ns", "first_answer_ns"),
    awaited=True,
)
