"""Turns of speech, from what a recogniser hears. Pure.

A turn begins with speech and is over with the utterance; a recogniser may end an utterance that is too long with a final and go on, and the
turn goes on with it. A turn without words is a turn: somebody made a noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from plimsoll.reference_server.speech.certain_words import CertainWords
from plimsoll.reference_server.speech.seam import Heard


@dataclass(frozen=True, slots=True)
class Started:
    """Somebody began to speak, at that second of audio."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Said:
    """Words of the turn that won't change; ``delta`` is what they add to the transcript."""

    delta: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over; ``at_s`` is how far the audio had been heard when that was noticed."""

    at_s: float
    transcript: str


@dataclass(slots=True)
class Turns:
    """The turn under way, if any."""

    speaking: bool = False
    _certain: CertainWords = field(default_factory=CertainWords)
    _words: list[str] = field(default_factory=list)
    """Those of finals so far."""

    def feed(self, news: Sequence[Heard]) -> Iterator[Started | Said | Ended]:
        """What the recogniser's news mean, in order."""
        for index, heard in enumerate(news):
            texts = [*self._words, *(word.text for word in heard.words)]
            if heard.kind == "speech_started":
                self.speaking = True
                yield Started(heard.start_s)
            elif heard.kind == "partial":
                yield from self._said(self._certain.feed(texts))
            elif heard.kind == "final":
                self._words = texts
                yield from self._said(self._certain.end(texts))
                if index and news[index - 1].kind == "speech_ended":
                    yield self._ended(heard.end_s)
            elif index + 1 == len(news) or news[index + 1].kind != "final":
                yield self._ended(heard.end_s)

    def _said(self, fresh: Sequence[str]) -> Iterator[Said]:
        if fresh:
            yield Said(self._certain.delta(fresh))

    def _ended(self, at_s: float) -> Ended:
        transcript = " ".join(self._words)
        self.speaking, self._words, self._certain = False, [], CertainWords()
        return Ended(at_s, transcript)
