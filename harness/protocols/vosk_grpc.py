"""Vosk's gRPC server: live recognition. PCM only; an utterance ends where the recogniser hears a pause."""

from __future__ import annotations

from typing import Any, Literal

from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._grpc.descriptors import shipped
from plimsoll.harness.protocols._speech.grpc_speech import PATIENCE_NS, LiveCallOptions, Recognition, duration_ns
from plimsoll.harness.protocols._speech.hearing import Account
from plimsoll.harness.transport.client import ProtocolSpec, Target

METHOD = "vosk.stt.v1.SttService/StreamingRecognize"


class VoskGrpcOptions(LiveCallOptions):
    """Options of ``vosk-grpc``."""

    sample_rate: Literal[8000, 16_000, 48_000] = 16_000
    language: str = "en-US"
    partial_results: bool = True
    single_utterance: bool = False
    finish: Literal["endpoint", "close"] = "endpoint"
    metadata: dict[str, str] = {}

    @property
    def sent_as(self) -> tuple[str, int]:
        return "pcm16", self.sample_rate

    @property
    def silence_ns(self) -> int:
        return PATIENCE_NS if self.finish == "endpoint" else 0


def recognition(target: Target) -> Recognition:
    """The dialect of ``vosk-grpc``."""
    options = accept(VoskGrpcOptions, target.options)
    method = shipped("vosk").method(METHOD)
    first: Any = method.request()
    spec = first.config.specification
    spec.audio_encoding, spec.sample_rate_hertz = 1, options.sample_rate
    spec.language_code, spec.model = options.language, target.model
    spec.partial_results, spec.single_utterance = options.partial_results, options.single_utterance
    return Recognition(
        target, options, method, first, "audio_content", _tell, _ends, until_closed=True, metadata=options.metadata
    )


def _tell(account: Account, t_ns: int, message: Any) -> None:
    for chunk in message.chunks:
        if not chunk.alternatives:
            continue
        best = chunk.alternatives[0]
        reached = duration_ns(best.words[-1].end_time) if best.words else -1
        account.heard(t_ns, best.text, bool(chunk.final), reached)


def _ends(message: Any) -> bool:
    return any(chunk.final for chunk in message.chunks)


PROTOCOLS = (
    ProtocolSpec(
        "vosk-grpc",
        "Vosk's gRPC server: live recognition",
        over_grpc(recognition, repeats=False),
        VoskGrpcOptions,
        source="audio",
        grpc=True,
    ),
)
