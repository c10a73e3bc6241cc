"""Whatever the rate and the frame: every sample once, in order, never early, and no drift."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.protocols._speech.sending import Pace, frame_schedule, padded, parse_pace

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
