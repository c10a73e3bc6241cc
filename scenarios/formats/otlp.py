"""Spans of OpenTelemetry as a collector's file exporter writes them (OTLP/JSON): an object a batch, times in ns as
texts, attributes with their types. A span of a call to a model is a request, under the names of today and of before;
spans of agents and tools around them are not. Contents of prompts stay behind.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from plimsoll.scenarios.samples.recording import CANCELLED, FAILED, OK, TIMEOUT, Recording
from plimsoll.scenarios.samples.rows import Reading, Row, S, count_of, documents, http_status, keep, span, time_of
from plimsoll.scenarios.samples.traces import Format

_IN = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens", "llm.token_count.prompt")
_OUT = (
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
    "llm.token_count.completion",
)
_SESSION = ("gen_ai.conversation.id", "session.id")
_MODEL = ("gen_ai.request.model", "gen_ai.response.model", "llm.request.model", "llm.model_name")
_TTFT = ("gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token")
_CALLS = {"chat", "text_completion", "generate_content", "embeddings", "completion"}
_OPERATION = ("gen_ai.operation.name", "llm.request.type")


def _read(reading: Reading, made: Recording) -> None:
    def rows() -> Iterator[tuple[int, Row]]:
        for line, batch in documents(reading):
            for one in _spans(batch):
                try:
                    row = _row(one)
                except ValueError as error:
                    reading.say(line, f"span {str(one.get('spanId'))[:40]}: {error}")
                    continue
                if row is not None:
                    yield line, row

    keep(reading, rows(), made)


def _spans(batch: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in _list(batch, "resourceSpans"):
        for scope in (*_list(resource, "scopeSpans"), *_list(resource, "instrumentationLibrarySpans")):
            yield from _list(scope, "spans")


def _list(value: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = value.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _row(one: dict[str, Any]) -> Row | None:
    """A call to a model; None: something else. Raises ValueError."""
    known = {str(each.get("key")): _value(each.get("value")) for each in _list(one, "attributes")}
    operation = _first(known, _OPERATION)
    if str(operation) not in _CALLS if operation is not None else _first(known, (*_IN, *_OUT)) is None:
        return None
    at, end = (time_of(one, key, 1) for key in ("startTimeUnixNano", "endTimeUnixNano"))
    row: Row = {"at_ns": at, "latency_ns": max(end - at, -1), "status": OK}
    for to, names in (("n_in", _IN), ("n_out", _OUT)):
        name = next((name for name in names if name in known), None)
        row[to] = -1 if name is None else count_of(known, name)
    row["session"], row["label:model"] = _first(known, _SESSION), _first(known, _MODEL)
    row["ttft_ns"] = span(_first(known, _TTFT), "time to first token", S)
    status = one.get("status")
    if isinstance(status, dict) and status.get("code") in (2, "STATUS_CODE_ERROR"):
        row["status"] = _failure(str(known.get("error.type", "")).lower())
        if row["status"] == CANCELLED:
            row["gave_up_ns"] = row["latency_ns"]
    return row


def _failure(kind: str) -> int:
    if kind.isascii() and kind.isdigit():
        return http_status(int(kind)) or FAILED
    if "cancel" in kind:
        return CANCELLED
    return TIMEOUT if "timeout" in kind or "deadline" in kind else FAILED


def _first(known: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((known[name] for name in names if name in known), None)


def _value(value: Any) -> Any:
    """Of {"intValue": "12"} and its like."""
    return next(iter(value.values()), None) if isinstance(value, dict) else None


FORMAT = Format(
    name="otlp",
    summary="OpenTelemetry's spans of calls to models, OTLP/JSON as a collector's file exporter writes it",
    unit="ns since 1970",
    sign="resourceSpans",
    detect=lambda head: '"resourceSpans"' in head.text[:4096],
    read=_read,
    takes=("startTimeUnixNano", "endTimeUnixNano", "status", *_IN, *_OUT, *_SESSION, *_MODEL, *_TTFT, *_OPERATION),
    leaves=("other attributes and spans",),
    columns=("session", "turn", "think_ns", "status", "gave_up_ns", "latency_ns", "ttft_ns"),
    labels=("model",),
    cumulative=True,
)
