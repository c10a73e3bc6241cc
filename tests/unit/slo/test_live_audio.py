"""Late audio is the generator's failure, session by session; audio that was not taken is not, and is told."""

from __future__ import annotations

import pytest
from made_sessions import MS, listened, spoke, uploaded

from plimsoll.slo.records.records import PACE_FILE, PACE_OTHER, Records, Status, concat
from plimsoll.slo.validity import lateness
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess


def lags(*sessions: list[int], **columns: object) -> Records:
    """Sessions with frames of 20 ms that were this late, in ms."""
    ragged = {"frame_lag_ns": [[lag * MS for lag in session] for session in sessions]}
    return listened(len(sessions), ragged=ragged, **columns)


@pytest.mark.parametrize(
    ("session", "late"),
    [
        ([0, 1, 2], False),
        ([10] * 100, False),  # half a frame is the limit
        ([11] * 100, True),
        ([0] * 99 + [40], False),  # two frames once
        ([0] * 99 + [41], True),
        ([0] * 98 + [30, 30], True),  # the p99 of 100 is the 99th
        ([0] * 99 + [30], False),
    ],
)
def test_a_session_is_late_by_its_p99_or_its_worst_frame(session: list[int], late: bool) -> None:
    assert lateness.late_sessions(lags([0], session, [0, 0])).tolist() == [False, late, False]


def test_audio_in_a_burst_and_sessions_without_frames_are_not_judged() -> None:
    burst = lags([500], pace=PACE_FILE)
    assert lateness.live_audio(burst) is None
    assert lateness.live_audio(uploaded()) is None
    assert lateness.live_audio(spoke()) is None
    assert not lateness.late_sessions(concat([burst, spoke()])).any()


def test_twice_the_speed_leaves_half_the_time() -> None:
    """150 frames of 20 ms in 1.5 s are due every 10 ms."""
    frames = [6] * 150
    assert lateness.late_sessions(lags(frames)).tolist() == [False]
    assert lateness.late_sessions(lags(frames, pace=PACE_OTHER, input_end_ns=1600 * MS)).tolist() == [True]


def test_more_than_one_late_session_in_a_hundred_makes_a_run_invalid() -> None:
    facts = GeneratorFacts(open_loop=False, planned=200)
    good, bad = [0, 1], [300]
    kept = assess(lags(*[good] * 198, *[bad] * 2), facts)
    broken = assess(lags(*[good] * 197, *[bad] * 3), facts)
    assert (kept.outcome, broken.outcome) == ("VALID", "INVALID")
    assert any("2 of 200 sessions were sent audio late by this host" in text for text in kept.warnings)
    assert [reason for reason in broken.reasons if "late audio in 3 of 200 sessions, limit 1%" in reason]
    assert "20 ms" in broken.reasons[0]


def test_failed_sessions_are_judged_and_the_warm_up_is_not() -> None:
    found = lateness.live_audio(lags([0], [300], [300], status=[0, int(Status.TIMEOUT), 0], phase=[0, 0, 1]))
    assert found is not None
    assert (found.sessions, found.late, found.frames) == (2, 1, 2)


def test_audio_that_was_not_taken_is_back_pressure_and_no_fault_of_ours() -> None:
    frames = [0] * 150  # 3 s of audio in 96,000 bytes
    run = assess(lags(frames, frames, unsent_bytes=[640, 48_000]), GeneratorFacts(open_loop=False, planned=2))
    assert run.outcome == "VALID"
    assert run.live_audio is not None
    assert (run.live_audio.unsent_bytes, run.live_audio.unsent_ns, run.live_audio.held) == (48_000, 1500 * MS, 1)
    assert any("1 of 2 sessions were held up: at worst 1.5 s of audio" in text for text in run.warnings)


def test_a_run_without_speech_has_no_such_check() -> None:
    from plimsoll.slo.records.records import from_columns

    run = assess(
        from_columns(3, due_ns=0, ready_ns=0, sent_ns=0, done_ns=MS), GeneratorFacts(open_loop=False, planned=3)
    )
    assert run.live_audio is None
    assert "live audio" not in {check.name for check in run.checks}
