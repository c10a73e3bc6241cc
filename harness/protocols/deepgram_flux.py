"""Deepgram's turn-taking recognition (Flux, ``/v2/listen``): the model itself says when a turn is over.

A turn's transcript is cumulative: each TurnInfo replaces what was heard of that turn. ``EndOfTurn`` makes it final and is the
endpoint; ``EagerEndOfTurn`` is a guess that may be taken back and counts as neither. There is no Finalize: a turn ends with
silence, so the clip is followed by some.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, model_validator

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.hearing import (
    Endpoint,
    Event,
    Transcript,
    after_speech,
    conclude,
    fault_in,
    heard_out,
    kind_of,
    ns_of,
    put_transcripts,
    read,
    text_at,
    while_open,
)
from plimsoll.harness.protocols._speech.sending import AudioOptions, audio_problems, clip_of, live_audio
from plimsoll.harness.protocols.deepgram import CODECS, ERROR_CODE, ERROR_TEXT, Encoding, rate_of, renamed
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.harness.wire.tokens import Fault
from plimsoll.scenarios.samples.payload import Payload

_FRAME_NS = 80_000_000  # what the service advises
_EOT_TIMEOUT_MS = 5000  # the service's own default
_MORE_NS = 500_000_000
_END_OF_TURN = re.compile(rb'"event"\s*:\s*"EndOfTurn"')
_WINDOW_END = re.compile(rb'"audio_window_end"\s*:\s*(\d{1,9}(?:\.\d{1,12})?)')
_CLOSE = Message(b'{"type":"CloseStream"}', True)
_SENT_IF_GIVEN = ("eot_threshold", "eager_eot_threshold", "eot_timeout_ms")


class FluxOptions(Options):
    """Options of ``deepgram-flux``."""

    audio: AudioOptions = AudioOptions()
    encoding: Encoding = "linear16"
    sample_rate: int | None = Field(default=None, ge=8000, le=48_000)
    eot_threshold: float | None = Field(default=None, ge=0.5, le=0.9)
    eager_eot_threshold: float | None = Field(default=None, ge=0.3, le=0.9)
    eot_timeout_ms: int | None = Field(default=None, ge=500, le=60_000)
    auth: Literal["token", "bearer"] = "token"
    query: dict[str, str | int | float | bool | list[str]] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @model_validator(mode="after")
    def _together(self) -> FluxOptions:
        taken = sorted(self.query.keys() & type(self).model_fields.keys())
        if taken:
            raise ValueError(f"query has {', '.join(taken)}. Give them as options of their own")
        eager, eot = self.eager_eot_threshold, self.eot_threshold
        if eager is not None and eot is not None and eager > eot:
            raise ValueError("eager_eot_threshold is above eot_threshold. Lower it")
        return self


class FluxDialogue:
    """What the options say, ready to use."""

    __slots__ = ("_headers", "_options", "_path")

    def __init__(self, target: Target) -> None:
        options = self._options = accept(FluxOptions, target.options)
        self._headers = handshake_headers(target.headers, options.auth)
        query: dict[str, Value] = {
            "model": target.model or "flux-general-en",
            "encoding": options.encoding,
            "sample_rate": rate_of(options.sample_rate, options.encoding),
            **{name: getattr(options, name) for name in _SENT_IF_GIVEN},
            **options.query,
        }
        self._path = request_target(target.url, "/v2/listen", options.path, query)

    def encode(self, payload: Payload) -> Script:
        options = self._options
        live = live_audio(
            clip_of(payload, "deepgram-flux"),
            options.audio,
            CODECS[options.encoding],
            rate_of(options.sample_rate, options.encoding),
            frame_ns=_FRAME_NS,
            silence_ns=(options.eot_timeout_ms or _EOT_TIMEOUT_MS) * 1_000_000 + _MORE_NS,
        )
        return Script(
            path=self._path,
            headers=self._headers,
            waits=True,
            closing=(_CLOSE,),
            n_in=payload.n_in,
            **live.script([Message(frame) for frame in live.frames]),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        kind = kind_of(message) if text else b""
        if kind == b"TurnInfo":
            if _END_OF_TURN.search(message) is None:
                return NOTHING
            end = _WINDOW_END.search(message)
            last = after_speech(exchange) if end is None else heard_out(exchange, 1000 * float(end[1]))
            return ENDPOINT if last else NOTHING
        if kind == b"Connected":
            return READY
        return DONE if kind == b"Error" else NOTHING

    def settle(self, exchange: Exchange) -> None:
        said, script = read(exchange), exchange.request.script
        events: list[Event] = []
        fault: Fault | None = None
        for t_ns, message in said.messages:
            kind = text_at(message, "type")
            if isinstance(message, bytes):
                continue
            if kind == "TurnInfo":
                events += _heard(t_ns, message)
            elif kind == "Error":
                fault = fault or fault_in(message, ERROR_TEXT, ERROR_CODE)
        if exchange.session is not None and exchange.session.open_ns >= 0:
            put_transcripts(exchange, script.clip, while_open(exchange, events), self._options.audio.normaliser)
        conclude(exchange, said, fault)


def _heard(t_ns: int, message: dict[str, Any]) -> list[Event]:
    turn = message.get("turn_index")
    over = message.get("event") == "EndOfTurn"
    cursor = ns_of(message.get("audio_window_end"))
    text = text_at(message, "transcript")
    found: list[Event] = [Transcript(t_ns, turn if type(turn) is int else 0, text, over, cursor)]
    return [*found, Endpoint(t_ns, cursor)] if over else found


def _mistakes(given: FluxOptions) -> list[str]:
    rate = rate_of(given.sample_rate, given.encoding)
    return renamed(audio_problems(given.audio, CODECS[given.encoding], rate, frame_ns=_FRAME_NS))


PROTOCOLS = (
    ProtocolSpec(
        "deepgram-flux",
        "Deepgram turn-taking recognition, /v2/listen",
        over_websocket(FluxDialogue),
        FluxOptions,
        mistakes=_mistakes,
        source="audio",
    ),
)
