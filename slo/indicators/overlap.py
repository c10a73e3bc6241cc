"""overlap = time during which user and server talked at once, in ns, of one turn of a spoken conversation.

The user talks from the true onset to the true end of the turn's speech; the server while a player at 1x plays the rest
of the answer before (``barge_in_stop`` says until when) or what it says before the user has finished. Only turns of a
session on one connection whose speech is known have it; 0 is a turn in which nobody interrupted. Source: overlapped
talk of full-duplex voice agents.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, said_by

INDICATOR = Indicator(
    name="overlap",
    title="Overlapped talk",
    group="speech",
    rank=25,
    needs=("label_overlap",),
    formula="sum of |[speech_start, speech_end] and played audio|",
    source="overlap of full-duplex voice agents",
    summary="how long user and server talked at once",
    compute=said_by("overlap"),
    on_failure=OnFailure.AS_IS,
)
