"""Words as pairs of tones, in the code that the bundled recogniser hears: speech whose every boundary is known to the sample. Pure.

The code is the contract in docs/reference/reference-server.md (Speech): a symbol of 60 ms is one of 14 low and one of 7 high tones over a hum; symbol s
takes high tone s // 7 and low tone s % 7, and in odd places of an utterance the other seven low tones. A word's tones are weaker by up to 17 dB, by a
checksum of the word. It knows that alphabet and nothing else, and shares no code with the server.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789 '-.,?!:;%&/@"
"""A character's symbol is its place in here."""
SYMBOL_S: Final = 0.06
FADE_S: Final = 0.006
"""Symbols fade into each other over so long, half of it on either side of the boundary."""

_GROUP: Final = 7
_LOW_HZ: Final = 420.0
_HIGH_HZ: Final = 2380.0
_STEP_HZ: Final = 140.0
_HUM_HZ: Final = 180.0
_TONE: Final = 0.14
_HUM: Final = 0.30
_WEAKER_DB: Final = 17.0


@dataclass(frozen=True, slots=True)
class ToneSpeech:
    """``samples`` float64 in [-1, 1], which begin and end with the speech: nothing before, nothing after. ``words``: (text, first sample, end)."""

    samples: Float
    words: tuple[tuple[str, int, int], ...]


def speak(text: str, rate: int, speed: float = 1.0) -> ToneSpeech:
    """``text`` said at ``rate`` Hz; ``speed`` shortens the symbols and leaves the tones alone, as a fast speaker does.

    A word runs from the boundary before its first symbol to the one after its last; the first begins with the sound and the last ends with it.
    Raises ValueError for a text without words, a character outside ALPHABET, or words not parted by single spaces.
    """
    _check(text)
    at = np.rint(np.arange(len(text) + 1) * (SYMBOL_S / speed * rate)).astype(np.int64)
    fade = max(2, round(FADE_S * min(1.0, 1 / speed) * rate))
    n = int(at[-1]) + fade
    samples = np.zeros(n)
    levels = _levels(text)
    sounds: dict[tuple[str, int, int], Float] = {}
    for place, character in enumerate(text):
        length = int(at[place + 1] - at[place]) + fade
        key = (character, place % 2, length)
        if key not in sounds:
            sounds[key] = _sound(ALPHABET.index(character), place % 2, length, rate) * _fades(length, fade)
        samples[at[place] : at[place] + length] += levels[place] * sounds[key]
    samples += _HUM * np.sin(2 * np.pi * _HUM_HZ / rate * np.arange(n)) * _fades(n, fade)
    return ToneSpeech(samples, _words(text, at + fade // 2, n))


def _check(text: str) -> None:
    unknown = sorted(set(text) - set(ALPHABET))
    if unknown:
        raise ValueError(f"{''.join(unknown)!r} can't be said in tones. Use the characters {ALPHABET!r}")
    if not text or " ".join(text.split()) != text:
        raise ValueError(f"{text!r} has no words parted by single spaces. Give at least one word")


def _sound(symbol: int, parity: int, length: int, rate: int) -> Float:
    low = _LOW_HZ + _STEP_HZ * (parity * _GROUP + symbol % _GROUP)
    high = _HIGH_HZ + _STEP_HZ * (symbol // _GROUP)
    turn = 2 * np.pi / rate * np.arange(length)
    both: Float = np.sin(low * turn) + np.sin(high * turn)
    return both


def _fades(length: int, fade: int) -> Float:
    """1 with a raised cosine of ``fade`` samples at both ends."""
    into = np.minimum(np.arange(length), np.arange(length)[::-1]) + 0.5
    faded: Float = 0.5 - 0.5 * np.cos(np.pi * np.minimum(1.0, into / fade))
    return faded


def _levels(text: str) -> Float:
    """Each symbol's amplitude; a space sounds like the word before it.

    Both halves of the checksum count, so that middling words are the most frequent.
    """
    levels = []
    for word in text.split(" "):
        thrown = zlib.crc32(bytes(ALPHABET.index(character) for character in word))
        below_db = _WEAKER_DB * ((thrown & 0xFFFF) + (thrown >> 16)) / (2 * 0xFFFF)
        levels += [_TONE * 10 ** (-below_db / 20)] * (len(word) + 1)
    return np.array(levels[: len(text)])


def _words(text: str, boundaries: npt.NDArray[np.int64], n: int) -> tuple[tuple[str, int, int], ...]:
    spans, place = [], 0
    for word in text.split(" "):
        end = place + len(word)
        first = 0 if place == 0 else int(boundaries[place])
        spans.append((word, first, n if end == len(text) else int(boundaries[end])))
        place = end + 1
    return tuple(spans)
