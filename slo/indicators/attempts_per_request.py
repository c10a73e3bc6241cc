"""attempts_per_request: how many attempts were made for one request, hedges among them.

One that got no connection counts. Missing where the client has no habits. Its mean is the amplification: 1.3 sends
30 % more than users asked for.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, OnFailure
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    tries = records.label("tries")
    return tries.astype(np.float64), tries >= 0


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
    compute=_compute,
    on_failure=OnFailure.AS_IS,
)
