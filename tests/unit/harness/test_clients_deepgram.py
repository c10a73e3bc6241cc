"""Deepgram: what is asked for, what its results mean, and how it fails."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols.deepgram import FluxDialogue, ListenDialogue, SpeakDialogue
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING, READY, Script
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, TEXT, At, hear, settled

URL = "http://127.0.0.1:1"
KEY = (("Authorization", "Bearer dg-secret-key"),)


def listen(**options: Any) -> ListenDialogue:
    return ListenDialogue(Target(URL, "deepgram-listen", "nova-3", KEY, options))


def query_of(script: Script) -> dict[str, list[str]]:
    return parse_qs(urlsplit(script.path).query)


def results(text: str, final: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "type": "Results",
        "channel_index": [0, 1],
        "start": 0.0,
        "duration": 0.5,
        "is_final": final,
        "speech_final": False,
        "channel": {"alternatives": [{"transcript": text, "confidence": 0.9, "words": []}]},
        **more,
    }


# -- /v1/listen ---------------------------------------------------------------------------------------------------


def test_the_query_says_what_the_audio_is_and_only_what_was_asked_for() -> None:
    script = listen(endpointing=300, utterance_end_ms=1000, query={"keyterm": ["a b", "c"]}).encode(AUDIO)
    assert script.path.startswith("/v1/listen?model=nova-3&encoding=linear16&sample_rate=16000&channels=1")
    assert query_of(script) == {
        "model": ["nova-3"], "encoding": ["linear16"], "sample_rate": ["16000"], "channels": ["1"],
        "interim_results": ["true"], "endpointing": ["300"], "utterance_end_ms": ["1000"], "keyterm": ["a b", "c"],
    }  # fmt: skip
    assert query_of(listen(endpointing=False, finish="close").encode(AUDIO))["endpointing"] == ["false"]


def test_a_key_goes_out_as_a_token_and_a_temporary_token_as_bearer() -> None:
    assert listen().encode(AUDIO).headers == (("Authorization", "Token dg-secret-key"),)
    assert listen(auth="bearer").encode(AUDIO).headers == KEY


def test_the_clip_is_followed_by_silence_until_the_endpoint_then_by_close_stream() -> None:
    script = listen(endpointing=500).encode(AUDIO)
    assert [one.data for one in script.closing] == [b'{"type":"CloseStream"}']
    assert (len(script.frames), script.needed) == (30, 10)
    assert script.closing_ns == 3000 * MS
    assert b"".join(one.data for one in script.frames[:10]) == CLIP.pcm.tobytes()
    assert not any(one.text for one in script.frames)
    assert script.ends_on_close
    assert not script.waits


def test_finalize_and_close_come_at_the_clips_true_end() -> None:
    forced = listen(finish="finalize").encode(AUDIO)
    assert [one.data for one in forced.closing] == [b'{"type":"Finalize"}', b'{"type":"CloseStream"}']
    assert (len(forced.frames), forced.closing_ns) == (10, 1000 * MS)
    closed = listen(finish="close").encode(AUDIO)
    assert (len(closed.closing), closed.closing_ns) == (1, 1000 * MS)


def test_telephone_audio_has_eight_thousand_samples_of_a_byte() -> None:
    script = listen(encoding="mulaw", finish="close").encode(AUDIO)
    assert query_of(script)["sample_rate"] == ["8000"]
    assert {len(one.data) for one in script.frames} == {800}


def test_final_segments_follow_each_other_and_interims_replace_within_theirs() -> None:
    exchange = settled(
        listen(),
        AUDIO,
        [
            (100, results("")),
            (500, results("won")),
            (600, results("one", final=True, duration=0.4)),
            (700, results("to", start=0.4, duration=0.3)),
            (1100, results("two", final=True, start=0.4, speech_final=True)),
            (1200, {"type": "Metadata", "server_timing": "inference;dur=3"}),
        ],
    )
    assert exchange.session is not None
    stamps = exchange.session
    assert exchange.status == Status.OK
    assert [at // MS for at in exchange.chunk_ns] == [500, 600, 700, 1100]
    assert [at // MS for at in stamps.chunk_cursor_ns] == [500, 400, 700, 900]
    assert (stamps.first_partial_ns, stamps.first_final_ns, stamps.final_ns) == (500 * MS, 600 * MS, 1100 * MS)
    assert (stamps.n_partials, stamps.n_revised, stamps.words, stamps.word_errors) == (2, 2, 2, 0)
    assert (stamps.endpoint_ns, stamps.false_endpoints) == (1100 * MS, 0)
    assert [lag // MS for lag in stamps.word_lag_ns] == [200, 200]
    assert exchange.server_timing == "inference;dur=3"


def test_an_endpoint_inside_speech_is_a_false_one_and_the_answer_to_a_finalize_is_none() -> None:
    exchange = settled(
        listen(),
        AUDIO,
        [
            (300, results("one", final=True, speech_final=True)),
            (1000, results("two", final=True, speech_final=True, from_finalize=True)),
        ],
    )
    assert exchange.session is not None
    assert (exchange.session.false_endpoints, exchange.session.endpoint_ns) == (1, -1)


def test_an_endpoint_that_answers_our_own_goodbye_is_none() -> None:
    talk = listen(finish="close")
    exchange, _ = hear(
        talk, talk.encode(AUDIO), [(950, results("one")), (1100, results("one two", True, speech_final=True))]
    )
    assert exchange.session is not None
    exchange.session.input_end_ns = 1000 * MS
    talk.settle(exchange)
    assert (exchange.session.endpoint_ns, exchange.session.final_ns) == (-1, 1100 * MS)


def test_an_empty_final_is_no_transcript_and_other_channels_are_not_ours() -> None:
    exchange = settled(
        listen(),
        AUDIO,
        [(950, results("one two", final=True)), (990, results("x", channel_index=[1, 2])), (1200, results("", True))],
    )
    assert exchange.session is not None
    assert (exchange.session.final_ns, exchange.session.word_errors) == (950 * MS, 0)


def test_while_it_is_on_only_an_endpoint_after_the_speech_stops_the_silence() -> None:
    talk = listen()
    messages: list[At] = [
        (300, results("one", final=True, speech_final=True)),
        (950, results("two")),
        (1000, results("two", final=True, speech_final=True, start=0.5, duration=0.45)),
        (1300, '{"channel":[0,1],"last_word_end":0.9,"type":"UtteranceEnd"}'),
        (1400, {"type": "Metadata"}),
        (1500, {"type": "Error", "description": "x"}),
    ]
    _, answers = hear(talk, talk.encode(AUDIO), messages)
    assert answers == [NOTHING, NOTHING, ENDPOINT, ENDPOINT, NOTHING, DONE]


def test_an_endpoint_inside_speech_is_false_however_late_a_slow_server_tells_it() -> None:
    talk = listen()
    messages: list[At] = [
        (1100, results("one", final=True, speech_final=True, start=0.0, duration=0.5)),
        (1400, results("two", final=True, speech_final=True, start=0.5, duration=0.7)),
    ]
    _, answers = hear(talk, talk.encode(AUDIO), messages)
    assert answers == [NOTHING, ENDPOINT]  # the first one must not end the silence that the second one needs
    exchange = settled(talk, AUDIO, messages)
    assert exchange.session is not None
    assert (exchange.session.endpoint_ns, exchange.session.false_endpoints) == (1400 * MS, 1)


def test_the_servers_own_error_explains_a_close_and_what_came_before_is_kept() -> None:
    error = {"type": "Error", "description": "bad audio for dg-secret-key", "code": "DATA-0000"}
    exchange = settled(
        listen(), AUDIO, [(500, results("one")), (600, error)], Status.PROTOCOL, "the server closed the session: 1008"
    )
    assert (exchange.status, exchange.error) == (Status.HTTP, "bad audio for [redacted] (DATA-0000)")
    assert exchange.n_chunks == 1


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("the server closed the session before everything was sent: 1011 NET-0001 no audio", Status.HTTP),
        ("the server closed the session: 1013 try again", Status.REFUSED),
        ("the server closed the session: 1001", Status.PROTOCOL),
        ("connection closed in the middle of the session", Status.PROTOCOL),
    ],
)
def test_a_close_with_a_code_of_its_own_is_the_servers_word(said: str, status: Status) -> None:
    exchange = settled(listen(), AUDIO, [], Status.PROTOCOL, said)
    assert (exchange.status, exchange.error) == (status, said)


def test_overload_is_a_refusal_broken_json_a_protocol_error_and_a_timeout_keeps_what_came() -> None:
    busy = {"type": "Error", "description": "Too many concurrent requests"}
    assert settled(listen(), AUDIO, [(1, busy)]).status == Status.REFUSED
    broken = settled(listen(), AUDIO, [(500, results("one")), (600, "{not json")])
    assert (broken.status, broken.error) == (Status.PROTOCOL, "message 2 is not JSON: {not json")
    late = settled(listen(), AUDIO, [(500, results("one"))], Status.TIMEOUT, "no answer within 1 s")
    assert late.session is not None
    assert (late.status, late.n_chunks, late.session.first_partial_ns) == (Status.TIMEOUT, 1, 500 * MS)


def test_text_can_not_be_recognised_nor_audio_spoken() -> None:
    with pytest.raises(HarnessFault, match="source of kind audio"):
        listen().encode(TEXT)
    with pytest.raises(HarnessFault, match="no text to say"):
        SpeakDialogue(Target(URL, "deepgram-speak", "aura")).encode(AUDIO)


# -- /v2/listen ---------------------------------------------------------------------------------------------------


def flux(**options: Any) -> FluxDialogue:
    return FluxDialogue(Target(URL, "deepgram-flux", "", KEY, options))


def turn(event: str, text: str, index: int = 0, end: float = 0.5) -> dict[str, Any]:
    return {
        "type": "TurnInfo",
        "event": event,
        "turn_index": index,
        "audio_window_start": 0.0,
        "audio_window_end": end,
        "transcript": text,
    }


def test_flux_waits_for_connected_and_sends_silence_for_as_long_as_a_turn_may_wait() -> None:
    script = flux(eot_timeout_ms=1000, eager_eot_threshold=0.5).encode(AUDIO)
    assert script.waits
    assert script.frame_ns == 80 * MS
    assert script.closing_ns == 2500 * MS
    assert set(query_of(script)) == {"model", "encoding", "sample_rate", "eager_eot_threshold", "eot_timeout_ms"}
    assert query_of(script)["model"] == ["flux-general-en"]


def test_a_turn_of_flux_grows_and_ends_once() -> None:
    talk = flux()
    messages = [
        (5, {"type": "Connected", "request_id": "r"}),
        (300, turn("StartOfTurn", "one", end=0.3)),
        (500, turn("EagerEndOfTurn", "one", end=0.5)),
        (600, turn("TurnResumed", "one", end=0.6)),
        (950, turn("EndOfTurn", "one", end=0.6)),
        (960, turn("StartOfTurn", "two", 1, end=0.95)),
        (1200, turn("EndOfTurn", "two", 1, end=1.1)),
    ]
    _, answers = hear(talk, talk.encode(AUDIO), messages)
    assert answers == [READY, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, ENDPOINT]  # the first one came late
    exchange = settled(talk, AUDIO, messages)
    assert exchange.session is not None
    assert (exchange.session.word_errors, exchange.session.n_revised) == (0, 0)
    assert (exchange.session.endpoint_ns, exchange.session.false_endpoints) == (1200 * MS, 1)
    assert [at // MS for at in exchange.session.chunk_cursor_ns] == [300, 500, 600, 600, 950, 1100]
    assert (exchange.session.first_final_ns, exchange.session.final_ns) == (950 * MS, 1200 * MS)


def test_an_error_of_flux_has_its_code() -> None:
    error = {"type": "Error", "code": "INTERNAL_SERVER_ERROR", "description": "it broke"}
    exchange = settled(flux(), AUDIO, [(1, error)])
    assert (exchange.status, exchange.error) == (Status.HTTP, "it broke (INTERNAL_SERVER_ERROR)")


# -- /v1/speak ----------------------------------------------------------------------------------------------------

SOUND = (8000 * np.sin(np.arange(2400) * 0.1)).astype("<i2").tobytes()  # 100 ms at 24 kHz


def speak(**options: Any) -> SpeakDialogue:
    return SpeakDialogue(Target(URL, "deepgram-speak", "aura-2", KEY, options))


def test_text_is_fed_at_once_or_word_by_word_and_flushed_behind_the_last() -> None:
    whole = speak().encode(TEXT)
    assert [one.data for one in whole.frames] == [b'{"type":"Speak","text":"mind the gap"}']
    assert [one.data for one in whole.closing] == [b'{"type":"Flush"}']
    assert (whole.frame_ns, whole.n_in, whole.ends_on_close) == (-1, 3, False)
    fed = speak(words_per_second=10, finish="close").encode(TEXT)
    assert [one.data[24:-2] for one in fed.frames] == [b"mind ", b"the ", b"gap"]
    assert (tuple(fed.due_ns), fed.closing_ns) == ((0, 100 * MS, 200 * MS), 200 * MS)
    assert [one.data for one in fed.closing] == [b'{"type":"Flush"}', b'{"type":"Close"}']
    assert fed.ends_on_close


def test_a_long_text_goes_out_in_messages_of_two_thousand_characters() -> None:
    script = speak().encode(Payload(prompt="word " * 1000))
    assert len(script.frames) == 3
    assert max(len(one.data) for one in script.frames) <= 2000 + 26


def test_audio_is_counted_and_flushed_ends_the_session() -> None:
    talk = speak()
    messages = [
        (1, {"type": "Metadata", "model_name": "aura"}),
        (50, bytes(480)),
        (60, SOUND[:1001]),
        (70, SOUND[1001:]),
        (80, {"type": "Flushed", "sequence_id": 0}),
    ]
    _, answers = hear(talk, talk.encode(TEXT), messages)
    assert answers == [NOTHING, NOTHING, NOTHING, NOTHING, DONE]
    assert speak(finish="close").hear(settled(talk, TEXT, messages), b'{"type": "Flushed"}', True) == NOTHING
    exchange = settled(talk, TEXT, messages)
    assert exchange.session is not None
    assert exchange.status == Status.OK
    assert exchange.session.media_out_ns == 110 * MS
    assert (exchange.session.first_audio_ns, exchange.session.audible_ns) == (50 * MS, 60 * MS)
    assert 0 <= exchange.session.leading_silence_ns <= 10 * MS


@pytest.mark.parametrize(
    ("messages", "status", "said"),
    [
        ([(1, SOUND)], Status.PROTOCOL, "without Flushed"),
        ([(1, {"type": "Flushed"})], Status.PROTOCOL, "no audio came"),
        (
            [(1, {"type": "Warning", "code": "TEXT_TOO_LONG", "description": "too long"}), (2, {"type": "Flushed"})],
            Status.HTTP,
            "no audio came: too long (TEXT_TOO_LONG)",
        ),
        ([(1, SOUND), (2, {"type": "Error", "message": "gone"})], Status.HTTP, "gone"),
    ],
)
def test_speech_that_is_not_all_there_has_failed(messages: list[Any], status: Status, said: str) -> None:
    exchange = settled(speak(), TEXT, messages)
    assert exchange.status == status
    assert exchange.error is not None
    assert said in exchange.error
