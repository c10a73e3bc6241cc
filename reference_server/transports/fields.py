"""Typed reading of a JSON request body: whatever is wrong, the reply is a 400 that names the field."""

from __future__ import annotations

import codecs
import json
from typing import Any

from plimsoll.reference_server.seams.models import Script
from plimsoll.reference_server.values.errors import RequestError, invalid

_SCRIPT_MS = {"ttft_ms": "ttft_ns", "itl_ms": "itl_ns", "stall_ms": "stall_ns"}
_SCRIPT_INT = ("stall_at", "error_at", "cut_at", "tokens_per_event", "status")
_SCRIPT_BOOL = ("omit_usage", "omit_done")
_NO_SCRIPT = Script()


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON's")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


class Fields:
    """One JSON object, read field by field; ``prefix`` goes before names in messages."""

    def __init__(self, values: dict[str, Any], prefix: str = "") -> None:
        self.values = values
        self._prefix = prefix

    @staticmethod
    def parse(body: bytes) -> Fields:
        try:
            values = _DECODER.decode(body.removeprefix(codecs.BOM_UTF8).decode())
        except RecursionError:
            raise RequestError(
                400, "the body is not JSON that can be read: too deeply nested", code="invalid_json"
            ) from None
        except ValueError as error:
            raise RequestError(400, f"the body is not JSON: {error}", code="invalid_json") from None
        if not isinstance(values, dict):
            raise RequestError(400, "the body must be a JSON object", code="invalid_json")
        return Fields(values)

    def has(self, name: str) -> bool:
        """Is the field there and not null?"""
        return self.values.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        """A string; required unless there is a default."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise invalid(self._prefix + name, "must be a string")
        return value

    def flag(self, name: str) -> bool:
        """A boolean, false by default."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise invalid(self._prefix + name, "must be true or false")
        return bool(value)

    def integer(self, name: str, default: int, *, low: int, high: int = 2**31 - 1) -> int:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise invalid(self._prefix + name, f"must be an integer from {low} to {high}")
        return value

    def number(self, name: str, default: float, *, low: float, high: float) -> float:
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise invalid(self._prefix + name, f"must be a number from {low:g} to {high:g}")
        return float(value)

    def mapping(self, name: str) -> Fields:
        """An object, empty by default."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise invalid(self._prefix + name, "must be an object")
        return Fields(value or {}, f"{self._prefix}{name}.")

    def strings(self, name: str) -> list[str]:
        """A string or a list of strings; empty by default."""
        value = self.values.get(name)
        if value is None:
            return []
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
            raise invalid(self._prefix + name, "must be a string or a list of strings")
        return values

    def items(self, name: str) -> list[Any]:
        """A list with something in it."""
        value = self.values.get(name)
        if not isinstance(value, list) or not value:
            raise invalid(self._prefix + name, "must be a list with at least one element")
        return value

    def script(self) -> Script:
        """The request's own wishes for what should happen to it, in the object ``plimsoll``."""
        fields = self.mapping("plimsoll")
        if not fields.values:
            return _NO_SCRIPT
        allowed = (*_SCRIPT_MS, *_SCRIPT_INT, *_SCRIPT_BOOL)
        for key in fields.values:
            if key not in allowed:
                raise invalid(f"plimsoll.{key}", f"unknown. Known: {', '.join(allowed)}")
        given: dict[str, Any] = {}
        for key, name in _SCRIPT_MS.items():
            if fields.has(key):
                given[name] = round(fields.number(key, 0.0, low=0.0, high=3.6e6) * 1e6)
        for key in _SCRIPT_INT:
            if fields.has(key):
                low, high = {"status": (400, 599), "tokens_per_event": (1, 4096)}.get(key, (-1, 2**31 - 1))
                given[key] = fields.integer(key, 0, low=low, high=high)
        given.update({key: fields.flag(key) for key in _SCRIPT_BOOL})
        return Script(**given)
