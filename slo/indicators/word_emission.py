"""word_emission = when a word stood for good - when it was over in the audio, in ns, each word a value of its own.

A word of the reference stands from the message since which it was in the transcript to stay, compared without case and
punctuation, so formatting is no revision; words are followed by an alignment of the fewest edits. Needs clips whose
words have known ends. A word that was never heard right has no value, and ``wer`` counts it: promise both, or dropping
slow words would help. Negative: it stood before it was over. Only for audio sent at 1x. A request without a word stands
for the words of the longest one, at +inf, where others have some, and a failed one for those that it lacks. Words of
one request depend on each other, so a verdict cuts them by requests. Source: emission latency of streaming recognisers,
the stable variant.
"""

import numpy as np

from plimsoll.slo.metrics.indicator import Indicator, entry_rows
from plimsoll.slo.metrics.speech import live
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    lags, _ = records.ragged("word_lag_ns")
    words = entry_rows("word", records)
    return lags.astype(np.float64), live(records)[words]


INDICATOR = Indicator(
    name="word_emission",
    title="Word emission latency",
    short="words",
    group="speech",
    rank=4,
    chart="live",
    scope="word",
    needs=("word_lag_ns", "words", "pace"),
    formula="word stands - word's true end",
    source="word emission latency of streaming recognition, stable variant",
    summary="from the true end of a word until the transcript shows it for good",
    compute=_compute,
    outside=lambda records: (records["words"] <= 0) | ~live(records),
    awaited=True,
)
