"""From one sample rate to another, and faster or slower as a tape is: a windowed sinc by whole-number ratios. Pure; scipy is imported when it is needed.

It keeps no pitch: played at 1.1 times the speed a voice is higher, too, which is what speech researchers call speed perturbation.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]

MAX_RATIO_TERM: Final = 50_000
"""Of the ratio's terms; 44,100 to 16,000 Hz at 1.1 times the speed is 1600 : 4851."""
_CROSSINGS: Final = 24
_CUTOFF: Final = 0.95
_KAISER: Final = 8.0


def resample(samples: Float, rate: int, to_rate: int, speed: float = 1.0) -> Float:
    """``samples`` at ``rate`` as ceil(n x to_rate / rate / speed) samples at ``to_rate``; sample 0 stays where it is.

    Kaiser window of 24 zero crossings a side, pass band to 90 % of the lower of the two half rates, stop band below -80 dB beyond it.
    """
    ratio = (Fraction(to_rate, rate) / Fraction(speed).limit_denominator(1000)).limit_denominator(MAX_RATIO_TERM)
    if ratio == 1 or not len(samples):
        return samples
    from scipy.signal import firwin, resample_poly

    most = max(ratio.numerator, ratio.denominator)
    window = firwin(2 * _CROSSINGS * most + 1, _CUTOFF / most, window=("kaiser", _KAISER))
    return np.asarray(resample_poly(samples, ratio.numerator, ratio.denominator, window=window))
