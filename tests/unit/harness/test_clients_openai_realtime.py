"""OpenAI's realtime protocol: sessions that are asked for, turns that are heard out, answers that are stamped, and
vLLM's dialect.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.options import accept
from plimsoll.harness.protocols.openai_realtime import PROTOCOLS, RealtimeDialogue, RealtimeOptions, VllmDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Script
from plimsoll.harness.transport.live.websocket_session import Talk
from plimsoll.slo.records.records import Status, TokensFrom
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, TEXT, At, begun, hear, settled

KEY = (("Authorization", "Bearer sk-secret-key"),)


def realtime(model: str = "m", **options: Any) -> RealtimeDialogue:
    target = Target("http://127.0.0.1:1", "openai-realtime", model, KEY, options)
    return RealtimeDialogue(target, accept(RealtimeOptions, options))


def talking(**options: Any) -> RealtimeDialogue:
    return realtime(mode="conversation", **options)


def vllm(**options: Any) -> VllmDialogue:
    given = {"dialect": "vllm", **options}
    return VllmDialogue(
        Target("http://127.0.0.1:1", "openai-realtime", "m", KEY, given), accept(RealtimeOptions, given)
    )


def said(messages: Any) -> list[dict[str, Any]]:
    return [json.loads(one.data) for one in messages]


UPDATED: At = (5, {"type": "session.updated", "event_id": "e", "session": {"type": "realtime"}})


def event(name: str, **more: Any) -> dict[str, Any]:
    return {"type": name, "event_id": "e", **more}


def heard(kind: str, item: str = "i1", **more: Any) -> dict[str, Any]:
    return event(f"conversation.item.input_audio_transcription.{kind}", item_id=item, content_index=0, **more)


def buffer(kind: str, item: str = "i1", **more: Any) -> dict[str, Any]:
    return event(f"input_audio_buffer.{kind}", item_id=item, **more)


# -- what is asked for --------------------------------------------------------------------------------------------


def test_a_transcription_session_names_its_model_and_its_audio() -> None:
    script = realtime("whisper", language="en", silence_duration_ms=300).encode(AUDIO)
    assert script.path == "/v1/realtime?intent=transcription"
    assert script.headers == KEY
    assert said(script.opening) == [
        {
            "type": "session.update",
            "session": {
                "type": "transcription",
                "audio": {
                    "input": {
                        "format": {"type": "audio/pcm", "rate": 24_000},
                        "turn_detection": {"type": "server_vad", "silence_duration_ms": 300},
                        "transcription": {"model": "whisper", "language": "en"},
                    }
                },
            },
        }
    ]
    assert (script.waits, script.ends_on_close, script.closing) == (True, False, ())
    assert (script.needed, len(script.frames)) == (10, 28)
    first = json.loads(script.frames[0].data)
    assert first["type"] == "input_audio_buffer.append"
    assert len(base64.b64decode(first["audio"])) == 4800


def test_without_turn_detection_the_clip_is_committed_at_its_true_end() -> None:
    script = realtime(turn_detection="none", encoding="pcmu").encode(AUDIO)
    assert said(script.closing) == [{"type": "input_audio_buffer.commit"}]
    assert (script.closing_ns, len(script.frames)) == (1000 * MS, 10)
    wanted = said(script.opening)[0]["session"]["audio"]["input"]
    assert (wanted["turn_detection"], wanted["format"]) == (None, {"type": "audio/pcmu"})
    answered = talking(turn_detection="none").encode(AUDIO)
    assert [one["type"] for one in said(answered.closing)] == ["input_audio_buffer.commit", "response.create"]


def test_a_conversation_says_how_it_wants_to_be_answered() -> None:
    script = talking(voice="alloy", speed=1.1, instructions="be brief", session={"audio": {"output": {"x": 1}}}).encode(
        TEXT
    )
    assert script.path == "/v1/realtime?model=m"
    assert said(script.opening)[0]["session"] == {
        "type": "realtime",
        "output_modalities": ["audio"],
        "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24_000}, "voice": "alloy", "speed": 1.1, "x": 1}},
        "instructions": "be brief",
        "max_output_tokens": 9,
    }
    created, asked = said(script.frames)
    assert created["item"]["content"] == [{"type": "input_text", "text": "mind the gap"}]
    assert asked == {"type": "response.create"}
    assert (script.frame_ns, script.clip) == (-1, None)
    spoken = talking(transcription_model="t", output="text").encode(AUDIO)
    session = said(spoken.opening)[0]["session"]
    assert session["output_modalities"] == ["text"]
    assert session["audio"]["input"]["transcription"] == {"model": "t"}
    assert "output" not in session["audio"]
    assert "transcription" not in said(talking().encode(AUDIO).opening)[0]["session"]["audio"]["input"]


@pytest.mark.parametrize(("dialect", "model"), [("openai", ""), ("vllm", "m")])
def test_no_model_is_guessed_for_openai_and_a_given_one_stays(dialect: str, model: str) -> None:
    target = Target("http://127.0.0.1:1", "openai-realtime", model, options={"dialect": dialect})

    async def prepared() -> Target:
        assert PROTOCOLS[0].prepare is not None
        return await PROTOCOLS[0].prepare(target)

    assert asyncio.run(prepared()) is target  # nothing listens there


def test_vllms_dialect_says_no_text() -> None:
    with pytest.raises(HarnessFault, match="source of kind audio"):
        vllm().encode(TEXT)


# -- transcription ------------------------------------------------------------------------------------------------


def test_items_grow_by_deltas_are_completed_and_together_are_the_transcript() -> None:
    messages: list[At] = [
        UPDATED,
        (100, buffer("speech_started", audio_start_ms=0)),
        (300, heard("delta", delta="one")),
        (450, buffer("speech_stopped", audio_end_ms=400)),
        (451, buffer("committed")),
        (460, buffer("speech_started", "i2", audio_start_ms=450)),
        (470, heard("completed", transcript="One.")),
        (950, heard("delta", "i2", delta="t")),
        (960, heard("delta", "i2", delta="wo")),
        (1400, buffer("speech_stopped", "i2", audio_end_ms=1390)),
        (1401, buffer("committed", "i2")),
        (1450, heard("completed", "i2", transcript="Two.")),
    ]
    talk = realtime()
    _, answers = hear(talk, talk.encode(AUDIO), messages)
    assert answers == [READY, *[NOTHING] * 8, ENDPOINT, NOTHING, DONE]
    exchange = settled(talk, AUDIO, messages)
    assert exchange.session is not None
    stamps = exchange.session
    assert (stamps.word_errors, stamps.words, stamps.n_partials, stamps.n_revised) == (0, 2, 3, 1)
    assert (stamps.first_partial_ns, stamps.first_final_ns, stamps.final_ns) == (300 * MS, 470 * MS, 1450 * MS)
    assert (stamps.endpoint_ns, stamps.false_endpoints) == (1400 * MS, 1)


def test_a_transcript_of_the_first_half_that_comes_late_is_not_the_end() -> None:
    messages: list[At] = [
        UPDATED,
        (1400, buffer("speech_started", audio_start_ms=0)),
        (1500, buffer("speech_stopped", audio_end_ms=500)),
        (1501, buffer("committed")),
        (1600, heard("completed", transcript="one")),
        (1700, buffer("speech_started", "i2", audio_start_ms=600)),
        (1800, buffer("speech_stopped", "i2", audio_end_ms=950)),
        (1801, buffer("committed", "i2")),
        (1900, heard("completed", "i2", transcript="two")),
    ]
    talk = realtime()
    _, answers = hear(talk, talk.encode(AUDIO), messages)
    assert answers[4] == NOTHING
    assert answers[-1] == DONE


def test_items_that_are_completed_out_of_order_stay_in_the_order_of_speech() -> None:
    messages: list[At] = [
        (400, buffer("committed", "a")),
        (900, buffer("committed", "b")),
        (1000, heard("completed", "b", transcript="two")),
        (1100, heard("completed", "a", transcript="one")),
    ]
    exchange = settled(realtime(), AUDIO, messages)
    assert exchange.session is not None
    assert exchange.session.word_errors == 0


def test_a_committed_clip_is_over_with_its_one_transcript() -> None:
    talk = realtime(turn_detection="none")
    messages: list[At] = [UPDATED, (1000, buffer("committed")), (1100, heard("completed", transcript="one two"))]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [READY, NOTHING, DONE]


def test_errors_end_the_session_at_once_with_their_message() -> None:
    error = event(
        "error", error={"type": "invalid_request_error", "code": "bad", "message": "no sk-secret-key", "param": None}
    )
    talk = realtime()
    assert hear(talk, talk.encode(AUDIO), [(1, error)])[1] == [DONE]
    exchange = settled(talk, AUDIO, [UPDATED, (300, heard("delta", delta="one")), (400, error)])
    assert (exchange.status, exchange.error) == (Status.HTTP, "no [redacted] (invalid_request_error, bad)")
    assert exchange.n_chunks == 1
    quota = event("error", error={"type": "insufficient_quota", "message": "pay"})
    assert settled(talk, AUDIO, [(1, quota)]).status == Status.REFUSED
    failed = heard("failed", error={"message": "audio unintelligible", "code": "x"})
    assert hear(talk, talk.encode(AUDIO), [(1, failed)])[1] == [DONE]
    assert settled(talk, AUDIO, [(1, failed)]).error == "audio unintelligible (x)"


# -- conversation -------------------------------------------------------------------------------------------------


def sound(ms: int, level: int = 9000) -> str:
    samples = (level * np.sin(np.arange(24 * ms) * 0.1)).astype("<i2").tobytes()
    return base64.b64encode(samples).decode()


def done(status: str = "completed", **details: Any) -> dict[str, Any]:
    usage = {"input_tokens": 7, "output_tokens": 40, "total_tokens": 47}
    response = {"id": "r", "status": status, "status_details": details or None, "usage": usage}
    return event("response.done", response=response, server_timing="inference;dur=1")


@pytest.mark.parametrize("prefix", ["response.output_audio", "response.audio"])
def test_voice_to_voice_has_both_sides_on_one_row(prefix: str) -> None:
    talk = talking(transcription_model="t")
    messages: list[At] = [
        UPDATED,
        (500, buffer("speech_started", audio_start_ms=0)),
        (1390, buffer("speech_stopped", audio_end_ms=1390)),
        (1391, buffer("committed")),
        (1400, event("response.created", response={"id": "r"})),
        (1450, heard("completed", transcript="one two")),
        (1500, event(f"{prefix}.delta", response_id="r", delta=sound(100, level=0))),
        (1510, event(f"{prefix}.delta", response_id="r", delta=sound(200))),
        (1600, done()),
    ]
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [READY, NOTHING, ENDPOINT, *[NOTHING] * 5, DONE]
    exchange = settled(talk, AUDIO, messages)
    assert exchange.session is not None
    stamps = exchange.session
    assert exchange.status == Status.OK
    assert (stamps.speech_end_ns, stamps.endpoint_ns) == (900 * MS, 1390 * MS)
    assert (stamps.first_audio_ns, stamps.audible_ns) == (1500 * MS, 1510 * MS)
    assert (stamps.media_out_ns, stamps.final_ns, stamps.word_errors) == (300 * MS, 1450 * MS, 0)
    assert 90 * MS <= stamps.leading_silence_ns <= 100 * MS
    assert list(stamps.chunk_audio_ns) == [100 * MS, 200 * MS]
    assert (exchange.n_in, exchange.n_out, exchange.tokens_from) == (7, 40, TokensFrom.USAGE)
    assert exchange.server_timing == "inference;dur=1"


def test_an_answer_that_our_own_speech_cut_short_is_void() -> None:
    talk = talking()
    messages: list[At] = [
        UPDATED,
        (300, buffer("speech_stopped", audio_end_ms=280)),
        (301, buffer("committed")),
        (310, event("response.created", response={})),
        (320, event("response.output_audio.delta", delta=sound(50))),
        (400, buffer("speech_started", "i2", audio_start_ms=350)),
        (401, done("cancelled", type="cancelled", reason="turn_detected")),
        (1400, buffer("speech_stopped", "i2", audio_end_ms=1390)),
        (1401, buffer("committed", "i2")),
        (1410, event("response.created", response={})),
        (1500, event("response.output_audio.delta", delta=sound(70))),
        (1600, done()),
    ]
    _, answers = hear(talk, talk.encode(AUDIO), messages)
    assert answers[6] == NOTHING
    assert answers[-1] == DONE
    exchange = settled(talk, AUDIO, messages)
    assert exchange.session is not None
    assert (exchange.session.first_audio_ns, exchange.session.media_out_ns) == (1500 * MS, 70 * MS)
    assert (exchange.session.words, exchange.session.false_endpoints, exchange.session.heard) == (-1, 1, None)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("completed", Status.OK), ("incomplete", Status.OK), ("in_progress", Status.PROTOCOL), ("", Status.PROTOCOL),
     ("cancelled", Status.HTTP)],
)  # fmt: skip
def test_an_answer_is_whole_only_if_its_status_says_so(status: str, outcome: Status) -> None:
    talk = talking(output="text")
    messages: list[At] = [UPDATED, (20, event("response.output_text.delta", delta="a")), (40, done(status))]
    exchange = settled(talk, TEXT, messages)
    assert exchange.status == outcome
    assert ("without a finish reason" in (exchange.error or "")) is (outcome == Status.PROTOCOL)


@pytest.mark.parametrize("name", ["response.output_text.delta", "response.text.delta"])
def test_an_answer_in_text_is_stamped_token_by_token(name: str) -> None:
    talk = talking(output="text")
    messages: list[At] = [
        UPDATED,
        (20, event(name, delta="a")),
        (25, event(name, delta="")),
        (30, event(name, delta="b")),
        (40, done()),
    ]
    assert hear(talk, talk.encode(TEXT), messages)[1][-1] == DONE
    exchange = settled(talk, TEXT, messages)
    assert (exchange.first_token_ns, exchange.last_token_ns, exchange.n_chunks) == (20 * MS, 30 * MS, 2)
    assert exchange.session is not None
    assert exchange.session.heard == "ab"
    assert (exchange.n_in, exchange.n_out) == (7, 40)


@pytest.mark.parametrize(
    ("messages", "status", "words"),
    [
        ([(9, done())], Status.PROTOCOL, "the answer holds no audio"),
        ([(9, done("cancelled"))], Status.HTTP, "the response was cancelled"),
        ([(9, done("failed", error={"code": "rate_limit_exceeded", "message": "slow down"}))], Status.REFUSED, "slow down"),  # noqa: E501
        ([(9, done("failed"))], Status.HTTP, "the response failed"),
        ([(9, event("response.output_audio.delta", delta="?"))], Status.PROTOCOL, "can't be decoded"),
        ([(9, "[1"), (10, done())], Status.PROTOCOL, "message 1 is not JSON"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_has_failed(messages: list[At], status: Status, words: str) -> None:
    exchange = settled(talking(), TEXT, messages)
    assert exchange.status == status
    assert exchange.error is not None
    assert words in exchange.error


# -- vLLM's dialect -----------------------------------------------------------------------------------------------


def test_vllm_is_told_the_model_first_and_committed_twice() -> None:
    script: Script = vllm().encode(AUDIO)
    assert said(script.opening) == [
        {"type": "session.update", "model": "m"},
        {"type": "input_audio_buffer.commit", "final": False},
    ]
    assert said(script.closing) == [{"type": "input_audio_buffer.commit", "final": True}]
    assert (script.path, script.waits, script.closing_ns) == ("/v1/realtime", True, 1000 * MS)
    assert b"".join(base64.b64decode(one["audio"]) for one in said(script.frames)) == CLIP.pcm.tobytes()


def test_vllms_deltas_grow_into_its_transcript() -> None:
    messages: list[At] = [
        (5, {"type": "session.created", "id": "s"}),
        (500, {"type": "transcription.delta", "delta": "one"}),
        (950, {"type": "transcription.delta", "delta": " two"}),
        (
            1100,
            {"type": "transcription.done", "text": "one two", "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
        ),
    ]
    talk = vllm()
    assert hear(talk, talk.encode(AUDIO), messages)[1] == [READY, NOTHING, NOTHING, DONE]
    exchange = settled(talk, AUDIO, messages)
    assert exchange.session is not None
    assert (exchange.session.word_errors, exchange.session.n_partials) == (0, 2)
    assert (exchange.session.first_partial_ns, exchange.session.final_ns) == (500 * MS, 1100 * MS)
    assert (exchange.n_in, exchange.n_out) == (9, 2)


def test_vllms_errors_have_a_code() -> None:
    exchange = settled(
        vllm(), AUDIO, [(1, {"type": "error", "error": "Model not validated", "code": "model_not_validated"})]
    )
    assert (exchange.status, exchange.error) == (Status.HTTP, "Model not validated (model_not_validated)")


# -- conversations: several turns on one connection --------------------------------------------------------------------

SECOND = 1_000 * MS
PCM = base64.b64encode(bytes(2 * 2400)).decode()  # 100 ms


def delta(at_ms: int) -> At:
    return at_ms, event("response.output_audio.delta", response_id="r", delta=PCM)


def later_turn(messages: list[At], sounding_ms: int, under_way: bool = False, **options: Any) -> dict[str, Any]:
    """The labels of a turn that began at 0 and spoke from then until 900 ms over an answer that was to play until
    ``sounding_ms``.
    """
    talk = talking(**options)
    exchange, _ = hear(talk, talk.encode(AUDIO), messages)
    exchange.request = replace(exchange.request, talk=Talk())
    assert exchange.session is not None
    exchange.session.follows, exchange.session.under_way = True, under_way
    exchange.session.sounding_ns = sounding_ms * MS
    exchange.status = int(Status.OK)
    talk.settle(exchange)
    found = {name: value for name, value in (exchange.labels or {}).items() if name != "cached_tokens"}
    return {name: value / MS if name != "talked_over" else value for name, value in found.items()}  # type: ignore[operator]


@pytest.mark.parametrize(
    ("encoding", "size", "ms"), [("pcm", 4800, 100), ("pcmu", 800, 100), ("pcm", 1, 0), ("pcma", 7999, 999.875)]
)
def test_how_long_a_message_of_audio_plays_is_seen_without_reading_it(encoding: str, size: int, ms: float) -> None:
    talk = talking(output_encoding=encoding)
    said = json.dumps(event("response.output_audio.delta", delta=base64.b64encode(bytes(size)).decode())).encode()
    assert talk.sounds(said) == ms * MS
    assert talk.sounds(json.dumps(event("response.created", response={"id": "delta"})).encode()) == -1
    assert talk.sounds(b'{"type": "response.output_audio.delta"}') == 0
    assert talk.sounds(b'{"type": "response.done"}') == 0
    assert talk.sounds(said[:90]) >= 0


@pytest.mark.parametrize(
    ("messages", "sounding_ms", "under_way", "expected"),
    [
        # all of it had come: silent at the server's word that it hears speech
        ([(150, buffer("speech_started"))], 2000, False, (150, 150, 0)),
        # still being sent: at its word that it has stopped, whatever it held by then
        ([(150, buffer("speech_started")), delta(200), (350, done("cancelled"))], 2000, True, (350, 350, 0)),
        # it was over before the word came
        ([(150, buffer("speech_started"))], 120, False, (120, 120, 0)),
        # nobody says anything: to the end, past that of the speech
        ([delta(100)], 2000, True, (900, 2100, 1)),
        # what came too late to be played without a gap: 200 to 300 and 500 to 600
        ([delta(200), delta(500), (700, done("completed"))], -1, True, (200, 600, 0)),
        # nothing was heard any more
        ([(150, buffer("speech_started"))], -1, False, (0, None, 0)),
    ],
)
def test_a_barge_in_is_over_when_the_caller_hears_nothing(
    messages: list[At], sounding_ms: int, under_way: bool, expected: tuple[float, float | None, int]
) -> None:
    overlap, stop, over = expected
    labels = {"overlap": overlap, "talked_over": over, **({} if stop is None else {"barge_in_stop": stop})}
    assert later_turn(messages, sounding_ms, under_way) == labels


def test_who_asked_the_server_to_talk_on_drops_nothing() -> None:
    labels = later_turn([(150, buffer("speech_started"))], 2000, interrupt_response=False)
    assert labels == {"overlap": 900, "talked_over": 1, "barge_in_stop": 2000}


def test_an_answer_to_the_first_half_is_talk_over_the_caller() -> None:
    early: list[At] = [
        (400, buffer("speech_stopped", audio_end_ms=300)), (410, event("response.created")), delta(420),
        (450, buffer("speech_started", item="i2")), (460, done("cancelled")),
    ]  # fmt: skip
    assert later_turn(early, -1) == {"overlap": 40, "talked_over": 1}


def test_the_end_of_the_answer_before_is_no_end_of_this_turn() -> None:
    talk = talking()
    script = talk.encode(AUDIO)
    stale: list[At] = [(950, done("completed"))]
    own: list[At] = [
        (1450, buffer("speech_stopped", audio_end_ms=5900)), (1460, buffer("committed")),
        (1470, event("response.created")), delta(1480), (1500, done("completed")),
    ]  # fmt: skip
    messages = [*stale, *own]
    exchange = begun(script)
    assert exchange.session is not None
    exchange.session.follows, exchange.session.taken_before_ns = True, 5 * SECOND
    _, answers = hear(talk, script, messages, exchange)
    assert answers == [NOTHING, ENDPOINT, NOTHING, NOTHING, NOTHING, DONE]
    exchange.status = int(Status.OK)
    talk.settle(exchange)
    assert (exchange.status, exchange.n_chunks) == (Status.OK, 1)
    assert (exchange.session.endpoint_ns, exchange.session.false_endpoints) == (1450 * MS, 0)


def test_an_answer_that_was_spoken_over_needs_no_end_and_one_that_never_came_has_no_sound_of_the_one_before() -> None:
    talk = talking()
    exchange, _ = hear(talk, talk.encode(AUDIO), [(1000, event("response.created")), delta(1010)])
    assert exchange.session is not None
    exchange.session.cut, exchange.status = True, int(Status.OK)
    talk.settle(exchange)
    assert (exchange.status, exchange.n_chunks) == (Status.OK, 1)
    exchange, _ = hear(talk, talk.encode(AUDIO), [delta(100), (150, done("cancelled"))])
    assert exchange.session is not None
    exchange.session.follows, exchange.status = True, int(Status.TIMEOUT)
    talk.settle(exchange)
    assert (exchange.status, exchange.n_chunks, exchange.session.first_audio_ns) == (Status.TIMEOUT, 0, -1)


def test_nobody_speaks_over_text_or_a_server_that_waits_for_a_commit() -> None:
    assert talking().deaf == ""
    assert "Give output: audio" in talking(output="text").deaf
    assert "a turn_detection" in talking(turn_detection="none").deaf
    assert not realtime().converses
    with pytest.raises(HarnessFault, match="no turn detection that could interrupt"):
        accept(RealtimeOptions, {"turn_detection": "none", "interrupt_response": False})


@pytest.mark.parametrize(("done_ms", "labels"), [(150, set()), (250, {"overlap", "talked_over", "barge_in_stop"})])
def test_a_turn_that_failed_before_its_first_word_spoke_over_nobody(done_ms: int, labels: set[str]) -> None:
    talk = talking()
    exchange = begun(talk.encode(AUDIO))
    exchange.request = replace(exchange.request, talk=Talk())
    assert exchange.session is not None
    exchange.session.sounding_ns, exchange.session.speech_start_ns = 2 * SECOND, 200 * MS
    exchange.status, exchange.done_ns = int(Status.CONNECT), done_ms * MS
    talk.settle(exchange)
    assert set(exchange.labels or {}) == labels
