"""The tables of docs/reference/metrics.md through whole runs: real bytes, real sockets, the command line, either engine. About 15 seconds.

The unit suite holds every cell to the nanosecond. Here a server writes the same bytes in real time, one case after the other,
and what a run directory says of each must agree with the tables in all but the times themselves: status, token counts, which
metrics have a value, and which are worst.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from plimsoll.slo.metrics.indicator import OnFailure, catalogue, measure
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status, TokensFrom
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.both_engines import ENGINES
from tests.e2e.plimsoll import plimsoll_here
from tests.metric_cases import ANSWERS, FAILURES, SPECIFICATION, Case
from tests.raw_server import raw_server

pytestmark = pytest.mark.e2e

MS = 1_000_000
#: Closed loop, so the server knows which query it has; each of these ends what it began.
RUN = (
    *("plain", "role_only", "empty_chunk", "several_tokens", "reasoning_first", "reasoning_only", "tool_call"),
    *("usage_says_more", "usage_says_none", "usage_missing", "one_token", "zero_tokens", "one_chunk", "no_done"),
    *("not_streamed", "not_streamed_no_usage", "cut", "cut_cleanly", "error_event", "error_overloaded", "given_up"),
    *("not_json", "http_error", "refused", "timed_out"),
)
CASES = {**ANSWERS, **FAILURES}
LINES = [
    [cell.strip() for cell in line.split("|")[1:-1]] for line in SPECIFICATION.splitlines() if line.startswith("| `")
]


async def play(case: Case, writer: asyncio.StreamWriter, cut: bool, hang: bool) -> None:
    """The case's bytes at its times, framed by chunks so that the connection can go on."""
    head = f"HTTP/1.1 {case.code} X\r\ncontent-type: {case.media}\r\ntransfer-encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    before = 10.0
    for at, data in case.reads:
        await asyncio.sleep(max(at - before, 0) / 1000)
        before = at
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
    if hang:
        await asyncio.sleep(2)
    if cut:
        writer.close()
    else:
        writer.write(b"0\r\n\r\n")


@contextmanager
def scripted() -> Iterator[str]:
    """A server in a thread that answers the n-th request by the n-th case."""
    url: list[str] = []
    ready, stop = threading.Event(), threading.Event()
    asked = iter(RUN)

    async def answer(request: bytes, _reader: Any, writer: asyncio.StreamWriter, _number: int) -> None:
        assert request.startswith(b"POST /v1/chat/completions"), request
        name = next(asked, "plain")  # one more would be a row too many
        await play(CASES[name], writer, name in ("cut", "timed_out"), name == "timed_out")

    async def serve() -> None:
        async with raw_server(answer) as where:
            url.append(where)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield url[0]
    finally:
        stop.set()
        thread.join(10)


Ran = tuple[Records, dict[str, Any]]


@pytest.fixture(scope="module", params=ENGINES)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The rows of one run by an engine, in the cases' order, and its report."""
    if request.param == "native":
        pytest.importorskip("plimsoll.harness.generator._engine", reason="the extension is not compiled here")
    folder = tmp_path_factory.mktemp("run")
    with scripted() as url:
        done = plimsoll_here(
            "run", "--url", url, "--protocol", "openai-chat", "--model", "m", "--kind", "single_stream", "--queries", str(len(RUN)),  # noqa: E501
            "--duration", "1ms", "--timeout", "1s", "--option", f"engine={request.param}", "--slo", "max(latency) <= 60s",  # noqa: E501
            "--slo", "ttft <= 10s", "--slo", "ratio(good) >= 1%", "--out", "r", cwd=folder,
        )  # fmt: skip
    assert (folder / "r" / "report.json").exists(), done.stderr
    records = tables.load(folder / "r")
    assert contradictions(records) == []
    assert len(records) == len(RUN)
    return records.select(np.argsort(records["query_id"])), json.loads((folder / "r" / "report.json").read_text())


def said(name: str, metric: str) -> list[str]:
    """The cells that the tables have for a case, one a table that has both."""
    found = []
    heads = [line for line in SPECIFICATION.splitlines() if line.startswith("| case")]
    for cells in LINES:
        if cells[0] == f"`{name}`":
            head = next(h for h in heads if len(h.split("|")) - 2 == len(cells) and _of(h, cells))
            names = [cell.strip() for cell in head.split("|")[1:-1]]
            found += [cells[names.index(metric)]] if metric in names else []
    return found


def _of(head: str, cells: list[str]) -> bool:
    """Whether a row with these cells stands below this head in the text."""
    block = SPECIFICATION[SPECIFICATION.index(head) :].split("\n\n", 1)[0]
    return f"| {' | '.join(cells)} |" in block


def test_a_run_says_of_each_answer_what_the_tables_say(ran: Ran) -> None:
    records, report = ran
    for row, name in enumerate(RUN):
        status = Status[said(name, "status")[0]] if name in FAILURES else Status.OK
        assert records["status"][row] == status, (name, records.texts("error")[row])
        tokens = said(name, "tokens")[0]
        assert records["n_out"][row] == (-1 if tokens == "-" else int(tokens)), name
        if name in ANSWERS:
            counted = {"usage": TokensFrom.USAGE, "chunks": TokensFrom.CHUNKS, "nothing": TokensFrom.NONE}
            assert records["tokens_from"][row] == counted[said(name, "counted from")[0]], name
    for metric, indicator in catalogue().items():
        if indicator.live or indicator.scope == "query":
            continue  # of live sessions and of queries of several samples: this run has neither
        found = measure(indicator, records)
        for row, name in enumerate(RUN):
            values = found.values[found.row == row].tolist()
            for cell in said(name, metric) if name in ANSWERS else ():
                assert len(values) == (0 if cell in ("-", "free") else len(cell.split(","))), (name, metric)
            told = found.n and indicator.on_failure is not OnFailure.AS_IS  # not of what only answers have
            if name in FAILURES and told and metric not in ("lag", "generator_lag", "error"):
                assert values[-1] == indicator.worst, (name, metric)
        if found.n:
            assert (report["metrics"][metric]["n"], report["metrics"][metric]["missing"]) == (found.n, found.missing)


def test_no_time_of_a_run_is_shorter_than_the_server_took(ran: Ran) -> None:
    """The server never writes before its time, so on any host each wait is at least the table's, less a timer's
    grain.
    """
    records, _ = ran
    for metric, since in (("ttft", 10), ("ttft_answer", 10), ("e2e", 10)):
        found = measure(catalogue()[metric], records)
        for row, name in enumerate(RUN):
            cell = said(name, metric)[0] if name in ANSWERS else "-"
            if cell not in ("-", "free"):
                assert found.values[found.row == row][0] >= (float(cell) - since - 1) * MS, (name, metric)
