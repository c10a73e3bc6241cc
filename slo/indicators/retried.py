"""retried: 1 for a request that was sent again after a failure, 0 for one that was not; a hedge is no retry.

Missing where the client has no habits.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, OnFailure
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    tries, hedges = records.label("tries"), np.maximum(records.label("hedges"), 0)
    return (tries - hedges > 1).astype(np.float64), tries >= 0


INDICATOR = Indicator(
    name="retried",
    title="Retried",
    group="last",
    rank=8,
    unit="1",
    needs=("label_tries", "label_hedges"),
    formula="1 if tries - hedges > 1, else 0",
    source="Site Reliability Engineering, ch. 22, retries and cascading failures",
    summary="whether the request was tried again",
    compute=_compute,
    on_failure=OnFailure.AS_IS,
)
