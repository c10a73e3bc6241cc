"""Samples as bytes and WAV files: the published code points of G.711, every format there and back, and one clear error
for the rest. Forms are read exactly or refused; what was heard is written in each format; speech is asked for by
name.
"""

from __future__ import annotations

import contextlib
import json
import struct
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
from plimsoll.reference_server.speech import audio
from plimsoll.reference_server.speech.audio import AudioError, SampleReader, write_wav
from plimsoll.reference_server.speech.resample import Resampler, kernel
from plimsoll.reference_server.transports.fields import Fields
from plimsoll.reference_server.values.errors import RequestError

WAVE = np.sin(np.arange(800) / 7).astype(np.float32) * np.float32(0.8)
STEP = 1 / 32768


def steps(samples: audio.Audio) -> list[int]:
    return np.rint(samples * 32768).astype(int).tolist()


def test_mu_law_has_the_code_points_of_the_standard() -> None:
    codes = bytes([0x00, 0x7F, 0x80, 0xFF, 0x0F, 0x10, 0xEF])
    assert steps(audio.mulaw_to_float(codes)) == [-32124, 0, 32124, 0, -16764, -15996, 132]


def test_a_law_has_the_code_points_of_the_standard() -> None:
    codes = bytes([0xD5, 0x55, 0xAA, 0x2A, 0xD4, 0x54])
    assert steps(audio.alaw_to_float(codes)) == [8, -8, 32256, -32256, 24, -24]


@pytest.mark.parametrize("law", ["mulaw", "alaw"])
def test_every_g711_code_is_its_own_nearest(law: str) -> None:
    codes = bytes(range(256))
    values = audio.decode(law, codes)
    back = audio.decode(law, audio.encode(law, values))
    assert np.array_equal(back, values)


@pytest.mark.parametrize("law", ["mulaw", "alaw"])
def test_g711_is_off_by_a_32nd_of_the_sample_at_most(law: str) -> None:
    every = (np.arange(-32635, 32636) / 32768).astype(np.float32)
    off = np.abs(audio.decode(law, audio.encode(law, every)) - every)
    assert (off <= np.abs(every) / 31 + 8 * STEP).all()


@pytest.mark.parametrize(
    ("encoding", "off"), [("linear16", STEP / 2), ("mulaw", 0.017), ("alaw", 0.017), ("float32", 0.0)]
)
def test_encoding_and_decoding_loses_half_a_step_at_most(encoding: str, off: float) -> None:
    assert np.abs(audio.decode(encoding, audio.encode(encoding, WAVE)) - WAVE).max() <= off


def test_too_loud_is_clipped_and_never_wraps() -> None:
    loud = np.array([1.5, -1.5, 1.0, -1.0], np.float32)
    assert steps(audio.pcm16_to_float(audio.float_to_pcm16(loud))) == [32767, -32768, 32767, -32768]
    for law in ("mulaw", "alaw"):
        assert np.sign(audio.decode(law, audio.encode(law, loud))).tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize(("encoding", "data"), [("linear16", b"abc"), ("float32", b"abcdef")])
def test_half_a_sample_is_refused_with_the_width(encoding: str, data: bytes) -> None:
    with pytest.raises(AudioError, match=f"multiples of {audio.ENCODINGS[encoding]} bytes"):
        audio.decode(encoding, data)
    with pytest.raises(AudioError, match="even number"):
        audio.pcm16_to_float(b"abc")


def test_floats_that_are_no_numbers_are_refused() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(AudioError, match="finite"):
            audio.decode("float32", struct.pack("<f", value))


@pytest.mark.parametrize(
    "call", [lambda: audio.decode("opus", b""), lambda: audio.encode("opus", WAVE), lambda: SampleReader("opus")]
)
def test_an_unknown_encoding_is_named(call: object) -> None:
    with pytest.raises(AudioError, match=r"'opus' is unknown\. Choose from linear16, mulaw"):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("encoding", audio.ENCODINGS)
def test_a_stream_of_bytes_may_be_cut_within_a_sample(encoding: str) -> None:
    data = audio.encode(encoding, WAVE)
    reader = SampleReader(encoding)
    pieces = [reader.feed(data[i : i + 7]) for i in range(0, len(data), 7)]
    reader.end()
    assert np.array_equal(np.concatenate(pieces), audio.decode(encoding, data))


def test_a_stream_that_ends_within_a_sample_says_so() -> None:
    reader = SampleReader("linear16")
    reader.feed(b"\1\2\3")
    with pytest.raises(AudioError, match="ends within a sample"):
        reader.end()


@pytest.mark.parametrize("encoding", audio.ENCODINGS)
def test_a_wav_file_comes_back_as_it_was_written(encoding: str) -> None:
    read, rate = audio.read_wav(audio.write_wav(WAVE[:799], 22_050, encoding=encoding))
    assert rate == 22_050
    assert np.array_equal(read, audio.decode(encoding, audio.encode(encoding, WAVE[:799])))


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF])
def test_a_streamed_header_with_a_size_that_means_nothing_is_read_to_the_end(size: int) -> None:
    head = bytearray(audio.wav_header(8000))
    head[4:8] = head[40:44] = struct.pack("<I", size)
    read, _ = audio.read_wav(bytes(head) + audio.float_to_pcm16(WAVE))
    assert len(read) == len(WAVE)


def test_a_header_without_a_length_is_that_of_a_stream() -> None:
    head = audio.wav_header(24_000)
    assert len(head) == 44
    assert head[4:8] == head[40:44] == b"\xff\xff\xff\xff"


def test_what_follows_the_data_is_no_audio() -> None:
    file = audio.write_wav(WAVE, 8000) + b"LIST\4\0\0\0abcd"
    assert len(audio.read_wav(file)[0]) == len(WAVE)


def test_a_file_cut_off_within_its_data_is_read_as_far_as_it_goes() -> None:
    assert len(audio.read_wav(audio.write_wav(WAVE, 8000)[:-101])[0]) == len(WAVE) - 51


def pcm(values: bytes, bits: int, channels: int = 1, *, extensible: bool = False, before: bytes = b"") -> bytes:
    width = channels * bits // 8
    form = struct.pack("<HHIIHH", 0xFFFE if extensible else 1, channels, 16_000, 16_000 * width, width, bits)
    if extensible:
        form += struct.pack("<HHIH", 22, bits, 0, 1) + bytes.fromhex("000000001000800000aa00389b71")
    return (
        b"RIFF\0\0\0\0WAVE" + before + b"fmt " + struct.pack("<I", len(form)) + form
        + b"data" + struct.pack("<I", len(values)) + values
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bits", "data"),
    [(8, bytes([0, 128, 192])), (16, struct.pack("<3h", -32768, 0, 16384)), (24, b"\0\0\x80\0\0\0\0\0\x40"),
     (32, struct.pack("<3i", -(2**31), 0, 2**30))],
)  # fmt: skip
def test_pcm_of_every_width_has_the_same_full_scale(bits: int, data: bytes) -> None:
    assert audio.read_wav(pcm(data, bits))[0].tolist() == [-1.0, 0.0, 0.5]


def test_channels_are_averaged() -> None:
    stereo = struct.pack("<4h", 16384, 0, -16384, 16384)
    assert audio.read_wav(pcm(stereo, 16, 2))[0].tolist() == [0.25, 0.0]


def test_samples_far_beyond_full_scale_are_heard_as_full_scale_without_a_warning() -> None:
    loud = np.full(8 * 4000, 3e38, np.float32)
    file = audio.write_wav(loud, 16_000, encoding="float32").replace(b"\3\0\1\0", b"\3\0\10\0", 1)  # eight channels
    mixed, sample_rate = audio.read_wav(file)
    assert (len(mixed), sample_rate) == (4000, 16_000)
    heard = Resampler(kernel(sample_rate)).feed(mixed)
    assert heard.tolist() == Resampler(kernel(sample_rate)).feed(np.ones(4000, np.float32)).tolist()


def test_the_extensible_format_and_chunks_of_odd_length_are_read() -> None:
    data = struct.pack("<2h", 16384, -16384)
    assert audio.read_wav(pcm(data, 16, extensible=True, before=b"LIST\3\0\0\0abc\0"))[0].tolist() == [0.5, -0.5]


@pytest.mark.parametrize(
    ("file", "says"),
    [
        (b"", "no WAV"),
        (b"OggS" + bytes(40), "no WAV"),
        (b"RIFF\0\0\0\0WAVE", "no fmt chunk"),
        (pcm(b"", 16)[:-8], "no data chunk"),
        (b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd", "data before its fmt"),
        (b"RIFF\0\0\0\0WAVEfmt \4\0\0\0abcd", "needs 16"),
        (pcm(b"", 12), "12 bits"),
        (pcm(b"", 16, 9), "9 channels"),
        (pcm(b"", 16, 0), "0 channels"),
        (pcm(b"", 16).replace(b"\x10\0\0\0\1\0", b"\x10\0\0\0\x55\0"), "format 85"),
        (pcm(b"", 16).replace(struct.pack("<I", 16_000), bytes(4)), "0 Hz"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(file: bytes, says: str) -> None:
    with pytest.raises(AudioError, match=says):
        audio.read_wav(file)


# -- forms ----------------------------------------------------------------------------------------------------------

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
