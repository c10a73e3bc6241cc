"""From tone energies to the likeliest sequence of symbols: a Viterbi search over many streams at once. Pure numpy, no torch.

Each frame is scored by the share of its band's energy that a symbol's two tones have; silence has a constant score. The search maximises
the sum along a path on which a symbol lasts at least MIN_FRAMES, costs PENALTY to enter, and is followed by silence or by a symbol
of the other parity. There is no clock and no absolute level in it: speech may be fast or slow, loud or soft, and what breaks it is
noise as strong as the tones. Streams do not meet: a row's results are the same bits in any company.

It refuses to make words: see ``transcript``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.speech.tones import GROUP

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]

N_SYMBOLS = GROUP * GROUP
EVEN, ODD, QUIET = range(3)
"""Classes of states, as a path leaves them."""
FIELDS = 3 * 3 + 3
"""Numbers noted a frame: score, symbol (-1: none) and first frame of the best state of each class [3, 3]; then class, symbol and first frame
of the best of all.
"""

MIN_FRAMES = 3
PENALTY = 1.5
SILENCE_SCORE = 0.6
_NEVER = -1e18


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
        """Take shares low [B, T, 14] and high [B, T, 7] of the streams ``rows``, of which ``n_frames`` [B] count, longest first.

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
    """The best paths of one batch, frame after frame. Arrays are [T, B, ...]: a frame of the first rows is one piece of memory.

    The loop over frames holds only what one frame needs from the one before; the rest is worked out for all frames at once.
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
        """One frame of the first ``n`` rows."""
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
        """In which frame the best path came to each state [T, B, 2, 49] and to silence [T, B], given ``frames`` [T, B] and what was."""
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
    """values[..., at[...]]"""
    flat = values.reshape(-1, values.shape[-1])
    picked: Float = flat[np.arange(len(flat)), at.ravel()].reshape(at.shape)
    return picked
