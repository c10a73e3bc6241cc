"""Speech for any text: what is said is heard, through any codec, rate and speed and however the audio is cut; and no
bytes do harm.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plimsoll.reference_server.seams.models import Audio, Heard
from plimsoll.reference_server.speech import audio, resample
from plimsoll.reference_server.speech.audio import AudioError, SampleReader
from plimsoll.reference_server.speech.tones import ALPHABET, Unsayable, Utterance, normalise, symbols
from plimsoll.reference_server.speech.transcript import MIN_FRAMES, PENALTY, QUIET, SILENCE_SCORE, Float, Search

pytest.importorskip("torch", reason="the recogniser needs torch")

from plimsoll.reference_server.models.tone_bank import ToneBank
from plimsoll.reference_server.speech.listening import Hearing, Piece

SAYABLE = st.text(ALPHABET, min_size=1, max_size=24).map(normalise).filter(bool)
RATES = st.sampled_from([8000, 16_000, 24_000, 48_000])
CUTS = st.lists(st.floats(0, 1), max_size=8).map(sorted)


@pytest.fixture(scope="module")
def bank() -> ToneBank:
    made = ToneBank()
    made.warm_up(1)
    return made


def spoken(text: str, rate: int, speed: float = 1.0) -> Audio:
    utterance = Utterance(symbols(text), rate, speed)
    return utterance.render(0, utterance.n_samples)


def heard(bank: ToneBank, pieces: list[Audio], rate: int) -> list[Heard]:
    hearing = Hearing(bank, 1)
    ear = hearing.open(0, rate, resample.kernel(rate), 200, True)
    taken = [Piece(ear, piece) for piece in pieces] + [Piece(ear, np.zeros(0, np.float32), "finish")]
    for piece in taken:
        hearing.hear([piece])
    return [each for piece in taken for each in piece.heard]


def cut(samples: Audio, cuts: list[float]) -> list[Audio]:
    return np.split(samples, [int(share * len(samples)) for share in cuts])


def best_scores(shares: Float) -> Float:
    """By definition, over all beginnings of all segments: [T, 3] for shares [T, 2, 49]."""
    n = len(shares)
    best = np.full((n + 1, 3), -1e18)
    best[0, QUIET] = 0.0
    for t in range(1, n + 1):
        for parity in (0, 1):
            for begin in range(t - MIN_FRAMES + 1):
                entry = max(best[begin, 1 - parity], best[begin, QUIET])
                score = entry - PENALTY + shares[begin:t, parity].sum(axis=0).max()
                best[t, parity] = max(best[t, parity], score)
        quiet = [best[begin, :2].max() - PENALTY + SILENCE_SCORE * (t - begin) for begin in range(1, t)]
        best[t, QUIET] = max([SILENCE_SCORE * t, *quiet])
    return best[1:]


@given(
    seed=st.integers(0, 2**32), lengths=st.lists(st.integers(1, 14), min_size=1, max_size=4), first=st.integers(1, 13)
)
def test_the_search_finds_the_best_of_all_paths(seed: int, lengths: list[int], first: int) -> None:
    rng, lengths = np.random.default_rng(seed), sorted(lengths, reverse=True)
    low, high = rng.uniform(0, 1, (len(lengths), 14, 14)), rng.uniform(0, 1, (len(lengths), 14, 7))
    search, noted = Search(5), []
    rows = rng.permutation(5)[: len(lengths)]
    for a, b in ((0, first), (first, 14)):
        counts = np.clip(np.array(lengths) - a, 0, b - a)
        n = int((counts > 0).sum())
        if n:
            span = slice(a, a + int(counts[0]))
            noted.append(search.advance(rows[:n], low[:n, span], high[:n, span], counts[:n]))
    for i, length in enumerate(lengths):
        notes = np.concatenate([part[i] for part in noted if i < len(part)])[:length]
        shares = (low[i].reshape(14, 2, 1, 7) + high[i][:, None, :, None]).reshape(14, 2, 49)
        expected = best_scores(shares[:length])
        possible = expected > -1e17
        np.testing.assert_allclose(notes[:, :3][possible], expected[possible], atol=1e-9)


@given(text=SAYABLE, rate=RATES, speed=st.sampled_from([0.5, 0.8, 1.0, 1.25, 2.0]))
def test_what_is_said_is_heard_at_any_rate_and_ordinary_speed(
    bank: ToneBank, text: str, rate: int, speed: float
) -> None:
    samples = audio.pcm16_to_float(audio.float_to_pcm16(spoken(text, rate, speed)))
    finals = [each for each in heard(bank, [samples], rate) if each.kind == "final"]
    assert [each.text for each in finals] == [text]


@given(text=SAYABLE, law=st.sampled_from(["mulaw", "alaw"]))
def test_what_is_said_is_heard_through_a_telephone(bank: ToneBank, text: str, law: str) -> None:
    samples = audio.decode(law, audio.encode(law, spoken(text, 8000)))
    assert heard(bank, [samples], 8000)[-1].text == text


@given(
    texts=st.lists(SAYABLE, min_size=1, max_size=2),
    rate=st.sampled_from([8000, 16_000, 44_100]),
    cuts=CUTS,
    noise=st.sampled_from([0.0, 0.03, 0.1]),
)
def test_events_do_not_hang_on_how_the_audio_is_cut(
    bank: ToneBank, texts: list[str], rate: int, cuts: list[float], noise: float
) -> None:
    gap = np.zeros(int(0.3 * rate), np.float32)
    samples = np.concatenate([part for text in texts for part in (spoken(text, rate), gap)])
    samples = samples + np.random.default_rng(len(samples)).normal(0, noise, len(samples)).astype(np.float32)
    whole = heard(bank, [samples], rate)
    assert heard(bank, cut(samples, cuts), rate) == whole
    tens = np.split(samples, range(rate // 100, len(samples), rate // 100))
    assert heard(bank, tens, rate) == whole


@given(
    rate=st.integers(8000, 48_000),
    cuts=CUTS,
    samples=st.lists(st.floats(-1.5, 1.5, width=32), max_size=400).map(lambda xs: np.array(xs, np.float32)),
)
def test_resampling_does_not_hang_on_how_the_audio_is_cut(rate: int, cuts: list[float], samples: Audio) -> None:
    shape = resample.kernel(rate)
    one, many = resample.Resampler(shape), resample.Resampler(shape)
    whole = np.concatenate((one.feed(samples), one.finish()))
    parts = [many.feed(piece) for piece in cut(samples, cuts)]
    assert np.array_equal(np.concatenate((*parts, many.finish())), whole)
    assert len(whole) == -(-len(samples) * resample.RATE // rate)


@given(st.text(max_size=40))
def test_any_text_is_normalised_for_good_or_refused(text: str) -> None:
    try:
        said = normalise(text)
    except Unsayable:
        return
    assert normalise(said) == said
    assert set(said) <= set(ALPHABET)


@given(data=st.binary(max_size=200), encoding=st.sampled_from(sorted(audio.ENCODINGS)), cuts=CUTS)
def test_samples_do_not_hang_on_how_the_bytes_are_cut(data: bytes, encoding: str, cuts: list[float]) -> None:
    data = data[: len(data) - len(data) % audio.ENCODINGS[encoding]]
    try:
        whole = audio.decode(encoding, data)
    except AudioError:
        assume(False)
    reader, edges = SampleReader(encoding), [0, *(int(share * len(data)) for share in cuts), len(data)]
    parts = [reader.feed(data[a:b]) for a, b in pairwise(edges)]
    reader.end()
    assert np.array_equal(np.concatenate(parts), whole)


@given(
    st.one_of(
        st.binary(max_size=300),
        st.tuples(st.integers(0, 99), st.binary(min_size=1, max_size=8), st.sampled_from(sorted(audio.ENCODINGS))).map(
            lambda change: mangled(*change)
        ),
    )
)
def test_no_bytes_make_a_wav_reader_raise_anything_but_its_error(data: bytes) -> None:
    try:
        samples, rate = audio.read_wav(data)
    except AudioError:
        return
    assert samples.dtype == np.float32
    assert samples.ndim == 1
    assert rate > 0


def mangled(at: int, patch: bytes, encoding: str) -> bytes:
    file = bytearray(audio.write_wav(np.linspace(-1, 1, 20).astype(np.float32), 16_000, encoding=encoding))
    file[at : at + len(patch)] = patch
    return bytes(file)


@given(n=st.integers(0, 50), channels=st.integers(1, 8), rate=st.integers(1, 2**32 - 1))
def test_a_wav_file_of_any_shape_is_read_as_its_mean(n: int, channels: int, rate: int) -> None:
    values = np.random.default_rng(n).integers(-32768, 32767, (n, channels), dtype="<i2")
    form = struct.pack("<HHIIHH", 1, channels, rate, 0, 2 * channels, 16)
    file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" + form + b"data" + struct.pack("<I", values.nbytes) + values.tobytes()
    samples, read_rate = audio.read_wav(file)
    assert read_rate == rate
    np.testing.assert_allclose(samples, values.mean(axis=1) / 32768, atol=1e-6)
