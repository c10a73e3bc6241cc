"""Google Cloud Speech-to-Text (v1 and v2, whose messages share names, but not numbers) and Text-to-Speech, streaming.

The configuration goes first, then audio of at most 25,600 bytes a message, then the half-close. Several results in one
answer are pieces of one hypothesis. An endpoint is Google's own event for it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal
from urllib.parse import quote

from pydantic import Field, model_validator

from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.protocols._speech.grpc_speech import (
    PATIENCE_NS,
    LiveCallOptions,
    Recognition,
    Synthesis,
    duration_ns,
    told_results,
)
from plimsoll.harness.protocols._speech.hearing import Account
from plimsoll.harness.protocols._speech.sending import EncodedOptions, FrameRules
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import GrpcOptions, code_name
from plimsoll.harness.wire.tokens import Fault
from plimsoll.scenarios.text.fields import Duration

CODECS = {"LINEAR16": "pcm16", "MULAW": "mulaw", "ALAW": "alaw", "OGG_OPUS": "ogg-opus"}
_RECOGNIZER = "projects/_/locations/global/recognizers/_"
_END_OF_SINGLE_UTTERANCE, _ACTIVITY_END = 1, 3
_RESOURCE_EXHAUSTED = 8


class GoogleSpeechOptions(LiveCallOptions, EncodedOptions):
    """Options of ``google-speech``. Its quota is 25 KB of audio a message."""

    codecs = CODECS
    rules: ClassVar[FrameRules] = FrameRules("Google Speech", max_bytes=25_600)

    api: Literal["v1", "v2"] = "v1"
    recognizer: str | None = Field(default=None, pattern=r"^projects/[^/\s]+/locations/[^/\s]+/recognizers/[^/\s]+$")
    encoding: Literal["LINEAR16", "MULAW", "ALAW", "OGG_OPUS"] = "LINEAR16"
    sample_rate: int = Field(default=16_000, ge=8000, le=48_000)
    language: str = "en-US"
    interim_results: bool = True
    voice_activity: bool = True
    single_utterance: bool = False
    punctuate: bool = False
    speech_end_timeout: Duration | None = Field(default=None, gt=0)
    finish: Literal["endpoint", "close"] = "endpoint"
    metadata: dict[str, str] = {}

    @model_validator(mode="after")
    def _together(self) -> GoogleSpeechOptions:
        if self.api == "v2" and self.recognizer is None:
            raise ValueError("recognizer: v2 needs it. Write projects/P/locations/L/recognizers/_")
        if self.api == "v1" and self.recognizer is not None:
            raise ValueError("recognizer: v1 has none. Set api: v2, or remove it")
        if self.api == "v2" and self.single_utterance:
            raise ValueError("single_utterance: v2 has none. Set speech_end_timeout, or api: v1")
        if self.api == "v1" and self.encoding == "ALAW":
            raise ValueError("encoding: v1 has no ALAW. Use MULAW, or api: v2")
        if self.speech_end_timeout is not None and not self.voice_activity:
            raise ValueError("speech_end_timeout: it needs voice_activity. Set voice_activity: true")
        return self

    @property
    def silence_ns(self) -> int:
        waits = self.finish == "endpoint" and (self.voice_activity or self.single_utterance)
        return (self.speech_end_timeout or 0) + PATIENCE_NS if waits else 0


def recognition(target: Target) -> Recognition:
    """The dialect of ``google-speech``."""
    options = accept(GoogleSpeechOptions, target.options)
    method = shipped(f"google_speech_{options.api}").method(
        f"google.cloud.speech.{options.api}.Speech/StreamingRecognize"
    )
    first: Any = method.request()
    (_configure_v1 if options.api == "v1" else _configure_v2)(first, options, target.model)
    metadata = dict(options.metadata)
    if options.recognizer is not None:  # Google routes by it; its own streaming client leaves it to the caller
        metadata.setdefault("x-goog-request-params", f"recognizer={quote(options.recognizer, safe='')}")
    field, tell = ("audio_content", _tell_v1) if options.api == "v1" else ("audio", _tell_v2)
    return Recognition(target, options, method, first, field, tell, _ends, metadata=metadata)


def _configure_v1(first: Any, options: GoogleSpeechOptions, model: str) -> None:
    streaming = first.streaming_config
    config = streaming.config
    kinds = config.DESCRIPTOR.fields_by_name["encoding"].enum_type.values_by_name
    config.encoding, config.sample_rate_hertz = kinds[options.encoding].number, options.sample_rate
    config.language_code, config.model, config.audio_channel_count = options.language, model, 1
    config.enable_automatic_punctuation = options.punctuate
    streaming.single_utterance, streaming.interim_results = options.single_utterance, options.interim_results
    streaming.enable_voice_activity_events = options.voice_activity
    if options.speech_end_timeout is not None:
        streaming.voice_activity_timeout.speech_end_timeout.FromNanoseconds(options.speech_end_timeout)


def _configure_v2(first: Any, options: GoogleSpeechOptions, model: str) -> None:
    first.recognizer = options.recognizer or _RECOGNIZER
    config, features = first.streaming_config.config, first.streaming_config.streaming_features
    if options.encoding == "OGG_OPUS":
        config.auto_decoding_config.SetInParent()  # a container says for itself what is in it
    else:
        explicit = config.explicit_decoding_config
        kinds = explicit.DESCRIPTOR.fields_by_name["encoding"].enum_type.values_by_name
        explicit.encoding, explicit.sample_rate_hertz = kinds[options.encoding].number, options.sample_rate
        explicit.audio_channel_count = 1
    config.model = model
    config.language_codes.append(options.language)
    config.features.enable_automatic_punctuation = options.punctuate
    features.interim_results, features.enable_voice_activity_events = options.interim_results, options.voice_activity
    if options.speech_end_timeout is not None:
        features.voice_activity_timeout.speech_end_timeout.FromNanoseconds(options.speech_end_timeout)


def _tell_v1(account: Account, t_ns: int, message: Any) -> None:
    told_results(account, t_ns, message.results, _reached_v1)
    if message.error.code:
        text = f"gRPC {code_name(message.error.code)}: {message.error.message}"
        account.fault = Fault(text, message.error.code == _RESOURCE_EXHAUSTED)


def _tell_v2(account: Account, t_ns: int, message: Any) -> None:
    told_results(account, t_ns, message.results, _reached_v2)


def _reached_v1(result: Any) -> int:
    return duration_ns(result.result_end_time) if result.HasField("result_end_time") else -1


def _reached_v2(result: Any) -> int:
    return duration_ns(result.result_end_offset) if result.HasField("result_end_offset") else -1


def _ends(message: Any) -> bool:
    return message.speech_event_type in (_END_OF_SINGLE_UTTERANCE, _ACTIVITY_END)


# -- text to speech: a configuration, text whole or word by word, the half-close; audio back ------------------------

_TTS_METHOD = "google.cloud.texttospeech.v1.TextToSpeech/StreamingSynthesize"
_TTS_CODECS = {"PCM": "pcm16", "MULAW": "mulaw", "ALAW": "alaw", "OGG_OPUS": "ogg-opus"}
#: Google takes 5,000 bytes of text a message; four are the longest character.
_MOST_CHARACTERS = 1250


class GoogleTtsOptions(GrpcOptions):
    """Options of ``google-tts``."""

    voice: str = ""
    language: str = "en-US"
    encoding: Literal["PCM", "MULAW", "ALAW", "OGG_OPUS"] = "PCM"
    sample_rate: int = Field(default=24_000, ge=8000, le=48_000)
    speaking_rate: float | None = Field(default=None, ge=0.25, le=2)
    words_per_second: float | None = Field(default=None, gt=0, le=1000)
    metadata: dict[str, str] = {}


def synthesis(target: Target) -> Synthesis:
    """The dialect of ``google-tts``."""
    options = accept(GoogleTtsOptions, target.options)
    method = shipped("google_tts").method(_TTS_METHOD)
    first: Any = method.request()
    config = first.streaming_config
    config.voice.language_code, config.voice.name = options.language, options.voice
    audio = config.streaming_audio_config
    kinds = audio.DESCRIPTOR.fields_by_name["audio_encoding"].enum_type.values_by_name
    audio.audio_encoding, audio.sample_rate_hertz = kinds[options.encoding].number, options.sample_rate
    if options.speaking_rate is not None:
        audio.speaking_rate = options.speaking_rate

    def write(text: str) -> Any:
        message: Any = method.request()
        message.input.text = text
        return message

    return Synthesis(
        target,
        options,
        method,
        write,
        lambda message: bytes(message.audio_content),
        (_TTS_CODECS[options.encoding], options.sample_rate),
        opening=(first,),
        words_per_s=options.words_per_second,
        most=_MOST_CHARACTERS,
        metadata=options.metadata,
    )


PROTOCOLS = (
    ProtocolSpec(
        "google-speech",
        "Google Cloud Speech-to-Text v1 and v2: live recognition",
        over_grpc(recognition, repeats=False),
        GoogleSpeechOptions,
        source="audio",
        grpc=True,
    ),
    ProtocolSpec(
        "google-tts",
        "Google Cloud Text-to-Speech as a stream",
        over_grpc(synthesis, repeats=False),
        GoogleTtsOptions,
        grpc=True,
        sessions=True,
    ),
)
