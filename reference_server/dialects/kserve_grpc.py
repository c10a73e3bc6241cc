"""``inference.GRPCInferenceService``: the Open Inference Protocol V2 over gRPC, with Triton's extensions.

A reply mirrors its request: typed tensors for typed ones, raw otherwise (FP16 always). The requests of a stream are
answered side by side, an error of one is a message in it; calls that load, unload or trace models or share memory are
UNIMPLEMENTED.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
from google.protobuf.json_format import ParseDict

from plimsoll.reference_server.dialects import open_inference
from plimsoll.reference_server.dialects.open_inference import InferRequest, Occasion, card, wishes
from plimsoll.reference_server.protos import inference_pb2 as pb
from plimsoll.reference_server.service.service import Service, obey
from plimsoll.reference_server.transports import grpc_calls as calls
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.grpc_calls import (
    Broken,
    Call,
    Context,
    Outbox,
    TokenSink,
    question,
    status_code,
    status_message,
)
from plimsoll.reference_server.values.errors import RequestError, invalid
from plimsoll.reference_server.values.tensors import (
    Tensor,
    checked_shape,
    checked_type,
    from_bytes,
    objects,
    shaped,
    to_bytes,
    wrong,
)

CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
"""Which field of the typed contents holds the elements of a datatype."""
_MAX_SIDE_BY_SIDE = 1024
"""Requests of one stream under way; the next one is read when one of them is answered."""
_EMPTY_FINAL = "triton_enable_empty_final_response"
_FINAL = "triton_final_response"
SERVICE = "inference.GRPCInferenceService"


def parse_request(message: pb.ModelInferRequest) -> InferRequest:
    given = parameters(message.parameters)
    for output in message.outputs:
        if "classification" in output.parameters:
            raise invalid(f"output {output.name!r}: classification", "is not supported by this server. Leave it out")
    return InferRequest(
        model=message.model_name,
        request_id=message.id,
        tensors=_raw(message) if message.raw_input_contents else [_typed(tensor) for tensor in message.inputs],
        outputs=[output.name for output in message.outputs],
        wishes=wishes(Fields(given, "parameters."), Fields({"plimsoll": _script(given.get("plimsoll"))}).script()),
    )


def parameters(given: Mapping[str, pb.InferParameter]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, parameter in given.items():
        chosen = parameter.WhichOneof("parameter_choice")
        if chosen is None:
            raise invalid(f"parameters.{name}", "holds no value")
        values[name] = getattr(parameter, chosen)
    return values


def _script(text: object) -> object:
    if text is None:
        return None
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        raise invalid("parameters.plimsoll", "must be a JSON object as a string") from None


def _raw(message: pb.ModelInferRequest) -> list[Tensor]:
    raw, inputs = message.raw_input_contents, message.inputs
    if len(raw) != len(inputs):
        uneven = f"has {len(raw)} entries for {len(inputs)} inputs. Give one for each"
        raise invalid("raw_input_contents", uneven, "invalid_tensor")
    tensors = []
    for tensor, data in zip(inputs, raw, strict=True):
        if tensor.HasField("contents"):
            raise wrong(tensor.name, "has typed contents beside raw_input_contents. Send all tensors the same way")
        tensors.append(from_bytes(tensor.name, tensor.datatype, checked_shape(tensor.name, tensor.shape), data))
    return tensors


def _typed(tensor: pb.ModelInferRequest.InferInputTensor) -> Tensor:
    name, datatype = tensor.name, tensor.datatype
    dtype = checked_type(name, datatype)
    shape = checked_shape(name, tensor.shape)
    wanted = CONTENTS.get(datatype)
    if wanted is None:
        raise wrong(name, f"{datatype} has no typed contents. Send it in raw_input_contents")
    for field, _ in tensor.contents.ListFields():
        if field.name != wanted:
            raise wrong(name, f"{datatype} belongs in contents.{wanted}, not {field.name}")
    elements = getattr(tensor.contents, wanted)
    if len(elements) != math.prod(shape):
        raise wrong(name, f"has {len(elements)} elements, the shape {list(shape)} asks for {math.prod(shape)}")
    if datatype == "BYTES":
        return shaped(name, datatype, shape, objects(list(elements)))
    array = np.array(list(elements), np.int64 if wanted in ("int_contents", "uint_contents") else dtype)
    if dtype.kind in "iu" and len(array):
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise wrong(name, f"holds an element that is no {datatype}")
    return shaped(name, datatype, shape, array.astype(dtype))


def response(
    request: InferRequest, outputs: Sequence[Tensor], *, typed: bool, **said: bool | str
) -> pb.ModelInferResponse:
    """The reply to a request; ``said`` are its parameters."""
    message = pb.ModelInferResponse(model_name=request.model, model_version=request.version, id=request.request_id)
    for name, value in said.items():
        if isinstance(value, bool):
            message.parameters[name].bool_param = value
        else:
            message.parameters[name].string_param = value
    typed = typed and all(tensor.datatype in CONTENTS for tensor in outputs)
    for tensor in outputs:
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.data.shape)
        if typed:
            getattr(output.contents, CONTENTS[tensor.datatype]).extend(tensor.data.ravel().tolist())
        else:
            message.raw_output_contents.append(to_bytes(tensor))
    return message


def request_of(
    service: Service, call: Call, message: pb.ModelInferRequest, client_deadline_ns: int
) -> tuple[InferRequest, Occasion]:
    call.row.model = card(service, message.model_name, message.model_version).name
    request = replace(parse_request(message), version=service.version)
    script = request.wishes.script
    obey(script)
    deadline_ns = open_inference.deadline(call.row.received_ns, request.wishes, client_deadline_ns)
    return request, Occasion(call.row, call.account.limits(script), deadline_ns)


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
                request, occasion = request_of(self._service, call, message, calls.deadline_ns(self._context))
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
                async with service.in_time(model.name, occasion.deadline_ns):
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
        service.metrics.answer(model.name, call.row, finish.n_new, call.row.first_token_ns)
        service.metrics.stage(model.name, occasion.stages)


def _wrapped(reply: pb.ModelInferResponse) -> bytes:
    return pb.ModelStreamInferResponse(infer_response=reply).SerializeToString()


def _failure(message: pb.ModelInferRequest, error: RequestError) -> bytes:
    reply = pb.ModelInferResponse(model_name=message.model_name, id=message.id)
    reply.parameters[_FINAL].bool_param = True
    reply.parameters["status"].string_param = status_code(error.status).name
    if error.retry_after_s is not None:
        reply.parameters["retry-after"].int64_param = error.retry_after_s
    return pb.ModelStreamInferResponse(error_message=status_message(error), infer_response=reply).SerializeToString()


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


class Inference:
    """The service on one server. ``closing`` is set when the server takes no more requests."""

    def __init__(self, service: Service, closing: asyncio.Event) -> None:
        self._service = service
        self._closing = closing

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "ServerLive": unary(question(pb.ServerLiveRequest, lambda _: pb.ServerLiveResponse(live=True))),
                "ServerReady": unary(question(pb.ServerReadyRequest, self._server_ready)),
                "ModelReady": unary(question(pb.ModelReadyRequest, self._model_ready)),
                "ServerMetadata": unary(question(pb.ServerMetadataRequest, _server_metadata)),
                "ModelMetadata": unary(question(pb.ModelMetadataRequest, self._model_metadata)),
                "ModelConfig": unary(question(pb.ModelConfigRequest, self._model_config)),
                "ModelStatistics": unary(question(pb.ModelStatisticsRequest, self._model_statistics)),
                "RepositoryIndex": unary(question(pb.RepositoryIndexRequest, self._repository_index)),
                "ModelInfer": unary(calls.inference(self._service, self._infer)),
                "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream_infer),
            },
        )

    # -- questions about the server and its models --

    def _server_ready(self, _: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._service.ready)

    def _model_ready(self, asked: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        try:
            card(self._service, asked.name, asked.version)
        except RequestError as error:
            if error.status != 503:
                raise
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=self._service.ready)

    def _model_metadata(self, asked: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        described = card(self._service, asked.name, asked.version).as_json()
        return ParseDict(described, pb.ModelMetadataResponse())

    def _model_config(self, asked: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        config = card(self._service, asked.name, asked.version).config()
        return pb.ModelConfigResponse(config=ParseDict(config, pb.ModelConfig()))

    def _model_statistics(self, asked: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        names = [card(self._service, asked.name, asked.version).name] if asked.name else None
        rows = open_inference.statistics(self._service, names)
        return ParseDict({"model_stats": rows}, pb.ModelStatisticsResponse())

    def _repository_index(self, asked: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        rows = open_inference.index(self._service) if self._service.ready or not asked.ready else []
        return ParseDict({"models": rows}, pb.RepositoryIndexResponse())

    # -- inference --

    async def _infer(self, call: Call, data: bytes, client_deadline_ns: int) -> tuple[pb.ModelInferResponse, str]:
        message = calls.read(pb.ModelInferRequest, data)
        request, occasion = request_of(self._service, call, message, client_deadline_ns)
        outputs = await open_inference.infer(self._service, request, occasion)
        server_timing = occasion.stages.server_timing()
        typed = not message.raw_input_contents
        return response(request, outputs, typed=typed, server_timing=server_timing), server_timing

    async def _stream_infer(self, _requests: object, context: Context) -> None:
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


def _server_metadata(_: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
    return pb.ServerMetadataResponse(
        name="plimsoll-reference", version=open_inference.version(), extensions=open_inference.EXTENSIONS
    )
