"""rtf = processing time / playing time of the audio sent: below 1 is faster than real time, lower is better.

Only where audio went out as fast as it was taken: one upload, or a stream in a burst. At 1x the quotient is 1 by
construction and says nothing, so paced requests are outside (``lag_slope`` is their test), and counted as missing. An
upload counts from ``due`` to the end of the answer; a burst from its first frame, so that the session's set-up is not
in it, to the last final transcript, or the end where there is none. Some tools print the inverse under this name:
that is ``rtfx`` here. A failed request ranks as +inf. Source: the real-time factor of batch recognition.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import processing, whole_file
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    took, valid = processing(records)
    return took / np.maximum(records["media_ns"], 1), valid


INDICATOR = Indicator(
    name="rtf",
    title="Real-time factor",
    group="speech",
    rank=20,
    unit="1",
    needs=("media_ns", "pace", "due_ns", "media_start_ns", "final_ns", "done_ns"),
    formula="(end - due) / media, of unpaced audio",
    source="real-time factor of batch recognition",
    summary="processing time per second of audio, of files and bursts only",
    compute=_compute,
    outside=lambda records: ~whole_file(records),
)
