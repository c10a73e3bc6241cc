"""barge_in_stop = silence - true speech onset, in ns: how long a server goes on after a user began to speak over it.

Silence is where a player at 1x stops that plays audio as it comes: at the server's word that it has stopped (OpenAI:
``response.done`` with status ``cancelled``), or, of an answer that had come whole, at its word that it hears speech
(``speech_started``), upon which clients drop what they hold; without such a word at the answer's end. It stands on the
row of the turn that spoke over the answer before, and the frame that holds the onset leaves up to a frame later: that
is in it. Only turns of a session on one connection that began while the answer was heard have it. Source: the
interruption latency of voice agents; OpenAI's clients flush playback on ``speech_started``.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, said_by

INDICATOR = Indicator(
    name="barge_in_stop",
    title="Barge-in: until silent",
    short="barge-in",
    group="speech",
    rank=24,
    needs=("label_barge_in_stop",),
    formula="min(stop, end of playback) - speech_start, of the answer before",
    source="interruption latency of voice agents; OpenAI realtime (speech_started, response.done cancelled)",
    summary="from the user's first sound over an answer until that answer is silent",
    compute=said_by("barge_in_stop"),
    on_failure=OnFailure.AS_IS,
)
