"""The input audio of one Realtime session: base64 in, turns of speech out, and the count of what was heard.

There is no buffer of samples: audio is heard as it is appended, and a commit ends the utterance. Positions are on the time line of all that
was ever appended, also when the format changes in between.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import replace

from plimsoll.reference_server.frontends.shared.fields import invalid
from plimsoll.reference_server.frontends.websocket.answering import audio_tokens
from plimsoll.reference_server.frontends.websocket.realtime_settings import Settings
from plimsoll.reference_server.frontends.websocket.turns import Ended, Said, Started, Turns
from plimsoll.reference_server.speech.audio import SampleReader
from plimsoll.reference_server.speech.seam import Audio, Heard, Listener, Recogniser
from plimsoll.reference_server.values.errors import RequestError

MAX_UNCOMMITTED_S = 900.0
_PIECE_S = 0.5
"""Long appends are heard in pieces, so that other streams get their turn."""


class InputAudio:
    """What the client says. Raises RequestError 503 at once when the recogniser is full."""

    def __init__(self, model: Recogniser, settings: Settings) -> None:
        self._model = model
        self._settings = settings
        self._listener = self._listen()
        self._reader = SampleReader(settings.input.encoding)
        self._turns = Turns()
        self._origin_s = 0.0
        self._n_samples = 0
        self._committed_s = 0.0
        self._unanswered_s = 0.0
        self._answered: dict[str, int] = {}

    @property
    def heard_s(self) -> float:
        """Seconds of audio appended so far."""
        return self._origin_s + self._n_samples / self._settings.input.sample_rate

    @property
    def uncommitted_s(self) -> float:
        """Seconds since the last commit or clear."""
        return self.heard_s - self._committed_s

    def change(self, settings: Settings) -> None:
        """Take on new settings; where they change how audio is heard, the speech under way is forgotten.

        Raises RequestError 503 when the recogniser is full.
        """
        before, self._settings = self._settings, settings
        if _hearing(before) == _hearing(settings):
            return
        self._origin_s += self._n_samples / before.input.sample_rate
        self._n_samples = 0
        self._listener.close()
        self._listener = self._listen()
        self._reader = SampleReader(settings.input.encoding)
        self._turns, self._answered = Turns(), {}

    def pieces(self, encoded: str) -> Iterator[Audio]:
        """The audio of one append, in pieces. Raises RequestError 400."""
        try:
            data = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise invalid("audio", f"must be base64: {error}") from None
        samples, rate = self._reader.feed(data), self._settings.input.sample_rate
        if self._settings.turns is None and self.uncommitted_s + len(samples) / rate > MAX_UNCOMMITTED_S:
            message = f"more than {MAX_UNCOMMITTED_S:g} s of audio wait for a commit. Commit or clear"
            raise RequestError(400, message, param="audio", code="input_audio_buffer_full")
        step = round(_PIECE_S * rate)
        for at in range(0, len(samples), step):
            yield samples[at : at + step]

    def begin_turn(self, at_s: float) -> None:
        """The silence before that second belongs to no item."""
        self._committed_s = max(self._committed_s, at_s)

    async def hear(self, piece: Audio) -> list[Started | Said | Ended]:
        """What a piece of audio brings."""
        self._n_samples += len(piece)
        return self._news(await self._listener.feed(piece))

    async def end_turn(self) -> list[Started | Said | Ended]:
        """End the speech under way, if any."""
        return self._news(await self._listener.flush())

    async def clear(self) -> None:
        """Forget the speech under way, and what was said since the last commit."""
        await self._listener.flush()
        self._turns = Turns()
        self.commit()
        self._unanswered_s = 0.0

    def commit(self) -> float:
        """Everything so far belongs to an item; returns the seconds that are new in it."""
        seconds = self.uncommitted_s
        self._committed_s = self.heard_s
        self._unanswered_s += seconds
        return seconds

    def since_last_answer(self) -> tuple[int, dict[str, int]]:
        """Tokens of the audio committed since this was last asked, and nanoseconds of the recogniser's stages meanwhile."""
        spans = dict(self._listener.stages.spans_ns)
        fresh = {name: ns - self._answered.get(name, 0) for name, ns in spans.items()}
        tokens, self._answered, self._unanswered_s = audio_tokens(self._unanswered_s), spans, 0.0
        return tokens, fresh

    def close(self) -> None:
        """Let the recogniser forget the stream."""
        self._listener.close()

    def _listen(self) -> Listener:
        turns = self._settings.turns
        return self._model.listen(
            self._settings.input.sample_rate,
            interim=self._settings.transcription is not None,
            endpointing_ms=500 if turns is None else turns.silence_ms,
            single_utterance=turns is None,
        )

    def _news(self, news: Sequence[Heard]) -> list[Started | Said | Ended]:
        later = [replace(h, start_s=h.start_s + self._origin_s, end_s=h.end_s + self._origin_s) for h in news]
        return list(self._turns.feed(later))


def _hearing(settings: Settings) -> tuple[object, ...]:
    """What the recogniser has to know."""
    return settings.input, settings.turns, settings.transcription is None
