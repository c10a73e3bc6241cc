"""wer = word errors / words of the reference, of one request: words substituted, left out or added, both texts
normalised.

The headline is the pooled rate, errors of all requests over words of all: ``accuracy(wer) <= 5%`` promises that one,
and the report gives it by slice. Of this one ``mean(wer)`` is the mean of utterances, in which a short utterance
weighs as much as a long one. Above 1 where more was added than said. The normaliser's name and version are in the
report; rates under two normalisers are two different numbers. A request whose reference has no words is outside. A
failed request ranks as +inf. Source: word error rate, NIST.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import per_word

INDICATOR = Indicator(
    name="wer",
    title="Word error rate of a request",
    group="speech",
    rank=22,
    unit="1",
    needs=("word_errors", "words"),
    formula="word_errors / words",
    source="NIST (word error rate), per utterance",
    summary="word errors per word of the reference, of one request",
    compute=per_word("word_errors"),
    outside=lambda records: records["words"] <= 0,
)
