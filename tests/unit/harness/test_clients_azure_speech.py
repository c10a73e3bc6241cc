"""Azure Speech: its framing, what is asked of it, what its messages mean, and how it fails."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from plimsoll.harness.protocols.azure_speech import RecognitionDialogue, SpeechDialogue, taken_apart
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import DONE, ENDPOINT, NOTHING
from plimsoll.slo.records.records import Status
from tests.finished import MS
from tests.live_talk import AUDIO, CLIP, TEXT, At, hear, settled

KEY = (("Authorization", "Bearer az-secret-key"),)


def recognition(**options: Any) -> RecognitionDialogue:
    return RecognitionDialogue(Target("http://127.0.0.1:1", "azure-stt", "", KEY, options))


def speech(**options: Any) -> SpeechDialogue:
    return SpeechDialogue(Target("http://127.0.0.1:1", "azure-tts", "", KEY, options))


def said(path: str, body: Any = None) -> str:
    return f"X-RequestId:abc\r\nPATH:{path}\r\n\r\n{json.dumps(body if body is not None else {})}"


def sound(body: bytes) -> bytes:
    head = b"X-RequestId:abc\r\nPath:audio\r\n"
    return struct.pack(">H", len(head)) + head + body


def test_recognition_opens_with_its_configuration_and_a_wav_header_and_ends_with_an_empty_message() -> None:
    script = recognition(mode="dictation", language="de-DE", context={"phraseDetection": {}}).encode(AUDIO)
    assert script.path == "/speech/recognition/dictation/cognitiveservices/v1?language=de-DE&format=detailed"
    names = [taken_apart(one.data, one.text) for one in script.opening]
    assert [headers["path"] for headers, _ in names] == ["speech.config", "speech.context", "audio"]
    assert json.loads(names[1][1]) == {"phraseDetection": {}}
    riff = names[2][1]
    assert (riff[:4], len(riff), struct.unpack_from("<I", riff, 24)[0]) == (b"RIFF", 44, 16000)
    turn = names[0][0]["x-requestid"]
    assert len(turn) == 32
    frames = [taken_apart(one.data, one.text) for one in script.frames]
    assert {headers["x-requestid"] for headers, _ in frames} == {turn}
    assert b"".join(body for _, body in frames) == CLIP.pcm.tobytes()
    assert taken_apart(script.closing[0].data, script.closing[0].text)[1] == b""
    headers = dict(script.headers)
    assert headers["ocp-apim-subscription-key"] == "az-secret-key"
    assert "Authorization" not in headers
    assert dict(recognition(auth="bearer").encode(AUDIO).headers)["Authorization"] == "Bearer az-secret-key"


def test_phrases_follow_each_other_and_ticks_are_positions() -> None:
    talk = recognition()
    messages: list[At] = [
        (10, said("turn.start")),
        (300, said("speech.hypothesis", {"Text": "on", "Offset": 0, "Duration": 3_000_000})),
        (500, said("speech.phrase", {"RecognitionStatus": "Success", "NBest": [{"Display": "One."}], "Offset": 0})),
        (600, said("speech.fragment", {"Text": "two", "Offset": 5_000_000, "Duration": 1_000_000})),
        (950, said("speech.endDetected", {"Offset": 9_000_000})),
        (1000, said("speech.phrase", {"RecognitionStatus": "Success", "DisplayText": "Two."})),
        (1001, said("speech.phrase", {"RecognitionStatus": "EndOfDictation"})),
        (1002, said("turn.end")),
    ]
    heard = hear(talk, talk.encode(AUDIO), messages)[1]
    assert heard == [NOTHING, NOTHING, NOTHING, NOTHING, ENDPOINT, NOTHING, NOTHING, DONE]
    exchange = settled(talk, AUDIO, messages)
    stamps = exchange.session
    assert stamps is not None
    assert (exchange.status, stamps.word_errors, stamps.endpoint_ns) == (Status.OK, 0, 950 * MS)
    assert (stamps.first_final_ns, stamps.final_ns, stamps.n_partials) == (500 * MS, 1000 * MS, 2)
    assert list(stamps.chunk_cursor_ns) == [300 * MS, -1, 600 * MS, -1]


def test_a_phrase_that_failed_is_the_servers_word() -> None:
    phrase = said("speech.phrase", {"RecognitionStatus": "TooManyRequests"})
    exchange = settled(recognition(), AUDIO, [(500, phrase), (501, said("turn.end"))])
    assert exchange.status == Status.REFUSED
    assert "TooManyRequests" in str(exchange.error)
    closed = "the server closed the session: 4429 too many"
    assert settled(recognition(), AUDIO, [], Status.PROTOCOL, closed).status == Status.REFUSED


def test_synthesis_sends_one_document_and_decodes_until_the_turn_ends() -> None:
    talk = speech(output_format="raw-8khz-8bit-mono-mulaw", voice="a'b")
    script = talk.encode(TEXT.__class__(prompt="a < b & c"))
    paths = [taken_apart(one.data, one.text) for one in (*script.opening, *script.frames)]
    assert [headers["path"] for headers, _ in paths] == ["speech.config", "synthesis.context", "ssml"]
    assert json.loads(paths[1][1])["synthesis"]["audio"]["outputFormat"] == "raw-8khz-8bit-mono-mulaw"
    assert b"a &lt; b &amp; c</voice>" in paths[2][1]
    assert b'<voice name="a\'b">' in paths[2][1]
    messages: list[At] = [
        (5, said("turn.start")),
        (50, sound(bytes(400))),
        (90, sound(bytes(400))),
        (91, sound(b"")),
        (92, said("turn.end")),
    ]
    assert hear(talk, script, messages)[1] == [NOTHING, NOTHING, NOTHING, NOTHING, DONE]
    exchange = settled(talk, TEXT, messages)
    assert exchange.session is not None
    assert (exchange.session.media_out_ns, exchange.session.first_audio_ns) == (100 * MS, 50 * MS)


@pytest.mark.parametrize("message", ["no headers", b"\x00", b"\xff\xff", "Path:turn.end\r\n\r\n{"])
def test_a_message_that_is_not_framed_is_a_broken_protocol(message: str | bytes) -> None:
    exchange = settled(recognition(), AUDIO, [(9, message)])
    assert exchange.status == Status.PROTOCOL
    assert str(exchange.error).startswith("message 1 is not of Azure's form")
