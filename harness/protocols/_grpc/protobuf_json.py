"""This module turns JSON values into protobuf messages and back, and tells every mistake of a value at once.

The JSON form is protobuf's own; where protobuf's parser stops at the first mistake, ``checked`` lists them all, with
the nearest names. Nothing here knows templates or transports.
"""

from __future__ import annotations

import binascii
import math
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from plimsoll.harness.protocols._grpc.descriptors import choices

INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_FLOATS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
#: protobuf has two implementations of its descriptors, whose stubs agree on nothing.
Descriptor = Any
_MAX_FLOAT = 3.4028235677973366e38  # what rounds to a finite float32
_INTEGER_TEXT = re.compile(r"-?[0-9]{1,20}\Z")
_MAX_PROBLEMS = 20
#: Stands for a value that isn't known yet.
ANY: Any = object()
#: Messages whose JSON form is not an object of their fields.
OWN_FORM = frozenset(
    f"google.protobuf.{name}"
    for name in (
        "Any", "BoolValue", "BytesValue", "DoubleValue", "Duration", "FieldMask", "FloatValue", "Int32Value",
        "Int64Value", "ListValue", "StringValue", "Struct", "Timestamp", "UInt32Value", "UInt64Value", "Value",
    )
)  # fmt: skip


def outline_problems(kind: type[Message], outline: Any, where: str, pool: Any = None) -> list[str]:
    """As ``checked``'s reasons, for a value of which some parts are ``ANY``: those are taken to be right."""
    found: list[str] = []
    _message(kind.DESCRIPTOR, outline, where, found, pool)
    return found[:_MAX_PROBLEMS]


def checked(kind: type[Message], value: Any, where: str, pool: Any = None) -> tuple[bytes, list[str]]:
    """(the bytes of a message, every reason why the JSON value is none of this kind).

    A reason is ``where.field[0]: what. next step``; there are at most 20, and with any of them the bytes mean nothing.
    """
    found: list[str] = []
    _message(kind.DESCRIPTOR, value, where, found, pool)
    if not found:
        try:
            return encode(kind, value, pool), []
        except (
            ValueError
        ) as error:  # what only protobuf's own parser sees: a message in an Any, a missing required field
            found.append(f"{where}: {error}")
    return b"", found[:_MAX_PROBLEMS]


def encode(kind: type[Message], value: Any, pool: Any = None) -> bytes:
    """The bytes of a message. The same value always gives the same bytes. Raises ValueError with the first mistake."""
    message = kind()
    try:
        json_format.ParseDict(value, message, descriptor_pool=pool)
        return message.SerializeToString(deterministic=True)
    except (json_format.Error, EncodeError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:300]) from None


def read(kind: type[Message], data: bytes | memoryview) -> Any:
    """The message in these bytes, None if they hold none of this kind."""
    try:
        return kind.FromString(bytes(data))
    except DecodeError:
        return None


def to_json(message: Message, pool: Any = None) -> Any:
    """The message as JSON values, fields by their names in the .proto, unset ones left out. Never raises: what has no
    JSON form (an Any of an unknown type) becomes its text.
    """
    try:
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
    except (json_format.Error, TypeError, ValueError, RecursionError):
        return str(message)[:1000]


# -- checking -------------------------------------------------------------------------------------------------------


def _message(kind: Descriptor, value: Any, where: str, found: list[str], pool: Any) -> None:
    if value is ANY or len(found) >= _MAX_PROBLEMS:
        return
    if kind.full_name in OWN_FORM:
        _own_form(kind, value, where, found, pool)
        return
    if not isinstance(value, Mapping):
        found.append(f"{where}: {_shown(value)} is not an object of {kind.full_name}'s fields")
        return
    by_name = {field.name: field for field in kind.fields} | {field.json_name: field for field in kind.fields}
    seen: dict[str, str] = {}
    for name, item in value.items():
        field = by_name.get(name) if isinstance(name, str) else None
        if field is None:
            if isinstance(name, str) and name.startswith("["):  # an extension: protobuf's own parser knows
                continue
            known = choices(str(name), [one.name for one in kind.fields], "field")
            found.append(f"{where}.{name}: {kind.full_name} has no such field. {known}")
            continue
        choice = field.containing_oneof
        key = f"one of {choice.name}" if choice is not None and item is not None else field.name
        if key in seen:
            found.append(f"{where}.{name}: {seen[key]} is given too, and only one of them can be. Remove one")
        seen[key] = str(name)
        _field(field, item, f"{where}.{name}", found, pool)


def _own_form(kind: Descriptor, value: Any, where: str, found: list[str], pool: Any) -> None:
    if _has_unknown(value):
        return
    try:
        encode(message_factory.GetMessageClass(kind), value, pool)
    except ValueError as error:
        found.append(f"{where}: {_shown(value)} is no {kind.full_name}: {error}")


def _has_unknown(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_unknown(item) for item in value.values())
    return any(_has_unknown(item) for item in value) if isinstance(value, list) else value is ANY


def _field(field: Descriptor, value: Any, where: str, found: list[str], pool: Any) -> None:
    if value is None or value is ANY:
        return  # protobuf's JSON takes it for unset
    if is_map(field):
        _map(field, value, where, found, pool)
    elif field.is_repeated:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            found.append(f"{where}: {_shown(value)} is not a list of {_kind(field)}")
            return
        for i, item in enumerate(value):
            if len(found) >= _MAX_PROBLEMS:
                return
            if item is None and field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
                found.append(f"{where}[{i}]: null is no {_kind(field)}")
                continue
            _single(field, item, f"{where}[{i}]", found, pool)
    else:
        _single(field, value, where, found, pool)


def _map(field: Descriptor, value: Any, where: str, found: list[str], pool: Any) -> None:
    if not isinstance(value, Mapping):
        found.append(f"{where}: {_shown(value)} is not an object of names and values")
        return
    entry = field.message_type.fields_by_name
    for name, item in value.items():
        if item is None:
            found.append(f"{where}[{name!r}]: null is no {_kind(entry['value'])}")
        else:
            _field(entry["value"], item, f"{where}[{name!r}]", found, pool)


def _single(field: Descriptor, value: Any, where: str, found: list[str], pool: Any) -> None:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        _message(field.message_type, value, where, found, pool)
        return
    problem = _scalar(field, value)
    if problem is not None:
        found.append(f"{where}: {problem}")


def _scalar(field: Descriptor, value: Any) -> str | None:
    """Why a JSON value is none of this field's, or None."""
    if value is ANY:
        return None
    cpp = field.cpp_type
    if cpp in INTEGERS:
        return _integer(field, value)
    if cpp in _FLOATS:
        return _float(cpp, value)
    if cpp == FieldDescriptor.CPPTYPE_BOOL:
        return None if isinstance(value, bool) else f"{_shown(value)} is neither true nor false"
    if cpp == FieldDescriptor.CPPTYPE_ENUM:
        return _enum(field, value)
    if not isinstance(value, str):
        hint = ". Write it as base64 (the filter b64 does)" if _kind(field) == "bytes" else ""
        return f"{_shown(value)} is not a string{hint}"
    if field.type == FieldDescriptor.TYPE_BYTES:
        try:
            b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            return f"{_shown(value)} is not base64. Write the bytes with the filter b64: {{{{ prompt | b64 }}}}"
    return None


def _integer(field: Descriptor, value: Any) -> str | None:
    low, high = INTEGERS[field.cpp_type]
    number = value
    if (isinstance(value, str) and _INTEGER_TEXT.match(value)) or (isinstance(value, float) and value.is_integer()):
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        return f"{_shown(value)} is not a whole number"
    return None if low <= number <= high else f"{number} is outside {low} to {high} ({_kind(field)})"


def _float(cpp: int, value: Any) -> str | None:
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return f"{_shown(value)} is not a number"
    if isinstance(number, bool) or not isinstance(number, int | float):
        return f"{_shown(value)} is not a number"
    if cpp == FieldDescriptor.CPPTYPE_FLOAT and math.isfinite(number) and abs(number) >= _MAX_FLOAT:
        return f"{number} is too large for a float"
    return None


def _enum(field: Descriptor, value: Any) -> str | None:
    names = [one.name for one in field.enum_type.values]
    if isinstance(value, str) and value not in names and not _INTEGER_TEXT.match(value):
        return f"{_shown(value)} is no {field.enum_type.full_name}. {choices(value, names, 'name')}"
    if isinstance(value, bool) or not isinstance(value, str | int):
        return f"{_shown(value)} is no {field.enum_type.full_name}. {choices('', names, 'name')}"
    return None


def is_map(field: Descriptor) -> bool:
    kind = field.message_type
    return bool(kind is not None and field.is_repeated and kind.GetOptions().map_entry)


def _kind(field: Descriptor) -> str:
    """The type of a field as the .proto writes it."""
    if field.message_type is not None:
        return str(field.message_type.full_name)
    if field.enum_type is not None:
        return str(field.enum_type.full_name)
    names = {number: name for name, number in vars(FieldDescriptor).items() if name.startswith("TYPE_")}
    return names[field.type].removeprefix("TYPE_").lower()


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
