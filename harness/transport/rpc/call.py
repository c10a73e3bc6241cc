"""The seam of gRPC: what one call says and when (``GrpcRequest``), and what a dialect must do (``GrpcDialect``).

The transport (``rpc/rpc_pool``: our own HTTP/2 on the stamped stream) knows no message types: bytes in, bytes out. A
dialect says which messages a payload becomes, before t0, and reads the answers off the clock. Here too are the options
that every gRPC protocol shares, and what goes with every call of a target (``metadata_of``). Nothing here does I/O, and
nothing here knows protobuf.

What ``settle`` is given:

* ``exchange.body``: the payloads of the response messages, back to back, without their 5-byte prefixes; message i is
  ``body[mark_end[i-1]:mark_end[i]]`` and its last byte arrived at ``mark_ns[i]``. Exactly one mark per message.
* ``exchange.code``: the gRPC status code (0 to 16), the HTTP status of an answer that wasn't gRPC (>= 100), or -1.
* ``exchange.headers``: initial metadata, then trailing metadata; names in lower case, ``-bin`` values decoded.
* ``exchange.session``, if the request has a schedule or a clip: ``open_ns``, ``media_start_ns``, the true times of
  the clip's speech, ``input_end_ns``, ``unsent_bytes``, ``frame_lag_ns``, ``pace``, ``frame_ns`` and ``slice`` are
  filled.
* ``exchange.status`` and ``exchange.error``: judged already (``rpc_outcome.judge``). A dialect only makes them worse,
  by ``outcome.fail``: a 0 status may hold an error inside its message.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field, ValidationInfo, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.text.fields import Duration
from plimsoll.slo.records.records import PACE_FILE

if TYPE_CHECKING:
    from plimsoll.slo.verdict.accuracy import Answer

#: gRPC status codes by number.
CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
#: Metadata that the transport writes itself (gRPC over HTTP/2: "Requests").
RESERVED = frozenset({"te", "content-type", "host", "connection", "x-request-id", "content-length"})
Metadata = tuple[tuple[str, str | bytes], ...]
_NAME = re.compile(r"[0-9a-z_.-]+\Z")
_VALUE = re.compile(r"[\x20-\x7e]*\Z")
_METHOD = re.compile(r"/[\x21-\x2e\x30-\x7e]+/[\x21-\x2e\x30-\x7e]+\Z")


class GrpcOptions(Options):
    """Options of every gRPC protocol."""

    own_connection: bool = False
    channels: int = Field(default=1, ge=1, le=4096)
    max_message: int = Field(default=64 << 20, ge=1, le=256 << 20)
    authority: str | None = Field(default=None, pattern=r"^[\x21-\x7e]+$")
    deadline: Duration | None = Field(default=None, gt=0)

    @property
    def deadline_ns(self) -> int:
        return -1 if self.deadline is None else self.deadline

    @field_validator("channels")
    @classmethod
    def _one_of_the_two(cls, value: int, info: ValidationInfo) -> int:
        if value != 1 and info.data.get("own_connection"):
            raise ValueError("own_connection opens one for each call. Give one of the two")
        return value


def shared_options(options: Mapping[str, Any]) -> GrpcOptions:
    """Those options of a protocol that every gRPC protocol has. Raises HarnessFault."""
    return accept(GrpcOptions, {name: options[name] for name in GrpcOptions.model_fields if name in options})


@dataclass(frozen=True, slots=True)
class GrpcRequest:
    """One call, complete before t0.

    ``method`` is ``/package.Service/Method``; ``messages`` are serialized messages without the 5-byte prefix.
    ``due_ns[i]`` says when message i is written, in ns after the call's start (its headers), never decreasing; an empty
    tuple sends all at once. ``closing_due_ns`` is when we half-close (-1: with the last message). The first ``opening``
    messages are no frames (a config, say): they go with the headers, whatever their due time, and have no lag. Of the
    frames after them the first ``needed`` are always sent (None: all), the others only until ``hear`` says ENDPOINT.
    ``gap_ns[i]``, if given, is the least time between the writes of messages i - 1 and i, for servers that refuse a
    burst. A unary request has one message.

    ``metadata`` (the transport adds the target's headers) is name (lower case) and value; values of ``-bin`` names are
    bytes, all others printable ASCII. ``deadline_ns`` is sent as ``grpc-timeout`` and kept by us too (-1: the target's
    timeout); the time that the schedule itself takes is added to it. ``n_in`` counts prompt tokens, ``media_ns`` audio
    carried (-1 none), ``clip`` is the audio and its truth, whose first sample is at the call's start; ``pace`` is a
    code of ``plimsoll.slo.records.records`` and ``frame_ns`` the playing time of a full frame (-1: no audio).
    Metadata may hold credentials, so it is left out of ``repr``.
    """

    method: str
    messages: tuple[bytes, ...] = field(repr=False)
    due_ns: tuple[int, ...] = ()
    gap_ns: tuple[int, ...] = field(default=(), kw_only=True)
    closing_due_ns: int = -1
    opening: int = 0
    needed: int | None = None
    client_streaming: bool = False
    server_streaming: bool = False
    metadata: tuple[tuple[str, str | bytes], ...] = field(default=(), repr=False)
    deadline_ns: int = -1
    n_in: int = -1
    media_ns: int = -1
    clip: Clip | None = field(default=None, repr=False)
    pace: int = PACE_FILE
    frame_ns: int = -1


class GrpcDialect(Protocol):
    """One gRPC protocol. It may also have ``hear(exchange, message: bytes) -> int``, see ``hearing``."""

    def encode(self, payload: Payload) -> GrpcRequest:
        """The call for a payload; the same payload always gives the same bytes. Raises ``HarnessFault``."""
        ...

    def settle(self, exchange: Exchange) -> None:
        """Fill token, chunk and session fields from the finished call; see the module's docstring for what it is
        given. ``exchange.request.call`` is the ``GrpcRequest``. Called for failed calls too. Never raises.
        """
        ...


class Hearing(Protocol):
    """``hear``: called with each response message as it comes; hot, so byte needles only."""

    def __call__(self, exchange: Exchange, message: bytes) -> int:
        """As ``plimsoll.harness.transport.live.dialogue`` names them. NOTHING: go on. ENDPOINT: send no frame that
        isn't needed, half-close now. DONE: the call has what it came for; it ends as a success and is cancelled at the
        server (a Watch never ends).
        """
        ...


def hearing(dialect: GrpcDialect) -> Hearing | None:
    """The dialect's ``hear``, if it has one."""
    found: Hearing | None = getattr(dialect, "hear", None)
    return found


def answering(dialect: GrpcDialect) -> Callable[[Exchange], Answer | None] | None:
    """The dialect's ``answer``, what an accuracy run keeps of a call, if it has one."""
    found: Callable[[Exchange], Answer | None] | None = getattr(dialect, "answer", None)
    return found


def messages_of(exchange: Exchange) -> Iterator[memoryview]:
    """The response messages of a finished call, in order, without a copy. Release them before the body changes."""
    view, start = memoryview(exchange.body), 0
    for end in exchange.mark_end:
        yield view[start:end]
        start = end


def code_name(code: int) -> str:
    """``"UNAVAILABLE"`` for 14; ``"code 99"`` for what the specification doesn't know."""
    return CODES[code] if 0 <= code < len(CODES) else f"code {code}"


def method_error(method: str) -> str | None:
    """Why a string is no method path, or None."""
    if _METHOD.match(method):
        return None
    return f"method {method!r}: not a gRPC method. Write it as /package.Service/Method"


def metadata_error(name: str, value: str | bytes) -> str | None:
    """Why metadata can't be sent, or None. The text never repeats the value."""
    if not _NAME.match(name):
        return f"metadata {name!r}: not a metadata name. Use lower-case letters, digits, - _ and ."
    if name in RESERVED or name.startswith("grpc-"):
        return f"metadata {name!r}: it is written by the transport. Remove it"
    if name.endswith("-bin"):
        return None if isinstance(value, bytes) else f"metadata {name!r}: -bin values are bytes"
    if not isinstance(value, str) or not _VALUE.match(value):
        return f"metadata {name!r}: its value holds a character outside printable ASCII. Name it {name}-bin"
    return None


def metadata_of(target: Target, own: Mapping[str, str] | None = None) -> Metadata:
    """The target's headers, and ``own`` where they don't say the same name; names in lower case, ``-bin`` values
    (written as base64) as bytes. Raises HarnessFault with everything that can't be sent.
    """
    given = {name.lower() for name, _ in target.headers}
    pairs = [("target.headers", name, value) for name, value in target.headers]
    pairs += [
        ("target.options.metadata", name, text) for name, text in (own or {}).items() if name.lower() not in given
    ]
    found: list[tuple[str, str | bytes]] = []
    errors = []
    for where, name, text in pairs:
        value, error = _value(name.lower(), text)
        if error is not None:
            errors.append(f"{where}: {error}")
        else:
            found.append((name.lower(), value))
    if errors:
        raise HarnessFault(errors)
    return tuple(found)


def metadata_problems(own: Mapping[str, str]) -> list[str]:
    """Why pieces of metadata can't be sent; no text repeats a value."""
    return [error for name, text in own.items() if (error := _value(name.lower(), text)[1]) is not None]


def _value(name: str, text: str) -> tuple[str | bytes, str | None]:
    """The value as it is sent, and why it can't be."""
    if "\r" in text or "\n" in text:
        return "", f"metadata {name!r}: its value holds a line end. Remove it"
    value: str | bytes = text.strip()
    if name.endswith("-bin"):
        try:
            value = b64decode(text.strip() + "=" * (-len(text.strip()) % 4), validate=True)
        except (binascii.Error, ValueError):
            return "", f"metadata {name!r}: its value is not base64. Write -bin values as base64"
    return value, metadata_error(name, value)
