"""Samples as bytes and back: linear PCM, G.711, 32-bit float, and WAV files of them. Pure numpy, and no resampling.

Audio is float32 in [-1, 1], mono; full scale is 32768 steps of 16 bits; formats are little-endian. What is no audio of
its kind is refused with an AudioError that says what to send instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.seams.models import Audio

ENCODINGS = {"linear16": 2, "mulaw": 1, "alaw": 1, "float32": 4}
"""Names of sample formats and the bytes of one sample."""

_FULL = 32768.0
_MU_BIAS, _MU_MAX = 132, 32635
MAX_CHANNELS = 8
_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_CODES = {"linear16": _PCM, "float32": _FLOAT, "alaw": _ALAW, "mulaw": _MULAW}
_UNKNOWN_SIZE = 0xFFFFFFFF


class AudioError(ValueError):
    """Bytes that are no audio of the kind they should be; the message says what to send instead."""


def decode(encoding: str, data: bytes) -> Audio:
    """Samples from bytes of one of ENCODINGS. Raises AudioError."""
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
    """Bytes of one of ENCODINGS; what is beyond full scale is clipped (float32: kept). Raises AudioError."""
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
    steps = _steps(audio)
    size = np.where(steps < 0, ~steps, steps)
    exponent = _octave(size)
    mantissa = (size >> np.maximum(exponent + 3, 4)) & 15
    code = np.where(steps < 0, 0, 0x80) | (exponent << 4) | mantissa
    return bytes((code ^ 0x55).astype(np.uint8))


def in_pieces(audio: Audio, sample_rate: int) -> Iterator[Audio]:
    """Half a second at a time, so that long audio does not keep other streams waiting."""
    step = max(1, round(0.5 * sample_rate))
    for at in range(0, len(audio), step):
        yield audio[at : at + step]


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


@dataclass(frozen=True, slots=True)
class _Format:
    code: int
    channels: int
    sample_rate: int
    bits: int


def read_wav(data: bytes) -> tuple[Audio, int]:
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise AudioError(
            "the file is no WAV: it doesn't begin with RIFF and WAVE. Send a WAV file, or raw audio as such"
        )
    form: _Format | None = None
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body = at + 8
        if name == b"data":
            if form is None:
                raise AudioError("the WAV file has data before its fmt chunk. Write fmt first")
            end = len(data) if size in (0, _UNKNOWN_SIZE) else min(len(data), body + size)
            return _mono(data[body:end], form), form.sample_rate
        if name == b"fmt ":
            form = _format(data[body : body + size])
        at = body + size + size % 2
    raise AudioError(f"the WAV file has no {'fmt' if form is None else 'data'} chunk: is it cut off?")


def wav_header(sample_rate: int, *, encoding: str = "linear16", n_samples: int | None = None) -> bytes:
    """What goes before mono samples; without their number the sizes are those of a stream (0xFFFFFFFF)."""
    width = sample_bytes(encoding)
    size = _UNKNOWN_SIZE if n_samples is None else n_samples * width
    pad = 0 if n_samples is None else size % 2
    form = struct.pack("<HHIIHH", _CODES[encoding], 1, sample_rate, sample_rate * width, width, 8 * width)
    if encoding != "linear16":
        form += b"\0\0"  # size of an extension that isn't there: all formats but PCM have the field
    head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", size)
    return b"RIFF" + struct.pack("<I", min(_UNKNOWN_SIZE, len(head) + size + pad)) + head


def write_wav(audio: Audio, sample_rate: int, *, encoding: str = "linear16") -> bytes:
    body = encode(encoding, audio)
    return wav_header(sample_rate, encoding=encoding, n_samples=len(audio)) + body + b"\0" * (len(body) % 2)


def _format(chunk: bytes) -> _Format:
    if len(chunk) < 16:
        raise AudioError(f"the WAV file's fmt chunk has {len(chunk)} bytes, it needs 16")
    code, channels, sample_rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == _EXTENSIBLE and len(chunk) >= 26:
        (code,) = struct.unpack_from("<H", chunk, 24)
    known = {_PCM: (8, 16, 24, 32), _FLOAT: (32,), _ALAW: (8,), _MULAW: (8,)}
    if code not in known:
        raise AudioError(f"the WAV file holds format {code}. Use PCM (1), float (3), A-law (6) or mu-law (7)")
    if bits not in known[code]:
        raise AudioError(f"the WAV file has {bits} bits a sample. Format {code} is read with {known[code]} bits")
    if not 1 <= channels <= MAX_CHANNELS:
        raise AudioError(f"the WAV file has {channels} channels. 1 to {MAX_CHANNELS} are read")
    if sample_rate == 0:
        raise AudioError("the WAV file has a sample rate of 0 Hz")
    return _Format(code, channels, sample_rate, bits)


def _mono(data: bytes, form: _Format) -> Audio:
    frame = form.channels * form.bits // 8
    values = _values(data[: len(data) - len(data) % frame], form)
    if form.channels == 1:
        return values
    mixed: Audio = values.reshape(-1, form.channels).mean(axis=1, dtype=np.float64).astype(np.float32)
    return mixed


def _values(data: bytes, form: _Format) -> Audio:
    if form.code == _FLOAT:
        return decode("float32", data)
    if form.code in (_ALAW, _MULAW):
        return decode("alaw" if form.code == _ALAW else "mulaw", data)
    if form.bits == 16:
        return pcm16_to_float(data)
    if form.bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / np.float32(128)
    if form.bits == 32:
        return (np.frombuffer(data, "<i4") / 2.0**31).astype(np.float32)
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return (wide.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
