"""stall_ratio = time stood still / (playing time + time stood still), of a player that starts with the first chunk.

Simulated at 1x without a buffer: a chunk that comes more than 20 ms after it is needed stops the player until it is
there, and it goes on at once. 0 is a voice without a break. The report has the same with 100, 200 and 400 ms of audio
gathered first. Audio that never came stalls nobody, so promise success too. An answer without audio is missing and
satisfies a limit on a single request. A failed request ranks as +inf. Source: the stall ratio of video players, for
speech.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_audio, playing

INDICATOR = Indicator(
    name="stall_ratio",
    title="Stalled share of playing time",
    group="speech",
    rank=15,
    unit="1",
    needs=("chunk_ns", "chunk_audio_ns"),
    formula="stalled / (audio + stalled), 1x from the first chunk, 20 ms tolerated",
    source="stall ratio of media players",
    summary="share of the playing time that a listener heard nothing because audio was late",
    compute=playing(lambda played: played.stall_ratio),
    outside=no_audio,
)
