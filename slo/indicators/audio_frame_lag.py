"""audio_frame_lag = when a frame of audio was written - when it was due, in ns, each frame a value: the generator's own
lateness.

Counts on the absolute schedule of the session, so it does not add up. Late audio makes the endpoint look slower than
it is: a session with p99 above half a frame or one above two frames is marked, and too many of them make the run
invalid. A failed session has the frames that it sent. What the endpoint did not take is not in it (``unsent_bytes``).
Source: Plimsoll's own health check.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, OnFailure
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    lags, _ = records.ragged("frame_lag_ns")
    return lags.astype(np.float64), np.ones(len(lags), np.bool_)


INDICATOR = Indicator(
    name="audio_frame_lag",
    title="Lag of audio frames",
    group="last",
    scope="frame",
    needs=("frame_lag_ns",),
    formula="frame written - frame due",
    source="Plimsoll's own health check",
    summary="how late the generator itself sent a frame of audio",
    compute=_compute,
    on_failure=OnFailure.AS_IS,
    outside=lambda records: np.diff(records.ragged("frame_lag_ns")[1]) == 0,
)
