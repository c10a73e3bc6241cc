"""BodyTemplate: a request body as a sandboxed Jinja2 template, rendered for each sample before the run.

Variables: ``prompt``, ``messages`` (a prompt becomes one user message), ``max_output_tokens``, ``model``,
``data`` (all of the payload's data) and ``index`` where the source puts one into ``data``. What a payload
doesn't have is null; ``| tojson`` writes any of them as JSON and ``| b64`` text, bytes or an array's memory as base64.
An unknown variable is an error, never an empty string.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
import orjson

from plimsoll.harness.errors import HarnessFault
from plimsoll.scenarios.samples.payload import Payload


class BodyTemplate:
    """A compiled template. Raises ValueError for one that doesn't compile."""

    __slots__ = ("_template", "_where")

    def __init__(self, text: str, where: str = "target.options.body") -> None:
        from jinja2 import StrictUndefined, TemplateSyntaxError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        self._where = where
        environment = ImmutableSandboxedEnvironment(
            undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True
        )
        # Jinja2's own tojson escapes for HTML and would change the bytes that the user wrote.
        environment.filters["tojson"] = _to_json
        environment.filters["b64"] = _to_base64
        try:
            self._template = environment.from_string(text)
        except TemplateSyntaxError as error:
            raise ValueError(f"line {error.lineno}: {error.message}. Correct the template") from None

    def render(self, payload: Payload, model: str) -> bytes:
        """The body for a payload. Raises HarnessFault if a variable is missing or the sandbox refuses an
        operation.
        """
        from jinja2 import TemplateError

        messages = payload.messages
        if messages is None and payload.prompt is not None:
            messages = ({"role": "user", "content": payload.prompt},)
        variables: dict[str, Any] = {
            "prompt": payload.prompt,
            "messages": messages,
            "max_output_tokens": payload.max_output_tokens if payload.max_output_tokens >= 0 else None,
            "model": model,
            "data": payload.data,
        }
        if "index" in payload.data:
            variables["index"] = payload.data["index"]
        try:
            return self._template.render(variables).encode()
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise HarnessFault(
                f"{self._where}: the template can't be rendered: {error}. Correct it, or the payload source"
            ) from None


def _to_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _to_base64(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value).tobytes()
    return b64encode(value.encode() if isinstance(value, str) else value).decode()
