"""false_endpoints: how often the server said that the speaker had finished while he was still speaking.

Its mean is the false endpoint rate, events for each utterance: ``mean(false_endpoints) <= 0.01``. The other half of
``endpointing``. Only sessions in which the server said anything of the kind have a value; the others are missing, and
satisfy a limit on a single request. Only for audio sent at 1x. A failed request ranks as +inf. Source: false endpoint
rate (false cut-in rate) of endpointers.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import live
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    inside = records["false_endpoints"]
    said = (inside > 0) | ((inside == 0) & (records["endpoint_ns"] != -1))
    return inside.astype(np.float64), np.asarray(said & live(records))


def _outside(records: Records) -> BoolArray:
    inside = records["false_endpoints"]
    return np.asarray((inside < 0) | ((inside == 0) & (records["endpoint_ns"] == -1)) | ~live(records))


INDICATOR = Indicator(
    name="false_endpoints",
    title="False endpoints",
    group="speech",
    rank=8,
    unit="1",
    needs=("false_endpoints", "endpoint_ns", "pace"),
    formula="endpoint events strictly inside true speech",
    source="false endpoint rate of endpointing detectors",
    summary="how often the server cut the speaker off",
    compute=_compute,
    outside=_outside,
)
