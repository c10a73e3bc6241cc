"""Received audio may be cut anywhere, and bytes may be anything: the samples are the same, and the only error is
BrokenAudio. Whatever the rate and the frame: every sample once, in order, never early, and no drift.
"""

from __future__ import annotations

from fractions import Fraction
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.protocols._speech.codecs import (
    BrokenAudio,
    BrokenOgg,
    Demuxer,
    decodable,
    decoder,
    encode_file,
    encode_frames,
    page,
)
from plimsoll.harness.protocols._speech.sending import Pace, frame_schedule, padded, parse_pace

PLAIN = ("pcm16", "mulaw", "alaw", "float32", "wav")
samples = st.lists(st.integers(-32768, 32767), max_size=300).map(lambda values: np.array(values, np.int16))
cuts = st.lists(st.integers(0, 1500), max_size=12)
needs_av = pytest.mark.skipif(find_spec("av") is None, reason="the speech extra isn't installed")


def pieces(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in at), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


def decoded(codec: str, parts: list[bytes]) -> npt.NDArray[np.int16]:
    made = decoder(codec, 16_000)
    return np.concatenate([*(made.feed(part) for part in parts), made.finish()])


@given(codec=st.sampled_from(PLAIN), pcm=samples, at=cuts)
def test_any_cut_gives_the_same_samples(codec: str, pcm: npt.NDArray[np.int16], at: list[int]) -> None:
    data = encode_file(codec, pcm, 16_000)
    whole = decoded(codec, [data])
    assert np.array_equal(decoded(codec, pieces(data, at)), whole)
    assert len(whole) == len(pcm)
    if codec not in ("mulaw", "alaw"):
        assert np.array_equal(whole, pcm)


@given(codec=st.sampled_from(PLAIN), pcm=samples, frame_ms=st.integers(1, 12))
def test_frames_hold_every_sample_once(codec: str, pcm: npt.NDArray[np.int16], frame_ms: int) -> None:
    schedule = frame_schedule(len(pcm), 16_000, frame_ms, Pace())
    frames = encode_frames(codec, pcm, 16_000, schedule.bounds)
    assert len(frames) == len(schedule)
    assert len(decoded(codec, list(frames))) == len(pcm)


@given(codec=st.sampled_from(PLAIN), data=st.binary(max_size=400), wav=st.booleans(), at=cuts)
def test_bytes_of_any_kind_raise_nothing_but_broken_audio(codec: str, data: bytes, wav: bool, at: list[int]) -> None:
    data = encode_file("wav", np.zeros(9, np.int16), 8000)[: len(data)] + data if wav else data
    try:
        got = decoded(codec, pieces(data, at))
    except BrokenAudio:
        return
    assert got.dtype == np.int16


@needs_av
@settings(max_examples=60, deadline=None)
@given(
    codec=st.sampled_from([name for name in decodable() if name not in PLAIN]), data=st.binary(max_size=600), at=cuts,
    turned=st.integers(0, 2000),
)  # fmt: skip
def test_damaged_streams_of_any_codec_raise_nothing_but_broken_audio(
    codec: str, data: bytes, at: list[int], turned: int
) -> None:
    tone = (9000 * np.sin(np.arange(3200) / 9)).astype(np.int16)
    good = encode_file("ogg-opus" if codec == "opus" else codec, tone, 16_000)
    place = turned % len(good)
    try:
        got = decoded(codec, pieces(good[:place] + data + good[place + len(data) // 2 :], at))
    except BrokenAudio:
        return
    assert got.dtype == np.int16


@given(packets=st.lists(st.binary(max_size=700), min_size=1, max_size=6), at=cuts)
def test_packets_come_back_from_pages_cut_anywhere(packets: list[bytes], at: list[int]) -> None:
    data = b"".join(page(packet, k, k) for k, packet in enumerate(packets))
    demuxer = Demuxer()
    assert [got for part in pieces(data, at) for got in demuxer.feed(part)] == packets


@given(data=st.binary(max_size=300), start=st.sampled_from([b"", b"OggS", b"OggS\0\2"]), at=cuts)
def test_a_demuxer_raises_nothing_but_broken_ogg(data: bytes, start: bytes, at: list[int]) -> None:
    demuxer = Demuxer()
    try:
        for part in pieces(start + data, at):
            demuxer.feed(part)
    except BrokenOgg:
        return
    assert demuxer.granule >= -1


# -- speech pacing properties ---------------------------------------------------------------------------------------

rates = st.sampled_from([8000, 11_025, 12_000, 16_000, 22_050, 24_000, 44_100, 48_000]) | st.integers(8000, 192_000)
frames_ms = st.integers(1, 1000) | st.sampled_from([2.5, 62.5, 33.3])


@given(n=st.integers(0, 400_000), rate=rates, frame_ms=frames_ms)
def test_frames_partition_the_audio_at_rounded_multiples_of_the_frame(n: int, rate: int, frame_ms: float) -> None:
    made = frame_schedule(n, rate, frame_ms, Pace())
    assert made.bounds[0] == 0
    assert made.bounds[-1] == n
    assert (np.diff(made.bounds) > 0).all()
    frame = Fraction(round(frame_ms * 1_000_000) * rate, 1_000_000_000)
    exact = [int(frame * k + Fraction(1, 2)) for k in range(1, len(made))]
    assert made.bounds[1:-1].tolist() == exact[: max(0, len(made) - 1)]


@given(n=st.integers(1, 400_000), rate=rates, frame_ms=frames_ms)
def test_no_frame_is_due_before_its_last_sample_exists_nor_a_nanosecond_later(
    n: int, rate: int, frame_ms: float
) -> None:
    made = frame_schedule(n, rate, frame_ms, Pace())
    for end, due in zip(made.bounds[1:].tolist(), made.due_ns.tolist(), strict=True):
        assert abs(Fraction(end * 1_000_000_000, rate) - due) <= Fraction(1, 2)
    assert made.end_ns == made.due_ns[-1]


@given(n=st.integers(1, 400_000), rate=rates, frame_ms=frames_ms, speed=st.integers(2, 50))
def test_every_pace_keeps_the_order_and_ends_no_earlier_than_its_last_frame(
    n: int, rate: int, frame_ms: float, speed: int
) -> None:
    for pace in (Pace(), Pace("eager"), Pace("burst"), parse_pace(f"{speed}x")):
        made = frame_schedule(n, rate, frame_ms, pace)
        assert (np.diff(made.due_ns) >= 0).all()
        assert made.end_ns >= made.due_ns[-1]
        assert len(made.gap_ns) == len(made.due_ns) == len(made.bounds) - 1


@given(n=st.integers(1, 400_000), rate=rates, frame_ms=frames_ms)
def test_padded_audio_has_as_many_frames_and_the_last_is_whole(n: int, rate: int, frame_ms: float) -> None:
    whole = padded(n, rate, frame_ms)
    assert whole >= n
    long, short = frame_schedule(whole, rate, frame_ms, Pace()), frame_schedule(n, rate, frame_ms, Pace())
    assert len(long) == len(short)
    assert padded(whole, rate, frame_ms) == whole
