"""``ModelStreamInfer``: one request on a stream of its own, any number of answers, as Triton's decoupled models give them.

A stream's failure is a message in it (``error_message``) while the call itself ends OK. The client asks for an empty last
answer, so that an end can be told from a cut; a server that never marks an answer as the last one (MLServer) isn't held to it.
Triton wraps each answer, MLServer doesn't: which of the two it is shows in the first message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._kserve.tensors import answer_of, response_problem, says_something
from plimsoll.harness.protocols.kserve_grpc import SERVICE, KserveCallOptions, RequestWriter
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import CODES, GrpcRequest, messages_of, metadata_of
from plimsoll.harness.transport.rpc.rpc_outcome import GRPC, fail_code
from plimsoll.harness.wire.tokens import sheds_load
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.verdict.accuracy import Answer

_FINAL = "triton_final_response"


class TritonStreamDialect:
    """``inference.GRPCInferenceService/ModelStreamInfer``."""

    __slots__ = ("_bare", "_metadata", "_options", "_wrapped", "_writer")

    def __init__(self, target: Target) -> None:
        from plimsoll.harness.protocols._grpc.descriptors import shipped

        options = self._options = accept(KserveCallOptions, target.options)
        self._metadata = metadata_of(target)
        schema = shipped("kserve")
        method = schema.method(f"{SERVICE}/ModelStreamInfer")
        self._wrapped = method.response
        self._bare = schema.message("inference.ModelInferResponse")
        self._writer = RequestWriter(target, options, method.request, triton_enable_empty_final_response=True)

    def encode(self, payload: Payload) -> GrpcRequest:
        return GrpcRequest(
            f"/{SERVICE}/ModelStreamInfer",
            (self._writer.write(payload),),
            client_streaming=True,
            server_streaming=True,
            metadata=self._metadata,
            deadline_ns=self._options.deadline_ns,
            n_in=payload.n_in,
            media_ns=payload.media_ns,
        )

    def settle(self, exchange: Exchange) -> None:
        scan = _Scan(self._wrapped, self._bare)
        problem = scan.read(exchange)
        times = np.frombuffer(exchange.mark_ns, dtype=np.int64).copy()
        outcome.stamp_chunks(exchange, times, scan.output, scan.output[0] if scan.output else -1)
        outcome.count_tokens(exchange, -1, -1, exchange.status == outcome.OK)
        if scan.timing and len(scan.timing) <= 1000:
            exchange.server_timing = scan.timing
        if scan.error is not None:
            self._fail(exchange, scan.error, scan.code)
        elif problem is not None:
            outcome.fail(exchange, outcome.PROTOCOL, problem)
        elif scan.marks_final and not scan.final:
            text = f"stream cut after {len(scan.output)} answers: none was marked as the last one"
            outcome.fail(exchange, outcome.PROTOCOL, text)
        elif not len(exchange.mark_end):
            outcome.fail(exchange, outcome.PROTOCOL, "empty stream: no answer")

    def answer(self, exchange: Exchange) -> Answer | None:
        """The texts of all answers together, or the last answer's tensor."""
        wanted = next(iter(self._options.outputs), None)
        scan = _Scan(self._wrapped, self._bare)
        scan.read(exchange)
        found = [one for message in scan.answers if (one := answer_of(message, wanted)) is not None]
        if found and found[-1].text is None:
            return found[-1]
        return Answer("".join(one.text or "" for one in found)) if found else None

    def _fail(self, exchange: Exchange, message: str, code: int) -> None:
        if code > 0:
            fail_code(exchange, code, message)
            return
        text = outcome.shown(message)
        status = outcome.REFUSED if sheds_load(message) else GRPC
        outcome.fail(exchange, status, f"in the stream: {text}")


class _Scan:
    """One stream, gone through."""

    __slots__ = (
        "_bare",
        "_is_bare",
        "_wrapped",
        "answers",
        "code",
        "error",
        "final",
        "marks_final",
        "output",
        "timing",
    )

    def __init__(self, wrapped: Any, bare: Any) -> None:
        self._wrapped, self._bare = wrapped, bare
        self._is_bare: bool | None = None  # until the first message
        self.output: list[int] = []
        self.answers: list[Any] = []  # those that are output
        self.error: str | None = None
        self.code = -1
        self.final = self.marks_final = False
        self.timing = ""

    def read(self, exchange: Exchange) -> str | None:
        """Why an answer can't be read or is none, or None. Stops at one that holds an error."""
        from plimsoll.harness.protocols._grpc.protobuf_json import read

        for i, data in enumerate(messages_of(exchange)):
            answer = self._unwrapped(bytes(data), read)
            if answer is None:
                return f"message {i + 1} is neither Triton's ModelStreamInferResponse nor a ModelInferResponse"
            if self.error is not None:
                self._note(answer)
                return None
            self._note(answer)
            if not answer.outputs:
                continue
            problem = response_problem(answer, ())
            if problem is not None:
                return f"message {i + 1}: {problem}"
            if says_something(answer):
                self.output.append(i)
                self.answers.append(answer)
        return None

    def _unwrapped(self, data: bytes, read: Callable[[Any, bytes], Any]) -> Any:
        if self._is_bare is None:
            self._is_bare = self._looks_bare(data, read)
        if self._is_bare:
            return read(self._bare, data)
        message = read(self._wrapped, data)
        if message is None:
            return None
        if message.error_message:
            self.error = message.error_message
        return message.infer_response

    def _looks_bare(self, data: bytes, read: Callable[[Any, bytes], Any]) -> bool:
        """Read as a bare answer it has what a wrapped one (a text and a message) can't have: more than two fields."""
        message = read(self._bare, data)
        return message is not None and bool(
            message.outputs or message.id or message.parameters or message.raw_output_contents
        )

    def _note(self, answer: Any) -> None:
        parameters = answer.parameters
        if not parameters:
            return
        if _FINAL in parameters:
            self.marks_final = True
            self.final = self.final or bool(parameters[_FINAL].bool_param)
        if "server_timing" in parameters:
            self.timing = parameters["server_timing"].string_param
        if self.error is not None and "status" in parameters and parameters["status"].string_param in CODES:
            self.code = CODES.index(parameters["status"].string_param)


PROTOCOLS = (
    ProtocolSpec(
        "triton-stream",
        "Triton's ModelStreamInfer over gRPC: decoupled models, one stream a request",
        over_grpc(TritonStreamDialect),
        KserveCallOptions,
        bundled=True,
        grpc=True,
    ),
)
