"""first_partial_after_speech_end = first transcript from the true speech end on - speech end, in ns.

Any message with a transcript counts, partial or final, as soon as the speaker has stopped: it says when news came,
not when the text was right (``finalization``). Only for audio sent at 1x. A success that shows nothing more after the
end, say because its final came before, ranks as +inf where others did show something, and so does a failed request.
Source: Artificial Analysis (first partial after the end of speech), with labels in the place of a detector.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import first_transcript_from, no_live_speech, since

INDICATOR = Indicator(
    name="first_partial_after_speech_end",
    title="First partial after speech end",
    group="speech",
    rank=3,
    needs=("chunk_ns", "chunk_audio_ns", "first_partial_ns", "speech_end_ns", "pace"),
    formula="first transcript from speech_end on - speech_end",
    source="Artificial Analysis (first partial after the end of speech)",
    summary="from the true speech end to the next message with a transcript",
    compute=lambda records: since(records, "speech_end_ns", first_transcript_from(records, records["speech_end_ns"])),
    outside=no_live_speech,
    awaited=True,
)
