"""Plain HTTP: any method, path, headers and body; one answer in one piece, or a stream of events or
lines.

For servers without a protocol of their own (Ollama, TGI, llama.cpp, Ray Serve, BentoML, a FastAPI
handler). The body is a sandboxed Jinja2 template rendered for each sample before the run, or fixed text,
or a file. What carries output, usage and errors is told by paths into the JSON. It guesses nothing:
without ``text_path`` every event of a stream counts as output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field, field_validator, model_validator

from harness import outcome
from harness.body_template import BodyTemplate
from harness.client import Client, ProtocolSpec, Target
from harness.dialect import HttpRequest, PlainSuccess, build_head, header_error, split_url
from harness.errors import HarnessFault
from harness.exchange import Exchange
from harness.options import STRICT, accept, problems
from harness.secrets import sensitive_values
from harness.wire import ndjson, pointer, sse, tokens
from harness.wire.sse import IntArray
from scenarios.payload import Payload
from slo.records import TokensFrom

_ACCEPT = {"none": b"*/*", "sse": b"text/event-stream", "ndjson": b"application/x-ndjson"}


class HttpOptions(BaseModel):
    """Options of ``http``.

    At most one of ``body`` (a template), ``body_text`` (sent as it is) and ``body_file``. ``path``
    replaces the URL's. Paths into JSON are written like ``choices[0].delta.content``; ``text_path`` and
    ``reasoning_path`` name streamed output, ``prompt_tokens_path`` and ``output_tokens_path`` the usage
    (the last value seen counts), ``error_path`` a value that means failure when it is truthy. A stream
    ends well at data that begins with ``done``, or at an event whose ``done_path`` is truthy; where one
    of them is given, a stream without it was cut. ``success_codes``: empty means any 2xx.
    """

    model_config = STRICT
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] = "POST"
    path: str | None = Field(default=None, pattern=r"^/")
    headers: dict[str, str] = {}
    content_type: str = "application/json"
    body: str | None = None
    body_text: str | None = None
    body_file: str | None = None
    framing: Literal["none", "sse", "ndjson"] = "none"
    text_path: str | list[str] = []
    reasoning_path: str | list[str] = []
    prompt_tokens_path: str | None = None
    output_tokens_path: str | None = None
    error_path: str = "error"
    done: str | None = Field(default=None, min_length=1)
    done_path: str | None = None
    success_codes: list[int] = []

    @field_validator(
        "text_path", "reasoning_path", "prompt_tokens_path", "output_tokens_path", "error_path", "done_path"
    )
    @classmethod
    def _paths(cls, value: str | list[str] | None) -> str | list[str] | None:
        for text in [value] if isinstance(value, str) else value or []:
            pointer.parse(text)
        return value

    @field_validator("headers")
    @classmethod
    def _headers(cls, value: dict[str, str]) -> dict[str, str]:
        errors = [error for name, text in value.items() if (error := header_error(name, text))]
        if errors:
            raise ValueError("; ".join(errors))
        return value

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
        if len(bodies) > 1:
            raise ValueError(f"{' and '.join(bodies)} are given together. Keep one")
        if self.framing == "none":
            unused = [name for name in ("text_path", "reasoning_path", "done", "done_path") if getattr(self, name)]
            if unused:
                raise ValueError(f"{', '.join(unused)}: only a stream has it. Set framing to sse or ndjson")
        return self


def _pointers(value: str | Sequence[str] | None) -> tuple[pointer.Pointer, ...]:
    return tuple(pointer.parse(text) for text in ([value] if isinstance(value, str) else value or []))


@dataclass(frozen=True, slots=True)
class _Stream:
    """A body taken apart by either framing: ``broken`` ends the reading, ``cut`` says that the last event
    is torn.
    """

    payloads: list[bytes]
    times: IntArray
    names: list[bytes] | None = None
    broken: str | None = None
    cut: str | None = None


def _stream(exchange: Exchange, framing: str) -> _Stream:
    if framing == "sse":
        decoded = sse.decode(exchange.body, exchange.mark_ns, exchange.mark_end)
        cut = "stream cut inside an event" if decoded.truncated else None
        return _Stream(decoded.payloads, decoded.times, decoded.names, decoded.error, cut)
    # A last line without its LF is taken: had it been cut, it would not be JSON.
    lines = ndjson.decode(exchange.body, exchange.mark_ns, exchange.mark_end)
    return _Stream(lines.payloads, lines.times, None, lines.error)


class HttpDialect:
    """What the options say, ready to use."""

    __slots__ = (
        "_body",
        "_done",
        "_done_at",
        "_error",
        "_expects_end",
        "_has_text",
        "_head",
        "_model",
        "_n_in",
        "_n_out",
        "_needs_json",
        "_options",
        "_reasoning",
        "_secrets",
        "_success",
        "_template",
        "_text",
        "accept",
        "plain",
    )

    def __init__(self, target: Target) -> None:
        options = self._options = accept(HttpOptions, target.options)
        self._secrets = sensitive_values((*options.headers.items(), *target.headers))
        self._model = target.model
        self.accept = _ACCEPT[options.framing]
        self._text, self._reasoning = _pointers(options.text_path), _pointers(options.reasoning_path)
        self._n_in, self._n_out = _pointers(options.prompt_tokens_path), _pointers(options.output_tokens_path)
        self._error, self._done_at = _pointers(options.error_path), _pointers(options.done_path)
        self._has_text = bool(self._text or self._reasoning)
        self._needs_json = bool(self._has_text or self._n_in or self._n_out or self._done_at)
        self._expects_end = bool(options.done or options.done_path)
        # The usual marker ends any event stream, but only the one that was given is insisted on.
        self._done = options.done.encode() if options.done else tokens.DONE if options.framing == "sse" else None
        self._success = frozenset(options.success_codes or range(200, 300))
        self.plain = self._plain_success()
        self._template = BodyTemplate(options.body) if options.body is not None else None
        self._body = (options.body_text or "").encode()
        if options.body_file is not None:
            try:
                self._body = Path(options.body_file).read_bytes()
            except OSError as error:
                raise HarnessFault(
                    f"target.options.body_file: can't read {options.body_file}: {error.strerror}. Check the path"
                ) from None
        path, query = split_url(target.url)
        path = options.path or path or "/"
        if query and "?" not in path:
            path = f"{path}?{query}"
        defaults = {"accept": self.accept.decode(), "accept-encoding": "identity", "user-agent": "plimsoll"}
        if self._template is not None or self._body:
            defaults["content-type"] = options.content_type
        given = {name.lower() for name, _ in target.headers}
        own = tuple((name, value) for name, value in options.headers.items() if name.lower() not in given)
        self._head = build_head(options.method, path, defaults, own + target.headers)

    def _plain_success(self) -> PlainSuccess | None:
        """A whole answer is looked into for an error and usage only: without the error's name in it, it holds none."""
        names = [step.encode() for step in self._error[0] if isinstance(step, str) and not step.isdecimal()]
        if self._options.framing != "none" or self._n_in or self._n_out or not names or len(names[0]) > 64:
            return None
        return PlainSuccess(self._success, (names[0], b"\\"))  # an escape may spell any name

    def encode(self, payload: Payload) -> HttpRequest:
        body = self._body if self._template is None else self._render(self._template, payload)
        return HttpRequest(self._head, body, payload.n_in, payload.media_ns)

    def _render(self, template: BodyTemplate, payload: Payload) -> bytes:
        body = template.render(payload, self._model)
        if self._options.content_type.split(";")[0].strip().lower() == "application/json":
            try:
                orjson.loads(body)
            except orjson.JSONDecodeError as error:
                raise HarnessFault(
                    f"target.options.body: it renders to text that is not JSON ({error}): "
                    f"{outcome.excerpt(body)}. "
                    "Write values with `| tojson`, or set content_type"
                ) from None
        return body

    def settle(self, exchange: Exchange) -> None:
        if not outcome.judge_code(exchange, self._secrets, self._success):
            return
        framing = self._options.framing
        if framing == "none":
            if exchange.status == outcome.OK:
                self._settle_whole(exchange)
        elif outcome.readable(exchange, self._secrets):
            self._settle_stream(exchange, _stream(exchange, framing))

    def _settle_whole(self, exchange: Exchange) -> None:
        """JSON is looked into where it is JSON; other bodies (audio, text) are as good as their status
        code.
        """
        wants_usage = bool(self._n_in or self._n_out)
        if not wants_usage and not exchange.body.lstrip().startswith(b"{"):
            return
        if not outcome.readable(exchange, self._secrets):
            return
        try:
            answer = orjson.loads(exchange.body)
        except orjson.JSONDecodeError:
            if wants_usage:
                text = f"the body is not JSON: {outcome.excerpt(exchange.body)}"
                outcome.fail(exchange, outcome.PROTOCOL, text, self._secrets)
            return
        fault = self._fault(answer)
        if fault is not None:
            outcome.fail_by(exchange, fault, self._secrets)
            return
        n_in, n_out = self._usage(answer)
        if n_in >= 0:
            exchange.n_in = n_in
        if n_out >= 0:
            exchange.n_out = n_out
            exchange.tokens_from = int(TokensFrom.USAGE)

    def _settle_stream(self, exchange: Exchange, stream: _Stream) -> None:
        scan = self._scan(stream)
        if scan.timing:
            exchange.server_timing = scan.timing
        outcome.stamp_chunks(exchange, stream.times, scan.output, scan.first_answer)
        outcome.count_tokens(exchange, scan.n_in, scan.n_out, scan.done and exchange.status == outcome.OK)
        problem = stream.broken or scan.bad or (stream.cut if not scan.done else None)
        if scan.fault is not None:
            outcome.fail_by(exchange, scan.fault, self._secrets)
        elif problem is not None:
            outcome.fail(exchange, outcome.PROTOCOL, problem, self._secrets)
        elif self._expects_end and not scan.done:
            text = f"stream cut after {len(scan.output)} chunks: the end that done or done_path names never came"
            outcome.fail(exchange, outcome.PROTOCOL, text, self._secrets)
        elif not scan.output and not scan.done:
            outcome.fail(exchange, outcome.PROTOCOL, "empty stream: no output", self._secrets)

    def _scan(self, stream: _Stream) -> tokens.TokenScan:
        """Read the events as JSON. Where no path asks for JSON, data that is none is output as it is."""
        payloads = stream.payloads
        events, done, bad = tokens.load(payloads, self._done)
        if bad is not None and not self._needs_json:
            events, done, bad = _load_mixed(payloads, self._done)
        output: list[int] = []
        first_answer = n_in = n_out = -1
        fault = None
        for i, event in enumerate(events):
            fault = self._fault(event, stream.names is not None and stream.names[i] == b"error")
            if fault is not None:
                break
            answers = self._holds(event, self._text) if self._has_text else bool(payloads[i].strip())
            if answers or self._holds(event, self._reasoning):
                output.append(i)
            if answers and first_answer < 0:
                first_answer = i
            seen_in, seen_out = self._usage(event)
            n_in, n_out = (seen_in if seen_in >= 0 else n_in), (seen_out if seen_out >= 0 else n_out)
            if self._done_at and pointer.truthy(event, self._done_at[0]):
                done, bad = True, None
                break
        last = events[-1] if events else None
        timing = tokens.timing_of(last.get("server_timing")) if isinstance(last, dict) else ""
        return tokens.TokenScan(output, first_answer, n_in, n_out, done, done, fault, bad, len(events), timing)

    def _holds(self, event: Any, paths: tuple[pointer.Pointer, ...]) -> bool:
        """Some path leads to output: anything but null, false and empty. Number 0 is output: token ids
        start there.
        """
        for path in paths:
            value = pointer.find(event, path)
            if value is not pointer.MISSING and (value or (type(value) in (int, float))):
                return True
        return False

    def _usage(self, answer: Any) -> tuple[int, int]:
        n_in = tokens.count(pointer.find(answer, self._n_in[0])) if self._n_in else -1
        return n_in, tokens.count(pointer.find(answer, self._n_out[0])) if self._n_out else -1

    def _fault(self, event: Any, named_error: bool = False) -> tokens.Fault | None:
        if pointer.truthy(event, self._error[0]):
            kind = event.get("error_type") if isinstance(event, dict) else None
            return tokens.fault_of({"error": pointer.find(event, self._error[0]), "error_type": kind})
        if named_error:
            return tokens.fault_of(event if isinstance(event, dict) else {"message": event}, named_error=True)
        return None


def _load_mixed(payloads: list[bytes], done: bytes | None) -> tuple[list[Any], bool, None]:
    """As ``tokens.load``, but data that is not JSON is given as text, and reading goes on."""
    events: list[Any] = []
    for payload in payloads:
        if done is not None and payload.startswith(done):
            return events, True, None
        try:
            events.append(orjson.loads(payload))
        except orjson.JSONDecodeError:
            events.append(payload.decode("utf-8", "replace"))
    return events, False, None


def _build(target: Target, clock: Any) -> Client:
    from harness.http_pool import HttpClient

    return HttpClient(target, clock, HttpDialect(target))


def _check(options: Mapping[str, Any]) -> list[str]:
    return problems(HttpOptions, options)


PROTOCOLS = (
    ProtocolSpec("http", "any HTTP endpoint: body template, JSON paths, SSE or NDJSON", _build, _check, streaming=True),
)
