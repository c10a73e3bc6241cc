"""bytes_in: what one request read from its connection.

Heads and frames are in it, as in ``bytes_out``. A failed request ranks as +inf: a refusal of 40 bytes is no small
answer. Missing where nothing came over a connection. Source: nginx's $bytes_sent, from the client.
"""

from plimsoll.slo.metrics.indicator import Indicator, counted

INDICATOR = Indicator(
    name="bytes_in",
    title="Bytes received",
    group="last",
    rank=21,
    unit="bytes",
    needs=("bytes_in",),
    formula="bytes_in",
    source="nginx, $bytes_sent",
    summary="bytes of an answer on the wire, heads and frames included",
    compute=counted("bytes_in"),
)
