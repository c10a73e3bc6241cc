"""Seeded pictures, JPEG and PNG files of them, and picture files as pixels.

A seeded picture costs a decoder and a network what a photograph costs, and has the same bytes on every machine: its
files are written by numpy and zlib alone, without progressive scans or metadata. Only files that become numbers need
Pillow, which comes with ``pip install plimsoll-slo[server]``.
"""

import io
import struct
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
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


def png_bytes(pixels: Pixels) -> bytes:
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


class Undecodable(ValueError):
    """A picture that can't become pixels; the message says why and what to do."""


def require_decoder() -> None:
    """Raise Undecodable when Pillow isn't there."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise Undecodable(
            "tensors from files need the library pillow, which isn't there. Install it: pip install "
            "plimsoll-slo[server], or use tensor: BYTES"
        ) from None


def pixels_of(data: bytes, width: int, height: int) -> Pixels:
    """uint8[height, width, 3], RGB: stretched to the size, bilinear, without regard to its shape.

    Raises Undecodable.
    """
    require_decoder()
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as found:
            sized = found.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Undecodable(f"can't be decoded ({error}). Give JPEG, PNG or WebP") from None
    return np.asarray(sized, np.uint8)


# -- JPEG: baseline (ITU-T T.81), full colour resolution, the example tables of its annex K -------------------------

# Annex K.1: quantisation, in rows.
_LUMINANCE: Final = (
    "16 11 10 16 24 40 51 61 12 12 14 19 26 58 60 55 14 13 16 24 40 57 69 56 14 17 22 29 51 87 80 62 "
    "18 22 37 56 68 109 103 77 24 35 55 64 81 104 113 92 49 64 78 87 103 121 120 101 72 92 95 98 112 100 103 99"
)
_CHROMINANCE: Final = "17 18 24 47 18 21 26 66 24 26 56 99 47 66 99 99"
# Annex K.3: codes of each length from 1 to 16 bits, and the symbols in the order of their codes.
_DC: Final = ("00010501010101010100000000000000", "000102030405060708090a0b")
_DC_COLOUR: Final = ("00030101010101010101010000000000", "000102030405060708090a0b")
_AC: Final = (
    "0002010303020403050504040000017d",
    "01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a3435363738393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9fa",
)
_AC_COLOUR: Final = (
    "00020102040403040705040400010277",
    "000102031104052131061241510761711322328108144291a1b1c109233352f0156272d10a162434e125f11718191a262728292a35363738393a434445464748494a535455565758595a636465666768696a737475767778797a82838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9bac2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae2e3e4e5e6e7e8e9eaf2f3f4f5f6f7f8f9fa",
)
_EOB, _SIXTEEN_ZEROS = 0x00, 0xF0
_FINE: Final = 256.0
"""Steps of a colour plane to one of a pixel."""
_COSINE: Final = 16384.0
"""Steps of a cosine to 1."""


def jpeg_bytes(pixels: Pixels, quality: int = 85) -> bytes:
    """uint8[height, width, 3] (RGB, sides up to 65,535) as a file; ``quality`` 1 to 100 on the usual scale.

    The transform is exact in whole numbers (below 2**53), so that no order of summation can change a byte.
    """
    height, width, _ = pixels.shape
    tables = [_scaled(table, quality) for table in (_luminance(), _chrominance())]
    zigzag = _zigzag()
    planes = _planes(pixels)
    blocks = [np.rint(_transformed(plane) / tables[min(i, 1)]).astype(np.int64) for i, plane in enumerate(planes)]
    # Three blocks, one of each plane, make a unit of the scan.
    units = np.stack([block.reshape(-1, 64)[:, zigzag] for block in blocks], axis=1)
    return b"".join(
        (
            b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00",
            *(_segment(0xDB, bytes([i]) + bytes(tables[i].ravel()[zigzag].astype(np.uint8))) for i in range(2)),
            _segment(0xC0, struct.pack(">BHHB", 8, height, width, 3) + b"\x01\x11\x00\x02\x11\x01\x03\x11\x01"),
            *(
                _segment(0xC4, bytes([place]) + bytes.fromhex(lengths) + bytes.fromhex(symbols))
                for place, (lengths, symbols) in ((0, _DC), (16, _AC), (1, _DC_COLOUR), (17, _AC_COLOUR))
            ),
            _segment(0xDA, b"\x03\x01\x00\x02\x11\x03\x11\x00\x3f\x00"),
            _scan(units),
            b"\xff\xd9",
        )
    )


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body


def _luminance() -> Ints:
    return np.array(_LUMINANCE.split(), np.int64).reshape(8, 8)


def _chrominance() -> Ints:
    table = np.full((8, 8), 99, np.int64)
    table[:4, :4] = np.array(_CHROMINANCE.split(), np.int64).reshape(4, 4)
    return table


def _scaled(table: Ints, quality: int) -> Ints:
    """The scale that everybody uses: 50 is the table itself."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return np.clip((table * percent + 50) // 100, 1, 255)


def _zigzag() -> Ints:
    """Places of the 64 coefficients from low to high frequency: along diagonals, every other one upwards."""
    order = sorted(range(64), key=lambda at: (sum(divmod(at, 8)), at // 8 if sum(divmod(at, 8)) % 2 else at % 8))
    return np.array(order, np.int64)


def _planes(pixels: Pixels) -> list[npt.NDArray[np.float64]]:
    """Brightness and two colour differences around 0, in whole steps of 1 / 256, edges repeated up to whole blocks."""
    height, width, _ = pixels.shape
    padded = np.pad(pixels, ((0, -height % 8), (0, -width % 8), (0, 0)), mode="edge").astype(np.float64)
    red, green, blue = padded[..., 0], padded[..., 1], padded[..., 2]
    bright = 0.299 * red + 0.587 * green + 0.114 * blue
    return [np.rint(plane * _FINE) for plane in (bright - 128, (blue - bright) / 1.772, (red - bright) / 1.402)]


def _transformed(plane: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """[rows of blocks, blocks, 8, 8]: the cosine transform of each block."""
    height, width = plane.shape
    at = np.arange(8)
    cosines = np.cos((2 * at[None, :] + 1) * at[:, None] * np.pi / 16) / 2
    cosines[0] /= np.sqrt(2)
    cosines = np.rint(cosines * _COSINE)
    blocks = plane.reshape(height // 8, 8, width // 8, 8).transpose(0, 2, 1, 3)
    made: npt.NDArray[np.float64] = cosines @ blocks @ cosines.T / (_FINE * _COSINE**2)
    return made


def _codes(lengths: str, symbols: str) -> tuple[Ints, Ints]:
    """Code and number of bits by symbol, 256 of each: counted up within a length, doubled from one to the next."""
    code_of, bits_of = np.zeros(256, np.int64), np.zeros(256, np.int64)
    code, left = 0, iter(bytes.fromhex(symbols))
    for bits, n in enumerate(bytes.fromhex(lengths), 1):
        for _ in range(n):
            symbol = next(left)
            code_of[symbol], bits_of[symbol] = code, bits
            code += 1
        code <<= 1
    return code_of, bits_of


def _scan(units: Ints) -> bytes:
    """Entropy-coded ``units`` [n, 3, 64]: every symbol is found at once, put in order, its bits laid side by side."""
    n, _, _ = units.shape
    steps = units[:, :, 0].copy()
    steps[1:] -= units[:-1, :, 0]
    block = np.arange(3 * n)
    colour = block % 3 > 0
    entries = [_entries(block * 128, np.zeros(3 * n, np.int64), steps.ravel(), colour, (_DC, _DC_COLOUR))]
    flat = units.reshape(3 * n, 64)
    of, at = np.nonzero(flat[:, 1:])
    at += 1
    before = np.where(np.diff(of, prepend=-1) == 0, np.roll(at, 1), 0)
    zeros = at - before - 1
    key = of * 128 + 2 * at
    tables = (_AC, _AC_COLOUR)
    entries.append(_entries(key, zeros % 16 * 16, flat[of, at], colour[of], tables))
    long = np.repeat(np.arange(len(of)), zeros // 16)
    nothing = np.zeros(len(long), np.int64)
    entries.append(_entries(key[long] - 1, nothing + _SIXTEEN_ZEROS, nothing, colour[of[long]], tables))
    short = np.flatnonzero(flat[:, 63] == 0)
    nothing = np.zeros(len(short), np.int64)
    entries.append(_entries(short * 128 + 127, nothing + _EOB, nothing, colour[short], tables))
    key, code, bits = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    order = np.argsort(key, kind="stable")
    return _packed(code[order], bits[order]).replace(b"\xff", b"\xff\x00")


def _entries(
    key: Ints, run: Ints, value: Ints, colour: npt.NDArray[np.bool_], tables: tuple[tuple[str, str], tuple[str, str]]
) -> tuple[Ints, Ints, Ints]:
    """(key, code, bits) of symbols: the Huffman code of ``run`` and the size of ``value``, then its own bits."""
    size = np.ceil(np.log2(np.abs(value) + 1)).astype(np.int64)
    own = np.where(value < 0, value + (1 << size) - 1, value)
    plain, other = (_codes(*table) for table in tables)
    symbol = run + size
    code = np.where(colour, other[0][symbol], plain[0][symbol])
    bits = np.where(colour, other[1][symbol], plain[1][symbol])
    return key, code << size | own, bits + size


def _packed(code: Ints, bits: Ints) -> bytes:
    """Codes side by side, the last byte filled with ones."""
    ends = np.cumsum(bits)
    total = int(ends[-1])
    place = np.arange(total) - np.repeat(ends - bits, bits)
    stream = (np.repeat(code, bits) >> (np.repeat(bits, bits) - 1 - place)) & 1
    return np.packbits(np.concatenate((stream, np.ones(-total % 8, np.int64))).astype(np.uint8)).tobytes()
