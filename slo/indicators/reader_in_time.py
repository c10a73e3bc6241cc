"""reader_in_time = 1 - stalls / tokens, per request: how much of the answer was there when its reader wanted it.

The same reader as in ``reader_idle``. Of a chunk of several tokens only the first can be late. An answer without output
is missing and satisfies a limit on a single request. A failed request ranks as 0. More is better: write
``p5(reader_in_time) >= 0.99``. Source: ours, after smooth goodput.
"""

from plimsoll.slo.metrics.deadlines import read_along, share_on_time
from plimsoll.slo.metrics.indicator import Indicator

INDICATOR = Indicator(
    name="reader_in_time",
    title="Reader in time",
    unit="1",
    better="higher",
    needs=("chunk_ns", "n_out"),
    formula="1 - stalls / tokens",
    source="ours, after smooth goodput (arXiv 2410.14257); 100 ms a token",
    summary="share of an answer's tokens that were there when someone reading along wanted them",
    compute=read_along(share_on_time),
    outside=lambda records: records["n_out"] == 0,
)
