"""reader_idle: how long a reader who takes 100 ms a token had to wait for the next one, in ns, in all.

Counts from the first token: what came before it is ``ttft``. Early tokens are a store that a later gap can use up, so a
gap as such costs nothing. A chunk of several tokens is taken as an even share of ``n_out``, at least one token;
reasoning is read like the answer. A whole answer in one chunk has 0. An answer without output is missing and satisfies
a limit on a single request. A failed request ranks as +inf. Source: ours, after smooth goodput.
"""

from plimsoll.slo.metrics.deadlines import read_along
from plimsoll.slo.metrics.indicator import Indicator

INDICATOR = Indicator(
    name="reader_idle",
    title="Reader idle",
    needs=("chunk_ns", "n_out"),
    formula="sum of max(0, token i - when token i - 1 was read)",
    source="ours, after smooth goodput (arXiv 2410.14257); 100 ms a token",
    summary="time that someone reading along spent waiting for the next token",
    compute=read_along(lambda met: met.waited_ns),
    outside=lambda records: records["n_out"] == 0,
)
