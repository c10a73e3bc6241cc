"""Recordings on disk: their headers, their samples, manifests of them, and where speech begins and ends in them.

WAV is read here; FLAC, OGG, MP3 and odd WAVs by the ``soundfile`` library, where it is installed. Nothing is changed:
rate, level and length come back as they are, and no server is asked where speech lies.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from plimsoll.documents import files
from plimsoll.scenarios.media.sound import NotWav, WavHeader, mono, parse_header
from plimsoll.scenarios.samples.clip import NS, Word
from plimsoll.scenarios.samples.lines import read_lines, require_object, scalar

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


# -- manifests: JSON Lines of recordings and what is known of each -------------------------------------------------

_KEYS = ("file", "text", "start", "end", "words", "slice", "id")


@dataclass(frozen=True, slots=True)
class Entry:
    """One recording and its labels; times in ns, -1 unknown.

    ``where`` names its line in messages, ``id`` is the file's name where none was given; ``said``: what stands under
    the keys of labels.
    """

    path: Path
    where: str
    text: str | None = None
    start_ns: int = -1
    end_ns: int = -1
    words: tuple[Word, ...] = ()
    slice: str = ""
    id: str = ""
    said: Mapping[str, str | float | None] = field(default_factory=dict)


def read_manifest(path: Path, most: int | None, keys: Collection[str] = ()) -> tuple[list[Entry], list[str]]:
    """The first ``most`` entries and every problem, each ``FILE:LINE: what. next step.``; no recording is opened.

    ``{"file": "a.wav", "text": "turn left", "start": 0.31, "end": 1.2, "words": [{"text": "turn", "start": 0.31, "end":
    0.6}, ...], "slice": "street", "id": "a"}``: only ``file`` is required, and starts at the manifest's folder. Times
    are seconds from the first sample; ``start`` and ``end`` are where speech begins and ends. ``keys`` of labels may
    stand beside them.
    """
    entries, errors = read_lines(path, lambda entry, where: _entry(entry, path.parent, where, keys), most)
    if not entries and not errors:
        errors = [f'{path}: no recordings in it. Write one {{"file": ...}} a line.']
    return entries, errors


def _entry(line: Any, folder: Path, where: str, keys: Collection[str] = ()) -> Entry:
    given = require_object(line, (*_KEYS, *keys), '{"file": "a.wav", "text": "..."}')
    for key in ("file", "text", "slice"):
        if given.get(key) is not None and (not isinstance(given[key], str) or (key != "text" and not given[key])):
            raise ValueError(f"{key} is {str(given[key])[:60]!r}. Give a text.")
    if given.get("file") is None:
        raise ValueError("has no file. Name the recording.")
    words = _words(given.get("words"))
    start, end = _ends(given, words)
    name = given.get("id")
    return Entry(
        folder / Path(given["file"]).expanduser(),
        where,
        given.get("text") if given.get("text") is not None else " ".join(word.text for word in words) or None,
        start,
        end,
        words,
        given.get("slice") or "",
        Path(given["file"]).name if name is None else str(name),
        {key: scalar(given, key) for key in keys},
    )


def _ends(given: dict[str, Any], words: tuple[Word, ...]) -> tuple[int, int]:
    """Where speech begins and ends: as labelled, else from the words, else unknown."""
    if (given.get("start") is None) != (given.get("end") is None):
        raise ValueError("has only one of start and end. Give both, or neither.")
    if given.get("start") is None:
        return (words[0].start_ns, words[-1].end_ns) if words else (-1, -1)
    start, end = _ns("start", given["start"]), _ns("end", given["end"])
    if end <= start:
        raise ValueError(f"end {given['end']} is not after start {given['start']}. Give seconds from the first sample.")
    if words and (words[0].start_ns < start or words[-1].end_ns > end):
        raise ValueError("words lie outside start and end. Correct one of them.")
    return start, end


def _words(given: Any) -> tuple[Word, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ValueError('words is not a list of {"text", "start", "end"}. Give a list.')
    words: list[Word] = []
    for i, word in enumerate(given):
        text = word.get("text") if isinstance(word, dict) else None
        if not isinstance(text, str) or not text or "start" not in word or "end" not in word:
            raise ValueError(f"words[{i}] is not an object with text, start and end. Add what is missing.")
        made = Word(text, _ns(f"words[{i}].start", word["start"]), _ns(f"words[{i}].end", word["end"]))
        if made.end_ns < made.start_ns or (words and made.start_ns < words[-1].start_ns):
            raise ValueError(f"words[{i}] ends before it begins, or begins before the word before it. Sort them.")
        words.append(made)
    return tuple(words)


def _ns(key: str, value: Any) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value < 1e6
    ):
        raise ValueError(f"{key} is {str(value)[:60]!r}. Give seconds from the first sample, 0 or more.")
    return round(value * NS)


# -- where speech lies in a recording that nobody has labelled --------------------------------------------------------

WINDOW_S: Final = 0.010
RANGE_DB: Final = 40.0
"""A window further below the loud ones than this is silence, however quiet the room."""
FLOOR_SHARE: Final = 1 / 3
"""The threshold lies this share of the way from the room's level up to the voice's (in dB)."""
LEAST_CONTRAST_DB: Final = 6.0
MIN_SILENCE_S: Final = 0.200
"""A shorter pause is inside the speech."""
MIN_SPEECH_S: Final = 0.030
"""A stretch with less sound than this is a click."""


def speech_span(samples: npt.NDArray[np.float64], rate: int) -> tuple[int, int] | None:
    """(first sample, end) of the speech in mono ``samples`` in [-1, 1]; None where there is no sound at all.

    docs/reference/scenarios.md says how: levels of short windows against a threshold, so ends are whole windows. Music,
    a second speaker or a slammed door are speech to it: label such files.
    """
    window = max(1, round(WINDOW_S * rate))
    n_windows = -(-len(samples) // window)
    if not n_windows:
        return None
    padded = np.zeros(n_windows * window)
    padded[: len(samples)] = samples
    power = np.mean(padded.reshape(n_windows, window) ** 2, axis=1)
    # The step of 16 bits is the faintest that a recording can hold.
    levels_db = 10 * np.log10(np.maximum(power, 2.0**-32))
    if not power.any():
        return None
    room_db, voice_db = _percentile(levels_db, 0.05), _percentile(levels_db, 0.95)
    if levels_db.max() - room_db < LEAST_CONTRAST_DB:
        return 0, len(samples)
    if voice_db - room_db < LEAST_CONTRAST_DB:
        voice_db = float(levels_db.max())  # less than a twentieth of the recording is speech
    loud = np.flatnonzero(levels_db > max(voice_db - RANGE_DB, room_db + FLOOR_SHARE * (voice_db - room_db)))
    breaks = np.flatnonzero(np.diff(loud) > MIN_SILENCE_S / WINDOW_S)
    stretches = np.split(loud, breaks + 1)
    spoken = [stretch for stretch in stretches if len(stretch) * WINDOW_S >= MIN_SPEECH_S] or stretches
    return int(spoken[0][0]) * window, min(len(samples), (int(spoken[-1][-1]) + 1) * window)


def _percentile(levels: npt.NDArray[np.float64], share: float) -> float:
    """By nearest rank."""
    return float(np.sort(levels)[max(0, int(np.ceil(share * len(levels))) - 1)])
