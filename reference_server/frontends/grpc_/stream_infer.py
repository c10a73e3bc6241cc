"""Triton's ModelStreamInfer: many requests on one stream, answered side by side, each response with the id of its request.

A language model answers decoupled: one response for each piece of text, and an empty last one for clients that ask for it. An error of one
request is a message in the stream, which stays OK; only a message that can't be read, and a scripted cut, end the stream itself.
"""

from __future__ import annotations

import asyncio
import time

from plimsoll.reference_server.frontends.grpc_ import grpc_calls as calls
from plimsoll.reference_server.frontends.grpc_ import inference_pb2 as pb
from plimsoll.reference_server.frontends.grpc_ import statuses
from plimsoll.reference_server.frontends.grpc_.contents import parse_request, response
from plimsoll.reference_server.frontends.grpc_.grpc_calls import Broken, Call, Context
from plimsoll.reference_server.frontends.grpc_.outbox import Outbox, TokenSink
from plimsoll.reference_server.frontends.shared import open_inference
from plimsoll.reference_server.frontends.shared.open_inference import InferRequest, Occasion, card
from plimsoll.reference_server.service.accounting import obey
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError

_MAX_SIDE_BY_SIDE = 1024
"""Requests of one stream under way; the next one is read when one of them is answered."""
_EMPTY_FINAL = "triton_enable_empty_final_response"
_FINAL = "triton_final_response"


def asked(
    service: Service, call: Call, message: pb.ModelInferRequest, client_deadline_ns: int
) -> tuple[InferRequest, Occasion]:
    """The request in a message, and what surrounds it. Raises RequestError."""
    call.row.model = card(service, message.model_name, message.model_version).name
    request = parse_request(message)
    script = request.wishes.script
    obey(script)
    deadline_ns = open_inference.deadline(call.row.received_ns, request.wishes, client_deadline_ns)
    return request, Occasion(call.row, call.account.limits(script), deadline_ns)


class StreamInfer:
    """The method on one server. ``closing`` is set when the server takes no more requests."""

    def __init__(self, service: Service, closing: asyncio.Event) -> None:
        self._service = service
        self._closing = closing

    async def serve(self, _requests: object, context: Context) -> None:
        """One stream, until its client has no more requests and all are answered, or the server drains."""
        stream = _Stream(self._service, context)
        ending: RequestError | Broken | None = None
        try:
            await stream.run(self._closing)
        except BaseExceptionGroup as failures:
            found = _first(failures)
            if isinstance(found, ConnectionError):
                raise asyncio.CancelledError from None
            if not isinstance(found, RequestError | Broken):
                raise
            ending = found
        await stream.settled()
        if isinstance(ending, RequestError):
            await calls.refuse(context, ending)
        if ending is not None:
            await calls.cut(context, ending)
        context.set_trailing_metadata((("server-timing", stream.server_timing),))


class _Stream:
    """One stream under way."""

    def __init__(self, service: Service, context: Context) -> None:
        self._service = service
        self._context = context
        self._outbox = Outbox(context)
        self._room = asyncio.Semaphore(_MAX_SIDE_BY_SIDE)
        self.server_timing = ""
        """Of the request that was answered last."""

    async def settled(self) -> None:
        """Return when nothing is being written any more."""
        await self._outbox.settled()

    async def run(self, closing: asyncio.Event) -> None:
        """Read and answer. Raises a group of what ended the stream early."""
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._outbox.run())
            drained = group.create_task(closing.wait())
            async with asyncio.TaskGroup() as answers:
                reader = answers.create_task(self._read(answers))
                drained.add_done_callback(lambda _: reader.cancel())
            writer.cancel()
            drained.cancel()

    async def _read(self, answers: asyncio.TaskGroup) -> None:
        n_read = 0
        while True:
            await self._room.acquire()
            data: object = await self._context.read()
            received_ns = time.monotonic_ns()
            if not isinstance(data, bytes):  # the library's mark of the end
                return
            message = calls.read(pb.ModelInferRequest, data)
            answering = answers.create_task(self._answer(message, received_ns, self._name(message, n_read)))
            answering.add_done_callback(lambda _: self._room.release())
            n_read += 1

    def _name(self, message: pb.ModelInferRequest, n_read: int) -> str:
        """What a request goes by: the stream's own name for the first, a name below it for the others."""
        return calls.request_id(
            self._service, self._context, message.id, below=message.id or str(n_read) if n_read else ""
        )

    async def _answer(self, message: pb.ModelInferRequest, received_ns: int, request_id: str) -> None:
        try:
            async with calls.under_way(self._service, request_id, received_ns) as call:
                request, occasion = asked(self._service, call, message, calls.deadline_ns(self._context))
                if open_inference.is_streamed(self._service, request):
                    await self._pieces(call, message, request, occasion)
                else:
                    await self._whole(call, message, request, occasion)
                self.server_timing = occasion.stages.server_timing()
        except RequestError as error:
            self._outbox.put(_failure(message, error))
            await self._outbox.sent()

    async def _whole(
        self, call: Call, message: pb.ModelInferRequest, request: InferRequest, occasion: Occasion
    ) -> None:
        outputs = await open_inference.infer(self._service, request, occasion)
        said: dict[str, bool | str] = {_FINAL: True, "server_timing": occasion.stages.server_timing()}
        reply = response(request, outputs, typed=not message.raw_input_contents, **said)
        await call.account.hold()
        call.stamp_first()
        self._outbox.put(_wrapped(reply))
        await self._outbox.sent()

    async def _pieces(
        self, call: Call, message: pb.ModelInferRequest, request: InferRequest, occasion: Occasion
    ) -> None:
        service, typed = self._service, not message.raw_input_contents
        model, ask, named = open_inference.text_ask(service, request, occasion)

        def render(text: str) -> bytes:
            return _wrapped(response(request, [open_inference.piece(named, text)], typed=typed, **{_FINAL: False}))

        with open_inference.counted(service, model.name, occasion):
            answer = model.ask(ask)
            try:
                async with open_inference.in_time(service, model.name, occasion.deadline_ns):
                    await answer.ready()
                    await call.account.hold()
                    finish = await answer.play(TokenSink(self._outbox, call, render, occasion.limits))
            finally:
                answer.close()
        if message.parameters[_EMPTY_FINAL].bool_param:
            said: dict[str, bool | str] = {
                _FINAL: True,
                "finish_reason": finish.reason,
                "server_timing": occasion.stages.server_timing(),
            }
            self._outbox.put(_wrapped(response(request, [], typed=typed, **said)))
        await self._outbox.sent()
        first_ns = call.row.before_ns[0] if call.row.before_ns else -1
        service.metrics.answer(
            model.name, finish.n_new, (first_ns - call.row.received_ns) / 1e9 if first_ns >= 0 else -1.0
        )
        service.metrics.stage(model.name, occasion.stages)


def _wrapped(reply: pb.ModelInferResponse) -> bytes:
    return pb.ModelStreamInferResponse(infer_response=reply).SerializeToString()


def _failure(message: pb.ModelInferRequest, error: RequestError) -> bytes:
    reply = pb.ModelInferResponse(model_name=message.model_name, id=message.id)
    reply.parameters[_FINAL].bool_param = True
    reply.parameters["status"].string_param = statuses.code(error.status).name
    if error.retry_after_s is not None:
        reply.parameters["retry-after"].int64_param = error.retry_after_s
    return pb.ModelStreamInferResponse(error_message=statuses.message(error), infer_response=reply).SerializeToString()


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of the exceptions in nested groups."""
    found: BaseException = failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
