"""wasted_tokens: tokens of output that came in attempts of a request which did not answer it.

They were made and paid for. 0 for a request of one attempt; missing where the client has no habits.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, OnFailure
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    wasted, tries = records.label("wasted_tokens"), records.label("tries")
    return np.maximum(wasted, 0).astype(np.float64), tries >= 0


INDICATOR = Indicator(
    name="wasted_tokens",
    title="Wasted tokens",
    group="last",
    rank=10,
    unit="1",
    needs=("label_wasted_tokens", "label_tries"),
    formula="sum of n_out over the attempts that did not answer",
    source="Dean and Barroso, The Tail at Scale, CACM 56(2), 2013",
    summary="tokens in attempts that did not answer",
    compute=_compute,
    on_failure=OnFailure.AS_IS,
)
