"""first_audio_from_text_end = first decoded sample of audio - last text written, in ns.

For text that is sent piece by piece, as a language model writes it: what the voice adds once the text is complete.
Negative where it began to speak before. Sessions that sent audio are outside. A success that brought no audio ranks
as +inf where others did, and so does a failed request. Source: FTTS of Picovoice (to the first speech byte), from the
last text.
"""

from plimsoll.slo.metrics.indicator import Indicator, between
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    took, both = between(records, "input_end_ns", "first_audio_ns")
    return took, both & (records["media_start_ns"] == -1)


INDICATOR = Indicator(
    name="first_audio_from_text_end",
    title="First audio from text end",
    group="speech",
    rank=14,
    needs=("input_end_ns", "first_audio_ns", "media_start_ns", "media_out_ns"),
    formula="first_audio - input_end",
    source="Picovoice (FTTS), from the last text",
    summary="from the last text sent to the first sample of audio",
    compute=_compute,
    outside=lambda records: (records["media_out_ns"] == -1) | (records["media_start_ns"] != -1),
    awaited=True,
)
