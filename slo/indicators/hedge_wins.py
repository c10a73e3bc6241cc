"""hedge_wins: 1 for a request that a hedge answered, 0 for one that its first attempt or a retry did.

Missing where the client does not hedge.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, said_by

INDICATOR = Indicator(
    name="hedge_wins",
    title="Answered by a hedge",
    group="last",
    rank=9,
    unit="1",
    needs=("label_hedge",),
    formula="1 if the attempt that answered was a hedge, else 0",
    source="Dean and Barroso, The Tail at Scale, CACM 56(2), 2013",
    summary="whether a hedge answered the request",
    compute=said_by("hedge"),
    on_failure=OnFailure.AS_IS,
)
