"""AssemblyAI's SDK in a live session with the server at the given address: audio in, turns out; prints one JSON object.

``assemblyai_.py URL [MS]``: a session of 1.2 s of audio at its pace, and one whose messages of MS ms are refused. Run
by tests/e2e/test_fakes_by_sdk.py in .venv-vendors; not imported by the suite.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from assemblyai.streaming.v3 import StreamingClient, StreamingClientOptions, StreamingEvents, StreamingParameters
from typed import show, wrong

RATE = 16_000
FRAME_S = 0.1


def listen(url: str, key: str, frame_s: float, seconds: float, *, formatted: bool) -> dict[str, Any]:
    """Every event of one session."""
    options = StreamingClientOptions(api_key=key, api_host=url, max_connection_retries=0, terminate_timeout=3.0)
    client = StreamingClient(options)
    events: list[dict[str, Any]] = []
    errors: list[tuple[int | None, str]] = []
    faults: list[str] = []

    def on_event(_client: Any, event: Any) -> None:
        events.append(json.loads(event.model_dump_json()))
        faults.extend(wrong(event))

    for kind in StreamingEvents:
        if kind is StreamingEvents.Error:
            client.on(kind, lambda _client, error: errors.append((error.code, str(error))))
        else:
            client.on(kind, on_event)
    client.connect(StreamingParameters(sample_rate=RATE, speech_model="u3-rt-pro", format_turns=formatted))
    begun = time.monotonic()
    for i in range(round(seconds / frame_s)):
        time.sleep(max(0.0, begun + (i + 1) * frame_s - time.monotonic()))
        client.stream(bytes(round(frame_s * RATE) * 2))
    if not errors:
        client.disconnect(terminate=True)
    return {"events": events, "errors": errors, "wrong": faults}


def main(url: str) -> None:
    logs: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logs.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("assemblyai").addHandler(handler)
    logging.getLogger("assemblyai").propagate = False
    address = url.replace("http://", "ws://")
    heard = listen(address, "key", FRAME_S, 0.7, formatted=True)
    told = list(logs)
    short = listen(address, "key", 0.02, 0.1, formatted=False)
    refused = listen(address, "a scheme and a key", FRAME_S, 0.0, formatted=False)
    show({"heard": heard | {"logs": told}, "short": short, "refused": refused})


if __name__ == "__main__":
    main(*sys.argv[1:])
