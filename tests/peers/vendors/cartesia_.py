"""Cartesia's SDK against the server at the given address: recognition by hand and by turns, and speech; prints one JSON
object.

Run by tests/e2e/test_fakes_by_sdk.py in .venv-vendors; not imported by the suite.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from cartesia import Cartesia
from typed import show, wrong
from websockets.exceptions import ConnectionClosed, InvalidStatus

RATE = 16_000
FRAME = bytes(RATE // 10 * 2)
MODEL: dict[str, Any] = {"model": "ink-2", "encoding": "pcm_s16le", "sample_rate": RATE}


def collected(events: Any, until: str = "") -> tuple[list[dict[str, Any]], list[str], bool]:
    """(events, what is wrong with them, whether the connection ended) up to the first of type ``until``."""
    got: list[dict[str, Any]] = []
    faults: list[str] = []
    for event in events:
        got.append(json.loads(event.model_dump_json(exclude_unset=True, warnings=False)))
        faults += wrong(event)
        if event.type == until:
            return got, faults, False
    return got, faults, True


def by_hand(client: Cartesia) -> dict[str, Any]:
    """Two pieces of audio, each finalized, then ``close``."""
    with client.stt.manual_finalize.websocket(**MODEL) as live:
        for _ in range(3):
            live.send_raw(FRAME)
        live.send("finalize")
        first, faults, _ = collected(live, "flush_done")
        for _ in range(3):
            live.send_raw(FRAME)
        live.send("close")
        rest, more, ended = collected(live)
    return {"first": first, "rest": rest, "wrong": faults + more, "ended": ended}


def by_turns(client: Cartesia) -> dict[str, Any]:
    """Audio up to the end of the turn, then ``close``."""
    with client.stt.auto_finalize.websocket(**MODEL) as live:
        live.send({"type": "config", "turn": {"end_threshold": 0.3}})
        for _ in range(7):
            live.send_raw(FRAME)
        events, faults, _ = collected(live, "turn.end")
        live.send({"type": "close"})
        rest, more, ended = collected(live)
    return {"events": events + rest, "wrong": faults + more, "ended": ended}


def speak(client: Cartesia, texts: list[str], voice: Any) -> dict[str, Any]:
    """The audio of a text in pieces, in one context."""
    shape: Any = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}
    with client.tts.websocket_connect() as live:
        context = live.context(model_id="sonic-3", voice=voice, output_format=shape, language="en", timeout=5)
        for text in texts:
            context.push(text)
        context.no_more_inputs()
        faults: list[str] = []
        audio, kinds = b"", []
        for event in context.receive():
            faults += wrong(event)
            kinds.append(event.type)
            audio += getattr(event, "audio", None) or b""
    return {"kinds": kinds, "bytes": len(audio), "wrong": faults}


def failed(client: Cartesia) -> dict[str, Any]:
    """The service's own error: a command that is none."""
    with client.stt.manual_finalize.websocket(**MODEL) as live:
        live.send_raw("nonsense")
        try:
            events, faults, _ = collected(live)
        except ConnectionClosed as closed:
            return {"closed": str(closed)}
    return {"events": events, "wrong": faults}


def refused(url: str) -> int:
    """The status of a handshake without a version."""
    client = Cartesia(api_key="key", base_url=url, websocket_base_url=url.replace("http", "ws"))
    try:
        with client.stt.manual_finalize.websocket(**MODEL, extra_headers={"cartesia-version": ""}):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def main(url: str) -> None:
    client = Cartesia(api_key="key", base_url=url, websocket_base_url=url.replace("http", "ws"))
    result = {
        "by_hand": by_hand(client),
        "by_turns": by_turns(client),
        "spoken": speak(client, ["one two ", "three"], {"mode": "id", "id": "a-voice"}),
        "named": speak(client, ["one"], "a-voice"),
        "failed": failed(client),
    }
    show(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
