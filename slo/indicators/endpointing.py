"""endpointing = first endpoint event from the true speech end on - speech end, in ns: how long until the server says
that the turn is over.

Only protocols that have such an event (``speech_final``, ``end_of_turn``, ``speech_stopped``) have values. An event
inside speech is no endpoint but a mistake, counted by ``false_endpoints``: read the two together, since waiting less
cuts people off more. Only for audio sent at 1x. A success that never says it ranks as +inf where others do, and so
does a failed request. Source: the endpointing delay of Deepgram, AssemblyAI and OpenAI, from labels in the place of a
detector.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_live_speech, since

INDICATOR = Indicator(
    name="endpointing",
    title="Endpointing delay",
    group="speech",
    rank=7,
    needs=("endpoint_ns", "speech_end_ns", "pace"),
    formula="endpoint - speech_end",
    source="Deepgram, AssemblyAI, OpenAI (end of turn), from labels",
    summary="from the true speech end to the server's word that the speaker has finished",
    compute=lambda records: since(records, "speech_end_ns", records["endpoint_ns"]),
    outside=no_live_speech,
    awaited=True,
)
