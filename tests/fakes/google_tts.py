"""Google Cloud Text-to-Speech, streaming: a configuration, then text, and audio for each text as it comes."""

from __future__ import annotations

from tests.fakes.grpc_stage import Messages, Services, Stage, invalid, main, speak, tone

KINDS = Messages("google_tts")
_P = "google.cloud.texttospeech.v1."
_PCM = 7
_MAX_BYTES = 5000


async def synthesise(stage: Stage) -> None:
    """``/google.cloud.texttospeech.v1.TextToSpeech/StreamingSynthesize``."""
    request, response = KINDS[_P + "StreamingSynthesizeRequest"], KINDS[_P + "StreamingSynthesizeResponse"]
    first = request.FromString(await stage.read() or b"")
    if first.WhichOneof("streaming_request") != "streaming_config":
        raise invalid("The first message must be a streaming_config message.")
    config = first.streaming_config
    stage.log.config = str(first)
    if not config.voice.language_code:
        raise invalid("voice.language_code is required")
    audio = config.streaming_audio_config
    if audio.audio_encoding not in (0, _PCM):
        raise invalid("Unsupported audio encoding: this fake speaks PCM")
    rate = audio.sample_rate_hertz or 24_000
    while (data := await stage.read()) is not None:
        message = request.FromString(data)
        if message.WhichOneof("streaming_request") != "input" or not message.input.text:
            raise invalid("Every message but the first must be an input with text.")
        if len(message.input.text.encode()) > _MAX_BYTES:
            raise invalid(f"Input is longer than {_MAX_BYTES} bytes")
        stage.log.heard.append((0, len(message.input.text)))
        await speak(stage, tone(stage.knobs, message.input.text, rate), lambda chunk: response(audio_content=chunk))


SERVICES: Services = {_P + "TextToSpeech": {"StreamingSynthesize": synthesise}}

if __name__ == "__main__":
    main(SERVICES, __doc__ or "")
