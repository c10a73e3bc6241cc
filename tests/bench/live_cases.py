"""What live sessions cost this process: a frame sent on its deadline, a message heard, a session settled.

Microseconds of CPU.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import uvloop

from plimsoll.harness.clock import LoopClock
from plimsoll.harness.exchange import Exchange, SessionStamps
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.transport.client import Target
from plimsoll.harness.transport.live.websocket_pool import WebSocketClient
from plimsoll.harness.transport.live.websocket_session import Session
from plimsoll.scenarios.samples.clip import Clip, Word
from plimsoll.scenarios.samples.payload import Payload
from tests.bench.live_sink import PARTIAL
from tests.bench.live_streams import wire_bytes
from tests.bench.pinned import ROOT

_RATE = 16_000
_SESSIONS, _FRAMES = 40, 250
_OPTIONS = {"text_path": "text", "final_path": "is_final"}


def _client(port: int, clock: LoopClock, **audio: str) -> WebSocketClient:
    target = Target(f"http://127.0.0.1:{port}", "websocket", "m", options={**_OPTIONS, "audio": audio})
    client = protocols()["websocket"].build(target, clock)
    if not isinstance(client, WebSocketClient):
        raise TypeError("the generic protocol is spoken by WebSocketClient")
    return client


def live_frame() -> float:
    """One 20 ms frame of PCM sent on its deadline, ten times faster than real time so that a round is short; every
    tenth is answered.
    """
    frame = _RATE // 50
    arguments = [str(wire_bytes(frame * 2)), str(_FRAMES), "10"]
    sink = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.live_sink", *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    if sink.stdin is None or sink.stdout is None:
        raise RuntimeError("the sink was started without pipes")
    try:
        port = json.loads(sink.stdout.readline())["port"]
        return uvloop.run(_play(port, Clip(np.zeros(frame * _FRAMES, np.int16), _RATE)))
    finally:
        sink.stdin.close()
        sink.wait()


async def _play(port: int, clip: Clip) -> float:
    clock = LoopClock(asyncio.get_running_loop())
    client = _client(port, clock, frame="20ms", pace="10x")
    request = client.encode(Payload(data={"clip": clip}))
    await client.open(0)
    over: asyncio.Queue[Exchange] = asyncio.Queue()
    begun = time.process_time()
    for i in range(_SESSIONS):
        exchange = Exchange(i, 0, 0, clock.now_ns(), request)
        exchange.ready_ns = clock.now_ns()
        exchange.on_done = over.put_nowait
        client.send(exchange, b"bench-%d-0" % i)
    for _ in range(_SESSIONS):
        done = await over.get()
        if done.status != 0:
            raise RuntimeError(done.error)
    spent = time.process_time() - begun
    await client.close()
    clock.close()
    return spent / (_SESSIONS * _FRAMES) * 1e6


def live_message() -> float:
    """One transcript of 150 bytes heard: unframed by the library, stamped, kept, looked at for its three needles."""
    n = 20_000

    async def hear() -> float:
        clock = LoopClock(asyncio.get_running_loop())
        client = _client(1, clock)
        exchange = Exchange(0, 0, 0, 0, client.encode(Payload(data={"clip": Clip(np.zeros(1600, np.int16), _RATE)})))
        exchange.session = SessionStamps()
        await client.open(0)
        session = Session(client, exchange, 0)
        session.upgraded = True
        session._protocol.state = session._protocol.state.OPEN  # the handshake is not what is measured
        session._protocol.parser = super(type(session._protocol), session._protocol).parse()
        next(session._protocol.parser)
        begun = time.process_time()
        for i in range(n):
            session.on_data(PARTIAL, i, True)
        spent = time.process_time() - begun
        if len(exchange.mark_ns) != n:
            raise RuntimeError(f"{len(exchange.mark_ns)} messages of {n}")
        await client.close()
        clock.close()
        return spent / n * 1e6

    return uvloop.run(hear())


def live_settle() -> float:
    """A session of 12 words with 40 transcripts taken apart: JSON, word lags, word errors. A session."""
    words = [f"word{i}" for i in range(12)]
    spans = tuple(Word(word, i * 10**8, (i + 1) * 10**8) for i, word in enumerate(words))
    clip = Clip(np.zeros(16_000, np.int16), 16_000, 0, 12 * 10**8, " ".join(words), spans)

    async def settle() -> float:
        clock = LoopClock(asyncio.get_running_loop())
        client = _client(1, clock)
        request = client.encode(Payload(data={"clip": clip}))
        said: list[dict[str, Any]] = [
            {"type": "Results", "text": " ".join(words[: 1 + i * 11 // 39]), "is_final": i == 39} for i in range(40)
        ]
        n = 200
        begun = time.process_time()
        for query in range(n):
            exchange = Exchange(query, 0, 0, 0, request)
            stamps = exchange.session = SessionStamps()
            stamps.media_start_ns, stamps.speech_start_ns, stamps.speech_end_ns = 0, 0, clip.offset_ns
            exchange.status = 0
            for i, message in enumerate(said):
                exchange.body += json.dumps(message).encode()
                exchange.mark_ns.append(i)
                exchange.mark_end.append(len(exchange.body))
                stamps.texts.append(1)
            client.settle(exchange)
            if stamps.word_errors != 0:
                raise RuntimeError("the transcript was not understood")
        spent = time.process_time() - begun
        clock.close()
        return spent / n * 1e6

    return uvloop.run(settle())


LIVE_CASES: Mapping[str, Callable[[], float]] = MappingProxyType(
    {"live_frame": live_frame, "live_message": live_message, "live_settle": live_settle}
)
