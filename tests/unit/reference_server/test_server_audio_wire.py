"""Forms are read exactly or refused; what was heard is written in each format; speech is asked for by name."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.reference_server.dialects.openai_audio import (
    Part,
    TranscriptionRequest,
    parse_form,
    parse_speech,
    parse_transcription,
    transcript,
)
from plimsoll.reference_server.seams.models import Heard, Word
from plimsoll.reference_server.speech.audio import write_wav
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.values.errors import RequestError

KIND = "multipart/form-data; boundary=lin-e"
WAV = write_wav(np.zeros(800, np.float32), 8000)


def form(*parts: tuple[str, bytes], boundary: bytes = b"lin-e") -> bytes:
    framed = [
        b'--%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (boundary, n.encode(), d) for n, d in parts
    ]
    return b"".join(framed) + b"--%b--\r\n" % boundary


@given(st.lists(st.tuples(st.text(alphabet="abc_[]", min_size=1), st.binary()), min_size=1, max_size=5))
def test_a_form_is_read_as_it_was_written(parts: list[tuple[str, bytes]]) -> None:
    read = parse_form(KIND, form(*parts))
    assert [(part.name, part.data) for part in read] == parts


@given(
    st.binary(), st.sampled_from([KIND, "", "multipart/form-data", "multipart/form-data; boundary=", "a/b; boundary=x"])
)
def test_bytes_that_are_no_form_raise_only_the_documented_error(body: bytes, kind: str) -> None:
    for tried in (body, b"--lin-e" + body, form(("a", b"b"))[:-4] + body, body + form(("a", body))):
        with contextlib.suppress(RequestError):
            parse_form(kind, tried)


@pytest.mark.parametrize(
    ("kind", "body", "status", "part"),
    [
        ("application/json", b"{}", 415, "application/json is not understood"),
        ("multipart/form-data", b"", 400, "boundary"),
        ("multipart/form-data; boundary=" + "x" * 71, b"", 400, "boundary of 1 to 70"),
        (KIND, b"", 400, "nowhere in the body"),
        (KIND, form(("a", b"b"))[:-4], 400, "breaks off"),
        (KIND, b"--lin-e\r\nno colon\r\n\r\nx\r\n--lin-e--", 400, "without a colon"),
        (KIND, b"--lin-e\r\nA: b\r\n\r\nx\r\n--lin-e--", 400, "a name"),
        (KIND, b"--lin-e\r\nx\r\n--lin-e--", 400, "part 1 must be"),
        (KIND, form(*[("a", b"")] * 65), 400, "65 parts"),
    ],
)
def test_a_form_that_is_none_says_where(kind: str, body: bytes, status: int, part: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_form(kind, body)
    assert caught.value.status == status
    assert part in caught.value.message


def parts(**change: str | bytes | None) -> list[Part]:
    values: dict[str, Any] = {"model": "recogniser", "file": WAV, **change}
    return [
        Part(name.replace("__", "[]"), None, value if isinstance(value, bytes) else value.encode())
        for name, value in values.items()
        if value is not None
    ]


def test_a_transcription_is_asked_for_with_a_file() -> None:
    asked = parse_transcription(parts(response_format="verbose_json", timestamp_granularities__="word"))
    assert (asked.sample_rate, asked.seconds) == (8000, 0.1)
    assert (asked.words, asked.segments) == (True, False)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"file": None}, "file"),
        ({"file": b"ID3"}, "file"),
        ({"file": write_wav(np.zeros(0, np.float32), 8000)}, "file"),
        ({"model": None}, "model"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"stream": "yes"}, "stream"),
        ({"stream": "true", "response_format": "srt"}, "stream"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"timestamp_granularities__": "word"}, "timestamp_granularities[]"),
        ({"include__": "logprobs"}, "include[]"),
        ({"language": b"\xff"}, "language"),
    ],
)
def test_a_bad_form_is_a_400_that_names_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_transcription(parts(**change))
    assert (caught.value.status, caught.value.param) == (400, field)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"input": ""}, "input"),
        ({"input": "a" * 4097}, "input"),
        ({"response_format": "mp3"}, "response_format"),
        ({"stream_format": "ndjson"}, "stream_format"),
        ({"speed": 5}, "speed"),
        ({"voice": 5}, "voice"),
        ({"instructions": "whisper"}, "instructions"),
    ],
)
def test_speech_that_can_t_be_made_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_speech(Fields({"model": "synthesiser", "input": "a", "voice": {"id": "one"}, **change}))
    assert (caught.value.status, caught.value.param) == (400, field)


def words(text: str) -> tuple[Word, ...]:
    return tuple(Word(word, i * 0.5, i * 0.5 + 0.4, 0.5) for i, word in enumerate(text.split()))


FINALS = [
    Heard("final", 0.0, 1.0, words("the line")),
    Heard("final", 3599.0, 3601.0, (Word("her", 3599.9996, 3600.4), Word("hull", 3600.5, 3601.0))),
]


def written(response_format: str, **marks: bool) -> str:
    asked = TranscriptionRequest("r", np.zeros(8000, np.float32), 8000, response_format, **marks)
    return transcript(asked, FINALS).decode()


def test_each_format_of_a_transcription_has_its_shape() -> None:
    assert written("text") == "the line her hull\n"
    assert json.loads(written("json")) == {"text": "the line her hull", "usage": {"type": "duration", "seconds": 1.0}}
    assert written("srt").split("\n\n")[1] == "2\n01:00:00,000 --> 01:00:01,000\nher hull\n"
    assert written("vtt").startswith("WEBVTT\n\n00:00:00.000 --> 00:00:00.900\nthe line\n\n")
    verbose = json.loads(written("verbose_json", words=True))
    assert verbose["words"][1] == {"word": "line", "start": 0.5, "end": 0.9}
    assert [segment["text"] for segment in verbose["segments"]] == ["the line", "her hull"]
    assert verbose["segments"][0]["avg_logprob"] == pytest.approx(np.log(0.5))
    assert "words" not in json.loads(written("verbose_json"))
