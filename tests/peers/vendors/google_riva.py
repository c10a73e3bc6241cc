"""Google's and NVIDIA's SDKs against servers at the given addresses: recognition and speech over gRPC; prints one JSON
object.

``google_riva.py GOOGLE GOOGLE_FAILING GOOGLE_TTS RIVA`` (grpc://host:port each); at the second the call fails with a
status. One process for all, for the imports take seconds. Run by tests/e2e/test_fakes_by_sdk.py in .venv-vendors; not
imported by the suite.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
import riva.client as riva
from google.api_core.exceptions import GoogleAPICallError
from google.cloud import speech_v1, speech_v2, texttospeech_v1
from google.cloud.speech_v1.services.speech.transports import SpeechGrpcTransport as TransportV1
from google.cloud.speech_v2.services.speech.transports import SpeechGrpcTransport as TransportV2
from google.cloud.texttospeech_v1.services.text_to_speech.transports import TextToSpeechGrpcTransport
from typed import show

RATE = 16_000
FRAME = bytes(RATE // 10 * 2)


def unknown(message: Any, at: str = "") -> Iterator[str]:
    """The numbers of fields that the SDK's messages don't know."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    yield from (f"{at}{message.DESCRIPTOR.name}.{field.field_number}" for field in UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]:
                yield from unknown(each, at)


def google(call: Callable[[], Iterable[Any]], known: Any) -> dict[str, Any]:
    """The responses of a recognition; each is [event, [text, final, stability > 0.5]...]."""
    got: list[Any] = []
    strange: list[str] = []
    try:
        for response in call():
            strange += unknown(known.pb(response))
            results = [[r.alternatives[0].transcript, r.is_final, r.stability > 0.5] for r in response.results]
            got.append([response.speech_event_type.name, *results])
    except GoogleAPICallError as error:
        return {"responses": got, "error": [type(error).__name__, error.message]}
    return {"responses": got, "strange": strange}


def recognised_v1(target: str, frames: int, **features: Any) -> dict[str, Any]:
    """One session of the first version, by the SDK's own helper."""
    client = speech_v1.SpeechClient(transport=TransportV1(channel=grpc.insecure_channel(target)))
    plain = speech_v1.RecognitionConfig(encoding="LINEAR16", sample_rate_hertz=RATE, language_code="en-US")
    config = speech_v1.StreamingRecognitionConfig(config=plain, interim_results=True, **features)
    requests = (speech_v1.StreamingRecognizeRequest(audio_content=FRAME) for _ in range(frames))
    return google(
        lambda: client.streaming_recognize(config, requests, timeout=10), speech_v1.StreamingRecognizeResponse
    )


def recognised_v2(target: str, frames: int, frame: bytes = FRAME, recognizer: str = "") -> dict[str, Any]:
    """One session of the second version."""
    client = speech_v2.SpeechClient(transport=TransportV2(channel=grpc.insecure_channel(target)))
    explicit = speech_v2.ExplicitDecodingConfig(encoding="LINEAR16", sample_rate_hertz=RATE, audio_channel_count=1)
    plain = speech_v2.RecognitionConfig(explicit_decoding_config=explicit, language_codes=["en-US"], model="long")
    features = speech_v2.StreamingRecognitionFeatures(interim_results=True, enable_voice_activity_events=True)
    config = speech_v2.StreamingRecognitionConfig(config=plain, streaming_features=features)
    name = recognizer or "projects/p/locations/global/recognizers/_"

    def requests() -> Iterator[Any]:
        yield speech_v2.StreamingRecognizeRequest(recognizer=name, streaming_config=config)
        for _ in range(frames):
            yield speech_v2.StreamingRecognizeRequest(audio=frame)

    return google(
        lambda: client.streaming_recognize(requests=requests(), timeout=10), speech_v2.StreamingRecognizeResponse
    )


def spoken(target: str, texts: list[str]) -> dict[str, Any]:
    """The audio of texts that are given one after the other."""
    client = texttospeech_v1.TextToSpeechClient(
        transport=TextToSpeechGrpcTransport(channel=grpc.insecure_channel(target))
    )
    audio = texttospeech_v1.StreamingAudioConfig(audio_encoding="PCM", sample_rate_hertz=RATE)
    voice = texttospeech_v1.VoiceSelectionParams(language_code="en-US", name="en-US-Chirp3-HD-Charon")
    config = texttospeech_v1.StreamingSynthesizeConfig(voice=voice, streaming_audio_config=audio)

    def requests() -> Iterator[Any]:
        yield texttospeech_v1.StreamingSynthesizeRequest(streaming_config=config)
        for text in texts:
            yield texttospeech_v1.StreamingSynthesizeRequest(input=texttospeech_v1.StreamingSynthesisInput(text=text))

    chunks: list[int] = []
    strange: list[str] = []
    try:
        for response in client.streaming_synthesize(requests(), timeout=10):
            chunks.append(len(response.audio_content))
            strange += unknown(texttospeech_v1.StreamingSynthesizeResponse.pb(response))
    except GoogleAPICallError as error:
        return {"error": [type(error).__name__, error.message]}
    return {"chunks": chunks, "strange": strange}


def nvidia(target: str) -> dict[str, Any]:
    """Recognition, speech and a refusal by Riva's SDK."""
    auth = riva.Auth(uri=target)
    asr, tts = riva.ASRService(auth), riva.SpeechSynthesisService(auth)
    plain = riva.RecognitionConfig(
        encoding=riva.AudioEncoding.LINEAR_PCM,
        sample_rate_hertz=RATE,
        language_code="en-US",
        enable_word_time_offsets=True,
    )
    config = riva.StreamingRecognitionConfig(config=plain, interim_results=True)
    heard: list[Any] = []
    strange: list[str] = []
    words: list[Any] = []
    for response in asr.streaming_response_generator([FRAME] * 7, config):
        strange += unknown(response)
        for result in response.results:
            heard.append([result.alternatives[0].transcript, result.is_final, round(result.audio_processed, 3)])
            words += [[word.word, word.start_time, word.end_time] for word in result.alternatives[0].words]
    said = list(tts.synthesize_online("one two three", voice_name="English-US.Female-1", sample_rate_hz=RATE))
    strange += [name for response in said for name in unknown(response)]
    plain.language_code = ""
    try:
        list(asr.streaming_response_generator([FRAME], riva.StreamingRecognitionConfig(config=plain)))
        refused: Any = None
    except grpc.RpcError as error:
        refused = [error.code().name, error.details()]
    chunks = [len(response.audio) for response in said]
    return {"heard": heard, "words": words, "chunks": chunks, "refused": refused, "strange": strange}


def main(*urls: str) -> None:
    google_url, failing, tts, riva_url = (url.removeprefix("grpc://") for url in urls)
    show(
        {
            "v1": recognised_v1(google_url, 7, enable_voice_activity_events=True),
            "v1_single": recognised_v1(google_url, 7, single_utterance=True),
            "v1_cut_short": recognised_v1(google_url, 3),
            "v1_failing": recognised_v1(failing, 7),
            "v2": recognised_v2(google_url, 7),
            "v2_too_long": recognised_v2(google_url, 1, frame=bytes(25_602)),
            "v2_no_recognizer": recognised_v2(google_url, 1, recognizer="none"),
            "spoken": spoken(tts, ["one two", "three"]),
            "unspoken": spoken(tts, ["x" * 5001]),
            "riva": nvidia(riva_url),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
