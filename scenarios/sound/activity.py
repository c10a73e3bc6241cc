"""Where speech begins and ends in a recording that nobody has labelled: levels of short windows against a threshold. Pure, and offline.

It is a measuring rod of known coarseness (one window, 10 ms), not a recogniser's opinion, and it never asks the server that is measured. Music, a
second speaker or a slammed door are speech to it: label such files.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

WINDOW_S: Final = 0.010
RANGE_DB: Final = 40.0
"""A window further below the loud ones than this is silence, however quiet the room."""
FLOOR_SHARE: Final = 1 / 3
"""The threshold lies this share of the way from the room's level up to the voice's (in dB)."""
LEAST_CONTRAST_DB: Final = 6.0
MIN_SILENCE_S: Final = 0.200
"""A shorter pause is inside the speech."""
MIN_SPEECH_S: Final = 0.030
"""A stretch with less sound than this is a click."""

DEFINITION: Final = (
    "root mean square of 10 ms windows; voice level = 95th percentile, room level = 5th (nearest rank); a window is loud when it is within "
    "40 dB of the voice and above the room by a third of the distance between them; pauses below 200 ms belong to the speech; stretches with less "
    "than 30 ms of sound are clicks; speech begins with the first and ends with the last loud window. With less than 6 dB between voice and room the "
    "whole recording is speech"
)


def speech_span(samples: npt.NDArray[np.float64], rate: int) -> tuple[int, int] | None:
    """(first sample, end) of the speech in mono ``samples`` in [-1, 1]; None where there is no sound at all.

    ``DEFINITION`` says how. Ends are whole windows, so they are right within 10 ms.
    """
    window = max(1, round(WINDOW_S * rate))
    n_windows = -(-len(samples) // window)
    if not n_windows:
        return None
    padded = np.zeros(n_windows * window)
    padded[: len(samples)] = samples
    power = np.mean(padded.reshape(n_windows, window) ** 2, axis=1)
    # The step of 16 bits is the faintest that a recording can hold.
    levels_db = 10 * np.log10(np.maximum(power, 2.0**-32))
    if not power.any():
        return None
    room_db, voice_db = _percentile(levels_db, 0.05), _percentile(levels_db, 0.95)
    if levels_db.max() - room_db < LEAST_CONTRAST_DB:
        return 0, len(samples)
    if voice_db - room_db < LEAST_CONTRAST_DB:
        voice_db = float(levels_db.max())  # less than a twentieth of the recording is speech
    loud = np.flatnonzero(levels_db > max(voice_db - RANGE_DB, room_db + FLOOR_SHARE * (voice_db - room_db)))
    breaks = np.flatnonzero(np.diff(loud) > MIN_SILENCE_S / WINDOW_S)
    stretches = np.split(loud, breaks + 1)
    spoken = [stretch for stretch in stretches if len(stretch) * WINDOW_S >= MIN_SPEECH_S] or stretches
    return int(spoken[0][0]) * window, min(len(samples), (int(spoken[-1][-1]) + 1) * window)


def _percentile(levels: npt.NDArray[np.float64], share: float) -> float:
    """By nearest rank."""
    return float(np.sort(levels)[max(0, int(np.ceil(share * len(levels))) - 1)])
