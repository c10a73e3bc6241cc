"""OpenAI's and Ollama's SDKs on the bundled server at the given address: realtime sessions, and streamed lines; prints
one JSON object.

The realtime sessions go over the SDK's own WebSocket connection. Run by tests/e2e/test_fakes_by_sdk.py in
.venv-vendors; not imported by the suite.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

import ollama
import openai
from openai.types.realtime import RealtimeServerEvent
from typed import show, wrong

FRAME = 4800  # 100 ms of PCM16 at 24 kHz


def until(live: Any, last: str) -> tuple[list[Any], list[str]]:
    """(events up to the first of that type, what is wrong with them by the SDK's own types)."""
    events: list[Any] = []
    while not events or events[-1].type not in (last, "error"):
        events.append(live.recv())
    return events, [fault for event in events for fault in wrong(event, RealtimeServerEvent)]


def names(events: list[Any]) -> list[str]:
    """Their types, runs of the same as one."""
    found = [event.type for event in events]
    return [name for i, name in enumerate(found) if not i or found[i - 1] != name]


def transcribed(client: openai.OpenAI, audio: bytes) -> dict[str, Any]:
    """A transcription session: audio in pieces, committed by hand."""
    with client.realtime.connect(extra_query={"intent": "transcription"}) as live:
        heard: Any = {
            "format": {"type": "audio/pcm", "rate": 24_000},
            "transcription": {"model": "recogniser"},
            "turn_detection": None,
        }
        live.session.update(session={"type": "transcription", "audio": {"input": heard}})
        for at in range(0, len(audio), FRAME):
            live.input_audio_buffer.append(audio=base64.b64encode(audio[at : at + FRAME]).decode())
        live.input_audio_buffer.commit()
        events, faults = until(live, "conversation.item.input_audio_transcription.completed")
    return {"names": names(events), "transcript": getattr(events[-1], "transcript", events[-1].type), "wrong": faults}


def conversed(client: openai.OpenAI) -> dict[str, Any]:
    """A text in, an answer in text out; then a response that can't be: the session lives on."""
    with client.realtime.connect(model="scripted") as live:
        live.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        live.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
        )
        live.response.create(response={"max_output_tokens": 4})
        events, faults = until(live, "response.done")
        said = [event.text for event in events if event.type == "response.output_text.done"]
        live.send({"type": "nonsense"})  # type: ignore[arg-type,misc]
        refused, more = until(live, "error")
        usage = events[-1].response.usage
    return {
        "names": names(events),
        "said": said,
        "status": events[-1].response.status,
        "n_out": usage.output_tokens if usage else None,
        "refused": refused[-1].error.message,
        "wrong": faults + more,
    }


def lines(url: str) -> dict[str, Any]:
    """Ollama's routes of the server."""
    client = ollama.Client(host=url)
    generated = list(client.generate(model="scripted", prompt="hi", stream=True, options={"num_predict": 3}))
    chatted = list(
        client.chat("scripted", [{"role": "user", "content": "hi"}], stream=True, options={"num_predict": 3})
    )
    last = generated[-1]
    try:
        client.generate(model="absent", prompt="hi")
        refused: Any = None
    except ollama.ResponseError as error:
        refused = [error.status_code, error.error]
    return {
        "generated": [part.response for part in generated],
        "counts": [last.done, last.done_reason, last.eval_count],
        "chatted": [part.message.content for part in chatted],
        "wrong": [fault for part in [*generated, *chatted] for fault in wrong(part)],
        "refused": refused,
    }


def main(url: str, text: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=20) as client:
        made = client.audio.speech.create(model="synthesiser", voice="one", input=text, response_format="pcm")
        result = {"transcribed": transcribed(client, made.read()), "conversed": conversed(client), "lines": lines(url)}
    show(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
