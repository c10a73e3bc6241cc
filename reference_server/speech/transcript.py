"""From tone energies to words and events: a Viterbi search over many streams, and what its path says. Pure numpy.

The path has the greatest sum of energy shares where a symbol lasts at least MIN_FRAMES, costs PENALTY to enter, and is
followed by silence or by a symbol of the other parity. A row's results are the same bits in any company; there is no
dictionary, no grammar, no repair.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.seams.models import Heard, Word
from plimsoll.reference_server.speech.tones import ALPHABET, GROUP, SPACE

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]

N_SYMBOLS = GROUP * GROUP
EVEN, ODD, QUIET = range(3)
"""Classes of states, as a path leaves them."""
FIELDS = 3 * 3 + 3
"""Numbers noted a frame: score, symbol (-1: none) and first frame of the best state of each class [3, 3]; then class,
symbol and first frame of the best of all."""

MIN_FRAMES = 3
PENALTY = 1.5
SILENCE_SCORE = 0.6
_NEVER = -1e18
FRAME_S = 0.006
LONGEST_S = 60.0
"""An utterance longer than this is ended by a final at the end of a word, and goes on."""
_KEPT = 2048
"""Frames (12 s) after which a path counts as settled: alternatives that old are long dead."""
_GAP_FRAMES = 6
"""Silence of this length parts words. Endpointing below MIN_ENDPOINT_FRAMES would cut words between symbols."""
MIN_ENDPOINT_FRAMES = 10
_SHARES = (0.30, 0.36, 0.42, 0.50, 0.60, 0.95)
_RIGHT = (0.40, 0.60, 0.80, 0.95, 0.99, 1.00)
"""Confidence: of the words whose letters' tones had such a mean share, so many were right (in white noise)."""


class Search:
    """The search states of up to ``n_rows`` streams."""

    def __init__(self, n_rows: int) -> None:
        self._score = np.empty((n_rows, 2, N_SYMBOLS))
        self._start = np.zeros((n_rows, 2, N_SYMBOLS))
        self._recent = np.empty((n_rows, MIN_FRAMES - 1, 2, N_SYMBOLS))
        self._entry = np.empty((n_rows, MIN_FRAMES, 2))
        self._quiet = np.empty((n_rows, 3))
        self._frame = np.zeros(n_rows)
        for row in range(n_rows):
            self.reset(row, 0)

    def reset(self, row: int, frame: int) -> None:
        """Begin anew in silence; ``frame`` is the number of the next frame."""
        self._score[row] = _NEVER
        self._start[row] = -1.0  # the last owner's later frames would win over the new one's
        self._recent[row] = 0.0
        self._entry[row] = _NEVER
        self._entry[row, -1] = 0.0
        self._quiet[row] = (0.0, frame, _NEVER)
        self._frame[row] = frame

    def advance(self, rows: Int, low: Float, high: Float, n_frames: Int) -> Float:
        """Take shares low [B, T, 14] and high [B, T, 7] of the streams ``rows``, of which ``n_frames`` [B] count,
        longest first.

        Returns what to note [B, T, FIELDS]; rows of frames beyond ``n_frames`` mean nothing.
        """
        paths = _Paths(low, high, self._recent[rows], self._entry[rows], self._quiet[rows], self._score[rows])
        for t in range(low.shape[1]):
            paths.step(t, int((n_frames > t).sum()))
        frames = self._frame[rows] + np.arange(low.shape[1])[:, None]
        start, quiet_start = paths.starts(frames, self._start[rows], self._quiet[rows, 1])
        notes = _notes(paths.score, start, paths.quiet[1:], quiet_start)
        at, last = np.arange(len(rows)), n_frames - 1
        self._score[rows], self._start[rows] = paths.score[last, at], start[last, at]
        self._quiet[rows] = np.stack((paths.quiet[n_frames, at], quiet_start[last, at], paths.leave[n_frames, at]), 1)
        for kept in range(MIN_FRAMES):
            self._entry[rows, kept] = paths.entry[n_frames + kept, at]
        for kept in range(MIN_FRAMES - 1):
            self._recent[rows, kept] = paths.run[n_frames + kept, at]
        self._frame[rows] += n_frames
        return notes


class _Paths:
    """The best paths of one batch, frame after frame. Arrays are [T, B, ...]: a frame of the first rows is one piece of
    memory.

    The loop over frames holds only what one frame needs from the one before; the rest is worked out for all frames at
    once.
    """

    __slots__ = ("_better", "_first", "_opening", "entry", "leave", "quiet", "run", "score")

    def __init__(self, low: Float, high: Float, recent: Float, entry: Float, quiet: Float, score: Float) -> None:
        batch, length = low.shape[:2]
        shares = low.reshape(batch, length, 2, 1, GROUP) + high[:, :, None, :, None]
        run = np.concatenate((recent, shares.reshape(batch, length, 2, N_SYMBOLS)), axis=1)
        self.run = np.ascontiguousarray(run.swapaxes(0, 1))
        """What each symbol scores in each frame, the last MIN_FRAMES - 1 of before included."""
        self._opening = self.run[:length] - PENALTY
        for later in range(1, MIN_FRAMES):
            self._opening += self.run[later : later + length]
        self._first = score
        self.score = np.zeros((length, batch, 2, N_SYMBOLS))
        """The best path that is in a state and has been there for MIN_FRAMES or more."""
        self._better = np.zeros((length, batch, 2, N_SYMBOLS), np.bool_)
        self.entry = np.zeros((length + MIN_FRAMES, batch, 2))
        """What it was worth to enter each parity; entry t + MIN_FRAMES is that of frame t."""
        self.entry[:MIN_FRAMES] = entry.swapaxes(0, 1)
        self.quiet, self.leave = np.zeros((2, length + 1, batch))
        """The score of silence, and what it was worth to enter it; t + 1 is that of frame t."""
        self.quiet[0], self.leave[0] = quiet[:, 0], quiet[:, 2]

    def step(self, t: int, n: int) -> None:
        before = self.score[t - 1] if t else self._first
        score, opening = self.score[t, :n], self._opening[t, :n]
        np.add(before[:n], self.run[t + MIN_FRAMES - 1, :n], out=score)
        opening += self.entry[t, :n, :, None]
        np.greater(opening, score, out=self._better[t, :n])
        np.maximum(score, opening, out=score)
        best = score.max(axis=2)
        quiet = self.quiet[t + 1, :n]
        np.maximum(self.quiet[t, :n], self.leave[t, :n], out=quiet)
        quiet += SILENCE_SCORE
        np.subtract(best.max(axis=1), PENALTY, out=self.leave[t + 1, :n])
        np.maximum(best[:, ::-1], quiet[:, None], out=self.entry[t + MIN_FRAMES, :n])

    def starts(self, frames: Float, start: Float, quiet_start: Float) -> tuple[Float, Float]:
        """In which frame the best path came to each state [T, B, 2, 49] and to silence [T, B], and what was."""
        came = np.where(self._better, (frames - (MIN_FRAMES - 1))[:, :, None, None], -1.0)
        came[0] = np.where(self._better[0], came[0], start)
        fell = np.where(self.leave[:-1] > self.quiet[:-1], frames, -1.0)
        fell[0] = np.where(fell[0] >= 0, fell[0], quiet_start)
        return np.maximum.accumulate(came, axis=0), np.maximum.accumulate(fell, axis=0)


def _notes(score: Float, start: Float, quiet: Float, quiet_start: Float) -> Float:
    """What is worth keeping of [T, B, ...], as [B, T, FIELDS]."""
    best = score.argmax(axis=3)
    notes = np.empty((*quiet.shape, FIELDS))
    notes[..., 0:2] = _picked(score, best)
    notes[..., 2] = quiet
    notes[..., 3:5] = best
    notes[..., 5] = -1
    notes[..., 6:8] = _picked(start, best)
    notes[..., 8] = quiet_start
    louder = np.maximum(notes[..., 0], notes[..., 1]) > quiet
    kind = np.where(louder, notes[..., 1] > notes[..., 0], QUIET)
    notes[..., 9] = kind
    notes[..., 10] = _picked(notes[..., 3:6], kind)
    notes[..., 11] = _picked(notes[..., 6:9], kind)
    return notes.swapaxes(0, 1)


def _picked(values: Float, at: Int) -> Float:
    flat = values.reshape(-1, values.shape[-1])
    picked: Float = flat[np.arange(len(flat)), at.ravel()].reshape(at.shape)
    return picked


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
        """A stretch of one best state. What it triggers hangs on where that state took over, not on cuts."""
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
        """Make the words those of the path, whose first ``n_same`` segments are as before; an open word is left out."""
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


class CertainWords:
    """The words of one utterance, told once each. What ``feed`` and ``end`` return, joined, is a prefix of the final
    transcript unless a word was revised after two partials had agreed on it; then nothing more is told."""

    def __init__(self) -> None:
        self._before: list[str] = []
        self._told: list[str] = []

    def feed(self, partial: Sequence[str]) -> list[str]:
        """The words that have become certain with this partial."""
        agreed = 0
        while agreed < min(len(self._before), len(partial) - 1) and self._before[agreed] == partial[agreed]:
            agreed += 1
        self._before = list(partial)
        return self._tell(partial[:agreed])

    def end(self, final: Sequence[str]) -> list[str]:
        return self._tell(final)

    def delta(self, words: Sequence[str]) -> str:
        """What was just told, as text to be appended."""
        return " ".join(words) if len(self._told) == len(words) else "".join(f" {word}" for word in words)

    def _tell(self, certain: Sequence[str]) -> list[str]:
        n_told = len(self._told)
        if list(certain[:n_told]) != self._told:
            return []
        fresh = list(certain[n_told:])
        self._told += fresh
        return fresh
