"""What is said is heard: the alphabet, the sound, words and times, and how noise, speed and gain take words away."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from plimsoll.reference_server.seams.models import Audio, Heard
from plimsoll.reference_server.speech import resample
from plimsoll.reference_server.speech.tones import (
    ALPHABET,
    HIGH_HZ,
    LEAD_S,
    LOW_HZ,
    SYMBOL_S,
    TAIL_S,
    Unsayable,
    Utterance,
    normalise,
    symbols,
)

pytest.importorskip("torch", reason="the recogniser needs torch")

from plimsoll.reference_server.models.tone_bank import ToneBank
from plimsoll.reference_server.speech.listening import Ear, Hearing, Piece
from plimsoll.reference_server.speech.transcript import LONGEST_S
from tests.bench.speech_wer import louder, noisy, spoken, texts, word_error_rate

RATE = 16_000
SYMBOL_AND_FRAME_S = SYMBOL_S + 0.006


@pytest.fixture(scope="module")
def bank() -> ToneBank:
    made = ToneBank()
    made.warm_up(1)
    return made


def silence(seconds: float) -> Audio:
    return np.zeros(round(seconds * RATE), np.float32)


def ear_in(hearing: Hearing, row: int, *, endpointing_ms: int | None = 300, interim: bool = True) -> Ear:
    return hearing.open(row, RATE, resample.kernel(RATE), endpointing_ms, interim)


def listen(bank: ToneBank, *pieces: Audio, endpointing_ms: int | None = 300, interim: bool = True) -> list[Heard]:
    hearing = Hearing(bank, 1)
    ear = ear_in(hearing, 0, endpointing_ms=endpointing_ms, interim=interim)
    taken = [Piece(ear, audio) for audio in pieces] + [Piece(ear, silence(0), "finish")]
    for piece in taken:
        hearing.hear([piece])
    return [heard for piece in taken for heard in piece.heard]


def finals(heard: list[Heard]) -> list[str]:
    return [each.text for each in heard if each.kind == "final"]


# -- the alphabet -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Hello, World!", "hello, world!"),
        ("  Ça  va,\n\tJosé? ", "ca va, jose?"),
        ("“It’s 9 o’clock” — straße (Œuvre)", "it's 9 o'clock - strasse oeuvre"),
        ("½ of 10€ + $2", "1/2 of 10 euros plus dollars 2"),
        ("**bold** `code` #1", "bold 'code' 1"),
        ("ﬁne ＡＢＣ …", "fine abc ..."),
    ],
)
def test_text_is_brought_down_to_what_can_be_said(text: str, said: str) -> None:
    assert normalise(text) == said


def test_normalised_text_stays_as_it_is_and_every_character_has_a_symbol() -> None:
    assert normalise(ALPHABET.strip()) == " ".join(ALPHABET.split())
    assert sorted(symbols(ALPHABET)) == list(range(49))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ok 你好", r"'你' \(U\+4F60, .*\) at position 3"),
        ("a\0b", r"character \(U\+0000, .*\) at position 1"),
        ("🙂", r"U\+1F642"),
    ],
)
def test_a_character_that_cannot_be_said_is_named(text: str, named: str) -> None:
    with pytest.raises(Unsayable, match=named):
        normalise(text)


# -- the sound --------------------------------------------------------------------------------------------------


def test_an_utterance_lasts_as_long_as_its_symbols_and_silences_at_any_speed() -> None:
    for speed in (0.25, 1.0, 4.0):
        utterance = Utterance(symbols("four"), 24_000, speed)
        assert utterance.n_samples == pytest.approx((LEAD_S + 4 * SYMBOL_S + TAIL_S) / speed * 24_000, abs=2)
    assert Utterance([], 8000).n_samples == 0


def test_a_sample_is_the_same_whatever_stretch_it_is_rendered_in() -> None:
    utterance = Utterance(symbols("any stretch, anywhere"), 22_050, 1.3)
    whole = utterance.render(0, utterance.n_samples)
    for size in (1, 7, 441, 5000):
        pieces = [utterance.render(at, at + size) for at in range(0, min(len(whole), 40 * size), size)]
        joined = np.concatenate(pieces)
        assert np.array_equal(joined, whole[: len(joined)])
    assert len(utterance.render(len(whole), len(whole) + 10)) == 0


def test_speech_stays_inside_full_scale_and_the_telephone_band() -> None:
    audio = spoken(" ".join(texts(3, seed=2)), 16_000)
    assert np.abs(audio).max() < 0.7
    power = np.abs(np.fft.rfft(audio)) ** 2
    hz = np.fft.rfftfreq(len(audio), 1 / 16_000)
    assert power[hz > 3400].sum() < 1e-4 * power.sum()
    assert max(LOW_HZ + HIGH_HZ) < 3400


# -- resampling -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050, 44_100, 48_000])
def test_resampling_keeps_the_band_of_the_tones_and_drops_what_would_fold_into_it(rate: int) -> None:
    at = np.arange(rate) / rate
    for hz, least, most in ((420, 0.99, 1.01), (3220, 0.965, 1.01), (5000, 0.0, 0.005)):
        if hz < rate / 2:
            stream = resample.Resampler(resample.kernel(rate))
            tone = (0.5 * np.sin(2 * np.pi * hz * at)).astype(np.float32)
            out = np.concatenate((stream.feed(tone), stream.finish())) / resample.FULL_SCALE
            assert len(out) == resample.RATE
            level = np.sqrt(2 * np.mean(out[400:-400] ** 2)) / 0.5
            assert least <= level <= most, hz


def test_resampling_does_not_move_anything_in_time() -> None:
    for rate in (8000, 16_000, 44_100, 48_000):
        stream = resample.Resampler(resample.kernel(rate))
        audio = np.zeros(rate, np.float32)
        audio[rate // 4] = 0.9
        out = np.concatenate((stream.feed(audio), stream.finish()))
        assert int(np.abs(out).argmax()) == 2000


# -- words and their times --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 44_100, 48_000])
def test_words_lie_where_they_were_said_within_one_symbol(bank: ToneBank, rate: int) -> None:
    text = "hello there, what's up? aaa bb 1122"
    hearing = Hearing(bank, 1)
    piece = Piece(hearing.open(0, rate, resample.kernel(rate), 300, True), spoken(text, rate), "finish")
    hearing.hear([piece])
    words = piece.heard[-1].words
    assert [word.text for word in words] == text.split()
    at = 0
    for word in words:
        at = text.index(word.text, at)
        assert word.start_s == pytest.approx(LEAD_S + at * SYMBOL_S, abs=SYMBOL_AND_FRAME_S / 2)
        assert word.end_s == pytest.approx(LEAD_S + (at + len(word.text)) * SYMBOL_S, abs=SYMBOL_AND_FRAME_S / 2)
        assert word.confidence > 0.99


def test_events_come_in_order_and_partials_grow_by_words(bank: ToneBank) -> None:
    heard = listen(bank, silence(0.5), spoken("one two three"), silence(1.0))
    assert [each.kind for each in heard] == ["speech_started", "partial", "partial", "partial", "speech_ended", "final"]
    assert [each.text for each in heard[1:4]] == ["one", "one two", "one two three"]
    began, ended = heard[0].start_s, heard[4].end_s
    assert began == pytest.approx(0.5 + LEAD_S, abs=0.02)
    assert ended == pytest.approx(0.5 + LEAD_S + 13 * SYMBOL_S, abs=0.02)
    assert all(a.end_s <= b.end_s for a, b in pairwise(heard[1:4]))


def test_without_interim_only_the_final_has_words(bank: ToneBank) -> None:
    heard = listen(bank, spoken("one two three"), interim=False)
    assert [each.kind for each in heard] == ["speech_started", "speech_ended", "final"]


@pytest.mark.parametrize("endpointing_ms", [0, 100, 300, 800])
def test_silence_ends_an_utterance_after_endpointing(bank: ToneBank, endpointing_ms: int) -> None:
    heard = listen(bank, spoken("one two"), silence(1.0), spoken("three"), endpointing_ms=endpointing_ms)
    assert finals(heard) == ["one two", "three"]
    ended = next(each for each in heard if each.kind == "speech_ended")
    final = next(each for each in heard if each.kind == "final")
    assert final.end_s - ended.end_s == pytest.approx(max(0.06, endpointing_ms / 1000), abs=0.025)


def test_a_pause_shorter_than_endpointing_parts_words_only(bank: ToneBank) -> None:
    assert finals(listen(bank, spoken("one"), silence(0.15), spoken("two"))) == ["one two"]


def test_one_utterance_goes_on_through_any_silence(bank: ToneBank) -> None:
    assert finals(listen(bank, spoken("one"), silence(3.0), spoken("two"), endpointing_ms=None)) == ["one two"]


def test_a_very_long_utterance_is_given_in_parts_that_join(bank: ToneBank) -> None:
    said = " ".join(texts(20, seed=3))
    audio = spoken(said)
    assert len(audio) / RATE > 1.1 * LONGEST_S
    heard = listen(bank, *np.split(audio, range(RATE, len(audio), RATE)))
    parts = finals(heard)
    assert len(parts) > 1
    assert " ".join(parts) == said
    assert [each.kind for each in heard].count("speech_ended") == 1
    whole = listen(bank, *np.split(audio, range(RATE, len(audio), RATE)), endpointing_ms=None, interim=False)
    assert finals(whole) == [said]


def test_flush_ends_the_utterance_and_the_stream_goes_on_with_its_clock(bank: ToneBank) -> None:
    hearing = Hearing(bank, 1)
    ear = ear_in(hearing, 0)
    first = spoken("one two")[: -round(TAIL_S * RATE)]
    flushed, after = Piece(ear, first, "flush"), Piece(ear, np.concatenate((silence(0.2), spoken("three"))), "finish")
    hearing.hear([flushed])
    hearing.hear([after])
    assert finals(flushed.heard) == ["one two"]
    assert finals(after.heard) == ["three"]
    begin = len(first) / RATE + 0.2 + LEAD_S
    assert after.heard[-1].words[0].start_s == pytest.approx(begin, abs=SYMBOL_AND_FRAME_S / 2)
    assert max(each.end_s for each in flushed.heard) <= len(first) / RATE


def test_silence_and_noise_say_nothing(bank: ToneBank) -> None:
    assert listen(bank, silence(2.0)) == []
    noise = np.random.default_rng(7).normal(0, 0.1, 20 * RATE).astype(np.float32)
    assert finals(listen(bank, noise)) == []


def test_a_stream_hears_the_same_bits_in_any_company(bank: ToneBank) -> None:
    rng = np.random.default_rng(3)
    audios = [noisy(spoken(text), 4, rng) for text in texts(5, seed=4, n_words=4)]
    alone = [listen(bank, audio) for audio in audios]
    hearing = Hearing(bank, 8)
    ears = [ear_in(hearing, row) for row in (5, 0, 7, 2, 3)]
    pieces = [Piece(ear, audio, "finish") for ear, audio in zip(ears, audios, strict=True)]
    hearing.hear(pieces)
    assert [piece.heard for piece in pieces] == alone


def test_a_row_that_was_used_before_hears_as_a_fresh_one(bank: ToneBank) -> None:
    hearing = Hearing(bank, 1)
    rng = np.random.default_rng(8)
    hearing.hear([Piece(ear_in(hearing, 0), noisy(spoken(texts(1, seed=12)[0]), 3, rng))])
    audio = noisy(spoken("quite another text"), 8, rng)
    again = Piece(ear_in(hearing, 0), audio, "finish")
    hearing.hear([again])
    assert again.heard == listen(bank, audio)


# -- what takes words away --------------------------------------------------------------------------------------


def test_noise_takes_words_one_after_the_other(bank: ToneBank) -> None:
    said, rng = texts(8, seed=5), np.random.default_rng(5)
    by_snr = [
        word_error_rate(bank, said, lambda text, snr=snr: (noisy(spoken(text), snr, rng), RATE))
        for snr in (20, 10, 5, 0, -5)
    ]  # type: ignore[misc]
    rates = [rate for rate, _ in by_snr]
    assert rates[0] == 0
    assert all(b >= a - 0.03 for a, b in pairwise(rates))
    assert rates[1] <= 0.05
    assert 0.05 <= rates[2] <= 0.40
    assert 0.45 <= rates[3] <= 0.95
    assert rates[4] >= 0.85
    sure = [confidence for _, confidence in by_snr]
    assert all(b < a for a, b in pairwise(sure[:4]))


def test_confidence_is_about_the_share_of_words_that_are_right(bank: ToneBank) -> None:
    said, rng = texts(12, seed=6), np.random.default_rng(6)
    right = sure = n = 0.0
    for text in said:
        for heard in listen(bank, noisy(spoken(text), 3, rng), endpointing_ms=None, interim=False):
            left = text.split()
            for word in heard.words:
                n, sure = n + 1, sure + word.confidence
                if word.text in left:
                    right += 1
                    left.remove(word.text)
    assert n > 40
    assert sure / n == pytest.approx(right / n, abs=0.12)


def test_speed_is_heard_from_a_quarter_to_three_times_and_lost_beyond(bank: ToneBank) -> None:
    said = texts(4, seed=8)
    rates = [
        word_error_rate(bank, said, lambda text, x=x: (spoken(text, speed=x), RATE))[0]
        for x in (0.25, 0.8, 1.25, 2.5, 4.0)
    ]  # type: ignore[misc]
    assert rates[:4] == [0, 0, 0, 0]
    assert rates[4] > 0.5


def test_gain_does_not_matter_until_clipping_or_quantisation_eats_the_tones(bank: ToneBank) -> None:
    said = texts(5, seed=9)
    rates = [
        word_error_rate(bank, said, lambda text, x=x: (louder(spoken(text), x), RATE))[0]
        for x in (20, 3, -40, -60, -75)
    ]  # type: ignore[misc]
    assert rates[1] == rates[2] == 0
    assert rates[0] > 0.1
    assert 0.3 < rates[3] <= rates[4] == 1.0


def test_a_wrong_sample_rate_makes_no_sense(bank: ToneBank) -> None:
    assert word_error_rate(bank, texts(2, seed=10), lambda text: (spoken(text, 24_000), 16_000))[0] >= 0.9
