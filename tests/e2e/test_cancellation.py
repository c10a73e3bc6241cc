"""Cancelling on purpose: both engines drop the same requests at their time, and the server sees every one of them go.

Real sockets, about fifteen seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.harness.generator.issuer import CANCELLED
from plimsoll.scenarios import spec
from plimsoll.scenarios.plan import cancellation
from plimsoll.slo.records import tables
from plimsoll.slo.records.cancelled import CANCEL
from plimsoll.slo.records.records import Status
from tests.e2e.both_engines import MS, Way, against, both, closed, opened, saying
from tests.e2e.plimsoll import plimsoll_here, server
from tests.raw_server import Script, answer

pytestmark = pytest.mark.e2e

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def slow(first: float = 0.0, rest: float = 5.0) -> Any:
    return saying(first, HEAD + b"3\r\nabc\r\n", rest, b"0\r\n\r\n")


def cancelled(row: dict[str, Any]) -> bool:
    return bool(row["status"] == Status.CANCELLED)


@pytest.fixture(autouse=True)
def _compiled() -> None:
    pytest.importorskip("plimsoll.harness.generator._engine", reason="the extension is not compiled here")


def test_the_chosen_ones_are_dropped_at_their_time_and_keep_what_had_come() -> None:
    delays = [60 * MS, -1, 90 * MS, -1]
    for ran in both(saying(HEAD + b"3\r\nabc\r\n", 0.15, b"0\r\n\r\n"), Way(opened([0, 5, 10, 15]), cancel_ns=delays)):
        assert [cancelled(row) for row in ran.rows] == [True, False, True, False]
        for row, after in zip(ran.rows, delays, strict=True):
            if after < 0:
                assert row["status"] == Status.OK
                continue
            assert row["error"] == CANCELLED
            assert after <= row["done_ns"] - row["ready_ns"] < after + 50 * MS
            assert (row["code"], row["bytes_in"] > 3) == (200, True), "what had come is kept"


def test_one_that_was_done_or_had_failed_before_its_time_is_left_as_it_is() -> None:
    quick = saying(answer())
    for ran in both(quick, Way(closed(6, slots=2), cancel_ns=[200 * MS] * 3)):
        assert {row["status"] for row in ran.rows} == {Status.OK}
    for ran in both(saying(5.0), Way(closed(3), cancel_ns=[300 * MS] * 3, target={"timeout_ns": 60 * MS})):
        assert {row["status"] for row in ran.rows} == {Status.TIMEOUT}


def test_a_slot_that_a_cancellation_frees_is_taken_up_at_once() -> None:
    for ran in both(saying(5.0), Way(closed(6), cancel_ns=[40 * MS] * 3)):
        rows = ran.rows
        assert all(map(cancelled, rows))
        waits = sorted(then["due_ns"] - row["done_ns"] for row, then in itertools.pairwise(rows))
        assert waits[2] < 2 * MS, waits


def test_all_samples_of_a_query_go_together_and_many_delays_end_in_their_own_order() -> None:
    rng = np.random.default_rng(7)
    delays = (2 * rng.permutation(30) + 80) * MS  # after all are out, on a busy machine as well
    for ran in both(saying(5.0), Way(opened([0.0] * 30, samples=2), cancel_ns=delays.tolist())):
        for row in ran.rows:
            assert cancelled(row)
            late = row["done_ns"] - row["ready_ns"] - int(delays[row["query_id"]])
            assert 0 <= late < 60 * MS, row


def test_one_that_waits_for_a_connection_is_dropped_without_ever_being_sent() -> None:
    way = Way(opened([0, 1, 2]), cancel_ns=[-1, 40 * MS, -1], target={"max_connections": 1})
    for ran in both(saying(0.12, answer()), way):
        assert [cancelled(row) for row in ran.rows] == [False, True, False]
        assert (ran.rows[1]["sent_ns"], ran.rows[1]["connect_ns"]) == (-1, -1)
        assert ran.rows[2]["status"] == Status.OK


@pytest.mark.parametrize("engine", ["python", "native"])
def test_nothing_stays_open_when_requests_were_dropped(engine: str) -> None:
    """The server reads the end of each connection while the load still runs, and only of those that were dropped."""
    ends: list[int] = []

    def script() -> Script:
        async def play(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            writer.write(HEAD + b"3\r\nabc\r\n")
            try:
                if not await asyncio.wait_for(reader.read(1), 0.25):
                    ends.append(number)
                    return
            except TimeoutError:
                pass
            writer.write(b"0\r\n\r\n")

        return play

    delays = [50 * MS, -1] * 6
    ran = against(engine, script, Way(opened([float(i) for i in range(12)]), cancel_ns=delays))
    assert sum(map(cancelled, ran.rows)) == 6
    assert len(ends) == 6


def test_a_whole_run_tells_the_chosen_ones_apart_and_the_server_saw_them_leave(tmp_path: Path) -> None:
    """Streams of 0.4 s, a third dropped after 150 ms: /truth has as many cancelled ones, and no objective sees any.

    By the compiled engine; the other does the same by the tests above.
    """
    scenario = {
        "name": "leavers",
        "kind": "server",
        "params": {"rate": 90, "arrival": "constant"},
        "source": {"kind": "synthetic_text", "prompt_tokens": 8, "output_tokens": 20, "count": 8},
        "stop": {"min_queries": 90, "min_duration": "0s"},
        "cancel": {"share": 0.33, "after": "150ms"},
        "objectives": ["ratio(error) <= 10%", "max(latency) <= 10s"],
        "target": {"options": {"engine": "native"}},
    }
    (tmp_path / "s.yaml").write_text(json.dumps(scenario))
    with server("--model", "scripted", "--ttft", "20ms", "--itl", "20ms") as target:
        done = plimsoll_here("run", "s.yaml", "--url", target.url, "--out", "r", "--json", cwd=tmp_path)
        truth = target.truth()
    assert done.returncode in (0, 3, 4), done.stderr
    records = tables.load(tmp_path / "r")
    plan = spec.load(tmp_path / "s.yaml").build(8)
    section = cancellation.CancelSection(share=0.33, after="150ms")  # type: ignore[arg-type]
    expected = cancellation.chosen(section, 42, plan, records["query_id"])
    assert 10 < expected.sum() < 50
    assert ((records["phase"] == CANCEL) == expected).all()
    assert ((records["status"] == Status.CANCELLED) == expected).all(), "every stream lasts longer than 150 ms"
    assert (records["n_chunks"][expected] > 2).all()
    assert sum(row["outcome"] == "cancelled" for row in truth.values()) == expected.sum()
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    rest = int((~expected).sum())
    assert report["counts"]["by_status"] == {"OK": rest}
    assert report["cancellation"] == {"chosen": int(expected.sum()), "by_status": {"CANCELLED": int(expected.sum())}}
    assert report["metrics"]["latency"]["n"] == rest
    assert report["validity"]["planned"] == report["validity"]["sent"] == len(records)
    assert any(f"{int(expected.sum())} of {len(records)} requests" in text for text in report["warnings"])
    judged = {one["objective"]: one["outcome"] for one in report["verdict"]["objectives"]}
    assert judged["max(latency) <= 10s"] == "PASS"
