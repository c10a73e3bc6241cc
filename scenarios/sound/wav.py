"""WAV in memory: header, samples, and a writer. Pure numpy: PCM of 8 to 32 bits, floats, mu-law and A-law; other codings are refused by name.

A header whose sizes are unknown (0 or all ones, as programs write that stream) means "until the end", so that the same reader serves files and
answers that are still arriving.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from plimsoll.scenarios.sound.companding import alaw_decoded, mulaw_decoded
from plimsoll.scenarios.sound.condition import FULL_SCALE

Float = npt.NDArray[np.float64]

_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_WIDTHS: Final = {_PCM: (1, 2, 3, 4), _FLOAT: (4, 8), _ALAW: (1,), _MULAW: (1,)}
_UNKNOWN_SIZES: Final = (0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_LONGEST_HEADER: Final = 1 << 20
MAX_CHANNELS: Final = 64
MAX_RATE: Final = 768_000


class NotWav(ValueError):
    """Bytes that are no WAV, or one in a coding that isn't read here. ``other_coding``: a codec library may read it."""

    def __init__(self, text: str, other_coding: bool = False) -> None:
        super().__init__(text)
        self.other_coding = other_coding


@dataclass(frozen=True, slots=True)
class WavHeader:
    """``coding`` 1 PCM, 3 float, 6 A-law, 7 mu-law; ``width`` in bytes; samples start at byte ``data_at`` and have ``data_bytes`` (-1: until the end)."""

    coding: int
    channels: int
    rate: int
    width: int
    data_at: int
    data_bytes: int

    @property
    def frame_bytes(self) -> int:
        """Of one sample in all channels."""
        return self.width * self.channels

    def n_samples(self, n_bytes: int) -> int:
        """Whole samples in a file of ``n_bytes``."""
        there = max(0, n_bytes - self.data_at)
        return (there if self.data_bytes < 0 else min(there, self.data_bytes)) // self.frame_bytes


def parse_header(data: bytes | memoryview) -> WavHeader | None:
    """The header at the start of ``data``; None while it isn't whole. Raises NotWav."""
    data = bytes(data[:_LONGEST_HEADER])
    if not b"RIFF".startswith(data[:4]) and data[:4] != b"RIFF":
        raise NotWav(f"it begins with {data[:4]!r}, not RIFF")
    if len(data) >= 12 and data[8:12] != b"WAVE":
        raise NotWav(f"a RIFF file of kind {data[8:12]!r}, not WAVE")
    at, described = 12, None
    while len(data) >= at + 8:
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"data":
            if described is None:
                raise NotWav("its samples come before their description (no fmt chunk)")
            return WavHeader(*described, at + 8, -1 if size in _UNKNOWN_SIZES else size)
        if name == b"fmt ":
            if size < 16 or size > 1024:
                raise NotWav(f"its fmt chunk has {size} bytes")
            if len(data) < at + 8 + size:
                return None
            described = _described(data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
        if at > _LONGEST_HEADER:
            raise NotWav("no samples in the first MiB")
    return None


def _described(fmt: bytes) -> tuple[int, int, int, int]:
    coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", fmt)
    if coding == _EXTENSIBLE and len(fmt) >= 26:
        coding = int.from_bytes(fmt[24:26], "little")
    if coding not in _WIDTHS or bits % 8 or bits // 8 not in _WIDTHS[coding]:
        raise NotWav(f"samples of {bits} bits in WAVE coding {coding}, which needs a codec library", other_coding=True)
    if not 1 <= channels <= MAX_CHANNELS or not 1 <= rate <= MAX_RATE:
        raise NotWav(f"{channels} channels at {rate} Hz")
    return coding, channels, rate, bits // 8


def mono(header: WavHeader, data: bytes | memoryview) -> Float:
    """Samples of ``data`` (whole frames; a rest is left out) in [-1, 1], the mean of all channels. What isn't finite is silence."""
    n = len(data) // header.frame_bytes
    flat = _flat(header, bytes(data[: n * header.frame_bytes]))
    if header.channels == 1:
        return flat
    mixed: Float = flat.reshape(n, header.channels).mean(axis=1)
    return mixed


def _flat(header: WavHeader, data: bytes) -> Float:
    if header.coding == _FLOAT:
        given = np.frombuffer(data, f"<f{header.width}").astype(np.float64)
        return np.nan_to_num(given, nan=0.0, posinf=0.0, neginf=0.0)
    if header.coding in (_ALAW, _MULAW):
        codes = np.frombuffer(data, np.uint8)
        return (alaw_decoded if header.coding == _ALAW else mulaw_decoded)(codes).astype(np.float64) / FULL_SCALE
    if header.width == 1:  # the only width that WAV stores without a sign
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128
    if header.width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float64) / 2.0**31
    return np.frombuffer(data, f"<i{header.width}").astype(np.float64) / 2.0 ** (8 * header.width - 1)


def wav_bytes(pcm: npt.NDArray[np.int16], rate: int) -> bytes:
    """A mono file of 16-bit samples: 44 bytes of header, then ``pcm``."""
    body = pcm.astype("<i2").tobytes()
    described = struct.pack("<HHIIHH", _PCM, 1, rate, rate * 2, 2, 16)
    head = b"RIFF" + (36 + len(body)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little") + described
    return head + b"data" + len(body).to_bytes(4, "little") + body
