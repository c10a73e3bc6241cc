"""WhisperLive: what it is told first and last, what its rolling window means, and how it fails."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from plimsoll.harness.protocols import whisperlive
from plimsoll.harness.protocols.whisperlive import WhisperLiveDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, At, hear, settled


def whisper(**options: Any) -> WhisperLiveDialogue:
    return WhisperLiveDialogue(Target("http://127.0.0.1:1", "whisperlive", "tiny", options=options))


def window(*segments: tuple[str, str, str, bool]) -> dict[str, Any]:
    return {
        "uid": "u",
        "segments": [{"start": a, "end": b, "text": text, "completed": done} for a, b, text, done in segments],
    }


def test_options_come_first_floats_follow_and_the_end_is_binary() -> None:
    script = whisper(options={"hotwords": "x"}).encode(AUDIO)
    first = json.loads(script.opening[0].data)
    assert (first["model"], first["language"], first["task"], first["hotwords"]) == ("tiny", "en", "transcribe", "x")
    assert "audio_format" not in first
    assert len(script.frames[0].data) == 4 * 4096
    assert (script.closing[0].data, script.closing[0].text, script.waits) == (b"END_OF_AUDIO", False, True)
    assert script.needed == 4  # the rest is silence until the last segment is completed
    sent = np.concatenate([np.frombuffer(frame.data, "<f4") for frame in script.frames])[: len(CLIP.pcm)]
    assert np.array_equal(np.rint(sent * 32768), CLIP.pcm)
    short = whisper(audio_format="int16").encode(AUDIO)
    assert json.loads(short.opening[0].data)["audio_format"] == "int16"
    assert len(short.frames[0].data) == 2 * 4096


def test_completed_segments_leave_the_window_and_stay_said() -> None:
    talk = whisper(send_last_n_segments=1)
    messages: list[At] = [
        (5, {"uid": "u", "message": "SERVER_READY", "backend": "faster_whisper"}),
        (300, window(("0.000", "0.300", " on", False))),
        (500, window(("0.000", "0.400", " one", True), ("0.400", "0.500", " to", False))),
        (950, window(("0.400", "0.900", " two", False))),
        (1500, window(("0.400", "0.900", " two", True))),
        (1500, {"uid": "u", "language": "en", "language_prob": 0.9}),
    ]
    heard = hear(talk, talk.encode(AUDIO), messages)[1]
    assert heard == [READY, NOTHING, NOTHING, NOTHING, ENDPOINT, NOTHING]
    exchange = settled(talk, AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (exchange.status, stamps.word_errors, stamps.n_revised) == (Status.OK, 0, 2)
    assert (stamps.first_final_ns, stamps.final_ns, stamps.endpoint_ns) == (500 * MS, 1500 * MS, 1500 * MS)
    assert stamps.false_endpoints == 0  # a segment with more behind it is none
    assert list(stamps.chunk_cursor_ns) == [300 * MS, 400 * MS, 500 * MS, 900 * MS, 900 * MS]


def test_a_slow_server_that_completes_the_first_half_late_cuts_nothing_off() -> None:
    talk = whisper()
    assert hear(talk, talk.encode(AUDIO), [(2000, window(("0.000", "0.400", " one", True)))])[1] == [NOTHING]
    assert hear(talk, talk.encode(AUDIO), [(2000, window(("0.000", "0.880", " one two", True)))])[1] == [ENDPOINT]


def test_a_server_that_is_full_refuses() -> None:
    talk = whisper()
    full = {"uid": "u", "status": "WAIT", "message": 2.5}
    assert hear(talk, talk.encode(AUDIO), [(1, full)])[1] == [DONE]
    exchange = settled(talk, AUDIO, [(1, full)])
    assert (exchange.status, exchange.error) == (Status.REFUSED, "the server is full: wait 2.5 minutes")
    broken = {"uid": "u", "status": "ERROR", "message": "no backend"}
    assert hear(talk, talk.encode(AUDIO), [(1, broken)])[1] == [DONE]
    assert settled(talk, AUDIO, [(1, broken)]).status == Status.HTTP
    assert settled(talk, AUDIO, [(1, {"uid": "u", "status": "WARNING", "message": "slow"})]).status == Status.OK


def test_a_pace_that_outruns_the_server_is_refused() -> None:
    (error,) = whisperlive.PROTOCOLS[0].check({"audio": {"pace": "burst"}})
    assert error.startswith("target.options.audio.pace: ")
    assert whisperlive.PROTOCOLS[0].check({"audio": {"pace": "eager"}}) == []
