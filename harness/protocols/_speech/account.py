"""What the messages of one session told, in the vocabulary of ``events``: kept while a client file walks through them. Pure.

A client file says what one message means; here are the segment that is being spoken, the decoding of sound, and the putting of it
all onto the exchange. Nothing here raises, whatever the bytes.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._speech.codecs import Decoder
from plimsoll.harness.protocols._speech.events import Endpoint, Event, Sound, Transcript
from plimsoll.harness.protocols._speech.live_messages import OVERLOADED, Said, conclude, read, while_open
from plimsoll.harness.protocols._speech.recognition import put_transcripts
from plimsoll.harness.protocols._speech.synthesis import put_sounds
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.http.dialect import split_url
from plimsoll.harness.transport.live.handshake import http_url
from plimsoll.harness.wire.tokens import Fault
from plimsoll.slo.records.session_columns import PACE_CAPTURE, PACE_EAGER

#: Paces at which audio comes as from a microphone, so that a server hears silence for as long as it lasts.
LIVE_PACES = (PACE_CAPTURE, PACE_EAGER)


@dataclass(slots=True)
class Account:
    """Events and sounds in their order; ``fault`` is the server's own word that it failed, ``broken`` why reading ended."""

    events: list[Event] = field(default_factory=list)
    sounds: list[Sound] = field(default_factory=list)
    fault: Fault | None = None
    broken: str | None = None
    segment: int = 0

    def heard(self, t_ns: int, text: str, final: bool, cursor_ns: int = -1) -> None:
        """The present segment's text; a final one ends it."""
        self.events.append(Transcript(t_ns, self.segment, text, final, cursor_ns))
        if final:
            self.segment += 1

    def ended(self, t_ns: int) -> None:
        """The speaker has finished, says the server."""
        self.events.append(Endpoint(t_ns))

    def reached(self, cursor_ns: int) -> None:
        """The latest transcript went so far: some services say it in a message of its own."""
        for i in range(len(self.events) - 1, -1, -1):
            event = self.events[i]
            if isinstance(event, Transcript):
                self.events[i] = replace(event, cursor_ns=cursor_ns)
                return

    def sounded(self, t_ns: int, data: bytes, play: Decoder) -> None:
        """Audio bytes as they came."""
        try:
            samples = play.feed(data)
        except ValueError as error:
            self.broken = f"the audio can't be decoded: {error}"
            return
        if len(samples):
            self.sounds.append(Sound(t_ns, samples, play.rate))

    def sounded_base64(self, t_ns: int, value: Any, play: Decoder) -> None:
        """Audio as base64 text; None and "" are no audio."""
        if value is None or value == "":
            return
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            self.broken = f"the audio is not base64: {error}"
            return
        self.sounded(t_ns, data, play)


#: Tells one message: (account, arrival ns, JSON object or binary data).
Teller = Callable[[Account, int, Any], None]


def account_of(said: Said, tell: Teller) -> tuple[Account, Said]:
    """Tell every message, up to one that reports a failure or can't be read: (what was told, what was said up to there)."""
    account = Account()
    for number, (t_ns, message) in enumerate(said.messages, 1):
        tell(account, t_ns, message)
        if account.fault is not None or account.broken is not None:
            broken = None if account.broken is None else f"message {number}: {account.broken}"
            return account, Said(said.messages[:number], broken)
    return account, said


def recognised(
    exchange: Exchange,
    tell: Teller,
    normaliser: str,
    said: Said | None = None,
    overloaded: Collection[int] = OVERLOADED,
) -> None:
    """A finished session of speech to text onto its exchange: transcripts and endpoints, then its failure if there was one."""
    account, up_to = account_of(read(exchange) if said is None else said, tell)
    if exchange.session is not None and exchange.session.open_ns >= 0:
        put_transcripts(exchange, _clip_of(exchange), while_open(exchange, account.events), normaliser)
    conclude(exchange, up_to, account.fault, overloaded)


def synthesised(
    exchange: Exchange,
    tell: Teller,
    said: Said | None = None,
    overloaded: Collection[int] = OVERLOADED,
    play: Decoder | None = None,
) -> None:
    """A finished session of text to speech onto its exchange: sounds, then its failure; one without any sound is a failure.

    ``play`` is asked for what it still holds of the sound: it came with the last chunk.
    """
    account, up_to = account_of(read(exchange) if said is None else said, tell)
    if play is not None and account.sounds:
        with contextlib.suppress(ValueError):  # a stream that was cut in a frame has no more of it
            account.sounds.append(replace(account.sounds[-1], samples=play.finish()))
    if exchange.session is not None and exchange.session.open_ns >= 0:
        put_sounds(exchange, account.sounds)
    conclude(exchange, up_to, account.fault, overloaded)
    if not account.sounds:
        outcome.fail(exchange, outcome.PROTOCOL, "the session ended without any audio")


def _clip_of(exchange: Exchange) -> Any:
    return getattr(getattr(exchange.request, "script", None), "clip", None)


def objects_in(said: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects in a list member."""
    value = said.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def keyed(headers: Iterable[tuple[str, str]], name: str) -> tuple[tuple[str, str], ...]:
    """The headers with a bearer key under the service's own header instead, unless that is given."""
    pairs = tuple(headers)
    if name.lower() in {given.lower() for given, _ in pairs}:
        return pairs
    return tuple(_moved(given, value, name) for given, value in pairs)


def path_below(url: str, route: str) -> str:
    """A route of one segment below the URL's path, which may end with it already; the URL's query is left to others."""
    base, _ = split_url(http_url(url))
    if route == "/" or base.endswith(route):
        return base or "/"
    return base + route


def _moved(given: str, value: str, name: str) -> tuple[str, str]:
    scheme, _, key = value.partition(" ")
    return (name, key.strip()) if given.lower() == "authorization" and scheme.lower() == "bearer" else (given, value)


def value_of(message: bytes, key: bytes, most: int = 64) -> bytes:
    """What follows the first ``"key":`` of a JSON text, at most so many bytes; b"" without it. Hot: looks, parses nothing."""
    at = message.find(key)
    while at >= 0:
        rest = message[at + len(key) : at + len(key) + most].lstrip(b" \t\r\n")
        if rest[:1] == b":":
            return rest[1:].lstrip(b" \t\r\n")
        at = message.find(key, at + len(key))  # that was a value
    return b""


def input_over(exchange: Exchange) -> bool:
    """The latest message came when everything had been said, as planned. Hot."""
    stamps = exchange.session
    if stamps is None or stamps.media_start_ns < 0:
        return False
    closing_ns: int = exchange.request.script.closing_ns
    return exchange.mark_ns[-1] >= stamps.media_start_ns + closing_ns
