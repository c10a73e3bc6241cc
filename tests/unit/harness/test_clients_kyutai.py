"""Kyutai: what goes out in MessagePack, what comes back, where the Marker is, and how it fails."""

from __future__ import annotations

import builtins
from typing import Any

import msgpack
import numpy as np
import pytest

from plimsoll.harness.protocols import kyutai
from plimsoll.harness.protocols.kyutai import RecognitionDialogue, SpeechDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, NOTHING, READY
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, TEXT, At, hear, settled

STT, TTS = kyutai.PROTOCOLS


def recognition(**options: Any) -> RecognitionDialogue:
    return RecognitionDialogue(Target("http://127.0.0.1:1", "kyutai-stt", options=options))


def speech(**options: Any) -> SpeechDialogue:
    return SpeechDialogue(Target("http://127.0.0.1:1", "kyutai-tts", options=options))


def packed(kind: str, **more: Any) -> bytes:
    data: bytes = msgpack.packb({"type": kind, **more})
    return data


def test_audio_goes_in_steps_of_the_model_and_the_marker_behind_the_clips_end() -> None:
    script = recognition().encode(AUDIO)
    said = [msgpack.unpackb(frame.data) for frame in script.frames]
    kinds = [one["type"] for one in said]
    assert kinds.index("Marker") == 13  # 13 steps of 80 ms hold a second
    assert kinds.count("Marker") == 1
    assert {len(one["pcm"]) for one in said[:13]} == {1920}
    assert script.due_ns[12] == script.due_ns[13] == 1040 * MS
    assert not any(any(one["pcm"]) for one in said[14:])
    assert (script.needed, len(script.frames) - 14) == (len(script.frames), 62)  # silence until the Marker is back
    assert len(script.frames[0].data) < 1920 * 5 + 64  # single floats
    assert (script.waits, script.ends_on_close, script.closing) == (True, False, ())
    assert not any(frame.text for frame in script.frames)


def test_the_key_goes_into_kyutais_header_and_an_open_server_gets_the_open_one() -> None:
    keyed = Target("http://127.0.0.1:1", "kyutai-stt", "", (("Authorization", "Bearer secret-key"),))
    assert RecognitionDialogue(keyed).encode(AUDIO).headers == (("kyutai-api-key", "secret-key"),)
    assert recognition().encode(AUDIO).headers == (("kyutai-api-key", "public_token"),)


def test_words_only_come_on_and_the_marker_says_that_none_is_missing() -> None:
    talk = recognition(pause_threshold=0.5)
    messages: list[At] = [
        (1, packed("Ready")),
        (450, packed("Word", text="one", start_time=0.1)),
        (480, packed("EndWord", stop_time=0.4)),
        (950, packed("Word", text="two", start_time=0.5)),
        (1000, packed("Step", step_idx=9, prs=[0.0, 0.0, 0.9], buffered_pcm=0)),
        (1080, packed("Step", step_idx=10, prs=[0.0, 0.0, 0.9], buffered_pcm=0)),
        (1600, packed("Marker", id=1)),
    ]
    script = talk.encode(AUDIO)
    assert hear(talk, script, messages)[1] == [READY, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, DONE]
    stamps = settled(talk, AUDIO, messages).session
    assert stamps is not None
    assert (stamps.first_final_ns, stamps.final_ns, stamps.n_partials) == (450 * MS, 1600 * MS, 0)
    assert (stamps.endpoint_ns, stamps.word_errors, stamps.input_end_ns) == (1000 * MS, 0, 1040 * MS)
    assert list(stamps.chunk_cursor_ns) == [400 * MS, 500 * MS]
    without = settled(recognition(), AUDIO, messages).session
    assert without is not None
    assert without.endpoint_ns == -1


def test_text_goes_out_in_words_and_sound_comes_back() -> None:
    script = speech(words_per_second=2.0, voice="x/y").encode(TEXT)
    assert script.path == "/api/tts_streaming?voice=x%2Fy&format=PcmMessagePack"
    assert [msgpack.unpackb(frame.data)["text"] for frame in script.frames] == ["mind", "the", "gap"]
    assert list(script.due_ns) == [0, 500 * MS, 1000 * MS]
    assert list(speech().encode(TEXT).due_ns) == [0, 0, 0]
    assert msgpack.unpackb(script.closing[0].data) == {"type": "Eos"}
    exchange = settled(speech(), TEXT, [(1, packed("Ready")), (90, packed("Audio", pcm=[0.5] * 1200))])
    assert exchange.session is not None
    assert (exchange.session.first_audio_ns, exchange.session.media_out_ns) == (90 * MS, 50 * MS)
    assert exchange.status == Status.OK


def test_failures_keep_what_was_heard() -> None:
    talk = recognition()
    full = packed("Error", message="no free channels")
    assert hear(talk, talk.encode(AUDIO), [(1, full)])[1] == [DONE]
    exchange = settled(talk, AUDIO, [(400, packed("Word", text="one", start_time=0.1)), (450, full)])
    assert (exchange.status, exchange.error, exchange.n_chunks) == (Status.REFUSED, "no free channels", 1)
    broken = settled(talk, AUDIO, [(400, packed("Word", text="one", start_time=0.1)), (450, b"\xc1")])
    assert (broken.status, broken.n_chunks) == (Status.PROTOCOL, 1)
    assert str(broken.error).startswith("message 2 of 1 bytes is not MessagePack")
    odd = settled(speech(), TEXT, [(9, packed("Audio", pcm=[[1], [2, 3]]))])
    assert (odd.status, odd.error) == (Status.PROTOCOL, "message 1: its audio is no list of numbers")


def test_without_msgpack_the_check_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *more: Any, **named: Any) -> Any:
        if name == "msgpack":
            raise ImportError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    for spec in (STT, TTS):
        (error,) = spec.check({})
        assert "pip install 'plimsoll-slo[speech]'" in error


def test_samples_beyond_full_scale_are_cut_and_those_that_are_no_numbers_are_silence() -> None:
    exchange = settled(
        speech(), TEXT, [(9, packed("Audio", pcm=[float("nan"), float("inf"), -3.0, 1e39] + [0.0] * 20))]
    )
    assert exchange.session is not None
    assert exchange.session.media_out_ns == 1 * MS
    assert np.isfinite(exchange.session.leading_silence_ns)
