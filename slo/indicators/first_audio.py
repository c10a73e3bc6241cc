"""first_audio = first decoded sample of audio - due, in ns.

The first bytes that hold a sample: headers of a container are none. Silence counts here; ``first_audio_perceived``
leaves it out. A success that brought no audio ranks as +inf where others did; one that was never meant to bring any
is outside. A failed request ranks as +inf. Source: time to first audio (TTFA) of text to speech, from the due time.
"""

from plimsoll.slo.metrics.indicator import Indicator, between

INDICATOR = Indicator(
    name="first_audio",
    title="Time to first audio",
    short="audio",
    group="speech",
    rank=12,
    chart="sound",
    needs=("due_ns", "first_audio_ns", "media_out_ns"),
    formula="first_audio - due",
    from_due=True,
    source="time to first audio (TTFA), from the due time",
    summary="from when the request was due to the first sample of audio",
    compute=lambda records: between(records, "due_ns", "first_audio_ns"),
    outside=lambda records: records["media_out_ns"] == -1,
    awaited=True,
)
