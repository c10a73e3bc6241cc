"""One turn of hearing: pieces of several streams through resampling, one filter bank, one search, and into words. No torch, no asyncio.

Runs in one thread. The filter bank is the model; everything around it is numpy. It refuses to schedule: it hears what it is given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.speech.decode import MIN_FRAMES, Search
from plimsoll.reference_server.speech.resample import RATE, Kernel, Resampler, kernel
from plimsoll.reference_server.speech.seam import Audio, Heard
from plimsoll.reference_server.speech.transcript import FRAME_S, MIN_ENDPOINT_FRAMES, Transcript, clipped

Float = npt.NDArray[np.float64]

HOP = 48
WINDOW = 192
"""Samples at 8 kHz: a frame of 24 ms every 6 ms."""
_HALF = WINDOW // 2
_TAIL = WINDOW + (MIN_FRAMES + 2) * HOP
"""Silence that lets the last symbol end."""


class FilterBank(Protocol):
    """How strong each tone is."""

    def shares(self, samples: Float) -> tuple[Float, Float]:
        """Of whole 16-bit values at 8 kHz [B, WINDOW + (T - 1) x HOP]: each low tone's share of the low tones' energy [B, T, 14], and of
        the high ones' [B, T, 7]. A frame's shares are the same bits in any batch.
        """

    def warm_up(self, max_batch: int) -> None:
        """Pay once-only costs, in the thread that will call ``shares``."""


@dataclass(slots=True, eq=False)
class Ear:
    """One stream between two turns: samples short of a frame, and how far it was heard."""

    row: int
    sample_rate: int
    resampler: Resampler
    transcript: Transcript
    samples: Float = field(default_factory=lambda: np.zeros(_HALF))
    n_frames: int = 0

    @property
    def heard_s(self) -> float:
        """Seconds of audio taken so far."""
        return round(self.resampler.n_in / self.sample_rate, 4)


@dataclass(slots=True, eq=False)
class Piece:
    """Audio of one stream in a turn; ``ending`` is "", "flush" or "finish"."""

    ear: Ear
    audio: Audio
    ending: str = ""
    heard: list[Heard] = field(default_factory=list)


class Hearing:
    """A filter bank and the search states of ``n_rows`` streams."""

    def __init__(self, bank: FilterBank, n_rows: int) -> None:
        self.n_rows = n_rows
        self._bank = bank
        self._search = Search(n_rows)

    def open(self, row: int, sample_rate: int, coefficients: Kernel, endpointing_ms: int | None, interim: bool) -> Ear:
        """A fresh stream in a row that no other one holds."""
        self._search.reset(row, 0)
        frames = (
            None if endpointing_ms is None else max(MIN_ENDPOINT_FRAMES, math.ceil(endpointing_ms / 1000 / FRAME_S))
        )
        return Ear(row, sample_rate, Resampler(coefficients), Transcript(frames, interim))

    def warm_up(self, max_batch: int) -> None:
        """Pay once-only costs, in the thread that will call ``hear``."""
        self._bank.warm_up(max_batch)
        noise = np.random.default_rng(0).normal(0, 0.1, RATE // 2).astype(np.float32)
        warm = Hearing(self._bank, 1)
        warm.hear([Piece(warm.open(0, RATE, kernel(RATE), 300, True), noise, "finish")])

    def hear(self, pieces: Sequence[Piece]) -> tuple[int, int, int]:
        """Fill in what each piece has to say. Nanoseconds of preprocessing, inference and postprocessing."""
        begun_ns = time.monotonic_ns()
        samples = [self._samples(piece) for piece in pieces]
        order = sorted(range(len(pieces)), key=lambda i: -_n_frames(len(samples[i])))
        order = [i for i in order if _n_frames(len(samples[i]))]
        resampled_ns = time.monotonic_ns()
        notes: dict[int, Float] = {}
        if order:
            n_frames = np.array([_n_frames(len(samples[i])) for i in order])
            batch = np.zeros((len(order), WINDOW + (int(n_frames[0]) - 1) * HOP))
            for place, i in enumerate(order):
                n = min(len(samples[i]), batch.shape[1])
                batch[place, :n] = samples[i][:n]
            low, high = self._bank.shares(batch)
            rows = np.array([pieces[i].ear.row for i in order])
            noted = self._search.advance(rows, low, high, n_frames)
            notes = {i: noted[place, : n_frames[place]] for place, i in enumerate(order)}
        inferred_ns = time.monotonic_ns()
        for i, piece in enumerate(pieces):
            self._say(piece, samples[i], notes.get(i))
        return resampled_ns - begun_ns, inferred_ns - resampled_ns, time.monotonic_ns() - inferred_ns

    def _samples(self, piece: Piece) -> Float:
        """What the stream has to offer the bank; at an ending silence follows."""
        ear = piece.ear
        parts = [ear.samples, ear.resampler.feed(piece.audio)]
        if piece.ending == "finish":
            parts.append(ear.resampler.finish())
        ear.samples = np.concatenate(parts)
        return np.concatenate((ear.samples, np.zeros(_TAIL))) if piece.ending else ear.samples

    def _say(self, piece: Piece, samples: Float, notes: Float | None) -> None:
        ear = piece.ear
        whole = _n_frames(len(ear.samples))
        ear.samples = ear.samples[whole * HOP :]
        ear.n_frames += whole
        if notes is not None:
            piece.heard += ear.transcript.take(notes)
        if piece.ending:
            piece.heard += ear.transcript.finish()
            piece.heard = [clipped(heard, ear.heard_s) for heard in piece.heard]
            # What was heard under the silence must not be heard again: the stream goes on behind it.
            ear.samples = np.zeros(len(ear.samples))
            self._search.reset(ear.row, ear.n_frames)
            ear.transcript.restart(ear.n_frames)


def _n_frames(n_samples: int) -> int:
    return 0 if n_samples < WINDOW else (n_samples - WINDOW) // HOP + 1
