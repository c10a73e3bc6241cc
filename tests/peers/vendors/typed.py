"""What an SDK's own types make of a message: its class, its fields, and all that is wrong with it by that class.

SDKs that are generated build their models without a look at the fields, so that a wrong message passes in silence. Here
each is held against its class: what is missing or of the wrong type, and what the class doesn't know (a field that only
a fake has).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError


def unknown(value: Any, at: str = "") -> Iterator[str]:
    """The paths of fields that no class knows."""
    if isinstance(value, BaseModel):
        for name in value.model_extra or {}:
            yield f"{at}.{name}"
        for name in value.__class__.model_fields:
            yield from unknown(getattr(value, name, None), f"{at}.{name}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from unknown(item, f"{at}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from unknown(item, f"{at}.{name}")


@cache
def _adapter(known: Any) -> TypeAdapter[Any]:
    return TypeAdapter(known)


def wrong(message: Any, known: Any = None) -> list[str]:
    """What is wrong with a parsed message by its own class, or by ``known`` (a union, say)."""
    raw = json.loads(message.model_dump_json(exclude_unset=True, by_alias=True, warnings=False))
    name = type(message).__name__
    try:
        _adapter(known or type(message)).validate_json(json.dumps(raw))
    except ValidationError as error:
        return [f"{name}{''.join(f'.{step}' for step in found['loc'])}: {found['msg']}" for found in error.errors()]
    return [f"{name}{path}: unknown" for path in unknown(message)]


def show(result: dict[str, Any]) -> None:
    """Print the one object that the test reads."""
    json.dump(result, sys.stdout)
    print()
