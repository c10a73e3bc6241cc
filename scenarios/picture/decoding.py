"""Pictures on disk as pixels, by Pillow, which comes with ``pip install plimsoll-slo[server]``: needed only where files become tensors of numbers."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt


class Undecodable(ValueError):
    """A picture that can't become pixels; the message says why and what to do."""


def require_decoder() -> None:
    """Raise Undecodable when Pillow isn't there."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise Undecodable(
            "tensors from files need the library pillow, which isn't there. Install it: pip install plimsoll-slo[server], or use tensor: BYTES"
        ) from None


def pixels_of(data: bytes, width: int, height: int) -> npt.NDArray[np.uint8]:
    """uint8[height, width, 3], RGB: stretched to the size, bilinear, without regard to its shape. Raises Undecodable."""
    require_decoder()
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as found:
            sized = found.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Undecodable(f"can't be decoded ({error}). Give JPEG, PNG or WebP") from None
    return np.asarray(sized, np.uint8)
