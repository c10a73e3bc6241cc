"""Live speech without a socket: a clip becomes frames on the microphone's own timeline, and what comes back becomes the
stamps of a row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.options import accept, problems
from plimsoll.harness.protocols._speech.hearing import (
    Endpoint,
    Event,
    Sound,
    Transcript,
    first_audible,
    put_sounds,
    put_transcripts,
)
from plimsoll.harness.protocols._speech.sending import (
    AudioOptions,
    FrameRules,
    Pace,
    audio_problems,
    clip_of,
    frame_schedule,
    live_audio,
    padded,
    parse_pace,
)
from plimsoll.scenarios.samples.clip import Clip, Word
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import PACE_CAPTURE, PACE_FILE, Status

MS = 1_000_000


def clip(ms: int = 250, rate: int = 16_000) -> Clip:
    return Clip(np.arange(rate * ms // 1000).astype(np.int16), rate, 50 * MS, 200 * MS, "one")


def options(**given: object) -> AudioOptions:
    return accept(AudioOptions, given)


def test_frames_are_the_clip_and_each_is_due_at_the_end_of_its_span() -> None:
    live = live_audio(clip(), options(), "pcm16", 16_000)
    assert b"".join(live.frames) == clip().pcm.tobytes()
    assert live.due_ns == (100 * MS, 200 * MS, 250 * MS)
    assert (live.closing_ns, live.needed, live.pace, live.frame_ns) == (250 * MS, 3, PACE_CAPTURE, 100 * MS)


def test_silence_behind_the_clip_is_real_frames_that_only_an_endpoint_makes_unneeded() -> None:
    live = live_audio(clip(), options(trailing_silence="300ms"), "pcm16", 16_000)
    assert len(live.frames) == 6
    assert live.closing_ns == 550 * MS
    assert live.needed == 3
    assert set(live.frames[4]) == {0}
    assert live_audio(clip(), options(trailing_silence="300ms", until_endpoint=False), "pcm16", 16_000).needed == 6


def test_a_clip_of_another_rate_is_resampled_and_keeps_its_labels() -> None:
    live = live_audio(clip(rate=8000), options(frame="20ms"), "mulaw", 24_000)
    assert live.clip.rate == 24_000
    assert abs(live.clip.duration_ns - 250 * MS) < MS
    assert (live.clip.onset_ns, live.clip.offset_ns, live.clip.transcript) == (50 * MS, 200 * MS, "one")
    assert {len(frame) for frame in live.frames[:-1]} == {480}


def test_a_burst_is_due_at_once() -> None:
    live = live_audio(clip(), options(pace="burst"), "pcm16", 16_000)
    assert (set(live.due_ns), live.closing_ns, live.pace) == ({0}, 0, PACE_FILE)


def test_a_pace_that_is_none_is_refused_with_the_ones_there_are() -> None:
    (error,) = problems(AudioOptions, {"pace": "fast"})
    assert "capture" in error
    assert "2x" in error


def test_frames_that_a_vendor_would_refuse_are_refused_before_the_run() -> None:
    rules = FrameRules("AssemblyAI", min_ms=50, max_ms=1000)
    with pytest.raises(HarnessFault, match="AssemblyAI takes frames of 50 ms or more"):
        live_audio(clip(), options(frame="20ms"), "pcm16", 16_000, rules=rules)
    assert "50 ms or more" in audio_problems(options(frame="20ms"), "pcm16", 16_000, rules)[0]
    assert audio_problems(options(), "pcm16", 16_000, rules) == []
    assert "unknown" in audio_problems(options(), "gsm", 16_000)[0]


def test_a_payload_without_audio_says_which_source_has_some() -> None:
    with pytest.raises(HarnessFault, match="source of kind audio"):
        clip_of(Payload(prompt="hi"), "vosk")


# -- on the microphone's timeline -----------------------------------------------------------------------------------

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


# -- what a recogniser said -----------------------------------------------------------------------------------------

START = 1_000 * MS
CLIP = Clip(
    np.zeros(16_000, np.int16),
    16_000,
    200 * MS,
    800 * MS,
    "one two three",
    (Word("one", 200 * MS, 400 * MS), Word("two", 400 * MS, 600 * MS), Word("three", 600 * MS, 800 * MS)),
)


def heard(*events: Event, clip: Clip | None = CLIP) -> tuple[Exchange, SessionStamps, str]:
    exchange = Exchange(0, 0, 0, 0, None)
    exchange.status = int(Status.OK)
    stamps = exchange.session = SessionStamps()
    stamps.media_start_ns = START
    if clip is not None:
        stamps.speech_start_ns, stamps.speech_end_ns = START + clip.onset_ns, START + clip.offset_ns
    return exchange, stamps, put_transcripts(exchange, clip, events, "basic")


def said(at_ms: int, text: str, final: bool = False, segment: int = 0, cursor_ms: int = -1) -> Transcript:
    return Transcript(START + at_ms * MS, segment, text, final, cursor_ms * MS if cursor_ms >= 0 else -1)


def test_interims_replace_and_finals_add_up_to_the_transcript() -> None:
    exchange, stamps, transcript = heard(
        said(450, "one", cursor_ms=400),
        said(650, "one two", cursor_ms=600),
        said(700, "One two.", final=True),
        said(850, "tree", segment=1),
        said(950, "three", final=True, segment=1),
    )
    assert transcript == "One two. three"
    assert stamps.first_partial_ns == START + 450 * MS
    assert stamps.first_final_ns == START + 700 * MS
    assert stamps.final_ns == START + 950 * MS
    assert (stamps.n_partials, stamps.words, stamps.word_errors) == (3, 3, 0)
    assert exchange.chunk_ns.tolist() == [START + at * MS for at in (450, 650, 700, 850, 950)]
    assert stamps.chunk_cursor_ns.tolist() == [400 * MS, 600 * MS, -1, -1, -1]
    assert exchange.first_token_ns == -1


def test_a_word_counts_from_when_it_stood_for_good_not_from_its_first_guess() -> None:
    _, stamps, _ = heard(said(450, "one"), said(650, "one too"), said(760, "one two"), said(900, "one two three", True))
    assert stamps.word_lag_ns.tolist() == [50 * MS, 160 * MS, 100 * MS]
    assert stamps.n_revised == 1


def test_formatting_is_no_revision() -> None:
    _, stamps, _ = heard(said(700, "one two"), said(900, "One, two."), said(950, "One, two. Three!", True))
    assert stamps.n_revised == 0
    assert stamps.word_lag_ns.tolist() == [300 * MS, 100 * MS, 150 * MS]


def test_words_taken_back_are_revised_words() -> None:
    _, stamps, _ = heard(said(500, "one two four"), said(600, "one"), said(900, "one two three", True))
    assert stamps.n_revised == 2


def test_a_final_that_leaves_words_open_is_not_the_last_one() -> None:
    opened = (said(450, "one", final=True), said(950, "two three", segment=1))
    _, stamps, transcript = heard(*opened)
    assert transcript == "one two three"
    assert (stamps.first_final_ns, stamps.final_ns) == (START + 450 * MS, -1)
    assert heard(*opened, said(990, "", final=True, segment=1))[1].final_ns == START + 450 * MS  # taken back
    assert heard(*opened, said(990, "two three", final=True, segment=1))[1].final_ns == START + 990 * MS


def test_a_word_put_in_front_of_others_leaves_them_standing() -> None:
    _, stamps, _ = heard(said(650, "two"), said(850, "two three"), said(950, "one two three", True))
    assert stamps.n_revised == 0
    assert stamps.word_lag_ns.tolist() == [550 * MS, 50 * MS, 50 * MS]


def test_a_word_is_matched_with_itself_and_not_with_its_like_behind_a_misheard_one() -> None:
    texts = ("she", "ran", "home")
    words = tuple(Word(text, i * 100 * MS, (i + 1) * 100 * MS) for i, text in enumerate(texts))
    clip = Clip(np.zeros(16_000, np.int16), 16_000, 0, 300 * MS, " ".join(texts), words)
    _, stamps, _ = heard(said(250, "she home"), said(400, "she home home", True), clip=clip)
    assert stamps.word_errors == 1
    assert stamps.word_lag_ns.tolist() == [150 * MS, 100 * MS]


def test_an_endpoint_with_a_position_inside_speech_is_false_whenever_it_comes() -> None:
    at = {"late": (1100, 500), "faded": (1200, 700), "true": (1300, 1000)}
    ends = {name: Endpoint(START + t * MS, cursor * MS) for name, (t, cursor) in at.items()}
    assert [heard(end)[1].false_endpoints for end in ends.values()] == [1, 0, 0]
    _, stamps, _ = heard(ends["late"], ends["true"])
    assert (stamps.false_endpoints, stamps.endpoint_ns) == (1, START + 1300 * MS)


def test_a_word_that_was_never_heard_has_no_lag_and_is_an_error() -> None:
    _, stamps, _ = heard(said(900, "one three", True))
    assert (stamps.words, stamps.word_errors) == (3, 1)
    assert stamps.word_lag_ns.tolist() == [500 * MS, 100 * MS]


def test_empty_transcripts_are_no_partials_and_silence_is_heard_as_all_words_missing() -> None:
    exchange, stamps, transcript = heard(said(300, ""), said(950, " ", True))
    assert (transcript, exchange.n_chunks, stamps.n_partials) == ("", 0, 0)
    assert (stamps.first_partial_ns, stamps.final_ns) == (-1, -1)
    assert (stamps.words, stamps.word_errors) == (3, 3)


def test_an_endpoint_inside_speech_is_false_and_the_first_one_after_it_counts() -> None:
    _, stamps, _ = heard(
        Endpoint(START + 100 * MS), Endpoint(START + 500 * MS), Endpoint(START + 990 * MS), Endpoint(START + 1500 * MS)
    )
    assert stamps.false_endpoints == 1
    assert stamps.endpoint_ns == START + 990 * MS


def test_without_a_reference_only_times_are_kept() -> None:
    bare = Clip(np.zeros(16_000, np.int16), 16_000)
    _, stamps, transcript = heard(said(450, "anything", True), clip=bare)
    assert transcript == "anything"
    assert (stamps.words, stamps.word_errors, len(stamps.word_lag_ns)) == (-1, -1, 0)
    assert heard(said(450, "x"), clip=None)[1].first_partial_ns == START + 450 * MS


def test_words_without_end_that_all_change_are_not_compared_without_end() -> None:
    """Two messages of 200 KB each took 335 MB and 5 s to compare, and of 4 MB each more than any machine has."""
    exchange, stamps, transcript = heard(said(450, "a " * 50_000), said(650, "b " * 50_000, final=True))
    assert exchange.status == Status.PROTOCOL
    assert "too many words that change from one message to the next" in str(exchange.error)
    assert (stamps.words, stamps.n_partials, len(transcript)) == (3, 1, 99_999)
    long = [f"w{i}" for i in range(9_000)]
    exchange, stamps, _ = heard(*(said(450 + n, " ".join(long[:n])) for n in range(8_990, 9_000)), said(700, "x", True))
    assert (exchange.status, stamps.n_revised) == (Status.OK, 8_999), "an hour of speech that goes on is no such thing"


# -- audio that came ------------------------------------------------------------------------------------------------

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
