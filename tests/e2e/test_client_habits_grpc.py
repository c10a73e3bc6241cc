"""Clients with habits over gRPC: what grpcio's server saw, attempt by attempt, and when; whole runs against the bundled
server. Real sockets, about ten seconds.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
import yaml
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration

from plimsoll.harness.exchange import Exchange
from plimsoll.harness.generator.habits import LOST, Habits
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.scenarios.plan.habits import ClientSection
from plimsoll.slo.records.records import Phase, Status
from tests.e2e.grpc_bench import GrpcBench, grpc_bench, stream, unary
from tests.e2e.plimsoll import plimsoll_here, server
from tests.fakes.grpc_scripted import Log, scripted_server

pytestmark = pytest.mark.e2e
MS = 1_000_000
EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
RETRY = {"backoff": "20ms..1s", "jitter": "none", "max": 3}


class Seen:
    """A request's end, its attempts, and when the server got each."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.attempts: list[Exchange] = []
        self.request: Exchange
        self.log: Log
        self.counts: dict[str, int]

    @property
    def gaps_ms(self) -> list[float]:
        return [(later - earlier) / MS for earlier, later in zip(self.came, self.came[1:], strict=False)]


def play(script: Callable[[Seen, int, Any], Awaitable[Any]], request: Any, **client: Any) -> Seen:
    """One request. ``script(seen, k, context)`` answers its k-th attempt."""
    seen = Seen()

    async def answer(log: Log, requests: Any, context: Any) -> Any:
        seen.came.append(time.monotonic_ns())
        return await script(seen, len(seen.came) - 1, context)

    async def main() -> None:
        async with scripted_server(answer) as (address, log, _), grpc_bench(f"grpc://{address}", 1) as bench:
            habits = Habits(bench.client, ClientSection.model_validate(client), bench.clock, 7, 1)
            habits.on_attempt, bench.client = seen.attempts.append, habits
            seen.request, seen.log = await _settled(bench, habits, request), log
            for attempt in seen.attempts:
                habits.after(habits.settle, habits.settle)(attempt)
            seen.counts = habits.stats()["habits"]
            await asyncio.sleep(0.05)  # until the server has heard of a cancelled call

    uvloop.run(main())
    seen.attempts.sort(key=lambda one: (one.labels or {})["attempt"])
    return seen


async def _settled(bench: GrpcBench, habits: Habits, request: Any) -> Exchange:
    _, done = bench.start(request)
    exchange = await asyncio.wait_for(done, 10)
    habits.after(habits.settle, habits.settle)(exchange)
    return exchange


def details(delay: Duration) -> bytes:
    """A google.rpc.Status of code 8 whose second detail is a RetryInfo."""
    inner = delay.SerializeToString()
    info = AnyMessage(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\x0a" + bytes((len(inner),)) + inner)
    other = AnyMessage(type_url="type.googleapis.com/google.rpc.Help", value=b"").SerializeToString()
    told = info.SerializeToString()
    return b"\x08\x08\x12\x04full\x1a" + bytes((len(other),)) + other + b"\x1a" + bytes((len(told),)) + told


def refuses(times: int, code: grpc.StatusCode, *trailer: tuple[str, str | bytes]) -> Any:
    async def script(seen: Seen, k: int, context: Any) -> Any:
        if k < times:
            await context.abort(code, "no", trailer)
        return b"yes"

    return script


@pytest.mark.parametrize("on", [["UNAVAILABLE"], [503], ["5xx"]])
def test_a_call_is_tried_again_by_the_name_of_its_code_or_by_the_code_of_http_that_says_the_same(on: list[Any]) -> None:
    seen = play(refuses(2, UNAVAILABLE), unary(), retry={**RETRY, "on": on})
    assert (seen.request.status, seen.request.code) == (Status.OK, 0)
    assert [one.code for one in seen.attempts] == [14, 14, 0]
    first, second = seen.gaps_ms
    assert 20 <= first < second
    assert second >= 40
    assert [one.get("x-request-id") for one in seen.log.metadata] == ["run-0-0"] * 3
    assert seen.request.sent_ns == seen.attempts[0].sent_ns


def test_other_codes_are_not_tried_again() -> None:
    seen = play(refuses(9, UNAVAILABLE), unary(), retry={**RETRY, "on": ["RESOURCE_EXHAUSTED", "INTERNAL", 504]})
    assert len(seen.came) == 1
    assert seen.request.status == Status.GRPC
    assert len(play(refuses(9, EXHAUSTED), unary(), retry=RETRY).came) == 4  # 429 is among the defaults


@pytest.mark.parametrize(
    ("trailer", "waited"),
    [
        (("grpc-retry-pushback-ms", "150"), 170),
        (("grpc-status-details-bin", details(Duration(nanos=150 * MS))), 170),
        (("grpc-status-details-bin", b"\x1a\xff\xff\xff"), 20),
        (("retry-after", "0"), 20),
    ],
)
def test_what_the_server_says_of_the_wait_is_waited_for_and_then_the_back_off(
    trailer: tuple[str, str | bytes], waited: int
) -> None:
    seen = play(refuses(1, EXHAUSTED, trailer), unary(), retry=RETRY)
    assert waited <= seen.gaps_ms[0] < waited + 60
    again = play(refuses(1, EXHAUSTED, trailer), unary(), retry={**RETRY, "honour_retry_after": False})
    assert 20 <= again.gaps_ms[0] < 80


def test_a_pushback_below_zero_is_the_last_word() -> None:
    refused = refuses(1, EXHAUSTED, ("grpc-retry-pushback-ms", "-1"))
    seen = play(refused, unary(), retry=RETRY)
    assert (len(seen.came), seen.request.status, seen.counts["retries"]) == (1, Status.REFUSED, 0)
    assert play(refused, unary(), retry={**RETRY, "honour_retry_after": False}).request.status == Status.OK


def test_a_stream_that_broke_after_its_first_message_is_tried_again_only_as_cut() -> None:
    async def breaks(seen: Seen, k: int, context: Any) -> Any:
        await context.write(b"one")
        if not k:
            await asyncio.sleep(0.02)  # or both come in one read
            await context.abort(UNAVAILABLE, "gone")

    assert len(play(breaks, stream(), retry={**RETRY, "on": ["UNAVAILABLE", "connect"]}).came) == 1
    seen = play(breaks, stream(), retry={**RETRY, "on": ["cut"]})
    assert (len(seen.came), seen.request.status) == (2, Status.OK)


@pytest.mark.parametrize("call", [unary, stream])
def test_the_hedge_that_answers_first_is_kept_and_the_server_sees_the_other_cancelled(call: Any) -> None:
    async def slow_first(seen: Seen, k: int, context: Any) -> Any:
        if not k:
            await asyncio.sleep(5)
        if call is unary:
            return b"yes"
        for part in (b"a", b"b", b"c"):
            await context.write(part)
            await asyncio.sleep(0.03)
        return None

    seen = play(slow_first, call(), hedge={"after": "80ms"})
    assert 80 <= seen.gaps_ms[0] < 140
    assert (seen.log.cancelled, seen.counts["hedge_wins"]) == (1, 1)
    lost, won = seen.attempts
    assert (lost.status, lost.error, won.status) == (Status.CANCELLED, LOST, Status.OK)
    assert (seen.request.status, len(seen.request.mark_ns)) == (Status.OK, 1 if call is unary else 3)
    if call is stream:
        assert lost.done_ns < won.done_ns - 50 * MS  # at the first message, not at the last
        assert abs(lost.done_ns - seen.request.mark_ns[0]) < 10 * MS


def test_headers_decide_where_the_client_says_so() -> None:
    async def slow(seen: Seen, k: int, context: Any) -> Any:
        if not k:
            await asyncio.sleep(0.12)
        await context.send_initial_metadata(())
        await asyncio.sleep(0.1 if k else 0.0)
        await context.write(b"x")

    seen = play(slow, stream(), hedge={"after": "80ms", "until": "headers"})
    assert [one.status for one in seen.attempts] == [
        Status.CANCELLED,
        Status.OK,
    ]  # though the first's message came first
    assert seen.log.cancelled == 1


def test_a_user_without_patience_leaves_and_the_server_is_told() -> None:
    async def hangs(seen: Seen, k: int, context: Any) -> Any:
        await asyncio.sleep(5)

    seen = play(hangs, unary(), patience="100ms")
    assert (seen.request.status, seen.log.cancelled, seen.counts["left"]) == (Status.CANCELLED, 1, 1)
    assert 100 * MS <= seen.request.done_ns - seen.request.ready_ns < 150 * MS


def test_a_whole_run_has_a_row_of_each_call_that_the_server_refused_and_what_that_answer_said(tmp_path: Path) -> None:
    scenario = {
        "kind": "server", "params": {"rate": 60, "arrival": "constant"},
        "stop": {"min_queries": 1, "min_duration": "2s"},
        "source": {"kind": "synthetic_text", "prompt_tokens": 4, "output_tokens": 2},
        "client": {"retry": {"on": ["UNAVAILABLE"], "max": 9, "backoff": "50ms..200ms", "honour_retry_after": False}},
        "labels": {"hint": "trailer retry-after"},
        "target": {"protocol": "kserve-v2-grpc", "model": "scripted"},
    }  # fmt: skip
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
    with server(
        "--grpc-port", "0", "--model", "scripted", "--ttft", "5ms", "--fault", "reject=at:500ms,for:200ms"
    ) as served:
        done = plimsoll_here("run", "s.yaml", "--url", f"grpc://{served.grpc}", "--out", "r", cwd=tmp_path)
        with urllib.request.urlopen(f"{served.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    assert done.returncode in (0, 4), done.stderr  # a busy host may be late
    (counted,) = re.findall(r'reference_rejected_total\{[^}]*reason="scripted_fault"\} (\S+)', text)
    refused = int(float(counted))
    records = open_sealed(tmp_path / "r").records
    measured, attempts = records.measured(), records.select(records["phase"] == Phase.ATTEMPT)
    assert set(measured["status"].tolist()) == {Status.OK}
    failed = attempts.select(attempts["code"] == 14)
    assert len(failed) == refused > 5
    assert int((measured.label("tries") - 1).sum()) == refused
    assert set(zip(attempts["code"].tolist(), attempts.label("hint").tolist(), strict=True)) == {(14, 1), (0, -1)}
    assert set(measured.label("hint").tolist()) == {-1}  # what the last answer said, and no earlier one


def test_hedges_to_another_server_are_its_calls_and_the_first_server_counts_them_cancelled(tmp_path: Path) -> None:
    scripted = ("--grpc-port", "0", "--model", "scripted", "--ttft", "5ms")
    with server(*scripted, "--fault", "stalled_replica=n:10,by:2s") as slow, server(*scripted) as quick:
        scenario = {
            "kind": "server", "params": {"rate": 40, "arrival": "constant"}, "warmup": 0,
            "stop": {"min_queries": 1, "min_duration": "2s"},
            "source": {"kind": "synthetic_text", "prompt_tokens": 4, "output_tokens": 2},
            "client": {"hedge": {"after": "200ms", "to": f"grpc://{quick.grpc}"}},
            "target": {"protocol": "triton-stream", "model": "scripted"},
        }  # fmt: skip
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
        done = plimsoll_here("run", "s.yaml", "--url", f"grpc://{slow.grpc}", "--out", "r", cwd=tmp_path)
        first, second = slow.truth(), quick.truth()
    assert done.returncode in (0, 4), done.stderr  # a busy host may be late
    measured = open_sealed(tmp_path / "r").records.measured()
    hedged = measured.select(measured.label("hedge") == 1)
    assert set(measured["status"].tolist()) == {Status.OK}
    assert len(hedged) == len(second) == sum(row["outcome"] == "cancelled" for row in first.values()) >= 7
    assert {name.split("-")[-2] for name in second} == {str(query) for query in hedged["query_id"].tolist()}
    assert len(first) == len(measured)
