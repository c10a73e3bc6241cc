"""The trace context on the wire: each request of both engines carries its own, and a scenario's own header stays."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from plimsoll.slo.records.trace_ids import TraceIds
from tests.e2e.both_engines import ENGINES, Way, against, closed, opened
from tests.raw_server import Script, answer

IDS = TraceIds.of("run", 0.5)


def head_lines(engine: str, way: Way) -> list[dict[str, str]]:
    """Of each request, in order of arrival, its header lines as the server read them; no name comes twice."""
    heads: list[dict[str, str]] = []

    def noting() -> Script:
        async def script(request: bytes, reader: Any, writer: asyncio.StreamWriter, number: int) -> None:
            lines = request.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
            pairs: list[tuple[str, str]] = [
                (name, text) for name, _, text in (one.lower().partition(": ") for one in lines)
            ]
            assert len({name for name, _ in pairs}) == len(pairs)
            heads.append(dict(pairs))
            writer.write(answer())

        return script

    ran = against(engine, noting, way)
    assert [row["status"] for row in ran.rows] == [0] * len(ran.rows)
    return heads


@pytest.mark.parametrize("engine", ENGINES)
def test_every_request_carries_the_trace_that_its_row_is_joined_by(engine: str) -> None:
    way = Way(
        opened([0, 5, 10, 15, 20, 25], samples=2), warmup=opened([-20, -15]), target={"traceparent": 0.5}, traces=IDS
    )
    heads = head_lines(engine, way)
    assert len(heads) == 14
    for head in heads:
        run, query, sample = re.fullmatch(r"(runw?)-(\d+)-(\d+)", head["x-request-id"]).groups()  # type: ignore[union-attr]
        assert head["traceparent"] == IDS.header(int(query), int(sample), run == "runw").decode()


@pytest.mark.parametrize("engine", ENGINES)
def test_it_needs_no_request_id(engine: str) -> None:
    heads = head_lines(engine, Way(closed(3), target={"traceparent": 0.5, "send_request_id": False}, traces=IDS))
    assert [head["traceparent"] for head in heads] == [IDS.header(at, 0, False).decode() for at in range(3)]
    assert all("x-request-id" not in head for head in heads)


@pytest.mark.parametrize("engine", ENGINES)
def test_none_is_sent_where_none_is_wanted(engine: str) -> None:
    assert all("traceparent" not in head for head in head_lines(engine, Way(closed(2))))
