"""What the two gRPC protocols of the Open Inference Protocol share: their options, and how a payload becomes a request."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import STRICT
from plimsoll.harness.protocols._kserve.tensors import Tensor, put_tensors, tensors
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.text.durations import Duration

SERVICE = "inference.GRPCInferenceService"


class KserveCallOptions(BaseModel):
    """Options of ``kserve-v2-grpc`` and ``triton-stream``.

    ``outputs`` names the tensors to ask for (none: all). A text prompt becomes a BYTES tensor ``prompt_input`` of
    ``prompt_shape``; the wanted output length becomes the parameter ``max_tokens_parameter`` or an INT32 tensor
    ``max_tokens_input`` of the same shape. ``inputs`` are tensors that ride along with every request, ``parameters`` the
    request's own. ``contents``: ``raw`` (one block of bytes a tensor) or ``typed``. ``deadline`` goes to the server.
    """

    model_config = STRICT
    model_version: str | None = Field(default=None, min_length=1)
    outputs: list[str] = []
    prompt_input: str = Field(default="text_input", min_length=1)
    prompt_shape: list[int] = Field(default=[1], min_length=1)
    max_tokens_parameter: str | None = Field(default="max_tokens", min_length=1)
    max_tokens_input: str | None = Field(default=None, min_length=1)
    inputs: list[dict[str, Any]] = []
    parameters: dict[str, bool | int | float | str] = {}
    contents: Literal["raw", "typed"] = "raw"
    deadline: Duration | None = Field(default=None, gt=0)

    @field_validator("prompt_shape")
    @classmethod
    def _one(cls, value: list[int]) -> list[int]:
        if any(size != 1 for size in value):
            raise ValueError(f"{value} has not one element. Use [1] or [1, 1]")
        return value

    @field_validator("parameters")
    @classmethod
    def _fits(cls, value: dict[str, Any]) -> dict[str, Any]:
        big = [name for name, item in value.items() if type(item) is int and not -(2**63) <= item < 2**63]
        if big:
            raise ValueError(f"{', '.join(big)}: more than 64 bits. Write a smaller number, or text")
        return value

    @field_validator("inputs")
    @classmethod
    def _tensors(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        errors = []
        for i, one in enumerate(value):
            try:
                Tensor(one)
            except ValueError as error:
                errors.append(f"[{i}]: {error}")
        if errors:
            raise ValueError("; ".join(errors) + ". Correct the tensors")
        return value


class RequestWriter:
    """Payloads to the bytes of a ModelInferRequest. Raises HarnessFault for a target without a model."""

    __slots__ = ("_fixed", "_kind", "_model", "_options", "_protocol")

    def __init__(self, target: Target, options: KserveCallOptions, kind: Any, **said: bool) -> None:
        if not target.model:
            raise HarnessFault(f"target.model: {target.protocol} needs the model's name. Give it")
        self._model, self._options, self._kind = target.model, options, kind
        self._protocol = target.protocol
        self._fixed = {**said, **options.parameters}

    def write(self, payload: Payload) -> bytes:
        """The same payload always gives the same bytes. Raises HarnessFault with everything that is wrong with it."""
        options = self._options
        message = self._kind(model_name=self._model, model_version=options.model_version or "")
        parameters = dict(self._fixed)
        is_text = payload.data.get("inputs") is None
        wanted = payload.max_output_tokens
        if is_text and wanted >= 0 and options.max_tokens_input is None and options.max_tokens_parameter is not None:
            parameters = {options.max_tokens_parameter: wanted, **parameters}
        for name, value in parameters.items():
            put_parameter(message.parameters[name], value)
        for name in options.outputs:
            message.outputs.add(name=name)
        made = self._inputs(payload) + tensors(options.inputs, "target.options.inputs")
        put_tensors(message, made, options.contents == "raw")
        data: bytes = message.SerializeToString(deterministic=True)
        return data

    def _inputs(self, payload: Payload) -> list[Tensor]:
        options = self._options
        given = payload.data.get("inputs")
        if given is not None and (not isinstance(given, list | tuple) or not given):
            raise HarnessFault(f'{self._protocol}: data["inputs"] is no list of tensors. Use a tensor source')
        if given is not None:
            return tensors(given, f'{self._protocol}: data["inputs"]')
        if payload.prompt is None:
            raise HarnessFault(
                f'{self._protocol}: the payload has no data["inputs"] and no prompt. Use a tensor source or a text source'
            )
        shape = options.prompt_shape
        made = [{"name": options.prompt_input, "shape": shape, "datatype": "BYTES", "data": [payload.prompt]}]
        if options.max_tokens_input is not None and payload.max_output_tokens >= 0:
            made.append(
                {
                    "name": options.max_tokens_input,
                    "shape": shape,
                    "datatype": "INT32",
                    "data": [payload.max_output_tokens],
                }
            )
        return tensors(made, self._protocol)


def put_parameter(parameter: Any, value: bool | int | float | str) -> None:
    """Set an InferParameter by the value's type."""
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value
