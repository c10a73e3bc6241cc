"""Pydantic's validation errors in our words: ``where:key.path: what. next step.``"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

Loc = tuple[str | int, ...]

_WRONG_TYPE = {
    "int_type": "a whole number. Write for example 4",
    "int_from_float": "a whole number. Write for example 4",
    "float_type": "a number. Write for example 2.5",
    "string_type": "a text. Put it in quotes",
    "bool_type": "true or false. Write one of these two words",
    "finite_number": "a finite number. Write an ordinary number",
    "dict_type": "a mapping. Write key: value lines below it",
    "model_type": "a mapping. Write key: value lines below it",
    "model_attributes_type": "a mapping. Write key: value lines below it",
    "tuple_type": "a list. Write [a, b] or lines that start with a dash",
    "list_type": "a list. Write [a, b] or lines that start with a dash",
}
_OUT_OF_RANGE = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a mapping came from.

    ``labels`` renames some key paths (``params.rate`` is ``--rate``); ``lines`` of a file that was read. ``below``:
    where in it the mapping stands; ``above``: keys that it has from the top of the file; ``renamed``: its first keys
    that a user called otherwise.
    """

    where: str
    labels: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[Loc, int] = field(default_factory=dict)
    below: Loc = ()
    above: frozenset[str] = frozenset()
    renamed: Mapping[str | int, str] = field(default_factory=dict)

    def at(self, loc: Loc) -> str:
        path = ""
        loc = loc if loc and loc[0] in self.above else (*self.below, *loc)
        # What begins so is a union's branch, and a mapping's key itself.
        keys = tuple(part for part in loc if isinstance(part, int) or not part.startswith(("<", "[key]")))
        keys = (self.renamed.get(keys[0], keys[0]), *keys[1:]) if keys else keys
        for part in keys:
            if isinstance(part, int):
                path += f"[{part}]"
            else:
                path += f".{part}" if path else part
        if self.lines and path not in self.labels:
            line = next((self.lines[keys[:i]] for i in range(len(keys), -1, -1) if keys[:i] in self.lines), 1)
            return f"{self.where}:{line}: {path}" if path else f"{self.where}:{line}"
        return self.labels.get(path) or (f"{self.where}:{path}" if path else self.where)

    def say(self, loc: Loc, what: str) -> str:
        return f"{self.at(loc)}: {what.rstrip('.')}."


def problems(
    error: ValidationError,
    model: type[BaseModel],
    place: Place,
    below: Loc = (),
    belongs: Callable[[Loc], str] = lambda loc: "",
) -> list[tuple[Loc, str]]:
    """(location, message) of every problem in ``error``, from validating ``model`` at ``below``; ``belongs(loc)`` says
    where a key that is unknown there is known.
    """
    found = []
    items = error.errors(include_url=False)
    for item in items:
        inside = [other for other in items if other is not item and other["loc"][: len(item["loc"])] == item["loc"]]
        if item["type"] == "too_short" and inside:
            continue  # pydantic counts only the good items of a list; the bad ones are reported themselves
        loc = below + tuple(item["loc"])
        found.append((loc, place.say(loc, _what(item, model, belongs(loc)))))
    return found


def unknown(name: object, known: Iterable[str], what: str) -> str:
    """``name`` is not one of ``known``: the message, with the nearest or all of them."""
    names = sorted(known)
    return f"{what} {name!r} is not known. {_nearest(str(name), names)}Known: {', '.join(names)}"


def _what(item: Any, model: type[BaseModel], belongs: str = "") -> str:
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        known = sorted(_keys(_models_at(model, item["loc"][:-1])))
        if item["loc"][-1] in known:
            return "does not go with the other choices made here. Remove it"
        if belongs:
            return f"unknown key. {belongs}"
        return f"unknown key. {_nearest(str(item['loc'][-1]), known)}Known keys here: {', '.join(known)}"
    if kind == "missing":
        return "is missing. Add it"
    if kind == "choice":
        return str(item["msg"])
    if kind == "value_error":
        return str(context["error"])
    if kind in _WRONG_TYPE:
        return f"is {_show(value)}, not {_WRONG_TYPE[kind]}"
    if kind in _OUT_OF_RANGE:
        word, key = _OUT_OF_RANGE[kind]
        return f"is {_show(value)}. Give a value {word} {context[key]:g}"
    if kind == "literal_error":
        allowed = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        return f"is {_show(value)}. {_nearest(str(value), allowed)}Allowed: {', '.join(allowed)}"
    if kind == "string_pattern_mismatch":
        return f"is {_show(value)}. {in_words(str(context['pattern']))}"
    if kind in ("string_too_short", "too_short"):
        return "is empty. Give at least one"
    return f"is {_show(value)}: {item['msg'][0].lower()}{item['msg'][1:]}. Correct it"


def in_words(pattern: str) -> str:
    """What a pattern of ours asks for, in words."""
    if pattern == "^/":
        return "A route begins with /. Write it like /v1/name"
    name = re.fullmatch(r"\^\[A-Za-z0-9\]\[A-Za-z0-9([^\]]+)\]\*\$", pattern)
    if name is None:
        return f"Write what the pattern {pattern} takes"
    *signs, last = ("spaces" if sign == " " else sign for sign in name[1])
    return f"Use letters, digits, {', '.join(signs)} and {last}, and begin with a letter or a digit"


def _show(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    if value is None:
        return "empty"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name.lower(), known, 1, 0.6)
    return f"Did you mean {near[0]}? " if near else ""


def _keys(models: Iterable[type[BaseModel]]) -> set[str]:
    return {item.alias or name for model in models for name, item in model.model_fields.items()}


def _models_at(model: type[BaseModel], loc: Loc) -> list[type[BaseModel]]:
    """The models a location inside ``model`` may hold (several where the annotation is a union)."""
    here = [model]
    for part in loc:
        if isinstance(part, int) or part.startswith("<"):
            continue
        fields = [item for one in here for name, item in one.model_fields.items() if part in (item.alias, name)]
        here = [found for item in fields for found in _models_in((item.annotation, *item.metadata))]
    return here


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = annotation if isinstance(annotation, tuple) else get_args(annotation)
    return [found for part in parts for found in _models_in(part)]
