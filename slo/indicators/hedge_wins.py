"""hedge_wins: 1 for a request that a hedge answered, 0 for one that its first attempt or a retry did.

Missing where the client does not hedge.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, OnFailure
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    hedge = records.label("hedge")
    return hedge.astype(np.float64), hedge >= 0


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
    compute=_compute,
    on_failure=OnFailure.AS_IS,
)
