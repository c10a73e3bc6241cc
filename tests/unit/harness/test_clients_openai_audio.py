"""OpenAI's audio routes: what is sent, and what is made of every answer."""

from __future__ import annotations

import base64
import email
import json
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.protocols.openai_audio import (
    SpeechDialect,
    TranscriptionDialect,
)
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.http.http_pool import Prepared
from plimsoll.scenarios.media.sound import wav_bytes
from plimsoll.scenarios.samples.clip import Clip
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import PACE_FILE, Status, TokensFrom
from tests.finished import MS, finished

URL = "http://127.0.0.1:1/v1"
CLIP = Clip(
    (3000 * np.sin(np.arange(16_000) * 0.1)).astype(np.int16), 16_000, 0, 900 * MS, "One, two three.", slice="clean"
)


def transcription(**options: Any) -> TranscriptionDialect:
    return TranscriptionDialect(Target(URL, "openai-transcriptions", "whisper", options=options))


def speech(**options: Any) -> SpeechDialect:
    return SpeechDialect(Target(URL, "openai-speech", "tts", options=options))


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def heard(dialect: TranscriptionDialect, reads: list[bytes], media: str = "text/event-stream", **more: Any) -> Exchange:
    exchange = finished(reads, content_type=media, **more)
    exchange.request = Prepared(b"", b"", -1, CLIP.duration_ns, False, CLIP)
    dialect.settle(exchange)
    return exchange


def spoken(
    dialect: SpeechDialect, reads: list[bytes], media: str = "application/octet-stream", **more: Any
) -> Exchange:
    exchange = finished(reads, content_type=media, **more)
    dialect.settle(exchange)
    return exchange


def form(request: Any) -> dict[str, Any]:
    """The parts of a multipart body by name, as the standard library reads them."""
    line = next(line for line in request.head.split(b"\r\n") if line.startswith(b"content-type"))
    message = email.message_from_bytes(line + b"\r\n\r\n" + request.body)
    return {
        str(part.get_param("name", header="content-disposition")): part
        for part in message.walk()
        if part is not message
    }


def test_the_upload_is_a_form_with_the_recording_as_a_file() -> None:
    request = transcription(language="en", temperature=0.0, stream=True, fields={"x": "1"}).encode(
        Payload(data={"clip": CLIP})
    )
    parts = form(request)
    assert request.head.startswith(b"POST /v1/audio/transcriptions HTTP/1.1\r\n")
    texts = {name: part.get_payload() for name, part in parts.items() if name != "file"}
    assert texts == {
        "model": "whisper", "language": "en", "response_format": "json", "temperature": "0", "stream": "true", "x": "1",
    }  # fmt: skip
    assert parts["file"].get_filename() == "clip.wav"
    assert parts["file"].get_content_type() == "audio/wav"
    assert wav_bytes(CLIP.pcm, 16_000) in request.body
    assert request.media_ns == CLIP.duration_ns


def test_an_answer_in_one_piece_gives_words_and_usage() -> None:
    body = {"text": "one two tree", "usage": {"type": "tokens", "input_tokens": 9, "output_tokens": 4}}
    exchange = heard(transcription(), [json.dumps(body).encode()], "application/json")
    stamps = exchange.session
    assert stamps is not None
    assert (exchange.status, exchange.n_in, exchange.n_out) == (Status.OK, 9, 4)
    assert (stamps.words, stamps.word_errors, stamps.pace, stamps.slice) == (3, 1, PACE_FILE, "clean")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text", "one two three\n"),
        ("srt", "1\n00:00:00,000 --> 00:00:01,000\none two three\n"),
        ("vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\none two three\n"),
    ],
)
def test_subtitles_are_read_without_their_numbers_and_times(kind: str, body: str) -> None:
    exchange = heard(transcription(response_format=kind), [body.encode()], "text/plain")
    assert exchange.session is not None
    assert (exchange.session.words, exchange.session.word_errors) == (3, 0)


def test_openais_events_are_chunks_and_the_last_one_has_the_text() -> None:
    exchange = heard(
        transcription(stream=True),
        [
            event(type="transcript.text.delta", delta="one "),
            event(type="transcript.text.delta", delta="too"),
            event(type="transcript.text.done", text="one two three", usage={"input_tokens": 5, "output_tokens": 3}),
        ],
    )
    assert exchange.status == Status.OK
    assert exchange.chunk_ns.tolist() == [MS, 2 * MS]
    assert (exchange.n_out, exchange.tokens_from) == (3, TokensFrom.USAGE)
    assert exchange.session is not None
    assert exchange.session.word_errors == 0


def test_vllms_chat_like_chunks_are_read_too() -> None:
    exchange = heard(
        transcription(stream=True),
        [
            event(object="transcription.chunk", choices=[{"delta": {"content": "one two"}}]),
            event(object="transcription.chunk", choices=[{"delta": {"content": " three"}, "finish_reason": "stop"}]),
            b"data: [DONE]\n\n",
        ],
    )
    assert (exchange.status, exchange.n_chunks) == (Status.OK, 2)
    assert exchange.session is not None
    assert (exchange.session.words, exchange.session.word_errors) == (3, 0)


@pytest.mark.parametrize(
    ("reads", "status", "part"),
    [
        ([event(type="transcript.text.delta", delta="one")], Status.PROTOCOL, "neither transcript.text.done"),
        (
            [event(type="transcript.text.delta", delta="one"), event(error="out of memory")],
            Status.HTTP,
            "out of memory",
        ),
        ([event(type="error", message="overloaded")], Status.REFUSED, "overloaded"),
        ([b"data: nope\n\n"], Status.PROTOCOL, "not JSON"),
        ([], Status.PROTOCOL, "cut"),
    ],
)
def test_a_stream_that_failed_says_why_and_keeps_its_chunks(reads: list[bytes], status: Status, part: str) -> None:
    exchange = heard(transcription(stream=True), reads)
    assert exchange.status == status
    assert part in str(exchange.error)
    assert exchange.n_chunks == sum(b"delta" in read for read in reads)
    assert exchange.session is not None
    assert exchange.session.words == -1  # what wasn't whole is not judged


def test_an_answer_without_text_is_no_transcription() -> None:
    assert heard(transcription(), [b'{"x": 1}'], "application/json").status == Status.PROTOCOL
    assert heard(transcription(), [b'{"error": "no such model"}'], "application/json").status == Status.HTTP


TONE = (9000 * np.sin(np.arange(24_000) * 0.2)).astype("<i2")


def test_raw_speech_is_timed_read_by_read() -> None:
    data = TONE.tobytes()
    exchange = spoken(speech(), [data[:9601], data[9601:]])  # a sample is torn: it counts with its second half
    stamps = exchange.session
    assert stamps is not None
    assert (exchange.status, exchange.n_chunks) == (Status.OK, 2)
    assert stamps.first_audio_ns == stamps.audible_ns == MS
    assert stamps.media_out_ns == 1_000 * MS
    assert stamps.chunk_audio_ns.tolist() == [200 * MS, 800 * MS]


def test_a_wav_header_is_no_audio() -> None:
    data = wav_bytes(TONE, 24_000)
    exchange = spoken(speech(response_format="wav"), [data[:44], data[44:]], "audio/wav")
    assert exchange.session is not None
    assert exchange.session.first_audio_ns == 2 * MS
    assert exchange.session.media_out_ns == 1_000 * MS


def test_events_with_audio_are_decoded() -> None:
    encoded = base64.b64encode(TONE.tobytes()).decode()
    reads = [
        event(type="speech.audio.delta", audio=encoded),
        event(type="speech.audio.done", usage={"output_tokens": 7}),
    ]
    exchange = spoken(speech(stream_format="sse"), reads, "text/event-stream")
    assert exchange.status == Status.OK
    assert exchange.session is not None
    assert exchange.session.media_out_ns == 1_000 * MS


@pytest.mark.parametrize(
    ("reads", "media", "status", "part"),
    [
        ([b'{"error": {"message": "bad voice"}}'], "application/json", Status.HTTP, "bad voice"),
        ([b'{"x": 1}'], "application/json", Status.PROTOCOL, "not audio"),
        ([b""], "application/octet-stream", Status.PROTOCOL, "no audio"),
        ([event(type="speech.audio.delta", audio="!")], "text/event-stream", Status.PROTOCOL, "not base64"),
    ],
)
def test_an_answer_without_audio_is_a_failure(reads: list[bytes], media: str, status: Status, part: str) -> None:
    exchange = spoken(speech(), reads, media)
    assert exchange.status == status
    assert part in str(exchange.error)


def test_the_body_of_a_speech_request_is_the_apis() -> None:
    request = speech(voice="nova", speed=1.5, extra_body={"seed": 1}).encode(Payload(prompt="hi"))
    assert json.loads(request.body) == {
        "model": "tts", "voice": "nova", "response_format": "pcm", "speed": 1.5, "seed": 1, "input": "hi",
    }  # fmt: skip
    assert request.head.startswith(b"POST /v1/audio/speech HTTP/1.1\r\n")
