"""Vosk's gRPC server: live recognition. PCM only; an utterance ends where the recogniser hears a pause."""

from __future__ import annotations

from typing import Any, Literal

from plimsoll.harness.options import accept
from plimsoll.harness.protocols._clients import over_grpc
from plimsoll.harness.protocols._speech.grpc_speech import PATIENCE_NS, Audio, Recognition, duration_ns
from plimsoll.harness.protocols._speech.hearing import Account
from plimsoll.harness.protocols._speech.sending import AudioOptions, audio_problems
from plimsoll.harness.transport.client import ProtocolSpec, Target
from plimsoll.harness.transport.rpc.call import GrpcOptions

METHOD = "vosk.stt.v1.SttService/StreamingRecognize"


class VoskGrpcOptions(GrpcOptions):
    """Options of ``vosk-grpc``."""

    audio: AudioOptions = AudioOptions()
    sample_rate: Literal[8000, 16_000, 48_000] = 16_000
    language: str = "en-US"
    partial_results: bool = True
    single_utterance: bool = False
    finish: Literal["endpoint", "close"] = "endpoint"
    metadata: dict[str, str] = {}


def recognition(target: Target) -> Recognition:
    """The dialect of ``vosk-grpc``."""
    from plimsoll.harness.protocols._grpc.descriptors import shipped

    options = accept(VoskGrpcOptions, target.options)
    method = shipped("vosk").method(METHOD)
    first: Any = method.request()
    spec = first.config.specification
    spec.audio_encoding, spec.sample_rate_hertz = 1, options.sample_rate
    spec.language_code, spec.model = options.language, target.model
    spec.partial_results, spec.single_utterance = options.partial_results, options.single_utterance
    silence_ns = PATIENCE_NS if options.finish == "endpoint" else 0
    return Recognition(
        target,
        method,
        first.SerializeToString(deterministic=True),
        "audio_content",
        Audio(options.audio, "pcm16", options.sample_rate, silence_ns),
        _tell,
        _ends,
        until_closed=True,
        deadline_ns=options.deadline_ns,
        metadata=options.metadata,
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


def _mistakes(given: VoskGrpcOptions) -> list[str]:
    return audio_problems(given.audio, "pcm16", given.sample_rate)


PROTOCOLS = (
    ProtocolSpec(
        "vosk-grpc",
        "Vosk's gRPC server: live recognition",
        over_grpc(recognition),
        VoskGrpcOptions,
        mistakes=_mistakes,
        source="audio",
        grpc=True,
    ),
)
