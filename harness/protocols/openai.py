"""The OpenAI HTTP API, as OpenAI and every compatible server speak it: chat, completions, embeddings.

Streams are asked for by default, with ``stream_options.include_usage``, because frames are not tokens. OpenAI refuses
unknown fields, so what only some servers know (``ignore_eos``, ``min_tokens``) is sent for ``exact_output: true`` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, model_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_http
from plimsoll.harness.protocols._http.json_stream import (
    ERROR_LINE,
    FinishReason,
    accepted,
    check_one_choice,
    json_headers,
    mergeable,
    messages_of,
)
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import HttpRequest, build_head, join_path, split_url
from plimsoll.harness.wire import fold, sse, tokens
from plimsoll.scenarios.samples.payload import Payload

_OWN_FIELDS = frozenset({"stream", "messages", "prompt", "input", "model"})


class GenerationOptions(Options):
    """Options of ``openai-chat`` and ``openai-completions``."""

    stream: bool = True
    include_usage: bool = True
    exact_output: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    finish_reason: FinishReason = "required"
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    extra_body: Annotated[dict[str, Any], mergeable(_OWN_FIELDS)] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _one_choice(self) -> GenerationOptions:
        check_one_choice(self.extra_body, "extra_body", self.stream)
        return self


class EmbeddingOptions(Options):
    """Options of ``openai-embeddings``. ``dimensions`` and ``encoding_format`` are sent only when given."""

    dimensions: int | None = Field(default=None, ge=1)
    encoding_format: Literal["float", "base64"] | None = None
    extra_body: Annotated[dict[str, Any], mergeable(_OWN_FIELDS)] = {}
    path: str | None = Field(default=None, pattern=r"^/")


def _body(fields: dict[str, Any], extra: Mapping[str, Any]) -> bytes:
    merged = {**fields, **extra}
    if isinstance(extra.get("stream_options"), dict):
        merged["stream_options"] = {**fields.get("stream_options", {}), **extra["stream_options"]}
    try:
        return orjson.dumps(merged)
    except TypeError as error:
        raise HarnessFault(f"the payload can't be written as JSON: {error}. Correct the payload source") from None


def _head(target: Target, route: str, path: str | None, stream: bool = False) -> bytes:
    return build_head("POST", join_path(target.url, route, path), json_headers(stream), target.headers)


class GenerationDialect:
    """Chat or plain completions. ``chat`` picks the route and the field that carries the prompt."""

    def __init__(self, target: Target, chat: bool) -> None:
        self._options = accept(GenerationOptions, target.options)
        self._chat = chat
        self._model = target.model
        self.accept = accepted(self._options.stream)
        route = "/v1/chat/completions" if chat else "/v1/completions"
        base = split_url(target.url)[0]
        if self._options.path is None and not chat and base.endswith("/chat/completions"):
            raise HarnessFault(
                f"target.url: {base} is the chat endpoint. Use protocol openai-chat, or end the URL at /v1"
            )
        self._head = _head(target, route, self._options.path, self._options.stream)

    def encode(self, payload: Payload) -> HttpRequest:
        options = self._options
        fields: dict[str, Any] = {"model": self._model} if self._model else {}
        fields |= {**self._prompt(payload), **payload.fields}
        if options.stream:
            fields["stream"] = True
            if options.include_usage:
                fields["stream_options"] = {"include_usage": True}
        if options.temperature is not None:
            fields["temperature"] = options.temperature
        if payload.max_output_tokens >= 0:
            fields[options.max_tokens_field] = payload.max_output_tokens
            if options.exact_output:
                fields["min_tokens"] = payload.max_output_tokens
        if options.exact_output:
            fields["ignore_eos"] = True
        n_asked = payload.max_output_tokens if options.exact_output else -1
        body = _body(fields, options.extra_body)
        return HttpRequest(self._head, body, payload.n_in, payload.media_ns, n_asked=n_asked)

    def _prompt(self, payload: Payload) -> dict[str, Any]:
        if not self._chat:
            if payload.prompt is not None:
                return {"prompt": payload.prompt}
            raise HarnessFault("openai-completions: the payload has no prompt. Use a text source, or openai-chat")
        return {"messages": messages_of(payload, "openai-chat")}

    def settle(self, exchange: Exchange) -> None:
        if not outcome.judge_code(exchange):
            return
        media = outcome.media_type(exchange)
        streamed = media == "text/event-stream"
        if not streamed and media != "application/json":  # a proxy may have dropped the header
            streamed = bytes(exchange.body[:6]).startswith((b"data:", b"event:", b":", b"id:"))
        if streamed:
            settle_stream(exchange, self._options.finish_reason == "required")
        elif exchange.status == outcome.OK:
            self._settle_whole(exchange)

    def _settle_whole(self, exchange: Exchange) -> None:
        """A response in one piece, asked for or not: no chunk times, and tokens from usage only."""
        answer = outcome.load_object(exchange)
        if answer is None:
            return
        fault = tokens.fault_of(answer)
        choices = answer.get("choices")
        outcome.count_usage(exchange, *tokens.usage_of(answer.get("usage")))
        outcome.count_cached(exchange, tokens.cached_of(answer.get("usage")))
        told = tokens.timing_of(answer.get("server_timing") or answer.get("metrics") or answer.get("timings"))
        exchange.server_timing = told or exchange.server_timing
        if fault is not None:
            outcome.fail_by(exchange, fault)
        elif not isinstance(choices, list) or not choices:
            text = f"the body is not a completion (no choices): {outcome.excerpt(exchange.body)}"
            outcome.fail(exchange, outcome.PROTOCOL, text)
        else:
            self._judge_reasons(exchange, [c.get("finish_reason") if isinstance(c, dict) else None for c in choices])

    def _judge_reasons(self, exchange: Exchange, reasons: list[Any]) -> None:
        """Each choice must say why it ended, and none that it was given up."""
        fault = next(filter(None, map(tokens.given_up, reasons)), None)
        if fault is not None:
            outcome.fail_by(exchange, fault)
        elif not all(reasons) and self._options.finish_reason == "required":
            outcome.fail(exchange, outcome.PROTOCOL, tokens.unreasoned("finish_reason"))


def settle_stream(exchange: Exchange, reasoned: bool = True) -> None:
    """Take an OpenAI-style event stream apart: chunk times, tokens, and whether it was a success.

    A stream that failed or was cut keeps the chunk times that it had: they are data. The server's own
    error report comes before everything else, then a broken event, then a cut (no finish_reason, whatever else came,
    or an event without its blank line). Without ``reasoned`` a ``[DONE]`` alone ends an answer well.
    """
    if not outcome.readable(exchange):
        return
    search = fold.load_fold()
    folded = fold.read(exchange.body, exchange.mark_ns, exchange.mark_end, search) if search is not None else None
    if folded is not None:
        scan, decoded = folded.scan, sse.EMPTY
        outcome.put_chunks(exchange, folded.chunk_ns, folded.first_answer_ns)
    else:
        decoded = sse.decode(exchange.body, exchange.mark_ns, exchange.mark_end)
        scan = tokens.scan(decoded.payloads, decoded.names)
        outcome.stamp_chunks(exchange, decoded.times, scan.output, scan.first_answer)
    if scan.timing:  # the whole anatomy, where the header could only have its beginning
        exchange.server_timing = scan.timing
    ended = scan.finished and exchange.status == outcome.OK
    outcome.count_tokens(exchange, scan.n_in, scan.n_out, ended)
    outcome.count_cached(exchange, scan.cached)
    fault = scan.fault
    if fault is not None:
        outcome.fail_by(exchange, fault)
        return
    problem = stream_problem(decoded, scan, reasoned)
    if problem is None:
        return
    reported = ERROR_LINE.search(exchange.body)
    if reported is not None:
        outcome.fail(exchange, outcome.HTTP, outcome.excerpt(reported[1]))
    else:
        outcome.fail(exchange, outcome.PROTOCOL, problem)


def stream_problem(decoded: sse.Decoded, scan: tokens.TokenScan, reasoned: bool = True) -> str | None:
    """Why a stream without an error report is no success, or None."""
    if decoded.error is not None or scan.bad is not None:
        return decoded.error or scan.bad
    if not scan.output and not scan.finished:
        return "empty stream: no output and no finish_reason"
    n = len(scan.output)
    if scan.done and not scan.finished and reasoned:
        return tokens.unreasoned("finish_reason", n)
    # A last [DONE] without its blank line, after the finish_reason: all that matters has arrived.
    if scan.done or (scan.finished and decoded.tail.lstrip().startswith((b"data: [DONE]", b"data:[DONE]"))):
        return None
    if decoded.truncated:
        return f"stream cut after {n} chunks, inside an event"
    if not scan.finished:
        return f"stream cut after {n} chunks: neither finish_reason nor [DONE]"
    return None


class EmbeddingDialect:
    """``/v1/embeddings``: one answer in one piece; the metric is latency."""

    def __init__(self, target: Target) -> None:
        self._options = accept(EmbeddingOptions, target.options)
        self.accept = accepted(False)
        self._head = _head(target, "/v1/embeddings", self._options.path)
        given = {"model": target.model, **self._options.model_dump(include={"dimensions", "encoding_format"})}
        self._fields = {name: value for name, value in given.items() if value}

    def encode(self, payload: Payload) -> HttpRequest:
        """The input is the prompt, or ``data["input"]`` as it is: a string, a list of them, or token ids."""
        value = payload.prompt if payload.prompt is not None else payload.data.get("input")
        if not value:
            raise HarnessFault('openai-embeddings: the payload has no prompt and no data["input"]. Use a text source')
        body = _body({**self._fields, "input": value}, self._options.extra_body)
        return HttpRequest(self._head, body, payload.n_in, payload.media_ns)

    def settle(self, exchange: Exchange) -> None:
        if not outcome.judge_code(exchange) or exchange.status != outcome.OK:
            return
        answer = outcome.load_object(exchange)
        if answer is None:
            return
        fault = tokens.fault_of(answer)
        data = answer.get("data")
        outcome.count_usage(exchange, tokens.usage_of(answer.get("usage"))[0], -1)
        if fault is not None:
            outcome.fail_by(exchange, fault)
        elif not isinstance(data, list) or not all(isinstance(d, dict) and d.get("embedding") for d in data or [0]):
            text = f"the body holds no embeddings: {outcome.excerpt(exchange.body)}"
            outcome.fail(exchange, outcome.PROTOCOL, text)


#: Servers that speak several of OpenAI's protocols, and those that are asked for chat alone.
SERVERS = (
    *("vllm", "sglang", "tensorrt-llm", "trtllm", "tensorrt", "nim", "lmdeploy", "litellm", "localai", "mistral"),
)
_OF_CHAT_ONLY = (
    *("openvino", "ovms", "kserve", "tgi", "ollama", "llamacpp", "llama.cpp"),
    *("bentoml", "ray", "ray-serve", "fastapi", "azure", "azure-openai"),
)

PROTOCOLS = (
    ProtocolSpec(
        "openai-chat",
        "OpenAI chat completions, streamed over SSE",
        over_http(partial(GenerationDialect, chat=True)),
        GenerationOptions,
        bundled=True,
        lists_models=True,
        servers=(*SERVERS, *_OF_CHAT_ONLY),
        history="messages",
        carries=("tools", "priority"),
    ),
    ProtocolSpec(
        "openai-completions",
        "OpenAI text completions, streamed over SSE",
        over_http(partial(GenerationDialect, chat=False)),
        GenerationOptions,
        bundled=True,
        lists_models=True,
        servers=SERVERS,
        history="text",
        carries=("priority",),
    ),
    ProtocolSpec(
        "openai-embeddings",
        "OpenAI embeddings",
        over_http(EmbeddingDialect),
        EmbeddingOptions,
        streaming=False,
        bundled=True,
        lists_models=True,
        servers=SERVERS,
    ),
)
