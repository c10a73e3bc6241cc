"""How fast the tiny language model serves on two cores: 30 streams at once, at most 50 ms a token.

A step computes a token for every stream, so the time per output token is a step and the gap after it: some 10 ms for 30
streams here. The bound leaves room for a host three times slower and still fails when streams are served one after the
other (30 x 2 ms). Where others have the cores, it is widened by as much as a control that only counts is slowed down.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time

import pytest

from tests.e2e.test_reference_server import running

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

N_STREAMS, N_TOKENS, N_PROMPT = 30, 96, 200


async def stream(port: int, number: int) -> list[float]:
    """Arrival of each token event, in seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(
        {
            "model": "llm",
            "prompt": f"{number} " + "x" * N_PROMPT,
            "max_tokens": N_TOKENS,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    writer.write(head + body)
    arrivals = []
    while line := await reader.readline():
        if line.startswith(b"data: {") and b'"text": ""' not in line and b'"text":""' not in line:
            arrivals.append(time.perf_counter())
    writer.close()
    return arrivals


def share_of_a_core() -> float:
    """How much of its time a loop that only counts is let run, just now."""
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    while time.perf_counter() < begun_s + 0.2:
        pass
    return (time.process_time() - begun_cpu_s) / (time.perf_counter() - begun_s)


def test_thirty_streams_on_two_cores_get_a_token_every_fifty_milliseconds() -> None:
    pytest.importorskip("torch", reason="the language model needs torch")

    async def all_streams(port: int) -> list[list[float]]:
        return await asyncio.gather(*(stream(port, number) for number in range(N_STREAMS)))

    with running("--model", "llm", "--device", "cpu", "--threads", "1") as server:
        share = share_of_a_core()
        arrivals = asyncio.run(all_streams(server.port))
        share = min(share, share_of_a_core())
    assert [len(times) for times in arrivals] == [N_TOKENS] * N_STREAMS
    together_s = min(times[-1] for times in arrivals) - max(times[0] for times in arrivals)
    assert together_s > 0.3 * max(times[-1] - times[0] for times in arrivals)  # they were streams at the same time
    tpot_ms = [1e3 * (times[-1] - times[0]) / (N_TOKENS - 1) for times in arrivals]
    print(
        f"TPOT of {N_STREAMS} streams: median {statistics.median(tpot_ms):.1f} ms, worst {max(tpot_ms):.1f} ms, share "
        f"{share:.2f}"
    )
    assert max(tpot_ms) <= 50 / share
