"""MessageTemplate: what a user writes as ``message``, and the JSON value that it becomes for each sample.

Text is a sandboxed Jinja2 template (``harness/protocols/_http/body_template.py``) whose result is read as JSON, or else as YAML. An object
or a list is gone through: every string in it that holds ``{{`` or ``{%`` is a template of its own, and one that is a single
``{{ expression }}`` keeps the expression's type, so that a number stays a number. It knows no message types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
import yaml

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._http.body_template import BodyTemplate
from plimsoll.scenarios.samples.payload import Payload

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
        """The JSON value for a payload. Raises HarnessFault if a variable is missing, or text renders to neither JSON nor
        YAML.
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
