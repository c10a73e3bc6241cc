"""Rows of queries that no worker recorded: whose they were, and whether they may have been sent."""

from __future__ import annotations

import numpy as np
import pytest

from plimsoll.harness.run.rundir import _missing
from plimsoll.harness.run.workforce import Member
from plimsoll.scenarios.plan.plan import Dealing, Plan, Stop
from plimsoll.slo.records.records import Status, empty


def sessions(n: int) -> Plan:
    """Three queries a session, each after the one before; query k is due at k ms."""
    after = np.where(np.arange(n) % 3 == 0, -1, np.arange(n) - 1)
    zeros = np.zeros(n, np.int64)
    due = np.arange(n) * 1_000_000
    return Plan(due, np.arange(n), np.arange(n + 1), zeros, zeros, after, Stop(), seed=0, open_loop=True)


@pytest.mark.parametrize("dealing", ["turns", "lots"])
def test_a_dead_workers_rows_are_those_that_it_was_dealt_up_to_its_death(dealing: Dealing) -> None:
    plan, t0_ns = sessions(60), 10**15
    members = [Member(index, done={}) for index in range(4)]
    members[2] = Member(2, death="was killed", died_ns=t0_ns + 30_000_000)
    rows = _missing(plan, members, empty(), t0_ns, dealing)
    assert rows["query_id"].tolist() == list(range(60))
    for index in range(4):
        mine = plan.shard(index, 4, dealing).query_id
        assert rows["query_id"][rows["worker"] == index].tolist() == mine.tolist()
    lost = rows["query_id"][rows["status"] == int(Status.UNFINISHED)]
    dealt = plan.shard(2, 4, dealing).query_id
    assert lost.tolist() == dealt[dealt <= 30].tolist()
    assert len(lost)
    assert {text for text in rows.errors if text} >= {"its worker died before it was recorded"}
