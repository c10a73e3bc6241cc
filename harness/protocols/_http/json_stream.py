"""This module holds what every JSON API over HTTP shares: a body, and an answer in one piece or as a stream of events.

A protocol brings a function that reads one event into a ``Told``; events become stamps, counts and a verdict here. It
knows no vendor, and it opens no connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson
from pydantic import AfterValidator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.http.dialect import HttpRequest, split_url
from plimsoll.harness.wire import framing, tokens
from plimsoll.harness.wire.framing import Stream
from plimsoll.scenarios.samples.payload import Payload

NOTHING, REASONING, ANSWER = 0, 1, 2
#: Whether an answer must say why it ended. Without a reason a cut answer looks like a whole one.
FinishReason = Literal["required", "optional"]
#: Older llama.cpp reported errors in a line of this field, which the event-stream rules ignore.
ERROR_LINE = re.compile(rb"(?:^|[\r\n])error: ?([^\r\n]+)")
_SSE_BEGINS = (b"data:", b"event:", b":", b"id:", b"retry:")


class Told:
    """What the events of one answer have said so far. ``finished``: the answer is whole; ``done``: and nothing follows
    that matters. ``reason``: why it ended, in the server's word (None: not said). ``fault`` is the server's own word
    that it failed, ``bad`` why the bytes are no answer. ``cached``: prompt tokens that a cache had. ``seen`` is the
    reader's.
    """

    __slots__ = ("bad", "cached", "done", "fault", "finished", "n_in", "n_out", "reason", "seen", "timing")

    def __init__(self) -> None:
        self.n_in = -1
        self.n_out = -1
        self.finished = False
        self.done = False
        self.reason: Any = None
        self.fault: tokens.Fault | None = None
        self.bad: str | None = None
        self.timing = ""
        self.cached = -1
        self.seen = -1


#: (what was said, one event, its name) -> NOTHING, REASONING or ANSWER.
Read = Callable[[Told, Any, bytes], int]


def scan(
    stream: Stream, read: Read, told: Told, mark: bytes | None = tokens.DONE, only_json: bool = True
) -> tokens.TokenScan:
    """Read the events of a stream, up to the end that they name. ``mark``: data that begins so ends it; without
    ``only_json`` data that is no JSON is given as text. Never raises.
    """
    payloads = stream.payloads
    events, done, bad = tokens.load(payloads, mark)
    if bad is not None and not only_json:
        events, done, bad = _load_mixed(payloads, mark)
    names = stream.names
    output: list[int] = []
    first_answer = -1
    for i, event in enumerate(events):
        kind = read(told, event, names[i] if names is not None else b"")
        if kind:
            output.append(i)
            if kind == ANSWER and first_answer < 0:
                first_answer = i
        if told.done or told.fault is not None or told.bad is not None:
            done, bad = told.done, told.bad
            break
    last = events[-1] if events else None
    timing = tokens.timing_of(last.get("server_timing")) if isinstance(last, dict) else ""
    return tokens.TokenScan(
        output, first_answer, told.n_in, told.n_out, done or told.finished, done, told.fault, bad, len(events),
        timing or told.timing, told.cached,
    )  # fmt: skip


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


def settle_scan(exchange: Exchange, stream: Stream, scanned: tokens.TokenScan, end: str) -> None:
    """Write down what a stream said. ``end``: how it should have ended ("": the API marks no end), in words for the
    error.

    A stream that failed or was cut keeps the chunk times that it had: they are data. The server's own report comes
    before everything else, then a broken event, then a cut.
    """
    if scanned.timing:
        exchange.server_timing = scanned.timing
    outcome.stamp_chunks(exchange, stream.times, scanned.output, scanned.first_answer)
    outcome.count_tokens(exchange, scanned.n_in, scanned.n_out, scanned.finished and exchange.status == outcome.OK)
    outcome.count_cached(exchange, scanned.cached)
    problem = stream.broken or scanned.bad or (stream.cut if not scanned.done else None)
    if problem is None and end and not scanned.finished:
        problem = f"stream cut after {len(scanned.output)} chunks: {end}"
    if problem is None and not scanned.output and not scanned.finished:
        problem = "empty stream: no output"
    if scanned.fault is not None:
        outcome.fail_by(exchange, scanned.fault)
    elif problem is not None:
        outcome.fail(exchange, outcome.PROTOCOL, problem)


@dataclass(frozen=True, slots=True)
class JsonApi:
    """One vendor's API. ``body`` makes a request's fields of a payload, ``read`` understands one event or a whole
    answer.

    ``stream``: a stream was asked for, in ``framing``. ``end``: the words for a stream that lacks its end ("": none is
    marked). ``reason``: the field in which an answer says why it ended, without which it is none ("": the API has no
    such field, or the user allows for its absence). ``shed``: status codes of an overload. ``prelude`` reads headers.
    The head may hold credentials. ``exact``: the planned length was asked for exactly.
    """

    name: str
    head: bytes = field(repr=False)
    body: Callable[[Payload], Mapping[str, Any]]
    read: Callable[[Told, dict[str, Any]], int]
    stream: bool
    framing: framing.Framing = "sse"
    end: str = ""
    reason: str = ""
    exact: bool = False
    shed: frozenset[int] = outcome.SHED
    prelude: Callable[[Exchange, Told], None] | None = None


class JsonDialect:
    """A ``JsonApi`` as a dialect of the shared HTTP transport."""

    def __init__(self, api: JsonApi) -> None:
        self._api = api
        self.accept = accepted(api.stream, api.framing)

    def encode(self, payload: Payload) -> HttpRequest:
        try:
            body = orjson.dumps(self._api.body(payload), option=orjson.OPT_SERIALIZE_NUMPY)
        except TypeError as error:
            text = f"{self._api.name}: the payload can't be written as JSON: {error}. Correct the payload source"
            raise HarnessFault(text) from None
        n_asked = payload.max_output_tokens if self._api.exact else -1
        return HttpRequest(self._api.head, body, payload.n_in, payload.media_ns, n_asked=n_asked)

    def settle(self, exchange: Exchange) -> None:
        api = self._api
        if not outcome.judge_code(exchange, shed=api.shed):
            return
        told = Told()
        if api.prelude is not None:
            api.prelude(exchange, told)
        if self._streamed(exchange):
            if outcome.readable(exchange):
                stream = framing.take_apart(exchange.body, exchange.mark_ns, exchange.mark_end, api.framing)
                scanned = scan(stream, self._read, told)
                if api.end and not (told.done or told.finished):  # a gateway's [DONE] is no end of this API's
                    scanned = replace(scanned, finished=False)
                settle_scan(exchange, stream, scanned, api.end)
                self._explain(exchange)
        elif exchange.status == outcome.OK:
            self._settle_whole(exchange, told)

    def _streamed(self, exchange: Exchange) -> bool:
        """The answer is a stream, asked for or not.

        A whole object is a stream of one line, so lines are where they were asked for.
        """
        if self._api.framing == "ndjson":
            return self._api.stream
        media = outcome.media_type(exchange)
        if media == "text/event-stream":
            return True
        return media != "application/json" and bytes(exchange.body[:6]).startswith(
            _SSE_BEGINS
        )  # a proxy dropped the header

    def _read(self, told: Told, event: Any, name: bytes = b"") -> int:
        if type(event) is not dict:
            told.bad = f"an event is not a JSON object but of type {type(event).__name__}"
            return NOTHING
        if "error" in event or name == b"error" or event.get("object") == "error":
            told.fault = tokens.fault_of(event, name == b"error")
            if told.fault is not None:
                return NOTHING
        kind = self._api.read(told, event)
        if told.done or told.finished:
            self._judge_reason(told)
        return kind

    def _judge_reason(self, told: Told) -> None:
        """At the end of an answer: it must say why it ended, and not that it was given up."""
        if told.fault is None and told.reason:
            told.fault = tokens.given_up(told.reason, self._api.reason or "finish reason")
        if told.bad is None and told.done and not told.reason and self._api.reason:
            told.bad = tokens.unreasoned(self._api.reason)

    def _explain(self, exchange: Exchange) -> None:
        """An error in a line that is no data says more than that the stream was cut."""
        if exchange.status == outcome.PROTOCOL and self._api.framing == "sse":
            reported = ERROR_LINE.search(exchange.body)
            if reported is not None:
                outcome.fail(exchange, outcome.HTTP, outcome.excerpt(reported[1]))

    def _settle_whole(self, exchange: Exchange, told: Told) -> None:
        """An answer in one piece: no chunk times, and tokens only where the server counts them."""
        api = self._api
        answer = outcome.load_object(exchange)
        if answer is None:
            return
        kind = self._read(told, answer)
        outcome.count_usage(exchange, told.n_in, -1)
        outcome.count_cached(exchange, told.cached)
        exchange.server_timing = tokens.timing_of(answer.get("server_timing")) or told.timing or exchange.server_timing
        if told.fault is not None:
            outcome.fail_by(exchange, told.fault)
        elif told.bad is not None or not (kind or told.finished or told.done):
            text = told.bad or f"the body is not an answer of {api.name}: {outcome.excerpt(exchange.body)}"
            outcome.fail(exchange, outcome.PROTOCOL, text)
        else:
            outcome.count_usage(exchange, -1, told.n_out)


def accepted(stream: bool, framed: str = "sse") -> bytes:
    """The media type to ask for."""
    if not stream:
        return b"application/json"
    return b"text/event-stream" if framed == "sse" else b"application/x-ndjson"


def json_headers(stream: bool, framed: str = "sse") -> dict[str, str]:
    """The headers that every request to a JSON API has."""
    return {
        "accept": accepted(stream, framed).decode(),
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "plimsoll",
    }


def route(url: str, ending: str, path: str | None = None) -> str:
    """The request target for a URL and a route without a version: the URL's own path if it ends there already, else
    both.

    ``path`` replaces the whole path. The URL's query is kept unless ``path`` brings its own.
    """
    own, query = split_url(url)
    found = path or (own if own.endswith(ending) else own + ending)
    return found if "?" in found or not query else f"{found}?{query}"


def check_one_choice(fields: Mapping[str, Any], where: str, stream: bool) -> None:
    """Raise ValueError where ``fields`` of a request ask for more than one answer in one stream."""
    asked = [name for name in ("n", "n_cmpl", "best_of") if type(fields.get(name)) is int and fields[name] > 1]
    if stream and asked:
        named = " and ".join(f"{where}.{name}: {fields[name]}" for name in asked)
        raise ValueError(f"{named}: {tokens.SEVERAL}")


def prompt_of(payload: Payload, protocol: str, instead: str = "") -> str:
    """The payload's prompt; the text of its one message where it has messages. ``instead``: what else could be done,
    for the error. Raises HarnessFault.
    """
    if payload.prompt is not None:
        return payload.prompt
    if (
        payload.messages is not None
        and len(payload.messages) == 1
        and isinstance(payload.messages[0].get("content"), str)
    ):
        return str(payload.messages[0]["content"])
    data = f" but data ({', '.join(map(str, list(payload.data)[:3]))})" if payload.data else ""
    raise HarnessFault(f"{protocol}: the payload has no prompt{data}. Use a text source{instead}")


def messages_of(payload: Payload, protocol: str) -> list[dict[str, Any]]:
    """The payload's messages; its prompt as one of the user. Raises HarnessFault."""
    if payload.messages is not None:
        return list(payload.messages)
    if payload.prompt is not None:
        return [{"role": "user", "content": payload.prompt}]
    raise HarnessFault(f"{protocol}: the payload has neither messages nor a prompt. Use a text source")


def mergeable(own: frozenset[str] = frozenset()) -> AfterValidator:
    """Of options that are merged into a body, whose fields ``own`` are not theirs to set."""

    def checked(extra: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(own & extra.keys())
        if taken:
            raise ValueError(f"it may not set {', '.join(taken)}. Use the options, target.model or the payload source")
        try:
            orjson.dumps(extra)
        except TypeError as error:
            raise ValueError(
                f"it can't be written as JSON ({error}). Use strings, numbers, lists and mappings"
            ) from None
        return extra

    return AfterValidator(checked)
