"""One request over gRPC: its stamps, its faults, its status, and the messages of a stream on their way to the client.

A call's bytes are parsed here and not by the library, so that a message that can't be read is the client's mistake
(INVALID_ARGUMENT). ``before`` is stamped ahead of handing a message to the library; ``after`` when the library says
that the message has passed its flow control, which bounds the hand-over and not the arrival.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message

from plimsoll.reference_server.misfortune.fault import Break
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Account, Service, accounted
from plimsoll.reference_server.transports.stream import struck
from plimsoll.reference_server.values.errors import RequestError, StreamCut, StreamFailure

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
_MAX_ID = 200
_M = TypeVar("_M", bound=Message)
_MAX_UNSENT = 4 << 20
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def status_code(status: int) -> grpc.StatusCode:
    """The gRPC status of an HTTP one."""
    if status in _CODES:
        return _CODES[status]
    return grpc.StatusCode.FAILED_PRECONDITION if status < 500 else grpc.StatusCode.UNKNOWN


def status_message(error: RequestError) -> str:
    """The status message, of bounded length; half a character, which UTF-8 can't say, becomes a question mark."""
    text = error.message.encode("utf-8", errors="replace").decode()
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + " ..."


def trailing_metadata(error: RequestError) -> Metadata:
    """What goes with the status: nothing, or when to come back."""
    if error.retry_after_s is None:
        return ()
    delay = _field(1, Duration(seconds=error.retry_after_s).SerializeToString())
    detail = AnyMessage(type_url="type.googleapis.com/google.rpc.RetryInfo", value=delay).SerializeToString()
    number = int(status_code(error.status).value[0])
    # google.rpc.Status: 1 code, 2 message, 3 details. Its module is another package's, and three fields need none.
    status = (
        b"\x08"
        + _varint(number)
        + _field(2, status_message(error).encode("utf-8", errors="replace"))
        + _field(3, detail)
    )
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


Context = grpc.aio.ServicerContext[bytes, bytes]


class Broken(Exception):
    """The script breaks the call here: it ends without its answer, whatever else was under way on it."""


@dataclass(slots=True, eq=False)
class Call:
    """One request under way."""

    account: Account
    _before_ns: int = -1

    @property
    def row(self) -> TruthRow:
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
    """See one request to its outcome. Raises RequestError, or Broken where the script breaks the call."""
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
            raise failure.refusal() from None
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
    """Write one message. Raises ConnectionError when the client is gone, which the library says in two ways."""
    try:
        await context.write(data)
    except (grpc.aio.InternalError, grpc.aio.UsageError) as error:
        raise ConnectionResetError("the client is gone") from error


async def refuse(context: Context, error: RequestError) -> NoReturn:
    """End the call with the status of a refusal."""
    await context.abort(status_code(error.status), status_message(error), trailing_metadata(error))


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


Respond = Callable[[Call, bytes, int], Awaitable[tuple[Message, str]]]
"""Answers a request of some bytes and the client's deadline: the reply, and its Server-Timing text."""
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


class Signature(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Has every call begin with who answers it."""

    def __init__(self, identity: Mapping[str, str]) -> None:
        self._metadata = tuple(identity.items())

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler of a call, whose initial metadata go out first."""
        handler = await continuation(details)
        for kind in _KINDS if handler is not None else ():
            if (method := getattr(handler, kind)) is not None:
                return getattr(grpc, f"{kind}_rpc_method_handler")(functools.partial(self._signed, method))
        return handler

    async def _signed(self, method: Callable[..., Awaitable[object]], asked: object, context: Context) -> object:
        await context.send_initial_metadata(self._metadata)
        return await method(asked, context)


def question(kind: type[_M], answer: Callable[[_M], Message]) -> Handler:
    """The handler of a call that asks about the server or a model, and is no inference request."""

    async def handle(data: bytes, context: Context) -> bytes:
        try:
            return answer(read(kind, data)).SerializeToString()
        except RequestError as error:
            await refuse(context, error)

    return handle


class Outbox:
    """One stream's queue. ``run`` writes it out and must run while anything is put into it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queue: asyncio.Queue[tuple[bytes, Call | None, int] | asyncio.Future[None]] = asyncio.Queue()
        self._unsent = 0
        self._writing: asyncio.Task[None] | None = None

    def put(self, data: bytes, call: Call | None = None, due_ns: int = -1) -> None:
        """Queue a message; with a call it is one of its token events, and stamped. Raises StreamCut at the limit."""
        if self._unsent > _MAX_UNSENT:
            raise StreamCut("the client reads too slowly")
        self._unsent += len(data)
        self._queue.put_nowait((data, call, due_ns))

    async def sent(self) -> None:
        """Return when everything put so far has been written."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait(written)
        await written

    async def settled(self) -> None:
        """Once ``run`` was cancelled: return when the write under way is over, which may be when the client reads on,
        or goes.

        The library must not be told to end a call while it writes: then neither would come to an end.
        """
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def run(self) -> None:
        """Write until cancelled. Raises ConnectionError when the client is gone."""
        while True:
            item = await self._queue.get()
            if isinstance(item, asyncio.Future):
                if not item.done():
                    item.set_result(None)
                continue
            data, call, due_ns = item
            try:
                if call is not None:
                    call.begin_write(due_ns)
                self._writing = asyncio.ensure_future(write(self._context, data))
                self._writing.add_done_callback(_seen)
                await asyncio.shield(self._writing)
            finally:  # a client that leaves at once may have had it
                if call is not None:
                    call.end_write()
            self._writing = None
            self._unsent -= len(data)


def _seen(writing: asyncio.Task[None]) -> None:
    """A write that fails after its stream was cancelled has nobody left to tell: asyncio must not tell stderr."""
    if not writing.cancelled():
        writing.exception()


class TokenSink:
    """Puts the tokens of an answer into an outbox, one message each."""

    def __init__(self, outbox: Outbox, call: Call, render: Callable[[str], bytes], limits: tuple[int, int]) -> None:
        self._outbox = outbox
        self._call = call
        self._render = render
        self._error_at, self._cut_at = limits
        self._n_tokens = 0

    def token(self, text: str, n_tokens: int, due_ns: int) -> None:
        """Queue one message. Raises StreamFailure or StreamCut when the script has the answer end here."""
        struck(self._n_tokens, self._error_at, self._cut_at)
        self._n_tokens += n_tokens
        if text:  # half a character: nothing to show yet
            self._outbox.put(self._render(text), self._call, due_ns)
