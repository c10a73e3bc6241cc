"""Realtime sessions as OpenAI has them, between a scripted client and speech models that do as they are told."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from plimsoll.reference_server.dialects.realtime import InputAudio, Talking
from plimsoll.reference_server.dialects.realtime_wire import (
    MAX_CHARACTERS,
    MAX_ITEMS,
    Conversed,
    Events,
    Item,
    Settings,
)
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.engine.scripted import ScriptedModel
from plimsoll.reference_server.misfortune.faults import Faults
from plimsoll.reference_server.seams.truth import Truth, TruthRow
from plimsoll.reference_server.service.service import Service
from plimsoll.reference_server.speech.audio import encode
from plimsoll.reference_server.transports.websocket import Ending
from plimsoll.reference_server.values.timetable import DeadlineWheel
from tests.websocket_peers import LATE, FakeRecogniser, FakeSynthesiser, ScriptedPeer, Step, saying

TRANSCRIBED = {"transcription": {"model": "recogniser"}}
COMMIT: Step = {"type": "input_audio_buffer.commit"}
ANSWER: Step = {"type": "response.create"}


def update(audio_input: dict[str, Any] | None = None, **given: Any) -> Step:
    return {"type": "session.update", "session": {"type": "realtime", "audio": {"input": audio_input or {}}, **given}}


def append(text: str, then_s: float = 0.0) -> Step:
    audio = encode("linear16", saying(text, then_s=then_s, rate=24_000))
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()}


def message(text: str, role: str = "user") -> Step:
    kind = "output_text" if role == "assistant" else "input_text"
    return {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
    }


def session(
    script: list[Step], *, model: str = "recogniser", speaks: bool = True, peer: ScriptedPeer | None = None
) -> tuple[ScriptedPeer, Talking, Ending | None]:
    peer = peer or ScriptedPeer([])
    peer.script += script

    async def main() -> tuple[Talking, Ending | None]:
        wheel = DeadlineWheel(asyncio.get_running_loop())
        service = Service(wheel, Faults(seed=0), Truth(), Metrics(), 1 << 20)
        service.startup.ready = True
        service.recogniser = hearing = FakeRecogniser()
        service.synthesiser = voice = FakeSynthesiser() if speaks else None
        service.scripted = ScriptedModel(wheel, ttft_ns=0, itl_ns=0, seed=0)
        settings = Settings(model, spoken=speaks)
        talking = Talking(service, settings, Events("r1"), InputAudio(hearing, settings), TruthRow("r1", model, 0))
        try:
            ending = await asyncio.wait_for(talking.hold(peer), 10)
        finally:
            talking.close()
            wheel.close()
        assert all(listener.closed for listener in hearing.listeners)
        assert voice is None or voice.n_open == 0
        return talking, ending

    return peer, *asyncio.run(main())


def said(peer: ScriptedPeer) -> str:
    """What the audio of all answers says."""
    data = b"".join(base64.b64decode(event["delta"]) for event in peer.of("response.output_audio.delta"))
    return "".join(chr(int.from_bytes(data[at : at + 2], "little")) for at in range(0, len(data), 2))


def errors(peer: ScriptedPeer) -> list[str]:
    return [event["error"]["code"] for event in peer.of("error")]


def until(name: str, times: int = 1) -> tuple[ScriptedPeer, Step]:
    """A client, and the step at which it waits for that event."""
    peer = ScriptedPeer([])
    return peer, peer.saw(name, times)


ANSWER_EVENTS = [
    "response.created",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
]


def test_a_turn_of_speech_is_heard_committed_transcribed_and_answered() -> None:
    peer, done = until("response.done")
    _, _, ending = session([update(TRANSCRIBED), append("load her to here", 0.6), done], peer=peer)
    assert ending is None
    assert peer.names == [
        "session.created",
        "session.updated",
        "input_audio_buffer.speech_started",
        "conversation.item.input_audio_transcription.delta",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.completed",
        *ANSWER_EVENTS,
    ]
    assert said(peer) == "you said load her to here"
    (completed,) = peer.of("conversation.item.input_audio_transcription.completed")
    deltas = peer.of("conversation.item.input_audio_transcription.delta")
    assert completed["transcript"] == "".join(event["delta"] for event in deltas) == "load her to here"
    (done_event,) = peer.of("response.done")
    assert done_event["response"]["status"] == "completed"
    assert done_event["response"]["output"][0]["content"][0]["transcript"] == "you said load her to here"


def test_every_event_has_an_id_of_its_own_and_a_turn_keeps_its_item() -> None:
    peer, done = until("response.done")
    session([update(TRANSCRIBED), append("one", 0.6), done], peer=peer)
    ids = [event["event_id"] for event in peer.got]
    assert len(set(ids)) == len(ids)
    names = ("input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped", "input_audio_buffer.committed")
    assert len({peer.of(name)[0]["item_id"] for name in names}) == 1


def test_times_are_positions_on_the_appended_audio_padding_included() -> None:
    peer, done = until("response.done", 2)
    script = [append("\0", 0.999), append("one", 0.6), peer.saw("response.done"), append("two", 0.6), done]
    session(script, peer=peer)
    assert [event["audio_start_ms"] for event in peer.of("input_audio_buffer.speech_started")] == [700, 1303]
    assert [event["audio_end_ms"] for event in peer.of("input_audio_buffer.speech_stopped")] == [1503, 2106]


def test_usage_counts_words_and_audio_and_stages_are_the_last_member() -> None:
    peer, done = until("response.done")
    session([append("load her", 0.592), done], peer=peer)
    (event,) = peer.of("response.done")
    usage = event["response"]["usage"]
    assert usage["input_token_details"] == {"text_tokens": 2, "audio_tokens": 6, "cached_tokens": 0}
    assert usage["output_token_details"]["text_tokens"] == 4
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert list(event)[-1] == "server_timing"
    stages = dict(part.split(";dur=") for part in event["server_timing"].split(", "))
    assert float(stages["inference.synthesiser"]) == 2.0 * len("you said load her")
    parts = sum(float(stages[f"inference.{model}"]) for model in ("recogniser", "synthesiser"))
    assert float(stages["inference"]) == pytest.approx(parts)


def test_speech_interrupts_an_answer() -> None:
    peer, audio = until("response.output_audio.delta")
    script: list[Step] = [message("x" * 2000), ANSWER, audio, append("stop", 0.6), peer.saw("response.done", 2)]
    session(script, peer=peer)
    first, second = (event["response"] for event in peer.of("response.done"))
    assert (first["status"], first["status_details"]["reason"]) == ("cancelled", "turn_detected")
    assert (second["status"], second["output"][0]["content"][0]["transcript"]) == ("completed", "you said stop")
    started = peer.names.index("input_audio_buffer.speech_started")
    assert peer.names[started + 1 : started + 3] == [
        "response.output_audio.done",
        "response.output_audio_transcript.done",
    ]


def test_an_answer_may_be_protected_from_interruption() -> None:
    turns = {"turn_detection": {"type": "server_vad", "interrupt_response": False, "create_response": False}}
    peer, audio = until("response.output_audio.delta")
    script: list[Step] = [
        update(turns),
        message("y" * 300),
        ANSWER,
        audio,
        append("stop", 0.6),
        peer.saw("response.done"),
    ]
    session(script, peer=peer)
    assert [event["response"]["status"] for event in peer.of("response.done")] == ["completed"]
    assert said(peer) == "you said " + "y" * 300


def test_what_was_said_over_a_protected_answer_is_answered_after_it() -> None:
    peer, audio = until("response.output_audio.delta")
    script: list[Step] = [
        update({"turn_detection": {"type": "server_vad", "interrupt_response": False}}),
        message("y" * 2000),
        ANSWER,
        audio,
        append("stop", 0.6),
        peer.saw("response.done", 2),
    ]
    session(script, peer=peer)
    assert [event["response"]["status"] for event in peer.of("response.done")] == ["completed", "completed"]
    assert said(peer) == "you said " + "y" * 2000 + "you said stop"
    stopped = peer.names.index("input_audio_buffer.speech_stopped")
    assert stopped < peer.names.index("response.done") < peer.names.index("response.created", stopped)


def test_an_answer_is_cancelled_on_request_and_then_another_may_begin() -> None:
    peer, audio = until("response.output_audio.delta")
    cancel: Step = {"type": "response.cancel"}
    session([message("z" * 2000), ANSWER, audio, cancel, cancel, ANSWER, cancel], peer=peer)
    statuses = [
        (event["response"]["status"], event["response"]["status_details"]) for event in peer.of("response.done")
    ]
    assert statuses == [("cancelled", {"type": "cancelled", "reason": "client_cancelled"})] * 2
    assert errors(peer) == ["response_cancel_not_active"]


def test_one_answer_at_a_time() -> None:
    peer, done = until("response.done")
    session([message("a"), ANSWER, {**ANSWER, "event_id": "mine"}, done], peer=peer)  # type: ignore[dict-item]
    assert errors(peer) == ["conversation_already_has_active_response"]
    assert peer.of("error")[0]["error"]["event_id"] == "mine"


def test_without_turn_detection_turns_end_with_a_commit_and_answers_wait_to_be_asked_for() -> None:
    peer, done = until("response.done")
    manual = {"turn_detection": None, **TRANSCRIBED}
    script: list[Step] = [update(manual), append("one ", 2), append("two", 2), COMMIT, COMMIT, ANSWER, done]
    session(script, peer=peer)
    assert peer.names[:3] == ["session.created", "session.updated", "conversation.item.input_audio_transcription.delta"]
    assert not peer.of("input_audio_buffer.speech_started")
    assert [e["transcript"] for e in peer.of("conversation.item.input_audio_transcription.completed")] == ["one two"]
    assert errors(peer) == ["input_audio_buffer_commit_empty"]
    assert said(peer) == "you said one two"


def test_cleared_audio_is_forgotten() -> None:
    peer, done = until("response.done")
    clear: Step = {"type": "input_audio_buffer.clear"}
    session(
        [update({"turn_detection": None}), append("wrong"), clear, append("right"), COMMIT, ANSWER, done], peer=peer
    )
    assert peer.names[2] == "input_audio_buffer.cleared"
    assert said(peer) == "you said right"


def test_a_noise_without_words_is_a_turn_and_answered_as_such() -> None:
    peer, done = until("response.done")
    session([update(TRANSCRIBED), append("~~~", 0.6), done], peer=peer)
    assert [e["transcript"] for e in peer.of("conversation.item.input_audio_transcription.completed")] == [""]
    assert said(peer) == "i heard nothing"


def test_a_transcription_session_transcribes_and_never_answers() -> None:
    settings: Step = {"type": "session.update", "session": {"type": "transcription"}}
    peer, done = until("conversation.item.input_audio_transcription.completed")
    session([settings, append("one two ", 0.6), done, ANSWER], peer=peer)
    assert peer.of("session.updated")[0]["session"]["object"] == "realtime.transcription_session"
    assert errors(peer) == ["no_answers_here"]
    assert not peer.of("response.created")


def test_text_answers_have_no_audio() -> None:
    peer, done = until("response.done")
    session([update(output_modalities=["text"]), message("hello"), ANSWER, done], peer=peer)
    assert "response.output_audio.delta" not in peer.names
    assert "".join(event["delta"] for event in peer.of("response.output_text.delta")) == "you said hello"
    assert peer.of("response.output_text.done")[0]["text"] == "you said hello"


def test_a_text_model_answers_with_its_own_words_spoken() -> None:
    peer, done = until("response.done")
    limited: Step = {"type": "response.create", "response": {"max_output_tokens": 5}}
    session([message("hello"), limited, done], model="scripted", peer=peer)
    assert said(peer) == "the line is painted on"
    response = peer.of("response.done")[0]["response"]
    assert (response["status"], response["status_details"]["reason"]) == ("incomplete", "max_output_tokens")
    assert response["usage"]["output_token_details"]["text_tokens"] == 5


def test_a_text_models_text_is_its_own_where_nobody_speaks_it() -> None:
    peer, done = until("response.done")
    session([message("hello"), ANSWER, done], model="scripted", speaks=False, peer=peer)
    deltas = "".join(event["delta"] for event in peer.of("response.output_text.delta"))
    assert deltas == peer.of("response.output_text.done")[0]["text"]
    assert deltas.startswith(" the line is painted on her hull load")
    assert peer.of("response.done")[0]["response"]["status"] == "completed"


def test_an_answer_outside_the_conversation_leaves_no_item() -> None:
    peer, done = until("response.done")
    aside = {
        "conversation": "none",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "aside"}]}],
    }
    _, talking, _ = session([message("kept"), {"type": "response.create", "response": aside}, done], peer=peer)
    assert said(peer) == "you said aside"
    assert [item.said for item in talking.conversed.items] == ["kept"]


def test_what_cant_be_said_fails_the_answer_and_not_the_session() -> None:
    peer, done = until("response.done")
    session([message("a # b"), ANSWER, done, message("fine"), ANSWER, peer.saw("response.done", 2)], peer=peer)
    first, second = (event["response"] for event in peer.of("response.done"))
    assert (first["status"], first["status_details"]["error"]["code"]) == ("failed", "unsayable_character")
    assert second["status"] == "completed"


def test_items_are_created_in_their_place_retrieved_truncated_and_deleted() -> None:
    peer, done = until("response.done")
    script: list[Step] = [
        message("one"),
        ANSWER,
        done,
        {**message("zero"), "previous_item_id": "root"},  # type: ignore[dict-item]
        {"type": "conversation.item.retrieve", "item_id": "item_2"},
        {"type": "conversation.item.truncate", "item_id": "item_2", "content_index": 0, "audio_end_ms": 40},
        {"type": "conversation.item.delete", "item_id": "item_1"},
        {"type": "conversation.item.delete", "item_id": "item_1"},
    ]
    _, talking, _ = session(script, peer=peer)
    assert peer.names[-5:] == [
        "conversation.item.done",
        "conversation.item.retrieved",
        "conversation.item.truncated",
        "conversation.item.deleted",
        "error",
    ]
    assert [item.said for item in talking.conversed.items] == ["zero", "you said one"]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ("garbage", "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ("[]", "invalid_event"),
        ('{"type": 5}', "invalid_event"),
        ('{"type": "session.explode"}', "invalid_event"),
        (b"\x00", "invalid_message"),
        ({"type": "input_audio_buffer.append", "audio": "not base64!"}, "invalid_value"),
        ({"type": "input_audio_buffer.append", "audio": 7}, "invalid_value"),
        ({"type": "input_audio_buffer.append"}, "invalid_value"),
        ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty"),
        ({"type": "session.update"}, "invalid_value"),
        ({"type": "session.update", "session": {}}, "invalid_value"),
        ({"type": "conversation.item.create", "item": {"role": "user", "content": []}}, "invalid_value"),
        ({"type": "conversation.item.create", "item": {"role": "robot"}}, "invalid_value"),
        ({"type": "conversation.item.create", "item": {"type": "function_call"}}, "invalid_value"),
        ({"type": "conversation.item.retrieve", "item_id": "nobody"}, "invalid_item"),
        ({"type": "response.create", "response": {"conversation": "both"}}, "invalid_value"),
        ({"type": "response.create", "response": {"tools": [{}]}}, "unknown_parameter"),
        ({"type": "response.create", "response": {"input": ["x"]}}, "invalid_value"),
        ({"type": "response.cancel", "response_id": "resp_9"}, "response_cancel_not_active"),
    ],
)
def test_what_cant_be_done_is_an_error_event_and_the_session_goes_on(event: Step, code: str) -> None:
    peer, done = until("response.done")
    _, _, ending = session([event, message("still here"), ANSWER, done], peer=peer)
    assert ending is None
    assert errors(peer) == [code]
    assert said(peer) == "you said still here"


def test_a_change_of_format_takes_effect_and_keeps_the_time_line() -> None:
    peer, done = until("response.done")
    narrow = update({"format": {"type": "audio/pcma"}})
    session([append("\0", 0.999), narrow, message("hello"), ANSWER, done], peer=peer)
    shown = peer.of("session.updated")[0]["session"]["audio"]["input"]["format"]
    assert shown == {"type": "audio/pcma"}


def test_a_conversation_keeps_its_newest_items() -> None:
    conversed = Conversed()
    for n in range(MAX_ITEMS + 2):
        conversed.add(Item(f"item_{n}", "user", "input_text", str(n)))
        assert len(conversed.items) == min(n + 1, MAX_ITEMS)
    assert (conversed.items[0].said, conversed.items[-1].item_id) == ("2", f"item_{MAX_ITEMS + 1}")


def test_a_conversation_of_long_items_forgets_the_oldest() -> None:
    conversed = Conversed()
    for n in range(5):
        conversed.add(Item(f"item_{n}", "user", "input_text", str(n) * (MAX_CHARACTERS // 2)))
    assert [item.said[0] for item in conversed.items] == ["3", "4"]
    conversed.add(Item("giant", "user", "input_text", "x" * (2 * MAX_CHARACTERS)))
    assert [item.item_id for item in conversed.items] == ["giant"]


def test_an_error_quotes_only_the_beginning_of_what_was_wrong() -> None:
    giant = "x" * 100_000
    script: list[Step] = [
        {"type": giant, "event_id": giant},
        {"type": "conversation.item.delete", "item_id": giant},
        {"type": "session.update", "session": {"type": "realtime", giant: 1}},
    ]
    peer, _, _ = session(script)
    assert errors(peer) == ["invalid_event", "invalid_item", "unknown_parameter"]
    assert all(len(json.dumps(event)) < 4000 for event in peer.of("error"))


def test_silence_before_the_speech_counts_for_nothing() -> None:
    peer, done = until("response.done")
    session([update(TRANSCRIBED), append("\0", 9.999), append("one", 0.6), done], peer=peer)
    (completed,) = peer.of("conversation.item.input_audio_transcription.completed")
    assert completed["usage"]["seconds"] == pytest.approx(0.3 + 0.603)


def test_a_session_ends_after_an_hour() -> None:
    peer, talking, ending = session([LATE])
    assert ending is not None
    assert (ending.code, errors(peer)) == (1001, ["session_expired"])
    assert peer.of("session.created")[0]["session"]["expires_at"] == talking.expires_s
