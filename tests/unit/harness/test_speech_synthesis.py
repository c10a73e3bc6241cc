"""From audio that came to the stamps of a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols._speech.hearing import Sound, first_audible, put_sounds

MS = 1_000_000
RATE = 24_000


def tone(ms: int, level: float = 0.3) -> npt.NDArray[np.int16]:
    wave: npt.NDArray[np.float64] = level * 32767 * np.sin(np.arange(RATE * ms // 1000) * 0.2)
    return wave.astype(np.int16)


def silence(ms: int) -> npt.NDArray[np.int16]:
    return np.zeros(RATE * ms // 1000, np.int16)


def put(*sounds: tuple[int, npt.NDArray[np.int16]]) -> Exchange:
    exchange = Exchange(0, 0, 0, 0, None)
    put_sounds(exchange, [Sound(at * MS, samples, RATE) for at, samples in sounds])
    return exchange


def test_first_audio_is_the_first_sample_and_audible_the_chunk_with_the_first_sound() -> None:
    exchange = put((100, silence(40)), (110, silence(20)), (180, tone(100)))
    stamps = exchange.session
    assert stamps is not None
    assert stamps.first_audio_ns == 100 * MS
    assert stamps.audible_ns == 180 * MS
    # The first window of 10 ms that is loud enough reaches back into the silence by less than its own length.
    assert 50 * MS <= stamps.leading_silence_ns <= 60 * MS
    assert stamps.media_out_ns == 160 * MS
    assert stamps.chunk_audio_ns.tolist() == [40 * MS, 20 * MS, 100 * MS]
    assert exchange.chunk_ns.tolist() == [100 * MS, 110 * MS, 180 * MS]


def test_no_audio_is_no_first_audio_and_silence_is_never_audible() -> None:
    nothing = put((100, np.zeros(0, np.int16))).session
    assert nothing is not None
    assert (nothing.first_audio_ns, nothing.media_out_ns, nothing.audible_ns) == (-1, 0, -1)
    quiet = put((100, silence(500)), (200, tone(500, level=0.005))).session
    assert quiet is not None
    assert (quiet.first_audio_ns, quiet.audible_ns, quiet.leading_silence_ns) == (100 * MS, -1, -1)


def test_a_constant_offset_is_no_sound() -> None:
    assert first_audible(np.full(RATE, 0.4, np.float32), RATE) == -1


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60))
def test_playing_times_of_chunks_add_up_to_the_whole(sizes: list[int]) -> None:
    stamps = put(*((i, np.zeros(size, np.int16)) for i, size in enumerate(sizes))).session
    assert stamps is not None
    assert sum(stamps.chunk_audio_ns) == stamps.media_out_ns == (sum(sizes) * 1_000_000_000 + RATE // 2) // RATE


@given(st.integers(0, 5000), st.sampled_from([8_000, 16_000, 24_000, 48_000]))
def test_sound_is_found_within_a_window_of_where_it_begins(lead_ms: int, rate: int) -> None:
    lead = rate * lead_ms // 1000
    samples = np.concatenate((np.zeros(lead), 0.3 * np.sin(np.arange(rate) * 0.3))).astype(np.float32)
    assert lead - rate // 100 <= first_audible(samples, rate) <= lead + rate // 500
