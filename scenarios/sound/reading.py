"""Recordings on disk: what is in them, and their samples. WAV is read here; FLAC, OGG, MP3 and odd WAVs by the ``soundfile`` library, when there are any.

It changes nothing: rate, level and length come back as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from plimsoll.documents import files
from plimsoll.scenarios.sound.wav import NotWav, WavHeader, mono, parse_header

Float = npt.NDArray[np.float64]

INSTALL: Final = "Install it: pip install plimsoll-slo[speech]"
_HEADS: Final = (1 << 16, 1 << 20)
"""Bytes to read of the start: the second when pictures and comments fill the first."""
LONGEST_S: Final = 4 * 3600
"""A longer recording is refused: it would be held in memory whole, as floats."""


class Unreadable(ValueError):
    """A recording that can't be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A file's own ``rate`` in Hz, ``channels`` and length in samples (of one channel), from its header."""

    path: Path
    rate: int
    channels: int
    n_samples: int


def probe(path: Path) -> Recording:
    """What the header says, checked against the file's size. Raises Unreadable."""
    try:
        header, n_bytes = _wav_header(path)
    except OSError as error:
        raise Unreadable(f"can't be read ({error.strerror}). Give a file that this user may read") from None
    if header is None:
        info = _library(lambda soundfile: soundfile.info(str(path)))
        return _checked(Recording(path, int(info.samplerate), int(info.channels), int(info.frames)))
    if header.data_bytes > n_bytes - header.data_at:
        missing = header.data_bytes - (n_bytes - header.data_at)
        raise Unreadable(f"is cut short: {missing:,} bytes fewer than its header says. Copy it again")
    return _checked(Recording(path, header.rate, header.channels, header.n_samples(n_bytes)))


def samples_of(path: Path) -> Float:
    """All samples in [-1, 1], the mean of all channels. Raises Unreadable."""
    try:
        header, _ = _wav_header(path)
        data = files.read_bytes(path) if header is not None else b""
    except OSError as error:
        raise Unreadable(f"can't be read ({error.strerror}). Give a file that this user may read") from None
    if header is not None:
        end = len(data) if header.data_bytes < 0 else header.data_at + header.data_bytes
        return mono(header, memoryview(data)[header.data_at : end])
    given = _library(lambda soundfile: soundfile.read(str(path), dtype="float64", always_2d=True)[0])
    mixed: Float = np.nan_to_num(given.mean(axis=1))
    return mixed


def _checked(found: Recording) -> Recording:
    if found.n_samples < 1:
        raise Unreadable("holds no samples. Give a recording with sound in it")
    if found.n_samples > LONGEST_S * found.rate:
        raise Unreadable(f"lasts {found.n_samples / found.rate / 3600:.1f} hours. Cut it into clips below 4 hours")
    return found


def _wav_header(path: Path) -> tuple[WavHeader | None, int]:
    """The header (None: not for us) and the size of the file. Raises OSError, Unreadable."""
    try:
        for most in _HEADS:
            with files.opened(path) as file:
                head = file.read(most)
            if head[:4] != b"RIFF":
                return None, 0
            header = parse_header(head)
            if header is not None:
                break
    except NotWav as error:
        if error.other_coding:
            return None, 0
        raise Unreadable(f"is no sound WAV file: {error}. Save it again as WAV, FLAC or OGG") from None
    if header is None:
        raise Unreadable("is a WAV file without samples. Save it again")
    return header, path.stat().st_size


def _library(use: Any) -> Any:
    """What ``use`` makes of the soundfile library. Raises Unreadable."""
    try:
        import soundfile
    except ImportError:
        raise Unreadable(f"needs the library soundfile, which isn't there. {INSTALL}, or give plain WAV") from None
    except OSError as error:
        raise Unreadable(f"needs the library soundfile, which can't load its codec ({error}). {INSTALL}") from None
    try:
        return use(soundfile)
    except (soundfile.SoundFileError, ValueError, OverflowError) as error:
        text = str(error).split(": ", 1)[-1].rstrip(".")
        raise Unreadable(f"isn't a recording that can be read ({text}). Give WAV, FLAC, OGG or MP3") from None
