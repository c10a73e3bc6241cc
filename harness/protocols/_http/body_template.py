"""BodyTemplate: a request body as a sandboxed Jinja2 template, rendered for each sample before the run.

Variables: ``prompt``, ``messages`` (a prompt becomes one user message), ``max_output_tokens``, ``model``,
``data`` (all of the payload's data) and ``index`` where the source puts one into ``data``. What a payload
doesn't have is null; ``| tojson`` writes any of them as JSON and ``| b64`` text, bytes or an array's memory as base64.
An unknown variable is an error, never an empty string.
"""

from __future__ import annotations

import hashlib
import mimetypes
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from plimsoll.documents import files
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


def compiles(value: str | None) -> str | None:
    """An option that is a template, for a model's validator. Raises ValueError for one that doesn't compile."""
    if value is not None:
        BodyTemplate(value)
    return value


def _to_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def _to_base64(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value).tobytes()
    return b64encode(value.encode() if isinstance(value, str) else value).decode()


class MultipartForm:
    """Fields (name -> template of the value) and files (name -> template of the path).

    Raises ValueError for a bad template.
    """

    __slots__ = ("_boundary", "_fields", "_files", "content_type")

    def __init__(self, fields: Mapping[str, str], files: Mapping[str, str]) -> None:
        for name in (*fields, *files):
            if not name or any(char in name for char in '\r\n"'):
                raise ValueError(f"{name!r} can't be the name of a field. Leave out quotes and line ends")
        self._fields = {name: BodyTemplate(text, f"target.options.form.{name}") for name, text in fields.items()}
        self._files = {name: BodyTemplate(text, f"target.options.form_files.{name}") for name, text in files.items()}
        said = repr((sorted(fields.items()), sorted(files.items())))
        self._boundary = b"plimsoll-" + hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:32].encode()
        self.content_type = f"multipart/form-data; boundary={self._boundary.decode()}"

    def render(self, payload: Payload, model: str) -> bytes:
        """The body for a payload. Raises HarnessFault for a template that fails and for a file that can't be read."""
        parts = [self._part(name, template.render(payload, model)) for name, template in self._fields.items()]
        parts += [self._file(name, template.render(payload, model)) for name, template in self._files.items()]
        return b"".join(parts) + b"--%b--\r\n" % self._boundary

    def _file(self, name: str, rendered: bytes) -> bytes:
        path = Path(rendered.decode())
        try:
            data = files.read_bytes(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise HarnessFault(
                f"target.options.form_files.{name}: can't read {path}: {reason}. Check the path (it is relative to "
                "the working directory)"
            ) from None
        media = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        shown = path.name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        return self._part(name, data, f'; filename="{shown}"\r\ncontent-type: {media}')

    def _part(self, name: str, data: bytes, more: str = "") -> bytes:
        if self._boundary in data:
            raise HarnessFault(f"target.options.form: {name} holds the form's own boundary. Rename a field")
        return form_part(self._boundary, name, data, more)


def form_part(boundary: bytes, name: str, data: bytes, more: str = "") -> bytes:
    """One part of a form: ``more`` is what else its headers say, from the semicolon after the name on."""
    head = f'content-disposition: form-data; name="{name}"{more}'.encode()
    return b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head, data)
