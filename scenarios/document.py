"""Text of a scenario file -> plain mappings, lists, texts and numbers, with YAML's surprises taken out.

Values are read by the YAML 1.2 core rules: only ``true`` and ``false`` are booleans (``on``, ``no`` and
``yes`` are texts), ``1e3`` is a number, ``1:30`` and ``010`` are not. A key given twice is an error, because
YAML would silently drop the first.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

from scenarios.errors import ScenarioError

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
    ("merge", r"<<", "<"),
)


def _by_first_character() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in _RESOLVERS:
        for start in starts:
            table.setdefault("" if start == "\0" else start, []).append((_TAG + tag, re.compile(rf"(?:{pattern})\Z")))
    return table


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the core rules and an eye on repeated keys. (Its only hook is a subclass.)"""

    yaml_implicit_resolvers = _by_first_character()

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.repeated: list[tuple[Any, int]] = []

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node))
        return int(text, 0) if text.lstrip("-+").startswith(("0x", "0o")) else int(text)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        text = str(self.construct_scalar(node)).lower()
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = getattr(key_node, "value", None)
            if isinstance(key, str) and key in seen and key_node.tag != _TAG + "merge":
                self.repeated.append((key, key_node.start_mark.line + 1))
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.yaml_constructors = {
    **yaml.SafeLoader.yaml_constructors,
    _TAG + "int": _Loader.construct_yaml_int,
    _TAG + "float": _Loader.construct_yaml_float,
}


def read_document(text: str, where: str) -> dict[str, Any]:
    """The mapping in ``text``. Raises ``ScenarioError`` with line and column, or with every repeated key."""
    try:
        loader = _Loader(text)
        document = loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        what = error.problem or error.context or "broken"
        raise ScenarioError([f"{place}: not YAML: {what}. Mend this line or the one before it."]) from None
    except yaml.YAMLError as error:
        raise ScenarioError([f"{where}: not YAML: {error}. Save the file as plain UTF-8 text."]) from None
    errors = [f"{where}:{line}: key {key!r} is given twice. Keep one of them." for key, line in loader.repeated]
    if document is None:
        errors.append(f"{where}: the file is empty. Start with name: and kind:, or copy a library scenario.")
    elif not isinstance(document, dict):
        errors.append(f"{where}: the file is not a mapping. Write key: value lines, starting with name: and kind:.")
    else:
        errors += _odd_keys(document, where, "")
    if errors:
        raise ScenarioError(errors)
    return {str(key): value for key, value in document.items()}


def _odd_keys(value: Any, where: str, path: str) -> list[str]:
    """Keys that are numbers, booleans or null, anywhere below ``value``."""
    errors: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                errors.append(f"{where}:{path}{key}: this key is not a text. Put it in quotes.")
            errors += _odd_keys(item, where, f"{path}{key}.")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            errors += _odd_keys(item, where, f"{path[:-1]}[{i}].")
    return errors
