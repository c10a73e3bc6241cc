"""bytes_out: what one request wrote to its connection.

Heads and frames are in it, because JSON, binary tensors and gRPC differ there too; TLS records, the connection's set-up
and what HTTP/2 sends beside its streams are not. A failed request ranks as +inf: it is cheap because it had no answer.
Missing where nothing went over a connection. Source: nginx's $request_length, from the client.
"""

from plimsoll.slo.metrics.indicator import Indicator, counted

INDICATOR = Indicator(
    name="bytes_out",
    title="Bytes sent",
    group="last",
    rank=20,
    unit="bytes",
    needs=("bytes_out",),
    formula="bytes_out",
    source="nginx, $request_length",
    summary="bytes of a request on the wire, heads and frames included",
    compute=counted("bytes_out"),
)
