"""reader_stalls: how often a reader who takes 100 ms a token ran out of text before the answer went on.

The same reader as in ``reader_idle``, which says for how long. An answer without output is missing and satisfies a
limit on a single request. A failed request ranks as +inf. Source: ours, after smooth goodput.
"""

from plimsoll.slo.metrics.deadlines import read_along
from plimsoll.slo.metrics.indicator import Indicator

INDICATOR = Indicator(
    name="reader_stalls",
    title="Reader stalls",
    unit="1",
    needs=("chunk_ns", "n_out"),
    formula="tokens i with token i later than token i - 1 was read",
    source="ours, after smooth goodput (arXiv 2410.14257); 100 ms a token",
    summary="how often someone reading along had to wait for the next token",
    compute=read_along(lambda met: met.late),
    outside=lambda records: records["n_out"] == 0,
)
