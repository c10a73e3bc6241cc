"""degraded: 1 for a success that a fallback gave (a smaller model, a stale answer), 0 for a full one.

The scenario's ``degraded`` says what tells them; failures have none, and are counted as failures.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, said_by

INDICATOR = Indicator(
    name="degraded",
    title="Degraded",
    group="last",
    rank=11,
    unit="1",
    needs=("label_degraded",),
    formula="1 if the answer is a fallback's, else 0",
    source="Site Reliability Engineering, ch. 21, graceful degradation",
    summary="whether a fallback answered",
    compute=said_by("degraded"),
    on_failure=OnFailure.AS_IS,
)
