"""sherpa-onnx's streaming WebSocket servers: float32 in, JSON texts back, ``Done`` at the end.

The C++ server says which text is final and ends with ``Done!``; the client closes. The Python server gives segment and
text only and closes by itself: there a text is taken as final when the next segment begins, and the last one when the
session ends well.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.hearing import (
    Account,
    Transcript,
    after_speech,
    fault_in,
    from_json,
    member,
    ns_of,
    path_below,
    read,
    recognised,
    text_at,
    value_of,
)
from plimsoll.harness.protocols._speech.sending import LiveOptions
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, Message, Script
from plimsoll.harness.transport.live.handshake import handshake_headers, request_target
from plimsoll.scenarios.samples.payload import Payload

_DONE = b"Done!"


class SherpaOptions(LiveOptions):
    """Options of ``sherpa-onnx``.

    ``server`` says whose end of session to expect: ``cpp`` (``Done!``) or ``python`` (a close).
    """

    server: Literal["cpp", "python"] = "cpp"
    sample_rate: int = Field(default=16_000, ge=8000, le=48_000)
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def sent_as(self) -> tuple[str, int]:
        return "float32", self.sample_rate


class SherpaDialogue:
    """One session is one clip."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(SherpaOptions, target.options)
        self._headers = handshake_headers(target.headers, "bearer")
        self._path = request_target(target.url, "/", options.path or path_below(target.url, "/"), {})

    def encode(self, payload: Payload) -> Script:
        options = self._options
        return Script(
            self._path,
            self._headers,
            closing=(Message(b"Done", True),),
            ends_on_close=options.server == "python",
            **options.live(payload, "sherpa-onnx").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if len(message) < 8 and message.strip() == _DONE:
            return DONE
        if value_of(message, b'"is_final"').startswith(b"true"):
            return ENDPOINT if after_speech(exchange) else NOTHING
        return NOTHING

    def settle(self, exchange: Exchange) -> None:
        said = read(exchange, _decode)
        closing = said.messages[-1][1] if said.messages and exchange.status == outcome.OK else None

        def tell(account: Account, t_ns: int, message: Any) -> None:
            _tell(account, t_ns, message, message is closing)

        recognised(exchange, tell, self._options.audio.normaliser, said)


def _decode(data: bytes, text: bool) -> dict[str, Any] | bytes | None:
    """The JSON texts of a session, without the word that ends it."""
    return from_json(data, text) if text and data.strip() != _DONE else None


def _tell(account: Account, t_ns: int, said: Any, closing: bool) -> None:
    if "text" not in said:
        if said.get("error"):
            account.fault = fault_in(said, ("error", "message"), ("code",))
        return
    text, segment = text_at(said, "text"), said.get("segment")
    number = segment if type(segment) is int and segment >= 0 else account.segment
    before = account.events[-1] if account.events else None
    if isinstance(before, Transcript) and number > before.segment and not before.final:
        account.events.append(Transcript(t_ns, before.segment, before.text, True, before.cursor_ns))
    account.segment = number
    last_token = ns_of(member(said.get("timestamps"), -1))
    start_ns = max(0, ns_of(said.get("start_time")))
    ended = said.get("is_final") is True
    final = ended or said.get("is_eof") is True or closing
    account.events.append(Transcript(t_ns, number, text, final, start_ns + last_token if last_token >= 0 else -1))
    if ended and said.get("is_eof") is not True and not closing and text.strip():
        account.ended(t_ns)
    if ended and not isinstance(segment, int):
        account.segment += 1


PROTOCOLS = (
    ProtocolSpec(
        "sherpa-onnx",
        "sherpa-onnx streaming server, C++ or Python",
        over_websocket(SherpaDialogue),
        SherpaOptions,
        source="audio",
    ),
)
