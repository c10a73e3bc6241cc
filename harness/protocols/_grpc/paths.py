"""MessagePath: a path such as ``results[0].alternatives[0].transcript``, held to a message type before any load.

The syntax is that of JSON paths (``harness/wire/pointer.py``); fields go by their names in the .proto or in camelCase. It reads
attributes, so that looking at an answer costs no JSON.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from plimsoll.harness.protocols._grpc.descriptors import choices
from plimsoll.harness.protocols._grpc.protobuf_json import INTEGERS, OWN_FORM, Descriptor, is_map, to_json
from plimsoll.harness.wire import pointer

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
