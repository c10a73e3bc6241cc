"""PNG from pixels: the standard library's zlib and nothing else. Pure; it writes 8-bit RGB without interlacing and reads nothing."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt


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
