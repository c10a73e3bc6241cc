"""What a streaming request under Locust means: how its bytes are read and stamped, and which figures Locust shows.

It works without Locust: the HTTP client hands over an object with ``readline`` and ``read``, and the clock. The
dialects of ``plimsoll run`` take the answer apart after it is over, so a token means the same in both. Arrival times
are userland stamps: a busy process takes them late, and never early. Nothing here sends, waits, prints or judges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import problems
from plimsoll.harness.protocols.http import HttpDialect, HttpOptions
from plimsoll.harness.protocols.openai import GenerationDialect
from plimsoll.harness.secrecy.secrets import learn_target
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.held import oversized, reading
from plimsoll.harness.transport.http.dialect import join_path
from plimsoll.slo.records.records import Stamp, Status, TokensFrom

#: Where chat completions are, below an OpenAI-compatible server's origin or base URL.
CHAT = "/v1/chat/completions"
#: Framings of a stream whose messages can be told apart by lines: a reader by lines stamps them rightly.
FRAMINGS = ("sse", "ndjson", "lines", "none")
#: Answers up to this size are taken apart without a question.
_SMALL = 1 << 20
_CUT = "the user was stopped while it waited for the answer: raise --stop-timeout"


class Lines(Protocol):
    """A response body as the HTTP client gives it."""

    def readline(self, sep: bytes = b"\r\n") -> bytes:
        """The next line with its end, as soon as it has arrived; b"" at the end of the body."""

    def read(self) -> bytes:
        """What is left."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How answers of one kind are taken apart (``settle``), and what is asked for (``accept``)."""

    settle: Callable[[Exchange], None]
    accept: str


def chat_reader(url: str, headers: Mapping[str, str]) -> Reader:
    """OpenAI-style chat completions, streamed or not. ``headers`` may hold secrets, which no error text repeats."""
    return Reader(
        GenerationDialect(Target(url, "openai-chat", headers=tuple(headers.items())), chat=True).settle,
        "text/event-stream",
    )


def stream_reader(url: str, headers: Mapping[str, str], options: Mapping[str, Any]) -> Reader:
    """Any answer, by the options of the ``http`` protocol that say how to read one (``framing``, ``text_path``, ...).

    Raises HarnessFault with every wrong option.
    """
    asked = {"framing": "sse", **options}
    wrong = [f"stream(): {text}" for text in problems(HttpOptions, asked)]
    if not wrong and asked["framing"] not in FRAMINGS:
        wrong = [f"stream(): framing: {asked['framing']!r} can't be read by lines. Give one of {', '.join(FRAMINGS)}"]
    if wrong:
        raise HarnessFault(wrong)
    dialect = HttpDialect(Target(url, "http", headers=tuple(headers.items()), options=asked))
    return Reader(dialect.settle, dialect.accept.decode())


def known(before: Sequence[tuple[str, str]], url: str, headers: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """``headers``, once no text of ours can repeat what is secret in them. ``before``: those known already."""
    if headers != before:
        learn_target(headers, {}, url)
    return headers


def endpoint(host: str, route: str) -> str:
    """The URL of a versioned route below ``host``, which may have a base path. Raises HarnessFault."""
    parts = urlsplit(host)
    return f"{parts.scheme}://{parts.netloc}{join_path(host, route)}"


def chat_body(model: str, messages: str | Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> bytes:
    """A chat request that streams and asks for usage. Text is one message of the user; ``fields`` come last."""
    body: dict[str, Any] = {"model": model} if model else {}
    body["messages"] = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    body |= {"stream": True, "stream_options": {"include_usage": True}, **fields}
    if not body["stream"] and "stream_options" not in fields:
        del body["stream_options"]
    return json_body(body)


def json_body(value: object) -> bytes:
    """Raises HarnessFault for what JSON can't hold."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise HarnessFault(
            f"the request can't be written as JSON: {error}. Use strings, numbers, lists and mappings"
        ) from None


def begin(query_id: int, body: bytes, now_ns: int) -> Exchange:
    """An exchange that is sent now. Users wait for answers, so due, ready and sent are one."""
    exchange = Exchange(query_id, 0, -1, now_ns, None)
    exchange.ready_ns = exchange.sent_ns = now_ns
    exchange.bytes_out = len(body)
    exchange.stamp = int(Stamp.USER)
    return exchange


class Response(Protocol):
    """What the HTTP client returns once the head of a response is here, or an error is certain."""

    @property
    def status_code(self) -> int:
        """0: no response."""

    @property
    def headers(self) -> Any:
        """``items()`` gives pairs of text; None: no response."""

    @property
    def content(self) -> bytes | None:
        """The body of a response with an error status."""

    @property
    def stream(self) -> Lines:
        """The body of any other."""


def ask(exchange: Exchange, reader: Reader, send: Callable[[], Response], now_ns: Callable[[], int]) -> None:
    """Send, read and take apart. An exception that ends the user (no ``Exception``) goes on, with the row complete."""
    error: BaseException | None = None
    try:
        response = send()
        error = getattr(response, "error", None)
        if response.status_code:
            exchange.first_byte_ns = exchange.headers_ns = now_ns()
            exchange.code = response.status_code
            pairs = response.headers.items()
            exchange.headers = [(name.lower().encode("latin-1"), str(value).encode("latin-1")) for name, value in pairs]
            if error is None:
                read(exchange, response.stream, now_ns)
            else:  # a status of 400 or more: the client has read the body already, and the status says it all
                exchange.body += response.content or b""
                error = None
    except Exception as caught:  # noqa: BLE001 - whatever the client raises is how this request failed
        error = caught
    except BaseException:
        stopped(exchange, reader, now_ns())
        raise
    finished(exchange, reader, error, now_ns())


def read(exchange: Exchange, lines: Lines, now_ns: Callable[[], int]) -> None:
    """Hot: take the body as it comes, one mark a line. Raises what the HTTP client raises; what had come is kept."""
    body, mark_ns, mark_end = exchange.body, exchange.mark_ns, exchange.mark_end
    readline = lines.readline
    while line := readline(b"\n"):
        body += line
        mark_ns.append(now_ns())
        mark_end.append(len(body))
    rest = lines.read()  # a last line without its end
    if rest:
        body += rest
        mark_ns.append(now_ns())
        mark_end.append(len(body))


def finished(exchange: Exchange, reader: Reader, error: BaseException | None, now_ns: int) -> None:
    """The response is over, or broke with ``error``: say how it ended, then take it apart."""
    exchange.done_ns = max(now_ns, exchange.sent_ns)
    exchange.bytes_in = len(exchange.body)
    if error is None:
        exchange.status = int(Status.OK)
    else:
        exchange.status, said = _told(exchange, error)
        exchange.error = outcome.shown(said, outcome.LONGEST)
    if exchange.code >= 0:
        if len(exchange.body) > _SMALL:
            oversized(exchange, reading())
        reader.settle(exchange)


def stopped(exchange: Exchange, reader: Reader, now_ns: int) -> None:
    """The test ended while this request waited: nobody knows how it would have gone, and it has a row all the same."""
    finished(exchange, reader, None, now_ns)
    exchange.status, exchange.error = int(Status.UNFINISHED), _CUT


def _told(exchange: Exchange, error: BaseException) -> tuple[int, str]:
    """The status and the words for an exception of the HTTP client, which may wrap the one that says more."""
    original = getattr(error, "original", None)
    error = original if isinstance(original, BaseException) else error
    what = " ".join((getattr(error, "strerror", None) or str(error)).split()) or type(error).__name__
    if isinstance(error, TimeoutError):
        return int(Status.TIMEOUT), f"time-out: nothing came for as long as network_timeout allows ({what})"
    if exchange.code >= 0:
        n = exchange.body.count(b"\n\n")
        return int(Status.PROTOCOL), f"the connection broke inside the answer, after {n} events ({what})"
    broke = isinstance(error, OSError) or "Closed" in type(error).__name__
    return int(Status.CONNECT if broke else Status.PROTOCOL), f"no answer: {what}"


class Answer:
    """One answer, over and taken apart. Durations are milliseconds, as everywhere in Locust; None: there was none.

    As a context manager (``catch_response=True``) it is reported when the block ends, and ``failure(...)`` or
    ``success()`` decide what it counts as.
    """

    __slots__ = ("_report", "exchange")

    def __init__(self, exchange: Exchange, report: Callable[[Exchange], None]) -> None:
        self.exchange = exchange
        self._report: Callable[[Exchange], None] | None = report

    @property
    def ok(self) -> bool:
        """It succeeded: a good status, a whole stream, no error in it."""
        return self.exchange.status == outcome.OK

    @property
    def error(self) -> str | None:
        """Why it failed."""
        return self.exchange.error

    @property
    def status_code(self) -> int:
        """The HTTP status; 0: no response."""
        return max(self.exchange.code, 0)

    @property
    def body(self) -> bytes:
        """The whole body as it came, framing included."""
        return bytes(self.exchange.body)

    @property
    def ttlb_ms(self) -> float:
        """From the send to the last byte."""
        return (self.exchange.done_ns - self.exchange.sent_ns) / 1e6

    @property
    def ttft_ms(self) -> float | None:
        """From the send to the first output, reasoning included."""
        first = self.exchange.first_token_ns
        return (first - self.exchange.sent_ns) / 1e6 if first >= 0 else None

    @property
    def tpot_ms(self) -> float | None:
        """The mean time per output token after the first."""
        exchange = self.exchange
        if exchange.n_out < 2 or exchange.first_token_ns < 0:
            return None
        return (exchange.last_token_ns - exchange.first_token_ns) / (exchange.n_out - 1) / 1e6

    @property
    def itl_ms(self) -> list[float]:
        """The gaps between chunks that carried output. Chunks of one read have a gap of 0."""
        return [(later - earlier) / 1e6 for earlier, later in pairwise(self.exchange.chunk_ns)]

    @property
    def output_tokens(self) -> int | None:
        """By the server's usage where it said so, else the number of chunks: see ``tokens_from``."""
        return self.exchange.n_out if self.exchange.n_out >= 0 else None

    @property
    def tokens_from(self) -> str:
        """``usage``, ``chunks`` (an estimate) or ``none``."""
        return TokensFrom(self.exchange.tokens_from).name.lower()

    def failure(self, error: str | Exception) -> None:
        """Count this answer as a failure, whatever the server said of it."""
        self.exchange.status = int(Status.HTTP)
        self.exchange.error = outcome.shown(str(error)) or "marked as a failure"

    def success(self) -> None:
        """Count this answer as a success, whatever its status."""
        self.exchange.status = int(Status.OK)
        self.exchange.error = None

    def report(self) -> None:
        """Hand it to Locust and keep its row; only the first call does."""
        report, self._report = self._report, None
        if report is not None:
            report(self.exchange)

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """An AssertionError in the block is a failure of the answer; any other exception goes on."""
        wrong = isinstance(error, AssertionError)
        if wrong:
            self.failure(str(error) or "an assertion about the answer failed")
        self.report()
        return wrong


def entries(answer: Answer) -> list[tuple[str, float]]:
    """What Locust shows besides the request itself: (request type, milliseconds), TTFT and TPOT once, ITL for each gap.

    A failed stream has what came before it failed, except TPOT: half an answer has no mean.
    """
    found = [("TTFT", answer.ttft_ms)] if answer.ttft_ms is not None else []
    if answer.ok and answer.tpot_ms is not None:
        found.append(("TPOT", answer.tpot_ms))
    return found + [("ITL", gap) for gap in answer.itl_ms]
