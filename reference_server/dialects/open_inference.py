"""What the Open Inference Protocol asks of the models, whichever wire it came by: HTTP and gRPC differ in bytes only.

Models of fixed outputs answer through their batchers, the language model continues the tensor ``text`` (or
``text_input``), the scripted model echoes its tensors or, given ``max_tokens``, continues text. It knows no bytes and
no sockets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from plimsoll.reference_server.dialects.generation import priority
from plimsoll.reference_server.seams.models import Ask, Script, TextModel
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.transports.stream import TextSink
from plimsoll.reference_server.values.durations import PARSE, Stages
from plimsoll.reference_server.values.errors import RequestError, StreamFailure, invalid
from plimsoll.reference_server.values.tensors import Tensor, TensorSpec, objects, wrong

EXTENSIONS = ("binary_tensor_data", "model_configuration", "model_repository", "statistics", "generate")
TEXT = {"text": "text", "text_input": "text_output"}
"""The name of a text input and of its reply."""
_ANY = (TensorSpec("any", "FP32", (-1,)),)
_TEXT = (TensorSpec("text", "BYTES", (-1,)),)
DEFAULT_NEW = 16


@dataclass(frozen=True, slots=True)
class Card:
    """What a model is, takes and gives."""

    name: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    decoupled: bool = False
    """One request, many responses on a stream."""
    version: str = "1"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": "reference",
            "inputs": [spec.as_json() for spec in self.inputs],
            "outputs": [spec.as_json() for spec in self.outputs],
        }

    def config(self) -> dict[str, Any]:
        """Triton's model configuration. Shapes include the number of samples: hence no max_batch_size."""
        return {
            "name": self.name,
            "platform": "reference",
            "backend": "reference",
            "max_batch_size": 0,
            "input": [_described(spec) for spec in self.inputs],
            "output": [_described(spec) for spec in self.outputs],
            "model_transaction_policy": {"decoupled": self.decoupled},
        }


def _described(spec: TensorSpec) -> dict[str, Any]:
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(spec.shape)}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the parameters of a request say. ``timeout_ns`` is -1 for none, ``max_new`` None where it isn't said."""

    max_new: int | None = None
    min_new: int = 0
    ignore_eos: bool = False
    priority: int = 0
    timeout_ns: int = -1
    script: Script = field(default_factory=Script)


@dataclass(frozen=True, slots=True)
class InferRequest:
    """One inference request, its tensors well formed; ``outputs`` are those asked for, none meaning all."""

    model: str
    request_id: str
    tensors: Sequence[Tensor]
    outputs: Sequence[str] = ()
    wishes: Wishes = field(default_factory=Wishes)
    version: str = "1"
    """Of the model that answers."""


@dataclass(slots=True, eq=False)
class Occasion:
    """What surrounds one request: its row, where its answer fails or is cut, and how long anyone waits for it."""

    row: TruthRow
    limits: tuple[int, int] = (-1, -1)
    deadline_ns: int = -1
    stages: Stages = field(default_factory=Stages)
    failed: bool = False
    """It failed after its answer had begun, and said so there."""


def version() -> str:
    try:
        return metadata.version("plimsoll-slo")
    except metadata.PackageNotFoundError:
        return "0"


def wishes(parameters: Fields, script: Script) -> Wishes:
    """What the parameters say; those that mean nothing here are passed over. Raises RequestError 400."""
    timeout_us = parameters.integer("timeout", 0, low=0, high=2**53)
    return Wishes(
        max_new=parameters.integer("max_tokens", 0, low=1) if parameters.has("max_tokens") else None,
        min_new=parameters.integer("min_tokens", 0, low=0),
        ignore_eos=parameters.flag("ignore_eos"),
        priority=priority(parameters),
        timeout_ns=timeout_us * 1000 if timeout_us else -1,
        script=script,
    )


def deadline(received_ns: int, wish: Wishes, other_ns: int = -1) -> int:
    """The instant after which nobody waits: the request's own timeout or ``other_ns``, the earlier; -1 for none."""
    if wish.timeout_ns < 0:
        return other_ns
    own_ns = received_ns + wish.timeout_ns
    return own_ns if other_ns < 0 else min(own_ns, other_ns)


def card(service: Service, name: str, model_version: str = "") -> Card:
    """The card of a model. Raises RequestError 404 for a model or version that isn't there, 503 at the start."""
    if name in service.fixed:
        model = service.fixed[name].model
        made = Card(name, model.inputs, model.outputs, version=service.version)
    elif service.llm is not None and name == service.llm.name:
        made = Card(name, _TEXT, _TEXT, True, service.version)
    elif service.scripted is not None and name == service.scripted.name:
        made = Card(name, _ANY, _ANY, True, service.version)
    else:
        raise service.unknown(name, "takes tensors")
    if model_version not in ("", made.version):
        why = f"model {name!r} has no version {model_version!r}, only {made.version}"
        raise RequestError(404, why, code="version_not_found")
    return made


def names(service: Service) -> list[str]:
    """The models that take tensors."""
    speech = {model.name for model in (service.recogniser, service.synthesiser) if model is not None}
    return [name for name in service.model_names if name not in speech]


def index(service: Service) -> list[dict[str, str]]:
    """Every model that takes tensors, and whether it does so now."""
    states = {name: "READY" if service.has(name) else "UNAVAILABLE" for name in names(service)}
    return [{"name": name, "version": service.version, "state": state} for name, state in states.items()]


def statistics(service: Service, wanted: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Triton's statistics of these models, or of all. A model ran once a batch, or a request if it has none."""
    rows = []
    for name in names(service) if wanted is None else wanted:
        kept = service.statistics.of(name)
        fixed = service.fixed.get(name)
        n_executed = kept.success.count if fixed is None else fixed.n_batches
        rows.append(kept.as_json(name, n_executed, service.version))
    return rows


@contextmanager
def counted(service: Service, name: str, occasion: Occasion, *, n_samples: int = 1) -> Iterator[None]:
    """Put one request into the statistics of its model: how it ended, and its stages."""
    totals, received_ns = service.statistics.of(name), occasion.row.received_ns
    try:
        yield
    except (RequestError, StreamFailure):
        totals.note_failure(time.monotonic_ns() - received_ns, now_ms=time.time_ns() // 1_000_000)
        raise
    total_ns, now_ms = time.monotonic_ns() - received_ns, time.time_ns() // 1_000_000
    if occasion.failed:
        totals.note_failure(total_ns, now_ms=now_ms)
    else:
        totals.note(occasion.stages, total_ns, n_samples=n_samples, now_ms=now_ms)


async def infer(service: Service, request: InferRequest, occasion: Occasion) -> list[Tensor]:
    """The tensors of one reply. Raises RequestError, StreamFailure and StreamCut."""
    name, wish = request.model, request.wishes
    service.check_script(request.model, request.wishes.script)
    with counted(service, name, occasion, n_samples=_n_samples(request.tensors)):
        if name in service.fixed:  # its batcher keeps the deadline, and counts
            occasion.stages.add(PARSE, time.monotonic_ns() - occasion.row.received_ns)
            return chosen(
                await service.fixed[name].infer(
                    request.tensors, occasion.stages, priority=wish.priority, deadline_ns=occasion.deadline_ns
                ),
                request.outputs,
            )
        async with service.in_time(name, occasion.deadline_ns):
            answer = _continued if is_streamed(service, request) else _echo
            made = await answer(service, request, occasion)
        service.metrics.stage(name, occasion.stages)
        return chosen(made, request.outputs)


def is_streamed(service: Service, request: InferRequest) -> bool:
    """Is the answer text, of which a stream gets one piece after the other?"""
    if service.scripted is not None and request.model == service.scripted.name:
        return request.wishes.max_new is not None
    return request.model not in service.fixed


def text_ask(service: Service, request: InferRequest, occasion: Occasion) -> tuple[TextModel, Ask, str]:
    """The one prompt of a request that is answered as a stream, its model, and what the reply's tensor is called.

    Raises RequestError 400 where there is not exactly one.
    """
    service.check_script(request.model, request.wishes.script)
    model = service.model(request.model)
    given = _text_tensor(request)
    if given.data.size != 1:
        raise wrong(given.name, f"has {given.data.size} elements. A stream continues one: send several requests")
    (ask,) = _asks(service, model, given, request, occasion)
    named = TEXT[given.name]
    if any(name != named for name in request.outputs):
        raise _no_output(list(request.outputs), [named])
    return model, ask, named


def piece(name: str, text: str, *, errors: str = "replace") -> Tensor:
    """A piece of text as a tensor of one element. Raises UnicodeEncodeError where ``errors`` is strict."""
    return Tensor(name, "BYTES", objects([text.encode("utf-8", errors=errors)]))


def chosen(made: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
    """The outputs asked for, in that order; all where none are named. Raises RequestError 400 for a missing one."""
    if not names:
        return list(made)
    by_name = {tensor.name: tensor for tensor in made}
    if any(name not in by_name for name in names):
        raise _no_output(names, list(by_name))
    return [by_name[name] for name in names]


def _no_output(names: Sequence[str], known: Sequence[str]) -> RequestError:
    missing = next(name for name in names if name not in known)
    return invalid("outputs", f"{missing!r} is no output of this model. It gives {', '.join(known)}", "invalid_tensor")


def _n_samples(tensors: Sequence[Tensor]) -> int:
    return max((int(tensor.data.shape[0]) for tensor in tensors if tensor.data.ndim), default=1)


async def _echo(service: Service, request: InferRequest, occasion: Occasion) -> Sequence[Tensor]:
    scripted = service.scripted
    if scripted is None:
        raise service.unknown("scripted", "echoes tensors")
    if not request.tensors:
        raise invalid("inputs", "send at least one tensor", "invalid_tensor")
    if len({tensor.name for tensor in request.tensors}) != len(request.tensors):
        raise invalid("inputs", "two tensors have the same name", "invalid_tensor")
    ask = Ask([0], 1, occasion.row, script=request.wishes.script, stages=occasion.stages)
    ask = replace(ask, n_samples=max(1, _n_samples(request.tensors)))
    answer = scripted.ask(ask)
    error_at, cut_at = occasion.limits
    try:
        await answer.ready()
        await answer.play(TextSink(error_at=error_at, cut_at=cut_at))
    finally:
        answer.close()
    return request.tensors


def _text_tensor(request: InferRequest) -> Tensor:
    given = [tensor for tensor in request.tensors if tensor.name in TEXT]
    if len(given) != 1 or len(request.tensors) != 1 or given[0].datatype != "BYTES":
        one = "takes one tensor named text or text_input, of datatype BYTES"
        raise invalid("inputs", f"model {request.model!r} {one}", "invalid_tensor")
    return given[0]


def _asks(
    service: Service, model: TextModel, given: Tensor, request: InferRequest, occasion: Occasion
) -> Sequence[Ask]:
    wish = request.wishes
    max_new = DEFAULT_NEW if wish.max_new is None else wish.max_new
    try:
        prompts = [model.tokenizer.encode(element.decode("utf-8")) for element in given.data.ravel()]
    except UnicodeDecodeError as error:
        raise wrong(given.name, f"holds text that is no UTF-8: {error.reason}") from None
    asks = []
    for prompt in prompts:
        service.check(model, len(prompt), max_new, wish.script)
        asks.append(
            Ask(
                prompt,
                max_new,
                occasion.row,
                wish.min_new,
                wish.ignore_eos,
                wish.script,
                priority=wish.priority,
                deadline_ns=occasion.deadline_ns,
                stages=occasion.stages if len(prompts) == 1 else Stages(),
            )
        )
    return asks


async def _continued(service: Service, request: InferRequest, occasion: Occasion) -> Sequence[Tensor]:
    model = service.model(request.model)
    given = _text_tensor(request)
    asks = _asks(service, model, given, request, occasion)
    # A task group, so that a refused or failed element takes its siblings, and their blocks, with it.
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_text(service, model, ask, occasion)) for ask in asks]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    if len(asks) > 1:
        _longest(occasion.stages, asks)
    texts = objects([task.result().encode("utf-8", errors="replace") for task in tasks])
    return [Tensor(TEXT[given.name], "BYTES", texts.reshape(given.data.shape))]


async def _text(service: Service, model: TextModel, ask: Ask, occasion: Occasion) -> str:
    answer = model.ask(ask)
    error_at, cut_at = occasion.limits
    sink = TextSink(error_at=error_at, cut_at=cut_at)
    try:
        await answer.ready()
        finish = await answer.play(sink)
    finally:
        answer.close()
    service.metrics.answer(model.name, ask.row, finish.n_new, sink.first_ns)
    return sink.text


def _longest(stages: Stages, asks: Sequence[Ask]) -> None:
    """Elements are answered side by side: each stage took as long as it took the slowest."""
    for ask in asks:
        for name, ns in ask.stages.spans_ns.items():
            stages.add(name, ns - stages.spans_ns.get(name, 0))
