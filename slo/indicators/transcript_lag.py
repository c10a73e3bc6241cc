"""transcript_lag = audio spoken so far - how far into the audio the transcript reached, in ns, at each transcript
that came.

Only transcripts with a cursor (a start and a duration, or word times), of audio sent at 1x, while it was going out.
Words are long and pauses have none, so it swings by a second in any case; whether it grows is ``lag_slope``. A request
without a cursor is missing, and satisfies a limit on a single request. A failed request adds transcripts at +inf, as
many as the longest session has more. Source: Deepgram's streaming latency (audio cursor less transcript cursor).
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, entry_rows
from plimsoll.slo.metrics.speech import transcript_lag
from plimsoll.slo.records.records import BoolArray, Records


def _outside(records: Records) -> BoolArray:
    _, valid = transcript_lag(records)
    cursors = np.bincount(entry_rows("interim", records)[valid], minlength=len(records))
    return np.asarray(cursors == 0)


INDICATOR = Indicator(
    name="transcript_lag",
    title="Transcript lag",
    group="speech",
    rank=5,
    scope="interim",
    needs=("chunk_ns", "chunk_cursor_ns", "media_start_ns", "media_ns", "pace"),
    formula="(transcript - media_start) - cursor",
    source="Deepgram (audio cursor - transcript cursor)",
    summary="how far the transcript was behind the speaker, each time one came",
    compute=transcript_lag,
    outside=_outside,
)
