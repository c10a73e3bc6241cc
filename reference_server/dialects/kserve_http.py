"""The Open Inference Protocol V2 over HTTP, with Triton's extensions: JSON and binary tensors, generated text.

What the models make of a request is in ``open_inference``. Lengths of binary tensors are held against the body. JSON
has no NaN and no bytes beyond UTF-8: such outputs are refused, with the way round it.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from aiohttp import web

from plimsoll.reference_server.dialects import open_inference
from plimsoll.reference_server.dialects.admin import check_caller
from plimsoll.reference_server.dialects.open_inference import InferRequest, Occasion, card, wishes
from plimsoll.reference_server.seams.models import Answer, Ask
from plimsoll.reference_server.service.service import Service, obey
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.http_calls import Call, inference
from plimsoll.reference_server.transports.stream import sse
from plimsoll.reference_server.values.errors import RequestError, StreamFailure, invalid
from plimsoll.reference_server.values.tensors import (
    MAX_DIMENSIONS,
    MAX_SIZE,
    NUMPY,
    Tensor,
    from_bytes,
    objects,
    shaped,
    to_bytes,
    wrong,
)

JSON_LENGTH = "Inference-Header-Content-Length"
_VERSIONS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")


class Tail:
    """What follows the JSON, taken piece by piece."""

    def __init__(self, raw: memoryview) -> None:
        self._raw = raw
        self._at = 0

    def tensor(self, name: str, datatype: str, shape: tuple[int, ...], size: int) -> Tensor:
        """The next ``size`` bytes as a tensor. Raises RequestError 400 naming it."""
        left = len(self._raw) - self._at
        if size > left:
            raise wrong(name, f"announces {size} bytes, but only {left} are left in the body")
        self._at += size
        return from_bytes(name, datatype, shape, self._raw[self._at - size : self._at])

    def end(self) -> None:
        """Every byte must belong to a tensor. Raises RequestError 400."""
        left = len(self._raw) - self._at
        if left:
            message = f"{left} bytes after the last tensor belong to none. Check each binary_data_size"
            raise RequestError(400, message, code="invalid_value")


def split_body(body: bytes, header: str | None) -> tuple[bytes, Tail | None]:
    """The JSON and what follows it; a body without the header is all JSON. Raises RequestError 400."""
    if header is None:
        return body, None
    n = int(header) if header.isascii() and header.isdigit() and len(header) < 12 else -1
    if not 0 <= n <= len(body):
        raise invalid(JSON_LENGTH, f"{header[:20]!r} is not the length of the JSON in a body of {len(body)} bytes")
    return body[:n], Tail(memoryview(body)[n:])


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request, and how its reply is to be written: by default and by output, as bytes (true) or as JSON."""

    request: InferRequest
    binary: bool
    by_output: Mapping[str, bool]


def parse_request(fields: Fields, model: str, tail: Tail | None = None, version: str = "1") -> Parsed:
    """An inference request whose JSON was read. Raises RequestError 400 naming the field and the tensor."""
    script = fields.script()
    parameters = fields.mapping("parameters")
    by_output: dict[str, bool] = {}
    outputs = []
    for index, value in enumerate(fields.items("outputs") if fields.values.get("outputs") else []):
        where = f"outputs[{index}]"
        if not isinstance(value, dict):
            raise invalid(where, "must be an object")
        output = Fields(value, f"{where}.")
        name, wanted = output.text("name"), output.mapping("parameters")
        outputs.append(name)
        if wanted.has("classification"):
            raise invalid(f"{where}.parameters.classification", "is not supported by this server. Leave it out")
        if wanted.has("binary_data"):
            by_output[name] = wanted.flag("binary_data")
    tensors = parse_inputs(fields, tail)
    if tail is not None:
        tail.end()
    request = InferRequest(model, fields.text("id", ""), tensors, outputs, wishes(parameters, script), version)
    return Parsed(request, parameters.flag("binary_data_output"), by_output)


def parse_inputs(fields: Fields, tail: Tail | None = None) -> list[Tensor]:
    tensors = []
    for index, value in enumerate(fields.items("inputs")):
        where = f"inputs[{index}]"
        if not isinstance(value, dict):
            raise invalid(where, "must be an object")
        tensors.append(_tensor(Fields(value, f"{where}."), where, tail))
    return tensors


def _tensor(fields: Fields, where: str, tail: Tail | None) -> Tensor:
    name = fields.text("name")
    datatype = fields.text("datatype")
    dtype = NUMPY.get(datatype)
    if dtype is None:
        raise invalid(f"{where}.datatype", f"{datatype!r} of tensor {name!r} is unknown. Known: {', '.join(NUMPY)}")
    sizes = fields.values.get("shape")
    if not isinstance(sizes, list) or len(sizes) > MAX_DIMENSIONS:
        raise invalid(f"{where}.shape", f"of tensor {name!r} must be a list of at most {MAX_DIMENSIONS} sizes")
    if not all(type(size) is int and 0 <= size <= MAX_SIZE for size in sizes):
        raise invalid(f"{where}.shape", f"of tensor {name!r} must be integers from 0 to {MAX_SIZE}")
    shape = tuple(sizes)
    parameters = fields.mapping("parameters")
    if parameters.has("binary_data_size"):
        size = parameters.integer("binary_data_size", 0, low=0)
        if fields.has("data"):
            raise invalid(f"{where}.data", f"tensor {name!r} has data and binary_data_size. Send one of them")
        if tail is None:
            raise invalid(
                f"{where}.parameters.binary_data_size",
                f"tensor {name!r} is announced as bytes, but the request lacks the header {JSON_LENGTH}",
            )
        return tail.tensor(name, datatype, shape, size)
    data = fields.values.get("data")
    if not isinstance(data, list):
        raise invalid(f"{where}.data", f"of tensor {name!r} must be a list, or give parameters.binary_data_size")
    flat = list(_flatten(data))
    if len(flat) != math.prod(shape):
        raise invalid(
            f"{where}.data", f"tensor {name!r} has {len(flat)} elements, the shape {sizes} asks for {math.prod(shape)}"
        )
    return shaped(name, datatype, shape, _array(flat, datatype, dtype, where, name))


def _array(flat: list[Any], datatype: str, dtype: np.dtype[Any], where: str, name: str) -> npt.NDArray[Any]:
    unfit = invalid(f"{where}.data", f"tensor {name!r} holds an element that is no {datatype}")
    if not all(_fits(element, datatype) for element in flat):
        raise unfit
    try:
        if datatype == "BYTES":
            return objects([element.encode("utf-8") for element in flat])
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair; an integer beyond every float
        raise unfit from None
    if datatype.startswith("FP") and not np.isfinite(array).all():
        raise invalid(f"{where}.data", f"tensor {name!r} holds a number beyond {datatype}. Send it as binary data")
    return array


def _flatten(data: list[Any]) -> Iterator[Any]:
    pending = [iter(data)]
    while pending:
        for element in pending[-1]:
            if isinstance(element, list):
                pending.append(iter(element))
                break
            yield element
        else:
            pending.pop()


def _fits(element: object, datatype: str) -> bool:
    if datatype == "BOOL":
        return isinstance(element, bool)
    if datatype == "BYTES":
        return isinstance(element, str)
    if isinstance(element, bool):
        return False
    if datatype.startswith("FP"):
        return isinstance(element, int | float)
    if not isinstance(element, int):
        return False
    bits = int(datatype.removeprefix("U").removeprefix("INT"))
    low, high = (0, 2**bits) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return bool(low <= element < high)


def reply(parsed: Parsed, outputs: Sequence[Tensor]) -> tuple[bytes, int | None]:
    """The reply's body, and the length of its JSON where tensors follow as bytes, else None."""
    rows: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for tensor in outputs:
        row: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.data.shape)}
        if parsed.by_output.get(tensor.name, parsed.binary):
            tail.append(to_bytes(tensor))
            row["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            row["data"] = _json_data(tensor)
        rows.append(row)
    asked = parsed.request
    body = {"model_name": asked.model, "model_version": asked.version, "id": asked.request_id, "outputs": rows}
    head = json.dumps(body).encode()
    return (head + b"".join(tail), len(head)) if tail else (head, None)


def _json_data(tensor: Tensor) -> list[Any]:
    flat = tensor.data.ravel()
    if tensor.datatype == "BYTES":
        try:
            return [element.decode("utf-8") for element in flat]
        except UnicodeDecodeError:
            raise _unsayable(tensor, "bytes that are no UTF-8") from None
    if tensor.datatype.startswith("FP") and not np.isfinite(flat).all():
        raise _unsayable(tensor, "NaN or infinity")
    return list(flat.tolist())


def _unsayable(tensor: Tensor, what: str) -> RequestError:
    message = f"output {tensor.name!r} holds {what}, which JSON can't say. Ask for it with parameters.binary_data"
    return RequestError(400, message, param="outputs", code="invalid_tensor")


def add_routes(app: web.Application, service: Service) -> None:
    async def server(_request: web.Request) -> web.Response:
        described = {"name": "plimsoll-reference", "version": open_inference.version()}
        return web.json_response({**described, "extensions": list(open_inference.EXTENSIONS)})

    async def live(_request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(_request: web.Request) -> web.Response:
        is_ready = service.ready
        return web.json_response({"ready": is_ready}, status=200 if is_ready else 503)

    async def model(request: web.Request) -> web.Response:
        return web.json_response(_card(service, request).as_json())

    async def model_ready(request: web.Request) -> web.Response:
        name = _card(service, request).name
        is_ready = service.has(name)
        return web.json_response({"name": name, "ready": is_ready}, status=200 if is_ready else 503)

    async def statistics(request: web.Request) -> web.Response:
        names = [_card(service, request).name] if "model" in request.match_info else None
        return web.json_response({"model_stats": open_inference.statistics(service, names)})

    async def config(request: web.Request) -> web.Response:
        return web.json_response(_card(service, request).config())

    async def index(_request: web.Request) -> web.Response:
        return web.json_response(open_inference.index(service))

    async def load(request: web.Request) -> web.Response:
        check_caller(request)
        name, load = request.match_info["model"], request.match_info["verb"] == "load"
        change = partial(service.shelf.change, name, load=load)
        took_s = await asyncio.get_running_loop().run_in_executor(None, change)
        return web.json_response({"name": name, "seconds": took_s})

    app.router.add_get("/v2", server)
    app.router.add_post("/v2/repository/models/{model}/{verb:load|unload}", load)
    app.router.add_post("/v2/repository/index", index)
    app.router.add_get("/v2/health/live", live)
    app.router.add_get("/v2/health/ready", ready)
    app.router.add_get("/v2/models/stats", statistics)
    for path in _VERSIONS:
        app.router.add_get(path, model)
        app.router.add_get(f"{path}/ready", model_ready)
        app.router.add_get(f"{path}/config", config)
        app.router.add_get(f"{path}/stats", statistics)
        app.router.add_post(f"{path}/infer", inference(service, _infer))
        app.router.add_post(f"{path}/generate", inference(service, _generate))
        app.router.add_post(f"{path}/generate_stream", inference(service, _generate_stream))


def _card(service: Service, request: web.Request) -> open_inference.Card:
    return card(service, request.match_info["model"], request.match_info.get("version", ""))


def _occasion(call: Call, request: InferRequest) -> Occasion:
    wish = request.wishes
    obey(wish.script)
    deadline_ns = open_inference.deadline(call.row.received_ns, wish, call.deadline_ns)
    return Occasion(call.row, call.account.limits(wish.script), deadline_ns)


async def _infer(call: Call) -> web.StreamResponse:
    model = _card(call.service, call.request).name
    call.row.model = model
    head, tail = split_body(call.body, call.request.headers.get(JSON_LENGTH))
    parsed = parse_request(Fields.parse(head), model, tail, call.service.version)
    occasion = _occasion(call, parsed.request)
    outputs = await open_inference.infer(call.service, parsed.request, occasion)
    body, n_json = reply(parsed, outputs)
    response = web.Response(
        body=body, content_type="application/json" if n_json is None else "application/octet-stream"
    )
    if n_json is not None:
        response.headers[JSON_LENGTH] = str(n_json)
    response.headers["Server-Timing"] = occasion.stages.server_timing()
    await call.account.hold()
    await call.send(response)
    return response


def _text_request(call: Call) -> InferRequest:
    """The body of the generate routes: ``text_input``, and parameters in their own object or beside it."""
    model = call.service.model(_card(call.service, call.request).name).name
    call.row.model = model
    fields = Fields.parse(call.body)
    given = fields.mapping("parameters").values
    beside = {key: value for key, value in fields.values.items() if key not in ("parameters", "plimsoll", "id")}
    parameters = Fields({**beside, **given}, "parameters.")
    text = fields.text("text_input")
    try:
        tensor = open_inference.piece("text_input", text, errors="strict")
    except UnicodeEncodeError:
        raise invalid("text_input", "holds half a character that UTF-8 can't say") from None
    wish = open_inference.wishes(parameters, fields.script())
    if wish.max_new is None:
        wish = replace(wish, max_new=open_inference.DEFAULT_NEW)
    return InferRequest(model, fields.text("id", ""), [tensor], wishes=wish, version=call.service.version)


def _frame(request: InferRequest, text: str) -> dict[str, Any]:
    named = {"id": request.request_id} if request.request_id else {}
    return {**named, "model_name": request.model, "model_version": request.version, "text_output": text}


async def _generate(call: Call) -> web.StreamResponse:
    request = _text_request(call)
    occasion = _occasion(call, request)
    (output,) = await open_inference.infer(call.service, request, occasion)
    body = json.dumps(_frame(request, output.data.ravel()[0].decode())).encode()
    return await call.reply(body, server_timing=occasion.stages.server_timing())


async def _generate_stream(call: Call) -> web.StreamResponse:
    request = _text_request(call)
    occasion = _occasion(call, request)
    model, ask, _ = open_inference.text_ask(call.service, request, occasion)
    with open_inference.counted(call.service, model.name, occasion):
        answer = model.ask(ask)
        try:
            async with call.service.in_time(request.model, occasion.deadline_ns):
                await answer.ready()
            return await _stream(call, request, occasion, ask, answer)
        finally:
            answer.close()


async def _stream(
    call: Call, request: InferRequest, occasion: Occasion, ask: Ask, answer: Answer
) -> web.StreamResponse:
    response = await call.begin("text/event-stream", occasion.stages)
    sink = call.sink(lambda text: sse(_frame(request, text)), occasion.limits)
    try:
        async with call.service.in_time(request.model, occasion.deadline_ns):
            finish = await answer.play(sink)
    except (StreamFailure, RequestError) as failure:
        call.failed = occasion.failed = True
        sink.event(sse({"error": str(failure)}))
    else:
        # The last event holds no text; clients that join the pieces may ignore it.
        end = {"finish_reason": finish.reason, "server_timing": occasion.stages.server_timing()}
        sink.event(sse(_frame(request, "") | end))
        call.service.metrics.answer(request.model, call.row, finish.n_new, call.row.first_token_ns)
        call.count_stages(occasion.stages)
    await response.write_eof()
    return response
