"""This module says which events of an OpenAI-style stream carried output, the usage, and how it ended. No verdict.

``content``, ``refusal``, tool calls and ``text`` are *answer*; ``reasoning_content`` or ``reasoning`` is output but not
answer. Role-only, empty and ``choices: []`` events are no output. Chunks are not tokens; only ``usage`` counts tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

#: The data that ends a stream *starts* with this.
DONE = b"[DONE]"
#: Finish reasons by which a server says that it gave the answer up.
GIVEN_UP = frozenset({"error", "abort", "aborted", "cancelled", "canceled", "timeout"})
#: What servers say, in any protocol and under any code, when they shed load; in lower case.
_OVERLOADED = (
    "overload",
    "rate_limit",
    "too many requests",
    "exceeds maximum queue size",  # Triton, whose HTTP front end says 503
    "has no worker to serve",  # TorchServe, likewise: its job queue is full
    "reset reason: overflow",  # Envoy's circuit breaker
)
#: Why choices that share a stream are no answer: the gaps between their chunks are nobody's.
SEVERAL = (
    "choices that share a stream can't be timed apart. Ask for one answer (n: 1, no best_of), "
    "or for answers in one piece (stream: false)"
)
_MAX_COUNT = 1 << 53
_MAX_TIMING = 2000


@dataclass(frozen=True, slots=True)
class Fault:
    """The server's own word that it failed, under whatever HTTP status. ``overloaded``: it shed the load."""

    message: str
    overloaded: bool = False


@dataclass(frozen=True, slots=True)
class TokenScan:
    """What the events of one stream said.

    ``output`` holds the indices of the events that carried output, ``first_answer`` the index of the first that carried
    answer (-1: none). ``n_in`` and ``n_out`` come from the last usage block (-1: not given). ``bad`` says which event
    could not be read; reading stops there, as it does at a ``fault``. ``timing`` is the last member ``server_timing``
    of an event: what a server says of its stages when it knows them all ("": nothing). ``cached``: prompt tokens that
    it had in a cache (-1: not said).
    """

    output: Sequence[int] = field(default_factory=list)
    first_answer: int = -1
    n_in: int = -1
    n_out: int = -1
    finished: bool = False
    done: bool = False
    fault: Fault | None = None
    bad: str | None = None
    n_events: int = 0
    timing: str = ""
    cached: int = -1


def load(payloads: Sequence[bytes], done: bytes | None = DONE) -> tuple[list[Any], bool, str | None]:
    """(decoded events, whether the ``done`` marker came, why the event after the last could not be read
    or None).

    Blank payloads (keep-alives) give an empty object so that indices stay. Nothing after the marker is
    read.
    """
    marked = done is not None and len(payloads) > 0 and payloads[-1].startswith(done)
    try:
        # Within 10 % of decoding the whole stream as one array, and events can't run into each other.
        return list(map(orjson.loads, payloads[:-1] if marked else payloads)), marked, None
    except orjson.JSONDecodeError:
        return _load_one_by_one(payloads, done)


def _load_one_by_one(payloads: Sequence[bytes], done: bytes | None) -> tuple[list[Any], bool, str | None]:
    events: list[Any] = []
    for i, payload in enumerate(payloads):
        if done is not None and payload.startswith(done):
            return events, True, None
        if not payload.strip():
            events.append({})
            continue
        # The event-stream rules replace invalid UTF-8; orjson would refuse it.
        text = payload.decode("utf-8", "replace")
        try:
            events.append(orjson.loads(text))
        except orjson.JSONDecodeError:
            return events, False, f"event {i + 1} is not JSON: {' '.join(text[:120].split())!r}"
    return events, False, None


def sheds_load(text: str) -> bool:
    """A server's words mean that it refused because it had too much to do. The one place that knows such words."""
    lower = text.lower()
    return any(words in lower for words in _OVERLOADED)


def given_up(reason: Any, what: str = "finish_reason") -> Fault | None:
    """The fault if a reason to end says that the server gave the answer up. ``what``: the field it stood in."""
    kind = reason.get("type") if type(reason) is dict else reason  # SGLang's own routes give an object
    if type(kind) is str and kind.lower() in GIVEN_UP:
        return Fault(f"the server gave the answer up: {what} {kind!r}")
    return None


def unreasoned(what: str, n_chunks: int = 0) -> str:
    """The error of an answer that came to its end without saying why, in its field ``what``."""
    after = f" after {n_chunks} chunks" if n_chunks else ""
    return (
        f"the answer ended without a finish reason{after}: its {what} is missing, so it may have been cut. "
        "Look at the server's log; for a server that never gives one set target.options.finish_reason: optional"
    )


def fault_of(event: dict[str, Any], named_error: bool = False) -> Fault | None:
    """The error that an object reports, in any of the forms that servers use, or None.

    ``{"error": {"message", "type", "code"}}``, ``{"error": "text", "error_type": ...}``,
    ``{"object": "error", "message": ...}``, and any object in an event named ``error`` (``named_error``).
    """
    error = event.get("error")
    if not error:
        if event.get("object") != "error" and not named_error:
            return None
        error = event
    source = error if isinstance(error, dict) else {"message": error, "type": event.get("error_type")}
    message = source.get("message") or source.get("detail") or source
    kinds = [source.get(key) for key in ("type", "code", "error_type")]
    labels = [str(kind) for kind in kinds if isinstance(kind, str | int) and kind != ""]
    text = message if isinstance(message, str) else _compact(message)
    overloaded = any(label in ("429", "503") for label in labels) or sheds_load(f"{text} {' '.join(labels)}")
    return Fault(f"{text} ({', '.join(labels)})" if labels else text, overloaded)


def _compact(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # orjson reads 1024 levels and writes 254
        return "a deeply nested value"


def usage_of(usage: Any) -> tuple[int, int]:
    """(prompt tokens, completion tokens) of a usage block; -1 for what it doesn't say."""
    if not isinstance(usage, dict):
        return -1, -1
    return (
        count(usage.get("prompt_tokens", usage.get("input_tokens"))),
        count(usage.get("completion_tokens", usage.get("output_tokens"))),
    )


#: Where usage blocks say how many prompt tokens were in a cache: OpenAI's APIs and who follows them; then DeepSeek,
#: Anthropic, Moonshot.
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_CACHED = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")

_SAYING = frozenset((*_DETAILS, *_CACHED))


def cached_of(usage: Any) -> int:
    """Prompt tokens of a usage block that a cache had; -1: it doesn't say."""
    if type(usage) is not dict or _SAYING.isdisjoint(
        usage
    ):  # most say nothing, and that costs a tenth of a microsecond
        return -1
    for name in _DETAILS:
        details = usage.get(name)
        if type(details) is dict and "cached_tokens" in details:
            return count(details["cached_tokens"])
    return next((count(usage[name]) for name in _CACHED if name in usage), -1)


def timing_of(value: Any) -> str:
    """A member ``server_timing`` as it may be kept: text of a sane length, else "". Of an object the times that vLLM
    (``metrics``, with --enable-per-request-metrics) and llama.cpp (``timings``) name.
    """
    if type(value) is dict:
        return timing_text({name: value[key] for key, name in _TIMES.items() if key in value})
    return value if type(value) is str and len(value) <= _MAX_TIMING else ""


#: Milliseconds that servers of OpenAI's dialect say, and the stages that they are. vLLM's first token is counted from
#: when the request was taken from the queue.
_TIMES = {
    "queue_time_ms": "queue", "time_to_first_token_ms": "prefill", "generation_time_ms": "decode",
    "prompt_ms": "prefill", "predicted_ms": "decode",
}  # fmt: skip


def timing_text(stages: Mapping[str, Any], unit_ms: float = 1.0) -> str:
    """Stages that a server reports in its own words, in the syntax of Server-Timing; values that are no duration are
    left out.

    ``unit_ms``: the length of the server's unit in milliseconds.
    """
    kept = {
        name: value * unit_ms for name, value in stages.items() if type(value) in (int, float) and 0 <= value < 1e18
    }
    return ", ".join(f"{name};dur={value:.3f}" for name, value in kept.items())


def count(value: Any) -> int:
    """A token count as an int, or -1 for anything that isn't one."""
    return value if type(value) is int and 0 <= value < _MAX_COUNT else -1


def carries(choice: dict[str, Any]) -> int:
    """0: no output; 1: reasoning only; 2: answer."""
    delta = choice.get("delta")
    if type(delta) is not dict:
        return 2 if choice.get("text") else 0
    if delta.get("content") or delta.get("refusal"):
        return 2
    calls = delta.get("tool_calls")
    functions = [call.get("function") for call in calls if type(call) is dict] if type(calls) is list else []
    functions.append(delta.get("function_call"))
    if any(type(f) is dict and (f.get("arguments") or f.get("name")) for f in functions):
        return 2
    return 1 if delta.get("reasoning_content") or delta.get("reasoning") else 0


def _read_choices(choices: list[Any]) -> tuple[int, bool, Fault | None, str | None]:
    """(what they carry, whether a reason to end came, the fault if it says failure, why they can't be read as one
    answer).
    """
    kind, ended, fault = 0, False, None
    for choice in choices:
        if type(choice) is not dict:
            continue
        if choice.get("index"):
            return kind, ended, fault, f"belongs to choice {choice['index']!r}: {SEVERAL}"
        if kind < 2:
            kind = carries(choice) or kind
        reason = choice.get("finish_reason")
        if reason:
            ended = True
            fault = given_up(reason) or fault
    return kind, ended, fault, None


def scan(payloads: Sequence[bytes], names: Sequence[bytes] | None = None) -> TokenScan:
    """Read a chat or completions stream: the data of its events, and their names if any has one. Never
    raises.
    """
    events, done, bad = load(payloads)
    output: list[int] = []
    first_answer = -1
    usage: Any = None
    timing: Any = None
    finished = False
    fault: Fault | None = None
    for i, event in enumerate(events):
        if type(event) is not dict:
            bad = f"event {i + 1} is not a JSON object: {_compact(event)[:120]!r}"
            break
        if "error" in event or names is not None or event.get("object") == "error":
            fault = fault_of(event, names is not None and names[i] == b"error")
            if fault is not None:
                break
        if event.get("usage"):
            usage, timing = event["usage"], event.get("metrics") or timing
        timing = event.get("server_timing") or event.get("timings") or timing
        choices = event.get("choices")
        if type(choices) is not list:
            continue
        kind, ended, fault, strange = _read_choices(choices)
        finished = finished or ended
        if strange is not None:
            bad = f"event {i + 1} {strange}"
            break
        if kind:
            output.append(i)
            if kind == 2 and first_answer < 0:
                first_answer = i
        if fault is not None:
            break
    n_in, n_out = usage_of(usage)
    said = timing_of(timing), cached_of(usage)
    return TokenScan(output, first_answer, n_in, n_out, finished, done, fault, bad, len(events), *said)
