"""From the notes of the search to words and events: where speech begins and ends, what was said, how sure that is. Pure.

What it says depends on the frames alone, never on how many came at a time. It refuses to guess: no dictionary, no grammar, no repair.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.speech.alphabet import ALPHABET, SPACE
from plimsoll.reference_server.speech.decode import FIELDS, PENALTY, QUIET
from plimsoll.reference_server.speech.seam import Heard, Word

Float = npt.NDArray[np.float64]

FRAME_S = 0.006
LONGEST_S = 60.0
"""An utterance longer than this is ended by a final at the end of a word, and goes on."""
_KEPT = 2048
"""Frames (12 s) after which a path counts as settled: alternatives that old are long dead."""
_GAP_FRAMES = 6
"""Silence of this length parts words. Endpointing below MIN_ENDPOINT_FRAMES would cut words at the change of a symbol."""
MIN_ENDPOINT_FRAMES = 10
_SHARES = (0.30, 0.36, 0.42, 0.50, 0.60, 0.95)
_RIGHT = (0.40, 0.60, 0.80, 0.95, 0.99, 1.00)
"""Confidence: of the words whose letters' tones had such a mean share of their bands, so many were right (white noise of 20 to -3 dB)."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """A stretch of the path in one state; ``symbol`` -1 is silence."""

    kind: int
    symbol: int
    first: int
    last: int
    share: float


@dataclass(slots=True)
class Transcript:
    """One stream. ``endpoint_frames`` of silence end an utterance; None: only ``finish`` does."""

    endpoint_frames: int | None
    interim: bool = True
    _notes: Float = field(default_factory=lambda: np.empty((256, FIELDS)))
    _base: int = 0
    _end: int = 0
    _begin: int = 0
    _speaking: bool = False
    _began_s: float = 0.0
    _path: list[_Segment] = field(default_factory=list)
    _words: list[Word] = field(default_factory=list)
    _marks: list[int] = field(default_factory=list)
    """How many segments of the path lie up to the gap after each word."""
    _said: tuple[str, ...] = ()
    _settled: int = 0
    _lead: tuple[int, int, int] = (QUIET, -1, -1)
    _lead_first: int = 0

    def take(self, notes: Float) -> list[Heard]:
        """The next frames' notes [T, FIELDS]; what there is to say, in order."""
        self._keep(notes)
        heard: list[Heard] = []
        for first, last in self._runs(len(notes)):
            heard += self._run(first, last)
        return heard

    def finish(self) -> list[Heard]:
        """End the utterance under way."""
        if not self._speaking:
            return []
        self._trace(self._end - 1)
        return self._ended(self._end - 1)

    def restart(self, frame: int) -> None:
        """Forget what was heard from ``frame`` on, which is the next."""
        self._base = self._end = self._begin = frame
        self._speaking = False
        self._lead, self._lead_first = (QUIET, -1, -1), frame
        self._forget()

    def _keep(self, notes: Float) -> None:
        used = self._end - self._base
        if used + len(notes) > len(self._notes):
            drop = min(max(0, max(self._begin, self._end - _KEPT) - 1 - self._base), used)
            grown = np.empty((max(256, 2 * (used - drop + len(notes))), FIELDS))
            grown[: used - drop] = self._notes[drop:used]
            self._notes, self._base, used = grown, self._base + drop, used - drop
        self._notes[used : used + len(notes)] = notes
        self._end += len(notes)

    def _runs(self, n_new: int) -> Iterator[tuple[int, int]]:
        """First and last frame of each stretch of new frames in which the best state stays the same."""
        if n_new == 0:
            return
        at = self._end - self._base - n_new
        best = self._notes[at : at + n_new, 9:]
        cuts = [0, *(np.flatnonzero((best[1:] != best[:-1]).any(axis=1)) + 1).tolist(), n_new]
        first = self._end - n_new
        yield from ((first + a, first + b - 1) for a, b in itertools.pairwise(cuts))

    def _run(self, first: int, last: int) -> list[Heard]:
        """A stretch of one best state. What it triggers hangs on where that state took over, not on where a batch was cut."""
        lead = self._leading(first)
        if lead != self._lead:
            self._lead, self._lead_first = lead, first
        kind, symbol, since = lead
        heard: list[Heard] = []
        if not self._speaking:
            if kind == QUIET:
                return []
            self._speaking = True
            self._began_s = _edge_s(max(since, self._begin))
            heard.append(Heard("speech_started", self._began_s, self._began_s))
        gap = max(self._lead_first, since + _GAP_FRAMES - 1) if kind == QUIET else self._lead_first
        if (kind == QUIET or symbol == SPACE) and first <= gap <= last:
            heard += self._word_over(gap)
        if kind == QUIET and self.endpoint_frames is not None:
            over = max(self._lead_first, since + self.endpoint_frames - 1)
            if first <= over <= last:
                self._trace(over)
                heard += self._ended(over)
        elif self._lead_first == first and first - self._settled > _KEPT // 2:
            self._trace(first)
        return heard

    def _word_over(self, frame: int) -> list[Heard]:
        self._trace(frame)
        heard: list[Heard] = []
        said = tuple(word.text for word in self._words)
        if said != self._said:
            self._said = said
            if self.interim and said:
                heard.append(Heard("partial", self._began_s, _middle_s(frame), tuple(self._words)))
        if self.endpoint_frames is not None and self._words and _edge_s(frame) - self._began_s > LONGEST_S:
            heard.append(Heard("final", self._began_s, _middle_s(frame), tuple(self._words)))
            self._begin, self._began_s = frame, _edge_s(frame)
            self._forget()
        return heard

    def _ended(self, frame: int) -> list[Heard]:
        """The utterance ends; ``frame`` is where that was noticed."""
        spoken = [segment for segment in self._path if segment.symbol >= 0]
        end_s = _edge_s(spoken[-1].last + 1) if spoken else self._began_s
        heard = [Heard("speech_ended", self._began_s, end_s)]
        if self._words:
            heard.append(Heard("final", self._began_s, _middle_s(frame), tuple(self._words)))
        self._speaking = False
        self._begin = frame + 1
        self._forget()
        return heard

    def _forget(self) -> None:
        self._path, self._words, self._marks, self._said = [], [], [], ()

    def _leading(self, frame: int) -> tuple[int, int, int]:
        kind, symbol, since = self._notes[frame - self._base, 9:].tolist()
        return int(kind), int(symbol), int(since)

    def _trace(self, frame: int) -> None:
        """Make path and words those of the best path that ends in a frame."""
        self._settled = frame
        kind = self._leading(frame)[0]
        fresh: list[_Segment] = []
        old, n_old = self._path, len(self._path)
        last = frame
        while last >= max(self._begin, self._base):
            while n_old and old[n_old - 1].last > last:
                n_old -= 1
            if n_old and old[n_old - 1].last == last and old[n_old - 1].kind == kind:
                break
            segment, kind = self._segment(kind, last)
            fresh.append(segment)
            last = segment.first - 1
        while n_old and old[n_old - 1].last > last:
            n_old -= 1
        fresh.reverse()
        if fresh and fresh[0].first < self._begin:
            del fresh[0]
        self._path[n_old:] = fresh
        self._spell(n_old)

    def _spell(self, n_same: int) -> None:
        """Make the words those of the path, of which the first ``n_same`` segments are as before; a word under way at its end is left out."""
        while self._marks and self._marks[-1] > n_same:
            del self._marks[-1], self._words[-1]
        at = self._marks[-1] if self._marks else 0
        letters: list[_Segment] = []
        for place in range(at, len(self._path)):
            segment = self._path[place]
            if segment.symbol >= 0 and segment.symbol != SPACE:
                letters.append(segment)
            elif letters:
                self._words.append(_word(letters))
                self._marks.append(place + 1)
                letters = []

    def _segment(self, kind: int, last: int) -> tuple[_Segment, int]:
        """The segment of a class that ends in a frame, and the class before it."""
        note = self._notes[last - self._base].tolist()
        first = int(note[6 + kind])
        before, worth = QUIET, 0.0
        if first > self._base:
            prior = self._notes[first - 1 - self._base].tolist()
            other = 1 - kind if kind != QUIET else int(prior[1] > prior[0])
            if kind == QUIET or prior[other] > prior[QUIET]:
                before = other
            worth = prior[before]
        share = (note[kind] - worth + PENALTY) / (last - first + 1) / 2
        return _Segment(kind, int(note[3 + kind]), first, last, share), before


def _word(letters: list[_Segment]) -> Word:
    share = sum(segment.share for segment in letters) / len(letters)
    confidence = round(float(np.interp(share, _SHARES, _RIGHT)), 4)
    text = "".join(ALPHABET[segment.symbol] for segment in letters)
    return Word(text, _edge_s(letters[0].first), _edge_s(letters[-1].last + 1), confidence)


def clipped(heard: Heard, limit_s: float) -> Heard:
    """The same with no time later than ``limit_s``."""
    words = tuple(
        Word(word.text, min(word.start_s, limit_s), min(word.end_s, limit_s), word.confidence) for word in heard.words
    )
    return Heard(heard.kind, min(heard.start_s, limit_s), min(heard.end_s, limit_s), words)


def _edge_s(frame: int) -> float:
    """The instant between a frame and the one before."""
    return round(max(0.0, (frame - 0.5) * FRAME_S), 4)


def _middle_s(frame: int) -> float:
    return round(frame * FRAME_S, 4)
