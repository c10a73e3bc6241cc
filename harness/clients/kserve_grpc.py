"""The Open Inference Protocol (KServe V2) over gRPC: one inference, one answer (``ModelInfer``).

The metric is latency; the answer's tensors are checked against their shapes, because an OK can hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness import outcome
from harness.client import Client, ProtocolSpec, Target
from harness.exchange import Exchange
from harness.kserve.call import SERVICE, KserveCallOptions, RequestWriter
from harness.kserve.tensors import answer_of, response_problem
from harness.rpc.call import GrpcRequest, messages_of
from harness.rpc.metadata import metadata_of
from harness.rpc.options import grpc_accept, grpc_client, grpc_problems
from scenarios.payload import Payload
from slo.accuracy import Answer


class KserveGrpcDialect:
    """``inference.GRPCInferenceService/ModelInfer``."""

    __slots__ = ("_metadata", "_options", "_response", "_writer")

    def __init__(self, target: Target) -> None:
        from harness.protos.descriptors import shipped

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
        from harness.protos.messages import read

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
        from harness.protos.messages import read

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
