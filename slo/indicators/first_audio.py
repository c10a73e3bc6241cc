"""first_audio = first decoded sample of audio - due, in ns.

The first bytes that hold a sample: headers of a container are none. Silence counts here; ``first_audio_perceived``
leaves it out. A success that brought no audio ranks as +inf where others did; one that was never meant to bring any
is outside. A failed request ranks as +inf. Source: time to first audio (TTFA) of text to speech, from the due time.
"""

from __future__ import annotations

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, between
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    return between(records, "due_ns", "first_audio_ns")


def _outside(records: Records) -> BoolArray:
    return np.asarray(records["media_out_ns"] == -1)


INDICATOR = Indicator(
    name="first_audio",
    title="Time to first audio",
    short="audio",
    group="speech",
    rank=12,
    chart="sound",
    unit="ns",
    better="lower",
    scope="request",
    needs=("due_ns", "first_audio_ns", "media_out_ns"),
    formula="first_audio - due",
    from_due=True,
    source="time to first audio (TTFA), from the due time",
    summary="from when the request was due to the first sample of audio",
    compute=_compute,
    outside=_outside,
    awaited=True,
)
