"""The recogniser's model: 21 filters, one complex correlation each, as one matrix product over all frames.

Samples are whole 16-bit values and the windowed sines are rounded to 20 bits, in float64: all products and partial sums
are whole numbers below 2**53, so a stream hears the same bits alone, in a batch, and on any device.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from plimsoll.reference_server.speech.listening import HOP, WINDOW, Float
from plimsoll.reference_server.speech.resample import RATE
from plimsoll.reference_server.speech.tones import HIGH_HZ, LOW_HZ

_GRID = float(1 << 20)
_FLOOR_STEPS = 3.0
"""Amplitude, in 16-bit steps, of a tone that the silence of a quiet line outweighs."""


class ToneBank:
    """Hann-windowed correlations with every tone, on one device."""

    def __init__(self, device: str = "cpu") -> None:
        at = np.arange(WINDOW)
        window = 0.5 - 0.5 * np.cos(2 * math.pi * (at + 0.5) / WINDOW)
        turns = 2 * math.pi / RATE * np.outer(at, np.array(LOW_HZ + HIGH_HZ))
        waves = np.concatenate((np.cos(turns), np.sin(turns)), axis=1) * window[:, None]
        self._waves = torch.from_numpy(np.rint(waves * _GRID)).to(device)
        self._device = device
        # A tone of amplitude a correlates to a x sum(window) / 2 with its own wave.
        self._floor = (_FLOOR_STEPS * _GRID * float(window.sum()) / 2) ** 2

    def warm_up(self, max_batch: int) -> None:
        torch.set_num_threads(1)  # the products are small: a second thread costs more than it brings
        for n in {1, max_batch}:
            self.shares(np.zeros((n, WINDOW + 16 * HOP)))

    @torch.inference_mode()
    def shares(self, samples: Float) -> tuple[Float, Float]:
        """Each tone's share of its group's energy, [B, T, 14] and [B, T, 7]: see ``speech.listening.FilterBank``."""
        frames = torch.from_numpy(samples).to(self._device).unfold(-1, WINDOW, HOP)
        parts = frames @ self._waves
        n_tones = parts.shape[-1] // 2
        energy = parts[..., :n_tones] * parts[..., :n_tones] + parts[..., n_tones:] * parts[..., n_tones:]
        held = energy.cpu().numpy()
        low, high = held[..., : len(LOW_HZ)], held[..., len(LOW_HZ) :]
        return self._share(low), self._share(high)

    def _share(self, energy: Float) -> Float:
        total = energy[..., 0].copy()
        for tone in range(1, energy.shape[-1]):  # one after the other: the order of this sum does matter
            total += energy[..., tone]
        return np.ascontiguousarray(energy / (total + self._floor)[..., None])
