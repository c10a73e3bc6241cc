"""Offline runs that go on where another was cut short: each sample without an answer once, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.kinds.offline import KIND, OfflineParams
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.text.document import ScenarioError


def run_directory(folder: Path, status: list[str]) -> Path:
    """An offline run of the samples 9, 8, 7 and so on, after a warm-up whose answer failed."""
    n = len(status)
    table = {
        "query_id": [0] * (n + 1), "sample_ix": [0, *range(n)], "payload_ix": [3, *(9 - i % 10 for i in range(n))],
        "due_ns": [-5, *[0] * n], "n_in": [5] * (n + 1), "n_out": [2] * (n + 1), "status": ["TIMEOUT", *status],
        "phase": ["warmup", *["measure"] * n],
    }  # fmt: skip
    pq.write_table(pa.table(table), folder / "requests.parquet")
    return folder


def rest(folder: Path, n_samples: int = 10, stop: Stop = Stop(1, 10**9), **params: Any) -> Plan:  # noqa: B008
    return KIND.build(OfflineParams(rest_of=str(folder), **params), stop, n_samples, 1)


def test_what_was_not_answered_is_sent_and_nothing_else(tmp_path: Path) -> None:
    folder = run_directory(tmp_path, ["OK", "UNSENT", "HTTP", "OK", "UNFINISHED", "CANCELLED"])
    plan = rest(folder)
    assert plan.payload_ix.tolist() == [8, 7, 5, 4]
    assert plan.sample_ix.tolist() == [0, 1, 2, 3]
    assert plan.n_queries == 1
    assert plan.stop.min_duration_ns == 0, "what is left may be over before the duration that was asked of the whole"
    assert KIND.size(OfflineParams(rest_of=str(folder)), Stop(1, 10**9)) == 4
    assert rest(folder, 1).payload_ix.tolist() == [0] * 4, "only the times were asked for"


def test_a_sample_that_was_sent_twice_is_left_as_often_as_it_was_not_answered(tmp_path: Path) -> None:
    folder = run_directory(tmp_path, ["UNSENT"] * 20_000 + ["OK"] * 10_000)
    found = rest(folder).payload_ix
    assert np.bincount(found).tolist() == [2_000] * 10


def test_a_run_without_a_rest_and_a_source_that_is_not_its_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="every sample of "):
        rest(run_directory(tmp_path, ["OK"] * 3))
    with pytest.raises(ValueError, match="had more samples than these 4"):
        rest(run_directory(tmp_path, ["OK", "HTTP"]), 4)
    for more in ({"samples": 3}, {"order": "loadgen"}):
        with pytest.raises(ScenarioError, match="rest_of says which samples are sent"):
            spec.parse({"kind": "offline", "params": {"rest_of": str(tmp_path), **more}})


def test_a_scenario_without_a_rest_is_written_as_it_was() -> None:
    assert "rest_of" not in str(spec.parse({"kind": "offline"}).to_mapping())
