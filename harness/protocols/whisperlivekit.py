"""WhisperLiveKit's own live protocol, ``/asr``: PCM16 in, the state of the transcript back.

Each update says which lines are committed and what is still in the buffer: committed text only grows and is final, the
buffer may be revised. An empty binary message ends the audio, ``ready_to_stop`` the session. The server must take raw
samples (``--pcm-input``); its config message says so, and a server that wants encoded audio is told as the failure that
it is. Line times have whole seconds, too coarse for a position, so none is taken from them.
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
    fault_in,
    kind_of,
    objects_in,
    path_below,
    recognised,
    text_at,
    value_of,
)
from plimsoll.harness.protocols._speech.sending import LiveOptions
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING, READY, Message, Script
from plimsoll.harness.transport.live.handshake import handshake_headers, request_target
from plimsoll.harness.wire.tokens import Fault, count
from plimsoll.scenarios.samples.payload import Payload

_SILENCE = -2


class WhisperLiveKitOptions(LiveOptions):
    """Options of ``whisperlivekit``. ``mode: diff`` asks for changes instead of the whole state."""

    language: str | None = None
    mode: Literal["full", "diff"] = "full"
    path: str | None = Field(default=None, pattern=r"^/")

    @property
    def sent_as(self) -> tuple[str, int]:
        return "pcm16", 16_000


class WhisperLiveKitDialogue:
    """``/asr``: the audio, then an empty message."""

    def __init__(self, target: Target) -> None:
        options = self._options = accept(WhisperLiveKitOptions, target.options)
        self._headers = handshake_headers(target.headers, "bearer")
        query = {"language": options.language, "mode": options.mode}
        path = options.path or path_below(target.url, "/asr")
        self._path = request_target(target.url, "/asr", path, query)

    def encode(self, payload: Payload) -> Script:
        return Script(
            self._path,
            self._headers,
            waits=True,
            closing=(Message(b""),),
            ends_on_close=False,
            **self._options.live(payload, "whisperlivekit").script(),
        )

    def hear(self, exchange: Exchange, message: bytes, text: bool) -> int:
        kind = kind_of(message)
        if kind == b"config":
            return DONE if value_of(message, b'"useAudioWorklet"').startswith(b"false") else READY
        if kind == b"ready_to_stop":
            return DONE
        return DONE if value_of(message, b'"error"').startswith(b'"') and not _quiet(message) else NOTHING

    def settle(self, exchange: Exchange) -> None:
        state = _State()
        recognised(exchange, state.tell, self._options.audio.normaliser)


def _quiet(message: bytes) -> bool:
    """An error member that says nothing."""
    return value_of(message, b'"error"').startswith(b'""')


class _State:
    """The transcript as the server's updates leave it: segment 0 is what is committed, segment 1 the buffer."""

    def __init__(self) -> None:
        self.pruned: list[str] = []
        self.lines: list[str] = []
        self.committed = ""
        self.buffer = ""

    def tell(self, account: Account, t_ns: int, said: Any) -> None:
        if not isinstance(said, dict):
            return
        kind = text_at(said, "type")
        if said.get("error"):
            account.fault = fault_in(said, ("error",), ("code",))
        elif kind == "config":
            if said.get("useAudioWorklet") is False:
                account.fault = Fault("the server wants encoded audio. Start it with --pcm-input")
        elif kind == "diff":
            self._change(said)
            self._say(account, t_ns, said)
        elif kind in ("", "snapshot") and "lines" in said:
            self.lines = _texts(said, "lines")
            self._say(account, t_ns, said)

    def _change(self, said: dict[str, Any]) -> None:
        """Lines leave at the front, but what was said stays said; new ones come at the end."""
        gone = max(0, count(said.get("lines_pruned")))
        self.pruned += self.lines[:gone]
        self.lines = self.lines[gone:] + _texts(said, "new_lines")
        whole = count(said.get("n_lines"))
        if whole >= 0 and len(self.lines) > whole:  # the last line grew and came again
            added = len(_texts(said, "new_lines"))
            self.lines = self.lines[: max(0, whole - added)] + self.lines[len(self.lines) - added :]

    def _say(self, account: Account, t_ns: int, said: dict[str, Any]) -> None:
        committed = _joined([*self.pruned, *self.lines])
        buffer = _joined([text_at(said, "buffer_diarization"), text_at(said, "buffer_transcription")])
        if buffer != self.buffer:
            account.events.append(Transcript(t_ns, 1, buffer, False))
        if committed != self.committed:
            account.events.append(Transcript(t_ns, 0, committed, True))
        self.committed, self.buffer = committed, buffer


def _texts(said: dict[str, Any], name: str) -> list[str]:
    """One text a line; a line of silence has none, but keeps its place."""
    return ["" if line.get("speaker") == _SILENCE else text_at(line, "text") for line in objects_in(said, name)]


def _joined(texts: list[str]) -> str:
    return " ".join(text.strip() for text in texts if text.strip())


PROTOCOLS = (
    ProtocolSpec(
        "whisperlivekit",
        "WhisperLiveKit /asr: live speech to text",
        over_websocket(WhisperLiveKitDialogue),
        WhisperLiveKitOptions,
        source="audio",
        servers=("whisper",),
    ),
)
