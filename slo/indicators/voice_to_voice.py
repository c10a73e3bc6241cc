"""voice_to_voice = first audible sample of the answer - true speech end, in ns: the pause that a caller hears.

Silence at the head of the answer is part of it: the first audible sample is heard when a player that starts with the
first chunk gets to it, and not before it has arrived. A player's own buffer is not in it. With a server that detects
turns by itself its configured silence is in it too. Negative: the answer spoke over the caller. Only for audio sent
at 1x. A success without anything audible ranks as +inf where others were heard, and so does a failed request. Source:
the turn latency of voice agents.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import heard_ns, no_live_speech, since

INDICATOR = Indicator(
    name="voice_to_voice",
    title="Voice to voice",
    short="voice",
    group="speech",
    rank=11,
    chart="live",
    drawn=True,
    needs=(
        "first_audio_ns",
        "audible_ns",
        "leading_silence_ns",
        "chunk_ns",
        "chunk_audio_ns",
        "speech_end_ns",
        "media_out_ns",
        "pace",
    ),
    formula="max(chunk[i] + leading_silence left before chunk i, audible) - speech_end",
    source="voice-agent practice (turn latency)",
    summary="from the true end of the question to the first audible sample of the spoken answer",
    compute=lambda records: since(records, "speech_end_ns", heard_ns(records)),
    outside=lambda records: no_live_speech(records) | (records["media_out_ns"] == -1),
    awaited=True,
)
