"""first_final_after_speech_end = first final transcript from the true speech end on - speech end, in ns.

Where a first final came before the end (a server that cuts long speech into segments), the last final stands for it:
of three finals or more that is an upper bound, because records keep the first and the last. Only for audio sent at
1x. A success without a final after the end ranks as +inf where others have one, and so does a failed request. Source:
Artificial Analysis (first final after the end of speech).
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_live_speech, since
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    end, first, last = (records[name] for name in ("speech_end_ns", "first_final_ns", "final_ns"))
    after = np.where(first >= end, first, np.where(last >= end, last, -1))
    return since(records, "speech_end_ns", after)


INDICATOR = Indicator(
    name="first_final_after_speech_end",
    title="First final after speech end",
    group="speech",
    rank=10,
    needs=("first_final_ns", "final_ns", "speech_end_ns", "pace"),
    formula="first final from speech_end on - speech_end",
    source="Artificial Analysis (first final after the end of speech)",
    summary="from the true speech end to the first final transcript after it",
    compute=_compute,
    outside=no_live_speech,
    awaited=True,
)
