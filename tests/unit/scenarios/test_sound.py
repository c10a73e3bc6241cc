"""Recordings: read as they are, resampled without harm, made noisy and loud by exact amounts, searched for speech.
Tone speech: what is labelled is what is there, and the bundled recogniser hears exactly what was said.
"""

from __future__ import annotations

import struct
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from plimsoll.scenarios.media import recordings
from plimsoll.scenarios.media.recordings import Unreadable, probe, samples_of, speech_span
from plimsoll.scenarios.media.sound import (
    ALPHABET,
    NotWav,
    louder,
    mono,
    parse_header,
    resample,
    speak,
    to_int16,
    wav_bytes,
    with_noise,
)
from plimsoll.scenarios.samples.clip import Clip, Word
from plimsoll.scenarios.samples.words import WORDS
from plimsoll.scenarios.sources.audio import assigned

Float = npt.NDArray[np.float64]
EVERY = np.arange(-32768, 32768).astype(np.int16)


def tone(rate: int, seconds: float = 1.0, hz: float = 1000.0) -> Float:
    return 0.5 * np.sin(2 * np.pi * hz / rate * np.arange(round(rate * seconds)))


# -- clips ------------------------------------------------------------------------------------------------------


def test_clips_are_equal_when_their_samples_and_labels_are() -> None:
    one, two = (Clip(EVERY.copy(), 8000, 1, 2, "a", (Word("a", 1, 2),), "s") for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != Clip(EVERY[:-1].copy(), 8000, 1, 2, "a", (Word("a", 1, 2),), "s")
    assert one != Clip(EVERY.copy(), 8000, 1, 3, "a", (Word("a", 1, 2),), "s")
    assert one != "a clip"


def test_a_clips_duration_is_rounded_to_the_nanosecond() -> None:
    assert Clip(np.zeros(1, np.int16), 48_000).duration_ns == 20_833
    assert Clip(np.zeros(22_050, np.int16), 22_050).duration_ns == 1_000_000_000


# -- WAV --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_pcm_of_every_width_is_read_as_the_standard_library_wrote_it(tmp_path: Path, width: int, channels: int) -> None:
    given = tone(8000, 0.1)
    scaled = np.rint(given * (2.0 ** (8 * width - 1) - 1)).astype(np.int64)
    as_bytes = (scaled + 128 if width == 1 else scaled).astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(8000)
        file.writeframes(np.repeat(as_bytes[:, None, :], channels, axis=1).tobytes())
    found = probe(tmp_path / "a.wav")
    assert (found.rate, found.channels, found.n_samples) == (8000, channels, 800)
    assert np.abs(samples_of(tmp_path / "a.wav") - given).max() < 2.5 / 2 ** (8 * width - 1)


def test_sixteen_bits_come_back_bit_for_bit(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav_bytes(EVERY, 16_000))
    assert np.array_equal(to_int16(samples_of(tmp_path / "a.wav")), EVERY)
    assert np.array_equal(to_int16(EVERY / 32768), EVERY)


def test_channels_are_averaged(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([1000, 3000, -2000, 0], "<i2").tobytes())
    assert to_int16(samples_of(tmp_path / "a.wav")).tolist() == [2000, -1000]


def rewritten(coding: int, bits: int, body: bytes, extensible: bool = False) -> bytes:
    fmt = struct.pack("<HHIIHH", 0xFFFE if extensible else coding, 1, 8000, 8000 * bits // 8, bits // 8, bits)
    if extensible:
        fmt += struct.pack("<HHIH", 22, bits, 4, coding) + bytes(14)
    chunks = b"fmt " + len(fmt).to_bytes(4, "little") + fmt + b"data" + len(body).to_bytes(4, "little") + body
    return b"RIFF" + (4 + len(chunks)).to_bytes(4, "little") + b"WAVE" + chunks


@pytest.mark.parametrize("extensible", [False, True])
def test_floats_and_companded_samples_are_read_without_a_library(extensible: bool) -> None:
    floats = rewritten(3, 32, np.array([0.5, -0.25, np.nan], "<f4").tobytes(), extensible)
    header = parse_header(floats)
    assert header is not None
    assert mono(header, floats[header.data_at :]).tolist() == [0.5, -0.25, 0.0]
    mulaw = rewritten(7, 8, b"\x80\x00\xff", extensible)
    header = parse_header(mulaw)
    assert header is not None
    assert to_int16(mono(header, mulaw[header.data_at :])).tolist() == [32124, -32124, 0]


def test_a_header_that_is_not_whole_yet_is_none_at_every_length() -> None:
    whole = wav_bytes(EVERY, 8000)
    assert [parse_header(whole[:n]) for n in range(44)] == [None] * 44
    assert parse_header(whole[:44]) is not None


@pytest.mark.parametrize(
    ("data", "says", "other"),
    [
        (b"OggS", "begins with", False),
        (b"RIFF\0\0\0\0AVI ", "of kind", False),
        (rewritten(85, 16, b""), "coding 85", True),
        (rewritten(1, 12, b""), "12 bits", True),
        (rewritten(1, 16, b"").replace(b"fmt ", b"tmf "), "before their description", False),
        (rewritten(1, 16, b"").replace((8000).to_bytes(4, "little"), bytes(4)), "at 0 Hz", False),
    ],
)
def test_what_is_no_wav_is_named(data: bytes, says: str, other: bool) -> None:
    with pytest.raises(NotWav, match=says) as caught:
        parse_header(data)
    assert caught.value.other_coding == other


# -- other files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "loss"), [("a.flac", "FLAC", 1e-4), ("a.ogg", "OGG", 0.1), ("a.mp3", "MP3", 0.1)]
)
def test_other_formats_are_read_with_soundfile(tmp_path: Path, name: str, kind: str, loss: float) -> None:
    soundfile = pytest.importorskip("soundfile", reason="the speech extra isn't installed")
    given = tone(16_000)
    soundfile.write(tmp_path / name, given, 16_000, format=kind)
    found = probe(tmp_path / name)
    assert (found.rate, found.n_samples) == (16_000, pytest.approx(16_000, abs=3000))
    assert np.sqrt(np.mean(samples_of(tmp_path / name)[4000:8000] ** 2)) == pytest.approx(0.5 / np.sqrt(2), abs=loss)


def test_without_soundfile_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    (tmp_path / "a.flac").write_bytes(b"fLaC" + bytes(100))
    with pytest.raises(Unreadable, match=r"pip install plimsoll-slo\[speech\], or give plain WAV"):
        probe(tmp_path / "a.flac")
    (tmp_path / "a.wav").write_bytes(wav_bytes(EVERY, 8000))
    assert probe(tmp_path / "a.wav").n_samples == 65_536


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "can be read|isn't there"),
        (b"hello, this is text", "can be read|isn't there"),
        (wav_bytes(EVERY, 8000)[:1000], "cut short: 130,116 bytes fewer"),
        (wav_bytes(EVERY, 8000)[:30], "without samples"),
        (b"RIFF\0\0\0\0AVI LIST", "is no sound WAV"),
        (wav_bytes(EVERY[:0], 8000), "holds no samples"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_one_line(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(Unreadable, match=says) as caught:
        probe(tmp_path / "a.wav")
    assert "\n" not in str(caught.value)


# -- resampling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("to_rate", [8000, 16_000, 24_000, 44_100])
def test_a_tone_keeps_its_pitch_its_level_and_its_place(rate: int, to_rate: int) -> None:
    got, ideal = resample(tone(rate), rate, to_rate), tone(to_rate)
    assert len(got) == len(ideal)
    assert np.abs(got - ideal)[to_rate // 10 : -to_rate // 10].max() < 1e-3


def test_what_the_new_rate_cannot_hold_is_gone() -> None:
    assert np.abs(resample(tone(48_000, hz=7000), 48_000, 8000))[100:-100].max() < 0.5e-3


def test_played_faster_it_is_shorter_and_higher() -> None:
    got = resample(tone(16_000), 16_000, 16_000, 1.25)
    assert len(got) == 12_800
    assert np.abs(got - tone(16_000, 0.8, 1250))[1000:-1000].max() < 1e-3


def test_the_same_rate_changes_no_bit() -> None:
    given = tone(8000)
    assert resample(given, 8000, 8000) is given
    assert len(resample(np.zeros(0), 8000, 16_000)) == 0


# -- conditions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snr_db", [20.0, 0.0, -10.0])
def test_noise_has_the_power_asked_for_relative_to_the_speech_alone(snr_db: float) -> None:
    samples = np.concatenate([np.zeros(30_000), 0.1 * tone(16_000), np.zeros(50_000)])
    added = with_noise(samples, (30_000, 46_000), snr_db, 7) - samples
    ratio_db = 10 * np.log10(np.mean(samples[30_000:46_000] ** 2) / np.mean(added**2))
    assert ratio_db == pytest.approx(snr_db, abs=0.1)
    assert np.std(added[:30_000]) == pytest.approx(np.std(added[30_000:]), rel=0.03)


def test_noise_is_the_same_for_a_seed_and_silence_stays_silent() -> None:
    given = tone(8000)
    assert np.array_equal(with_noise(given, (0, 100), 10, 1), with_noise(given, (0, 100), 10, 1))
    assert not np.array_equal(with_noise(given, (0, 100), 10, 1), with_noise(given, (0, 100), 10, 2))
    assert not with_noise(np.zeros(100), (0, 100), 10, 1).any()


def test_gain_is_in_decibels_and_16_bits_clip() -> None:
    assert louder(np.array([0.01]), 20)[0] == pytest.approx(0.1)
    assert to_int16(louder(np.array([0.5, -0.5]), 12)).tolist() == [32767, -32768]


# -- speech detection -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
@pytest.mark.parametrize("room", [0.0, 1e-4, 0.01])
def test_speech_is_found_within_a_window(rate: int, room: float) -> None:
    speech = speak("turn left at the mill", rate).samples
    rng = np.random.default_rng(1)
    samples = np.concatenate([np.zeros(rate // 3), speech, np.zeros(rate)])
    samples += room * rng.standard_normal(len(samples))
    start, end = speech_span(samples, rate) or (-1, -1)
    assert 0 <= rate // 3 - start <= 0.0101 * rate
    assert abs(end - rate // 3 - len(speech)) <= 0.0101 * rate


def test_a_pause_is_inside_the_speech_and_a_click_is_none() -> None:
    rate = 16_000
    word, quiet = speak("word", rate).samples, np.zeros(rate)
    click = np.zeros(rate)
    click[100] = 0.9
    samples = np.concatenate([click, word, quiet, word, click])
    start, end = speech_span(samples, rate) or (-1, -1)
    assert start == pytest.approx(rate, abs=160)
    assert end == pytest.approx(2 * rate + 2 * len(word), abs=160)


def test_a_short_word_in_a_long_silence_is_found() -> None:
    samples = np.concatenate([np.zeros(160_000), speak("no", 16_000).samples, np.zeros(160_000)])
    start, end = speech_span(samples, 16_000) or (-1, -1)
    assert (start, end) == (pytest.approx(160_000, abs=160), pytest.approx(162_016, abs=160))


def test_without_contrast_all_is_speech_and_without_sound_nothing() -> None:
    assert speech_span(np.random.default_rng(1).normal(0, 0.1, 16_000), 16_000) == (0, 16_000)
    assert speech_span(np.zeros(16_000), 16_000) is None
    assert speech_span(np.zeros(0), 16_000) is None


def test_the_reference_says_the_numbers_that_are_used() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/scenarios.md").read_text(encoding="utf-8")
    text = page.partition("an energy detector does")[2].partition("#### Slices")[0]
    for value, unit in (
        (recordings.WINDOW_S * 1000, "ms"),
        (recordings.RANGE_DB, "dB"),
        (recordings.LEAST_CONTRAST_DB, "dB"),
        (recordings.MIN_SILENCE_S * 1000, "ms"),
        (recordings.MIN_SPEECH_S * 1000, "ms"),
    ):
        assert f"{value:g} {unit}" in text


# -- slices -----------------------------------------------------------------------------------------------------


def test_slices_get_their_shares_exactly_and_shuffled() -> None:
    got: Any = assigned([2.0, 1.0, 1.0], 403, 5)
    assert np.bincount(got).tolist() in ([201, 101, 101], [202, 101, 100], [202, 100, 101])
    assert not (np.diff(got) >= 0).all()
    assert np.array_equal(got, assigned([2.0, 1.0, 1.0], 403, 5))
    assert not np.array_equal(got, assigned([2.0, 1.0, 1.0], 403, 6))


def test_a_small_share_still_has_a_clip_and_too_few_clips_are_refused() -> None:
    assert np.bincount(assigned([1000.0, 1.0], 20, 1)).tolist() == [19, 1]
    with pytest.raises(ValueError, match="2 clips can't be spread over 3 slices"):
        assigned([1, 1, 1], 2, 1)


# -- tones ----------------------------------------------------------------------------------------------------------


def sentence(seed: int, n: int = 8) -> str:
    rng = np.random.default_rng(seed)
    return " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), n))


@pytest.mark.parametrize("speed", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("rate", [8000, 44_100])
def test_the_sound_lasts_its_symbols_and_one_fade_and_begins_and_ends_with_the_speech(rate: int, speed: float) -> None:
    speech = speak("four of us", rate, speed)
    seconds = 10 * 0.06 / speed + 0.006 * min(1, 1 / speed)
    assert len(speech.samples) == pytest.approx(seconds * rate, abs=2)
    assert speech.words[0][1] == 0
    assert speech.words[-1][2] == len(speech.samples)
    assert to_int16(speech.samples[: rate // 500]).any()
    assert to_int16(speech.samples[-rate // 500 :]).any()


def test_words_lie_at_the_boundaries_of_their_symbols() -> None:
    spans = {word: (first / 16_000, end / 16_000) for word, first, end in speak("as it was", 16_000).words}
    assert spans["as"] == pytest.approx((0, 0.123), abs=1e-4)
    assert spans["it"] == pytest.approx((0.183, 0.303), abs=1e-4)
    assert spans["was"] == pytest.approx((0.363, 0.546), abs=1e-4)


def test_speech_stays_inside_full_scale_and_the_telephone_band() -> None:
    samples = speak(sentence(1, 30), 16_000).samples
    assert np.abs(samples).max() < 0.7
    power = np.abs(np.fft.rfft(samples)) ** 2
    hz = np.fft.rfftfreq(len(samples), 1 / 16_000)
    assert power[hz > 3400].sum() < 1e-4 * power.sum()


@pytest.mark.parametrize("text", ["", "Upper", "über", "two  spaces", " edge", "line\nbreak", "a_b"])
def test_what_cannot_be_said_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"can't be said|no words"):
        speak(text, 16_000)


# -- as the recogniser hears it ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ear() -> object:
    pytest.importorskip("torch", reason="the recogniser needs torch")
    from plimsoll.reference_server.models.tone_bank import ToneBank

    bank = ToneBank()
    bank.warm_up(1)
    return bank


def heard(bank: object, samples: Float, rate: int) -> list[tuple[str, list[tuple[float, float]]]]:
    """Each final's text and its words' times in seconds."""
    from plimsoll.reference_server.speech.listening import Hearing, Piece
    from plimsoll.reference_server.speech.resample import kernel

    hearing = Hearing(bank, 1)  # type: ignore[arg-type]
    around = np.concatenate([np.zeros(rate // 5), samples, np.zeros(rate // 3)])
    as_sent = to_int16(around).astype(np.float32) / 32768
    piece = Piece(hearing.open(0, rate, kernel(rate), None, False), as_sent, "finish")
    hearing.hear([piece])
    return [
        (each.text, [(word.start_s - 0.2, word.end_s - 0.2) for word in each.words])
        for each in piece.heard
        if each.kind == "final"
    ]


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
def test_the_bundled_recogniser_hears_the_transcript_and_the_times_of_its_words(
    ear: object, rate: int, speed: float
) -> None:
    for seed in range(3):
        speech = speak(sentence(seed), rate, speed)
        [(text, spans)] = heard(ear, speech.samples, rate)
        assert text == sentence(seed)
        for (start, end), (_, first, last) in zip(spans, speech.words, strict=True):
            # Half a symbol, which is what the recogniser promises.
            assert (start, end) == pytest.approx((first / rate, last / rate), abs=0.036)


def test_every_symbol_of_the_alphabet_is_heard(ear: object) -> None:
    text = "x".join(ALPHABET.replace(" ", ""))
    assert heard(ear, speak(text, 16_000).samples, 16_000)[0][0] == text


def test_resampled_speech_is_still_heard(ear: object) -> None:
    speech = speak(sentence(9), 44_100)
    assert heard(ear, resample(speech.samples, 44_100, 16_000), 16_000)[0][0] == sentence(9)


def test_noise_takes_words_away_and_more_noise_takes_more(ear: object) -> None:
    right = []
    for snr_db in (15.0, 3.0, -5.0):
        n = 0
        for seed in range(6):
            samples = speak(sentence(seed), 16_000).samples
            finals = heard(ear, with_noise(samples, (0, len(samples)), snr_db, seed), 16_000)
            n += len(set(sentence(seed).split()) & set(" ".join(text for text, _ in finals).split()))
        right.append(n)
    assert right[0] >= 47
    assert right[0] > right[1] > right[2]
