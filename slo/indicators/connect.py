"""connect: duration of the connection set-up that a request paid for, in ns: TCP, and TLS where there is any.

Only requests that opened a connection have one; a reused connection is missing, not zero. A failed request
has its set-up time if it got that far and otherwise none: failures to connect show in ``error``. Source:
curl's time_connect and time_appconnect.
"""

from plimsoll.slo.metrics.indicator import Indicator, OnFailure, said_by

INDICATOR = Indicator(
    name="connect",
    title="Connection set-up",
    group="last",
    rank=5,
    needs=("connect_ns",),
    formula="connect",
    source="curl's time_connect and time_appconnect",
    summary="set-up time of the connection, for requests that opened one",
    compute=said_by("connect_ns"),
    on_failure=OnFailure.AS_IS,
    outside=lambda records: records["connect_ns"] < 0,
)
