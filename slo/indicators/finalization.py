"""finalization = last final transcript - true speech end, in ns: how long the whole text takes once the speaker has
stopped.

The end of speech comes from the clip's labels. What the endpointer waits to be sure is in it, unless the protocol
commits the audio by itself at the end: which of the two is a setting of the target, so compare only like with like.
Only for audio sent at 1x. A negative value: the text was final before the labelled end. A success without a final
transcript, or with one that leaves words open, ranks as +inf where others have one, and so does a failed request.
Source: Pipecat (TTFS, last segment), Coval (TTFS).
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_live_speech, since

INDICATOR = Indicator(
    name="finalization",
    title="Finalization latency",
    short="final",
    group="speech",
    rank=9,
    chart="live",
    drawn=True,
    needs=("final_ns", "speech_end_ns", "pace"),
    formula="final - speech_end",
    source="Pipecat and Coval (TTFS), to the last final, from labels",
    summary="from the true speech end to the last final transcript",
    compute=lambda records: since(records, "speech_end_ns", records["final_ns"]),
    outside=no_live_speech,
    awaited=True,
)
