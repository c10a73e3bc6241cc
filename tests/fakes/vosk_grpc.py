"""Vosk's gRPC server: streaming recognition, as far as a client meets it.

No SDK speaks to it: messages are of the descriptor in the vosk-server repository, behaviour of its stt_server.py.
"""

from __future__ import annotations

from typing import Any

from tests.fakes.grpc_stage import Ear, Heard, Messages, Services, Stage, invalid, listen, main

KINDS = Messages("vosk")
_P = "vosk.stt.v1."


async def recognise(stage: Stage) -> None:
    """``/vosk.stt.v1.SttService/StreamingRecognize``."""
    request, response = KINDS[_P + "StreamingRecognitionRequest"], KINDS[_P + "StreamingRecognitionResponse"]
    first = request.FromString(await stage.read() or b"")
    if first.WhichOneof("streaming_request") != "config":
        raise invalid("the first message must hold the config")
    spec = first.config.specification
    stage.log.config = str(first)
    if spec.audio_encoding != 1 or spec.sample_rate_hertz not in (8000, 16_000, 48_000):
        raise invalid("only LINEAR16_PCM at 8000, 16000 or 48000")

    def audio_of(data: bytes) -> bytes:
        return bytes(request.FromString(data).audio_content)

    def render(heard: Heard) -> Any:
        if heard.what == "endpoint":
            return None
        message = response()
        final = heard.what == "final"
        chunk = message.chunks.add(final=final, end_of_utterance=final)
        alternative = chunk.alternatives.add(text=heard.text, confidence=1.0)
        if final:
            for i, word in enumerate(heard.text.split()):
                end = stage.knobs.first_ms + i * stage.knobs.word_ms
                alternative.words.add(word=word, confidence=1.0).end_time.FromMilliseconds(round(end))
        return message

    ear = Ear(stage.knobs, spec.sample_rate_hertz * 2 / 1000, spec.partial_results, endpoints=True)
    await listen(stage, ear, audio_of, render)


SERVICES: Services = {_P + "SttService": {"StreamingRecognize": recognise}}

if __name__ == "__main__":
    main(SERVICES, __doc__ or "")
