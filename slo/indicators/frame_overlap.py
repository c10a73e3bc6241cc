"""frame_overlap: how many earlier frames were still unanswered when this one was due.

0 is a pipeline that is done with each frame before the next one comes. Above 0 frames are in flight together, because
one was late and the next left on time all the same. A frame with a failed sample counts until its last sample was over
(failed or done); one that never ended counts to the end of the run. It says nothing of the frame itself, so a failed
frame has its real value. Frames that the scenario cancelled count, those of the warm-up don't. Only runs with a frame
interval have it. Source: Plimsoll's own; the number in the system seen by an arrival, of queueing theory.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, OnFailure
from plimsoll.slo.records.queries import Queries, of_frames
from plimsoll.slo.records.records import FloatArray, Phase


def _earlier(found: Queries) -> FloatArray:
    values = np.zeros(len(found.first))
    for early in (True, False):
        own = np.flatnonzero((found.phase == Phase.WARMUP) == early)
        due = found.due_ns[own].astype(np.float64)
        # Nothing is over before it is due, so all that is over by now is among the earlier ones.
        over = np.searchsorted(np.sort(found.over[own]), due, side="right")
        values[own] = np.maximum(np.searchsorted(np.sort(due), due, side="left") - over, 0)
    return values


INDICATOR = Indicator(
    name="frame_overlap",
    title="Frame overlap",
    unit="1",
    scope="query",
    needs=("query_id", "due_ns", "done_ns"),
    formula="number of earlier frames with a sample not over at this frame's due",
    source="the number in the system that an arrival sees, of queueing theory",
    summary="earlier frames still in flight when a frame was due",
    compute=of_frames(_earlier),
    on_failure=OnFailure.AS_IS,
)
