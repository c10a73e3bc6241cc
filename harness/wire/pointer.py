"""Pointer: a path into decoded JSON, such as ``choices[0].delta.content`` or ``$.message.content``.

A subset of JSONPath (RFC 9535): names, ``[index]``, ``["name"]``, and ``choices.0.delta`` as many tools write an index; no
wildcards, filters or slices, because a pointer names one value. It never raises on data.
"""

from __future__ import annotations

import re
from typing import Any

Pointer = tuple[str | int, ...]

#: What ``find`` returns when nothing is there: distinct from a null that is.
MISSING: Any = object()
#: Digits of an index: more name no element of any list, and ``int`` refuses thousands of them.
_MAX_DIGITS = 18
_STEP = re.compile(r"""\.?([^.\[\]"']+)|\[(-?[0-9]{1,18})\]|\["([^"]+)"\]|\['([^']+)'\]""")


def parse(text: str) -> Pointer:
    """The steps of a path; an int step indexes an array. ``$`` alone is the whole value: no steps.

    Raises ValueError with a message that shows the part it can't read.
    """
    rest = text.strip()
    if not rest:
        raise ValueError("the path is empty. Write it like choices[0].delta.content, or $ for the whole value")
    if rest[0] == "$" and (len(rest) == 1 or rest[1] in ".["):
        rest = rest[1:]
    elif rest[0] == ".":
        raise ValueError(f"path {text!r}: it begins with a dot. Write it like choices[0].delta.content")
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None or (at > 0 and match[1] is not None and rest[at] != "."):
            raise ValueError(f'path {text!r}: can\'t read {rest[at:]!r}. Use names, [index] and ["name"] only')
        name = match[1] or match[3] or match[4]
        steps.append(int(match[2]) if name is None else name)
        at = match.end()
    return tuple(steps)


def find(value: Any, pointer: Pointer) -> Any:
    """The value at the pointer, or MISSING."""
    for step in pointer:
        if isinstance(step, str):
            if isinstance(value, list) and len(step) <= _MAX_DIGITS and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
                continue
            if not isinstance(value, dict) or step not in value:
                return MISSING
            value = value[step]
        else:
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return MISSING
            value = value[step]
    return value


def truthy(value: Any, pointer: Pointer) -> bool:
    """There is a value at the pointer and it is none of null, false, 0, "" and empty."""
    found = find(value, pointer)
    return found is not MISSING and bool(found)
