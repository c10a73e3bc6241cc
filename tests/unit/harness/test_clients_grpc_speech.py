"""Speech over gRPC: what is sent first, how audio follows, and what a service's messages come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols import google, plimsoll_speech, riva, vosk_grpc
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.protocols._speech.grpc_speech import Recognition, Synthesis
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.dialogue import ENDPOINT, NOTHING
from plimsoll.scenarios.samples.clip import Clip, Word
from plimsoll.scenarios.samples.payload import Payload
from plimsoll.slo.records.records import Status
from tests.finished import MS, finished

V1 = shipped("google_speech_v1").message("google.cloud.speech.v1.StreamingRecognizeResponse")
V2 = shipped("google_speech_v2").message("google.cloud.speech.v2.StreamingRecognizeResponse")
RIVA = shipped("riva_asr").message("nvidia.riva.asr.StreamingRecognizeResponse")
VOSK = shipped("vosk").message("vosk.stt.v1.StreamingRecognitionResponse")
OURS = shipped("plimsoll_speech").message("plimsoll.speech.v1.RecogniseResponse")
RECOGNIZER = "projects/p/locations/eu/recognizers/_"
CLIP = Clip(np.arange(4000, dtype=np.int16), 16000, 50 * MS, 200 * MS, "one two", (Word("one", 50 * MS, 100 * MS),
    Word("two", 110 * MS, 200 * MS)), "clean")  # fmt: skip
SPOKEN = Payload(data={"clip": CLIP}, media_ns=250 * MS)
MAKERS: dict[str, Callable[[Target], Recognition]] = {
    "google-speech": google.recognition,
    "riva-asr": riva.recognition,
    "vosk-grpc": vosk_grpc.recognition,
    "plimsoll-speech": plimsoll_speech.recognition,
}
VOICES: dict[str, Callable[[Target], Synthesis]] = {
    "google-tts": google.synthesis,
    "riva-tts": riva.synthesis,
    "plimsoll-speech-tts": plimsoll_speech.synthesis,
}


def recognition(protocol: str, **options: Any) -> Recognition:
    return MAKERS[protocol](Target("grpc://h:1", protocol, "best", (("authorization", "Bearer x"),), options))


def voice(protocol: str, **options: Any) -> Synthesis:
    return VOICES[protocol](Target("grpc://h:1", protocol, "", (), options))


def over(protocol: str, reads: Sequence[Any], input_end_ms: float = 100, **options: Any) -> Exchange:
    """A session whose microphone began at 0; message i arrived at (i + 1) ms. Settled."""
    exchange = finished([one if isinstance(one, bytes) else one.SerializeToString() for one in reads], 0, None)
    stamps = exchange.session = SessionStamps()
    stamps.open_ns = stamps.media_start_ns = 0
    stamps.speech_start_ns, stamps.speech_end_ns = 0, 2 * MS
    stamps.input_end_ns, stamps.pace = round(input_end_ms * MS), 1
    exchange.request = type("P", (), {"call": type("C", (), {"clip": CLIP})()})()
    recognition(protocol, **options).settle(exchange)
    return exchange


# -- what is sent
# -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", MAKERS)
def test_the_configuration_goes_first_and_audio_follows_as_a_microphone_gives_it(protocol: str) -> None:
    request = recognition(protocol, finish="close").encode(SPOKEN)
    assert (request.opening, request.client_streaming, request.server_streaming) == (1, True, True)
    assert len(request.messages) == 1 + 3
    assert request.due_ns == (0, 100 * MS, 200 * MS, 250 * MS)
    assert (request.closing_due_ns, request.needed, request.pace, request.frame_ns) == (250 * MS, 3, 1, 100 * MS)
    assert request.clip is not None
    assert request.clip.slice == "clean"
    assert request.media_ns == 250 * MS
    assert ("authorization", "Bearer x") in request.metadata
    assert "Bearer" not in repr(request)


def test_silence_follows_until_the_service_ends_the_utterance() -> None:
    dialect = recognition("plimsoll-speech", endpointing_ms=500)
    request = dialect.encode(SPOKEN)
    assert request.closing_due_ns == 2_250 * MS  # 250 ms of clip, 500 ms of endpointing, 1.5 s of patience
    assert request.needed == 3
    x = finished([OURS(event=2).SerializeToString()])
    x.session = SessionStamps()
    x.session.speech_end_ns = 2 * MS
    assert dialect.hear(x, bytes(x.body)) == NOTHING  # it came before the speaker had finished
    x.mark_ns[0] = 3 * MS
    assert dialect.hear(x, bytes(x.body)) == ENDPOINT
    assert dialect.hear(x, OURS(event=1).SerializeToString()) == NOTHING
    assert dialect.hear(x, b"\xff") == NOTHING
    for options in ({"finish": "close"}, {"single_utterance": True}, {"audio": {"until_endpoint": False}}):
        assert not hasattr(recognition("plimsoll-speech", **options), "hear")


def first_of(kind: Any, protocol: str, **options: Any) -> Any:
    return kind.FromString(recognition(protocol, **options).encode(SPOKEN).messages[0])


def test_googles_two_versions_say_the_same_in_other_places() -> None:
    options: dict[str, Any] = {"punctuate": True, "speech_end_timeout": "800ms", "language": "de-DE"}
    one = first_of(
        shipped("google_speech_v1").message("google.cloud.speech.v1.StreamingRecognizeRequest"),
        "google-speech",
        **options,
    )
    two = first_of(
        shipped("google_speech_v2").message("google.cloud.speech.v2.StreamingRecognizeRequest"),
        "google-speech", api="v2", recognizer=RECOGNIZER, **options,
    )  # fmt: skip
    config = one.streaming_config
    assert (config.config.encoding, config.config.sample_rate_hertz, config.config.language_code) == (1, 16000, "de-DE")
    assert (config.config.model, config.interim_results, config.enable_voice_activity_events) == ("best", True, True)
    assert config.voice_activity_timeout.speech_end_timeout.nanos == 800_000_000
    other, features = two.streaming_config.config, two.streaming_config.streaming_features
    explicit = other.explicit_decoding_config
    assert (two.recognizer, explicit.encoding, explicit.sample_rate_hertz) == (RECOGNIZER, 1, 16000)
    assert (list(other.language_codes), other.model) == (["de-DE"], "best")
    assert (features.interim_results, features.enable_voice_activity_events) == (True, True)
    assert features.voice_activity_timeout.speech_end_timeout.nanos == 800_000_000


def test_v2_is_routed_by_its_recognizer() -> None:
    request = recognition("google-speech", api="v2", recognizer=RECOGNIZER).encode(SPOKEN)
    assert ("x-goog-request-params", "recognizer=projects%2Fp%2Flocations%2Feu%2Frecognizers%2F_") in request.metadata


def test_riva_is_told_its_endpointing_and_whatever_else() -> None:
    kind = shipped("riva_asr").message("nvidia.riva.asr.StreamingRecognizeRequest")
    options = {"endpointing": {"stop_history": 800, "stop_threshold": 0.5}, "custom": {"a": "b"}, "word_times": True}
    config = first_of(kind, "riva-asr", encoding="ALAW", sample_rate=8000, **options).streaming_config.config
    assert (config.encoding, config.sample_rate_hertz, config.model) == (20, 8000, "best")
    assert (config.endpointing_config.stop_history, dict(config.custom_configuration)) == (800, {"a": "b"})
    assert not config.endpointing_config.HasField("start_history")
    assert recognition("riva-asr", **options).encode(SPOKEN).closing_due_ns == (250 + 800 + 1500) * MS


def test_a_frame_above_googles_limit_is_refused_before_any_load() -> None:
    clip = Clip(np.zeros(48_000, np.int16), 16_000)
    with pytest.raises(HarnessFault, match=r"has 32,000 bytes and Google Speech takes 25,600. Give shorter frames"):
        recognition("google-speech", audio={"frame": "1s"}).encode(Payload(data={"clip": clip}))
    with pytest.raises(HarnessFault, match=r"google-speech: the payload has no audio. Use a source of kind audio"):
        recognition("google-speech").encode(Payload(prompt="x"))


# -- what comes back
# ----------------------------------------------------------------------------------------------------


def result(text: str, final: bool = False, **more: Any) -> dict[str, Any]:
    return {"alternatives": [{"transcript": text}], "is_final": final, **more}


def test_pieces_of_one_hypothesis_are_one_text_and_finals_follow_each_other() -> None:
    x = over(
        "google-speech",
        [
            V1(results=[result("one", stability=0.9), result(" to")]),
            V1(results=[result("one two", True, result_end_time={"seconds": 2})]),
            V1(results=[result("three")]),
            V1(speech_event_type=3),
            V1(results=[result("free", True)]),
        ],
    )
    assert x.session is not None
    assert (x.status, x.error) == (Status.OK, None)
    assert (x.session.n_partials, x.session.n_revised) == (2, 2)  # to -> two, three -> free
    assert (x.session.first_partial_ns, x.session.first_final_ns, x.session.final_ns) == (MS, 2 * MS, 5 * MS)
    assert x.session.chunk_cursor_ns[1] == 2_000 * MS
    assert x.session.endpoint_ns == 4 * MS
    assert (x.session.words, x.session.word_errors) == (2, 1)  # "one two free" for "one two"


def test_version_two_and_our_own_service_are_read_too() -> None:
    two = over(
        "google-speech",
        [V2(results=[result("one two", True, result_end_offset={"nanos": 5})]), V2(speech_event_type=3),
            V2(speech_event_type=3)],
        api="v2", recognizer=RECOGNIZER,
    )  # fmt: skip
    ours = over(
        "plimsoll-speech",
        [OURS(result={"transcript": "one"}), OURS(event=2), OURS(result={"transcript": "one two", "is_final": True,
            "end_s": 0.5})],
    )  # fmt: skip
    for x in (two, ours):
        assert x.session is not None
        assert (x.status, x.session.word_errors) == (Status.OK, 0)
        assert x.session.endpoint_ns == 2 * MS
    assert ours.session is not None
    assert ours.session.chunk_cursor_ns[-1] == 500 * MS


@pytest.mark.parametrize(
    ("protocol", "final"),
    [
        ("riva-asr", RIVA(results=[result("one two", True, audio_processed=0.25)])),
        ("vosk-grpc", VOSK(chunks=[{"alternatives": [{"text": "one two"}], "final": True, "end_of_utterance": True}])),
    ],
)
def test_a_final_result_is_an_endpoint_only_while_we_still_send(protocol: str, final: Any) -> None:
    early, late = over(protocol, [final, final], input_end_ms=2), over(protocol, [b"", final], input_end_ms=1.5)
    assert early.session is not None
    assert late.session is not None
    assert early.session.endpoint_ns == 2 * MS  # the first came while the speaker spoke
    assert early.session.false_endpoints == 1
    assert (late.session.endpoint_ns, late.session.final_ns) == (-1, 2 * MS)


def test_riva_says_how_far_it_got() -> None:
    x = over("riva-asr", [RIVA(results=[result("one", audio_processed=0.125), result(" two", audio_processed=0.25)])])
    assert x.session is not None
    assert list(x.session.chunk_cursor_ns) == [250 * MS]


def test_googles_error_in_a_message_fails_the_session_and_keeps_what_came() -> None:
    for code, status in ((11, Status.GRPC), (8, Status.REFUSED)):
        x = over("google-speech", [V1(results=[result("one")]), V1(error={"code": code, "message": "why"})])
        assert (Status(x.status), x.n_chunks) == (status, 1)
        assert "why" in (x.error or "")


@pytest.mark.parametrize("protocol", MAKERS)
@given(reads=st.lists(st.binary(max_size=20), max_size=5))
def test_no_bytes_break_reading(protocol: str, reads: list[bytes]) -> None:
    x = over(protocol, reads)
    assert bool(x.error) is (x.status != Status.OK)
    assert x.n_chunks <= len(reads) * 4


# -- voices
# -------------------------------------------------------------------------------------------------------------


def test_text_goes_out_whole_or_word_by_word() -> None:
    kind: Any = shipped("google_tts").message("google.cloud.texttospeech.v1.StreamingSynthesizeRequest")
    whole = voice("google-tts", voice="v").encode(Payload(prompt="one two three"))
    config, text = (kind.FromString(data) for data in whole.messages)
    assert (config.streaming_config.voice.name, config.streaming_config.streaming_audio_config.audio_encoding) == (
        "v",
        7,
    )
    assert (text.input.text, whole.due_ns, whole.opening) == ("one two three", (), 1)
    fed = voice("google-tts", words_per_second=10.0).encode(Payload(prompt="one two three"))
    assert fed.due_ns == (0, 0, 100 * MS, 200 * MS)
    assert "".join(kind.FromString(data).input.text for data in fed.messages[1:]) == "one two three"
    long = voice("google-tts").encode(Payload(prompt="word " * 600))
    assert max(len(data) for data in long.messages) < 5000
    assert len(voice("riva-tts").encode(Payload(prompt="word " * 3000)).messages) == 1
    with pytest.raises(HarnessFault, match="no text to say"):
        voice("riva-tts").encode(Payload())


@pytest.mark.parametrize("protocol", VOICES)
def test_audio_is_stamped_and_a_success_without_any_is_a_failure(protocol: str) -> None:
    name, field = {
        "google-tts": ("google.cloud.texttospeech.v1.StreamingSynthesizeResponse", "audio_content"),
        "riva-tts": ("nvidia.riva.tts.SynthesizeSpeechResponse", "audio"),
        "plimsoll-speech-tts": ("plimsoll.speech.v1.SynthesiseResponse", "audio"),
    }[protocol]
    sets = {"google-tts": "google_tts", "riva-tts": "riva_tts", "plimsoll-speech-tts": "plimsoll_speech"}
    kind: Any = shipped(sets[protocol]).message(name)
    sound = (8000 * np.sin(np.arange(2400) / 8)).astype("<i2").tobytes()
    options = {"sample_rate": 24_000}
    x = finished(
        [kind(**{field: sound}).SerializeToString(), b"", kind(**{field: sound[:99]}).SerializeToString()], 0, None
    )
    voice(protocol, **options).settle(x)
    assert x.session is not None
    assert (x.status, x.n_chunks, x.session.media_out_ns) == (Status.OK, 2, (2449 * 1_000_000_000 + 12_000) // 24_000)
    assert (x.session.first_audio_ns, x.session.input_end_ns) == (MS, 0)
    silent = finished([b""], 0, None)
    voice(protocol, **options).settle(silent)
    assert (Status(silent.status), silent.error) == (Status.PROTOCOL, "the call ended without any audio")
    torn = finished([kind(**{field: sound}).SerializeToString(), b"\xff"], 0, None)
    voice(protocol, **options).settle(torn)
    assert (Status(torn.status), torn.n_chunks) == (Status.PROTOCOL, 1)
