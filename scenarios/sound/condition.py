"""What a recording goes through on its way into a run: noise of a known ratio, gain, 16 bits. Pure and seeded.

Too loud is clipped and too soft is lost in the steps of 16 bits, as in any converter; nothing is scaled back behind the asker's back.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
FULL_SCALE: Final = 32768.0


def with_noise(samples: Float, speech: tuple[int, int], snr_db: float, seed: int) -> Float:
    """``samples`` with white noise over all of them, ``snr_db`` below the mean power of the stretch ``speech`` (first sample, end).

    Silence stays silent: without power in the stretch there is no ratio.
    """
    spoken = samples[speech[0] : speech[1]]
    power = float(np.mean(spoken**2)) if len(spoken) else 0.0
    if power == 0.0:
        return samples
    rng = np.random.Generator(np.random.PCG64(seed))
    noisy: Float = samples + rng.standard_normal(len(samples)) * np.sqrt(power * 10 ** (-snr_db / 10))
    return noisy


def louder(samples: Float, gain_db: float) -> Float:
    """``samples`` times 10^(gain / 20)."""
    scaled: Float = samples * 10 ** (gain_db / 20)
    return scaled


def to_int16(samples: Float) -> npt.NDArray[np.int16]:
    """[-1, 1) as 16-bit steps, rounded, clipped at full scale."""
    return np.clip(np.rint(samples * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


def to_float(pcm: npt.NDArray[np.int16]) -> Float:
    """16-bit steps as [-1, 1); ``to_int16`` undoes it exactly."""
    return pcm.astype(np.float64) / FULL_SCALE
