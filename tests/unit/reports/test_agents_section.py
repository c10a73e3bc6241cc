"""The section on who sent a distributed run: bounded whatever the number of agents, by region where they are named."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from made_reports import MANIFEST, MS, SCENARIO, built, every, facts, records, texts

from plimsoll.reports.blocks.document import Folded, Table
from plimsoll.reports.documents.run import document
from plimsoll.reports.format import formats
from plimsoll.reports.report import Report, json_schema
from plimsoll.reports.sections.agents import LISTED
from plimsoll.slo.records.records import Records, from_arrays


def dealt(n: int, agents: int, slow: dict[int, int], fail_every: int = 0) -> Records:
    """n requests by lot to so many workers; ``slow``: worker -> by how much its path is longer."""
    made = records(n, fail_every=fail_every)
    worker = np.random.default_rng(4).integers(0, agents, n)
    longer = np.array([slow.get(one, 0) for one in worker.tolist()])
    columns = dict(made.columns) | {"worker": worker}
    for name in ("headers_ns", "first_byte_ns", "first_token_ns", "last_token_ns", "done_ns"):
        columns[name] = np.where(made[name] >= 0, made[name] + longer, -1)
    chunks = made.chunk_ns + np.repeat(longer, np.diff(made.chunk_offsets))
    return from_arrays(columns, chunks, made.chunk_offsets, made.errors, ())


def agent(index: int, **more: Any) -> dict[str, Any]:
    clock = {"offset_ns": 5, "error_ns": 1_000 + index}
    return {"name": f"a{index:04d}", "host": {"hostname": f"h{index}"}, "shards": [index], "clock": clock} | more


def reported(made: Records, agents: list[dict[str, Any]]) -> Report:
    return built({**MANIFEST, "agents": agents}, SCENARIO, made, facts(made))


def test_a_run_of_one_host_has_no_such_section() -> None:
    made = records(200)
    report = built(MANIFEST, SCENARIO, made, facts(made))
    assert report.agents is None
    assert "agents" not in report.document()
    assert "Who sent it" not in formats()["html"].render(report).decode()


def test_an_agent_whose_path_is_longer_is_listed_first_and_warned_of() -> None:
    report = reported(dealt(2_000, 3, {1: 80 * MS}), [agent(0), agent(1), agent(2, lost="was lost: it left")])
    found = report.agents
    assert found is not None
    assert found.by_agent.rows[0].name == "a0001"
    assert sum(row.requests for row in found.by_agent.rows) == report.counts.ok
    assert [row.clock_error_ns for row in found.by_agent.rows if row.name == "a0002"] == [1_002]
    assert found.by_region is None
    (note,) = found.notes
    assert note.startswith("agent a0001 on h1 is slower than the others, more than chance makes: p50(ttft) of a0001 ")
    assert note in report.warnings
    page = formats()["html"].render(report).decode()
    assert "Who sent it" in page
    assert "was lost: it left" in page
    Draft202012Validator(json_schema()).validate(report.document())


def test_a_region_that_is_slower_is_told_once_and_not_for_each_of_its_agents() -> None:
    agents = [agent(index, region="asia" if index < 3 else "eu" if index < 6 else None) for index in range(8)]
    report = reported(dealt(4_000, 8, dict.fromkeys(range(3), 90 * MS)), agents)
    found = report.agents
    assert found is not None
    assert found.by_region is not None
    assert found.by_region.rows[0].name == "asia"
    assert {(row.name, row.agents) for row in found.by_region.rows} == {("asia", 3), ("eu", 3), ("", 2)}
    (note,) = found.notes
    assert note.startswith("region asia is slower than the others")
    tables = [table for table in every(document(report).blocks, Table) if table.columns[0].head == "Region"]
    names = [texts(row)[0] for row in tables[0].rows]
    assert names[0] == "asia"
    assert sorted(names) == ["(none)", "asia", "eu"]


def test_of_a_thousand_agents_the_slowest_and_the_fastest_are_listed_and_the_rest_is_one_row() -> None:
    many = 1_000
    made = dealt(30_000, many, {7: 500 * MS, 8: 300 * MS}, fail_every=300)
    report = reported(made, [agent(index, region=f"r{index % 100}") for index in range(many)])
    found = report.agents
    assert found is not None
    assert found.by_agent.others is not None
    assert found.by_region is not None
    assert found.by_region.others is not None
    for senders, total in ((found.by_agent, many), (found.by_region, 100)):
        assert senders.others is not None
        assert len(senders.rows) == 2 * LISTED
        assert len(senders.rows) + senders.others.number + senders.idle == total
        assert sum(row.requests for row in senders.rows) + senders.others.requests == 30_000
        failed = sum(round(row.failed * row.requests) for row in senders.rows)
        assert failed + round(senders.others.failed * senders.others.requests) == report.counts.failed
        p90 = [np.inf if row.ttft is None or row.ttft.p90 is None else row.ttft.p90 for row in senders.rows]
        assert p90 == sorted(p90, reverse=True)
    assert len(json.dumps(report.document()["agents"])) < 60_000
    assert any(folded.summary == "All 1,000 agents" for folded in every(document(report).blocks, Folded))
    assert all(len(note) < 700 for note in found.notes)


@pytest.mark.parametrize("agents", [[], [agent(0, shards=[])]])
def test_agents_without_a_part_are_no_section(agents: list[dict[str, Any]]) -> None:
    assert reported(records(100), agents).agents is None
