"""rtfx = playing time of the audio sent / processing time, of one request: above 1 is faster than real time, higher
is better.

The inverse of ``rtf``, over the same requests and the same time. It is no throughput: many at once each have their own,
and the endpoint's total is the report's audio seconds per second, which some tools call RTFx. A failed request ranks as
0. More is better, so promise the low tail: ``p5(rtfx) >= 20``. Source: the Open ASR Leaderboard (RTFx), of one request.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import processing, whole_file
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    took, valid = processing(records)
    return records["media_ns"] / np.maximum(took, 1.0), valid


INDICATOR = Indicator(
    name="rtfx",
    title="Inverse real-time factor",
    group="speech",
    rank=21,
    unit="1",
    better="higher",
    needs=("media_ns", "pace", "due_ns", "media_start_ns", "final_ns", "done_ns"),
    formula="media / (end - due), of unpaced audio",
    source="Open ASR Leaderboard (RTFx), per request",
    summary="seconds of audio per second of processing, of files and bursts only",
    compute=_compute,
    outside=lambda records: ~whole_file(records),
)
