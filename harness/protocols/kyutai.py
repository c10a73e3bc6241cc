"""Kyutai's moshi-server: streaming recognition (``kyutai-stt``) and synthesis (``kyutai-tts``), MessagePack both ways
at 24 kHz.

Words only ever come on, none is revised. The model hears ahead, so what the audio's end was worth is asked with a
Marker: it comes back when all audio before it has been heard, and only while more audio, silence, follows it. Needs
``pip install plimsoll-slo[speech]``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange
from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_websocket
from plimsoll.harness.protocols._speech.hearing import (
    Account,
    Sound,
    fault_in,
    keyed,
    member,
    ns_of,
    read,
    recognised,
    synthesised,
    text_at,
)
from plimsoll.harness.protocols._speech.sending import LiveAudio, LiveOptions, fed, feed, text_of
from plimsoll.harness.transport import outcome
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import handshake_headers, request_target
from plimsoll.scenarios.samples.payload import Payload

_RATE = 24_000
_MARKER_ID = 1
_KEY = "kyutai-api-key"
#: What a server that was set up by the book takes.
_OPEN_KEY = {_KEY: "public_token"}
_SHED = ("no free channel",)
_LONGEST_WORD = 200
_MARKER, _READY, _ERROR = (b"\xa4type" + bytes([0xA0 + len(name)]) + name for name in (b"Marker", b"Ready", b"Error"))


class RecognitionOptions(LiveOptions):
    """Options of ``kyutai-stt``."""

    frame_ns: ClassVar[int] = 80_000_000  # 1920 samples, one step of the model

    pause_threshold: float | None = Field(default=None, gt=0, lt=1)
    pause_head: int = Field(default=2, ge=0)
    query: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def sent_as(self) -> tuple[str, int]:
        return "float32", _RATE

    @property
    def silence_ns(self) -> int:
        return 5_000_000_000

    def mistakes(self) -> list[str]:
        return _missing() + super().mistakes()


class SpeechOptions(Options):
    """Options of ``kyutai-tts``."""

    voice: str | None = None
    words_per_second: float | None = Field(default=None, gt=0, le=1000)
    query: dict[str, str | int | float | bool] = {}
    path: str | None = Field(default=None, pattern=r"^/")

    def mistakes(self) -> list[str]:
        return _missing()


def _msgpack() -> Any:
    try:
        import msgpack
    except ImportError:
        raise HarnessFault("kyutai: the package msgpack is missing. Run pip install 'plimsoll-slo[speech]'") from None
    return msgpack


def _missing() -> list[str]:
    try:
        _msgpack()
    except HarnessFault as fault:
        return list(fault.errors)
    return []


def _heard(message: bytes) -> int:
    """Looks for the kind of a message, which comes first in it."""
    head = message[:64]
    if _READY in head:
        return READY
    return DONE if _MARKER in head or _ERROR in head else NOTHING


def _decode(data: bytes, text: bool) -> dict[str, Any] | None:
    """The object in a binary message; text is none of this protocol's."""
    if text:
        return None
    try:
        value = _msgpack().unpackb(data, strict_map_key=False)
    except (ValueError, TypeError, OverflowError) as error:
        why = outcome.excerpt(str(error).encode()) or type(error).__name__
        raise ValueError(f"of {len(data)} bytes is not MessagePack: {why}") from None
    return value if isinstance(value, dict) else None


class RecognitionDialogue:
    """``/api/asr-streaming``."""

    def __init__(self, target: Target) -> None:
        self._options = accept(RecognitionOptions, target.options)
        self._headers = handshake_headers(keyed(target.headers, _KEY), "bearer", _OPEN_KEY)
        self._path = request_target(target.url, "/api/asr-streaming", self._options.path, dict(self._options.query))

    def encode(self, payload: Payload) -> Script:
        live = self._options.live(payload, "kyutai-stt")
        fields = live.script(_audio_messages(live))
        marker = _pack({"type": "Marker", "id": _MARKER_ID})
        ends = np.cumsum([len(frame) // 4 for frame in live.frames])
        at = min(len(live.frames), int(np.searchsorted(ends, len(live.clip.pcm))) + 1)
        # The question goes out right behind the frame that holds the clip's end.
        fields["frames"] = (*fields["frames"][:at], Message(marker), *fields["frames"][at:])
        due_ns = live.due_ns[at - 1] if at else 0
        fields["due_ns"] = (*live.due_ns[:at], due_ns, *live.due_ns[at:])
        fields["needed"] = len(fields["frames"])  # silence until the answer comes, which ends the session
        fields["closing_ns"] = due_ns  # the true end of the input, though silence follows
        return Script(self._path, self._headers, waits=True, ends_on_close=False, **fields)

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        return _heard(message)

    def settle(self, exchange: Exchange) -> None:
        words = _Words(self._options.pause_threshold, self._options.pause_head)
        recognised(exchange, words.tell, self._options.audio.normaliser, read(exchange, _decode))
        stamps = exchange.session
        if stamps is None or words.marked_ns < 0:
            return
        if stamps.final_ns >= 0:  # only now is it known that no word is missing
            stamps.final_ns = words.marked_ns
        if stamps.input_end_ns < 0 and stamps.media_start_ns >= 0:
            stamps.input_end_ns = stamps.media_start_ns + exchange.request.script.closing_ns


class _Words:
    """Words as they come, and the pause after them."""

    def __init__(self, threshold: float | None, head: int) -> None:
        self.threshold = threshold
        self.head = head
        self.speaking = False
        self.marked_ns = -1

    def tell(self, account: Account, t_ns: int, said: Any) -> None:
        kind = text_at(said, "type")
        if kind == "Word":
            account.heard(t_ns, text_at(said, "text"), True, ns_of(said.get("start_time")))
            self.speaking = True
        elif kind == "Marker":
            self.marked_ns = t_ns
        elif kind == "EndWord":
            account.reached(ns_of(said.get("stop_time")))
        elif kind == "Error":
            account.fault = fault_in(said, ("message",), ("code",), _SHED)
        elif kind == "Step" and self.threshold is not None and self.speaking:
            likely = member(said, "prs", self.head)
            if type(likely) in (int, float) and likely > self.threshold:
                account.ended(t_ns)
                self.speaking = False


class SpeechDialogue:
    """``/api/tts_streaming``."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(SpeechOptions, target.options)
        self._headers = handshake_headers(keyed(target.headers, _KEY), "bearer", _OPEN_KEY)
        query = {"voice": options.voice, "format": "PcmMessagePack", **options.query}
        self._path = request_target(target.url, "/api/tts_streaming", options.path, query)

    def encode(self, payload: Payload) -> Script:
        text, speed = text_of(payload, "kyutai-tts"), self._options.words_per_second
        # Always cut into words; without a speed they are all due at once.
        pieces = [(due_ns if speed else 0, word) for due_ns, word in feed(text, speed or 1.0, _LONGEST_WORD)]
        return Script(
            self._path,
            self._headers,
            waits=True,
            closing=(Message(_pack({"type": "Eos"})),),
            n_in=payload.n_in,
            **fed(pieces, lambda word: Message(_pack({"type": "Text", "text": word.strip()}))),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        return _heard(message)

    def settle(self, exchange: Exchange) -> None:
        synthesised(exchange, _tell_sound, read(exchange, _decode))


def _tell_sound(account: Account, t_ns: int, said: Any) -> None:
    kind = text_at(said, "type")
    if kind == "Error":
        account.fault = fault_in(said, ("message",), ("code",), _SHED)
    if kind != "Audio":
        return
    try:
        with np.errstate(over="ignore"):  # clipped below
            samples = np.asarray(said.get("pcm"), np.float32)
    except (ValueError, TypeError, OverflowError):
        samples = np.zeros((0, 0), np.float32)
    if samples.ndim != 1:
        account.broken = "its audio is no list of numbers"
    elif len(samples):
        account.sounds.append(Sound(t_ns, np.clip(np.nan_to_num(samples), -1, 1), _RATE))


def _audio_messages(live: LiveAudio) -> list[Message]:
    return [Message(_pack({"type": "Audio", "pcm": np.frombuffer(frame, "<f4").tolist()})) for frame in live.frames]


def _pack(value: dict[str, Any]) -> bytes:
    packed: bytes = _msgpack().packb(value, use_single_float=True)
    return packed


PROTOCOLS = (
    ProtocolSpec(
        "kyutai-stt",
        "Kyutai moshi-server: live speech to text",
        over_websocket(RecognitionDialogue),
        RecognitionOptions,
        source="audio",
    ),
    ProtocolSpec(
        "kyutai-tts",
        "Kyutai moshi-server: live text to speech",
        over_websocket(SpeechDialogue),
        SpeechOptions,
        sessions=True,
    ),
)
