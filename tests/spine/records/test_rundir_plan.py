"""What a sealed run directory says of its plan: counted where the plan itself is, whatever the facts say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Promises
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records import tables
from tests.unit.harness.capacity_folders import md1, sealed

ASKED = Promises(objectives=(parse("p50(latency) <= 1s"),))


def made(path: Path) -> Path:
    due, done = md1(50.0, 400, 1)
    sealed(path, due - due[0], done - due[0], 50.0)
    return path


def test_rows_taken_away_with_the_number_of_planned_ones_make_the_run_invalid(tmp_path: Path) -> None:
    run = made(tmp_path / "r")
    whole = open_sealed(run)
    assert whole.facts.plan_samples == whole.facts.planned == 400
    assert judge(whole, ASKED).verdict.outcome == "PASS"
    fewer = whole.records.select(np.arange(400) % 10 != 7)
    for name, table in zip(("requests", "chunks"), tables.to_tables(fewer, [""] * 360), strict=True):
        pq.write_table(table, run / f"{name}.parquet")
    told = json.loads((run / "generator.json").read_text())
    told["facts"] |= {"planned": 360, "planned_queries": 360, "plan_samples": 360}
    (run / "generator.json").write_text(json.dumps(told))
    report = judge(open_sealed(run), ASKED)
    assert report.verdict.outcome == "INVALID"
    of_plan, of_facts = report.verdict.reasons[:2]
    assert "40 planned samples have no row" in of_plan
    assert "generator.json says that 360 samples were planned, plan.npz holds 400" in of_facts
    assert (report.validity.planned, report.validity.unsent) == (400, 40)


def test_a_run_of_an_open_loop_without_its_plan_is_damaged(tmp_path: Path) -> None:
    run = made(tmp_path / "r")
    (run / "plan.npz").write_bytes(b"no archive")
    with pytest.raises(HarnessFault, match="damaged"):
        open_sealed(run)
    (run / "plan.npz").unlink()
    with pytest.raises(HarnessFault, match=r"plan\.npz"):
        open_sealed(run)
