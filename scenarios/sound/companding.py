"""G.711: 16-bit samples as 8-bit mu-law and A-law and back, by table. Pure numpy, no codec library.

Encoding truncates to the coder's own 14 (mu-law) or 13 (A-law) bits, as the recommendation's reference does.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Int16 = npt.NDArray[np.int16]
Uint8 = npt.NDArray[np.uint8]

_BIAS: Final = 132
_CLIP: Final = 32635


def mulaw_decoded(codes: Uint8) -> Int16:
    """Codes as samples of up to +-32,124."""
    turned = ~codes
    magnitude = ((((turned & 15).astype(np.int32) << 3) + _BIAS) << ((turned >> 4) & 7)) - _BIAS
    return np.where(turned & 128, -magnitude, magnitude).astype(np.int16)


def mulaw_encoded(pcm: Int16) -> Uint8:
    """Samples as codes: sign, exponent, four bits of mantissa, all inverted."""
    wide = pcm.astype(np.int32)
    # 14 bits: the two lowest are dropped towards zero.
    magnitude = np.minimum((np.abs(wide) >> 2) << 2, _CLIP) + _BIAS
    exponent = _exponent(magnitude >> 7)
    code = (exponent << 4) | ((magnitude >> (exponent + 3)) & 15)
    signed: npt.NDArray[np.int32] = ~(code | np.where(wide < 0, 128, 0)) & 255
    return signed.astype(np.uint8)


def alaw_decoded(codes: Uint8) -> Int16:
    """Codes as samples of up to +-32,256."""
    turned = (codes ^ 0x55).astype(np.int32)
    exponent, mantissa = (turned >> 4) & 7, turned & 15
    magnitude = np.where(exponent == 0, (mantissa << 4) + 8, ((mantissa << 4) + 264) << np.maximum(exponent - 1, 0))
    return np.where(turned & 128, magnitude, -magnitude).astype(np.int16)


def alaw_encoded(pcm: Int16) -> Uint8:
    """Samples as codes: sign (1 is positive), exponent, four bits of mantissa, every second bit inverted."""
    wide = pcm.astype(np.int32)
    # 13 bits: the lowest three are dropped; below zero one's complement, as the reference does.
    magnitude = np.where(wide < 0, ~wide, wide) >> 4
    exponent = _exponent(magnitude >> 4) + (magnitude > 15)
    exponent = np.where(magnitude > 15, exponent, 0)
    mantissa = np.where(exponent == 0, magnitude, magnitude >> np.maximum(exponent - 1, 0)) & 15
    signed: npt.NDArray[np.int32] = (exponent << 4) | mantissa | np.where(wide < 0, 0, 128)
    return (signed ^ 0x55).astype(np.uint8)


def _exponent(value: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The place of the highest bit set, 0 for 0 and 1, at most 7."""
    place = np.zeros_like(value)
    for bit in range(1, 8):
        place += value >= (1 << bit)
    return place
