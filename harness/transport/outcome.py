"""This module decides what a finished HTTP response says about success, and writes it on the exchange.

It works off the clock and never raises, whatever the bytes. A response that the transport gave up keeps the transport's
status, except that a server's own word (an error status, an error event) explains a broken connection better.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
import orjson

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.secrecy.redaction import cut
from plimsoll.harness.wire.sse import IntArray
from plimsoll.harness.wire.tokens import Fault
from plimsoll.slo.records.records import Status, TokensFrom

OK, HTTP, PROTOCOL, REFUSED = int(Status.OK), int(Status.HTTP), int(Status.PROTOCOL), int(Status.REFUSED)
CONNECT = int(Status.CONNECT)
#: Characters of an error body that are kept.
EXCERPT = 300
#: Characters of a whole error text that are kept.
LONGEST = 1024
#: An answer's word that it is not to be asked for again.
NEVER = -2
_RETRY_INFO = b"type.googleapis.com/google.rpc.RetryInfo"
#: Status codes by which a server sheds load.
SHED = frozenset({429, 503})


def header(exchange: Exchange, name: bytes) -> str | None:
    """All values of a header, joined by commas (RFC 9110 section 5.3); ``name`` in lower case. None:
    absent.
    """
    values = [value for key, value in exchange.headers if key == name]
    return b", ".join(values).decode("latin-1") if values else None


def media_type(exchange: Exchange) -> str:
    """The content-type without its parameters, in lower case; "" if there is none."""
    return (header(exchange, b"content-type") or "").split(";", 1)[0].strip().lower()


def excerpt(body: bytes | bytearray) -> str:
    """The first 300 characters of a body, white space collapsed, unprintable characters as ``?``, redacted before it is
    cut.
    """
    return shown(bytes(body[: 8 * EXCERPT]).decode("utf-8", "replace"))


def shown(text: str, limit: int = EXCERPT) -> str:
    """A peer's words as an error text may hold them: as ``excerpt``."""
    text = " ".join(text[: 8 * limit].split())
    return cut("".join(char if char.isprintable() else "?" for char in text), limit)


def fail(exchange: Exchange, status: int, error: str) -> None:
    """Record a failure seen in the response. Only a success, or a connection that broke or was reset after an answer
    had begun (for what the server itself said: HTTP, REFUSED), is overwritten; a time-out or a cancellation stays what
    it was.
    """
    broke = exchange.status == PROTOCOL or (exchange.status == CONNECT and exchange.code >= 0)
    if exchange.status == OK or (broke and status in (HTTP, REFUSED)):
        exchange.status = status
        exchange.error = cut(error, LONGEST) or "the server reported an error, and its text is empty"


def fail_by(exchange: Exchange, fault: Fault) -> None:
    """Record the server's own error report: REFUSED when it shed the load, else HTTP."""
    fail(exchange, REFUSED if fault.overloaded else HTTP, shown(fault.message))


def judge_code(exchange: Exchange, success: Collection[int] = range(200, 300), shed: Collection[int] = SHED) -> bool:
    """Judge the status line; true if the body is worth reading. Also keeps the server-timing header. ``shed``: the
    codes of an overload.
    """
    exchange.server_timing = header(exchange, b"server-timing")
    code = exchange.code
    if code < 0:
        fail(exchange, PROTOCOL, "the response has no status line")
        return False
    if code in success:
        return True
    text = f"HTTP {code}: {excerpt(exchange.body)}" if exchange.body else f"HTTP {code}"
    location = header(exchange, b"location")
    if 300 <= code < 400 and location:
        text = f"HTTP {code} to {shown(location)}: redirects are not followed. Give that URL as the target"
    fail(exchange, REFUSED if code in shed else HTTP, text)
    return False


def readable(exchange: Exchange) -> bool:
    """False, and a failure, if the body is compressed although ``accept-encoding: identity`` was sent."""
    encoding = (header(exchange, b"content-encoding") or "identity").strip().lower()
    if encoding == "identity":
        return True
    fail(exchange, PROTOCOL, f"the body is {shown(encoding, 40)!r} encoded although identity was asked for")
    return False


def load_object(exchange: Exchange, size: int | None = None) -> dict[str, Any] | None:
    """The body (its first ``size`` bytes) as a JSON object, or None and a failure: PROTOCOL if it is none."""
    if not readable(exchange):
        return None
    try:
        value = orjson.loads(exchange.body if size is None else exchange.body[:size])
    except orjson.JSONDecodeError:
        what = f"not JSON: {excerpt(exchange.body)}" if exchange.body else "empty"
        fail(exchange, PROTOCOL, f"the body is {what}")
        return None
    if isinstance(value, dict):
        return value
    fail(exchange, PROTOCOL, f"the body is not a JSON object: {excerpt(exchange.body)}")
    return None


def stamp_chunks(exchange: Exchange, times: IntArray, output: Sequence[int], first_answer: int) -> None:
    """Fill the chunk fields: ``times`` int64[n] ns of all events, ``output`` the indices of those with
    output.
    """
    chosen = times if len(output) == len(times) else times[np.asarray(output, dtype=np.int64)]
    put_chunks(exchange, array("q", chosen.tobytes()), int(times[first_answer]) if first_answer >= 0 else -1)


def put_chunks(exchange: Exchange, chunk_ns: array[int], first_answer_ns: int) -> None:
    """Fill the chunk fields: arrivals of the chunks with output, and of the first with answer (-1: none)."""
    exchange.chunk_ns = chunk_ns
    exchange.n_chunks = len(chunk_ns)
    exchange.first_token_ns = chunk_ns[0] if len(chunk_ns) else -1
    exchange.last_token_ns = chunk_ns[-1] if len(chunk_ns) else -1
    exchange.first_answer_ns = first_answer_ns


def count_usage(exchange: Exchange, n_in: int, n_out: int) -> None:
    """Fill in what the server itself counted, prompt and output tokens; -1: it did not say."""
    if n_in >= 0:
        exchange.n_in = n_in
        exchange.n_in_from = int(TokensFrom.USAGE)
    if n_out >= 0:
        exchange.n_out = n_out
        exchange.tokens_from = int(TokensFrom.USAGE)


def count_cached(exchange: Exchange, cached: int) -> None:
    """Fill in how many prompt tokens a cache had, as the server counts them; -1: it did not say."""
    if cached >= 0:
        exchange.labels = {**(exchange.labels or {}), "cached_tokens": cached}


def retry_after_s(exchange: Exchange) -> int:
    """How many seconds an answer says to wait (RFC 9110 section 10.2.3); -1: it says nothing that can be read.

    A date counts from the answer's own ``Date``; without that nobody knows.
    """
    said = (header(exchange, b"retry-after") or "").strip()
    seconds = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else -1
    if said and seconds < 0:
        try:
            until, now = (parsedate_to_datetime(text) for text in (said, header(exchange, b"date") or ""))
            seconds = max(0, math.ceil((until - now).total_seconds()))
        except (ValueError, TypeError, OverflowError):
            return -1
    return seconds


def told_ns(exchange: Exchange) -> int:
    """How long a failed call was told to wait: by ``grpc-retry-pushback-ms`` (gRFC A6: what is no number of
    milliseconds means never), a google.rpc.RetryInfo of its details, or ``retry-after``; -1: it was not told.
    """
    pushback = header(exchange, b"grpc-retry-pushback-ms")
    if pushback is not None:
        return int(pushback) * 1_000_000 if pushback.isascii() and pushback.isdigit() and len(pushback) < 10 else NEVER
    details = next((value for name, value in exchange.headers if name == b"grpc-status-details-bin"), b"")
    for number, detail in _fields(details):
        parts = dict(_fields(detail)) if number == 3 and isinstance(detail, bytes) else {}
        if parts.get(1, b"") == _RETRY_INFO and isinstance(parts.get(2), bytes):
            delay = dict(_fields(dict(_fields(parts[2])).get(1, b"")))
            seconds, nanos = (delay.get(part, 0) for part in (1, 2))
            if isinstance(seconds, int) and isinstance(nanos, int) and seconds < 10**9 and nanos < 10**9:
                return seconds * 10**9 + nanos
    seconds = retry_after_s(exchange)
    return seconds * 10**9 if seconds >= 0 else -1


def _fields(data: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message as far as they can be read: (number, value), of numbers and of bytes."""
    at, values = 0, data if isinstance(data, bytes) else b""
    while at < len(values):
        key, at = _varint(values, at)
        value, at = _varint(values, at)
        if key & 7 == 2:
            yield key >> 3, values[at : at + value]
            at += value
        elif key & 7 == 0:
            yield key >> 3, value
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            break
    return value, at


def keep_retry_after(exchange: Exchange) -> None:
    """Of a refused request: how many seconds it was told to wait, rounded up, as a label."""
    if (told := told_ns(exchange)) >= 0:
        exchange.labels = {"retry_after": -(-told // 10**9), **(exchange.labels or {})}


def count_tokens(exchange: Exchange, n_in: int, n_out: int, ended: bool) -> None:
    """Fill the token counts: the server's where it gives them, else the number of output chunks.

    A usage of 0 for a stream that brought output is not believed. ``ended``: a stream without output that
    came to its end had 0 tokens; one that was cut has an unknown number.
    """
    count_usage(exchange, n_in, -1)
    if n_out > 0 or (n_out == 0 and exchange.n_chunks == 0):
        exchange.n_out = n_out
        exchange.tokens_from = int(TokensFrom.USAGE)
    elif exchange.n_chunks or ended:
        exchange.n_out = exchange.n_chunks
        exchange.tokens_from = int(TokensFrom.CHUNKS)
