"""YAML text -> plain values with the line of every key, YAML's surprises taken out and its size bounded.

Scalars follow the YAML 1.2 core rules: ``2022-01-01 12:00:00``, ``1m``, ``on`` and ``1:30`` are texts, only ``true``
and ``false`` are booleans, ``1e3`` is a number, ``010`` is not. A key given twice, an unknown tag and aliases that
multiply are errors, each with its line. What the values mean is for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
#: (tag, pattern, first characters that can begin it): the core schema, without leading zeros.
_RESOLVERS: tuple[tuple[str, str, str], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
#: More than any document that a person or a program means; aliases of aliases grow without end.
_MOST_VALUES, _DEEPEST = 50_000, 60

_UNINDENTED = (
    "this line is not indented as its neighbours are. Use spaces, the same number for all keys of a block and more for "
    "what is inside one"
)
#: (what PyYAML says, what we say). The first that fits counts.
_OURS: tuple[tuple[str, str], ...] = (
    (r"found character '\\t'", "a tab where YAML wants spaces. Indent with spaces"),
    (
        r"mapping values are not allowed",
        "a second colon in one line, or a key indented further than the one above it. Put a value that holds ': ' in "
        "quotes, and indent all keys of a block alike",
    ),
    (r"expected <block end>", _UNINDENTED),
    (r"expected <document start>", _UNINDENTED),
    (r"could not find expected ':'", "a line without a colon among keys. Write key: value"),
    (r"found unexpected end of stream|unexpected document separator", "a quote is opened and never closed. Close it"),
    (r"expected ',' or '(\W)'", r"a comma is missing, or a bracket is opened and never closed with '\1'. Close it"),
    (
        r"found undefined alias '?([^']*)'?",
        r"*\1 is an alias of a value that is not named (&\1) before it. Put a text that begins with * in quotes",
    ),
    (r"found character (\S+) that cannot start", r"a value can't begin with \1. Put it in quotes"),
    (r"expected the node content", "a value is missing here. Add it, or remove what asks for it"),
    (r"found duplicate anchor", "the same name &... is given to two values. Rename one"),
)


def _by_first_character() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in _RESOLVERS:
        for start in starts:
            table.setdefault("" if start == "\0" else start, []).append((_TAG + tag, re.compile(rf"(?:{pattern})\Z")))
    return table


class TooLargeError(Exception):
    """The document is nested too deep, or its aliases multiply."""


class _Bounded(yaml.SafeLoader):
    """PyYAML's composer, which stops at a depth before the stack does. (Its only hook is a subclass.)"""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        self._nodes += 1
        if self._depth > _DEEPEST or self._nodes > 2 * _MOST_VALUES:
            raise TooLargeError
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def stale_possible_simple_keys(self) -> None:
        """As PyYAML's, which looks at every open bracket for every token; they stand oldest first."""
        oldest = next(iter(self.possible_simple_keys.values()), None)
        if oldest and (oldest.line != self.line or self.index - oldest.index > 1024):
            super().stale_possible_simple_keys()

    def next_possible_simple_key(self) -> int | None:
        return next((key.token_number for key in self.possible_simple_keys.values()), None)


class _Loader(_Bounded):
    """By the core rules."""

    yaml_implicit_resolvers = _by_first_character()


class Mistake(NamedTuple):
    """What is wrong with the YAML, in which line; ``column`` (from 1) where the line alone does not tell."""

    line: int
    what: str
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """One object as it stands in the file: the ``number``-th, its plain ``value``, and the line of each key path."""

    number: int
    value: Any
    lines: Mapping[Path, int]
    errors: tuple[Mistake, ...] = ()

    def line(self, path: Path) -> int:
        """The line of a key, or of the nearest one around it."""
        return next((self.lines[path[:i]] for i in range(len(path), -1, -1) if path[:i] in self.lines), 1)


@dataclass(slots=True)
class _Building:
    merges: bool
    lines: dict[Path, int] = field(default_factory=dict)
    errors: list[Mistake] = field(default_factory=list)
    values: int = 0


def written(text: str, *, objects: bool = True, merges: bool = False) -> Iterator[Written]:
    """Every document of a file in order; empty ones are passed over. With ``objects`` one that is a list holds several.

    ``merges``: the key ``<<`` takes in the keys of another mapping; else it is an error. What isn't YAML ends it with
    an object whose value is None and whose error says where.
    """
    number = 0
    line = 1
    try:
        loader = _Loader(text)
        while loader.check_node():
            node: Any = loader.get_node()
            line = node.start_mark.line + 1
            several = objects and isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq"
            for part in node.value if several else [node]:
                if part.tag == _TAG + "null":
                    continue
                number += 1
                line = part.start_mark.line + 1
                building = _Building(merges)
                value = _value(part, (), building)
                yield Written(number, value, building.lines, tuple(building.errors))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = (mark.line + 1, mark.column + 1) if mark else (line, None)
        said = _ours(str(error.problem or error.context or "broken"))
        yield Written(number + 1, None, {}, (Mistake(at[0], f"not YAML: {said}", at[1]),))
    except yaml.reader.ReaderError as error:
        before = text[: error.position].splitlines() or [""]
        what = f"not YAML: the character U+{ord(text[error.position]):04X} can't stand in a text file. Remove it"
        yield Written(number + 1, None, {}, (Mistake(len(before), what, len(before[-1]) + 1),))
    except (TooLargeError, RecursionError):
        what = "nested too deep, or its aliases (&a, *a) multiply. Write the values out"
        yield Written(max(number, 1), None, {}, (Mistake(line, what),))
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # such as %YAML 1.99999999999999999999
        shown = " ".join(str(error).split())[:200]
        yield Written(number + 1, None, {}, (Mistake(line, f"not YAML: {shown}. Mend this line or the one before it"),))


def plain(text: str) -> Any:
    """One value by PyYAML's own rules (YAML 1.1), as it wrote it. Raises ValueError for what is not YAML or large."""
    try:
        loader = _Bounded(text)
        node: Any = loader.get_single_node()
        if node is None:
            return None
        left, values = [node], 0
        while left:  # aliases count as often as they stand there
            one = left.pop()
            values += 1
            if values > _MOST_VALUES:
                raise TooLargeError
            if isinstance(one, yaml.MappingNode):
                left += [part for pair in one.value for part in pair]
            elif isinstance(one, yaml.SequenceNode):
                left += one.value
        return loader.construct_document(node)
    except (TooLargeError, RecursionError):
        raise ValueError("nested too deep, or its aliases (&a, *a) multiply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"not YAML: {at}{_ours(str(error.problem or error.context or 'broken'))}") from None
    # What a tag on something else raises is any of these.
    except (yaml.YAMLError, ValueError, OverflowError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"not YAML: {' '.join(str(error).split())[:200]}") from None


def _ours(problem: str) -> str:
    for theirs, ours in _OURS:
        if found := re.search(theirs, problem):
            return found.expand(ours) if found.groups() else ours
    return f"{problem}. Mend this line or the one before it"


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
    merged: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key == "<<" and key_node.style is None:
            merged = {**_merged(value_node, path, line, building), **merged}
        elif key is None or key_node.tag != _TAG + "str":
            shown = "this key" if key is None else f"key {key[:40]}"
            building.errors.append(Mistake(line, f"{shown} is not a text. Put it in quotes"))
        elif key in found:
            building.errors.append(Mistake(line, f"key {key} is given twice. Keep one of them"))
        else:
            building.lines[(*path, key)] = line
            found[key] = _value(value_node, (*path, key), building)
    return {**merged, **found}


def _merged(node: Any, path: Path, line: int, building: _Building) -> dict[str, Any]:
    """The keys that ``<<`` takes in: of a mapping, or of a list of them, of which the first counts."""
    if not building.merges:
        building.errors.append(Mistake(line, "<<: merges are not read. Write the keys out"))
        return {}
    parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
    taken: dict[str, Any] = {}
    for part in reversed(parts):
        value = _value(part, (*path, "<<"), building)
        if not isinstance(value, dict):
            building.errors.append(Mistake(line, "<<: takes in mappings only. Write the keys out"))
            return {}
        taken |= value
    return taken


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
            if kind == "int":
                return int(text, 0 if text.startswith(("0x", "0o")) else 10)
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            pass  # an explicit tag on something else: said below
    what = f"{text[:40]!r} can't be read as {kind[:40]}. Write an ordinary text or number"
    building.errors.append(Mistake(line, what))
    return text
