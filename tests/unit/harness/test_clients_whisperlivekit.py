"""WhisperLiveKit: what its states and its changes mean, and how it fails."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.harness.protocols.whisperlivekit import WhisperLiveKitDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING, READY
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, At, hear, settled

CONFIG = {"type": "config", "useAudioWorklet": True, "mode": "full"}


def kit(url: str = "http://127.0.0.1:1", **options: Any) -> WhisperLiveKitDialogue:
    return WhisperLiveKitDialogue(Target(url, "whisperlivekit", options=options))


def lines(*texts: str | None) -> list[dict[str, Any]]:
    return [{"speaker": 1 if text else -2, "text": text, "start": "0:00:00", "end": "0:00:01"} for text in texts]


def test_samples_go_out_as_they_are_and_nothing_ends_them() -> None:
    script = kit("http://127.0.0.1:1/asr", language="fr").encode(AUDIO)
    assert script.path == "/asr?language=fr&mode=full"
    assert kit("http://h:1/base").encode(AUDIO).path == "/base/asr?mode=full"
    assert b"".join(frame.data for frame in script.frames) == CLIP.pcm.tobytes()
    assert [(one.data, one.text) for one in script.closing] == [(b"", False)]
    assert (script.waits, script.ends_on_close) == (True, False)


def test_what_moves_from_the_buffer_to_a_line_is_no_revision() -> None:
    talk = kit()
    messages: list[At] = [
        (5, CONFIG),
        (300, {"status": "active_transcription", "lines": [], "buffer_transcription": "one"}),
        (600, {"status": "active_transcription", "lines": lines("one"), "buffer_transcription": "too"}),
        (900, {"status": "active_transcription", "lines": lines("one"), "buffer_transcription": "two"}),
        (1100, {"status": "active_transcription", "lines": lines("one", None, "two"), "buffer_transcription": ""}),
        (1200, {"type": "ready_to_stop"}),
    ]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [READY, NOTHING, NOTHING, NOTHING, NOTHING, DONE]
    exchange = settled(talk, AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (exchange.status, stamps.word_errors, stamps.n_revised) == (Status.OK, 0, 1)
    assert (stamps.first_partial_ns, stamps.first_final_ns, stamps.final_ns) == (300 * MS, 600 * MS, 1100 * MS)


def test_changes_add_up_to_the_same_words_though_lines_leave_at_the_front() -> None:
    exchange = settled(
        kit(mode="diff"),
        AUDIO,
        [
            (5, CONFIG),
            (300, {"type": "snapshot", "seq": 1, "lines": lines("on"), "buffer_transcription": ""}),
            (500, {"type": "diff", "seq": 2, "n_lines": 1, "new_lines": lines("one"), "buffer_transcription": "t"}),
            (700, {"type": "diff", "seq": 3, "n_lines": 0, "lines_pruned": 1, "buffer_transcription": ""}),
            (950, {"type": "diff", "seq": 4, "n_lines": 1, "new_lines": lines("two"), "buffer_transcription": ""}),
            (1000, {"type": "ready_to_stop"}),
        ],
    )
    assert exchange.session is not None
    assert (exchange.session.word_errors, exchange.session.final_ns) == (0, 950 * MS)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ({"status": "error", "error": "FFmpeg failed", "lines": []}, "FFmpeg failed"),
        ({"type": "config", "useAudioWorklet": False}, "the server wants encoded audio. Start it with --pcm-input"),
    ],
)
def test_failures_end_the_session(message: dict[str, Any], error: str) -> None:
    talk = kit()
    assert hear(talk, talk.encode(AUDIO), [(5, message)])[1] == [DONE]
    exchange = settled(talk, AUDIO, [(5, message)])
    assert (exchange.status, exchange.error) == (Status.HTTP, error)
    assert hear(talk, talk.encode(AUDIO), [(5, {"lines": [], "error": ""})])[1] == [NOTHING]
