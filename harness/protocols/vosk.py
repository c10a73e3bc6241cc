"""vosk-server over WebSocket: PCM16 in, one JSON reply for each message of audio.

``partial`` may still change, ``text`` ends a segment: while audio is still to come it is the server's endpoint, and the
last one is the answer to ``{"eof" : 1}``, which the server compares as a string, spaces included. The server closes
when it has answered that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import Field

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.hearing import (
    Account,
    after_speech,
    member,
    ns_of,
    objects_in,
    path_below,
    read,
    recognised,
    text_at,
    value_of,
)
from plimsoll.harness.protocols._speech.sending import LiveOptions
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import ENDPOINT, NOTHING, Message, Script
from plimsoll.harness.transport.live.handshake import handshake_headers, request_target
from plimsoll.scenarios.samples.payload import Payload

_EOF = Message(b'{"eof" : 1}', True)


class VoskOptions(LiveOptions):
    """Options of ``vosk``; they go into the first message. ``config`` has further members of it."""

    sample_rate: int = Field(default=16_000, ge=8000, le=48_000)
    words: bool = True
    max_alternatives: int = Field(default=0, ge=0, le=100)
    phrase_list: list[str] | None = None
    config: dict[str, Any] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def sent_as(self) -> tuple[str, int]:
        return "pcm16", self.sample_rate


class VoskDialogue:
    """The configuration, the audio, and the word that ends it."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(VoskOptions, target.options)
        self._headers = handshake_headers(target.headers, "bearer")
        self._path = request_target(target.url, "/", options.path or path_below(target.url, "/"), {})
        config: dict[str, Any] = {"sample_rate": options.sample_rate, "words": options.words}
        if options.max_alternatives:
            config["max_alternatives"] = options.max_alternatives
        if options.phrase_list is not None:
            config["phrase_list"] = options.phrase_list
        self._opening = Message(orjson.dumps({"config": {**config, **options.config}}), True)

    def encode(self, payload: Payload) -> Script:
        return Script(
            self._path,
            self._headers,
            opening=(self._opening,),
            closing=(_EOF,),
            **self._options.live(payload, "vosk").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        value = value_of(message, b'"text"')
        ended = value.startswith(b'"') and not value.startswith(b'""')
        return ENDPOINT if ended and after_speech(exchange) else NOTHING

    def settle(self, exchange: Exchange) -> None:
        said = read(exchange)
        answered = exchange.status == outcome.OK and bool(said.messages)
        closing = said.messages[-1][1] if answered else None

        def tell(account: Account, t_ns: int, message: Any) -> None:
            _tell(account, t_ns, message, message is closing)

        recognised(exchange, tell, self._options.audio.normaliser, said)
        if said.broken is None and not (isinstance(closing, dict) and closing.keys() & {"text", "alternatives"}):
            outcome.fail(exchange, outcome.PROTOCOL, 'the server closed without the answer to {"eof" : 1}')


def _tell(account: Account, t_ns: int, said: Any, closing: bool) -> None:
    if not isinstance(said, dict):
        return
    if "partial" in said:
        account.heard(t_ns, text_at(said, "partial"), False, _reached(said, "partial_result"))
        return
    alternatives = objects_in(said, "alternatives")
    best = alternatives[0] if alternatives else said
    if "text" not in best:
        return
    text = text_at(best, "text")
    account.heard(t_ns, text, True, _reached(best, "result"))
    if text.strip() and not closing:
        account.ended(t_ns)


def _reached(said: Mapping[str, Any], name: str) -> int:
    """Where the last word ends."""
    return ns_of(member(said.get(name), -1, "end"))


PROTOCOLS = (
    ProtocolSpec(
        "vosk",
        "vosk-server: live speech to text, PCM16 over WebSocket",
        over_websocket(VoskDialogue),
        VoskOptions,
        source="audio",
    ),
)
