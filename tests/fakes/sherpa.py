"""sherpa-onnx's streaming servers as seen from a client: C++ at ``/``, Python at ``/python``. float32 in, ``Done`` at
the end.

No SDK speaks to it: it follows the streaming servers of the sherpa-onnx repository, C++ and Python, and their sample
clients.
"""

from __future__ import annotations

import sys
from array import array

from tests.fakes.websocket_fake import Conversation, Fake, Knobs, main

_RATE = 16_000


async def cpp(conversation: Conversation) -> None:
    await _serve(conversation, python=False)


async def python(conversation: Conversation) -> None:
    await _serve(conversation, python=True)


async def _serve(conversation: Conversation, python: bool) -> None:
    knobs = conversation.knobs
    await conversation.open()
    audio_ms, said = 0.0, 0

    def result(kind: str, after_ms: float, final: bool) -> None:
        text = " ".join(knobs.words[:said])
        reply: dict[str, object] = {"text": text, "segment": 0}
        if not python:
            stamps = [knobs.end_ms(i) / 1000 for i in range(said)]
            reply |= {"tokens": list(knobs.words[:said]), "timestamps": stamps, "start_time": 0.0}
            reply |= {"is_final": final, "is_eof": final}
        conversation.say(reply, kind, after_ms, text=text)

    async for message in conversation.messages():
        if isinstance(message, str):
            if message != "Done":
                conversation.violation(f"unknown text {message!r}")
                continue
            result("final", knobs.final_delay_ms, True)
            if python:
                await conversation.close()
                return
            conversation.say("Done!", "done")
            continue
        samples = array("f", message)
        if any(abs(sample) > 1 for sample in samples):
            conversation.violation("samples beyond full scale")
        audio_ms += len(samples) * 1000 / _RATE
        if knobs.words_by(audio_ms) > said:
            said = knobs.words_by(audio_ms)
            result("partial", knobs.partial_delay_ms, False)


async def error(conversation: Conversation) -> None:
    """No message for errors: the connection is closed."""
    await conversation.close(1011, "decoder failed")


def build(knobs: Knobs) -> Fake:
    return Fake({"/": cpp, "/python": python}, error, knobs)


if __name__ == "__main__":
    main(build, sys.argv[1:])
