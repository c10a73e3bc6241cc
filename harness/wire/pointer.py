"""Pointer: a path into decoded JSON, such as ``choices[0].delta.content`` or ``$.message.content``.

A subset of JSONPath (RFC 9535): names, ``[index]``, ``["name"]``, and ``choices.0.delta`` as many tools write an index;
no wildcards, filters or slices, because a pointer names one value. A selector is a pointer with conditions, for APIs
that tell their events apart by a member: ``delta.text if delta.type == text_delta``. Neither raises on data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

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


#: In a condition, the name of the server-sent event.
EVENT = "@event"
_COMPARISON = re.compile(r"(.*?)\s*(==|!=)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Condition:
    """``pointer == value``, or (``wanted`` None) a truthy value at the pointer; or the contrary. ``pointer`` None is
    the event's name. ``wanted`` is the value as it was written; ``value`` what it says as JSON, or the same text.
    """

    pointer: Pointer | None
    wanted: str | None = None
    value: Any = None
    equal: bool = True

    def holds(self, event: Any, name: bytes) -> bool:
        found = name.decode("utf-8", "replace") if self.pointer is None else find(event, self.pointer)
        if self.wanted is None:
            return (found is not MISSING and bool(found)) is self.equal
        same = (
            found == self.wanted if isinstance(found, str) else type(found) is type(self.value) and found == self.value
        )
        return (same or (isinstance(found, str) and found == self.value)) is self.equal


@dataclass(frozen=True, slots=True)
class Selector:
    """A pointer that leads anywhere only in events for which every condition holds."""

    pointer: Pointer
    conditions: tuple[Condition, ...] = ()


def parse_selector(text: str) -> Selector:
    """``PATH``, or ``PATH if CONDITION [and CONDITION]...``. A condition is ``PATH``, ``not PATH``, ``PATH == VALUE``
    or ``PATH != VALUE``; ``@event`` in place of a path is the name of a server-sent event; a value is written as in
    JSON or as bare text.

    Raises ValueError with a message that shows the part it can't read.
    """
    before, found, after = f"{text.strip()} ".partition(" if ")
    while found:
        try:
            pointer = parse(before)
        except ValueError:  # the word may stand inside a quoted name
            more, found, after = after.partition(" if ")
            before = f"{before} if {more}"
            continue
        return Selector(pointer, parse_conditions(after))
    return Selector(parse(text))


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """What stands after ``if``. Raises ValueError."""
    return tuple(map(_parse_condition, text.split(" and ")))


def _parse_condition(text: str) -> Condition:
    compared = _COMPARISON.fullmatch(text.strip())
    left = (compared[1] if compared else text).strip()
    negated = compared is None and left.startswith("not ")
    left = left.removeprefix("not ").strip() if negated else left
    pointer = None if left == EVENT else parse(left)
    if compared is None:
        return Condition(pointer, equal=not negated)
    wanted = compared[3].strip()
    try:
        value = orjson.loads(wanted)
    except orjson.JSONDecodeError:
        value = wanted
    return Condition(pointer, wanted, value, compared[2] == "==")


def select(event: Any, selector: Selector, name: bytes = b"") -> Any:
    """The value at the selector's pointer, or MISSING; also where a condition does not hold."""
    if selector.conditions and not all(condition.holds(event, name) for condition in selector.conditions):
        return MISSING
    return find(event, selector.pointer)
