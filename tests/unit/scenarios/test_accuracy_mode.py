"""Accuracy mode in a scenario: every sample exactly once whatever the kind, and references from rows or a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios.plugins import kinds
from plimsoll.scenarios.samples.reference import references
from plimsoll.scenarios.scenario import Scenario, parse
from plimsoll.scenarios.text.document import ScenarioError


def scenario(kind: str, **given: Any) -> Scenario:
    source = {"kind": "synthetic_text", "count": 8}
    return parse({"kind": kind, "source": source, "mode": "accuracy", **given}, "f.yaml")


@pytest.mark.parametrize("n", [1, 7, 8, 100, 2049])
@pytest.mark.parametrize("kind", [name for name in kinds() if name != "replay"])
def test_every_sample_is_issued_exactly_once(kind: str, n: int) -> None:
    plan = scenario(kind).build(n)
    assert sorted(plan.payload_ix.tolist()) == list(range(n))
    assert plan.stop.min_duration_ns == 0
    if plan.cyclic:
        assert plan.stop.max_queries == plan.stop.min_queries == plan.n_queries


@pytest.mark.parametrize("kind", [name for name in kinds() if name != "replay"])
def test_shards_issue_every_sample_once_between_them(kind: str) -> None:
    plan = scenario(kind).build(50)
    shards = 1 if plan.max_in_flight == 1 else 3
    seen: list[int] = []
    for shard in (plan.shard(i, shards) for i in range(shards)):
        if not plan.cyclic:
            seen += shard.payload_ix.tolist()
            continue
        for k in range(shard.stop.max_queries or 0):
            row = (shard.first_id + k * shard.id_step) % shard.n_queries
            seen += shard.payload_ix[shard.offsets[row] : shard.offsets[row + 1]].tolist()
    assert sorted(seen) == list(range(50))


def test_a_recording_and_frames_are_told_apart() -> None:
    with pytest.raises(ScenarioError, match="kind replay repeats a recording"):
        scenario("replay")
    plan = scenario("multi_stream", params={"samples_per_query": 6, "frame_interval": "33ms"}).build(20)
    assert plan.open_loop
    assert np.diff(plan.offsets).tolist() == [6, 6, 6, 2]
    assert plan.due_ns.tolist() == [0, 33_000_000, 66_000_000, 99_000_000]
    assert sorted(plan.payload_ix.tolist()) == list(range(20))


def test_the_order_is_shuffled_by_the_seed() -> None:
    first, again, other = (scenario("server", seed=seed).build(100).payload_ix for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert not np.array_equal(first, np.arange(100))


def test_the_last_query_of_a_multi_stream_has_what_is_left() -> None:
    plan = scenario("multi_stream").build(20)
    assert np.diff(plan.offsets).tolist() == [8, 8, 4]
    assert plan.sample_ix.tolist() == [*range(8), *range(8), *range(4)]


def test_performance_mode_is_the_default_and_plans_as_ever() -> None:
    plain = parse({"kind": "server", "source": {"kind": "synthetic_text"}}, "f.yaml")
    assert plain.mode == "performance"
    assert plain.build(8).n_samples >= 100


def test_another_mode_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"f\.yaml:mode: .*performance"):
        scenario("server", mode="submission")


def jsonl(folder: Path, *rows: dict[str, Any]) -> Scenario:
    path = folder / "samples.jsonl"
    path.write_text("".join(json.dumps({"prompt": "hi", **row}) + "\n" for row in rows))
    return scenario("server", source={"kind": "jsonl", "path": str(path)})


def expected(one: Scenario, path: Path | None = None) -> Any:
    return references(one.source_object(), None if path is None else str(path))


def test_references_stand_in_the_rows(tmp_path: Path) -> None:
    made = jsonl(tmp_path, {"reference": "Paris"}, {"reference": 3}, {"reference": [0.5, 1]})
    assert expected(made) == ["Paris", 3, [0.5, 1]]


def test_a_source_without_references_has_none(tmp_path: Path) -> None:
    assert expected(jsonl(tmp_path, {}, {"id": "b"})) is None


def test_a_file_of_references_goes_by_id_or_by_place(tmp_path: Path) -> None:
    path = tmp_path / "expected.jsonl"
    path.write_text(
        '{"id": "b", "expected": "two"}\n\n{"id": 0, "expected": "one"}\n{"id": "x", "expected": "unused"}\n'
    )
    assert expected(jsonl(tmp_path, {}, {"id": "b"}), path) == ["one", "two"]


def test_every_bad_line_and_every_lacking_sample_is_told(tmp_path: Path) -> None:
    path = tmp_path / "expected.jsonl"
    made = jsonl(tmp_path, {"id": "a"}, {"id": "b"}, {"id": "c"})
    path.write_text('{"id": "a", "expected": true}\nnonsense\n{"id": "b"}\n{"id": 1.5, "expected": "x"}\n')
    with pytest.raises(ScenarioError) as caught:
        expected(made, path)
    assert [error.split(":")[1] for error in caught.value.errors] == ["1", "2", "3", "4"]
    path.write_text('{"id": "a", "expected": "1"}\n{"id": "a", "expected": "2"}\n')
    with pytest.raises(ScenarioError, match="given twice"):
        expected(made, path)
    path.write_text('{"id": "a", "expected": "1"}\n')
    with pytest.raises(ScenarioError) as caught:
        expected(made, path)
    assert [error.split("sample ")[1][:1] for error in caught.value.errors] == ["b", "c"]
    with pytest.raises(ScenarioError, match="nowhere"):
        expected(made, tmp_path / "nowhere.jsonl")


def test_a_reference_in_a_row_that_nothing_can_be_compared_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no text, number or list of numbers"):
        expected(jsonl(tmp_path, {"reference": {"a": 1}}))
