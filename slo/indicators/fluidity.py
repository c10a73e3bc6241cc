"""fluidity = tokens on time / tokens, per request: how much of the answer kept a steady pace.

The first token is due 500 ms after the request, each other one 100 ms after the one before plus the slack that earlier
tokens saved; a late token uses the slack up. This is the rule of Etalon's documentation; the one of its code, and both
with other deadlines, are in the report under ``peers``. A chunk of several tokens is taken as an even share of
``n_out``, at least one token. An answer without output is missing and satisfies a limit on a single request. A failed
request ranks as 0. More is better: write ``p5(fluidity) >= 0.9``. Source: Etalon (fluidity index).
"""

from plimsoll.slo.metrics import deadlines
from plimsoll.slo.metrics.indicator import Indicator
from plimsoll.slo.records.records import BoolArray, FloatArray, Records


def _compute(records: Records) -> tuple[FloatArray, BoolArray]:
    met = deadlines.measure(records, records["due_ns"])
    return deadlines.share_on_time(met), met.valid


INDICATOR = Indicator(
    name="fluidity",
    title="Fluidity",
    unit="1",
    better="higher",
    needs=("due_ns", "chunk_ns", "n_out"),
    formula="tokens before their deadline / tokens",
    source="Etalon's documentation (fluidity index), from the due time, 500 ms and 100 ms",
    summary="share of an answer's tokens that came before their deadline",
    compute=_compute,
    outside=lambda records: records["n_out"] == 0,
)
