"""longest_stall: the longest that a player which starts with the first chunk had to wait for the next one, in ns.

Of the simulation behind ``stall_ratio``, where a chunk late by no more than 20 ms is in time; 0 without a stall. An
answer without audio is missing and satisfies a limit on a single request. A failed request ranks as +inf. Source:
vLLM-Omni (audio continuity, with 100 ms as its limit).
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import no_audio, playing

INDICATOR = Indicator(
    name="longest_stall",
    title="Longest stall",
    group="speech",
    rank=16,
    needs=("chunk_ns", "chunk_audio_ns"),
    formula="max over chunks of arrival - when it was needed",
    source="vLLM-Omni (audio continuity)",
    summary="longest break in the audio as a listener hears it",
    compute=playing(lambda played: played.longest_ns),
    outside=no_audio,
)
