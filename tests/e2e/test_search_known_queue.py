"""``plimsoll search`` against a queue whose line is known: the oracle as M/D/1, over loopback.

A few seconds tell loads apart that lie half as far again from each other; that the answer comes within 3 % of the
closed form takes 80,000 requests a probe, and is shown in virtual time
(tests/unit/slo/test_capacity_search_steps.py) and by ``python -m tests.bench.known_queue --real``.
"""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.oracle import oracle
from tests.e2e.plimsoll import plimsoll, server
from tests.simulated_queue import Queue, promise

pytestmark = pytest.mark.e2e

QUEUE = Queue("constant")  # one millisecond a request


def search(out: Path, line: float) -> dict[str, Any]:
    with oracle("--service", "1ms") as server:
        done = plimsoll(
            "search", "--url", server.url, "--protocol", "http", "--option", "body_text='{\"x\": 1}'", "--over", "rate",
            "--start", f"{0.62 * line:.0f}", "--lowest", f"{0.1 * line:.0f}", "--slo", str(promise("90", 8, QUEUE,
                "service_time")),
            "--resolution", "50%", "--probe", "2s", "--longest", "4x", "--cooldown", "0s", "--warmup", "0s", "--seed",
            "1",
            "--out", str(out), "--json", cwd=out.parent,
        )  # fmt: skip
    assert done.returncode in (0, 1, 3, 4), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.alone
def test_the_interval_holds_the_closed_form_of_an_md1_queue(tmp_path: Path) -> None:
    line = QUEUE.line_per_s(0.9, 8)
    for attempt in range(3):  # a host that stalls makes probes INVALID, and the search says so
        found = search(tmp_path / str(attempt), line)
        if found["outcome"] == "FOUND":
            break
    assert found["outcome"] == "FOUND", found["reasons"]
    low, high = found["rate_per_s"]["interval"]
    assert found["rate_per_s"]["best"] == low
    assert 0.4 * line <= low <= line <= high <= 1.6 * line
    overloaded = [probe for probe in found["probes"] if probe["load"] > QUEUE.capacity_per_s]
    assert overloaded
    assert {probe["outcome"] for probe in overloaded} <= {"FAIL", "INVALID"}


def test_the_scripted_servers_slot_is_an_exact_queue_too() -> None:
    body = json.dumps({"model": "scripted", "prompt": "a", "max_tokens": 3, "stream": True}).encode()

    def ask(url: str) -> None:
        request = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=30).read()

    with (
        server("--model", "scripted", "--slots", "1", "--ttft", "20ms", "--itl", "5ms") as started,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(ask, [started.url] * 8))
        rows = sorted(started.truth().values(), key=lambda row: row["due_ns"][0])
    assert len(rows) == 8
    free = 0
    for row in rows:
        first, *_, last = row["due_ns"]
        assert first == max(free, row["received_ns"]) + 20_000_000
        assert last == first + 10_000_000
        free = last
