"""JPEG files to the square of pixels that an image classifier takes. The only user of Pillow; no torch here.

It refuses what is no JPEG, what ends too early, and what would cost far more to decode than to send: pictures of more than 32
million pixels, and progressive files of more than 100 scans. The size is read from the header, before a pixel is decoded.
"""

from __future__ import annotations

import base64
import binascii
import io

import numpy as np
import numpy.typing as npt
from PIL.Image import Image, Resampling
from PIL.JpegImagePlugin import JpegImageFile

from plimsoll.reference_server.values.errors import RequestError

MAX_PIXELS = 32_000_000
MAX_SCANS = 100
"""A progressive JPEG has about ten; each is a pass over the whole picture."""
SIDE = 224
_SHORTER = 256
_BASE64 = b"/9j/"
"""How a JPEG begins in base64; a JPEG itself begins with FF D8, so the two can't be confused."""
_START_OF_SCAN = b"\xff\xda"
# ImageNet's mean and spread of each channel, for pixels from 0 to 1.
_MEAN = np.array((0.485, 0.456, 0.406), dtype=np.float32)
_SPREAD = np.array((0.229, 0.224, 0.225), dtype=np.float32)


def decode(data: bytes, where: str) -> Image:
    """The RGB picture in a JPEG file, which may be written in base64. Raises RequestError 400 that begins with ``where``."""
    if not data:
        raise _bad(where, "is empty. Send the bytes of a JPEG file")
    if data.startswith(_BASE64):
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise _bad(where, f"looks like base64 and isn't: {error}. Send the bytes of a JPEG file") from None
    if data.count(_START_OF_SCAN) > MAX_SCANS:
        raise _bad(where, f"has more than {MAX_SCANS} scans. Save it as a baseline JPEG")
    try:
        image = JpegImageFile(io.BytesIO(data))
    except (SyntaxError, OSError, ValueError):
        raise _bad(where, f"is no JPEG; it begins with {data[:4].hex(' ')}. Send the bytes of a JPEG file") from None
    if image.width * image.height > MAX_PIXELS:
        raise _bad(
            where, f"has {image.width} x {image.height} pixels, the limit is {MAX_PIXELS:,} in all. Send a smaller one"
        )
    try:
        return image.convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise _bad(where, f"can't be decoded: {error}. Send a whole JPEG file") from None


def resize(image: Image) -> Image:
    """Shorter side to 256, then the middle 224 x 224, in one step: no side of a long strip is ever blown up."""
    side = min(image.size) * SIDE / _SHORTER
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return image.resize((SIDE, SIDE), Resampling.BILINEAR, box=(left, top, left + side, top + side))


def normalise(image: Image) -> npt.NDArray[np.float32]:
    """Pixels [224, 224, 3] minus ImageNet's mean, over its spread."""
    pixels = np.asarray(image, dtype=np.float32)
    return pixels * (1 / (255 * _SPREAD)) - _MEAN / _SPREAD


def _bad(where: str, message: str) -> RequestError:
    return RequestError(400, f"{where}: {message}", param=where.partition("[")[0], code="invalid_image")
