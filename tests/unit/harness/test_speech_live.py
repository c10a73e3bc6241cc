"""A clip as frames with due times."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import accept, problems
from plimsoll.harness.protocols._speech.sending import AudioOptions, FrameRules, audio_problems, clip_of, live_audio
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import PACE_CAPTURE, PACE_FILE

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
