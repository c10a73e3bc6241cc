"""Google Cloud Text-to-Speech, streaming: a configuration, then text whole or word by word, then the half-close; audio back."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._speech.grpc_speech import Synthesis
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import GrpcOptions

METHOD = "google.cloud.texttospeech.v1.TextToSpeech/StreamingSynthesize"
CODECS = {"PCM": "pcm16", "MULAW": "mulaw", "ALAW": "alaw", "OGG_OPUS": "ogg-opus"}
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
    from plimsoll.harness.protocols._grpc.descriptors import shipped

    options = accept(GoogleTtsOptions, target.options)
    method = shipped("google_tts").method(METHOD)
    first: Any = method.request()
    config = first.streaming_config
    config.voice.language_code, config.voice.name = options.language, options.voice
    audio = config.streaming_audio_config
    kinds = audio.DESCRIPTOR.fields_by_name["audio_encoding"].enum_type.values_by_name
    audio.audio_encoding, audio.sample_rate_hertz = kinds[options.encoding].number, options.sample_rate
    if options.speaking_rate is not None:
        audio.speaking_rate = options.speaking_rate

    def write(text: str) -> bytes:
        message: Any = method.request()
        message.input.text = text
        data: bytes = message.SerializeToString(deterministic=True)
        return data

    return Synthesis(
        target,
        method,
        (first.SerializeToString(deterministic=True),),
        write,
        lambda message: bytes(message.audio_content),
        CODECS[options.encoding],
        options.sample_rate,
        words_per_s=options.words_per_second,
        most=_MOST_CHARACTERS,
        deadline_ns=options.deadline_ns,
        metadata=options.metadata,
    )


PROTOCOLS = (
    ProtocolSpec(
        "google-tts", "Google Cloud Text-to-Speech as a stream", over_grpc(synthesis), GoogleTtsOptions, grpc=True
    ),
)
