"""What a scenario's ``labels:`` find in answers, once they are taken apart: headers, trailers, members of JSON.

``header NAME`` is the first value of that name, ``trailer NAME`` the last: both stand in one list, headers first.
``body PATH`` is the member of a whole JSON answer, or of the last event or message of a stream that has it. A label is
a text or none: lists and objects are none. Nothing here is on the clock.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import orjson

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.secrecy.redaction import MASK
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec
from plimsoll.harness.transport.held import WORST, reading, text_cost
from plimsoll.harness.transport.rpc.call import messages_of
from plimsoll.harness.wire import framing, pointer
from plimsoll.scenarios.text.labels import fallback_of, of_answers, origin_of

#: Characters of a value that are kept.
LONGEST = 200
#: Of each label a worker keeps so many different values, and of all labels together so many characters.
VALUES, CHARS = 1 << 16, 16 << 20
#: What looks like a credential, whosever it is: a scheme and a token, a JSON web token, keys with a known beginning.
_CREDENTIAL = re.compile(
    r"(?i:bearer|basic)\s+[\w+/=.~-]{12,}|\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"
    r"|\b(?:sk|pk|rk|gh[opsu]|xox[abprs]|hf|nvapi|glpat)[-_][\w-]{16,}|\bAKIA[0-9A-Z]{16}\b"
)
_FRAMED = "length-prefixed"
Find = Callable[[Exchange], str | None]
#: (a finished exchange, bytes without which nothing of interest is there) -> decoded JSON, the last first.
_Pieces = Callable[[Exchange, bytes], Iterator[Any]]


class Capture:
    """The labels of one worker's answers. ``framed``: how a stream is framed, where the target's options say it;
    ``response``: the type of a gRPC answer's messages; ``degraded``: what tells an answer of a fallback.
    """

    def __init__(
        self, labels: Mapping[str, str], framed: str = "", response: Any = None, degraded: str | None = None
    ) -> None:
        pieces: _Pieces = partial(_values, framed=framed, most=reading())
        if response is not None:
            pieces = partial(_messages, response)
        self._find = {name: _finder(*place, pieces) for name, place in of_answers(labels).items()}
        self._degraded, self._fallback = None, ""
        if degraded is not None:
            place, self._fallback = fallback_of(degraded)
            self._degraded = _finder(*origin_of(place), pieces)
        self._shown: dict[str, dict[str, str]] = {name: {} for name in self._find}
        self._left = CHARS
        self._dropped = Counter[str]()

    def __bool__(self) -> bool:
        return bool(self._find) or self._degraded is not None

    def after(self, settle: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
        """``settle``, and then read the labels, if there are any."""
        if not self:
            return settle

        def settle_and_read(exchange: Exchange) -> None:
            settle(exchange)
            labels = exchange.labels = exchange.labels or {}
            for name, find in self._find.items():
                labels[name] = self._kept(name, find(exchange))
            if self._degraded is not None and exchange.status == outcome.OK:
                found = self._degraded(exchange) or ""
                wanted = self._fallback
                labels["degraded"] = int(found == wanted if wanted else found not in ("", "0", "false"))

        return settle_and_read

    def _kept(self, name: str, value: str | None) -> str | None:
        """A value as rows may hold it; none of one too many."""
        if not value:
            return None
        value = value[: 8 * LONGEST]
        known = self._shown[name]
        shown = known.get(value)
        if shown is None:
            if len(known) >= VALUES or self._left <= 0:
                self._dropped[name] += 1
                return None
            shown = known[value] = outcome.shown(_CREDENTIAL.sub(MASK, value), LONGEST)
            self._left -= len(value) + len(shown)
        return shown

    def notes(self) -> list[str]:
        """What was not kept, in words."""
        return [
            f"label {name} of {count:,} answers was not kept: more different values came than a worker keeps "
            f"({VALUES:,} of a label, {CHARS >> 20} million characters together). Name a label with fewer values"
            for name, count in self._dropped.items()
        ]


def _finder(origin: str, what: str, pieces: _Pieces) -> Find:
    if origin == "body":
        path = pointer.parse(what)
        named = next((step for step in reversed(path) if isinstance(step, str)), "")
        # A name in ASCII stands in the bytes as it is; one that a server might write with escapes does not.
        needle = orjson.dumps(named) if named.isascii() else b""
        return lambda exchange: _member(pieces(exchange, needle), path)
    name, trailing = what.encode(), origin == "trailer"

    def find(exchange: Exchange) -> str | None:
        headers = reversed(exchange.headers) if trailing else exchange.headers
        return next((value.decode("latin-1") for key, value in headers if key == name), None)

    return find


def _member(pieces: Iterator[Any], path: pointer.Pointer) -> str | None:
    found = (pointer.find(piece, path) for piece in pieces)
    return next((_text(value) for value in found if value is not pointer.MISSING), None)


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode() if isinstance(value, bool | int | float) else None


def _values(exchange: Exchange, needle: bytes, framed: str, most: int) -> Iterator[Any]:
    """What of an answer is JSON and may hold the member, the last event first; nothing of one that could need more than
    ``most`` bytes of memory.
    """
    body = exchange.body
    if needle not in body or (len(body) * WORST > most and text_cost(exchange) > most):
        return
    if framed == _FRAMED or (exchange.session is not None and exchange.session.texts):
        yield from _loaded(_pieces(exchange, framed))
        return
    try:
        yield orjson.loads(body)
        return
    except orjson.JSONDecodeError:
        pass
    end = len(body)
    while end > 0 and (at := body.rfind(needle, 0, end)) >= 0:
        begin, stop = body.rfind(b"\n", 0, at) + 1, body.find(b"\n", at)
        line = bytes(body[begin : stop if stop >= 0 else len(body)]).strip().removeprefix(b"data:")
        end = begin - 1
        if not needle and not line.lstrip().startswith(b"{"):
            continue
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:  # an event of several lines: read as the event-stream rules have it
            stream = framing.take_apart(body, exchange.mark_ns, exchange.mark_end, "sse")
            yield from _loaded(reversed(stream.payloads))
            return


def _pieces(exchange: Exchange, framed: str) -> Iterator[bytes]:
    """Messages, the last first."""
    if framed == _FRAMED:
        yield from reversed(framing.take_apart(exchange.body, exchange.mark_ns, exchange.mark_end, _FRAMED).payloads)
        return
    bounds = [0, *exchange.mark_end]
    for begin, end in zip(reversed(bounds[:-1]), reversed(bounds[1:]), strict=True):
        yield bytes(exchange.body[begin:end])


def _messages(kind: Any, exchange: Exchange, needle: bytes) -> Iterator[Any]:
    """The JSON form of a gRPC answer's messages, the last first."""
    from plimsoll.harness.protocols._grpc.protobuf_json import read, to_json  # no other protocol needs protobuf

    for data in reversed([*messages_of(exchange)]):
        message = read(kind, data)
        if message is not None:
            yield to_json(message, kind.DESCRIPTOR.file.pool)


def _loaded(pieces: Iterable[bytes]) -> Iterator[Any]:
    for piece in pieces:
        try:
            yield orjson.loads(piece)
        except orjson.JSONDecodeError:
            continue


def mistakes(labels: Mapping[str, str], spec: ProtocolSpec) -> list[str]:
    """Every label that this protocol's answers can't have, as ``labels.NAME: why. next step``."""
    found = []
    for name, (origin, what) in of_answers(labels).items():
        why = ""
        if origin not in spec.says:
            able = " or ".join(spec.says)
            why = f"answers of {spec.name} have no {origin}. " + (f"Use {able}" if able else "Leave the label out")
        elif origin == "body":
            try:
                path = pointer.parse(what)
                if not any(isinstance(step, str) for step in path):
                    why = f"path {what!r} names no member. Write it like $.model or choices[0].finish_reason"
            except ValueError as error:
                why = str(error)
        if why:
            found.append(f"labels.{name}: {why}")
    return found
