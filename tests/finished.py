"""A response as the transport leaves it: for tests of what ``settle`` makes of it. No socket is involved."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.harness.exchange import Exchange
from plimsoll.slo.records.records import Status

MS = 1_000_000


def finished(
    reads: Sequence[bytes],
    code: int = 200,
    content_type: str | None = "text/event-stream",
    headers: Sequence[tuple[bytes, bytes]] = (),
    status: Status = Status.OK,
    error: str | None = None,
) -> Exchange:
    """An exchange whose read i of the body arrived at (i + 1) ms."""
    exchange = Exchange(7, 0, 3, 0, None)
    exchange.sent_ns = 0
    exchange.code = code
    exchange.status = int(status)
    exchange.error = error
    exchange.headers = list(headers)
    if content_type is not None:
        exchange.headers.append((b"content-type", content_type.encode()))
    for i, read in enumerate(reads):
        exchange.body += read
        exchange.mark_ns.append((i + 1) * MS)
        exchange.mark_end.append(len(exchange.body))
    exchange.bytes_in = len(exchange.body)
    exchange.done_ns = (len(reads) + 1) * MS
    return exchange
