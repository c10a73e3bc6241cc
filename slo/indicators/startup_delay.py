"""startup_delay: how much later than the first chunk a player must start to play without any stall, in ns.

Exactly max(arrival - first arrival - audio before it), nothing tolerated; 0 where every chunk comes before it is
needed. It is the buffer that a client needs for this endpoint, and it comes on top of ``first_audio``. An answer
without audio is missing and satisfies a limit on a single request. A failed request ranks as +inf. Source: start-up
delay of media players.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_audio, playing

INDICATOR = Indicator(
    name="startup_delay",
    title="Required start-up delay",
    group="speech",
    rank=18,
    needs=("chunk_ns", "chunk_audio_ns"),
    formula="max(0, chunk[i] - chunk[0] - audio before chunk i)",
    source="start-up delay of media players",
    summary="smallest delay at the start with which the audio plays without a break",
    compute=playing(lambda played: played.required_ns),
    outside=no_audio,
)
