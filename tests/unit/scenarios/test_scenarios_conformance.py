"""Every kind and source found on disk keeps the same promises. A new file is tested without an edit here."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plimsoll.scenarios import spec
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.plugins import Kind, Source, Warmup, kinds, sources
from plimsoll.scenarios.scenario import MAX_SAMPLES

S = 1_000_000_000
SAMPLES = Path(tempfile.mkdtemp(prefix="plimsoll-samples-"))
STOP = Stop(min_queries=37, min_duration_ns=2 * S)

every_kind = pytest.mark.parametrize("kind", kinds().values(), ids=list(kinds()))
every_source = pytest.mark.parametrize("source", sources().values(), ids=list(sources()))


def params(kind: Kind) -> Any:
    """The defaults; of a kind that needs a file, with its sample."""
    if kind.sample_file is None:
        return kind.params()
    file = SAMPLES / kind.name
    if not file.exists():
        file.write_text(kind.sample_file, encoding="utf-8")
    return kind.params.model_validate({"trace": str(file)})


def build(kind: Kind, n_samples: int = 11, seed: int = 5) -> Plan:
    return kind.build(params(kind), STOP, n_samples, seed)


@every_kind
def test_kind_has_defaults_texts_and_a_lowercase_name(kind: Kind) -> None:
    assert kind.params() == kind.params()
    assert kind.summary
    assert kind.headline
    assert kind.name == kind.name.lower()
    assert kind.params.__doc__


@every_kind
def test_kind_builds_the_same_plan_from_the_same_seed_and_stays_in_range(kind: Kind) -> None:
    plan = build(kind)
    assert plan.fingerprint() == build(kind).fingerprint()
    assert plan.fingerprint() != build(kind, seed=6).fingerprint()
    assert plan.open_loop == kind.open_loop(params(kind))
    assert plan.cyclic != kind.open_loop(params(kind))
    assert plan.payload_ix.max() < 11
    assert plan.due_ns[0] == 0
    assert plan.max_in_flight == kind.slots(params(kind))
    assert plan.query_id.tolist() == list(range(plan.n_queries))


@every_kind
def test_kind_works_with_a_single_sample_and_refuses_none(kind: Kind) -> None:
    assert set(build(kind, n_samples=1).payload_ix.tolist()) == {0}
    with pytest.raises(ValueError, match="no samples"):
        build(kind, n_samples=0)


@every_kind
def test_kind_tells_its_size_without_building(kind: Kind) -> None:
    if kind.sample_file is not None:  # as long as its file
        assert build(kind).n_samples <= kind.size(params(kind), STOP) <= 10 * build(kind).n_samples
        return
    assert kind.size(kind.params(), STOP) == pytest.approx(build(kind).n_samples, rel=0.5)
    assert kind.size(kind.params(), Stop(min_queries=10**12)) > MAX_SAMPLES


@every_kind
def test_kind_builds_a_million_queries_in_less_than_a_cpu_second(kind: Kind) -> None:
    if kind.sample_file is not None:
        return  # a file has its own length: test_traces
    chosen = kind.params()
    if "samples_per_query" in kind.params.model_fields:
        chosen = kind.params(samples_per_query=1)
    kind.build(chosen, STOP, 512, 1)
    start = time.process_time()
    plan = kind.build(chosen, Stop(min_queries=1_000_000, min_duration_ns=0), 512, 1)
    assert time.process_time() - start < 1.0
    assert plan.n_samples >= 1_000_000


@every_kind
def test_kind_warms_up_before_t0_with_other_samples_from_its_own_seed(kind: Kind) -> None:
    warmup = kind.warmup(params(kind), Warmup(5 * S, 11, seed=9, workers=2))
    assert warmup is not None
    assert warmup.n_queries >= 1
    assert -5 * S <= warmup.due_ns.min() <= warmup.due_ns.max() < 0
    assert warmup.payload_ix.max() < 11
    if not kind.open_loop(params(kind)):
        assert warmup.max_in_flight == kind.slots(params(kind))


@every_kind
def test_kind_goes_through_a_scenario_and_back(kind: Kind) -> None:
    given = params(kind).model_dump(mode="json", by_alias=True)
    scenario = spec.parse({"kind": kind.name, "params": given, "warmup": "1s"}, "test")
    assert spec.parse(scenario.to_mapping(), "again") == scenario
    assert scenario.build(4).fingerprint() == spec.parse(scenario.to_mapping()).build(4).fingerprint()
    assert scenario.build_warmup(4) is not None


def params_of(source: Source, folder: Path) -> Any:
    given: dict[str, Any] = {"kind": source.name}
    if source.sample_file is not None:
        file = folder / "sample"
        file.write_text(source.sample_file, encoding="utf-8")
        given["path"] = str(file)
    return source.params.model_validate(given)


@every_source
def test_source_makes_the_same_payload_for_the_same_index_in_any_order(source: Source, tmp_path: Path) -> None:
    params = params_of(source, tmp_path)
    one, two = source.build(params, 5), source.build(params, 5)
    indices = list(range(min(len(one), 20)))
    assert indices
    forward = [one.payload(i) for i in indices]
    assert forward == [two.payload(i) for i in reversed(indices)][::-1]
    for payload in forward:
        assert sum((payload.prompt is not None, payload.messages is not None, bool(payload.data))) == 1
        assert payload.max_output_tokens == -1 or payload.max_output_tokens >= 1


@every_source
def test_source_refuses_an_index_outside(source: Source, tmp_path: Path) -> None:
    made = source.build(params_of(source, tmp_path), 5)
    for index in (-1, len(made)):
        with pytest.raises(IndexError, match="no sample"):
            made.payload(index)


@every_source
def test_source_with_a_missing_file_says_what_to_do(source: Source, tmp_path: Path) -> None:
    if "path" not in source.params.model_fields:
        return
    scenario = spec.parse({"kind": "server", "source": {"kind": source.name, "path": "no.file"}}, "t", folder=tmp_path)
    with pytest.raises(spec.ScenarioError, match=r"source.path: .*no.file does not exist\. .*folder"):
        scenario.source_object()


@every_source
def test_source_has_texts_and_a_kind_field(source: Source, tmp_path: Path) -> None:
    assert source.summary
    assert source.params.__doc__
    assert params_of(source, tmp_path).kind == source.name


def test_offline_has_loadgens_number_of_samples() -> None:
    offline = kinds()["offline"]
    plan = offline.build(offline.params(expected_rate=500.0), Stop(1, S), 64, 1)
    assert (plan.n_queries, plan.n_samples) == (1, 550)
    assert plan.payload_ix[:130].tolist() == [*range(64), *range(64), 0, 1]


def test_multi_stream_takes_contiguous_samples_and_wraps_round() -> None:
    kind = kinds()["multi_stream"]
    rows = build(kind, n_samples=11).payload_ix.reshape(-1, 8)
    assert (np.diff(rows, axis=1) % 11 == 1).all()
    assert len(set(rows[:, 0].tolist())) == 11


def test_closed_loop_permutation_repeats_in_whole_passes() -> None:
    kind = kinds()["concurrency"]
    plan = kind.build(kind.params(order="permutation"), Stop(), 300, 1)
    assert plan.n_queries == 1200
    assert set(np.bincount(plan.payload_ix).tolist()) == {4}


def test_server_warmup_uses_the_rate_the_profile_starts_with() -> None:
    kind = kinds()["server"]
    params = kind.params.model_validate(
        {"rate": {"steps": [{"rate": 20, "for": "5s"}, {"rate": 500}]}, "arrival": "constant"}
    )
    warmup = kind.warmup(params, Warmup(2 * S, 5, seed=1))
    assert warmup is not None
    assert warmup.n_queries == 40
    assert warmup.due_ns[0] == -2 * S


def test_server_list_is_cut_at_max_queries() -> None:
    kind = kinds()["server"]
    assert kind.build(kind.params(), Stop(5, 100 * S, max_queries=12), 3, 1).n_queries == 12


def test_a_mislabelled_plugin_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import plimsoll.scenarios.kinds as package
    from plimsoll.scenarios import plugins

    (tmp_path / "no_kind_here.py").write_text("x = 1\n")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    with pytest.raises(TypeError, match="no_kind_here does not export KIND"):
        dict(plugins.kinds())
