"""The player of ``plimsoll.slo.metrics.speech`` by hand: when it starts, when it stops, and what it would have
needed.
"""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.slo.metrics.speech import EPS_NS, Playback, simulate

MS = 1_000_000


def play(*sessions: list[tuple[int, int]], **settings: int) -> Playback:
    """Sessions of (arrival, audio) in ms; settings in ms."""
    flat = np.array([chunk for session in sessions for chunk in session], np.int64).reshape(-1, 2) * MS
    offsets = np.cumsum([0] + [len(session) for session in sessions])
    return simulate(flat[:, 0], flat[:, 1], offsets, **{name: value * MS for name, value in settings.items()})


def ms(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    return [int(value) // MS for value in values]


def test_chunks_that_come_in_time_never_stop_it() -> None:
    found = play([(100, 50), (140, 50), (190, 50)])
    assert (ms(found.media_ns), ms(found.stalled_ns), found.underruns.tolist()) == ([150], [0], [0])
    assert found.stall_ratio.tolist() == [0]
    assert ms(found.required_ns) == [0]


def test_a_late_chunk_stops_it_until_it_is_there_and_moves_all_later_deadlines() -> None:
    """100 ms of audio at 0; the next was needed at 100 and came at 150; the third is needed at 250 then, and came at
    240.
    """
    found = play([(0, 100), (150, 100), (240, 100)])
    assert (ms(found.stalled_ns), found.underruns.tolist(), ms(found.longest_ns)) == ([50], [1], [50])
    assert found.stall_ratio.tolist() == [pytest.approx(50 / 350)]
    assert ms(found.required_ns) == [50]


def test_lateness_within_a_device_period_is_absorbed_and_adds_nothing() -> None:
    assert EPS_NS == 20 * MS
    found = play([(0, 100), (120, 100), (220, 100)])
    assert ms(found.stalled_ns) == [0]
    assert ms(found.required_ns) == [20]
    assert ms(play([(0, 100), (120, 100), (220, 100)], eps_ns=0).stalled_ns) == [20]


def test_the_required_delay_is_the_smallest_that_plays_without_a_stall() -> None:
    chunks = [(0, 40), (90, 40), (100, 40), (260, 40)]
    needed = ms(play(chunks).required_ns)[0]
    assert needed == 140
    assert ms(play(chunks, startup_delay_ns=needed, eps_ns=0).stalled_ns) == [0]
    assert ms(play(chunks, startup_delay_ns=needed - 1, eps_ns=0).stalled_ns) == [1]


def test_a_prebuffer_starts_when_it_is_full_or_when_there_is_no_more() -> None:
    chunks = [(0, 40), (30, 40), (100, 40)]
    starts = [ms(play(chunks, prebuffer_ns=buffer).start_ns)[0] for buffer in (0, 40, 41, 80, 120, 500)]
    assert starts == [0, 0, 30, 30, 100, 100]


def test_a_container_head_without_audio_starts_no_player() -> None:
    found = play([(0, 0), (300, 100), (400, 100)])
    assert (ms(found.start_ns), ms(found.stalled_ns), ms(found.media_ns)) == ([300], [0], [200])


def test_sessions_do_not_disturb_each_other_and_one_without_audio_has_none() -> None:
    found = play([(0, 100), (150, 100)], [], [(0, 0)], [(0, 50)], [(500, 100), (590, 100)])
    assert found.valid.tolist() == [True, False, False, True, True]
    assert ms(found.stalled_ns) == [50, 0, 0, 0, 0]
    assert np.isnan(found.stall_ratio[1:3]).all()


def test_no_session_at_all() -> None:
    found = play()
    assert len(found.valid) == 0


@pytest.mark.parametrize("name", ["startup_delay_ns", "prebuffer_ns", "eps_ns"])
def test_negative_settings_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        play([(0, 10)], **{name: -1})
