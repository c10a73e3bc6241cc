"""Any WebSocket endpoint, without code: what is said is templates, what is heard is told by paths into JSON.

Three sorts of endpoint fit. Audio in and text back (``text_path`` with an audio source); text in and audio back
(``binary: audio`` or ``audio_path``); text in and text back, token by token. It guesses nothing: without ``text_path``
and ``audio_path`` each message counts as output, and without ``done`` a session is over when the server closes it.
"""

from __future__ import annotations

import base64
from array import array
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import Field, field_validator, model_validator

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._http.body_template import BodyTemplate
from plimsoll.harness.protocols._speech.codecs import Decoder, decodable, decoder, encodable
from plimsoll.harness.protocols._speech.hearing import Account, Transcript, put_sounds, put_transcripts
from plimsoll.harness.protocols._speech.sending import LiveAudio, LiveOptions
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.http.dialect import split_url
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Message, Script, messages_of
from plimsoll.harness.transport.live.handshake import http_url
from plimsoll.harness.wire import pointer, tokens
from plimsoll.harness.wire.headers import checked_headers
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.scenarios.text.fields import Duration

_UNKNOWN_PATHS = (
    "text_path",
    "reasoning_path",
    "final_path",
    "segment_path",
    "cursor_path",
    "audio_path",
    "error_path",
)


class WebSocketOptions(LiveOptions):
    """Options of ``websocket``."""

    path: str | None = Field(default=None, pattern=r"^/")
    headers: dict[str, str] = {}
    subprotocols: list[str] = []
    opening: list[str] = []
    messages: list[str] = []
    interval: Duration = 0
    closing: list[str] = []
    ready: str | None = Field(default=None, min_length=1)
    endpoint: str | None = Field(default=None, min_length=1)
    done: str | None = Field(default=None, min_length=1)
    codec: str = "pcm16"
    rate: int = Field(default=16_000, ge=1000, le=192_000)
    audio_message: str | None = None
    text_path: str | None = None
    reasoning_path: str | None = None
    final_path: str | None = None
    segment_path: str | None = None
    cursor_path: str | None = None
    audio_path: str | None = None
    binary: Literal["ignore", "audio", "output"] = "ignore"
    output_codec: str = "pcm16"
    output_rate: int = Field(default=24_000, ge=1000, le=192_000)
    prompt_tokens_path: str | None = None
    output_tokens_path: str | None = None
    error_path: str = "error"

    @field_validator(*_UNKNOWN_PATHS, "prompt_tokens_path", "output_tokens_path")
    @classmethod
    def _paths(cls, value: str | None) -> str | None:
        if value is not None:
            pointer.parse_selector(value)
        return value

    @field_validator("opening", "messages", "closing")
    @classmethod
    def _templates(cls, value: list[str]) -> list[str]:
        for text in value:
            BodyTemplate(text)
        return value

    _headers = field_validator("headers")(checked_headers)

    @model_validator(mode="after")
    def _together(self) -> WebSocketOptions:
        for name in ("final_path", "segment_path", "cursor_path"):
            if getattr(self, name) is not None and self.text_path is None:
                raise ValueError(f"{name} says something about a text. Give text_path too")
        if self.audio_path is not None and self.binary == "audio":
            raise ValueError("audio_path and binary: audio are given together. Keep one")
        if self.codec not in encodable():
            raise ValueError(f"codec {self.codec!r} is unknown. Use one of {', '.join(encodable())}")
        if self.output_codec not in decodable():
            raise ValueError(f"output_codec {self.output_codec!r} is unknown. Use one of {', '.join(decodable())}")
        return self

    @property
    def sent_as(self) -> tuple[str, int]:
        return self.codec, self.rate


@dataclass(slots=True)
class _Reading:
    """What the messages of one session said. ``output`` holds the numbers of those that are part of the answer."""

    account: Account = field(default_factory=Account)
    output: list[int] = field(default_factory=list)
    first_answer_ns: int = -1
    n_in: int = -1
    n_out: int = -1


class WebSocketDialogue:
    """Scripts from templates; what comes back is read along paths."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(WebSocketOptions, target.options)
        self._target = target
        names = (*_UNKNOWN_PATHS, "prompt_tokens_path", "output_tokens_path")
        given = {name: getattr(options, name) for name in names}
        self._paths = {name: pointer.parse_selector(text) for name, text in given.items() if text is not None}
        self._needles = tuple(
            (text.encode(), code)
            for text, code in ((options.done, DONE), (options.endpoint, ENDPOINT), (options.ready, READY))
            if text is not None
        )
        self._templates = {
            name: [BodyTemplate(text) for text in getattr(options, name)] for name in ("opening", "messages", "closing")
        }
        self._path = path_of(target.url, options.path)

    def encode(self, payload: Payload) -> Script:
        options, target = self._options, self._target
        own = tuple((name, value) for name, value in options.headers.items())
        said = {
            name: [Message(template.render(payload, target.model), True) for template in templates]
            for name, templates in self._templates.items()
        }
        common: dict[str, Any] = {
            "path": self._path, "headers": (*own, *target.headers), "subprotocols": tuple(options.subprotocols),
            "opening": tuple(said["opening"]), "closing": tuple(said["closing"]), "waits": options.ready is not None,
            "ends_on_close": options.done is None, "n_in": payload.n_in,
        }  # fmt: skip
        if "clip" in payload.data:
            if options.messages:
                raise HarnessFault("target.options.messages: the source is audio. Use opening, or audio_message")
            live = options.live(payload, "websocket")
            return Script(**common, **live.script(self._frames(live)))
        if not said["opening"] and not said["messages"]:
            raise HarnessFault("target.options: nothing would be said. Give opening or messages, or an audio source")
        spoken = tuple(said["messages"])
        dues = tuple(i * options.interval for i in range(len(spoken)))
        return Script(**common, frames=spoken, due_ns=dues, closing_ns=dues[-1] if dues else 0)

    def _frames(self, live: LiveAudio) -> tuple[Message, ...]:
        template = self._options.audio_message
        if template is None:
            return tuple(Message(frame) for frame in live.frames)
        compiled = BodyTemplate(template)
        return tuple(
            Message(
                compiled.render(Payload(data={"audio": base64.b64encode(frame).decode()}), self._target.model), True
            )
            for frame in live.frames
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        if text:
            for needle, code in self._needles:
                if needle in message:
                    return code
        return NOTHING

    # -- after the session --------------------------------------------------------------------------------------

    def settle(self, exchange: Exchange) -> None:
        options = self._options
        reading = _Reading()
        account = reading.account
        play = decoder(options.output_codec, options.output_rate)
        heard = messages_of(exchange)
        for i, (t_ns, message, text) in enumerate(heard):
            self._read(reading, i, t_ns, message, text, play)
            if account.fault is not None or account.broken is not None:
                break
        script: Script = exchange.request.script
        if script.clip is not None and options.text_path is not None:
            put_transcripts(exchange, script.clip, account.events, options.audio.normaliser)
        if account.sounds:
            put_sounds(exchange, account.sounds)
        elif script.clip is None:
            outcome.put_chunks(exchange, array("q", [heard[i][0] for i in reading.output]), reading.first_answer_ns)
            outcome.count_tokens(exchange, reading.n_in, reading.n_out, exchange.status == outcome.OK)
        if account.fault is not None:
            outcome.fail_by(exchange, account.fault)
        elif account.broken is not None:
            outcome.fail(exchange, outcome.PROTOCOL, account.broken)
        elif not reading.output:
            outcome.fail(exchange, outcome.PROTOCOL, "empty session: no output")

    def _read(self, reading: _Reading, i: int, t_ns: int, message: bytes, text: bool, play: Decoder) -> None:
        options = self._options
        if not text:
            if options.binary == "audio":
                self._sound(reading, i, t_ns, message, play)
            elif options.binary == "output":
                self._output(reading, i, t_ns)
            return
        try:
            said = orjson.loads(message)
        except orjson.JSONDecodeError:
            if options.text_path is None and options.audio_path is None:
                self._output(reading, i, t_ns)  # plain text
            else:
                reading.account.broken = f"message {i + 1} is not JSON: {outcome.excerpt(message)}"
            return
        if self._truthy("error_path", said):
            kind = said.get("error_type") if isinstance(said, dict) else None
            reading.account.fault = tokens.fault_of({"error": self._find("error_path", said), "error_type": kind})
            return
        n_in, n_out = (tokens.count(self._find(f"{name}_tokens_path", said)) for name in ("prompt", "output"))
        reading.n_in, reading.n_out = (n_in if n_in >= 0 else reading.n_in), (n_out if n_out >= 0 else reading.n_out)
        if options.endpoint is not None and options.endpoint.encode() in message:
            reading.account.ended(t_ns)
        if options.audio_path is not None:
            sound = self._find("audio_path", said)
            if isinstance(sound, str):
                self._sound(reading, i, t_ns, sound, play)
        if options.text_path is not None:
            self._text(reading, i, t_ns, said)
        elif options.audio_path is None and options.binary == "ignore":
            self._output(reading, i, t_ns)

    def _text(self, reading: _Reading, i: int, t_ns: int, said: Any) -> None:
        if self._find("reasoning_path", said) not in (pointer.MISSING, None, ""):
            reading.output.append(i)
        value = self._find("text_path", said)
        if value is pointer.MISSING or not (value or type(value) in (int, float)):
            return
        self._output(reading, i, t_ns)
        final = self._truthy("final_path", said)
        segment = self._find("segment_path", said)
        number = segment if type(segment) is int else reading.account.segment
        cursor = self._find("cursor_path", said)
        reached = round(cursor * 1e9) if type(cursor) in (int, float) and 0 <= cursor < 1e6 else -1
        reading.account.events.append(Transcript(t_ns, number, str(value), final, reached))
        if final and "segment_path" not in self._paths:
            reading.account.segment += 1

    def _output(self, reading: _Reading, i: int, t_ns: int) -> None:
        reading.output.append(i)
        if reading.first_answer_ns < 0:
            reading.first_answer_ns = t_ns

    def _sound(self, reading: _Reading, i: int, t_ns: int, data: bytes | str, play: Decoder) -> None:
        account = reading.account
        before = len(account.sounds)
        if isinstance(data, str):
            account.sounded_base64(t_ns, data, play)
        else:
            account.sounded(t_ns, data, play)
        if account.broken is not None:
            account.broken = f"message {i + 1}: {account.broken}"
        if len(account.sounds) > before:
            self._output(reading, i, t_ns)

    def _find(self, name: str, said: Any) -> Any:
        return pointer.select(said, self._paths[name]) if name in self._paths else pointer.MISSING

    def _truthy(self, name: str, said: Any) -> bool:
        found = self._find(name, said)
        return found is not pointer.MISSING and bool(found)


def path_of(url: str, path: str | None, route: str = "") -> str:
    """The request target of a WebSocket handshake:

    ``path``, else the URL's own path, else ``route``; the URL's query is kept.
    """
    base, query = split_url(http_url(url))
    chosen = path or base or route or "/"
    return f"{chosen}?{query}" if query and "?" not in chosen else chosen


PROTOCOLS = (
    ProtocolSpec(
        "websocket",
        "any WebSocket endpoint: message templates, JSON paths, live audio",
        over_websocket(WebSocketDialogue),
        WebSocketOptions,
        bundled=True,
        any_route=True,
        sessions=True,
    ),
)
