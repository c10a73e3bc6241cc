"""The Open Inference Protocol (KServe V2) over gRPC: one inference, one answer (``ModelInfer``).

The metric is latency; the answer's tensors are checked against their shapes, because an OK can hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._kserve.kserve_call import SERVICE, KserveCallOptions, RequestWriter
from plimsoll.harness.protocols._kserve.tensors import answer_of, response_problem
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import Client, ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import GrpcRequest, messages_of
from plimsoll.harness.transport.rpc.metadata import metadata_of
from plimsoll.harness.transport.rpc.rpc_options import grpc_accept, grpc_client, grpc_problems
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.verdict.accuracy import Answer


class KserveGrpcDialect:
    """``inference.GRPCInferenceService/ModelInfer``."""

    __slots__ = ("_metadata", "_options", "_response", "_writer")

    def __init__(self, target: Target) -> None:
        from plimsoll.harness.protocols._grpc.descriptors import shipped

        options = self._options = grpc_accept(KserveCallOptions, target.options)
        self._metadata = metadata_of(target)
        method = shipped("kserve").method(f"{SERVICE}/ModelInfer")
        self._response = method.response
        self._writer = RequestWriter(target, options, method.request)

    def encode(self, payload: Payload) -> GrpcRequest:
        return GrpcRequest(
            f"/{SERVICE}/ModelInfer",
            (self._writer.write(payload),),
            metadata=self._metadata,
            deadline_ns=-1 if self._options.deadline is None else self._options.deadline,
            n_in=payload.n_in,
            media_ns=payload.media_ns,
        )

    def settle(self, exchange: Exchange) -> None:
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        if exchange.status != outcome.OK:
            return
        for data in messages_of(exchange):
            answer = read(self._response, data)
            if answer is None:
                problem: str | None = "the answer is no ModelInferResponse"
            else:
                problem = response_problem(answer, self._options.outputs)
            if problem is not None:
                outcome.fail(exchange, outcome.PROTOCOL, problem)

    def answer(self, exchange: Exchange) -> Answer | None:
        """The first output asked for, or the first there is."""
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        wanted = next(iter(self._options.outputs), None)
        found = [read(self._response, data) for data in messages_of(exchange)]
        return answer_of(found[0], wanted) if found and found[0] is not None else None


def _build(target: Target, clock: Any) -> Client:
    return grpc_client(target, clock, KserveGrpcDialect(target))


def _check(options: Mapping[str, Any]) -> list[str]:
    return grpc_problems(KserveCallOptions, options)


PROTOCOLS = (
    ProtocolSpec(
        "kserve-v2-grpc",
        "KServe Open Inference Protocol V2 over gRPC: ModelInfer",
        _build,
        _check,
        streaming=False,
        bundled=True,
        options=KserveCallOptions,
        grpc=True,
    ),
)
