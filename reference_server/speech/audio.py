"""Samples as bytes and back: linear PCM, G.711, 32-bit float. Pure numpy, and no resampling.

Audio is float32 in [-1, 1], mono; full scale is 32768 steps of 16 bits. All formats are little-endian. It refuses bytes that hold no
whole samples and floats that are no numbers, with an AudioError that says what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.speech.seam import Audio

ENCODINGS = {"linear16": 2, "mulaw": 1, "alaw": 1, "float32": 4}
"""Names of sample formats and the bytes of one sample."""

_FULL = 32768.0
_MU_BIAS, _MU_MAX = 132, 32635


class AudioError(ValueError):
    """Bytes that are no audio of the kind they should be; the message says what to send instead."""


def decode(encoding: str, data: bytes) -> Audio:
    """Samples from bytes of one of ENCODINGS. Raises AudioError: unknown encoding, half a sample, a float that is no number."""
    width = sample_bytes(encoding)
    if len(data) % width:
        raise AudioError(
            f"{len(data)} bytes are no whole number of {encoding} samples. Send multiples of {width} bytes"
        )
    if encoding == "linear16":
        return pcm16_to_float(data)
    if encoding == "float32":
        return _finite(np.frombuffer(data, "<f4").astype(np.float32))
    return mulaw_to_float(data) if encoding == "mulaw" else alaw_to_float(data)


def encode(encoding: str, audio: Audio) -> bytes:
    """Bytes of one of ENCODINGS; what is beyond full scale is clipped (float32: kept). Raises AudioError: unknown encoding."""
    sample_bytes(encoding)
    if encoding == "linear16":
        return float_to_pcm16(audio)
    if encoding == "float32":
        return audio.astype("<f4").tobytes()
    return float_to_mulaw(audio) if encoding == "mulaw" else float_to_alaw(audio)


def sample_bytes(encoding: str) -> int:
    """Bytes of one sample. Raises AudioError: unknown encoding."""
    if encoding not in ENCODINGS:
        raise AudioError(f"encoding {encoding!r} is unknown. Choose from {', '.join(ENCODINGS)}")
    return ENCODINGS[encoding]


def pcm16_to_float(data: bytes) -> Audio:
    """Signed 16-bit samples. Raises AudioError for an odd number of bytes."""
    if len(data) % 2:
        raise AudioError(f"{len(data)} bytes are no whole number of 16-bit samples. Send an even number of bytes")
    return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(_FULL)


def float_to_pcm16(audio: Audio) -> bytes:
    """Rounded to the nearest step, clipped at full scale."""
    return _steps(audio).astype("<i2").tobytes()


def mulaw_to_float(data: bytes) -> Audio:
    """G.711 mu-law, as 16-bit values (14 bits and two zeros)."""
    code = ~np.frombuffer(data, np.uint8)
    mantissa, exponent = (code & 15).astype(np.int32), ((code >> 4) & 7).astype(np.int32)
    size = ((mantissa * 8 + _MU_BIAS) << exponent) - _MU_BIAS
    return _signed(size, (code & 0x80) != 0)


def float_to_mulaw(audio: Audio) -> bytes:
    """G.711 mu-law of the nearest 16-bit values."""
    steps = _steps(audio)
    size = np.minimum(np.abs(steps), _MU_MAX) + _MU_BIAS
    exponent = _octave(size)
    mantissa = (size >> (exponent + 3)) & 15
    code = np.where(steps < 0, 0x80, 0) | (exponent << 4) | mantissa
    return bytes((~code & 0xFF).astype(np.uint8))


def alaw_to_float(data: bytes) -> Audio:
    """G.711 A-law, as 16-bit values (13 bits and three zeros, in the middle of their intervals)."""
    code = np.frombuffer(data, np.uint8) ^ 0x55
    mantissa, exponent = (code & 15).astype(np.int32), ((code >> 4) & 7).astype(np.int32)
    size = np.where(exponent == 0, mantissa * 16 + 8, (mantissa * 16 + 0x108) << np.maximum(exponent - 1, 0))
    return _signed(size, (code & 0x80) == 0)


def float_to_alaw(audio: Audio) -> bytes:
    """G.711 A-law of the nearest 16-bit values."""
    steps = _steps(audio)
    size = np.where(steps < 0, ~steps, steps)
    exponent = _octave(size)
    mantissa = (size >> np.maximum(exponent + 3, 4)) & 15
    code = np.where(steps < 0, 0, 0x80) | (exponent << 4) | mantissa
    return bytes((code ^ 0x55).astype(np.uint8))


@dataclass(slots=True)
class SampleReader:
    """Samples from a stream of bytes that may be cut anywhere, also within a sample."""

    encoding: str
    _rest: bytes = b""

    def __post_init__(self) -> None:
        sample_bytes(self.encoding)

    def feed(self, data: bytes) -> Audio:
        """The samples that are complete now. Raises AudioError for floats that are no numbers."""
        data = self._rest + data
        whole = len(data) - len(data) % ENCODINGS[self.encoding]
        self._rest = data[whole:]
        return decode(self.encoding, data[:whole])

    def end(self) -> None:
        """The stream is over. Raises AudioError when it ends within a sample."""
        if self._rest:
            raise AudioError(f"the audio ends within a sample: {len(self._rest)} bytes too many for {self.encoding}")


def _steps(audio: Audio) -> npt.NDArray[np.int32]:
    """The nearest 16-bit values."""
    steps: npt.NDArray[np.int32] = np.clip(np.rint(audio * np.float32(_FULL)), -_FULL, _FULL - 1).astype(np.int32)
    return steps


def _octave(size: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """0 below 256, then one more for each doubling: the exponent of both G.711 laws."""
    _, exponent = np.frexp(size.astype(np.float64))
    octave: npt.NDArray[np.int32] = np.maximum(exponent - 8, 0).astype(np.int32)
    return octave


def _signed(size: npt.NDArray[np.int32], negative: npt.NDArray[np.bool_]) -> Audio:
    return (np.where(negative, -size, size) / _FULL).astype(np.float32)


def _finite(audio: Audio) -> Audio:
    if not np.isfinite(audio).all():
        raise AudioError(
            "the audio holds samples that are no numbers (NaN or infinite). Send finite samples in [-1, 1]"
        )
    return audio
