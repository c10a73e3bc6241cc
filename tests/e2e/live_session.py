"""One live session of one protocol against one server, in this process: what the client made of it, on the server's
clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import uvloop

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.transport.client import Target
from plimsoll.scenarios.samples.clip import Clip, Word
from plimsoll.scenarios.samples.payload import Payload
from tests.e2e.in_process import asked
from tests.fakes.websocket_fake import Fake, Knobs

MS = 1_000_000


def clip_of(knobs: Knobs, rate: int = 16_000, trail_ms: float = 0.0) -> Clip:
    """The recording of what a fake will hear: its words end when the knobs say so, and ``trail_ms`` of silence
    follow.
    """
    n_speech, n_trail = round(knobs.speech_end_ms * rate / 1000), round(trail_ms * rate / 1000)
    pcm = np.concatenate((8192 * np.sin(np.arange(n_speech) * 0.2), np.zeros(n_trail))).astype(np.int16)
    words = tuple(
        Word(word, round((knobs.end_ms(i) - knobs.word_ms) * MS), round(knobs.end_ms(i) * MS))
        for i, word in enumerate(knobs.words)
    )
    onset = words[0].start_ns
    return Clip(pcm, rate, onset, round(knobs.speech_end_ms * MS), " ".join(knobs.words), words, "clean", "labels")


def audio_payload(knobs: Knobs, **more: Any) -> Payload:
    clip = clip_of(knobs, **more)
    return Payload(data={"clip": clip}, media_ns=clip.duration_ns, reference=clip.transcript)


async def session(url: str, protocol: str, payload: Payload, options: Mapping[str, Any], **target: Any) -> Exchange:
    """One session to its end, settled."""
    (exchange,) = await asked(Target(url, protocol, options=options, **target), payload)
    return exchange


def against(
    build: Callable[[Knobs], Fake],
    knobs: Knobs,
    protocol: str,
    payload: Payload,
    options: Mapping[str, Any] | None = None,
    **target: Any,
) -> tuple[Exchange, list[dict[str, Any]]]:
    """(the settled exchange, the fake's log) of one session with a fake."""

    async def main() -> tuple[Exchange, list[dict[str, Any]]]:
        fake = build(knobs)
        await fake.start()
        try:
            exchange = await session(fake.url, protocol, payload, options or {}, **target)
            await asyncio.sleep(0.02)  # the fake hears that the client has gone
            return exchange, list(fake.log)
        finally:
            await fake.stop()

    return uvloop.run(main())
