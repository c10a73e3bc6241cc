"""Cartesia: what is asked of its three services, what their answers mean, and how they fail."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from plimsoll.harness.protocols.cartesia import RecognitionDialogue, SpeechDialogue, TurnDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, TEXT, At, hear, settled

URL = "http://127.0.0.1:1"
KEY = (("Authorization", "Bearer sk_car_secret"),)


ERROR = {
    "type": "error", "title": "Too many", "message": "concurrency limit", "status_code": 429, "error_code": "limited",
}  # fmt: skip


def recognition(**options: Any) -> RecognitionDialogue:
    return RecognitionDialogue(Target(URL, "cartesia-stt", "", KEY, options))


def turns(**options: Any) -> TurnDialogue:
    return TurnDialogue(Target(URL, "cartesia-turns", "", KEY, options))


def speech(**options: Any) -> SpeechDialogue:
    return SpeechDialogue(Target(URL, "cartesia-tts", "sonic-x", KEY, options))


def transcript(text: str, final: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": "transcript", "text": text, "is_final": final, **more}


def test_the_handshake_names_the_audio_and_the_version() -> None:
    script = recognition(language="en").encode(AUDIO)
    assert urlsplit(script.path).path == "/stt/websocket"
    assert parse_qs(urlsplit(script.path).query) == {
        "model": ["ink-2"], "encoding": ["pcm_s16le"], "sample_rate": ["16000"], "language": ["en"],
    }  # fmt: skip
    assert script.headers == (*KEY, ("cartesia-version", "2026-03-01"))
    assert b"".join(frame.data for frame in script.frames) == CLIP.pcm.tobytes()
    assert [(one.data, one.text) for one in script.closing] == [(b"close", True)]
    both = recognition(finish=["finalize", "close"]).encode(AUDIO)
    assert [one.data for one in both.closing] == [b"finalize", b"close"]


def test_final_transcripts_follow_each_other_to_the_character() -> None:
    talk = recognition()
    messages: list[At] = [
        (400, transcript("on")),
        (500, transcript("one", True, words=[{"word": "one", "end": 0.4}])),
        (950, transcript(" t", True, words=[{"words": ["t"], "start": [0.5], "end": [0.6]}])),
        (1000, transcript("wo", True)),
        (1001, {"type": "flush_done"}),
        (1002, {"type": "done"}),
    ]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [NOTHING] * 5 + [DONE]
    stamps = settled(talk, AUDIO, messages).session
    assert stamps is not None
    assert (stamps.first_final_ns, stamps.final_ns, stamps.word_errors) == (500 * MS, 1000 * MS, 0)
    assert list(stamps.chunk_cursor_ns) == [-1, 400 * MS, 600 * MS, -1]


def test_a_turn_that_ends_after_speech_is_the_endpoint_and_an_eager_end_is_none() -> None:
    talk = turns(turn={"eager": True})
    script = talk.encode(AUDIO)
    assert json.loads(script.opening[0].data) == {"type": "config", "turn": {"eager": True}}
    assert [json.loads(one.data) for one in script.closing] == [{"type": "close"}]
    assert (script.waits, len(script.frames), script.needed) == (True, 40, 10)
    messages: list[At] = [
        (1, {"type": "connected"}),
        (300, {"type": "turn.update", "transcript": "one"}),
        (350, {"type": "turn.end", "transcript": "one"}),
        (1000, {"type": "turn.eager_end", "transcript": "two"}),
        (1300, {"type": "turn.end", "transcript": "two"}),
    ]
    assert hear(talk, script, messages)[1] == [READY, NOTHING, NOTHING, NOTHING, ENDPOINT]
    stamps = settled(talk, AUDIO, messages).session
    assert stamps is not None
    assert (stamps.endpoint_ns, stamps.false_endpoints, stamps.word_errors) == (1300 * MS, 1, 0)


def test_one_context_is_fed_until_it_does_not_continue() -> None:
    fed = [json.loads(one.data) for one in speech(words_per_second=2.0).encode(TEXT).frames]
    assert [(one["transcript"], one["continue"]) for one in fed] == [("mind ", True), ("the ", True), ("gap", True)]
    (last,) = speech(words_per_second=2.0).encode(TEXT).closing
    assert (json.loads(last.data)["transcript"], json.loads(last.data)["continue"]) == ("", False)
    assert len({one["context_id"] for one in [*fed, json.loads(last.data)]}) == 1
    assert (fed[0]["model_id"], fed[0]["voice"]["mode"], fed[0]["output_format"]["container"]) == (
        "sonic-x",
        "id",
        "raw",
    )
    script = speech(max_buffer_delay_ms=0).encode(TEXT)
    (whole,) = script.frames
    assert (json.loads(whole.data)["transcript"], json.loads(whole.data)["continue"]) == ("mind the gap", False)
    assert json.loads(whole.data)["max_buffer_delay_ms"] == 0
    assert not script.closing


def test_chunks_are_decoded_until_done() -> None:
    talk = speech(encoding="pcm_f32le", sample_rate=16000)
    data = base64.b64encode(np.zeros(1600, "<f4").tobytes()).decode()
    messages: list[At] = [
        (90, {"type": "chunk", "data": data, "done": False, "status_code": 206}),
        (99, {"type": "timestamps", "done": False}),
        (120, {"type": "done", "done": True, "status_code": 200}),
    ]
    assert hear(talk, talk.encode(TEXT), messages)[1] == [NOTHING, NOTHING, DONE]
    stamps = settled(talk, TEXT, messages).session
    assert stamps is not None
    assert (stamps.first_audio_ns, stamps.media_out_ns) == (90 * MS, 100 * MS)


def test_errors_have_their_status_and_their_words() -> None:
    for talk, payload in ((recognition(), AUDIO), (turns(), AUDIO), (speech(), TEXT)):
        assert hear(talk, talk.encode(payload), [(9, ERROR)])[1] == [DONE]
        exchange = settled(talk, payload, [(9, ERROR)])
        assert (exchange.status, exchange.error) == (Status.REFUSED, "concurrency limit (limited, 429)")
    exchange = settled(recognition(), AUDIO, [(9, {"type": "error", "message": "no model", "status_code": 400})])
    assert (exchange.status, exchange.error) == (Status.HTTP, "no model (400)")
