"""What the options of the ``http`` protocol may say, checked, every error at once. It sends nothing and reads no answer."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from plimsoll.harness.options import STRICT
from plimsoll.harness.protocols._http.body_template import BodyTemplate
from plimsoll.harness.protocols._http.multipart_form import MultipartForm
from plimsoll.harness.wire import pointer
from plimsoll.harness.wire.framing import PLAIN_TEXT
from plimsoll.harness.wire.headers import checked_headers, header_error
from plimsoll.harness.wire.tokens import GIVEN_UP

_PATHS = (
    "text_path",
    "reasoning_path",
    "prompt_tokens_path",
    "output_tokens_path",
    "error_path",
    "finish_path",
    "done_path",
)


class HttpOptions(BaseModel):
    """Options of ``http``.

    At most one of ``body`` (a template), ``body_text`` (sent as it is), ``body_file`` and a form (``form``: fields, ``form_files``:
    files, both templates). ``path`` replaces the URL's.

    ``framing``: how messages lie in the answer. ``none`` is one answer; ``sse`` and ``ndjson`` events of JSON; ``lines`` text, each line
    output; ``chunks`` bytes without any marks, each network read output (reads, not tokens); ``length-prefixed`` four bytes of length
    (``byte_order``) before each message.

    Paths into JSON are written like ``choices[0].delta.content``, with a condition where needed: ``delta.text if type == delta``
    (``plimsoll.harness.wire.pointer.parse_selector``). ``text_path`` and ``reasoning_path`` name streamed output, ``prompt_tokens_path`` and
    ``output_tokens_path`` the usage (the last value seen counts), ``error_path`` a value that means failure when it is truthy,
    ``finish_path`` a finish reason, which means failure when it is one of ``failed_finishes``. A stream ends well at data that begins
    with ``done``, at an event whose ``done_path`` is truthy, or once a finish reason came; where one of them is given, a stream
    without it was cut. With ``finish_path`` an answer must have a reason, whatever else ends it, unless ``finish_reason: optional``. ``success_if``: a condition on the answer, or on some event of a stream. ``success_codes``: empty means any 2xx.
    """

    model_config = STRICT
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] = "POST"
    path: str | None = Field(default=None, pattern=r"^/")
    headers: dict[str, str] = {}
    content_type: str = "application/json"
    body: str | None = None
    body_text: str | None = None
    body_file: str | None = None
    form: dict[str, str] = {}
    form_files: dict[str, str] = {}
    framing: Literal["none", "sse", "ndjson", "lines", "chunks", "length-prefixed"] = "none"
    byte_order: Literal["big", "little"] = "big"
    text_path: str | list[str] = []
    reasoning_path: str | list[str] = []
    prompt_tokens_path: str | None = None
    output_tokens_path: str | None = None
    error_path: str = "error"
    finish_path: str | None = None
    failed_finishes: list[str] = sorted(GIVEN_UP)
    finish_reason: Literal["required", "optional"] = "required"
    done: str | None = Field(default=None, min_length=1)
    done_path: str | None = None
    success_if: str | None = None
    success_codes: list[int] = []

    @field_validator(*_PATHS)
    @classmethod
    def _selectors(cls, value: str | list[str] | None) -> str | list[str] | None:
        for text in [value] if isinstance(value, str) else value or []:
            pointer.parse_selector(text)
        return value

    @field_validator("success_if")
    @classmethod
    def _condition(cls, value: str | None) -> str | None:
        if value is not None:
            pointer.parse_conditions(value)
        return value

    _headers = field_validator("headers")(checked_headers)

    @field_validator("content_type")
    @classmethod
    def _content_type(cls, value: str) -> str:
        error = header_error("content-type", value)
        if error:
            raise ValueError(error)
        return value

    @field_validator("body")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None:
            BodyTemplate(value)
        return value

    @field_validator("form", "form_files")
    @classmethod
    def _form(cls, value: dict[str, str]) -> dict[str, str]:
        MultipartForm(value, {})
        return value

    @field_validator("body_file")
    @classmethod
    def _file(cls, value: str | None) -> str | None:
        if value is not None and not Path(value).is_file():
            raise ValueError(f"there is no file {value}. Correct the path (it is relative to the working directory)")
        return value

    @field_validator("success_codes")
    @classmethod
    def _codes(cls, value: list[int]) -> list[int]:
        if not all(200 <= code <= 599 for code in value):
            raise ValueError("status codes run from 200 to 599. Correct the list")
        return value

    @model_validator(mode="after")
    def _together(self) -> HttpOptions:
        bodies = [name for name in ("body", "body_text", "body_file") if getattr(self, name) is not None]
        bodies += [name for name in ("form", "form_files") if getattr(self, name)][:1]
        if len(bodies) > 1:
            raise ValueError(f"{' and '.join(bodies)} are given together. Keep one")
        if self.has_form and "content_type" in self.model_fields_set:
            raise ValueError("content_type: a form has its own. Remove it")
        if self.framing == "none":
            unused = [name for name in ("text_path", "reasoning_path", "done", "done_path") if getattr(self, name)]
            if unused:
                raise ValueError(
                    f"{', '.join(unused)}: only a stream has it. Set framing to sse or ndjson, or whatever the stream is"
                )
        if self.framing in PLAIN_TEXT:
            unused = [name for name in (*_PATHS, "success_if") if name != "error_path" and getattr(self, name)]
            unused += ["done"] if self.framing == "chunks" and self.done else []
            if unused:
                raise ValueError(
                    f"{', '.join(unused)}: {self.framing} are not looked into. Leave it out, or set another framing"
                )
        if self.finish_reason == "optional" and self.finish_path is None:
            raise ValueError(
                "finish_reason: only an answer with a finish_path has one. Leave it out, or give finish_path"
            )
        if self.framing != "length-prefixed" and "byte_order" in self.model_fields_set:
            raise ValueError("byte_order: only framing length-prefixed has it. Leave it out")
        return self

    @property
    def has_form(self) -> bool:
        return bool(self.form or self.form_files)
