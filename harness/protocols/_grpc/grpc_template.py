"""This module calls any gRPC method without generated code: by a schema, a JSON template and paths into the answers.

Everything is checked against the schema before any load, and every mistake is listed. It guesses nothing: without
``text_path`` every message of a stream counts as output.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pydantic import Field, field_validator, model_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._grpc import descriptors
from plimsoll.harness.protocols._grpc.descriptors import Method, Schema, choices, split_method
from plimsoll.harness.protocols._grpc.protobuf_json import (
    ANY,
    INTEGERS,
    OWN_FORM,
    Descriptor,
    checked,
    is_map,
    outline_problems,
    read,
    to_json,
)
from plimsoll.harness.protocols._http.body_template import BodyTemplate
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING
from plimsoll.harness.transport.rpc.call import GrpcOptions, GrpcRequest, messages_of, metadata_of, metadata_problems
from plimsoll.harness.transport.rpc.rpc_outcome import GRPC, fail_code
from plimsoll.harness.wire import pointer
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.text.fields import Duration

if TYPE_CHECKING:  # of accuracy runs alone
    from plimsoll.slo.verdict.accuracy import Answer

#: A field's name, the index or key into it (None: the field itself), and whether it has presence.
_Step = tuple[str, Any, bool]


class MessagePath:
    """A path such as ``results[0].alternatives[0].transcript``, held to a message type before any load.

    Raises ValueError for a path that can't lead anywhere, with the fields that there are. A map is entered by key:
    ``parameters["x"].string_param``. What is behind a Struct, Value or Any is JSON and not checked.
    """

    __slots__ = ("_pool", "_steps", "_tail", "text")

    def __init__(self, kind: type[Message], text: str, pool: Any = None) -> None:
        self.text = text
        self._pool = pool
        steps = pointer.parse(text)
        self._steps, self._tail = _compile(kind.DESCRIPTOR, steps, text)

    def find(self, message: Any) -> Any:
        """The value (a number, text, bytes, list-like or message), or ``pointer.MISSING``: not there, or a field with
        presence that was not set. A field without presence always has a value. Never raises.
        """
        value = message
        for name, key, presence in self._steps:
            if presence and not value.HasField(name):
                return pointer.MISSING
            value = getattr(value, name)
            if key is None:
                continue
            if isinstance(key, int) and not hasattr(value, "keys"):
                if not -len(value) <= key < len(value):
                    return pointer.MISSING
            elif key not in value:
                return pointer.MISSING
            value = value[key]
        if self._tail is None:
            return value
        return pointer.find(to_json(value, self._pool), self._tail)


def _compile(kind: Descriptor, steps: pointer.Pointer, text: str) -> tuple[tuple[_Step, ...], pointer.Pointer | None]:
    made: list[_Step] = []
    field: Descriptor = None
    key: Any = None
    at = 0
    while at < len(steps):
        if kind is None:
            raise ValueError(f"path {text!r}: nothing is inside {steps[at - 1]!r}. Shorten the path")
        if kind.full_name in OWN_FORM:
            return tuple(made), steps[at:]
        name = steps[at]
        field = next((one for one in kind.fields if name in (one.name, one.json_name)), None)
        if field is None:
            known = choices(str(name), [one.name for one in kind.fields], "field")
            raise ValueError(f"path {text!r}: {kind.full_name} has no field {name!r}. {known}")
        at += 1
        key = None
        inner = field.message_type
        if field.is_repeated and at < len(steps):
            if is_map(field):
                entry = field.message_type.fields_by_name
                key, inner = _map_key(entry["key"], steps[at], text), entry["value"].message_type
            else:
                key = _index(steps[at], field.name, text)
            at += 1
        made.append((field.name, key, bool(field.has_presence)))
        kind = inner
    if made and field.is_repeated and key is None:
        return tuple(made), None
    return tuple(made), () if kind is not None and kind.full_name in OWN_FORM else None


def _index(step: str | int, name: str, text: str) -> int:
    if isinstance(step, int):
        return step
    if step.isdecimal() and len(step) < 10:
        return int(step)
    raise ValueError(f"path {text!r}: {name} is a list. Write {name}[0].{step}")


def _map_key(field: Descriptor, step: str | int, text: str) -> Any:
    if field.cpp_type in INTEGERS:
        if isinstance(step, int) or step.lstrip("-").isdecimal():
            return int(step)
        raise ValueError(f"path {text!r}: {step!r} is no key, they are whole numbers. Write [1]")
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return step == "true"
    return str(step)


_WHOLE = re.compile(r"\s*\{\{-?((?:(?!\}\}|\{\{).)*?)-?\}\}\s*\Z", re.DOTALL)
_MARKS = ("{{", "{%")
WHERE = "target.options.message"


class MessageTemplate:
    """A compiled template. Raises ValueError with every part that doesn't compile."""

    __slots__ = ("_tree",)

    def __init__(self, given: Any) -> None:
        errors: list[str] = []
        self._tree = _whole(given) if isinstance(given, str) else _compiled(given, "", errors)
        if errors:
            raise ValueError("; ".join(errors))

    def outline(self, unknown: Any) -> Any:
        """The value with ``unknown`` in place of everything that depends on the sample."""
        return _outline(self._tree, unknown)

    def render(self, payload: Payload, model: str) -> Any:
        """The JSON value for a payload. Raises HarnessFault if a variable is missing, or text renders to neither JSON
        nor YAML.
        """
        return _rendered(self._tree, payload, model)


class _Text:
    """Text that becomes JSON or YAML as a whole."""

    __slots__ = ("_template",)

    def __init__(self, text: str) -> None:
        self._template = BodyTemplate(text, WHERE)

    def render(self, payload: Payload, model: str) -> Any:
        body = self._template.render(payload, model)
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as broken:
            try:
                value = yaml.safe_load(body)
            except (yaml.YAMLError, ValueError, RecursionError):
                value = None
            if isinstance(value, dict | list):
                return value
            shown = " ".join(body[:300].decode("utf-8", "replace").split())
            raise HarnessFault(
                f"{WHERE}: it renders to text that is neither JSON ({broken}) nor YAML: {shown}. "
                "Write values with `| tojson`"
            ) from None


class _Leaf:
    """One string of an object."""

    __slots__ = ("_is_value", "_template")

    def __init__(self, text: str, where: str) -> None:
        whole = _WHOLE.match(text)
        self._is_value = whole is not None
        self._template = BodyTemplate("{{ (" + whole[1].strip() + ") | tojson }}" if whole else text, where)

    def render(self, payload: Payload, model: str) -> Any:
        body = self._template.render(payload, model)
        return orjson.loads(body) if self._is_value else body.decode()


def _whole(text: str) -> Any:
    """A template, or what the text says where it is the same for every sample. Raises ValueError."""
    tree = _Text(text)
    if any(mark in text for mark in (*_MARKS, "{#")):
        return tree
    try:
        return tree.render(Payload(), "")
    except HarnessFault as fault:
        raise ValueError(str(fault).removeprefix(f"{WHERE}: ")) from None


def _compiled(value: Any, where: str, errors: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _compiled(item, f"{where}.{name}", errors) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_compiled(item, f"{where}[{i}]", errors) for i, item in enumerate(value)]
    if not isinstance(value, str) or not any(mark in value for mark in _MARKS):
        return value
    try:
        return _Leaf(value, f"{WHERE}{where}")
    except ValueError as error:
        errors.append(f"{where.lstrip('.')}: {error}")
        return None


def _outline(tree: Any, unknown: Any) -> Any:
    if isinstance(tree, _Text | _Leaf):
        return unknown
    if isinstance(tree, dict):
        return {name: _outline(item, unknown) for name, item in tree.items()}
    return [_outline(item, unknown) for item in tree] if isinstance(tree, list) else tree


def _rendered(tree: Any, payload: Payload, model: str) -> Any:
    if isinstance(tree, _Text | _Leaf):
        return tree.render(payload, model)
    if isinstance(tree, dict):
        return {name: _rendered(item, payload, model) for name, item in tree.items()}
    if isinstance(tree, list):
        return [_rendered(item, payload, model) for item in tree]
    return tree


#: Before a descriptor set that is given in place, as base64.
INLINE = "base64:"
_PATHS = ("text_path", "prompt_tokens_path", "output_tokens_path", "error_path", "done_path")


class TemplateOptions(GrpcOptions):
    """Options of ``grpc``."""

    method: str | None = Field(default=None, min_length=3)
    descriptor_set: str | None = None
    proto: str | list[str] = []
    proto_path: str | list[str] = []
    message: Any = {}
    interval: Duration | None = None
    metadata: dict[str, str] = {}
    text_path: str | list[str] = []
    prompt_tokens_path: str | None = None
    output_tokens_path: str | None = None
    error_path: str | None = None
    done_path: str | None = None
    stop_after: int | None = Field(default=None, ge=1)

    @field_validator("method")
    @classmethod
    def _method(cls, value: str | None) -> str | None:
        if value is not None:
            split_method(value)
        return value

    @field_validator(*_PATHS)
    @classmethod
    def _paths(cls, value: str | list[str] | None) -> str | list[str] | None:
        for text in texts_of(value):
            pointer.parse(text)
        return value

    @field_validator("metadata")
    @classmethod
    def _metadata(cls, value: dict[str, str]) -> dict[str, str]:
        errors = metadata_problems(value)
        if errors:
            raise ValueError("; ".join(errors))
        return value

    @field_validator("message")
    @classmethod
    def _message(cls, value: Any) -> Any:
        if not isinstance(value, str | Mapping | list):
            raise ValueError(
                "not an object, a list of objects or a template. Write the message's fields and their values"
            )
        MessageTemplate(value)
        return value

    @field_validator("descriptor_set")
    @classmethod
    def _file(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(INLINE) and not Path(value).is_file():
            raise ValueError(f"there is no file {value}. Correct the path (it is relative to the working directory)")
        return value

    def mistakes(self) -> list[str]:
        schema = schema_of(self)
        if schema is not None and self.method is not None:
            Bound(self, schema, self.method)
        return []

    @model_validator(mode="after")
    def _together(self) -> TemplateOptions:
        if self.descriptor_set is not None and self.proto:
            raise ValueError("descriptor_set and proto are given together. Keep one")
        if self.proto_path and not self.proto:
            raise ValueError(
                "proto_path is where proto's imports are, and there is no proto. Add it, or remove proto_path"
            )
        return self


def texts_of(value: str | Sequence[str] | None) -> list[str]:
    """One text or several, as a list."""
    return [value] if isinstance(value, str) else list(value or [])


def schema_of(options: TemplateOptions) -> Schema | None:
    """The schema that the options name; None: ask the server. Raises HarnessFault."""
    try:
        if options.descriptor_set is not None and options.descriptor_set.startswith(INLINE):
            return descriptors.from_set(b64decode(options.descriptor_set.removeprefix(INLINE)))
        if options.descriptor_set is not None:
            return descriptors.from_file(options.descriptor_set)
        if options.proto:
            return descriptors.from_protos(texts_of(options.proto), texts_of(options.proto_path))
    except ValueError as error:
        name = "proto" if options.proto else "descriptor_set"
        raise HarnessFault(f"target.options.{name}: {error}") from None
    return None


class Bound:
    """The options held to a schema. Raises HarnessFault with every mistake that doesn't depend on the sample."""

    def __init__(self, options: TemplateOptions, schema: Schema, name: str) -> None:
        self.pool = schema.pool
        try:
            self.method: Method = schema.method(name)
        except ValueError as error:
            raise HarnessFault(f"target.options.method: {error}") from None
        errors: list[str] = []
        self.text = self._path(options, "text_path", errors)
        self.n_in = self._path(options, "prompt_tokens_path", errors)
        self.n_out = self._path(options, "output_tokens_path", errors)
        self.error = self._path(options, "error_path", errors)
        self.done = self._path(options, "done_path", errors)
        self.template = MessageTemplate(options.message)
        if not self.method.server_streaming:
            unused = [text for text in ("text_path", "done_path", "stop_after") if getattr(options, text)]
            errors += [
                f"target.options.{text}: {name} answers with one message ({self.method.kind}). Remove it"
                for text in unused
            ]
        if options.interval is not None and not self.method.client_streaming:
            errors.append(f"target.options.interval: {name} takes one message ({self.method.kind}). Remove it")
        errors += self._outline_problems()
        if errors:
            raise HarnessFault(errors)

    def _path(self, options: TemplateOptions, name: str, errors: list[str]) -> tuple[MessagePath, ...]:
        found = []
        for text in texts_of(getattr(options, name)):
            try:
                found.append(MessagePath(self.method.response, text, self.pool))
            except ValueError as error:
                errors.append(f"target.options.{name}: {error}")
        return tuple(found)

    def _outline_problems(self) -> list[str]:
        outline = self.template.outline(ANY)
        if not isinstance(outline, list) or not self.method.client_streaming or not outline:
            return (
                []
                if outline is ANY
                else self.shape_problems(outline) or outline_problems(self.method.request, outline, WHERE, self.pool)
            )
        found = [
            outline_problems(self.method.request, one, f"{WHERE}[{i}]", self.pool) for i, one in enumerate(outline)
        ]
        return [error for errors in found for error in errors]

    def shape_problems(self, value: Any) -> list[str]:
        """Why a value is not as many messages as the method takes."""
        if isinstance(value, list) and not self.method.client_streaming:
            return [f"{WHERE}: a list, but {self.method.path} takes one message ({self.method.kind}). Give an object"]
        return [f"{WHERE}: the list is empty. Give at least one message"] if value == [] else []

    def encoded(self, value: Any) -> tuple[tuple[bytes, ...], list[str]]:
        """(the messages, every mistake in them) of a rendered template."""
        request = self.method.request
        if not isinstance(value, list):
            data, errors = checked(request, value, WHERE, self.pool)
            return (data,), errors
        if problems := self.shape_problems(value):
            return (), problems
        pairs = [checked(request, item, f"{WHERE}[{i}]", self.pool) for i, item in enumerate(value)]
        return tuple(data for data, _ in pairs), [error for _, errors in pairs for error in errors]


class TemplateDialect:
    """One method. ``schema`` None: nothing is known of it yet, so that templates can be rendered and no call can be
    sent.
    """

    def __init__(self, target: Target, schema: Schema | None, name: str) -> None:
        options = self._options = accept(TemplateOptions, target.options)
        self._metadata = metadata_of(target, options.metadata)
        self._model = target.model
        self._bound = Bound(options, schema, name) if schema is not None else None
        self.response = None if self._bound is None else self._bound.method.response
        if options.stop_after is not None:
            # Only where it is wanted: a transport without a hear calls nothing.
            wanted = options.stop_after
            self.hear = lambda exchange, message: DONE if len(exchange.mark_end) >= wanted else NOTHING

    def encode(self, payload: Payload) -> GrpcRequest:
        """The rendered message or messages. Raises HarnessFault with every mistake in them."""
        options, bound = self._options, self._bound
        if bound is None:
            MessageTemplate(options.message).render(payload, self._model)
            return GrpcRequest("/not.asked/Yet", (b"",), n_in=payload.n_in, media_ns=payload.media_ns)
        messages, errors = bound.encoded(bound.template.render(payload, self._model))
        if errors:
            raise HarnessFault(errors)
        interval = options.interval or 0
        return GrpcRequest(
            bound.method.path,
            messages,
            due_ns=tuple(i * interval for i in range(len(messages))) if interval else (),
            client_streaming=bound.method.client_streaming,
            server_streaming=bound.method.server_streaming,
            metadata=self._metadata,
            deadline_ns=options.deadline_ns,
            n_in=payload.n_in,
            media_ns=payload.media_ns,
        )

    def settle(self, exchange: Exchange) -> None:
        """Read the messages: output, usage, an error in one of them, a stream without its end."""
        bound = self._bound
        if bound is None:
            return
        scan = _Scan(bound)
        bad = scan.read(exchange)
        if bound.method.server_streaming:
            outcome.stamp_chunks(
                exchange, np.frombuffer(exchange.mark_ns, dtype=np.int64).copy(), scan.output, scan.first
            )
            outcome.count_tokens(exchange, scan.n_in, scan.n_out, exchange.status == outcome.OK)
        else:
            outcome.count_usage(exchange, scan.n_in, scan.n_out)
        if scan.fault is not None:
            self._fail(exchange, scan.fault)
        elif bad is not None:
            outcome.fail(exchange, outcome.PROTOCOL, bad)
        elif bound.done and not scan.done and exchange.status == outcome.OK:
            text = f"stream ended after {len(exchange.mark_end)} messages: the end that done_path names never came"
            outcome.fail(exchange, outcome.PROTOCOL, text)

    def answer(self, exchange: Exchange) -> Answer | None:
        """The texts at ``text_path``, or the last message as it prints; None: no message could be read."""
        from plimsoll.slo.verdict.accuracy import Answer

        text = _Scan(self._bound).text(exchange) if self._bound is not None else None
        return None if text is None else Answer(text)

    def _fail(self, exchange: Exchange, fault: Any) -> None:
        code, message = getattr(fault, "code", None), getattr(fault, "message", None)
        if isinstance(code, int) and isinstance(message, str):  # a google.rpc.Status, whatever it is called here
            fail_code(exchange, code, message)
            return
        text = outcome.shown(str(fault))
        outcome.fail(exchange, GRPC, f"the answer holds an error: {text}")


class _Scan:
    """One finished call, gone through."""

    __slots__ = ("_bound", "done", "fault", "first", "n_in", "n_out", "output")

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self.output: list[int] = []
        self.first = self.n_in = self.n_out = -1
        self.done = False
        self.fault: Any = None

    def read(self, exchange: Exchange) -> str | None:
        """Go through the messages; why one can't be read, or None. Stops at one that holds an error."""
        bound = self._bound
        kind, looks = bound.method.response, bool(bound.text)
        for i, data in enumerate(messages_of(exchange)):
            message = read(kind, data)
            if message is None:
                return f"message {i + 1} is no {kind.DESCRIPTOR.full_name}. Is it the right schema?"
            for path in bound.error:
                found = path.find(message)
                if holds(found):
                    self.fault = found
                    return None
            if not looks or any(holds(path.find(message)) for path in bound.text):
                self.output.append(i)
            self.n_in = _count(message, bound.n_in, self.n_in)
            self.n_out = _count(message, bound.n_out, self.n_out)
            self.done = self.done or any(holds(path.find(message)) for path in bound.done)
        self.first = self.output[0] if self.output else -1
        return None

    def text(self, exchange: Exchange) -> str | None:
        """See ``TemplateDialect.answer``."""
        parts: list[str] = []
        messages = [read(self._bound.method.response, data) for data in messages_of(exchange)]
        if None in messages:
            return None
        for message in messages:
            found = [path.find(message) for path in self._bound.text]
            parts += [_as_text(value) for value in found if holds(value)][:1]
        if not self._bound.text and messages:
            return str(messages[-1])
        return "".join(parts) if messages else None


def holds(value: Any) -> bool:
    """There is something: no missing or unset field, no empty text, list or message, neither 0 nor false."""
    if value is pointer.MISSING:
        return False
    size = getattr(value, "ByteSize", None)
    return size() > 0 if size is not None else bool(value)


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _count(message: Any, paths: tuple[MessagePath, ...], before: int) -> int:
    for path in paths:
        value = path.find(message)
        if type(value) is str and value.isascii() and value.isdecimal() and len(value) < 16:
            return int(value)
        if type(value) is int and 0 <= value < 1 << 53:
            return value if value or before < 0 else before  # an unset field without presence says nothing
    return before
