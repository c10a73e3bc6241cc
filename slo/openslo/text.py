"""Text of an OpenSLO file -> one plain value an object, with the line of every key, and YAML's surprises taken out.

Scalars follow the YAML 1.2 core rules: ``2022-01-01 12:00:00``, ``1m``, ``on`` and ``1:30`` are texts, only ``true`` and
``false`` are booleans. A key given twice, an unknown tag, a merge key and aliases that multiply are errors. What the
objects mean is for other modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_RESOLVERS: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
#: More than any document that a person or a program means; aliases of aliases grow without end.
_MOST_VALUES, _DEEPEST = 100_000, 60


def _by_first_character() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in _RESOLVERS:
        for start in starts:
            table.setdefault("" if start == "\0" else start, []).append((_TAG + tag, re.compile(rf"(?:{pattern})\Z")))
    return table


class _Loader(yaml.SafeLoader):
    """PyYAML's composer with the core rules. (Its only hook is a subclass.)"""

    yaml_implicit_resolvers = _by_first_character()


@dataclass(frozen=True, slots=True)
class Written:
    """One object as it stands in the file: the ``number``-th, its plain ``value``, and the line of each key path."""

    number: int
    value: Any
    lines: Mapping[Path, int]
    #: (line, what is wrong) with its YAML.
    errors: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class _Building:
    lines: dict[Path, int] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)
    values: int = 0


class TooLargeError(Exception):
    """The document is nested too deep, or its aliases multiply."""


def written(text: str) -> Iterator[Written]:
    """Every object of a file in order; empty documents are passed over, a document that is a list holds several.

    What isn't YAML ends it with an object whose value is None and whose error says where.
    """
    number = 0
    line = 1
    try:
        loader = _Loader(text)
        while loader.check_node():
            node: Any = loader.get_node()
            line = node.start_mark.line + 1
            for part in node.value if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq" else [node]:
                if part.tag == _TAG + "null":
                    continue
                number += 1
                line = part.start_mark.line + 1
                building = _Building()
                value = _value(part, (), building)
                yield Written(number, value, building.lines, tuple(building.errors))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "broken"
        at = mark.line + 1 if mark else line
        yield Written(number + 1, None, {}, ((at, f"not YAML: {what}. Mend this line or the one before it"),))
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        yield Written(number + 1, None, {}, ((line, f"not YAML: {said}. Save the file as plain UTF-8 text"),))
    except (TooLargeError, RecursionError):
        what = "nested too deep, or its aliases (&a, *a) multiply. Write the values out"
        yield Written(max(number, 1), None, {}, ((line, what),))


def _value(node: Any, path: Path, building: _Building) -> Any:
    """The plain value of a node; an error and its text where there is none."""
    building.values += 1
    if building.values > _MOST_VALUES or len(path) > _DEEPEST:
        raise TooLargeError
    building.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, building)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*path, i), building) for i, item in enumerate(node.value)]
    return _scalar(node, building)


def _mapping(node: Any, path: Path, building: _Building) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key == "<<" and key_node.style is None:
            building.errors.append((line, "<<: merges are not read. Write the keys out"))
        elif key is None or key_node.tag != _TAG + "str":
            shown = "this key" if key is None else f"key {key}"
            building.errors.append((line, f"{shown} is not a text. Put it in quotes"))
        elif key in found:
            building.errors.append((line, f"key {key} is given twice. Keep one of them"))
        else:
            building.lines[(*path, key)] = line
            found[key] = _value(value_node, (*path, key), building)
    return found


def _scalar(node: Any, building: _Building) -> Any:
    text = str(node.value)
    kind = str(node.tag).removeprefix(_TAG)
    line = node.start_mark.line + 1
    if kind == "str":
        return text
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind in ("int", "float") and len(text) <= 40:
        try:
            return int(text) if kind == "int" else float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            pass  # an explicit tag on something else: said below
    what = f"{text[:40]!r} can't be read as {kind}. Write an ordinary text or number"
    building.errors.append((line, what))
    return text
