"""Deepgram's SDK on /v2/listen of the server at the given address: audio in, a turn out; prints one JSON object.

Run by tests/e2e/test_fakes_by_sdk.py in .venv-peers; not imported by the suite.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import Any

from deepgram import DeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.listen.v2.types import ListenV2Configure
from websockets.exceptions import ConnectionClosed, InvalidStatus

RATE = 16_000
FRAME = bytes(round(RATE * 0.08) * 2)


def unknown(value: Any, at: str) -> list[str]:
    """Fields that the SDK's class of a message doesn't know."""
    found = [f"{at}.{name}" for name in getattr(value, "model_extra", None) or {}]
    for name in getattr(type(value), "model_fields", {}):
        inner = getattr(value, name)
        for each in inner if isinstance(inner, list) else [inner]:
            found += unknown(each, f"{at}.{name}")
    return found


def heard(live: Any) -> Iterator[Any]:
    """Messages up to the close, whatever its code."""
    with contextlib.suppress(ConnectionClosed):
        yield from live


def talk(deepgram: DeepgramClient, frames: int, *, nonsense: bool = False) -> dict[str, Any]:
    """Every message of one session, up to the end of the turn or to the close."""
    messages: list[Any] = []
    strange: list[str] = []
    with deepgram.listen.v2.connect(model="flux-general-en", encoding="linear16", sample_rate=RATE) as live:
        live.send_configure(ListenV2Configure(type="Configure", thresholds={"eot_threshold": 0.8}))
        if nonsense:
            live._send({"type": "Finalize"})
        for _ in range(frames):
            live.send_media(FRAME)
        for message in heard(live):
            # A message that fits no class is given as it came.
            kind = type(message).__name__
            strange += [f"{message}: no class"] if isinstance(message, dict) else unknown(message, kind)
            plain = message if isinstance(message, dict) else json.loads(message.model_dump_json())
            messages.append(plain | {"class": kind})
            if plain.get("event") == "EndOfTurn":
                live.send_close_stream()
    return {"messages": messages, "close": live._websocket.close_code, "strange": strange}


def main(url: str) -> None:
    live = url.replace("http://", "ws://")
    there = DeepgramClientEnvironment(base=url, production=live, agent=live, agent_rest=url)
    deepgram = DeepgramClient(api_key="key", environment=there, timeout=10.0)
    try:
        with deepgram.listen.v2.connect(model="nova-3", encoding="linear16", sample_rate=RATE):
            refused: Any = None
    except InvalidStatus as error:  # the SDK lets the library's own through
        refused = error.response.status_code
    print(json.dumps({"heard": talk(deepgram, 9), "nonsense": talk(deepgram, 1, nonsense=True), "refused": refused}))


if __name__ == "__main__":
    main(*sys.argv[1:])
