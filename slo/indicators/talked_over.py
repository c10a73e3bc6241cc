"""talked_over: 1 for a turn in which the server spoke over the user, 0 for one in which it did not.

It did where it began to answer before the true end of the user's speech, or was still heard at that end though the
user had begun to speak over it. The time that it takes to stop is no fault by itself: ``barge_in_stop`` has it. The
mean is the share of such turns: ``ratio(talked_over) <= 1%``. Only turns of a session on one connection have it.
Source: self-interruptions of full-duplex voice agents.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, said_by

INDICATOR = Indicator(
    name="talked_over",
    title="Spoken over by the server",
    group="speech",
    rank=26,
    unit="1",
    needs=("label_talked_over",),
    formula="1 if an answer is heard before speech_end, or that before it still at speech_end, else 0",
    source="full-duplex voice agents (failure to yield)",
    summary="whether the server spoke over the user",
    compute=said_by("talked_over"),
    on_failure=OnFailure.AS_IS,
)
