"""TensorFlow Serving over REST: ``POST /v1/models/M:predict``, and ``:classify`` and ``:regress``.

Tensors of the payload (``data["inputs"]``, as in ``kserve-v2``) become rows (``instances``) or columns (``inputs``); ``data`` that is
already such a body goes out as it is. The server writes NaN and Infinity, which JSON does not know, and they are read. The metric is
latency; the answer's shape is checked, because a 200 can hold an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any, Literal
from urllib.parse import quote

import orjson
from pydantic import Field, model_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.json_stream import json_headers
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import HttpRequest, build_head, join_path
from plimsoll.harness.wire.tokens import fault_of
from plimsoll.scenarios.samples.payload import Payload

#: What an answer holds, by the call that it answers.
_ANSWERS = {"predict": ("predictions", "outputs"), "classify": ("results", "result"), "regress": ("results", "result")}
_BODIES = ("instances", "inputs", "examples")


class TfServingOptions(Options):
    """Options of ``tfserving``."""

    call: Literal["predict", "classify", "regress"] = "predict"
    layout: Literal["row", "column"] = "row"
    signature: str | None = Field(default=None, min_length=1)
    model_version: int | None = Field(default=None, ge=0)
    version_label: str | None = Field(default=None, min_length=1)
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _one_version(self) -> TfServingOptions:
        if self.model_version is not None and self.version_label is not None:
            raise ValueError("model_version and version_label are given together. Keep one")
        return self


class TfServingDialect:
    """One call of one model."""

    __slots__ = ("_head", "_options", "accept")

    def __init__(self, target: Target) -> None:
        options = self._options = accept(TfServingOptions, target.options)
        self.accept = b"application/json"
        if not target.model and options.path is None:
            raise HarnessFault("target.model: tfserving needs the model's name. Give it, or the whole path")
        version = "" if options.model_version is None else f"/versions/{options.model_version}"
        if options.version_label is not None:
            version = f"/labels/{quote(options.version_label, safe='')}"
        path = join_path(target.url, f"/v1/models/{quote(target.model, safe='')}{version}:{options.call}", options.path)
        self._head = build_head("POST", path, json_headers(stream=False), target.headers)

    def encode(self, payload: Payload) -> HttpRequest:
        signature = {} if self._options.signature is None else {"signature_name": self._options.signature}
        try:
            body = orjson.dumps({**signature, **self._fields(payload)}, option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError as error:
            text = f"tfserving: an input can't be written as JSON: {error}. Give lists of numbers"
            raise HarnessFault(text) from None
        return HttpRequest(self._head, body, payload.n_in, payload.media_ns)

    def _fields(self, payload: Payload) -> dict[str, Any]:
        data = payload.data
        tensors = data.get("inputs")
        if isinstance(tensors, list | tuple) and tensors and all(_is_tensor(tensor) for tensor in tensors):
            named = {tensor["name"]: _nested(tensor) for tensor in tensors}
            return {"inputs": named} if self._options.layout == "column" else {"instances": _rows(named)}
        if any(name in data for name in _BODIES):
            return data
        if payload.prompt is not None:
            return {"inputs" if self._options.layout == "column" else "instances": [payload.prompt]}
        raise HarnessFault(
            'tfserving: the payload has no data["inputs"], instances or examples and no prompt. Use a tensor source'
        )

    def settle(self, exchange: Exchange) -> None:
        if not outcome.judge_code(exchange) or exchange.status != outcome.OK:
            return
        if not outcome.readable(exchange):
            return
        try:
            answer = _loads(bytes(exchange.body))
        except (ValueError, RecursionError):
            what = f"not JSON: {outcome.excerpt(exchange.body)}" if exchange.body else "empty"
            outcome.fail(exchange, outcome.PROTOCOL, f"the body is {what}")
            return
        fault = fault_of(answer) if isinstance(answer, dict) else None
        wanted = _ANSWERS[self._options.call]
        if fault is not None:
            outcome.fail_by(exchange, fault)
        elif not isinstance(answer, dict) or not any(answer.get(name) not in (None, [], {}) for name in wanted):
            text = f"the body holds no {' or '.join(wanted)}: {outcome.excerpt(exchange.body)}"
            outcome.fail(exchange, outcome.PROTOCOL, text)


def _loads(body: bytes) -> Any:
    """JSON, and what this server writes besides: NaN, Infinity and -Infinity."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        if b"NaN" not in body and b"Infinity" not in body:
            raise
        return json.loads(body)


def _is_tensor(tensor: Any) -> bool:
    return isinstance(tensor, Mapping) and {"name", "shape", "data"} <= tensor.keys()


def _nested(tensor: Mapping[str, Any]) -> Any:
    """The tensor's values in nested lists of its shape. Raises HarnessFault where they do not fit it."""
    shape, data = list(tensor["shape"]), tensor["data"]
    values = data.ravel().tolist() if hasattr(data, "ravel") else list(data)
    values = [{"b64": _b64(value)} if isinstance(value, bytes) else value for value in values]
    if any(isinstance(value, list) for value in values[:1]):
        return values  # it is nested already
    if len(values) != prod(shape):
        text = f"tensor {outcome.shown(str(tensor['name']), 60)!r} has {len(values)} elements, not the {prod(shape)} of its shape"
        raise HarnessFault(f"tfserving: {text}. Correct the payload source")
    for size in reversed(shape[1:]):
        values = [values[at : at + size] for at in range(0, len(values), size)]
    return values if shape else values[0]


def _b64(value: bytes) -> str:
    import base64

    return base64.b64encode(value).decode()


def _rows(named: Mapping[str, Any]) -> list[Any]:
    """Tensors by name, as one object (or one value, where there is one tensor) for each place of the first dimension."""
    sizes = {len(value) if isinstance(value, list) else -1 for value in named.values()}
    if len(sizes) > 1 or -1 in sizes:
        raise HarnessFault(
            "tfserving: the tensors have no first dimension in common, so they are no rows. Set layout: column"
        )
    if len(named) == 1:
        return list(next(iter(named.values())))
    return [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]


PROTOCOLS = (
    ProtocolSpec(
        "tfserving",
        "TensorFlow Serving's REST predict, classify and regress",
        over_http(TfServingDialect),
        TfServingOptions,
        streaming=False,
        source="tensors",
        answers=("predictions", "outputs"),
    ),
)
