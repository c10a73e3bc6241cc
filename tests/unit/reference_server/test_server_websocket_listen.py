"""Live recognition as Deepgram has it, between a scripted client and a listener that hears what it is told."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np
import pytest

from plimsoll.reference_server.dialects.deepgram import Ear, Listening
from plimsoll.reference_server.dialects.deepgram_wire import ListenWriter, listen_options
from plimsoll.reference_server.speech.audio import encode
from plimsoll.reference_server.transports.websocket import Ending
from plimsoll.reference_server.values.errors import RequestError
from tests.websocket_peers import LATE, RATE, FakeListener, ScriptedPeer, Step, saying, talk

CLOSE: Step = {"type": "CloseStream"}


def listening(**given: Any) -> Listening:
    query = {"encoding": "linear16", "sample_rate": str(RATE), "interim_results": "true", "vad_events": "true"}
    options = listen_options({**query, **{name: str(value) for name, value in given.items()}})
    listener = FakeListener(options.endpointing_ms or 300, single=options.endpointing_ms is None)
    return Listening(options, listener, ListenWriter("r1", "recogniser"), lambda stages: None)


def pcm(text: str, then_s: float = 0.0) -> bytes:
    return encode("linear16", saying(text, then_s=then_s))


def heard(*script: Step, **given: Any) -> ScriptedPeer:
    peer = ScriptedPeer([*script])
    assert talk(listening(**given), peer) == Ending()
    return peer


def transcripts(peer: ScriptedPeer, **kind: bool) -> list[str]:
    results = [m for m in peer.of("Results") if all(m[key] is value for key, value in kind.items())]
    return [m["channel"]["alternatives"][0]["transcript"] for m in results]


def test_a_stream_is_answered_with_interims_a_final_and_metadata_last() -> None:
    peer = heard(pcm("load her to here ", 0.5), CLOSE)
    assert peer.names == ["SpeechStarted", "Results", "Metadata"]
    assert transcripts(peer, is_final=False) == ["load", "load her", "load her to", "load her to here"]
    assert transcripts(peer, is_final=True, speech_final=True) == ["load her to here"]


def test_final_results_tile_the_audio_and_times_are_audio_time() -> None:
    peer = heard(pcm("one two", 0.4), pcm("three", 0.4), CLOSE)
    first, second = (m for m in peer.of("Results") if m["is_final"])
    assert (first["start"], second["start"]) == (0.0, pytest.approx(first["duration"]))
    assert first["duration"] == pytest.approx(0.307)
    assert second["start"] + second["duration"] == pytest.approx(0.407 + 0.305)
    words = second["channel"]["alternatives"][0]["words"]
    assert [(w["word"], w["start"], w["end"]) for w in words] == [("three", 0.407, 0.412)]


def test_metadata_tells_duration_digest_and_stages_as_its_last_member() -> None:
    audio = pcm("hello", 0.5)
    (metadata,) = heard(audio, CLOSE).of("Metadata")
    assert metadata["duration"] == pytest.approx(0.505)
    assert metadata["sha256"] == hashlib.sha256(audio).hexdigest()
    assert list(metadata)[-1] == "server_timing"
    assert metadata["server_timing"].startswith("inference;dur=")


def test_interims_and_speech_events_come_only_when_asked_for() -> None:
    peer = heard(pcm("one two ", 0.5), CLOSE, interim_results="false", vad_events="false")
    assert peer.names == ["Results", "Metadata"]
    assert transcripts(peer) == ["one two"]


def test_finalize_is_always_answered_and_says_so() -> None:
    peer = heard(pcm("one"), {"type": "Finalize"}, {"type": "Finalize"}, CLOSE)
    finals = [(m["from_finalize"], m["speech_final"]) for m in peer.of("Results") if m["is_final"]]
    assert finals == [(True, False), (True, False)]
    assert transcripts(peer, is_final=True) == ["one", ""]


def test_without_endpointing_only_finalize_and_the_end_make_finals() -> None:
    peer = heard(pcm("one", 2), pcm("two", 2), {"type": "Finalize"}, pcm("three", 2), CLOSE, endpointing="false")
    assert transcripts(peer, is_final=True) == ["onetwo", "three"]


def test_an_utterance_end_comes_once_when_no_word_came_for_that_long() -> None:
    peer = heard(pcm("one", 3), pcm("two", 0.5), CLOSE, utterance_end_ms=1000)
    assert [m["last_word_end"] for m in peer.of("UtteranceEnd")] == [pytest.approx(0.003)]
    order = [m["type"] for m in peer.got if m["type"] in ("UtteranceEnd", "SpeechStarted")]
    assert order == ["SpeechStarted", "UtteranceEnd", "SpeechStarted"]


def test_an_utterance_end_is_told_before_the_speech_that_follows_in_the_same_message() -> None:
    peer = heard(pcm("one", 1.3) + pcm("two", 0.5), CLOSE, utterance_end_ms=1200, endpointing=200)
    order = [m["type"] for m in peer.got if m["type"] in ("UtteranceEnd", "SpeechStarted")]
    assert order == ["SpeechStarted", "UtteranceEnd", "SpeechStarted"]


def test_silence_of_the_client_ends_the_session_after_ten_seconds() -> None:
    peer = ScriptedPeer([pcm("one"), {"type": "KeepAlive"}, LATE])
    before_ns = time.monotonic_ns()
    ending = talk(listening(), peer)
    assert ending is not None
    assert (ending.code, ending.reason[:8]) == (1011, "NET-0001")
    assert all(deadline >= before_ns + 10_000_000_000 for deadline in peer.deadlines_ns)
    assert peer.deadlines_ns == sorted(peer.deadlines_ns)


@pytest.mark.parametrize(
    "text", ["garbage", "[1]", '{"type": "Speak"}', '{"kind": 1}', "[" * 100_000, '{"type": ["x"]}']
)
def test_text_that_is_no_command_gets_an_error_and_the_close_of_a_policy_violation(text: str) -> None:
    peer = ScriptedPeer([text, CLOSE])
    ending = talk(listening(), peer)
    assert ending is not None
    assert (ending.code, ending.ok) == (1008, False)
    assert peer.got[-1]["code"] == "UNPARSABLE_CLIENT_MESSAGE"
    assert {"type", "variant", "description"} <= set(peer.got[-1])


def test_a_client_that_closes_frees_the_listener() -> None:
    session = listening()
    assert talk(session, ScriptedPeer([pcm("one")])) is None
    assert isinstance(session.listener, FakeListener)
    assert session.listener.closed == 1


def test_audio_may_be_cut_anywhere() -> None:
    audio = pcm("one two", 0.5)
    peer = heard(*(audio[at : at + 7] for at in range(0, len(audio), 7)), b"", CLOSE)
    assert transcripts(peer, is_final=True) == ["one two"]


def test_several_channels_are_heard_as_their_mean() -> None:
    left, right = np.array([0.5, 0.25, -0.5], np.float32), np.array([0.0, 0.25, 0.5], np.float32)
    both = encode("linear16", np.stack((left, right), axis=1).ravel())
    ear = Ear("linear16", 2)
    got = np.concatenate([ear.feed(both[at : at + 3]) for at in range(0, len(both), 3)])
    assert got.tolist() == [0.25, 0.25, 0.0]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"encoding": "opus"}, "encoding"),
        ({"encoding": ""}, "encoding"),
        ({"sample_rate": ""}, "sample_rate"),
        ({"sample_rate": "1e4"}, "sample_rate"),
        ({"sample_rate": "9" * 400}, "sample_rate"),
        ({"sample_rate": "٣"}, "sample_rate"),
        ({"channels": "9"}, "channels"),
        ({"interim_results": "yes"}, "interim_results"),
        ({"endpointing": "5"}, "endpointing"),
        ({"utterance_end_ms": "500"}, "utterance_end_ms"),
        ({"utterance_end_ms": "1000", "interim_results": "false"}, "utterance_end_ms"),
        ({"diarize": "true"}, "diarize"),
        ({"keyterm": "x"}, "keyterm"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_cant_be_done_is_refused_by_name(given: dict[str, str], named: str) -> None:
    query = {"encoding": "linear16", "sample_rate": "16000", "interim_results": "true"}
    with pytest.raises(RequestError, match=f"^{named}: ") as refused:
        listen_options(query | given)
    assert (refused.value.status, refused.value.param) == (400, named)


def test_what_changes_nothing_is_accepted() -> None:
    given = {
        "punctuate": "true",
        "smart_format": "true",
        "language": "en-GB",
        "diarize": "false",
        "model": "recogniser",
    }
    options = listen_options({"encoding": "mulaw", **given})
    assert (options.sample_rate, options.endpointing_ms, options.interim) == (8000, 300, False)


def test_a_configure_is_answered_with_why_not_and_the_stream_goes_on() -> None:
    peer = heard({"type": "Configure", "keyterms": ["plimsoll"]}, pcm("one", 0.5), CLOSE)
    assert peer.of("ConfigureFailure")[0]["code"] == "CONFIGURE_KEYTERMS_NOT_SUPPORTED"
    assert transcripts(peer, is_final=True) == ["one"]


def test_without_endpointing_an_utterance_ends_at_its_longest() -> None:
    peer = heard(pcm("one", 601), pcm("two"), CLOSE, endpointing="false")
    assert transcripts(peer, is_final=True) == ["one", "two"]
    assert [m["speech_final"] for m in peer.of("Results") if m["is_final"]] == [False, True]
