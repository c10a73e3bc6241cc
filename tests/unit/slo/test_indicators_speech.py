"""Each speech indicator's formula, by hand, and what each makes of sessions that are not all alike."""

from __future__ import annotations

import numpy as np
import pytest
from made_sessions import MS, listened, spoke, uploaded

from plimsoll.slo.metrics.indicator import catalogue, measure
from plimsoll.slo.objectives.goodput import held
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records.records import PACE_EAGER, PACE_FILE, PACE_OTHER, Records, Status, concat, from_columns

SECOND = 1000 * MS


def values(name: str, records: Records) -> list[float]:
    return measure(catalogue()[name], records).values.tolist()


LISTENED = {
    "session_ready": [50 * MS],
    "first_partial": [700 * MS],
    "first_partial_from_stream_start": [900 * MS],
    "first_partial_after_speech_end": [100 * MS],
    "word_emission": [200 * MS, 300 * MS],
    "finalization": [100 * MS],
    "first_final_after_speech_end": [100 * MS],
    "endpointing": [150 * MS],
    "false_endpoints": [0],
    "transcript_lag": [200 * MS, 400 * MS, 500 * MS],
    "lag_slope": [0.178082],
    "audio_frame_lag": [0, 1 * MS, 2 * MS],
    "first_audio": [3 * SECOND],
    "first_audio_perceived": [3010 * MS],
    "voice_to_voice": [210 * MS],
    "stall_ratio": [0.2],  # 50 ms waited for the second chunk of 200 ms of audio
    "longest_stall": [50 * MS],
    "playback_stalls": [1],
    "startup_delay": [50 * MS],
    "wer": [0.2],
    "partial_churn": [0.1],
}
SPOKE = {
    "first_audio": [300 * MS],
    "first_audio_from_text_end": [200 * MS],
    "first_audio_perceived": [320 * MS],
    "stall_ratio": [50 / 350],
    "longest_stall": [50 * MS],
    "playback_stalls": [1],
    "startup_delay": [50 * MS],
    "audio_per_second": [0.3 / 0.55],
}
UPLOADED = {"rtf": [0.25], "rtfx": [4.0], "wer": [0.2]}
SPEECH = {name for name, one in catalogue().items() if one.live}


@pytest.mark.parametrize(
    ("records", "expected"),
    [(listened(), LISTENED), (spoke(), SPOKE), (uploaded(), UPLOADED)],
    ids=["listened", "spoke", "uploaded"],
)
def test_each_formula_on_one_session_and_no_other_metric_of_speech(
    records: Records, expected: dict[str, list[float]]
) -> None:
    found = {name: values(name, records) for name in SPEECH}
    assert {name for name, seen in found.items() if seen} == set(expected)
    for name, wanted in expected.items():
        assert found[name] == pytest.approx(wanted, rel=1e-5), name


def test_every_speech_indicator_has_its_formula_tested_above() -> None:
    assert {*LISTENED, *SPOKE, *UPLOADED} == SPEECH


def test_the_slope_is_the_least_squares_line_of_numpy() -> None:
    slope = np.polyfit([0.9, 1.9, 2.6], [0.2, 0.4, 0.5], 1)[0]
    assert values("lag_slope", listened()) == [pytest.approx(slope, rel=1e-9)]


ANCHORED = (
    *("first_partial", "first_partial_from_stream_start", "first_partial_after_speech_end", "word_emission"),
    *("finalization", "first_final_after_speech_end", "endpointing", "false_endpoints", "voice_to_voice"),
    *("transcript_lag", "lag_slope"),
)


@pytest.mark.parametrize("name", ANCHORED)
def test_nothing_counts_from_true_speech_where_audio_was_not_sent_at_1x(name: str) -> None:
    assert values(name, listened(pace=PACE_EAGER))
    for pace in (PACE_FILE, PACE_OTHER):
        both = concat([listened(), listened(pace=pace)])
        found = measure(catalogue()[name], both)
        assert set(found.row.tolist()) == {0}
        assert found.missing == 1


@pytest.mark.parametrize("name", ["rtf", "rtfx"])
def test_a_real_time_factor_of_paced_audio_is_outside_and_counted(name: str) -> None:
    for pace in (1, 2, 3):
        found = measure(catalogue()[name], concat([uploaded(), uploaded(pace=pace)]))
        assert (found.n, found.missing) == (1, 1)


def test_the_factor_of_a_burst_counts_from_its_first_frame_to_the_last_final() -> None:
    burst = uploaded(media_start_ns=200 * MS, final_ns=800 * MS)
    assert values("rtf", burst) == [pytest.approx(0.15)]


def test_what_is_awaited_and_never_came_is_the_worst_where_others_have_it() -> None:
    silent = {"first_partial_ns": -1, "final_ns": -1, "first_final_ns": -1, "endpoint_ns": -1, "first_audio_ns": -1}
    both = concat([listened(), listened(**silent, audible_ns=-1, chunks=[[]], ragged={})])
    for name in (
        *("first_partial", "first_partial_from_stream_start", "first_partial_after_speech_end", "finalization"),
        *("first_final_after_speech_end", "endpointing", "first_audio", "first_audio_perceived", "voice_to_voice"),
    ):
        assert values(name, both)[1:] == [np.inf], name
    assert values("word_emission", both)[2:] == [np.inf, np.inf]


def test_a_clip_without_speech_awaits_nothing() -> None:
    noise = listened(speech_start_ns=-1, speech_end_ns=-1, first_partial_ns=-1, final_ns=-1, words=0, word_errors=3)
    both = concat([listened(), noise])
    for name in ("first_partial", "finalization", "endpointing", "voice_to_voice", "wer", "partial_churn"):
        found = measure(catalogue()[name], both)
        assert (found.n, found.missing, found.failed) == (1, 1, 0), name
        assert (
            held(parse(f"{name} <= 10{'s' if catalogue()[name].unit == 'ns' else ''}"), both)[0].tolist() == [True] * 2
        )


def test_a_session_that_only_listened_awaits_no_audio() -> None:
    deaf = listened(first_audio_ns=-1, audible_ns=-1, leading_silence_ns=-1, media_out_ns=-1)
    for name in ("first_audio", "first_audio_perceived", "voice_to_voice", "audio_per_second"):
        assert measure(catalogue()[name], concat([listened(), deaf])).failed == 0, name


def test_leading_silence_is_heard_before_the_voice_but_a_late_chunk_is_not_heard_early() -> None:
    assert values("voice_to_voice", listened(leading_silence_ns=90 * MS)) == [290 * MS]
    assert values("voice_to_voice", listened(leading_silence_ns=100 * MS, audible_ns=3900 * MS)) == [1100 * MS]


def test_silence_behind_a_gap_is_played_after_the_gap() -> None:
    # 100 ms of it at 3000, 50 ms more in a chunk that was 50 ms late: the voice begins at 3200 and not at 3150.
    gap = listened(leading_silence_ns=150 * MS, audible_ns=3150 * MS)
    assert values("voice_to_voice", concat([gap, listened(chunks=[[]], ragged={}), gap])) == [
        400 * MS,
        210 * MS,
        400 * MS,
    ]
    assert values("first_audio_perceived", gap) == [3200 * MS]


def test_a_first_final_before_the_end_gives_way_to_the_last_one() -> None:
    some = listened(first_final_ns=1500 * MS, final_ns=3400 * MS)
    assert values("first_final_after_speech_end", some) == [600 * MS]
    assert values("finalization", some) == [600 * MS]


def test_what_was_final_before_the_labelled_end_is_negative_not_cut_to_zero() -> None:
    assert values("finalization", listened(final_ns=2700 * MS)) == [-100 * MS]


def test_an_endpoint_inside_speech_is_a_mistake_and_no_endpoint() -> None:
    both = concat([listened(), listened(false_endpoints=2, endpoint_ns=-1)])
    assert values("false_endpoints", both) == [0, 2]
    assert values("endpointing", both) == [150 * MS, np.inf]


def test_a_protocol_without_endpoint_events_has_no_false_ones_either() -> None:
    assert values("false_endpoints", listened(endpoint_ns=-1)) == []


def test_a_slope_takes_three_transcripts_over_a_second() -> None:
    short = {"chunks": [[1000 * MS, 1200 * MS, 1400 * MS]], "ragged": {"chunk_cursor_ns": [[0, 100 * MS, 200 * MS]]}}
    assert values("lag_slope", listened(**short)) == []
    two = {"chunks": [[1000 * MS, 2400 * MS]], "ragged": {"chunk_cursor_ns": [[0, 100 * MS]]}}
    assert values("lag_slope", listened(**two)) == []


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.0])
def test_the_slope_of_a_server_slower_than_real_time_is_its_shortfall(speed: float) -> None:
    """It has understood ``speed`` seconds of audio in each second, so 1 / (1 - slope) is its real-time factor."""
    spoken = [500 * MS * k for k in range(1, 6)]
    some = listened(
        chunks=[[100 * MS + t for t in spoken]], ragged={"chunk_cursor_ns": [[round(speed * t) for t in spoken]]}
    )
    (slope,) = values("lag_slope", some)
    assert slope == pytest.approx(1 - speed, abs=1e-9)
    assert 1 / (1 - slope) == pytest.approx(1 / speed)


def test_transcripts_after_the_audio_say_nothing_of_keeping_up() -> None:
    late = listened(chunks=[[1000 * MS, 3200 * MS]], ragged={"chunk_cursor_ns": [[700 * MS, 3000 * MS]]})
    assert values("transcript_lag", late) == [200 * MS]


def test_a_failed_session_lacks_the_words_of_the_longest_one() -> None:
    some = listened(2, status=[0, int(Status.TIMEOUT)], ragged={"word_lag_ns": [[MS, MS, MS], [MS]]})
    assert values("word_emission", some) == [MS, MS, MS, MS, np.inf, np.inf]


def test_failed_sessions_keep_the_frames_that_they_were_sent() -> None:
    some = listened(2, status=[0, int(Status.PROTOCOL)])
    assert values("audio_frame_lag", some) == [0, MS, 2 * MS] * 2


def test_a_run_of_text_in_which_all_failed_has_no_metric_of_speech() -> None:
    text = from_columns(4, due_ns=0, status=int(Status.CONNECT))
    assert not [name for name in SPEECH if measure(catalogue()[name], text).n]
    for name in SPEECH - {"audio_frame_lag"}:  # but somebody who promised it does not get away with it
        assert measure(catalogue()[name], text, judged=True).failed == 4, name


def test_no_stall_at_all_can_be_promised() -> None:
    both = concat([spoke(), spoke(chunks=[[300 * MS, 350 * MS, 500 * MS]])])
    assert held(parse("playback_stalls <= 0"), both)[0].tolist() == [False, True]
