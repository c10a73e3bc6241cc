"""How many live streams one core hears: the figures of docs/reference/reference-server.md, section Speech.

``python -m tests.bench.speech_streams [STREAMS] [SECONDS]`` plays speech of 16 kHz in pieces of 100 ms to the
recogniser in this process, each stream in real time from its own random instant, and prints the CPU spent per second of
audio and how long a piece took to be heard. No network: what a front-end costs comes on top.
"""

from __future__ import annotations

import asyncio
import sys
import time

import numpy as np

from plimsoll.reference_server.assembly import recogniser
from plimsoll.reference_server.config import ServerConfig
from plimsoll.reference_server.seams.models import Audio
from plimsoll.reference_server.speech.listening import Recogniser
from plimsoll.reference_server.values.durations import Startup
from tests.bench.speech_wer import RATE, spoken, texts

_PIECE_S = 0.1


async def _live(model: Recogniser, audio: Audio, begin_s: float, seconds: float, took_ms: list[float]) -> str:
    listener = model.listen(RATE)
    size, last = int(_PIECE_S * RATE), ""
    for i in range(int(seconds / _PIECE_S)):
        due_s = begin_s + (i + 1) * _PIECE_S
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        at = i * size % (len(audio) - size)
        heard = await listener.feed(audio[at : at + size])
        took_ms.append(1e3 * (time.perf_counter() - due_s))
        last = next((each.text for each in heard if each.words), last)
    await listener.finish()
    listener.close()
    return last


async def main(n_streams: int = 200, seconds: float = 10.0) -> str:
    """One line of figures."""
    model = recogniser(ServerConfig(models=("recogniser",), device="cpu", queue_limit=max(1, n_streams - 32)))
    await model.start(Startup())
    rng = np.random.default_rng(1)
    audios = [np.concatenate([spoken(text), np.zeros(RATE // 2, np.float32)]) for text in texts(20, seed=1)]
    took_ms: list[float] = []
    begin_s, cpu_s = time.perf_counter() + 0.2, time.process_time()
    begins = begin_s + rng.uniform(0, _PIECE_S, n_streams)
    streams = (_live(model, audios[i % 20], begin, seconds, took_ms) for i, begin in enumerate(begins))
    lasts = await asyncio.gather(*streams)
    cpu_s = time.process_time() - cpu_s
    await model.stop()
    p50, p99 = np.percentile(took_ms, [50, 99])
    audio_s = n_streams * seconds
    return (
        f"{n_streams} streams, {sum(map(bool, lasts))} with words: {1e3 * cpu_s / audio_s:.2f} ms CPU per second of "
        f"audio ({cpu_s / seconds:.0%} of a core); a piece was heard {p50:.1f} ms after it was due, p99 {p99:.1f} ms"
    )


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    sys.stdout.write(asyncio.run(main(int(given[0]) if given else 200, given[1] if len(given) > 1 else 10.0)) + "\n")
