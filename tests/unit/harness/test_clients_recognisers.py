"""vosk-server: what it is told, what its replies mean, and how it fails. sherpa-onnx: what both of its servers are
told, what their texts mean, and how they fail. WhisperLive: what it is told first and last, what its rolling window
means, and how it fails. WhisperLiveKit: what its states and its changes mean, and how it fails.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.protocols.sherpa import SherpaDialogue
from plimsoll.harness.protocols.vosk import VoskDialogue
from plimsoll.harness.protocols.whisperlive import WhisperLiveDialogue
from plimsoll.harness.protocols.whisperlivekit import WhisperLiveKitDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, At, hear, settled


def vosk(url: str = "http://127.0.0.1:1", **options: Any) -> VoskDialogue:
    return VoskDialogue(Target(url, "vosk", options=options))


def result(text: str, end: float) -> dict[str, Any]:
    return {"result": [{"word": text, "start": 0.0, "end": end, "conf": 1.0}], "text": text}


def test_config_comes_first_and_the_end_is_the_string_that_the_server_compares() -> None:
    script = vosk(phrase_list=["one two"], max_alternatives=2, config={"extra": 1}).encode(AUDIO)
    assert json.loads(script.opening[0].data) == {
        "config": {"sample_rate": 16000, "words": True, "max_alternatives": 2, "phrase_list": ["one two"], "extra": 1}
    }
    assert (script.closing[0].data, script.closing[0].text) == (b'{"eof" : 1}', True)
    assert b"".join(frame.data for frame in script.frames) == CLIP.pcm.tobytes()
    assert (script.path, vosk("ws://host:2700/base").encode(AUDIO).path) == ("/", "/base")


def test_a_text_before_the_end_is_an_endpoint_and_the_answer_to_eof_is_none() -> None:
    talk = vosk()
    messages: list[At] = [
        (100, {"partial": ""}),
        (400, {"partial": "one"}),
        (500, result("one", 0.4)),
        (950, result("too", 0.85)),
        (1000, {"text": ""}),
        (1010, result("two", 0.9)),
    ]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [NOTHING] * 3 + [ENDPOINT, NOTHING, ENDPOINT]
    exchange = settled(talk, AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (stamps.false_endpoints, stamps.endpoint_ns, stamps.final_ns) == (1, 950 * MS, 1010 * MS)
    assert list(stamps.chunk_cursor_ns) == [-1, 400 * MS, 850 * MS, 900 * MS]
    assert (stamps.words, stamps.word_errors, exchange.status) == (2, 1, Status.OK)


def test_the_first_alternative_is_the_text() -> None:
    answer = {"alternatives": [{"confidence": 9.0, "text": "one two"}, {"confidence": 1.0, "text": "wan too"}]}
    stamps = settled(vosk(max_alternatives=2), AUDIO, [(1010, answer)]).session
    assert stamps is not None
    assert stamps.word_errors == 0


def test_a_close_without_the_last_answer_is_a_broken_protocol() -> None:
    for messages in ([], [(400, {"partial": "one"})]):
        exchange = settled(vosk(), AUDIO, messages)
        assert exchange.status == Status.PROTOCOL
        assert "without the answer to" in str(exchange.error)
    assert settled(vosk(), AUDIO, [(400, {"partial": "one"})], Status.TIMEOUT, "late").error == "late"


# -- sherpa-onnx ----------------------------------------------------------------------------------------------------


def server(name: str = "cpp", **options: Any) -> SherpaDialogue:
    return SherpaDialogue(Target("http://127.0.0.1:1", "sherpa-onnx", options={"server": name, **options}))


def test_samples_go_out_as_floats_and_done_ends_them() -> None:
    script = server().encode(AUDIO)
    sent = np.concatenate([np.frombuffer(frame.data, "<f4") for frame in script.frames])
    assert np.array_equal(np.rint(sent * 32768), CLIP.pcm)
    assert (script.closing[0].data, script.closing[0].text) == (b"Done", True)
    assert (script.ends_on_close, server("python").encode(AUDIO).ends_on_close) == (False, True)


def test_the_cpp_server_says_what_is_final_and_when_it_is_done() -> None:
    talk = server()
    messages: list[At] = [
        (400, {"text": "on", "segment": 0, "is_final": False, "timestamps": [0.1], "start_time": 0.0}),
        (500, {"text": "one", "segment": 0, "is_final": True, "timestamps": [0.3], "start_time": 0.0}),
        (950, {"text": "two", "segment": 1, "is_final": True, "timestamps": [0.2], "start_time": 0.5}),
        (1000, {"text": "", "segment": 2, "is_final": True, "is_eof": True}),
        (1001, "Done!"),
    ]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [NOTHING, NOTHING, ENDPOINT, ENDPOINT, DONE]
    exchange = settled(talk, AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (exchange.status, exchange.error, stamps.word_errors) == (Status.OK, None, 0)
    assert (stamps.first_final_ns, stamps.final_ns, stamps.endpoint_ns) == (500 * MS, 950 * MS, 950 * MS)
    assert (stamps.false_endpoints, list(stamps.chunk_cursor_ns)) == (1, [100 * MS, 300 * MS, 700 * MS])


def test_the_python_servers_text_is_final_when_the_next_segment_begins_or_the_session_ends() -> None:
    messages: list[At] = [
        (400, {"text": "one", "segment": 0}),
        (800, {"text": "tw", "segment": 1}),
        (1010, {"text": "two", "segment": 1}),
    ]
    exchange = settled(server("python"), AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (stamps.first_partial_ns, stamps.first_final_ns, stamps.final_ns) == (400 * MS, 800 * MS, 1010 * MS)
    assert stamps.word_errors == 0
    cut = settled(server("python"), AUDIO, messages, Status.TIMEOUT, "late").session
    assert cut is not None
    assert (cut.first_final_ns, cut.final_ns) == (800 * MS, -1)  # "two" was still open


def test_a_text_that_is_not_json_ends_the_reading_and_is_named() -> None:
    exchange = settled(server(), AUDIO, [(400, {"text": "one", "segment": 0}), (500, "Dune!"), (501, "Done!")])
    assert (exchange.status, exchange.error) == (Status.PROTOCOL, "message 2 is not JSON: Dune!")
    assert exchange.n_chunks == 1


# -- WhisperLive ----------------------------------------------------------------------------------------------------


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


# -- WhisperLiveKit -------------------------------------------------------------------------------------------------

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
