"""session_ready = session usable - due, in ns: what a caller waits before he can speak.

Usable is the server's ready message, or the upgrade where it has none. Name look-up, TCP, TLS and the handshake are
in it, and it is in no other speech metric, which all count from the audio. A request that opened no session is
missing and satisfies a limit on a single request. A failed one ranks as +inf. Source: connection set-up as Coval
reports it, apart from latency.
"""

from plimsoll.slo.metrics.indicator import Indicator, between

INDICATOR = Indicator(
    name="session_ready",
    title="Time to a ready session",
    group="speech",
    needs=("due_ns", "open_ns"),
    formula="open - due",
    from_due=True,
    source="Coval (connection time, kept apart from latency)",
    summary="from when the session was due until audio or text could be sent",
    compute=lambda records: between(records, "due_ns", "open_ns"),
    outside=lambda records: records["open_ns"] == -1,
)
