"""frame_missed: 1 for a frame whose slowest sample was not done ``frame_deadline`` after it was due, 0 for one in time.

Exactly at the deadline is in time. A frame with a failed sample missed it, whenever it failed. The deadline is the
scenario's ``frame_deadline``, and where that is not given the frame interval: done before the next frame is due. A
late frame is late once: the next ones left on time all the same (nothing is skipped), and are judged by deadlines of
their own; what a late one does to them by overlap is in their times. ``ratio(frame_missed)`` is the share of measured
frames, with exact bounds; ``max(frame_missed) <= 0`` allows none. Only runs with a frame interval have it. Source:
hard and firm deadlines of periodic tasks (Liu and Layland 1973: the deadline of a request is the next one's arrival).
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure
from plimsoll.slo.records.queries import of_frames

INDICATOR = Indicator(
    name="frame_missed",
    title="Frame missed",
    unit="1",
    scope="query",
    needs=("query_id", "due_ns", "done_ns", "status"),
    formula="1 if max over samples of done > due + frame_deadline, or a sample failed; else 0",
    source="Liu and Layland 1973, deadlines of periodic requests",
    summary="whether a frame's answers were not all there by its deadline",
    compute=of_frames(lambda found: found.latency > found.deadline_ns),
    on_failure=OnFailure.AS_IS,
)
