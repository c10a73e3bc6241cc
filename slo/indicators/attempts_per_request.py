"""attempts_per_request: how many attempts were made for one request, hedges among them.

One that got no connection counts. Missing where the client has no habits. Its mean is the amplification: 1.3 sends
30 % more than users asked for.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, said_by

INDICATOR = Indicator(
    name="attempts_per_request",
    title="Attempts per request",
    group="last",
    rank=7,
    unit="1",
    needs=("label_tries",),
    formula="tries",
    source="Site Reliability Engineering, ch. 22, retries and cascading failures",
    summary="attempts made for one request",
    compute=said_by("tries"),
    on_failure=OnFailure.AS_IS,
)
