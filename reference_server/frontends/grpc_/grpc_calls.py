"""One request over gRPC from its last byte to its outcome: stamps, faults, refusals, counters, as ``http/calls`` does them for HTTP.

A call's bytes are taken apart here and not by the library, so that a message that can't be read is the client's mistake
(INVALID_ARGUMENT). Rows and counters hold the HTTP status that the same outcome has there: one vocabulary for both.

What the stamps are worth: ``before`` is taken just ahead of handing a message to the library, so no byte of it can arrive earlier.
``after`` is taken when the library says that the message has passed its flow control, which happens in a thread of its own: it is
an upper bound of the hand-over, and no bound of the arrival.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from plimsoll.reference_server.frontends.grpc_ import statuses
from plimsoll.reference_server.misfortune.fate import Break
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.accounting import Account, accounted
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure

Context = grpc.aio.ServicerContext[bytes, bytes]
_MAX_ID = 200

_M = TypeVar("_M", bound=Message)


class Broken(Exception):
    """The script breaks the call here: it ends without its answer, whatever else was under way on it."""


@dataclass(slots=True, eq=False)
class Call:
    """One request under way."""

    account: Account
    _before_ns: int = -1

    @property
    def row(self) -> TruthRow:
        """What is kept of it."""
        return self.account.row

    def stamp_first(self) -> None:
        """The answer begins to be written now."""
        if self.row.first_write_ns < 0:
            self.row.first_write_ns = time.monotonic_ns()

    def begin_write(self, due_ns: int = -1) -> None:
        """A message is handed to the library now; -1 where no timetable says when it was due."""
        self.stamp_first()
        self._before_ns = time.monotonic_ns()
        if due_ns >= 0:
            self.row.due_ns.append(due_ns)

    def end_write(self) -> None:
        """The library is done with it: the row gets both stamps."""
        self.row.before_ns.append(self._before_ns)
        self.row.after_ns.append(time.monotonic_ns())


@asynccontextmanager
async def under_way(service: Service, request_id: str, received_ns: int) -> AsyncIterator[Call]:
    """See one request to its outcome. Raises RequestError for every refusal and failure, Broken where the script breaks the call."""
    with accounted(service, request_id, received_ns, service.closed()) as account:
        row = account.row
        try:
            misfortune = account.draw()
            if misfortune.hold_ns > 0:
                await service.wheel.sleep_until(received_ns + misfortune.hold_ns)
            if misfortune.breaks_at_once:
                raise StreamCut("the script breaks the call at once")
            yield Call(account)
            row.status = 200
            account.outcome = "ok"
        except RequestError as error:
            row.status = error.status
            account.refused(error)
            raise
        except StreamFailure as failure:
            row.status = failure.status
            raise RequestError(failure.status, str(failure), kind="server_error", code=failure.code) from None
        except StreamCut as cut:
            account.outcome = "cut"
            if account.break_by is Break.MUTE:
                await asyncio.Event().wait()  # until the client gives up, or the server ends
            raise Broken(str(cut)) from None
        except (asyncio.CancelledError, ConnectionError):
            account.outcome = "cancelled"
            raise asyncio.CancelledError from None


def read(kind: type[_M], data: bytes) -> _M:
    """The message in some bytes. Raises RequestError 400 when they hold none."""
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise RequestError(
            400, f"the bytes are no {kind.DESCRIPTOR.full_name}: {error}", code="invalid_message"
        ) from None
    return message


async def write(context: Context, data: bytes) -> None:
    """Write one message. Raises ConnectionError when the client is gone, which the library says in two ways, both of them its own."""
    try:
        await context.write(data)
    except (grpc.aio.InternalError, grpc.aio.UsageError) as error:
        raise ConnectionResetError("the client is gone") from error


async def refuse(context: Context, error: RequestError) -> NoReturn:
    """End the call with the status of a refusal."""
    await context.abort(statuses.code(error.status), statuses.message(error), statuses.trailing(error))


async def cut(context: Context, broken: Broken) -> NoReturn:
    """End the call as a client sees a connection that breaks. Others that share the connection are not harmed."""
    await context.abort(grpc.StatusCode.UNAVAILABLE, str(broken))


def request_id(service: Service, context: Context, other: str = "", *, below: str = "") -> str:
    """The id a request goes by: the metadata's ``x-request-id``, else ``other``, else one made up.

    ``below`` tells requests of one call apart: the metadata's id is followed by a slash and it.
    """
    named = _metadata_id(context)
    for given in (f"{named}/{below}" if named and below else named, other):
        if given and given.isprintable() and len(given) <= _MAX_ID:
            return given
    service.n_unnamed += 1
    return f"unnamed-{service.n_unnamed}"


def _metadata_id(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == "x-request-id":
            return value if isinstance(value, str) else value.decode("ascii", errors="replace")
    return ""


def deadline_ns(context: Context) -> int:
    """When the client gives up, as an instant of ``time.monotonic_ns()``; -1 for never."""
    left_s: float | None = context.time_remaining()
    return -1 if left_s is None else time.monotonic_ns() + int(left_s * 1e9)


class Respond(Protocol):
    """What answers one request: the reply, and the trailing metadata."""

    def __call__(self, call: Call, data: bytes, client_deadline_ns: int) -> Awaitable[tuple[Message, str]]:
        """The reply and its Server-Timing text."""


Handler = Callable[[bytes, Context], Awaitable[bytes]]


def inference(service: Service, respond: Respond) -> Handler:
    """The handler of a call that is an inference request."""

    async def handle(data: bytes, context: Context) -> bytes:
        received_ns = time.monotonic_ns()
        try:
            async with under_way(service, request_id(service, context), received_ns) as call:
                message, server_timing = await respond(call, data, deadline_ns(context))
                reply = message.SerializeToString()
                await call.account.hold()
                call.stamp_first()
        except RequestError as error:
            await refuse(context, error)
        except Broken as broken:
            await cut(context, broken)
        context.set_trailing_metadata((("server-timing", server_timing), ("x-request-id", call.row.request_id)))
        return reply

    return handle


def question(kind: type[_M], answer: Callable[[_M], Message]) -> Handler:
    """The handler of a call that asks about the server or a model, and is no inference request."""

    async def handle(data: bytes, context: Context) -> bytes:
        try:
            return answer(read(kind, data)).SerializeToString()
        except RequestError as error:
            await refuse(context, error)

    return handle
