"""The ready-made scenarios, the JSON schema, and plans that must never change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.ready_made import summaries
from plimsoll.scenarios.text.document import read_document

LIBRARY = spec.library()
WANTED = {
    "demo", "smoke", "ramp", "spike", "interactive-chat", "mlperf-chat-server", "single-stream",
    "multi-stream", "offline-batch", "recommendation", "embeddings",
}  # fmt: skip


def test_the_library_has_what_it_promises() -> None:
    assert set(LIBRARY) >= WANTED


def test_what_the_library_says_of_itself_is_what_its_scenarios_say() -> None:
    found = [(name, spec.load(name)) for name in LIBRARY]
    assert summaries() == [{"name": name, "kind": one.kind, "description": one.description} for name, one in found]


@pytest.mark.parametrize("name", LIBRARY)
def test_library_scenario_parses_builds_and_round_trips(name: str) -> None:
    scenario = spec.load(name)
    assert scenario.name == name
    assert 40 <= len(scenario.description) <= 250
    assert "\n" not in scenario.description
    for one in scenario.classes.values():
        source = one.source_object()
        plan = one.build(len(source))
        assert plan.n_samples >= 1
        payload = source.payload(int(plan.payload_ix[-1]))
        assert payload.prompt or payload.data
    assert spec.parse(scenario.to_mapping(), "again") == scenario
    assert json.loads(json.dumps(scenario.to_mapping())) == scenario.to_mapping()


def test_the_demo_is_small_and_short() -> None:
    plan = spec.load("demo").build(256)
    # A p99 needs 299 good requests that don't queue; docs/evidence/statistics.md has the distance for these.
    assert 500 <= plan.n_queries <= 600
    assert plan.due_ns[-1] < 48_000_000_000


def test_mlperf_scenario_uses_loadgens_published_arrivals() -> None:
    scenario = spec.load("mlperf-chat-server")
    plan = spec.with_flags(scenario, rate=1).build(8)
    assert plan.due_ns[:6].tolist() == [0, 1843654016, 2301577704, 3587440020, 4300434743, 4686841368]
    assert scenario.objectives == ("p99(ttft) <= 2s", "p99(tpot) <= 100ms")


def validator() -> jsonschema.Draft202012Validator:
    schema = spec.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", LIBRARY)
def test_the_schema_accepts_the_library(name: str) -> None:
    validator().validate(read_document(LIBRARY[name].read_text(encoding="utf-8"), name))
    validator().validate(spec.load(name).to_mapping())


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        {"kind": "sever"},
        {"kind": "server", "params": {"concurrency": 3}},
        {"kind": "concurrency", "params": {"rate": 3}},
        {"kind": "server", "params": {"rate": {"ramp": {"from": 1, "to": 2}}}},
        {"kind": "server", "tiemout": 3},
        {"kind": "server", "source": {"kind": "jsonl"}},
        {"kind": "server", "source": {"kind": "tensors", "path": "x"}},
        {"kind": "server", "stop": {"min_duration": "soon"}},
        {"kind": "server", "mix": {"a": {"kind": "server"}}},
        {"mix": {}},
        {"mix": {"a": {"params": {"rate": 3}}}},
        {"mix": {"a": {"kind": "server", "seed": 3}}},
        {"mix": {"a": {"kind": "server", "until": "never"}}},
    ],
)
def test_the_schema_refuses_what_parse_refuses(mapping: dict[str, Any]) -> None:
    assert not validator().is_valid(mapping)
    with pytest.raises(spec.ScenarioError):
        spec.parse(mapping)


@pytest.mark.parametrize(
    "mapping",
    [
        {"kind": "server", "params": None},
        {"kind": "offline", "stop": None, "warmup": 3},
        {"mix": {"a": {"kind": "server", "timeout": "3s"}, "b": {"kind": "concurrency", "until": "others"}}},
    ],
)
def test_the_schema_accepts_what_parse_accepts(mapping: dict[str, Any]) -> None:
    assert validator().is_valid(mapping)
    spec.parse(mapping)


PRINTS = """
import json
from plimsoll.scenarios import spec
from plimsoll.scenarios.ready_made import summaries
made = {}
for name in spec.library():
    for part, scenario in spec.load(name).classes.items():
        samples, place = len(scenario.source_object()), f"{name}/{part}" if part else name
        plan, warmup = scenario.build(samples), scenario.build_warmup(samples)
        made[place] = {"plan": plan.fingerprint(), "warmup": warmup.fingerprint() if warmup else None}
        if plan.max_in_flight is None:
            made[place]["shard 1 of 3"] = plan.shard(1, 3).fingerprint()
gamma = spec.with_flags(rate=50, queries=1000).to_mapping()
gamma["params"]["arrival"] = {"process": "gamma", "burstiness": 0.5}
made["gamma"] = {"plan": spec.parse(gamma).build(9).fingerprint()}
print(json.dumps(made, indent=1, sort_keys=True))
"""


def test_plans_of_another_process_are_the_golden_ones(golden: Callable[[str, bytes], None]) -> None:
    made = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, check=True, timeout=60).stdout
    golden("scenarios/fingerprints.json", made)


def test_the_schema_is_the_golden_one(golden: Callable[[str, bytes], None]) -> None:
    golden("scenarios/schema.json", (json.dumps(spec.json_schema(), indent=1, sort_keys=True) + "\n").encode())


def test_importing_scenarios_brings_in_nothing_heavy() -> None:
    heavy = ["scipy", "pandas", "pyarrow", "torch", "aiohttp", "rich", "typer", "harness", "slo", "reports"]
    code = f"import plimsoll.scenarios.spec, sys; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=60).stdout
    assert out.strip() == "[]"
