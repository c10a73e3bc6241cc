"""first_partial = first transcript - true speech onset, in ns: how soon the first words show once someone speaks.

The first transcript that is not empty, partial or final. Onset comes from the clip's labels, never from the server,
so silence at the head of a clip changes nothing. Only for audio sent at 1x: in a burst nobody spoke at any moment,
and such a request is outside. A negative value is a word that was shown before anyone spoke. A success that shows
nothing ranks as +inf where others did, and so does a failed request. Source: Gladia's definition; other vendors count
from other moments, see ``first_partial_from_stream_start`` and ``first_partial_after_speech_end``.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_live_speech, since

INDICATOR = Indicator(
    name="first_partial",
    title="Time to first partial",
    short="partial",
    group="speech",
    rank=1,
    chart="live",
    drawn=True,
    needs=("first_partial_ns", "speech_start_ns", "pace"),
    formula="first_partial - speech_start",
    source="Gladia (time to first partial, from speech onset)",
    summary="from true speech onset to the first transcript that is not empty",
    compute=lambda records: since(records, "speech_start_ns", records["first_partial_ns"]),
    outside=no_live_speech,
    awaited=True,
)
