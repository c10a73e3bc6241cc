"""One response of a Realtime session, from ``response.created`` to ``response.done``: words, their audio, and what both took.

Audio is sent as fast as it is made and read, ahead of its playing, as the real service does; a client that wants to know what was heard
when an answer was interrupted keeps its own time. Its stages are those of the turn: hearing it, making the words, speaking them.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.reference_server.frontends.shared.deepgram_wire import SpeakOptions
from plimsoll.reference_server.frontends.websocket.peer import Peer
from plimsoll.reference_server.frontends.websocket.realtime_settings import Settings
from plimsoll.reference_server.frontends.websocket.realtime_wire import Events, Item
from plimsoll.reference_server.frontends.websocket.replies import Reply
from plimsoll.reference_server.frontends.websocket.speak import encoded
from plimsoll.reference_server.speech.seam import Synthesiser
from plimsoll.reference_server.values.errors import RequestError
from plimsoll.reference_server.values.stages import Stages

_AUDIO_TOKENS_PER_S = 20
"""Of answers; of what is heard it is half as many."""


@dataclass(slots=True, eq=False)
class Answering:
    """One response. ``kept`` is false for one outside the conversation."""

    peer: Peer
    events: Events
    settings: Settings
    reply: Reply
    synthesiser: Synthesiser | None
    item: Item
    count: Callable[[Stages], None]
    """Has the stages of the turn counted."""
    previous_item_id: str | None
    n_audio_in: int = 0
    """Tokens of the audio that is answered."""
    heard: Mapping[str, int] = field(default_factory=dict)
    """Nanoseconds of the recogniser's stages for it."""
    metadata: Mapping[str, str] | None = None
    kept: bool = True
    stopped: str = ""
    """Why it was cancelled: turn_detected or client_cancelled."""
    response_id: str = ""
    over: bool = False
    _said: list[str] = field(default_factory=list)
    _audio_s: float = 0.0
    _spoken: Stages = field(default_factory=Stages)

    def begin(self) -> None:
        """Say that an answer is under way."""
        self.response_id = self.events.new_id("resp")
        self._send("response.created", response=self._shown("in_progress", None))
        self.item.status = "in_progress"
        empty = {**self.item.shown(), "content": []}
        self._send("response.output_item.added", **self._at(content=False), item=empty)
        if self.kept:
            self._send("conversation.item.added", previous_item_id=self.previous_item_id, item=empty)
        self._send("response.content_part.added", **self._at(), part=self._part(""))

    async def run(self) -> None:
        """Answer. Ends with ``response.done``, whatever comes; only what breaks the session is raised."""
        try:
            status, details = await self._answer()
        except asyncio.CancelledError:
            if not self.stopped:
                raise
            self.end_stopped()
        else:
            self._end(status, details)

    def end_stopped(self) -> None:
        """End as cancelled, unless it is over already."""
        if not self.over:
            self._end("cancelled", {"type": "cancelled", "reason": self.stopped})

    async def _answer(self) -> tuple[str, Mapping[str, Any] | None]:
        """Words and audio; how it ended."""
        try:
            await self._words()
            if self.settings.spoken:
                await self._speak()
        except RequestError as error:
            failure = {"type": error.kind, "code": error.code, "message": error.message}
            return "failed", {"type": "failed", "error": failure}
        finally:
            await self.reply.words.aclose()
        if self.reply.cost.cut_short:
            return "incomplete", {"type": "incomplete", "reason": "max_output_tokens"}
        return "completed", None

    @property
    def text(self) -> str:
        """The words so far."""
        return self.reply.separator.join(self._said)

    async def _words(self) -> None:
        kind = "output_audio_transcript" if self.settings.spoken else "output_text"
        async for word in self.reply.words:
            delta = f"{self.reply.separator}{word}" if self._said else word
            self._said.append(word)
            self._send(f"response.{kind}.delta", **self._at(), delta=delta)
            await self.peer.room()

    async def _speak(self) -> None:
        if self.synthesiser is None or not self.text:
            return
        output = self.settings.output
        options = SpeakOptions(output.encoding, output.sample_rate, "none", self.settings.speed)
        async with contextlib.aclosing(encoded(self.synthesiser, self.text, options, self._spoken)) as pieces:
            async for data in pieces:
                self._audio_s += len(data) / output.sample_rate / (2 if output.encoding == "linear16" else 1)
                self._send("response.output_audio.delta", **self._at(), delta=base64.b64encode(data).decode())
                await self.peer.room()

    def _end(self, status: str, details: Mapping[str, Any] | None) -> None:
        self.over = True
        text = self.item.said = self.text
        self.item.status = "completed" if status == "completed" else "incomplete"
        if self.settings.spoken:
            self._send("response.output_audio.done", **self._at())
            self._send("response.output_audio_transcript.done", **self._at(), transcript=text)
        else:
            self._send("response.output_text.done", **self._at(), text=text)
        self._send("response.content_part.done", **self._at(), part=self._part(text))
        if self.kept:
            self._send("conversation.item.done", previous_item_id=self.previous_item_id, item=self.item.shown())
        self._send("response.output_item.done", **self._at(content=False), item=self.item.shown())
        stages = self._stages()
        self.count(stages)
        response = self._shown(status, details)
        self._send("response.done", response=response, server_timing=stages.server_timing())

    def _send(self, name: str, **fields: Any) -> None:
        self.peer.send(self.events.event(name, **fields))

    def _at(self, *, content: bool = True) -> dict[str, Any]:
        place: dict[str, Any] = {"response_id": self.response_id, "output_index": 0}
        return place | {"item_id": self.item.item_id, "content_index": 0} if content else place

    def _part(self, text: str) -> dict[str, str]:
        return {"type": "audio", "transcript": text} if self.settings.spoken else {"type": "text", "text": text}

    def _shown(self, status: str, details: Mapping[str, Any] | None) -> dict[str, Any]:
        settings, done = self.settings, status != "in_progress"
        return {
            "object": "realtime.response",
            "id": self.response_id,
            "status": status,
            "status_details": details,
            "output": [self.item.shown()] if done else [],
            "conversation_id": "conv_1" if self.kept else None,
            "output_modalities": ["audio" if settings.spoken else "text"],
            "max_output_tokens": settings.max_output_tokens or "inf",
            "audio": {"output": {"format": settings.output.shown(), "voice": settings.voice}},
            "usage": self._usage() if done else None,
            "metadata": dict(self.metadata) if self.metadata is not None else None,
        }

    def _usage(self) -> dict[str, Any]:
        cost, n_audio_out = self.reply.cost, round(self._audio_s * _AUDIO_TOKENS_PER_S)
        n_in, n_out = cost.n_input + self.n_audio_in, cost.n_output + n_audio_out
        return {
            "total_tokens": n_in + n_out,
            "input_tokens": n_in,
            "output_tokens": n_out,
            "input_token_details": {
                "text_tokens": cost.n_input,
                "audio_tokens": self.n_audio_in,
                "cached_tokens": cost.n_cached,
            },
            "output_token_details": {"text_tokens": cost.n_output, "audio_tokens": n_audio_out},
        }

    def _stages(self) -> Stages:
        """Each stage of the turn as a whole, then the share of each model as a part of it."""
        shares = (
            ("recogniser", self.heard),
            (self.settings.model, self.reply.cost.stages.spans_ns),
            ("synthesiser", self._spoken.spans_ns),
        )
        whole, parts = Stages(), Stages()
        for model, spans in shares:
            for name, ns in spans.items():
                if "." not in name:
                    whole.add(name, ns)
                    parts.add(f"{name}.{model}", ns)
        for name, ns in parts.spans_ns.items():
            whole.add(name, ns)
        return whole


def audio_tokens(seconds: float) -> int:
    """What hearing so much audio counts as."""
    return round(seconds * _AUDIO_TOKENS_PER_S / 2)
