"""Samples become wire bytes and come back: exact where the codec is, held against other people's encoders where one is
there. A few bytes of silence decode to minutes of it: what a server can make us decode is bounded, and said.
"""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import plimsoll.harness.protocols._speech.codecs
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.protocols._speech import codecs
from plimsoll.harness.protocols._speech.codecs import (
    BrokenAudio,
    BrokenOgg,
    Demuxer,
    checksum,
    decodable,
    decoder,
    encodable,
    encode_file,
    encode_frames,
    file_bytes,
    opus_packets,
    page,
)
from plimsoll.harness.protocols._speech.sending import Pace, frame_schedule
from plimsoll.scenarios.media.sound import alaw_decoded, alaw_encoded, mulaw_decoded, mulaw_encoded, wav_bytes

Int16 = npt.NDArray[np.int16]
EVERY = np.arange(-32768, 32768).astype(np.int16)
CODES = np.arange(256).astype(np.uint8)


def tone(rate: int, seconds: float = 0.5, hz: float = 440.0) -> Int16:
    return (9000 * np.sin(2 * np.pi * hz / rate * np.arange(round(rate * seconds)))).astype(np.int16)


def murmur(rate: int, seconds: float) -> Int16:
    """Low noise, the same sound at any rate: unlike a tone it is like itself at one shift alone."""
    at = np.arange(round(rate * seconds)) / rate
    rng = np.random.default_rng(3)
    waves = [
        np.sin(2 * np.pi * hz * at + turn)
        for hz, turn in zip(rng.uniform(100, 1500, 40), rng.uniform(0, 6, 40), strict=True)
    ]
    return (900 * np.sum(waves, axis=0)).astype(np.int16)


def framed(codec: str, pcm: Int16, rate: int, frame_ms: float = 20) -> tuple[bytes, ...]:
    return encode_frames(codec, pcm, rate, frame_schedule(len(pcm), rate, frame_ms, Pace()).bounds)


def decoded(codec: str, rate: int, pieces: Any) -> tuple[Int16, int]:
    made = decoder(codec, rate)
    parts = [made.feed(piece) for piece in pieces]
    return np.concatenate([*parts, made.finish()]), made.rate


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def likeness(one: Int16, other: Int16, most_shift: int) -> tuple[float, int]:
    """The best correlation of two recordings over shifts of up to so many samples, and that shift."""
    n = min(len(one), len(other)) - 2 * most_shift
    middle = one[most_shift : most_shift + n].astype(float)
    scores = {
        shift: float(np.corrcoef(middle, other[most_shift + shift : most_shift + shift + n].astype(float))[0, 1])
        for shift in range(-most_shift, most_shift + 1)
    }
    best = max(scores, key=lambda shift: scores[shift])
    return scores[best], best


# -- G.711 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "mulaw", "alaw"),
    [
        (0, 0xFF, 0xD5),
        (32767, 0x80, 0xAA),
        (-32768, 0x00, 0x2A),
        (1000, 0xCE, 0xFA),
        (-1000, 0x4E, 0x7A),
        (8, 0xFE, 0xD5),
        (-8, 0x7E, 0x55),
    ],
)
def test_g711_codes_are_the_published_ones(sample: int, mulaw: int, alaw: int) -> None:
    one = np.array([sample], np.int16)
    assert (int(mulaw_encoded(one)[0]), int(alaw_encoded(one)[0])) == (mulaw, alaw)


def test_g711_codes_decode_to_the_ends_of_the_published_tables() -> None:
    assert mulaw_decoded(np.array([0x00, 0x80, 0x7F, 0xFF, 0x7E], np.uint8)).tolist() == [-32124, 32124, 0, 0, -8]
    assert alaw_decoded(np.array([0x2A, 0xAA, 0xD5, 0x55], np.uint8)).tolist() == [-32256, 32256, 8, -8]


def test_every_g711_code_survives_a_round_trip_but_minus_zero() -> None:
    assert np.flatnonzero(mulaw_encoded(mulaw_decoded(CODES)) != CODES).tolist() == [0x7F]
    assert (alaw_encoded(alaw_decoded(CODES)) == CODES).all()


def test_g711_errors_are_half_a_step_at_most() -> None:
    for encoded, made, least in ((mulaw_encoded, mulaw_decoded, 8), (alaw_encoded, alaw_decoded, 16)):
        error = np.abs(made(encoded(EVERY)).astype(int) - EVERY)
        inside = np.abs(EVERY.astype(int)) < 32_000
        assert (error[inside] <= np.maximum(least, np.abs(EVERY.astype(int))[inside] / 16 * 0.6 + 4)).all()


def test_g711_agrees_with_libsndfile() -> None:
    soundfile = pytest.importorskip("soundfile", reason="the speech extra isn't installed")
    for subtype, encoded, made in (("ULAW", mulaw_encoded, mulaw_decoded), ("ALAW", alaw_encoded, alaw_decoded)):
        file = io.BytesIO()
        soundfile.write(file, EVERY, 8000, format="RAW", subtype=subtype)
        theirs = np.frombuffer(file.getvalue(), np.uint8)
        # libsndfile mirrors the positive table; the recommendation shifts negative numbers by one step. They part only
        # where a sample lies exactly between two codes.
        differ = np.flatnonzero(encoded(EVERY) != theirs)
        assert (EVERY[differ] <= 0).all()
        assert (EVERY[differ] % 16 == 0).all()
        assert len(differ) <= 127
        read = soundfile.read(
            io.BytesIO(CODES.tobytes()), samplerate=8000, channels=1, format="RAW", subtype=subtype, dtype="int16"
        )
        assert np.array_equal(read[0], made(CODES))


# -- linear frames ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "bytes_each"), [("pcm16", 2), ("mulaw", 1), ("alaw", 1), ("float32", 4)])
@pytest.mark.parametrize("rate", [8000, 22_050, 44_100])
def test_frames_put_together_are_the_whole_recording_encoded(codec: str, bytes_each: int, rate: int) -> None:
    pcm = tone(rate, 0.333)
    frames = framed(codec, pcm, rate)
    assert len(frames) == 17
    assert [len(frame) for frame in frames[:-1]] == [rate // 50 * bytes_each] * 16
    assert b"".join(frames) == encode_file(codec, pcm, rate)


@pytest.mark.parametrize("codec", ["pcm16", "float32"])
@pytest.mark.parametrize("size", [1, 3, 640, 10**6])
def test_exact_codecs_give_every_sample_back_however_the_bytes_are_cut(codec: str, size: int) -> None:
    sparse = EVERY[::7]
    got, rate = decoded(codec, 16_000, cut(encode_file(codec, sparse, 16_000), size))
    assert np.array_equal(got, sparse)
    assert rate == 16_000


def test_pcm16_is_little_endian() -> None:
    assert framed("pcm16", np.array([1, -2], np.int16), 16_000) == (b"\x01\x00\xfe\xff",)


def test_received_floats_that_are_no_numbers_or_too_loud_do_no_harm() -> None:
    sent = np.array([np.nan, np.inf, -np.inf, 2.0, -2.0, 0.5], "<f4").tobytes()
    got, _ = decoded("float32", 8000, [sent])
    assert got.tolist() == [0, 32767, -32768, 32767, -32768, 16384]


# -- WAV --------------------------------------------------------------------------------------------------------


def test_a_wav_file_of_ours_is_read_by_the_standard_library() -> None:
    import wave

    pcm = tone(44_100, 0.1)
    with wave.open(io.BytesIO(encode_file("wav", pcm, 44_100))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate(), file.getnframes()) == (
            1,
            2,
            44_100,
            4410,
        )
        assert np.array_equal(np.frombuffer(file.readframes(9999), "<i2"), pcm)


@pytest.mark.parametrize("size", [1, 7, 44, 45, 5000])
def test_a_streamed_wav_of_unknown_length_is_decoded_as_it_comes(size: int) -> None:
    pcm = tone(24_000, 0.1)
    stream = b"".join(framed("wav", pcm, 24_000))
    assert stream[4:8] == stream[40:44] == b"\xff\xff\xff\xff"
    got, rate = decoded("wav", 0, cut(stream, size))
    assert np.array_equal(got, pcm)
    assert rate == 24_000


@pytest.mark.parametrize("claimed", [0, 0x7FFFFFFF, 0xFFFFFFFF, 10**9])
def test_a_bogus_length_in_a_wav_header_loses_no_sound(claimed: int) -> None:
    pcm = tone(16_000, 0.05)
    sent = bytearray(wav_bytes(pcm, 16_000))
    sent[40:44] = claimed.to_bytes(4, "little")
    assert np.array_equal(decoded("wav", 0, [bytes(sent)])[0], pcm)


def test_chunks_around_the_sound_of_a_wav_are_not_played() -> None:
    pcm = tone(16_000, 0.05)
    plain = wav_bytes(pcm, 16_000)
    sent = plain[:12] + b"LIST\x03\x00\x00\x00abc\x00" + plain[12:] + b"LIST\x04\x00\x00\x00abcd"
    for size in (1, 50, 10_000):
        assert np.array_equal(decoded("wav", 0, cut(sent, size))[0], pcm)


@pytest.mark.parametrize("broken", [b'{"error": "no"}', b"RIFX" + bytes(60), b"RIFF" + bytes(60), b"\xff\xfb\x90"])
def test_what_is_no_wav_is_broken_audio(broken: bytes) -> None:
    with pytest.raises(BrokenAudio, match="no WAV"):
        decoded("wav", 0, [broken])


def test_a_wav_that_ends_inside_its_header_is_broken_audio() -> None:
    with pytest.raises(BrokenAudio, match="inside its header, after 20 bytes"):
        decoded("wav", 0, [wav_bytes(tone(8000), 8000)[:20]])
    assert len(decoded("wav", 0, [])[0]) == 0


# -- Opus -------------------------------------------------------------------------------------------------------

needs_av = pytest.mark.skipif(find_spec("av") is None, reason="the speech extra isn't installed")


@needs_av
@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("frame_ms", [20, 60, 100])
def test_opus_is_one_packet_a_frame_and_sounds_alike(rate: int, frame_ms: int) -> None:
    pcm = murmur(rate, 0.63)
    frames = framed("opus", pcm, rate, frame_ms)
    assert len(frames) == -(-630 // frame_ms)
    got, decoded_rate = decoded("opus", 0, frames)
    assert decoded_rate == 48_000
    assert len(got) == len(frames) * frame_ms * 48
    score, shift = likeness(murmur(48_000, 0.6), got[: 48 * 600], 400)
    assert score > 0.8
    assert abs(shift - 312) <= 6  # the decoder is late by the encoder's look-ahead


@needs_av
def test_twenty_milliseconds_of_opus_are_some_sixty_bytes() -> None:
    noise = np.random.default_rng(1).normal(0, 3000, 16_000).astype(np.int16)
    sizes = [len(frame) for frame in framed("opus", noise, 16_000)]
    assert 40 < np.mean(sizes) < 80


@needs_av
def test_ogg_opus_has_one_packet_a_page_and_is_read_by_libsndfile_to_the_sample() -> None:
    soundfile = pytest.importorskip("soundfile", reason="the speech extra isn't installed")
    pcm = murmur(16_000, 0.505)
    frames = framed("ogg-opus", pcm, 16_000)
    assert len(frames) == 26
    assert [frame.count(b"OggS") for frame in frames] == [3] + [1] * 25
    samples, rate = soundfile.read(io.BytesIO(b"".join(frames)), dtype="int16")
    assert (rate, len(samples)) in {(48_000, 24_240), (16_000, 8080)}
    assert likeness(murmur(rate, 0.505), samples, 20) == (pytest.approx(1, abs=0.2), pytest.approx(0, abs=4))


@needs_av
@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_ogg_opus_comes_back_without_look_ahead_or_filling(size: int) -> None:
    pcm = murmur(24_000, 0.505)
    got, rate = decoded("ogg-opus", 0, cut(encode_file("ogg-opus", pcm, 24_000), size))
    assert (rate, len(got)) == (48_000, 24_240)
    score, shift = likeness(murmur(48_000, 0.505), got, 20)
    assert (score > 0.8, abs(shift) <= 4) == (True, True)


@needs_av
def test_ogg_opus_of_other_encoders_is_decoded() -> None:
    soundfile = pytest.importorskip("soundfile", reason="the speech extra isn't installed")
    file = io.BytesIO()
    soundfile.write(file, murmur(48_000, 0.5), 48_000, format="OGG", subtype="OPUS")
    got, _ = decoded("ogg-opus", 0, cut(file.getvalue(), 333))
    assert len(got) == 24_000
    assert likeness(murmur(48_000, 0.5), got, 10)[0] > 0.8


@needs_av
def test_ogg_opus_sends_the_look_aheads_packet_only_when_sound_is_in_it() -> None:
    full = framed("ogg-opus", murmur(16_000, 0.5), 16_000)  # no silence fills the last frame
    assert [frame.count(b"OggS") for frame in full] == [3] + [1] * 23 + [2]
    assert len(decoded("ogg-opus", 0, full)[0]) == 24_000


@needs_av
def test_a_clip_shorter_than_a_frame_is_one_opus_packet() -> None:
    assert len(framed("opus", tone(16_000, 0.013), 16_000)) == 1
    assert framed("opus", np.zeros(0, np.int16), 16_000) == ()


@needs_av
def test_opus_refuses_rates_and_frames_that_it_has_not() -> None:
    with pytest.raises(HarnessFault) as caught:
        framed("opus", tone(44_100), 44_100, 30)
    assert caught.value.errors == [
        "target.options.rate: opus has no 44100 Hz. Use one of 8000, 12000, 16000, 24000, 48000",
        "target.options.frame: opus has no frames of 30 ms. Use one of 2.5, 5, 10, 20, 40, 60, 80, 100, 120",
    ]
    assert codecs.codec_problems("opus", 16_000, 20) == []
    assert codecs.codec_problems("pcm16", 22_050, 33) == []


@needs_av
@pytest.mark.parametrize(("codec", "format_", "late"), [("flac", "FLAC", 0), ("mp3", "MP3", 2000), ("aac", None, 3000)])
def test_files_of_other_codecs_come_back(codec: str, format_: str | None, late: int) -> None:
    pcm = tone(16_000, 1.0)
    data = encode_file(codec, pcm, 16_000)
    for size in (100, 10**6):
        got, rate = decoded(codec, 0, cut(data, size))
        assert rate == 16_000
        assert len(pcm) <= len(got) <= len(pcm) + 2 * late
        if codec == "flac":
            assert np.array_equal(got, pcm)
        else:
            assert abs(np.abs(got[4000:12_000]).mean() / np.abs(pcm).mean() - 1) < 0.05
    if format_ is not None:
        soundfile = pytest.importorskip("soundfile", reason="the speech extra isn't installed")
        assert soundfile.info(io.BytesIO(data)).format == format_


@needs_av
@pytest.mark.parametrize("codec", ["mp3", "aac", "ogg-opus", "wav", "mulaw"])
def test_sound_comes_out_as_its_bytes_come_in(codec: str) -> None:
    data = encode_file(codec, murmur(16_000, 4), 16_000)
    made, seconds = decoder(codec, 16_000), []
    for piece in cut(data, 250):
        samples = made.feed(piece)
        seconds.append(len(samples) / made.rate if made.rate else 0.0)
    came, ideal = np.cumsum(seconds), np.arange(1, len(seconds) + 1) / len(seconds) * 4
    # Encoders hold back a little, and variable rates bend the line.
    assert np.abs(came - ideal).max() < 0.35
    assert next(i for i, each in enumerate(seconds) if each) <= 4


@needs_av
@pytest.mark.parametrize("codec", ["ogg-opus", "opus", "mp3", "aac", "flac", "wav"])
def test_garbage_raises_nothing_but_broken_audio(codec: str) -> None:
    rng = np.random.default_rng(7)
    for n in (1, 3, 30, 3000):
        for start in (b"", b"OggS", b"RIFF", b"ID3\x04\x00\x00\x00\x00\x00\x05", b"\xff\xfb\x90\x00", b"fLaC"):
            try:
                got, _ = decoded(codec, 0, cut(start + rng.bytes(n), 64))
            except BrokenAudio as error:
                assert str(error)  # noqa: PT017 - not raising is as good
            else:
                assert got.dtype == np.int16


# -- names ------------------------------------------------------------------------------------------------------


def test_an_unknown_codec_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        HarnessFault, match=r"target.options.codec: 'gsm' is unknown. Use one of pcm16, mulaw, alaw, .*opus"
    ):
        framed("gsm", tone(8000), 8000)
    with pytest.raises(HarnessFault, match="'gsm' is unknown"):
        decoder("gsm", 8000)
    with pytest.raises(HarnessFault, match="'gsm' is unknown"):
        encode_file("gsm", tone(8000), 8000)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for use in (
        lambda: framed("opus", tone(8000), 8000),
        lambda: decoder("mp3", 8000),
        lambda: encode_file("flac", EVERY, 8000),
    ):
        with pytest.raises(HarnessFault, match=r"needs the library av.*pip install plimsoll-slo\[speech\]"):
            use()
    assert len(framed("mulaw", tone(8000), 8000)) == 25


def test_live_codecs_can_be_received_too() -> None:
    assert set(encodable()) <= set(decodable())


# -- Ogg --------------------------------------------------------------------------------------------------------


def test_the_checksum_of_a_page_is_oggs() -> None:
    # The generator polynomial itself is what a single one bit leaves behind.
    assert checksum(b"") == 0
    assert checksum(b"\x01") == 0x04C11DB7
    assert checksum(b"\x00\x00\x01") == 0x04C11DB7


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 510, 65_024])
def test_a_packet_of_any_size_goes_through_a_page(size: int) -> None:
    packet = bytes(range(256)) * 255
    made = page(packet[:size], 960, 2, last=True)
    demuxer = Demuxer()
    assert [got for piece in cut(made, 1000) for got in demuxer.feed(piece)] == [packet[:size]]
    assert (demuxer.granule, demuxer.ended) == (960, True)


def test_a_packet_over_two_pages_is_put_together_and_other_streams_are_passed_over() -> None:
    first = page(b"x" * 255, -1, 0, first=True)
    first = first[:26] + b"\x01\xff" + first[29:]  # a lacing of 255 alone: it goes on
    second = page(b"yy", 7, 1)
    second = second[:5] + b"\x01" + second[6:]
    other = page(b"other", 9, 0)
    other = other[:14] + b"\x09" + other[15:]
    assert Demuxer().feed(first + other + second) == [b"x" * 255 + b"yy"]


def test_what_is_no_page_is_broken() -> None:
    with pytest.raises(BrokenOgg, match="not OggS"):
        Demuxer().feed(b"x" * 30)


# -- bombs ----------------------------------------------------------------------------------------------------------

SILENCE = np.zeros(48_000, np.int16)


def test_opus_packets_without_end_are_given_up_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.harness.protocols._speech.codecs, "MAX_SAMPLES", 100_000)
    packet = opus_packets(SILENCE, 48_000, 5760)[3]
    play = decoder("opus", 48_000)
    heard = sum(len(play.feed(packet)) for _ in range(100_000 // 5760))
    assert heard == 100_000 // 5760 * 5760
    with pytest.raises(BrokenAudio, match="decodes to more than 100000 samples"):
        play.feed(packet)


def test_one_piece_of_flac_that_holds_minutes_is_given_up_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plimsoll.harness.protocols._speech.codecs, "MAX_SAMPLES", 100_000)
    data = file_bytes("flac", np.zeros(48_000 * 60, np.int16), 48_000)
    play = decoder("flac", 48_000)

    def heard() -> int:
        return len(play.feed(data)) + len(play.finish())

    with pytest.raises(BrokenAudio, match="decodes to more than 100000 samples"):
        heard()
