"""Requests that end in every way, over real connections: the counters say exactly what happened, and nothing is left
behind.

Each kind of request can end in one way only, whatever the host does meanwhile, so counts are compared for equality.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_reference_server import Server, running

pytestmark = pytest.mark.e2e

N_REQUESTS = 300
N_CLIENTS = 16
N_TOKENS = 3
LONG: dict[str, Any] = {"max_tokens": 300, "ignore_eos": True}
SHORT: dict[str, Any] = {"max_tokens": N_TOKENS, "ignore_eos": True}
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "whole": (SHORT, ""),
    "streamed": (SHORT | {"stream": True}, ""),
    "invalid": (SHORT | {"priority": "first"}, ""),
    "refused": (SHORT | {"plimsoll": {"status": 503}}, ""),
    "late": (LONG, "x-request-timeout-ms: 5\r\n"),
    "left": (LONG | {"stream": True}, ""),
}
"""What is asked, with which header; one after the other."""
STATUS = {"whole": 200, "streamed": 200, "invalid": 400, "refused": 503, "late": 504, "left": 200}


async def ask(port: int, model: str, kind: str) -> int:
    """The status; one that has left did so after its first token."""
    fields, header = KINDS[kind]
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]} | fields).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"  # noqa: E501
        writer.write(head.encode() + body)
        status = int((await reader.readuntil(b"\r\n")).split()[1])
        if kind == "left":
            await reader.readuntil(b'"finish_reason": null')
            await reader.readuntil(b'"finish_reason": null')  # the role, then a token
        else:
            rest = await reader.read()
            assert kind != "streamed" or b"data: [DONE]" in rest
        return status
    finally:
        writer.close()


async def load(port: int, model: str, n: int) -> None:
    """So many requests, some at a time."""
    kinds = iter([list(KINDS)[i % len(KINDS)] for i in range(n)])

    async def client() -> None:
        for kind in kinds:
            assert await ask(port, model, kind) == STATUS[kind], kind

    await asyncio.gather(*(client() for _ in range(N_CLIENTS)))


def counted(server: Server) -> Counter[str]:
    """The page of metrics."""
    rows = server.call("/metrics")[1].decode().splitlines()
    return Counter({row.rpartition(" ")[0]: float(row.rpartition(" ")[2]) for row in rows if row[:1] != "#"})


async def settled(server: Server, n: int) -> Counter[str]:
    """The page when all are counted: a server learns a moment later that a client has left."""
    for _ in range(200):
        page = await asyncio.to_thread(counted, server)
        if sum(count for name, count in page.items() if name.startswith("reference_requests_total")) >= n:
            return page
        await asyncio.sleep(0.02)
    raise AssertionError(f"{n} requests were sent, and not all are counted: {page}")


def held(pid: int) -> tuple[int, int]:
    """Descriptors and threads of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()), sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def resident_mib(pid: int) -> float:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def judge(page: Counter[str], model: str, n: int) -> None:
    """Each kind was counted as what it was, exactly."""
    each = n / len(KINDS)

    def requests(status: int, outcome: str) -> float:
        return page[f'reference_requests_total{{model="{model}",outcome="{outcome}",status="{status}"}}']

    assert (requests(200, "ok"), requests(200, "cancelled")) == (2 * each, each)
    assert [requests(status, "error") for status in (400, 503, 504)] == [each] * 3
    assert page[f'reference_rejected_total{{model="{model}",reason="scripted_fault"}}'] == each
    assert page[f'reference_deadlines_missed_total{{model="{model}"}}'] == each
    assert page[f'reference_output_tokens_total{{model="{model}"}}'] == 2 * each * N_TOKENS
    assert page[f'reference_ttft_seconds_count{{model="{model}"}}'] == 2 * each
    for stage in ("queue", "preprocess", "prefill", "decode"):
        assert page[f'reference_stage_seconds_count{{model="{model}",stage="{stage}"}}'] == 2 * each, stage
    left = ("running", "waiting", "queue_depth")
    assert [page[f'reference_{name}{{model="{model}"}}'] for name in left] == [0, 0, 0]
    assert page["reference_kv_blocks_used"] == 0


async def released(pid: int, wanted: int) -> None:
    """Return when the process holds no more descriptors than that; the last connections take a moment to end."""
    for _ in range(200):
        if held(pid)[0] <= wanted:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{held(pid)[0]} descriptors are held, {wanted} at the start")


async def soak(server: Server, model: str, n: int) -> float:
    """Two rounds; by how many MiB the second made the server grow, once its truth was forgotten."""
    pid = server.process.pid
    n_files = held(pid)[0]
    n_threads, resident = 0, 0.0
    for number in (1, 2):
        await load(server.port, model, n)
        judge(await settled(server, number * n), model, number * n)
        await asyncio.to_thread(server.call, "/truth", method="DELETE")
        await released(pid, n_files)
        if number == 1:
            n_threads, resident = held(pid)[1], resident_mib(pid)
    assert held(pid)[1] == n_threads
    return resident_mib(pid) - resident


@pytest.mark.parametrize("model", ["scripted", "llm"])
def test_requests_that_end_in_every_way_are_counted_exactly_and_leave_nothing_behind(model: str) -> None:
    with running("--model", model, "--ttft", "2ms", "--itl", "1ms") as server:
        assert asyncio.run(asyncio.wait_for(soak(server, model, N_REQUESTS), 60)) < 16
