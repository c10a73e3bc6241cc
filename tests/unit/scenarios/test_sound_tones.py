"""Tone speech: what is labelled is what is there, and the bundled recogniser hears exactly what was said."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from plimsoll.scenarios.media.sound import ALPHABET, resample, speak, to_int16, with_noise
from plimsoll.scenarios.samples.words import WORDS

Float = npt.NDArray[np.float64]


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
