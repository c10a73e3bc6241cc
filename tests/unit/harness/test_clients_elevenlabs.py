"""ElevenLabs: what is asked of Scribe and of stream-input, what their answers mean, and how they fail."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from plimsoll.harness.protocols import elevenlabs
from plimsoll.harness.protocols.elevenlabs import ScribeDialogue, SpeechDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING, READY
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, TEXT, At, hear, settled

URL = "http://127.0.0.1:1"
KEY = (("Authorization", "Bearer el-secret-key"),)


SCRIBE, SPEECH = (spec for spec in elevenlabs.PROTOCOLS)


def scribe(**options: Any) -> ScribeDialogue:
    return ScribeDialogue(Target(URL, "elevenlabs-scribe", "", KEY, options))


def speech(**options: Any) -> SpeechDialogue:
    return SpeechDialogue(Target(URL, "elevenlabs-tts", "", KEY, options))


def said(kind: str, text: str = "", **more: Any) -> dict[str, Any]:
    return {"message_type": kind, "text": text, **more}


def audio(n_samples: int, **more: Any) -> dict[str, Any]:
    return {"audio": base64.b64encode(bytes(2 * n_samples)).decode(), "isFinal": None, **more}


# -- Scribe -------------------------------------------------------------------------------------------------------


def test_scribe_hears_the_clip_in_base64_and_then_a_commit_without_audio() -> None:
    script = scribe(previous_text="so far", language_code="en").encode(AUDIO)
    query = parse_qs(urlsplit(script.path).query)
    assert query == {
        "model_id": ["scribe_v2_realtime"], "audio_format": ["pcm_16000"], "commit_strategy": ["manual"],
        "language_code": ["en"],
    }  # fmt: skip
    assert script.headers == (("xi-api-key", "el-secret-key"),)
    chunks = [json.loads(frame.data) for frame in script.frames]
    assert b"".join(base64.b64decode(chunk["audio_base_64"]) for chunk in chunks) == CLIP.pcm.tobytes()
    assert [chunk.get("previous_text") for chunk in chunks[:2]] == ["so far", None]
    assert not any(chunk["commit"] for chunk in chunks)
    (commit,) = script.closing
    assert json.loads(commit.data) == {
        "message_type": "input_audio_chunk", "audio_base_64": "", "commit": True, "sample_rate": 16000,
    }  # fmt: skip
    assert (script.waits, script.ends_on_close, script.closing_ns) == (True, False, 1000 * MS)


def test_scribes_own_header_is_left_alone() -> None:
    target = Target(URL, "elevenlabs-scribe", "", (("XI-API-Key", "mine"), ("Authorization", "Bearer other")))
    assert ScribeDialogue(target).encode(AUDIO).headers == target.headers


def test_only_the_answer_to_our_own_commit_ends_a_session() -> None:
    talk = scribe()
    messages: list[At] = [
        (5, said("session_started")),
        (500, said("committed_transcript", "one")),
        (1010, said("committed_transcript", "two")),
    ]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [READY, NOTHING, DONE]
    timed = scribe(include_timestamps=True)
    last = (1011, said("committed_transcript_with_timestamps", "two"))
    assert hear(timed, timed.encode(AUDIO), [*messages, last])[1] == [READY, NOTHING, NOTHING, DONE]


def test_with_voice_activity_the_commit_after_speech_ends_it_and_is_the_endpoint() -> None:
    talk = scribe(commit_strategy="vad", vad_silence_threshold_secs=0.5)
    assert len(talk.encode(AUDIO).frames) == 30
    messages: list[At] = [(400, said("committed_transcript", "one")), (1400, said("committed_transcript", "two"))]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [NOTHING, DONE]
    stamps = settled(talk, AUDIO, messages).session
    assert stamps is not None
    assert (stamps.false_endpoints, stamps.endpoint_ns, stamps.word_errors) == (1, 1400 * MS, 0)


def test_committed_text_is_final_and_times_say_how_far_it_reached() -> None:
    exchange = settled(
        scribe(include_timestamps=True),
        AUDIO,
        [
            (300, said("partial_transcript", "won")),
            (400, said("partial_transcript", "one")),
            (1020, said("committed_transcript", "one two")),
            (1021, said("committed_transcript_with_timestamps", "one two", words=[{"text": "two", "end": 0.9}])),
        ],
    )
    stamps = exchange.session
    assert stamps is not None
    assert (stamps.first_partial_ns, stamps.final_ns, stamps.n_partials, stamps.n_revised) == (
        300 * MS,
        1020 * MS,
        2,
        1,
    )
    assert list(stamps.chunk_cursor_ns) == [-1, -1, 900 * MS]
    assert (exchange.status, stamps.word_errors) == (Status.OK, 0)


@pytest.mark.parametrize(
    ("kind", "status"),
    [("rate_limited", Status.REFUSED), ("quota_exceeded", Status.REFUSED), ("auth_error", Status.HTTP)],
)
def test_scribes_errors_end_the_session_and_keep_their_words(kind: str, status: Status) -> None:
    talk = scribe()
    messages: list[At] = [(300, said("partial_transcript", "one")), (400, {"message_type": kind, "error": "because"})]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [NOTHING, DONE]
    exchange = settled(talk, AUDIO, messages)
    assert (exchange.status, exchange.error, exchange.n_chunks) == (status, f"because ({kind})", 1)


# -- stream-input -------------------------------------------------------------------------------------------------


def test_text_is_opened_with_a_space_fed_and_ended_with_nothing() -> None:
    talk = speech(words_per_second=4.0, chunk_length_schedule=[50], voice="v/1", try_trigger_generation=True)
    script = talk.encode(TEXT)
    assert script.path.startswith("/v1/text-to-speech/v%2F1/stream-input?model_id=eleven_flash_v2_5")
    assert json.loads(script.opening[0].data) == {"text": " ", "generation_config": {"chunk_length_schedule": [50]}}
    pieces = [json.loads(frame.data) for frame in script.frames]
    assert [piece["text"] for piece in pieces] == ["mind ", "the ", "gap "]
    assert all(piece["try_trigger_generation"] for piece in pieces)
    assert list(script.due_ns) == [0, 250 * MS, 500 * MS]
    assert (json.loads(script.closing[0].data), script.closing_ns) == ({"text": ""}, 500 * MS)
    assert [json.loads(frame.data) for frame in speech().encode(TEXT).frames] == [{"text": "mind the gap "}]


def test_audio_is_decoded_until_the_final_message() -> None:
    talk = speech()
    messages: list[At] = [(100, audio(2400)), (150, audio(1200)), (160, {"audio": None, "isFinal": True})]
    assert hear(talk, talk.encode(TEXT), messages)[1] == [NOTHING, NOTHING, DONE]
    exchange = settled(talk, TEXT, messages)
    assert exchange.session is not None
    assert (exchange.session.media_out_ns, exchange.session.first_audio_ns) == (150 * MS, 100 * MS)
    assert list(exchange.session.chunk_audio_ns) == [100 * MS, 50 * MS]


def test_stream_inputs_errors_end_the_session_and_keep_the_audio_before_them() -> None:
    talk = speech()
    error = {"message": "no characters left", "error": "quota_exceeded", "code": 1008}
    assert hear(talk, talk.encode(TEXT), [(1, error)])[1] == [DONE]
    exchange = settled(talk, TEXT, [(100, audio(2400)), (110, error)])
    assert (exchange.status, exchange.error) == (Status.REFUSED, "no characters left (quota_exceeded, 1008)")
    assert exchange.session is not None
    assert exchange.session.media_out_ns == 100 * MS


@pytest.mark.parametrize(
    ("message", "words"),
    [({"audio": "%%%"}, "not base64"), ({"audio": 5}, "not base64"), ({"isFinal": True}, "without any audio")],
)
def test_audio_that_is_none_is_a_broken_protocol(message: dict[str, Any], words: str) -> None:
    exchange = settled(speech(), TEXT, [(1, message)])
    assert exchange.status == Status.PROTOCOL
    assert words in str(exchange.error)
