"""audio_per_second = playing time of the audio received / (its last arrival - due): how fast one answer is synthesised.

Above 1 it comes faster than it plays, waiting for its start included. It is no throughput: the endpoint's total is
the report's audio seconds per second. An answer of no audio counts as 0. A request that was never meant to bring
any is outside, and so is a session that has to listen first (see ``voice_to_voice``). A failed request ranks as 0.
More is better: write ``p5(audio_per_second) >= 1.2``. Source: the inverse of the generation RTF of text to speech.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import last_audio_ns
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    last, due, audio = last_audio_ns(records), records["due_ns"], records["media_out_ns"]
    came = np.where(last == -1, records["done_ns"], last)
    valid = (audio >= 0) & (due != -1) & (came > due) & (records["media_start_ns"] == -1)
    return audio / np.where(valid, came - due, 1), np.asarray(valid)


INDICATOR = Indicator(
    name="audio_per_second",
    title="Audio per second of a request",
    group="speech",
    rank=19,
    unit="1",
    better="higher",
    needs=("due_ns", "chunk_ns", "chunk_audio_ns", "media_out_ns", "media_start_ns", "done_ns"),
    formula="media_out / (last audio - due)",
    source="inverse of the generation RTF of text to speech",
    summary="seconds of audio received per second of waiting, of one request",
    compute=_compute,
    outside=lambda records: (records["media_out_ns"] == -1) | (records["media_start_ns"] != -1),
)
