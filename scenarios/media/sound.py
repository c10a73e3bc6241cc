"""Sound in memory: WAV files, G.711, noise, gain, sample rates, words said in tones. Pure and seeded; no codecs.

WAV holds PCM of 8 to 32 bits, floats, mu-law or A-law; other codings are refused by name. A header whose sizes are
unknown (0 or all ones, as programs write that stream) means "until the end": one reader serves files and answers that
are still arriving. A sound that is too loud for 16 bits is clipped and one that is too soft is lost, as in any
converter: nothing is scaled back.
"""

import struct
import zlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]
Int16 = npt.NDArray[np.int16]
Uint8 = npt.NDArray[np.uint8]
FULL_SCALE: Final = 32768.0

# -- WAV -----------------------------------------------------------------------------------------------------------

_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_WIDTHS: Final = {_PCM: (1, 2, 3, 4), _FLOAT: (4, 8), _ALAW: (1,), _MULAW: (1,)}
_UNKNOWN_SIZES: Final = (0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_LONGEST_HEADER: Final = 1 << 20
MAX_CHANNELS: Final = 64
MAX_RATE: Final = 768_000


class NotWav(ValueError):
    """Bytes that are no WAV, or one in a coding that isn't read here. ``other_coding``: a codec library may read it."""

    def __init__(self, text: str, other_coding: bool = False) -> None:
        super().__init__(text)
        self.other_coding = other_coding


@dataclass(frozen=True, slots=True)
class WavHeader:
    """``coding`` 1 PCM, 3 float, 6 A-law, 7 mu-law; ``width`` in bytes; samples start at byte ``data_at`` and have
    ``data_bytes`` (-1: until the end).
    """

    coding: int
    channels: int
    rate: int
    width: int
    data_at: int
    data_bytes: int

    @property
    def frame_bytes(self) -> int:
        """Of one sample in all channels."""
        return self.width * self.channels

    def n_samples(self, n_bytes: int) -> int:
        """Whole samples in a file of ``n_bytes``."""
        there = max(0, n_bytes - self.data_at)
        return (there if self.data_bytes < 0 else min(there, self.data_bytes)) // self.frame_bytes


def parse_header(data: bytes | memoryview) -> WavHeader | None:
    """The header at the start of ``data``; None while it isn't whole. Raises NotWav."""
    data = bytes(data[:_LONGEST_HEADER])
    if not b"RIFF".startswith(data[:4]) and data[:4] != b"RIFF":
        raise NotWav(f"it begins with {data[:4]!r}, not RIFF")
    if len(data) >= 12 and data[8:12] != b"WAVE":
        raise NotWav(f"a RIFF file of kind {data[8:12]!r}, not WAVE")
    at, described = 12, None
    while len(data) >= at + 8:
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"data":
            if described is None:
                raise NotWav("its samples come before their description (no fmt chunk)")
            return WavHeader(*described, at + 8, -1 if size in _UNKNOWN_SIZES else size)
        if name == b"fmt ":
            if size < 16 or size > 1024:
                raise NotWav(f"its fmt chunk has {size} bytes")
            if len(data) < at + 8 + size:
                return None
            described = _described(data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
        if at > _LONGEST_HEADER:
            raise NotWav("no samples in the first MiB")
    return None


def _described(fmt: bytes) -> tuple[int, int, int, int]:
    coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", fmt)
    if coding == _EXTENSIBLE and len(fmt) >= 26:
        coding = int.from_bytes(fmt[24:26], "little")
    if coding not in _WIDTHS or bits % 8 or bits // 8 not in _WIDTHS[coding]:
        raise NotWav(f"samples of {bits} bits in WAVE coding {coding}, which needs a codec library", other_coding=True)
    if not 1 <= channels <= MAX_CHANNELS or not 1 <= rate <= MAX_RATE:
        raise NotWav(f"{channels} channels at {rate} Hz")
    return coding, channels, rate, bits // 8


def mono(header: WavHeader, data: bytes | memoryview) -> Float:
    """Samples of ``data`` (whole frames; a rest is left out) in [-1, 1], the mean of all channels.

    What isn't finite is silence.
    """
    n = len(data) // header.frame_bytes
    flat = _flat(header, bytes(data[: n * header.frame_bytes]))
    if header.channels == 1:
        return flat
    mixed: Float = flat.reshape(n, header.channels).mean(axis=1)
    return mixed


def _flat(header: WavHeader, data: bytes) -> Float:
    if header.coding == _FLOAT:
        given = np.frombuffer(data, f"<f{header.width}").astype(np.float64)
        return np.nan_to_num(given, nan=0.0, posinf=0.0, neginf=0.0)
    if header.coding in (_ALAW, _MULAW):
        codes = np.frombuffer(data, np.uint8)
        return (alaw_decoded if header.coding == _ALAW else mulaw_decoded)(codes).astype(np.float64) / FULL_SCALE
    if header.width == 1:  # the only width that WAV stores without a sign
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / 128
    if header.width == 3:
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float64) / 2.0**31
    return np.frombuffer(data, f"<i{header.width}").astype(np.float64) / 2.0 ** (8 * header.width - 1)


def wav_bytes(pcm: Int16, rate: int) -> bytes:
    """A mono file of 16-bit samples: 44 bytes of header, then ``pcm``."""
    body = pcm.astype("<i2").tobytes()
    described = struct.pack("<HHIIHH", _PCM, 1, rate, rate * 2, 2, 16)
    head = b"RIFF" + (36 + len(body)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little") + described
    return head + b"data" + len(body).to_bytes(4, "little") + body


# -- G.711: mu-law and A-law, truncated to the coder's own 14 and 13 bits, as the recommendation's reference does -----

_BIAS: Final = 132
_CLIP: Final = 32635


def mulaw_decoded(codes: Uint8) -> Int16:
    """Codes as samples of up to +-32,124."""
    turned = ~codes
    magnitude = ((((turned & 15).astype(np.int32) << 3) + _BIAS) << ((turned >> 4) & 7)) - _BIAS
    return np.where(turned & 128, -magnitude, magnitude).astype(np.int16)


def mulaw_encoded(pcm: Int16) -> Uint8:
    """Samples as codes: sign, exponent, four bits of mantissa, all inverted."""
    wide = pcm.astype(np.int32)
    # 14 bits: the two lowest are dropped towards zero.
    magnitude = np.minimum((np.abs(wide) >> 2) << 2, _CLIP) + _BIAS
    exponent = _exponent(magnitude >> 7)
    code = (exponent << 4) | ((magnitude >> (exponent + 3)) & 15)
    signed: npt.NDArray[np.int32] = ~(code | np.where(wide < 0, 128, 0)) & 255
    return signed.astype(np.uint8)


def alaw_decoded(codes: Uint8) -> Int16:
    """Codes as samples of up to +-32,256."""
    turned = (codes ^ 0x55).astype(np.int32)
    exponent, mantissa = (turned >> 4) & 7, turned & 15
    magnitude = np.where(exponent == 0, (mantissa << 4) + 8, ((mantissa << 4) + 264) << np.maximum(exponent - 1, 0))
    return np.where(turned & 128, magnitude, -magnitude).astype(np.int16)


def alaw_encoded(pcm: Int16) -> Uint8:
    """Samples as codes: sign (1 is positive), exponent, four bits of mantissa, every second bit inverted."""
    wide = pcm.astype(np.int32)
    # 13 bits: the lowest three are dropped; below zero one's complement, as the reference does.
    magnitude = np.where(wide < 0, ~wide, wide) >> 4
    exponent = _exponent(magnitude >> 4) + (magnitude > 15)
    exponent = np.where(magnitude > 15, exponent, 0)
    mantissa = np.where(exponent == 0, magnitude, magnitude >> np.maximum(exponent - 1, 0)) & 15
    signed: npt.NDArray[np.int32] = (exponent << 4) | mantissa | np.where(wide < 0, 0, 128)
    return (signed ^ 0x55).astype(np.uint8)


def _exponent(value: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The place of the highest bit set, 0 for 0 and 1, at most 7."""
    place = np.zeros_like(value)
    for bit in range(1, 8):
        place += value >= (1 << bit)
    return place


# -- noise, gain and 16 bits ---------------------------------------------------------------------------------------


def with_noise(samples: Float, speech: tuple[int, int], snr_db: float, seed: int) -> Float:
    """``samples`` with white noise over all of them, ``snr_db`` below the mean power of the stretch ``speech`` (first
    sample, end).

    Silence stays silent: without power in the stretch there is no ratio.
    """
    spoken = samples[speech[0] : speech[1]]
    power = float(np.mean(spoken**2)) if len(spoken) else 0.0
    if power == 0.0:
        return samples
    rng = np.random.Generator(np.random.PCG64(seed))
    noisy: Float = samples + rng.standard_normal(len(samples)) * np.sqrt(power * 10 ** (-snr_db / 10))
    return noisy


def louder(samples: Float, gain_db: float) -> Float:
    """``samples`` times 10^(gain / 20)."""
    scaled: Float = samples * 10 ** (gain_db / 20)
    return scaled


def to_int16(samples: Float) -> Int16:
    """[-1, 1) as 16-bit steps, rounded, clipped at full scale."""
    return np.clip(np.rint(samples * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)


# -- sample rates: a windowed sinc by whole-number ratios --------------------------------------------------------------

MAX_RATIO_TERM: Final = 50_000
"""Of the ratio's terms; 44,100 to 16,000 Hz at 1.1 times the speed is 1600 : 4851."""
_CROSSINGS: Final = 24
_CUTOFF: Final = 0.95
_KAISER: Final = 8.0


def resample(samples: Float, rate: int, to_rate: int, speed: float = 1.0) -> Float:
    """``samples`` at ``rate`` as ceil(n x to_rate / rate / speed) samples at ``to_rate``; sample 0 stays where it is.

    Speed keeps no pitch: played at 1.1 times the speed a voice is higher too, which speech researchers call speed
    perturbation. Kaiser window of 24 zero crossings a side, pass band to 90 % of the lower of the two half rates, stop
    band below -80 dB beyond it.
    """
    ratio = (Fraction(to_rate, rate) / Fraction(speed).limit_denominator(1000)).limit_denominator(MAX_RATIO_TERM)
    if ratio == 1 or not len(samples):
        return samples
    from scipy.signal import firwin, resample_poly

    most = max(ratio.numerator, ratio.denominator)
    window = firwin(2 * _CROSSINGS * most + 1, _CUTOFF / most, window=("kaiser", _KAISER))
    return np.asarray(resample_poly(samples, ratio.numerator, ratio.denominator, window=window))


# -- words as pairs of tones, in the code that the bundled recogniser hears -----------------------------------------

ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789 '-.,?!:;%&/@"
"""A character's symbol is its place in here."""
SYMBOL_S: Final = 0.06
FADE_S: Final = 0.006
"""Symbols fade into each other over so long, half of it on either side of the boundary."""

_TONES_A_GROUP: Final = 7
_LOW_HZ: Final = 420.0
_HIGH_HZ: Final = 2380.0
_STEP_HZ: Final = 140.0
_HUM_HZ: Final = 180.0
_TONE: Final = 0.14
_HUM: Final = 0.30
_WEAKER_DB: Final = 17.0


@dataclass(frozen=True, slots=True)
class ToneSpeech:
    """``samples`` float64 in [-1, 1], which begin and end with the speech: nothing before, nothing after.

    ``words``: (text, first sample, end).
    """

    samples: Float
    words: tuple[tuple[str, int, int], ...]


def speak(text: str, rate: int, speed: float = 1.0) -> ToneSpeech:
    """``text`` said at ``rate`` Hz; ``speed`` shortens the symbols and leaves the tones alone, as a fast speaker does.

    The code is the contract in docs/reference/reference-server.md (Speech), of this alphabet only: a symbol is one of
    14 low and one of 7 high tones over a hum, and a word's tones are weaker by a checksum of the word. No code is
    shared with the server.

    A word runs from the boundary before its first symbol to the one after its last; the first begins with the sound and
    the last ends with it. Raises ValueError for a text without words, a character outside ALPHABET, or words not parted
    by single spaces.
    """
    _check_text(text)
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
            sounds[key] = _symbol(ALPHABET.index(character), place % 2, length, rate) * _fades(length, fade)
        samples[at[place] : at[place] + length] += levels[place] * sounds[key]
    samples += _HUM * np.sin(2 * np.pi * _HUM_HZ / rate * np.arange(n)) * _fades(n, fade)
    return ToneSpeech(samples, _spans(text, at + fade // 2, n))


def _check_text(text: str) -> None:
    unknown = sorted(set(text) - set(ALPHABET))
    if unknown:
        raise ValueError(f"{''.join(unknown)!r} can't be said in tones. Use the characters {ALPHABET!r}")
    if not text or " ".join(text.split()) != text:
        raise ValueError(f"{text!r} has no words parted by single spaces. Give at least one word")


def _symbol(symbol: int, parity: int, length: int, rate: int) -> Float:
    low = _LOW_HZ + _STEP_HZ * (parity * _TONES_A_GROUP + symbol % _TONES_A_GROUP)
    high = _HIGH_HZ + _STEP_HZ * (symbol // _TONES_A_GROUP)
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


def _spans(text: str, boundaries: npt.NDArray[np.int64], n: int) -> tuple[tuple[str, int, int], ...]:
    spans, place = [], 0
    for word in text.split(" "):
        end = place + len(word)
        first = 0 if place == 0 else int(boundaries[place])
        spans.append((word, first, n if end == len(text) else int(boundaries[end])))
        place = end + 1
    return tuple(spans)
