"""This module judges a finished gRPC call: by status codes, HTTP answers that are no gRPC, and resets. It never raises.

Sources: grpc/grpc doc/PROTOCOL-HTTP2.md ("Responses", "HTTP2 Transport Mapping", "Errors"), doc/statuscodes.md and
doc/http-grpc-status-mapping.md.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.rpc.call import code_name
from plimsoll.harness.wire.http2_frames import error_name
from plimsoll.harness.wire.tokens import sheds_load
from plimsoll.slo.records.records import Status

OK, GRPC, TIMEOUT = int(Status.OK), int(Status.GRPC), int(Status.TIMEOUT)
CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, PERMISSION_DENIED = 1, 2, 4, 7
RESOURCE_EXHAUSTED, INTERNAL, UNAVAILABLE = 8, 13, 14
#: HTTP/2 error codes that mean something else than INTERNAL.
_RESETS = {7: UNAVAILABLE, 8: CANCELLED, 11: RESOURCE_EXHAUSTED, 12: PERMISSION_DENIED}
#: gRPC codes that are not just GRPC.
_STATUSES = {0: OK, DEADLINE_EXCEEDED: TIMEOUT, RESOURCE_EXHAUSTED: int(Status.REFUSED)}
#: gRPC codes under which servers also shed load: their words tell.
_VAGUE = frozenset({UNKNOWN, INTERNAL, UNAVAILABLE})
Headers = Iterable[tuple[bytes, bytes]]


def reset_status(error: int) -> tuple[int, int, str]:
    """(status, gRPC code, text) of a call that the server ended by RST_STREAM with this error code."""
    code = _RESETS.get(error, INTERNAL)
    status = int(Status.REFUSED) if code in (UNAVAILABLE, RESOURCE_EXHAUSTED) else GRPC
    return status, code, f"the server reset the call: RST_STREAM {error_name(error)} (gRPC {code_name(code)})"


def put_headers(exchange: Exchange, headers: Headers) -> None:
    """Keep metadata on the exchange: ``-bin`` values decoded, pseudo-headers left out."""
    for name, value in headers:
        if not name.startswith(b":"):
            exchange.headers.append((name, _binary(value) if name.endswith(b"-bin") else value))


def judge(exchange: Exchange, http_status: int, many: bool) -> None:
    """Fill status, code and error of a finished call from ``exchange.headers`` and its messages.

    ``http_status`` is the ``:status`` of the answer (200 for a transport that doesn't say); ``many``: any number of
    response messages is right. A call that the transport gave up keeps the transport's verdict.
    """
    exchange.server_timing = outcome.header(exchange, b"server-timing")
    if exchange.status != OK:
        return
    given = outcome.header(exchange, b"grpc-status")
    if given is None:
        _judge_http(exchange, http_status)
        return
    code = int(given) if given.isascii() and given.isdigit() and len(given) < 6 else UNKNOWN
    exchange.code = code
    if code == 0:
        count = len(exchange.mark_end)
        if not many and count != 1:
            text = f"the call succeeded with {count} messages; this kind of call has one"
            outcome.fail(exchange, outcome.PROTOCOL, text)
        return
    message = percent_decoded(outcome.header(exchange, b"grpc-message") or "")
    fail_code(exchange, code, message)


def fail_code(exchange: Exchange, code: int, message: str) -> None:
    """Record a gRPC error status with the server's message: REFUSED where code or words say that it shed the load."""
    text = outcome.shown(message)
    name = f"gRPC {code_name(code)}"
    status = _STATUSES.get(code, GRPC)
    if status == GRPC and code in _VAGUE and sheds_load(message):
        status = int(Status.REFUSED)
    outcome.fail(exchange, status, f"{name}: {text}" if text else name)


def _judge_http(exchange: Exchange, http_status: int) -> None:
    """No grpc-status: the answer is a proxy's or a web server's, or the call's end is missing."""
    kind = outcome.media_type(exchange)
    if kind.startswith("application/grpc") and http_status in (-1, 200):
        outcome.fail(exchange, outcome.PROTOCOL, "the call ended without a grpc-status")
        return
    exchange.code = http_status
    said = outcome.excerpt(exchange.body)
    what = f"HTTP {http_status}" if http_status >= 0 else "an answer without a status"
    text = f"{what}, {kind or 'no content-type'} instead of gRPC" + (f": {said}" if said else "")
    if http_status in (429, 503):
        outcome.fail(exchange, outcome.REFUSED, text)
    else:
        outcome.fail(exchange, outcome.HTTP if http_status >= 300 else outcome.PROTOCOL, text)


def percent_decoded(text: str) -> str:
    """A grpc-message: UTF-8, percent-encoded where it isn't printable ASCII. What is wrongly encoded stays as it is."""
    raw, at = text.encode("latin-1", "replace"), 0
    found = bytearray()
    while at < len(raw):
        digits = raw[at + 1 : at + 3]
        if raw[at] == 0x25 and len(digits) == 2 and all(digit in b"0123456789abcdefABCDEF" for digit in digits):
            found.append(int(digits, 16))
            at += 3
        else:
            found.append(raw[at])
            at += 1
    return found.decode("utf-8", "replace")


def _binary(value: bytes) -> bytes:
    """The bytes of a -bin value, padded or not; as it is if it isn't base64."""
    try:
        return base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return value
