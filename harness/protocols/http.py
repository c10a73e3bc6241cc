"""This protocol speaks plain HTTP: any method, path, headers and body; answers in one piece, or streams in any framing.

It serves endpoints without a protocol of their own (Ray Serve, BentoML, a FastAPI handler). The body is a sandboxed
Jinja2 template, a form, fixed text or a file; paths into the JSON find output, usage and errors. It guesses nothing:
without ``text_path`` every event of a stream counts as output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import Field, field_validator, model_validator

from plimsoll.documents import files
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.body_template import BodyTemplate, MultipartForm, compiles
from plimsoll.harness.protocols._http.json_stream import ANSWER, NOTHING, REASONING, Told, scan, settle_scan
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.held import oversized, reading
from plimsoll.harness.transport.http.dialect import HttpRequest, PlainSuccess, build_head, split_url
from plimsoll.harness.wire import framing, pointer, tokens
from plimsoll.harness.wire.framing import PLAIN_TEXT, Stream
from plimsoll.harness.wire.headers import checked_headers, header_error
from plimsoll.harness.wire.pointer import MISSING, Selector
from plimsoll.harness.wire.tokens import GIVEN_UP
from plimsoll.scenarios.samples.payload import Payload

_PATHS = (
    "text_path",
    "reasoning_path",
    "prompt_tokens_path",
    "output_tokens_path",
    "error_path",
    "finish_path",
    "done_path",
)


class HttpOptions(Options):
    """Options of ``http``."""

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

    _template = field_validator("body")(compiles)

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
                    f"{', '.join(unused)}: only a stream has it. Set framing to sse or ndjson, or whatever the stream "
                    "is"
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


__all__ = ["PROTOCOLS", "HttpDialect", "HttpOptions"]

_OBJECT = re.compile(rb"\s*\{")
_ACCEPT = {"sse": b"text/event-stream", "ndjson": b"application/x-ndjson"}


def _selectors(value: str | Sequence[str] | None) -> tuple[Selector, ...]:
    return tuple(pointer.parse_selector(text) for text in ([value] if isinstance(value, str) else value or []))


def _lead(selectors: tuple[Selector, ...]) -> str | int | None:
    """The first step of a path; None: there is none, so it leads somewhere in any event."""
    return selectors[0].pointer[0] if selectors and selectors[0].pointer else None


class HttpDialect:
    """One endpoint: bodies from a template, answers read along paths."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(HttpOptions, target.options)
        self._limit = reading()
        self._model = target.model
        self.accept = _ACCEPT.get(options.framing, b"*/*")
        self._text, self._reasoning = _selectors(options.text_path), _selectors(options.reasoning_path)
        self._n_in, self._n_out = _selectors(options.prompt_tokens_path), _selectors(options.output_tokens_path)
        self._error, self._done_at = _selectors(options.error_path), _selectors(options.done_path)
        self._finish = _selectors(options.finish_path)
        self._wants_reason = bool(self._finish) and options.finish_reason == "required"
        self._success_if = pointer.parse_conditions(options.success_if) if options.success_if else ()
        # The first step of each: a mapping without it holds nothing there, and most events are such.
        self._leads = tuple(map(_lead, (self._error, self._n_in, self._n_out)))
        self._has_text = bool(self._text or self._reasoning)
        self._needs_json = bool(
            self._has_text or self._n_in or self._n_out or self._done_at or self._finish or self._success_if
        )
        named = [name for name in ("done", "done_path", "finish_path") if getattr(options, name)]
        named = named if "finish_path" in named else ["done", "done_path"] if named else []
        self._end = f"the end that {' or '.join(named)} names never came" if named else ""
        # The usual marker ends any event stream, but only the one that was given is insisted on.
        self._done = options.done.encode() if options.done else tokens.DONE if options.framing == "sse" else None
        self._success = frozenset(options.success_codes or range(200, 300))
        self.plain = self._plain_success()
        self._template = BodyTemplate(options.body) if options.body is not None else None
        self._form = MultipartForm(options.form, options.form_files) if options.has_form else None
        self._body = self._fixed_body()
        self._head = self._build_head(target)

    def _fixed_body(self) -> bytes:
        options = self._options
        if options.body_file is None:
            return (options.body_text or "").encode()
        try:
            return files.read_bytes(Path(options.body_file))
        except OSError as error:
            raise HarnessFault(
                f"target.options.body_file: can't read {options.body_file}: {files.why(error)}. Check the path"
            ) from None

    def _build_head(self, target: Target) -> bytes:
        options = self._options
        path, query = split_url(target.url)
        path = options.path or path or "/"
        if query and "?" not in path:
            path = f"{path}?{query}"
        defaults = {"accept": self.accept.decode(), "accept-encoding": "identity", "user-agent": "plimsoll"}
        if self._form is not None:
            defaults["content-type"] = self._form.content_type
        elif self._template is not None or self._body:
            defaults["content-type"] = options.content_type
        given = {name.lower() for name, _ in target.headers}
        own = tuple((name, value) for name, value in options.headers.items() if name.lower() not in given)
        return build_head(options.method, path, defaults, own + target.headers)

    def _plain_success(self) -> PlainSuccess | None:
        """A whole answer is looked into for an error and usage only: without the error's name in it, it holds none."""
        steps = self._error[0].pointer
        names = [step.encode() for step in steps if isinstance(step, str) and not step.isdecimal()]
        if self._options.framing != "none" or self._needs_json or not names or len(names[0]) > 64:
            return None
        return PlainSuccess(self._success, (names[0], b"\\"))  # an escape may spell any name

    def encode(self, payload: Payload) -> HttpRequest:
        if self._form is not None:
            body = self._form.render(payload, self._model)
        else:
            if self._template is None:
                return HttpRequest(
                    self._head, self._body
                )  # nothing of the payload is sent, so its lengths are nobody's
            body = self._render(self._template, payload)
        return HttpRequest(self._head, body, payload.n_in, payload.media_ns)

    def _render(self, template: BodyTemplate, payload: Payload) -> bytes:
        body = template.render(payload, self._model)
        if self._options.content_type.split(";")[0].strip().lower() == "application/json":
            try:
                orjson.loads(body)
            except orjson.JSONDecodeError as error:
                raise HarnessFault(
                    f"target.options.body: it renders to text that is not JSON ({error}): {outcome.excerpt(body)}. "
                    "Write values with `| tojson`, or set content_type"
                ) from None
        return body

    def settle(self, exchange: Exchange) -> None:
        if not outcome.judge_code(exchange, self._success):
            return
        options = self._options
        if options.framing == "none":
            if exchange.status == outcome.OK:
                self._settle_whole(exchange)
        elif outcome.readable(exchange):
            stream = framing.take_apart(
                exchange.body, exchange.mark_ns, exchange.mark_end, options.framing, options.byte_order
            )
            if options.framing in PLAIN_TEXT:
                self._settle_text(exchange, stream)
            else:
                self._settle_events(exchange, stream)

    def _settle_whole(self, exchange: Exchange) -> None:
        """JSON is looked into where it is JSON; other bodies (audio, text) are as good as their status
        code.
        """
        if not self._needs_json and not _OBJECT.match(exchange.body):
            return
        if oversized(exchange, self._limit) or not outcome.readable(exchange):
            return
        try:
            answer = orjson.loads(exchange.body)
        except orjson.JSONDecodeError:
            if self._needs_json:
                text = f"the body is not JSON: {outcome.excerpt(exchange.body)}"
                outcome.fail(exchange, outcome.PROTOCOL, text)
            return
        told = Told()
        self._read(told, answer, b"")
        fault = told.fault
        if fault is None and self._success_if and not self._meets(answer, b""):
            fault = tokens.Fault(f"success_if does not hold: {outcome.excerpt(exchange.body)}")
        if fault is not None:
            outcome.fail_by(exchange, fault)
            return
        outcome.count_usage(exchange, told.n_in, told.n_out)
        if self._wants_reason and not told.finished:
            outcome.fail(exchange, outcome.PROTOCOL, tokens.unreasoned(f"finish_path {self._options.finish_path}"))

    def _settle_text(self, exchange: Exchange, stream: Stream) -> None:
        """Messages that are text: each is output. A body that is one JSON object may yet be an error in one piece."""
        output = list(range(len(stream.payloads)))
        done = False
        if self._done is not None:
            ends = [i for i, payload in enumerate(stream.payloads) if payload.startswith(self._done)]
            done, output = bool(ends), output[: ends[0]] if ends else output
        fault = None
        if exchange.body[:1] == b"{" and len(exchange.body) < 65_536:
            try:
                fault = self._fault(orjson.loads(exchange.body), b"")
            except orjson.JSONDecodeError:
                fault = None
        first = output[0] if output else -1
        scanned = tokens.TokenScan(output, first, -1, -1, done, done, fault, None, len(stream.payloads))
        settle_scan(exchange, stream, scanned, self._end)

    def _settle_events(self, exchange: Exchange, stream: Stream) -> None:
        """Where no path asks for JSON, data that is none is output as it is."""
        met = not self._success_if

        def read(told: Told, event: Any, name: bytes) -> int:
            nonlocal met
            met = met or self._meets(event, name)
            return self._read(told, event, name)

        told = Told()
        scanned = scan(stream, self._read if met else read, told, self._done, self._needs_json)
        if self._wants_reason and scanned.done and not told.finished and scanned.bad is None:
            what = f"finish_path {self._options.finish_path}"
            scanned = replace(scanned, bad=tokens.unreasoned(what, len(scanned.output)))
        if not self._has_text:
            output = [i for i in scanned.output if stream.payloads[i].strip()]
            scanned = replace(scanned, output=output, first_answer=output[0] if output else -1)
        settle_scan(exchange, stream, scanned, self._end)
        if not met and exchange.status == outcome.OK:
            outcome.fail_by(exchange, tokens.Fault("success_if holds for no event"))

    def _read(self, told: Told, event: Any, name: bytes) -> int:
        """Fill ``told`` from one event or a whole answer, and say what it carries."""
        plain = type(event) is dict
        lead, lead_in, lead_out = self._leads
        if not plain or lead is None or lead in event or name == b"error":
            told.fault = self._fault(event, name)
            if told.fault is not None:
                return NOTHING
        if self._n_in and (not plain or lead_in is None or lead_in in event):
            count = tokens.count(pointer.select(event, self._n_in[0], name))
            told.n_in = count if count >= 0 else told.n_in
        if self._n_out and (not plain or lead_out is None or lead_out in event):
            count = tokens.count(pointer.select(event, self._n_out[0], name))
            told.n_out = count if count >= 0 else told.n_out
        if self._finish:
            self._end_by(told, pointer.select(event, self._finish[0], name))
        if self._done_at:
            value = pointer.select(event, self._done_at[0], name)
            told.done = value is not MISSING and bool(value)
        if not self._has_text or self._holds(event, self._text, name):
            return ANSWER
        return REASONING if self._reasoning and self._holds(event, self._reasoning, name) else NOTHING

    def _end_by(self, told: Told, reason: Any) -> None:
        if reason is not MISSING and reason:
            told.finished = True
            if type(reason) is str and reason in self._options.failed_finishes:
                told.fault = tokens.Fault(f"the server gave the answer up: finish reason {reason!r}")

    def _holds(self, event: Any, paths: tuple[Selector, ...], name: bytes) -> bool:
        """Some path leads to output: anything but null, false and empty. Number 0 is output: token ids
        start there.
        """
        for path in paths:
            value = pointer.select(event, path, name)
            if value is not MISSING and (value or (type(value) in (int, float))):
                return True
        return False

    def _meets(self, event: Any, name: bytes) -> bool:
        return all(condition.holds(event, name) for condition in self._success_if)

    def _fault(self, event: Any, name: bytes) -> tokens.Fault | None:
        value = pointer.select(event, self._error[0], name)
        if value is not MISSING and bool(value):
            kind = event.get("error_type") if isinstance(event, dict) else None
            return tokens.fault_of({"error": value, "error_type": kind})
        if name == b"error":
            return tokens.fault_of(event if isinstance(event, dict) else {"message": event}, named_error=True)
        return None


PROTOCOLS = (
    ProtocolSpec(
        "http",
        "any HTTP endpoint: body template, JSON paths, streams in any framing",
        over_http(HttpDialect),
        HttpOptions,
        bundled=True,
        any_route=True,
        servers=("bentoml", "ray", "ray-serve", "fastapi"),
        history="messages",
    ),
)
