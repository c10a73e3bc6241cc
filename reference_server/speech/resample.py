"""Any sample rate to the listener's 8 kHz by a windowed sinc, bit for bit the same however the audio is cut. Pure
numpy.

Audio is rounded to 16 bits and coefficients to 20: every product and partial sum is a whole number below 2**53, so no
order of summation can change a result. It refuses rates below 8 kHz: the band wouldn't hold the tones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.seams.models import Audio

RATE = 8000
MIN_RATE, MAX_RATE = 8000, 48_000
FULL_SCALE = 32768.0

Float = npt.NDArray[np.float64]

BLOCK = 16
_CROSSINGS = 10
_CUTOFF = 0.93
_BETA = 5.0
_GRID = float(1 << 20)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Coefficients [phases, taps] of one input rate; output i looks at input i x ``step`` / ``phases``."""

    table: Float
    step: int
    block: Float
    """With one phase: [inputs, BLOCK], the coefficients of BLOCK outputs side by side; else empty."""

    @property
    def phases(self) -> int:
        return len(self.table)

    @property
    def reach(self) -> int:
        """Inputs that an output needs after its own position, and as many minus one before it."""
        return len(self.table[0]) // 2


def kernel(sample_rate: int) -> Kernel:
    """The coefficients for an input rate of MIN_RATE to MAX_RATE Hz."""
    divisor = math.gcd(sample_rate, RATE)
    phases, step = RATE // divisor, sample_rate // divisor
    if sample_rate == RATE:
        return Kernel(np.array([[_GRID, 0.0]]), 1, np.zeros((0, BLOCK)))
    ratio = sample_rate / RATE
    reach = math.ceil(_CROSSINGS * ratio)
    offset = np.arange(-reach + 1, reach + 1)[None, :] - (np.arange(phases) / phases)[:, None]
    x = offset / ratio
    window = np.i0(_BETA * np.sqrt(np.clip(1 - (x / _CROSSINGS) ** 2, 0, None))) / np.i0(_BETA)
    table = np.sinc(x * _CUTOFF) * window
    table /= table.sum(axis=1, keepdims=True)
    table = np.rint(table * _GRID)
    if phases > 1:
        return Kernel(table, step, np.zeros((0, BLOCK)))
    block = np.zeros((table.shape[1] + step * (BLOCK - 1), BLOCK))
    for place in range(BLOCK):
        block[place * step : place * step + table.shape[1], place] = table[0]
    return Kernel(table, step, block)


@dataclass(slots=True)
class Resampler:
    """One stream on its way to 8 kHz; sample i of the result lies at i / 8000 s."""

    kernel: Kernel
    n_in: int = 0
    n_out: int = 0
    _kept: Float = field(default_factory=lambda: np.zeros(0))
    _kept_at: int = 0

    def __post_init__(self) -> None:
        self._kept = np.zeros(self.kernel.reach - 1)
        self._kept_at = 1 - self.kernel.reach

    def feed(self, audio: Audio) -> Float:
        """Whole 16-bit values at 8 kHz, as far as the input reaches."""
        steps = np.clip(np.rint(np.clip(audio, -1, 1) * np.float32(FULL_SCALE)), -FULL_SCALE, FULL_SCALE - 1).astype(
            np.float64
        )
        self.n_in += len(steps)
        self._kept = np.concatenate((self._kept, steps))
        shape = self.kernel
        # Output i needs inputs up to floor(i x step / phases) + reach.
        ready = max(self.n_out, -(-(self.n_in - shape.reach) * shape.phases // shape.step))
        places = np.arange(self.n_out, ready) * shape.step
        heard = self._weighed(places // shape.phases, places % shape.phases)
        self.n_out = ready
        keep_from = min(ready * shape.step // shape.phases - shape.reach + 1, self._kept_at + len(self._kept))
        self._kept, self._kept_at = self._kept[keep_from - self._kept_at :], keep_from
        return heard

    def finish(self) -> Float:
        """What is left, as if silence followed."""
        missing = -(-self.n_in * self.kernel.phases // self.kernel.step) - self.n_out
        n_in = self.n_in
        tail = self.feed(np.zeros(self.kernel.reach + self.kernel.step, np.float32))
        self.n_in = n_in
        return tail[:missing]

    def _weighed(self, at: npt.NDArray[np.int64], phase: npt.NDArray[np.int64]) -> Float:
        if not len(at):
            return np.zeros(0)
        taps = self.kernel.table.shape[1]
        first = at - self.kernel.reach + 1 - self._kept_at
        if self.kernel.step == self.kernel.phases == 1:
            return self._kept[int(first[0]) : int(first[-1]) + 1].copy()
        if self.kernel.phases == 1:
            return self._blockwise(int(first[0]), len(at))
        windows = np.lib.stride_tricks.sliding_window_view(self._kept, taps)
        weighed: Float = np.rint(np.einsum("ij,ij->i", windows[first], self.kernel.table[phase]) / _GRID)
        return weighed

    def _blockwise(self, first: int, n: int) -> Float:
        """``n`` outputs of one phase, BLOCK of them as one row of a matrix product: the same numbers, faster."""
        block, step = self.kernel.block, self.kernel.step
        n_blocks = -(-n // BLOCK)
        needed = first + (n_blocks - 1) * BLOCK * step + block.shape[0]
        padded = np.concatenate((self._kept, np.zeros(max(0, needed - len(self._kept)))))
        windows: Float = np.ndarray((n_blocks, block.shape[0]), np.float64, padded, first * 8, (8 * BLOCK * step, 8))
        return np.asarray(np.rint(np.ascontiguousarray(windows) @ block / _GRID)).reshape(-1)[:n]
