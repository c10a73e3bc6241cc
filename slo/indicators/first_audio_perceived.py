"""first_audio_perceived = first audible sample heard - due, in ns: when a listener hears a voice.

First arrival plus the silence before the first audible sample (10 ms of more than 1 % of full scale), since a player
has to play it, gaps in it included; not before that sample has arrived. A player's own buffer is not in it. An answer
of silence ranks as +inf where others were heard, and so does a failed request. Source: Coval (TTFA with leading
silence).
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import heard_ns
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    heard, due = heard_ns(records), records["due_ns"]
    return (heard - due).astype(np.float64), (heard != -1) & (due != -1)


INDICATOR = Indicator(
    name="first_audio_perceived",
    title="Time to first audible audio",
    short="audible",
    group="speech",
    rank=13,
    chart="sound",
    drawn=True,
    needs=(
        "due_ns",
        "first_audio_ns",
        "leading_silence_ns",
        "audible_ns",
        "chunk_ns",
        "chunk_audio_ns",
        "media_out_ns",
    ),
    formula="max(chunk[i] + leading_silence left before chunk i, audible) - due",
    from_due=True,
    source="Coval (TTFA with leading silence)",
    summary="from when the request was due until a voice is heard, leading silence included",
    compute=_compute,
    outside=lambda records: records["media_out_ns"] == -1,
    awaited=True,
)
