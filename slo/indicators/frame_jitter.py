"""frame_jitter = |(done of this frame - done of the one before) - (due of this one - due of the one before)|, in ns.

How uneven answers come that were asked for evenly: with frames every 33 ms and answers every 33 ms it is 0, however
long each of them takes. It equals the difference of two successive query latencies, as an absolute value. Successive
is by due time among the measured frames; the first has no predecessor and no value. A frame with a failed sample
never came: its own value and the next one's are +inf. Its p50 is the usual unevenness, its p99 the judder. Only runs
with a frame interval (``multi_stream`` with ``frame_interval``) have it. Source: RFC 3393 (delay variation of
successive packets), RFC 3550 section 6.4.1 (D(i, j), there smoothed; here each value counts).
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.records.queries import each, framed, none, together
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    if not framed(records):
        return none(records)
    found = together(records)
    lost = np.isinf(found.latency)
    took = np.where(lost, 0.0, found.latency)
    values, valid = np.zeros(len(took)), found.frames.copy()
    values[1:] = np.where(lost[1:] | lost[:-1], np.inf, np.abs(np.diff(took)))
    valid[:1] = False
    valid[1:] &= found.frames[:-1] & (np.diff(found.phase) == 0)
    return each(found, values, valid)


def _first(records: Records) -> BoolArray:
    """The first frame has none before it."""
    return ~_compute(records)[1] if framed(records) else np.zeros(len(records), np.bool_)


INDICATOR = Indicator(
    name="frame_jitter",
    title="Frame jitter",
    scope="query",
    needs=("query_id", "due_ns", "done_ns", "status"),
    formula="|(done[k] - done[k - 1]) - (due[k] - due[k - 1])|, done of the slowest sample",
    source="RFC 3393, IP packet delay variation; RFC 3550 section 6.4.1",
    summary="how far the spacing of successive frames' answers is off the spacing of the frames",
    compute=_compute,
    outside=_first,
)
