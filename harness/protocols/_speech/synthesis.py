"""What a synthesis session was worth: from the audio that came, and when, to the stamps of one row. Pure; it judges no status.

A sample is audible when it belongs to the first window of 10 ms, moved by 1 ms, whose root mean square about its own mean is
above 0.01 of full scale (the detector that Coval publishes); what was heard has arrived when that window's last sample has.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols._speech.events import Sound

NS = 1_000_000_000
AUDIBLE_RMS = 0.01
_WINDOW_MS, _HOP_MS = 10, 1


def put_sounds(exchange: Exchange, sounds: Sequence[Sound]) -> None:
    """Fill chunk arrivals, playing times, first and audible audio from the chunks in order of arrival; empty ones are none."""
    stamps = exchange.session if exchange.session is not None else SessionStamps()
    exchange.session = stamps
    held = [sound for sound in sounds if len(sound.samples)]
    exchange.chunk_ns = array("q", [sound.t_ns for sound in held])
    exchange.n_chunks = len(held)
    # Cut from the running number of samples, so that many short chunks add up to the whole without rounding away.
    ends = np.cumsum([0] + [len(sound.samples) for sound in held]).astype(np.int64)
    rate = held[0].rate if held else 1
    edges = (ends * NS + rate // 2) // rate
    stamps.chunk_audio_ns = array("q", np.diff(edges).tolist())
    stamps.media_out_ns = int(edges[-1])
    if not held:
        return
    stamps.first_audio_ns = held[0].t_ns
    place = first_audible(np.concatenate([sound.samples for sound in held]), rate)
    if place >= 0:
        stamps.leading_silence_ns = place * NS // rate
        heard = min(place + rate * _WINDOW_MS // 1000, int(ends[-1])) - 1  # what makes the window loud is at its end
        stamps.audible_ns = held[int(np.searchsorted(ends, heard, side="right")) - 1].t_ns


def as_float(samples: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """Samples with full scale 1.0."""
    if samples.dtype == np.int16:
        return samples.astype(np.float32) / np.float32(32768)
    return samples.astype(np.float32, copy=False)


def first_audible(samples: npt.NDArray[np.generic], rate: int) -> int:
    """Index of the first sample of the first audible window, -1 if all is silent. int16[n], or float32[n] with full scale 1.0."""
    window, hop = max(1, rate * _WINDOW_MS // 1000), max(1, rate * _HOP_MS // 1000)
    if len(samples) < window:
        return 0 if len(samples) and float(np.std(as_float(samples))) > AUDIBLE_RMS else -1
    block = 200 * hop  # a fifth of a second at a time: silence is short, answers are long
    for begin in range(0, len(samples) - window + 1, block):
        part = as_float(samples[begin : begin + block + window - 1]).astype(np.float64)
        sums = np.concatenate(([0.0], np.cumsum(part)))
        squares = np.concatenate(([0.0], np.cumsum(part * part)))
        starts = np.arange(0, len(part) - window + 1, hop)
        mean = (sums[starts + window] - sums[starts]) / window
        power = (squares[starts + window] - squares[starts]) / window - mean * mean
        loud = np.flatnonzero(power > AUDIBLE_RMS**2)
        if len(loud):
            return begin + int(starts[loud[0]])
    return -1
