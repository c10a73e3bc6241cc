"""Refusals as gRPC says them: a status code, the message, and when to come back. Pure.

The server's own vocabulary of refusals is HTTP's; the translation is that of Google's error model, so that a client's retry
policy does here what it does elsewhere. A 503 or 429 carries a google.rpc.RetryInfo, and the same as the metadata ``retry-after``.
"""

from __future__ import annotations

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration

from plimsoll.reference_server.values.errors import RequestError

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_MAX_MESSAGE = 1000
"""A refusal quotes what it refuses; metadata has room for little."""

Metadata = tuple[tuple[str, str | bytes], ...]


def code(status: int) -> grpc.StatusCode:
    """The gRPC status of an HTTP one."""
    if status in _CODES:
        return _CODES[status]
    return grpc.StatusCode.FAILED_PRECONDITION if status < 500 else grpc.StatusCode.UNKNOWN


def message(error: RequestError) -> str:
    """The status message, of bounded length; half a character, which JSON can quote and UTF-8 can't, becomes a question mark."""
    text = error.message.encode("utf-8", errors="replace").decode()
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + " ..."


def trailing(error: RequestError) -> Metadata:
    """What goes with the status: nothing, or when to come back."""
    if error.retry_after_s is None:
        return ()
    delay = _field(1, Duration(seconds=error.retry_after_s).SerializeToString())
    detail = Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=delay).SerializeToString()
    number = int(code(error.status).value[0])
    # google.rpc.Status: 1 code, 2 message, 3 details. Its generated module is another package's, and three fields need none.
    status = b"\x08" + _varint(number) + _field(2, message(error).encode("utf-8", errors="replace")) + _field(3, detail)
    return (("retry-after", str(error.retry_after_s)), ("grpc-status-details-bin", status))


def _field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
