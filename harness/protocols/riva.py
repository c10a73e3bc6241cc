"""NVIDIA Riva: live recognition (``riva-asr``) and synthesis as a stream (``riva-tts``).

Riva says how much audio it has worked through (``audio_processed``), so that transcript lag needs no guess. It has no
message for an endpoint: a final result that comes before everything was sent is one.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from plimsoll.harness.options import Options, accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.protocols._speech.grpc_speech import (
    PATIENCE_NS,
    LiveCallOptions,
    Recognition,
    Synthesis,
    told_results,
)
from plimsoll.harness.protocols._speech.hearing import Account, ns_of
from plimsoll.harness.protocols._speech.sending import EncodedOptions
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import GrpcOptions

ASR = "nvidia.riva.asr.RivaSpeechRecognition/StreamingRecognize"
TTS = "nvidia.riva.tts.RivaSpeechSynthesis/SynthesizeOnline"
CODECS = {"LINEAR_PCM": "pcm16", "MULAW": "mulaw", "ALAW": "alaw", "OGGOPUS": "ogg-opus"}


class Endpointing(Options):
    """``endpointing``: windows in ms and thresholds from 0 to 1, as Riva's EndpointingConfig has them."""

    start_history: int | None = Field(default=None, ge=0, lt=1 << 31)
    start_threshold: float | None = Field(default=None, ge=0, le=1)
    stop_history: int | None = Field(default=None, ge=0, lt=1 << 31)
    stop_threshold: float | None = Field(default=None, ge=0, le=1)
    stop_history_eou: int | None = Field(default=None, ge=0, lt=1 << 31)
    stop_threshold_eou: float | None = Field(default=None, ge=0, le=1)


class RivaAsrOptions(LiveCallOptions, EncodedOptions):
    """Options of ``riva-asr``."""

    codecs = CODECS

    encoding: Literal["LINEAR_PCM", "MULAW", "ALAW", "OGGOPUS"] = "LINEAR_PCM"
    sample_rate: int = Field(default=16_000, ge=8000, le=48_000)
    language: str = "en-US"
    interim_results: bool = True
    punctuate: bool = False
    word_times: bool = False
    endpointing: Endpointing = Endpointing()
    custom: dict[str, str] = {}
    finish: Literal["endpoint", "close"] = "endpoint"
    metadata: dict[str, str] = {}

    @property
    def silence_ns(self) -> int:
        waited_ms = self.endpointing.stop_history or 0
        return waited_ms * 1_000_000 + PATIENCE_NS if self.finish == "endpoint" else 0


class RivaTtsOptions(GrpcOptions):
    """Options of ``riva-tts``: what to say it with, and how the audio is to come."""

    voice: str = ""
    language: str = "en-US"
    encoding: Literal["LINEAR_PCM", "MULAW", "ALAW", "OGGOPUS"] = "LINEAR_PCM"
    sample_rate: int = Field(default=22_050, ge=8000, le=48_000)
    metadata: dict[str, str] = {}


def recognition(target: Target) -> Recognition:
    """The dialect of ``riva-asr``."""
    options = accept(RivaAsrOptions, target.options)
    method = shipped("riva_asr").method(ASR)
    first: Any = method.request()
    config = first.streaming_config.config
    config.encoding = config.DESCRIPTOR.fields_by_name["encoding"].enum_type.values_by_name[options.encoding].number
    config.sample_rate_hertz, config.language_code = options.sample_rate, options.language
    config.max_alternatives, config.audio_channel_count, config.model = 1, 1, target.model
    config.enable_automatic_punctuation, config.enable_word_time_offsets = options.punctuate, options.word_times
    config.custom_configuration.update(options.custom)
    for name, value in options.endpointing.model_dump(exclude_none=True).items():
        setattr(config.endpointing_config, name, value)
    first.streaming_config.interim_results = options.interim_results
    return Recognition(
        target, options, method, first, "audio_content", _tell, _ends, until_closed=True, metadata=options.metadata
    )


def _tell(account: Account, t_ns: int, message: Any) -> None:
    told_results(account, t_ns, message.results, lambda result: ns_of(float(result.audio_processed)))


def _ends(message: Any) -> bool:
    return any(result.is_final for result in message.results)


def synthesis(target: Target) -> Synthesis:
    """The dialect of ``riva-tts``. One request a call: older servers take no more."""
    options = accept(RivaTtsOptions, target.options)
    method = shipped("riva_tts").method(TTS)

    def write(text: str) -> Any:
        return method.request(
            text=text,
            language_code=options.language,
            encoding=options.encoding,
            sample_rate_hz=options.sample_rate,
            voice_name=options.voice,
        )

    sounds_as = CODECS[options.encoding], options.sample_rate
    return Synthesis(
        target, options, method, write, lambda message: bytes(message.audio), sounds_as, metadata=options.metadata
    )


PROTOCOLS = (
    ProtocolSpec(
        "riva-asr",
        "NVIDIA Riva: live recognition",
        over_grpc(recognition, repeats=False),
        RivaAsrOptions,
        source="audio",
        grpc=True,
    ),
    ProtocolSpec(
        "riva-tts",
        "NVIDIA Riva: speech as a stream",
        over_grpc(synthesis, repeats=False),
        RivaTtsOptions,
        grpc=True,
        sessions=True,
    ),
)
