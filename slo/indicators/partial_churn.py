"""partial_churn = words of the running transcript that were changed or taken back / words of the reference.

0 is a transcript that only grows; 1 is one that rewrote itself once over. Compared without case and punctuation.
Servers that send no partials have 0 and show nothing early (``first_partial``). A request whose reference has no
words is missing and satisfies a limit on a single request. A failed request ranks as +inf. Source: the stability of
incremental recognition (edit overhead), per reference word.
"""

from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.metrics.speech import per_word

INDICATOR = Indicator(
    name="partial_churn",
    title="Rewritten words per word",
    group="speech",
    rank=23,
    unit="1",
    needs=("n_revised", "words"),
    formula="revised words / words of the reference",
    source="stability of incremental recognition (edit overhead)",
    summary="how much of the shown transcript was rewritten",
    compute=per_word("n_revised"),
    outside=lambda records: (records["n_revised"] < 0) | (records["words"] <= 0),
)
