"""first_partial_from_stream_start = first transcript - start of the audio, in ns.

Counts from audio sample 0, so silence at the head of the clip is in it: compare it only over the same clips. Only for
audio sent at 1x. A success that shows nothing ranks as +inf where others did, and so does a failed request. Source:
Coval (TTFT of transcription).
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_live_speech, since

INDICATOR = Indicator(
    name="first_partial_from_stream_start",
    title="First partial from stream start",
    group="speech",
    rank=2,
    needs=("first_partial_ns", "media_start_ns", "pace"),
    formula="first_partial - media_start",
    source="Coval (TTFT of transcription, from the start of the stream)",
    summary="from the start of the audio, silence included, to the first transcript that is not empty",
    compute=lambda records: since(records, "media_start_ns", records["first_partial_ns"]),
    outside=no_live_speech,
    awaited=True,
)
