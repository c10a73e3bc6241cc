"""WAV files (RIFF): read whole, written as a header that samples follow. Pure.

Read are PCM of 8, 16, 24 and 32 bits, 32-bit float, mu-law and A-law, one to eight channels (their mean is heard), also under
WAVE_FORMAT_EXTENSIBLE, also with the sizes of a stream (0 or 0xFFFFFFFF), also cut off within the data. It refuses everything else with an
AudioError that names it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from plimsoll.reference_server.speech import audio as samples
from plimsoll.reference_server.speech.audio import AudioError
from plimsoll.reference_server.speech.seam import Audio

MAX_CHANNELS = 8
_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_CODES = {"linear16": _PCM, "float32": _FLOAT, "alaw": _ALAW, "mulaw": _MULAW}
_UNKNOWN_SIZE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Format:
    code: int
    channels: int
    sample_rate: int
    bits: int


def read_wav(data: bytes) -> tuple[Audio, int]:
    """The mono audio and its sample rate in Hz. Raises AudioError."""
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
    """What goes before mono samples; without their number the sizes are those of a stream (0xFFFFFFFF). Raises AudioError."""
    width = samples.sample_bytes(encoding)
    size = _UNKNOWN_SIZE if n_samples is None else n_samples * width
    pad = 0 if n_samples is None else size % 2
    form = struct.pack("<HHIIHH", _CODES[encoding], 1, sample_rate, sample_rate * width, width, 8 * width)
    if encoding != "linear16":
        form += b"\0\0"  # size of an extension that isn't there: all formats but PCM have the field
    head = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", size)
    return b"RIFF" + struct.pack("<I", min(_UNKNOWN_SIZE, len(head) + size + pad)) + head


def write_wav(audio: Audio, sample_rate: int, *, encoding: str = "linear16") -> bytes:
    """A whole file. Raises AudioError for an unknown encoding."""
    body = samples.encode(encoding, audio)
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
        return samples.decode("float32", data)
    if form.code in (_ALAW, _MULAW):
        return samples.decode("alaw" if form.code == _ALAW else "mulaw", data)
    if form.bits == 16:
        return samples.pcm16_to_float(data)
    if form.bits == 8:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / np.float32(128)
    if form.bits == 32:
        return (np.frombuffer(data, "<i4") / 2.0**31).astype(np.float32)
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return (wide.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
