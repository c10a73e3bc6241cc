"""A gRPC call as bytes, made before t0: the header block, the prefixed messages, the deadline. It sends nothing."""

from __future__ import annotations

import base64
from dataclasses import replace

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.origin import origin_of
from plimsoll.harness.transport.rpc.call import GrpcRequest, metadata_error, method_error
from plimsoll.harness.transport.rpc.rpc_stream import Prepared
from plimsoll.harness.transport.rpc.settings import GrpcOptions
from plimsoll.harness.wire.grpc_messages import prefixed
from plimsoll.harness.wire.hpack_blocks import request_block

_UNITS = ((1, "n"), (1_000, "u"), (1_000_000, "m"), (1_000_000_000, "S"), (60 * 10**9, "M"), (3600 * 10**9, "H"))
Metadata = tuple[tuple[str, str | bytes], ...]


class Encoder:
    """Makes the calls of one target ready to write."""

    __slots__ = ("_authority", "_headers", "_timeout_ns", "_tls")

    def __init__(self, target: Target, options: GrpcOptions) -> None:
        origin = origin_of(target.url)
        self._tls = origin.tls
        self._authority = options.authority or origin.authority
        self._headers = target.headers
        self._timeout_ns = target.timeout_ns

    def prepare(self, request: GrpcRequest) -> Prepared:
        """The call as bytes. Raises HarnessFault with everything that can't be sent."""
        metadata = checked(request, self._headers)
        timeout_ns = timeout_of(request, self._timeout_ns)
        headers = [
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("grpc-accept-encoding", "identity"),
            ("grpc-timeout", timeout_text(timeout_ns)),
        ]
        if not any(name == "user-agent" for name, _ in metadata):
            headers.append(("user-agent", "plimsoll"))
        headers += [(name, _ascii(value)) for name, value in metadata]
        block = request_block(request.method, self._authority, self._tls, headers)
        first = request.opening if request.due_ns else len(request.messages)
        frames = tuple(prefixed(message) for message in request.messages[first:])
        return Prepared(
            call=replace(request, messages=()),  # they would be kept twice
            block=block,
            opening=b"".join(prefixed(message) for message in request.messages[:first]),
            frames=frames,
            due_ns=tuple(request.due_ns[first:]),
            gap_ns=tuple(request.gap_ns[first:]),
            whole=not frames and request.closing_due_ns <= 0,
            live=bool(frames) or request.clip is not None or request.frame_ns >= 0,
            timeout_ns=timeout_ns,
        )


def checked(request: GrpcRequest, headers: tuple[tuple[str, str], ...]) -> Metadata:
    """The metadata of a call: its own, and the target's headers that it doesn't replace. Raises HarnessFault with every error."""
    given = {name for name, _ in request.metadata}
    extra = tuple((name.lower(), value.strip()) for name, value in headers if name.lower() not in given)
    errors = [error for name, value in request.metadata if (error := metadata_error(name, value))]
    for name, value in extra:
        try:
            error = metadata_error(name, decoded(value) if name.endswith("-bin") else value)
        except ValueError:
            error = f"metadata {name!r}: its value is not base64. Encode it"
        errors += [f"target.headers: {error}"] if error else []
    path = method_error(request.method)
    errors += [path] if path else []
    count = len(request.messages)
    if not request.client_streaming and count != 1:
        errors.append(f"{request.method}: it takes one message, and the payload makes {count}")
    if request.due_ns and len(request.due_ns) != count:
        errors.append(f"{request.method}: {count} messages have {len(request.due_ns)} due times")
    if request.gap_ns and len(request.gap_ns) != len(request.due_ns):
        errors.append(f"{request.method}: {len(request.due_ns)} due times have {len(request.gap_ns)} gaps")
    if errors:
        raise HarnessFault(errors)
    return (*request.metadata, *((name, decoded(value) if name.endswith("-bin") else value) for name, value in extra))


def timeout_of(request: GrpcRequest, target_ns: int) -> int:
    """How long a call may take: its deadline, and the time that its own schedule takes."""
    allowed = request.deadline_ns if request.deadline_ns > 0 else target_ns
    return allowed + max(0, request.closing_due_ns, *request.due_ns[-1:])


def timeout_text(timeout_ns: int) -> str:
    """A grpc-timeout: at most eight digits and a unit, rounded up."""
    for size, unit in _UNITS:
        count = -(-max(timeout_ns, 1) // size)
        if count < 10**8:
            return f"{count}{unit}"
    return "99999999H"


def decoded(value: str) -> bytes:
    """The bytes of base64, padded or not. Raises ValueError."""
    return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)


def _ascii(value: str | bytes) -> str:
    """A value as it is written: -bin values in base64 without padding."""
    return value if isinstance(value, str) else base64.b64encode(value).decode().rstrip("=")
