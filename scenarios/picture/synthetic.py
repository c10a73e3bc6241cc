"""Seeded pictures that cost a decoder and a network what a photograph costs: coarse shapes, finer ones, a little grain; and PNG files of
them, by zlib alone. Pure."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
_OCTAVES: Final = ((4, 90.0), (8, 45.0), (16, 24.0), (32, 12.0), (64, 6.0))
"""(patches along the longer side, amplitude): half the amplitude for twice the detail, as in natural scenes."""
_GRAIN: Final = 3.0


def picture(width: int, height: int, seed: int) -> Pixels:
    """uint8[height, width, 3], RGB. The same seed gives the same pixels."""
    rng = np.random.Generator(np.random.PCG64(seed))
    longest = max(width, height)
    made = np.full((height, width, 3), 128.0)
    for patches, amplitude in _OCTAVES:
        shape = tuple(max(2, round(side / longest * patches) + 1) for side in (height, width))
        # Grey detail and a third of it in each colour: channels of photographs are alike.
        grey, colour = rng.uniform(-1, 1, (*shape, 1)), rng.uniform(-1, 1, (*shape, 3))
        made += amplitude * _stretched(grey + colour / 3, height, width)
    made += _GRAIN * rng.standard_normal((height, width, 1))
    pixels: Pixels = np.clip(np.rint(made), 0, 255).astype(np.uint8)
    return pixels


def _stretched(patch: npt.NDArray[np.float64], height: int, width: int) -> npt.NDArray[np.float64]:
    """Bilinear, corners on corners."""
    for axis, size in ((0, height), (1, width)):
        at = np.linspace(0, patch.shape[axis] - 1, size)
        low = np.minimum(at.astype(np.int64), patch.shape[axis] - 2)
        share = (at - low).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        patch = patch.take(low, axis) * (1 - share) + patch.take(low + 1, axis) * share
    return patch


def png_bytes(pixels: npt.NDArray[np.uint8]) -> bytes:
    """uint8[height, width, 3] as a file. Each row is the difference to the one above it (filter 2)."""
    height, width, _ = pixels.shape
    above = np.zeros_like(pixels)
    above[1:] = pixels[:-1]
    rows = np.empty((height, 1 + width * 3), np.uint8)
    rows[:, 0] = 2
    rows[:, 1:] = (pixels - above).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(body).to_bytes(4, "big") + name + body + zlib.crc32(name + body).to_bytes(4, "big") for name, body in chunks
    )
