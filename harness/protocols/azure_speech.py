"""Azure Speech over WebSocket: recognition (``azure-stt``) and synthesis (``azure-tts``), in the service's own framing.

A text message is header lines, an empty line and a body; a binary one is the length of its headers in two bytes, the
headers and a body. One session is one turn: it ends with ``turn.end``. Audio comes as from a microphone; the vendor's
own libraries send files faster than they play, so their latencies are another measurement. Times are in ticks of 100
ns.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5
from xml.sax.saxutils import escape, quoteattr

import orjson
from pydantic import Field

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.codecs import decoder
from plimsoll.harness.protocols._speech.hearing import (
    Account,
    after_speech,
    fault_in,
    keyed,
    member,
    ns_of,
    objects_in,
    read,
    recognised,
    synthesised,
    text_at,
)
from plimsoll.harness.protocols._speech.sending import LiveOptions, clip_of, text_of
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, Message, Script
from plimsoll.harness.transport.live.handshake import Value, handshake_headers, request_target
from plimsoll.scenarios.samples.payload import Payload

_KEY = "ocp-apim-subscription-key"
#: The service wants a time and does not use it; the same script must always be the same bytes.
_TIMESTAMP = "2026-01-01T00:00:00.000Z"
_TICK_NS = 100
_PATH = re.compile(rb"(?i)(?:^|\n)path:[ \t]*([a-z.]+)")
_MOST_OF_HEADERS = 400
#: Close codes by which the service sheds load, besides 1013.
_OVERLOADED = frozenset({1013, 4429})
_QUIET = frozenset({"EndOfDictation", "NoMatch", "InitialSilenceTimeout", "BabbleTimeout"})
_FORMAT = re.compile(r"raw-(\d+)(khz|hz)-(16bit|8bit)-mono-(pcm|mulaw|alaw)")
_CONFIG = {"context": {"system": {"name": "plimsoll", "version": "1", "build": "python", "lang": "Python"}}}


class RecognitionOptions(LiveOptions):
    """Options of ``azure-stt``."""

    mode: Literal["interactive", "conversation", "dictation"] = "conversation"
    language: str = Field(default="en-US", min_length=2)
    format: Literal["simple", "detailed"] = "detailed"
    sample_rate: Literal[8000, 16000, 24000, 48000] = 16_000
    auth: Literal["key", "bearer"] = "key"
    context: dict[str, Any] = {}
    query: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def sent_as(self) -> tuple[str, int]:
        return "pcm16", self.sample_rate


class SpeechOptions(Options):
    """Options of ``azure-tts``.

    ``output_format`` is one of the service's names for raw audio, ``auth`` as in ``azure-stt``.
    """

    voice: str = Field(default="en-US-AvaMultilingualNeural", min_length=1)
    language: str = Field(default="en-US", min_length=2)
    output_format: str = Field(default="raw-24khz-16bit-mono-pcm", pattern=f"^{_FORMAT.pattern}$")
    metadata: dict[str, bool] = {}
    auth: Literal["key", "bearer"] = "key"
    query: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def codec(self) -> tuple[str, int]:
        """(codec, samples a second)."""
        number, unit, _, name = _FORMAT.fullmatch(self.output_format).groups()  # type: ignore[union-attr]
        return {"pcm": "pcm16"}.get(name, name), int(number) * (1000 if unit == "khz" else 1)


# -- framing --------------------------------------------------------------------------------------------------------


def text_message(path: str, request_id: str, body: str, content_type: str = "application/json") -> Message:
    """Headers, an empty line, the body."""
    return Message((_head(path, request_id, content_type) + f"\r\n{body}").encode(), True)


def audio_message(request_id: str, body: bytes) -> Message:
    """The length of the headers in two bytes, the headers, the body; an empty body ends the audio."""
    head = _head("audio", request_id, "audio/x-wav" if body else "", "X-StreamId: 1\r\n").encode()
    return Message(struct.pack(">H", len(head)) + head + body)


def _head(path: str, request_id: str, content_type: str, more: str = "") -> str:
    kind = f"Content-Type: {content_type}\r\n" if content_type else ""
    return f"Path: {path}\r\nX-RequestId: {request_id}\r\nX-Timestamp: {_TIMESTAMP}\r\n{kind}{more}"


def taken_apart(data: bytes, text: bool) -> tuple[dict[str, str], bytes]:
    """(headers, names in lower case; body) of a message. Raises ValueError for one that is not framed like this."""
    if text:
        head, gap, body = data.partition(b"\r\n\r\n")
        if not gap:
            raise ValueError("a text message without an end of headers")
    else:
        if len(data) < 2 or len(data) < 2 + (length := struct.unpack_from(">H", data)[0]):
            raise ValueError("a binary message that is shorter than its headers")
        head, body = data[2 : 2 + length], data[2 + length :]
    pairs = (line.partition(":") for line in head.decode("utf-8", "replace").splitlines())
    return {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}, body


def _decode(data: bytes, text: bool) -> dict[str, Any]:
    """A message as ``{"path", "body"}``: JSON bodies decoded, audio as bytes. Raises ValueError."""
    try:
        headers, body = taken_apart(data, text)
        said: Any = orjson.loads(body) if text and body.strip() else body
    except ValueError as error:  # orjson's is one
        raise ValueError(f"is not of Azure's form: {outcome.excerpt(str(error).encode())}") from None
    return {"path": headers.get("path", "").lower(), "body": said}


def _heard_path(message: bytes) -> bytes:
    found = _PATH.search(message, 0, _MOST_OF_HEADERS)
    return found[1].lower() if found is not None else b""


def _headers(target: Target, auth: str) -> tuple[tuple[str, str], ...]:
    headers = keyed(target.headers, _KEY) if auth == "key" else target.headers
    return handshake_headers(headers, "bearer")


def _riff(rate: int) -> bytes:
    """The header of a WAV whose length nobody knows yet."""
    return struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 0, b"WAVE", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16, b"data", 0)


def _id(*parts: object) -> str:
    """32 hexadecimal digits, the same for the same parts."""
    return uuid5(NAMESPACE_URL, " ".join(map(str, parts))).hex


# -- recognition ----------------------------------------------------------------------------------------------------


class RecognitionDialogue:
    """``/speech/recognition/MODE/cognitiveservices/v1``."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(RecognitionOptions, target.options)
        self._headers = _headers(target, options.auth)
        route = f"/speech/recognition/{options.mode}/cognitiveservices/v1"
        query: dict[str, Value] = {"language": options.language, "format": options.format, **options.query}
        self._path = request_target(target.url, route, options.path, query)

    def encode(self, payload: Payload) -> Script:
        options = self._options
        live, said = options.live(payload, "azure-stt"), len(clip_of(payload, "azure-stt").pcm)
        turn = _id("turn", payload.id, said)
        config = {**_CONFIG, "context": {**_CONFIG["context"], "audio": {"source": {"type": "Stream"}}}}
        return Script(
            self._path,
            (*self._headers, ("x-connectionid", _id("connection", payload.id, said))),
            opening=(
                text_message("speech.config", turn, orjson.dumps(config).decode()),
                text_message("speech.context", turn, orjson.dumps(options.context).decode()),
                audio_message(turn, _riff(options.sample_rate)),
            ),
            closing=(audio_message(turn, b""),),
            ends_on_close=False,
            **live.script([audio_message(turn, frame) for frame in live.frames]),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        path = _heard_path(message) if text else b""
        if path == b"turn.end":
            return DONE
        return ENDPOINT if path == b"speech.enddetected" and after_speech(exchange) else NOTHING

    def settle(self, exchange: Exchange) -> None:
        recognised(exchange, _tell_text, self._options.audio.normaliser, read(exchange, _decode), _OVERLOADED)


def _tell_text(account: Account, t_ns: int, said: Any) -> None:
    path, body = said["path"], said["body"]
    if not isinstance(body, dict):
        return
    offset, duration = (ns_of(body.get(name), _TICK_NS) for name in ("Offset", "Duration"))
    cursor_ns = offset + duration if offset >= 0 and duration >= 0 else -1
    if path in ("speech.hypothesis", "speech.fragment"):
        account.heard(t_ns, text_at(body, "Text"), False, cursor_ns)
    elif path == "speech.enddetected":
        account.ended(t_ns)
    elif path == "speech.phrase":
        status = text_at(body, "RecognitionStatus")
        if status == "Success":
            best = objects_in(body, "NBest")
            text = text_at(body, "DisplayText") or text_at(member(best, 0), "Display")
            account.heard(t_ns, text, True, cursor_ns)
        elif status not in _QUIET:
            account.fault = fault_in(body, ("DisplayText", "Message"), ("RecognitionStatus",), ("toomanyrequests",))


# -- synthesis ------------------------------------------------------------------------------------------------------


class SpeechDialogue:
    """``/tts/cognitiveservices/websocket/v1``: one SSML document a session."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(SpeechOptions, target.options)
        self._headers = _headers(target, options.auth)
        self._path = request_target(
            target.url, "/tts/cognitiveservices/websocket/v1", options.path, dict(options.query)
        )

    def encode(self, payload: Payload) -> Script:
        options = self._options
        text = text_of(payload, "azure-tts")
        turn = _id("turn", text)
        audio = {"outputFormat": options.output_format, "metadataOptions": options.metadata}
        context = {"synthesis": {"audio": audio, "language": {"autoDetection": False}}}
        ssml = (
            f"<speak version='1.0' xmlns='http://www.w3.org/2001/10/synthesis' xml:lang={quoteattr(options.language)}>"
            f"<voice name={quoteattr(options.voice)}>{escape(text)}</voice></speak>"
        )
        return Script(
            self._path,
            (*self._headers, ("x-connectionid", _id("connection", text))),
            opening=(
                text_message("speech.config", turn, orjson.dumps(_CONFIG).decode()),
                text_message("synthesis.context", turn, orjson.dumps(context).decode()),
            ),
            frames=(text_message("ssml", turn, ssml, "application/ssml+xml"),),
            due_ns=(0,),
            ends_on_close=False,
            n_in=payload.n_in,
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        return DONE if text and _heard_path(message) == b"turn.end" else NOTHING

    def settle(self, exchange: Exchange) -> None:
        play = decoder(*self._options.codec)

        def tell(account: Account, t_ns: int, said: Any) -> None:
            if said["path"] == "audio" and isinstance(said["body"], bytes):
                account.sounded(t_ns, said["body"], play)

        synthesised(exchange, tell, read(exchange, _decode), _OVERLOADED)


PROTOCOLS = (
    ProtocolSpec(
        "azure-stt", "Azure Speech recognition", over_websocket(RecognitionDialogue), RecognitionOptions, source="audio"
    ),
    ProtocolSpec("azure-tts", "Azure Speech synthesis", over_websocket(SpeechDialogue), SpeechOptions, sessions=True),
)
