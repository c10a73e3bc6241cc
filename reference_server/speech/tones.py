"""The sound of a symbol, a pair of tones over a hum inside the telephone band: the plan that speaker and listener
share. Pure numpy.

Symbols in even and in odd places use different low tones, so that no two neighbours sound the same and the listener
needs no clock; the level of a word hangs on the word alone, so that rising noise takes words one after the other. What
has no spelling is refused by its character: a synthesiser that skips silently would make every word error rate a lie.
"""

from __future__ import annotations

import math
import unicodedata
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from plimsoll.reference_server.seams.models import Audio

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ALPHABET = LETTERS + "0123456789" + " " + "'-.,?!:;%&/@"
"""A character's symbol is its place in here."""
SPACE = ALPHABET.index(" ")

_SPELT = {
    "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i", "‘": "'", "’": "'",
    "‚": ",", "`": "'", "´": "'", "–": "-", "—": "-", "‐": "-", "‑": "-", "−": "-", "⁄": "/", "+": " plus ",
    "=": " equals ", "$": " dollars ", "€": " euros ", "£": " pounds ", "°": " degrees ",
}  # fmt: skip
_PAUSES = '\t\n\r\v\f"“”„«»()[]{}<>*_#|~^\\•…'
"""Said as nothing but the gap between two words."""
GROUP = 7
"""Low tones of one parity, and high tones."""
STEP_HZ = 140.0
LOW_HZ = tuple(420.0 + STEP_HZ * i for i in range(2 * GROUP))
HIGH_HZ = tuple(2380.0 + STEP_HZ * i for i in range(GROUP))
HUM_HZ = 180.0
SYMBOL_S = 0.06
LEAD_S, TAIL_S = 0.02, 0.04
_RAMP_S = 0.006
_TONE, _HUM = 0.14, 0.30
"""Amplitudes: of each tone of the clearest words, and of the hum."""
_MUMBLE_DB = 17.0
"""How much weaker the tones of the most mumbled words are."""


class Unsayable(ValueError):
    """Text with a character that has no spelling; the message names it and where it is."""


def normalise(text: str) -> str:
    """Lower case without accents, in characters of ALPHABET, words separated by single spaces; ligatures and some signs
    spelt out.

    It is idempotent. Raises Unsayable.
    """
    spelt = []
    for at, given in enumerate(text):
        for character in unicodedata.normalize("NFKD", given).lower():
            if character in ALPHABET:
                spelt.append(character)
            elif character in _SPELT:
                spelt.append(_SPELT[character])
            elif character in _PAUSES or character.isspace():
                spelt.append(" ")
            elif not unicodedata.combining(character):
                raise Unsayable(_refusal(given, at))
    return " ".join("".join(spelt).split())


def sayable(text: str) -> str:
    """The text as it will be heard, for text that nobody vouches for; what has no spelling becomes a gap."""
    said = []
    for character in text:
        try:
            said.append(normalise(character) or " ")
        except Unsayable:
            said.append(" ")
    return " ".join("".join(said).split())


def symbols(text: str) -> list[int]:
    return [ALPHABET.index(character) for character in text]


def _refusal(character: str, at: int) -> str:
    name = unicodedata.name(character, "a character without a name")
    shown = f"{character!r} " if character.isprintable() else ""
    return (
        f"character {shown}(U+{ord(character):04X}, {name}) at position {at} can't be said. "
        "Use Latin letters, digits and common punctuation"
    )


Float = npt.NDArray[np.float64]


@dataclass(slots=True)
class Utterance:
    """Symbols to be rendered, any stretch at a time; a sample's value doesn't depend on the stretches asked for.

    ``speed`` divides all durations and leaves the tones alone.
    """

    symbols: list[int]
    sample_rate: int
    speed: float = 1.0
    _levels: list[float] = field(default_factory=list)
    _sounds: dict[tuple[int, int], Float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._levels = _levels(self.symbols)

    @property
    def n_samples(self) -> int:
        """Its length, silences included; 0 without symbols."""
        return self._at(len(self.symbols)) + round(TAIL_S / self.speed * self.sample_rate) if self.symbols else 0

    def render(self, start: int, end: int) -> Audio:
        """Samples [start, end), as far as there are any."""
        end = min(end, self.n_samples)
        out = np.zeros(max(0, end - start))
        if not len(out):
            return out.astype(np.float32)
        per_symbol = SYMBOL_S / self.speed * self.sample_rate
        first = int((start - self._at(0) - self._ramp) / per_symbol) - 1
        last = int((end - self._at(0) + self._ramp) / per_symbol) + 1
        for place in range(max(0, first), min(len(self.symbols), last + 1)):
            self._add(out, start, self._at(place) - self._ramp // 2, self._levels[place] * self._sound(place))
        at = np.arange(start, end)
        out += self._hum_level(at) * np.sin(2 * math.pi * HUM_HZ / self.sample_rate * at)
        return out.astype(np.float32)

    @property
    def _ramp(self) -> int:
        return max(2, round(_RAMP_S * min(1.0, 1 / self.speed) * self.sample_rate))

    def _at(self, place: int) -> int:
        """Where a symbol begins: half of its ramp lies before."""
        return round((LEAD_S + place * SYMBOL_S) / self.speed * self.sample_rate)

    def _sound(self, place: int) -> Float:
        """A symbol with its ramps; of two lengths at most, because places are rounded to samples."""
        symbol, parity = self.symbols[place], place % 2
        n = self._at(place + 1) - self._at(place) + self._ramp
        key = (symbol * 2 + parity, n)
        if key not in self._sounds:
            turn = 2 * math.pi / self.sample_rate * np.arange(n)
            high, low = divmod(symbol, GROUP)
            tones = np.sin(LOW_HZ[parity * GROUP + low] * turn) + np.sin(HIGH_HZ[high] * turn)
            self._sounds[key] = tones * self._envelope(np.arange(n), n)
        return self._sounds[key]

    def _hum_level(self, at: npt.NDArray[np.int64]) -> Float:
        begin = self._at(0) - self._ramp // 2
        return _HUM * self._envelope(at - begin, self._at(len(self.symbols)) + self._ramp - self._ramp // 2 - begin)

    def _envelope(self, at: npt.NDArray[np.int64], n: int) -> Float:
        """0 before 0 and after n, 1 in between, raised cosines at both ends."""
        edge = np.clip(np.minimum(at + 0.5, n - at - 0.5) / self._ramp, 0.0, 1.0)
        faded: Float = 0.5 - 0.5 * np.cos(math.pi * edge)
        return faded

    @staticmethod
    def _add(out: Float, out_at: int, sound_at: int, sound: Float) -> None:
        low, high = max(out_at, sound_at), min(out_at + len(out), sound_at + len(sound))
        if low < high:
            out[low - out_at : high - out_at] += sound[low - sound_at : high - sound_at]


def _levels(symbols: list[int]) -> list[float]:
    """Each symbol's amplitude: that of its word; a space belongs to the word before it.

    A word's level in dB is spread over _MUMBLE_DB like the sum of two dice, thrown by a checksum of the word.
    """
    levels: list[float] = []
    for word in _words(symbols):
        thrown = zlib.crc32(bytes(symbol for symbol in word if symbol != SPACE))
        below_db = _MUMBLE_DB * ((thrown & 0xFFFF) + (thrown >> 16)) / (2 * 0xFFFF)
        levels += [_TONE * 10 ** (-below_db / 20)] * len(word)
    return levels


def _words(symbols: list[int]) -> Iterator[list[int]]:
    """The symbols cut after each space."""
    word: list[int] = []
    for symbol in symbols:
        word.append(symbol)
        if symbol == SPACE:
            yield word
            word = []
    yield word
