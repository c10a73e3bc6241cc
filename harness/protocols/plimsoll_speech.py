"""The bundled server's own speech service over gRPC: live recognition, and a voice that streams.

``plimsoll-speech`` sends audio as a microphone would and reads transcripts; ``plimsoll-speech-tts`` sends text and
reads audio.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.protocols._speech.grpc_speech import PATIENCE_NS, LiveCallOptions, Recognition, Synthesis
from plimsoll.harness.protocols._speech.hearing import Account, ns_of
from plimsoll.harness.protocols._speech.sending import EncodedOptions
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import GrpcOptions
from plimsoll.harness.wire.tokens import timing_of

SERVICE = "plimsoll.speech.v1.Speech"
CODECS = {"LINEAR16": "pcm16", "FLOAT32": "float32", "MULAW": "mulaw", "ALAW": "alaw"}
_SPEECH_ENDED = 2
_ENDPOINTING_MS = 300

Encoding = Literal["LINEAR16", "FLOAT32", "MULAW", "ALAW"]


class RecogniseOptions(LiveCallOptions, EncodedOptions):
    """Options of ``plimsoll-speech``."""

    codecs = CODECS

    encoding: Encoding = "LINEAR16"
    sample_rate: int = Field(default=16_000, ge=8000, le=48_000)
    interim_results: bool = True
    single_utterance: bool = False
    endpointing_ms: int = Field(default=_ENDPOINTING_MS, ge=1, le=60_000)
    finish: Literal["endpoint", "close"] = "endpoint"

    @property
    def silence_ns(self) -> int:
        waits = self.finish == "endpoint" and not self.single_utterance
        return self.endpointing_ms * 1_000_000 + PATIENCE_NS if waits else 0


class SynthesiseOptions(GrpcOptions):
    """Options of ``plimsoll-speech-tts``: how audio is to come, and ``speed`` of speech."""

    encoding: Encoding = "LINEAR16"
    sample_rate: int = Field(default=24_000, ge=8000, le=48_000)
    speed: float = Field(default=1.0, gt=0, le=10)


def recognition(target: Target) -> Recognition:
    """The dialect of ``plimsoll-speech``."""
    options = accept(RecogniseOptions, target.options)
    schema = shipped("plimsoll_speech")
    method = schema.method(f"{SERVICE}/Recognise")
    config = schema.message("plimsoll.speech.v1.RecogniseConfig")(
        model=target.model,
        encoding=options.encoding,
        sample_rate_hertz=options.sample_rate,
        interim_results=options.interim_results,
        single_utterance=options.single_utterance,
        endpointing_ms=options.endpointing_ms,
        voice_activity_events=True,
    )
    return Recognition(target, options, method, method.request(config=config), "audio", _tell, _ends)


def _tell(account: Account, t_ns: int, message: Any) -> None:
    if message.HasField("result"):
        result = message.result
        account.heard(t_ns, result.transcript, bool(result.is_final), ns_of(float(result.end_s)))


def _ends(message: Any) -> bool:
    return bool(message.event == _SPEECH_ENDED)


def synthesis(target: Target) -> Synthesis:
    """The dialect of ``plimsoll-speech-tts``."""
    options = accept(SynthesiseOptions, target.options)
    method = shipped("plimsoll_speech").method(f"{SERVICE}/Synthesise")

    def write(text: str) -> Any:
        return method.request(
            model=target.model,
            text=text,
            encoding=options.encoding,
            sample_rate_hertz=options.sample_rate,
            speed=options.speed,
        )

    return Synthesis(
        target,
        options,
        method,
        write,
        lambda message: bytes(message.audio),
        (CODECS[options.encoding], options.sample_rate),
        timing_of=lambda message: timing_of(message.server_timing),
    )


PROTOCOLS = (
    ProtocolSpec(
        "plimsoll-speech",
        "the bundled server's live recognition over gRPC",
        over_grpc(recognition, repeats=False),
        RecogniseOptions,
        bundled=True,
        source="audio",
        bundled_model="recogniser",
        grpc=True,
    ),
    ProtocolSpec(
        "plimsoll-speech-tts",
        "the bundled server's voice over gRPC",
        over_grpc(synthesis, repeats=False),
        SynthesiseOptions,
        bundled=True,
        bundled_model="synthesiser",
        sessions=True,
        grpc=True,
    ),
)
