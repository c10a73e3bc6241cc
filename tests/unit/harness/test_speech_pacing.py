"""Live audio is sent on the microphone's own timeline: whole samples, no drift, and vendors' rules said in words."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.harness.protocols._speech.sending import FrameRules, Pace, frame_schedule, padded, parse_pace

S = 1_000_000_000


def test_a_frame_is_due_when_the_microphone_would_have_its_last_sample() -> None:
    made = frame_schedule(4800, 16_000, 100, Pace())
    assert made.bounds.tolist() == [0, 1600, 3200, 4800]
    assert made.due_ns.tolist() == [100_000_000, 200_000_000, 300_000_000]
    assert made.end_ns == 300_000_000


def test_an_eager_sender_has_each_frame_its_own_length_too_early_and_still_ends_at_the_true_end() -> None:
    made = frame_schedule(4800, 16_000, 100, Pace("eager"))
    assert made.due_ns.tolist() == [0, 100_000_000, 200_000_000]
    assert made.end_ns == 300_000_000


def test_the_last_frame_is_as_long_as_what_is_left_and_due_at_the_true_end() -> None:
    made = frame_schedule(1601, 16_000, 100, Pace())
    assert made.bounds.tolist() == [0, 1600, 1601]
    assert made.due_ns.tolist() == [100_000_000, 100_062_500]
    assert made.end_ns == 100_062_500


@pytest.mark.parametrize(("rate", "sizes"), [(22_050, {441}), (44_100, {882}), (11_025, {220, 221})])
def test_twenty_milliseconds_of_odd_rates_do_not_drift(rate: int, sizes: set[int]) -> None:
    made = frame_schedule(rate * 3600, rate, 20, Pace())
    assert set(np.diff(made.bounds).tolist()) == sizes
    assert len(made) == 180_000
    ideal = np.arange(1, 180_001) * 20_000_000
    assert np.abs(made.due_ns - ideal).max() <= S / rate / 2 + 1


def test_thirty_two_milliseconds_at_44100_hz_are_rounded_one_by_one_and_not_added_up() -> None:
    made = frame_schedule(44_100 * 60, 44_100, 32, Pace())  # 1411.2 samples a frame
    assert made.bounds[:6].tolist() == [0, 1411, 2822, 4234, 5645, 7056]
    assert made.bounds[1000] == 1_411_200


def test_a_burst_is_due_at_once_and_a_speed_divides_the_timeline() -> None:
    burst = frame_schedule(4800, 16_000, 100, Pace("burst"))
    assert (burst.due_ns.tolist(), burst.end_ns) == ([0, 0, 0], 0)
    fast = frame_schedule(4800, 16_000, 100, parse_pace("4x"))
    assert (fast.due_ns.tolist(), fast.end_ns) == ([25_000_000, 50_000_000, 75_000_000], 75_000_000)


def test_no_audio_is_no_frames() -> None:
    made = frame_schedule(0, 16_000, 20, Pace())
    assert (len(made), made.bounds.tolist(), made.end_ns) == (0, [0], 0)


def test_the_backlog_goes_out_at_once_unless_catching_up_is_capped() -> None:
    assert not frame_schedule(4800, 16_000, 100, Pace()).gap_ns.any()
    capped = frame_schedule(4000, 16_000, 100, Pace(), max_catch_up=2.0)
    assert capped.gap_ns.tolist() == [0, 50_000_000, 25_000_000]
    with pytest.raises(ValueError, match="catch-up of 1x is no faster than the pace capture"):
        frame_schedule(4800, 16_000, 100, Pace(), max_catch_up=1.0)


def test_a_capped_player_that_stalls_is_back_on_time_at_twice_real_time() -> None:
    made = frame_schedule(16_000 * 10, 16_000, 100, Pace(), max_catch_up=2.0)
    written, stalled_until = [], 3 * S
    for due, gap in zip(made.due_ns.tolist(), made.gap_ns.tolist(), strict=True):
        earliest = max(due, stalled_until if due < stalled_until else 0, (written[-1] + gap) if written else 0)
        written.append(earliest)
    late = np.array(written) - made.due_ns
    assert late.max() == 3 * S - 100_000_000
    assert late[made.due_ns > 6 * S].max() == 0
    assert np.diff(written).min() == 50_000_000


def test_a_schedule_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="is no frame"):
        frame_schedule(100, 8000, 0.05, Pace())
    with pytest.raises(ValueError, match="at most 24 hours"):
        frame_schedule(8000 * 90_000, 8000, 20, Pace())
    with pytest.raises(ValueError, match="can't be scheduled"):
        frame_schedule(-1, 8000, 20, Pace())


def test_padding_makes_the_last_frame_whole_and_leaves_whole_ones_alone() -> None:
    assert padded(1600, 16_000, 100) == 1600
    assert padded(1601, 16_000, 100) == 3200
    assert padded(0, 16_000, 100) == 0
    assert padded(1412, 44_100, 32) == 2822


@pytest.mark.parametrize(
    ("text", "code", "times"), [("burst", 0, float("inf")), ("capture", 1, 1), ("eager", 2, 1), ("1.5x", 3, 1.5)]
)
def test_paces_are_written_as_they_are_printed(text: str, code: int, times: float) -> None:
    pace = parse_pace(text)
    assert (str(pace), pace.code, pace.times_real) == (text, code, times)


def test_one_times_real_time_is_capture() -> None:
    assert parse_pace("1x") == Pace()


@pytest.mark.parametrize("text", ["", "x", "0x", "-2x", "2", "fast", "1e9x", "1001x", "2x "])
def test_what_is_no_pace_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(ValueError, match="capture, eager, burst, or a speed"):
        parse_pace(text)


def test_a_pace_of_two_minds_is_refused() -> None:
    with pytest.raises(ValueError, match="speed 2"):
        Pace("capture", 2.0)
    with pytest.raises(ValueError, match="not one of"):
        Pace("slow")


def test_rules_say_each_breach_and_what_to_give() -> None:
    rules = FrameRules("AssemblyAI", min_ms=50, max_ms=1000, max_bytes=3200, max_catch_up=2.0)
    assert rules.problems(100, 3200, Pace()) == []
    assert rules.problems(20, 640, Pace()) == [
        "target.options.frame: AssemblyAI takes frames of 50 ms or more, not 20. Give 50 to 1000"
    ]
    long, big, fast = rules.problems(2000, 64_000, Pace("burst"))
    assert "1000 ms at most, not 2000. Give 50 to 1000" in long
    assert "64,000 bytes and AssemblyAI takes 3,200" in big
    assert "target.options.pace: burst is faster than the 2 x real time" in fast
    assert rules.problems(100, 3200, parse_pace("2x")) == []


def test_rules_know_of_single_lengths_and_of_one_sided_limits() -> None:
    assert "takes no frames of 30 ms. Give one of 20, 40" in FrameRules(lengths_ms=(20, 40)).problems(30, 1, Pace())[0]
    assert FrameRules(min_ms=50).problems(20, 1, Pace())[0].endswith("Give at least 50")
    assert FrameRules(max_ms=50).problems(70, 1, Pace())[0].endswith("Give at most 50")
    assert FrameRules().problems(5000, 10**9, Pace("burst")) == []
