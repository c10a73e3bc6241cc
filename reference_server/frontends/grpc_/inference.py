"""``inference.GRPCInferenceService``: the Open Inference Protocol V2 over gRPC, with Triton's configuration, statistics and index.

Its stream is in ``stream_infer``. It does not load, unload or trace models and shares no memory: those calls are UNIMPLEMENTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import grpc
from google.protobuf.json_format import ParseDict

from plimsoll.reference_server.engine.model_statistics import Total
from plimsoll.reference_server.frontends.grpc_ import grpc_calls as calls
from plimsoll.reference_server.frontends.grpc_ import inference_pb2 as pb
from plimsoll.reference_server.frontends.grpc_.contents import response
from plimsoll.reference_server.frontends.grpc_.grpc_calls import Call, question
from plimsoll.reference_server.frontends.grpc_.stream_infer import StreamInfer, asked
from plimsoll.reference_server.frontends.shared import open_inference
from plimsoll.reference_server.frontends.shared.open_inference import card
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.values.errors import RequestError

SERVICE = "inference.GRPCInferenceService"


class Inference:
    """The service on one server. ``closing`` is set when the server takes no more requests."""

    def __init__(self, service: Service, closing: asyncio.Event) -> None:
        self._service = service
        self._streams = StreamInfer(service, closing)

    def handlers(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Every method that is served."""
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
                "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._streams.serve),
            },
        )

    # -- questions about the server and its models --

    def _server_ready(self, _: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=open_inference.ready(self._service))

    def _model_ready(self, asked: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        try:
            card(self._service, asked.name, asked.version)
        except RequestError as error:
            if error.status != 503:
                raise
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=open_inference.ready(self._service))

    def _model_metadata(self, asked: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        found = card(self._service, asked.name, asked.version)
        kind = pb.ModelMetadataResponse.TensorMetadata
        return pb.ModelMetadataResponse(
            name=found.name,
            versions=["1"],
            platform="reference",
            inputs=[kind(name=spec.name, datatype=spec.datatype, shape=spec.shape) for spec in found.inputs],
            outputs=[kind(name=spec.name, datatype=spec.datatype, shape=spec.shape) for spec in found.outputs],
        )

    def _model_config(self, asked: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        config = card(self._service, asked.name, asked.version).config()
        return pb.ModelConfigResponse(config=ParseDict(config, pb.ModelConfig()))

    def _model_statistics(self, asked: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        wanted = [card(self._service, asked.name, asked.version).name] if asked.name else self._names()
        reply = pb.ModelStatisticsResponse()
        for name in wanted:
            kept = self._service.statistics.of(name)
            reply.model_stats.add(
                name=name,
                version="1",
                last_inference=kept.last_ms,
                inference_count=kept.n_samples,
                execution_count=open_inference.n_executed(self._service, name),
                inference_stats=_statistics(kept.totals()),
            )
        return reply

    def _repository_index(self, asked: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        is_ready = open_inference.ready(self._service)
        reply = pb.RepositoryIndexResponse()
        for name in self._names() if is_ready or not asked.ready else ():
            reply.models.add(name=name, version="1", state="READY" if is_ready else "UNAVAILABLE")
        return reply

    def _names(self) -> list[str]:
        return open_inference.names(self._service)

    # -- inference --

    async def _infer(self, call: Call, data: bytes, client_deadline_ns: int) -> tuple[pb.ModelInferResponse, str]:
        message = calls.read(pb.ModelInferRequest, data)
        request, occasion = asked(self._service, call, message, client_deadline_ns)
        outputs = await open_inference.infer(self._service, request, occasion)
        server_timing = occasion.stages.server_timing()
        typed = not message.raw_input_contents
        return response(request, outputs, typed=typed, server_timing=server_timing), server_timing


def _statistics(totals: Mapping[str, Total]) -> pb.InferStatistics:
    return pb.InferStatistics(
        **{name: pb.StatisticDuration(count=sum_.count, ns=sum_.ns) for name, sum_ in totals.items()}
    )


def _server_metadata(_: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
    return pb.ServerMetadataResponse(
        name="plimsoll-reference", version=open_inference.version(), extensions=open_inference.EXTENSIONS
    )
