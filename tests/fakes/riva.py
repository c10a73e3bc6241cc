"""NVIDIA Riva: streaming recognition and online synthesis, as far as a client meets them."""

from __future__ import annotations

from typing import Any

from tests.fakes.grpc_stage import Ear, Heard, Messages, Services, Stage, invalid, listen, main, speak, tone

ASR, TTS = Messages("riva_asr"), Messages("riva_tts")
_PA, _PT = "nvidia.riva.asr.", "nvidia.riva.tts."
_WIDTHS = {1: 2, 3: 1, 20: 1}  # bytes a sample of LINEAR_PCM, MULAW and ALAW


async def recognise(stage: Stage) -> None:
    """``/nvidia.riva.asr.RivaSpeechRecognition/StreamingRecognize``."""
    request, response = ASR[_PA + "StreamingRecognizeRequest"], ASR[_PA + "StreamingRecognizeResponse"]
    first = request.FromString(await stage.read() or b"")
    if first.WhichOneof("streaming_request") != "streaming_config":
        raise invalid("Error: first message must contain streaming_config")
    streaming, config = first.streaming_config, first.streaming_config.config
    stage.log.config = str(first)
    if config.encoding not in _WIDTHS or config.sample_rate_hertz < 8000:
        raise invalid("Error: Invalid encoding or sample rate")
    if not config.language_code:
        raise invalid("Error: Unavailable model requested given these parameters: language_code=; type=online;")

    def audio_of(data: bytes) -> bytes:
        message = request.FromString(data)
        if message.WhichOneof("streaming_request") != "audio_content":
            raise invalid("Error: streaming_config must only be in the first message")
        return bytes(message.audio_content)

    def render(heard: Heard) -> Any:
        if heard.what == "endpoint":
            return None
        message = response()
        message.id.value = first.id.value
        final = heard.what == "final"
        result = message.results.add(is_final=final, stability=1.0 if final else 0.1, channel_tag=1)
        result.audio_processed = heard.reached_ms / 1000
        alternative = result.alternatives.add(transcript=f"{heard.text} ", confidence=0.9 if final else 0.0)
        if final and config.enable_word_time_offsets:
            for i, word in enumerate(heard.text.split()):
                end = round(stage.knobs.first_ms + i * stage.knobs.word_ms)
                alternative.words.add(start_time=end - 50, end_time=end, word=word)
        return message

    bytes_per_ms = config.sample_rate_hertz * _WIDTHS[config.encoding] / 1000
    await listen(stage, Ear(stage.knobs, bytes_per_ms, streaming.interim_results, endpoints=True), audio_of, render)


async def synthesise(stage: Stage) -> None:
    """``/nvidia.riva.tts.RivaSpeechSynthesis/SynthesizeOnline``."""
    request, response = TTS[_PT + "SynthesizeSpeechRequest"], TTS[_PT + "SynthesizeSpeechResponse"]
    while (data := await stage.read()) is not None:
        message = request.FromString(data)
        stage.log.config = str(message)
        if not message.text or not message.language_code:
            raise invalid("Error: text and language_code are required")
        if message.encoding != 1 or message.sample_rate_hz < 8000:
            raise invalid("Error: this fake speaks LINEAR_PCM at 8 kHz or more")
        await speak(stage, tone(stage.knobs, message.text, message.sample_rate_hz), lambda chunk: response(audio=chunk))


SERVICES: Services = {
    _PA + "RivaSpeechRecognition": {"StreamingRecognize": recognise},
    _PT + "RivaSpeechSynthesis": {"SynthesizeOnline": synthesise},
}

if __name__ == "__main__":
    main(SERVICES, __doc__ or "")
