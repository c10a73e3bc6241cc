"""playback_stalls: how often a player which starts with the first chunk ran out of audio.

Of the simulation behind ``stall_ratio``. A promise that answers play without a break is ``playback_stalls <= 0`` with
``ratio(good) >= 99%``. An answer without audio is missing and satisfies a limit on a single request. A failed request
ranks as +inf. Source: buffer underruns of media players.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_audio, playing

INDICATOR = Indicator(
    name="playback_stalls",
    title="Stalls",
    group="speech",
    rank=17,
    unit="1",
    needs=("chunk_ns", "chunk_audio_ns"),
    formula="chunks more than 20 ms later than they were needed",
    source="buffer underruns of media players",
    summary="how often the audio broke off for a listener",
    compute=playing(lambda played: played.underruns),
    outside=no_audio,
)
