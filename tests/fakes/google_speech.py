"""Google Cloud Speech-to-Text, v1 and v2: streaming recognition, as far as a live client meets it.

It holds clients to the rules: the configuration first and once, then audio only, at most 25,600 bytes a message; v2
wants a recognizer in the first message. Interim results come as two pieces, the older one more stable, as the service
sends them.
"""

from __future__ import annotations

from typing import Any

from tests.fakes.grpc_stage import Ear, Heard, Messages, Services, Stage, invalid, listen, main

V1, V2 = Messages("google_speech_v1"), Messages("google_speech_v2")
_P1, _P2 = "google.cloud.speech.v1.", "google.cloud.speech.v2."
_WIDTHS_V1 = {1: 2, 3: 1}  # bytes a sample of LINEAR16 and MULAW
_WIDTHS_V2 = {1: 2, 2: 1, 3: 1}
_MAX_AUDIO = 25_600
_END = 3


def _checked(audio: bytes) -> bytes:
    if not audio:
        raise invalid("Invalid audio: an empty chunk")
    if len(audio) > _MAX_AUDIO:
        raise invalid(f"Audio chunk can be of a maximum of {_MAX_AUDIO} bytes")
    return audio


def _results(message: Any, heard: Heard, reached: str) -> Any:
    """Interim: all words but the last as a stable piece, the last one as another."""
    words = heard.text.split(" ")
    pieces = [" ".join(words[:-1]), words[-1]] if heard.what == "partial" and len(words) > 1 else [heard.text]
    for i, piece in enumerate(pieces):
        result = message.results.add(is_final=heard.what == "final", stability=0.9 if i + 1 < len(pieces) else 0.1)
        result.alternatives.add(transcript=f" {piece}" if i else piece, confidence=0.9 if heard.what == "final" else 0)
        getattr(result, reached).FromMilliseconds(round(heard.reached_ms))
    return message


async def recognise_v1(stage: Stage) -> None:
    """``/google.cloud.speech.v1.Speech/StreamingRecognize``."""
    request, response = V1[_P1 + "StreamingRecognizeRequest"], V1[_P1 + "StreamingRecognizeResponse"]
    first = request.FromString(await stage.read() or b"")
    if first.WhichOneof("streaming_request") != "streaming_config":
        raise invalid("Malordered Data Received. Expected audio_content none was set. Send the config first")
    streaming, config = first.streaming_config, first.streaming_config.config
    stage.log.config = str(first)
    if config.encoding not in _WIDTHS_V1 or config.sample_rate_hertz <= 0 or not config.language_code:
        raise invalid("Invalid recognition 'config': bad encoding, sample rate or language.")

    def audio_of(data: bytes) -> bytes:
        message = request.FromString(data)
        if message.WhichOneof("streaming_request") != "audio_content":
            raise invalid("Malordered Data Received. Expected audio_content, got streaming_config.")
        return _checked(message.audio_content)

    def render(heard: Heard) -> Any:
        if heard.what != "endpoint":
            return _results(response(request_id=7), heard, "result_end_time")
        if streaming.enable_voice_activity_events:
            message = response(speech_event_type=_END, request_id=7)
            message.speech_event_time.FromMilliseconds(round(heard.reached_ms))
            return message
        return response(speech_event_type=1) if streaming.single_utterance else None

    def error() -> Any:
        return response(error={"code": 11, "message": "Audio Timeout Error: Long duration elapsed without audio."})

    ear = Ear(
        stage.knobs,
        config.sample_rate_hertz * _WIDTHS_V1[config.encoding] / 1000,
        streaming.interim_results,
        endpoints=True,
    )
    await listen(stage, ear, audio_of, render, error)


async def recognise_v2(stage: Stage) -> None:
    """``/google.cloud.speech.v2.Speech/StreamingRecognize``."""
    request, response = V2[_P2 + "StreamingRecognizeRequest"], V2[_P2 + "StreamingRecognizeResponse"]
    first = request.FromString(await stage.read() or b"")
    if not first.recognizer.startswith("projects/"):
        raise invalid("Invalid resource field value in the request: recognizer")
    if first.WhichOneof("streaming_request") != "streaming_config":
        raise invalid("The first message must contain a streaming_config")
    stage.log.config = str(first)
    features, config = first.streaming_config.streaming_features, first.streaming_config.config
    explicit = config.explicit_decoding_config
    if explicit.encoding not in _WIDTHS_V2 or explicit.sample_rate_hertz <= 0 or not config.language_codes:
        raise invalid("Invalid recognition config: bad encoding, sample rate or language.")

    def audio_of(data: bytes) -> bytes:
        message = request.FromString(data)
        if message.WhichOneof("streaming_request") != "audio":
            raise invalid("Only audio may follow the first message")
        return _checked(message.audio)

    def render(heard: Heard) -> Any:
        message = response()
        message.metadata.request_id = "fake"
        if heard.what != "endpoint":
            return _results(message, heard, "result_end_offset")
        if not features.enable_voice_activity_events:
            return None
        message.speech_event_type = _END
        message.speech_event_offset.FromMilliseconds(round(heard.reached_ms))
        return message

    ear = Ear(
        stage.knobs,
        explicit.sample_rate_hertz * _WIDTHS_V2[explicit.encoding] / 1000,
        features.interim_results,
        endpoints=True,
    )
    await listen(stage, ear, audio_of, render)


SERVICES: Services = {
    _P1 + "Speech": {"StreamingRecognize": recognise_v1},
    _P2 + "Speech": {"StreamingRecognize": recognise_v2},
}

if __name__ == "__main__":
    main(SERVICES, __doc__ or "")
