"""A sealed run that was altered afterwards is INVALID or cannot be opened, and says why: nothing passes without a
word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run import rundir
from plimsoll.harness.run.attempts import spoiled
from plimsoll.harness.run.judged import judge
from plimsoll.harness.run.promises import Promises, kept
from plimsoll.harness.run.rundir import RunDirectory, Sealed, open_sealed
from plimsoll.harness.sealing import plan_file
from plimsoll.reports.parts.provenance import repeated
from plimsoll.reports.report import Report
from plimsoll.scenarios.flags import with_flags
from plimsoll.scenarios.plan import cancellation
from plimsoll.scenarios.scenario import parse as parse_scenario
from plimsoll.scenarios.spec import load
from plimsoll.slo.objectives.objective import parse
from plimsoll.slo.records import cancelled, tables
from plimsoll.slo.records.records import Records, from_arrays
from plimsoll.slo.validity.generator import GeneratorFacts
from tests.unit.harness.capacity_folders import md1, rows, sealed
from tests.unit.harness.sealed_runs import sealed_run

ASKED = Promises(objectives=(parse("p50(latency) <= 1s"),))


def open_loop(path: Path, seed: int = 1) -> Path:
    due, done = md1(50.0, 400, seed)
    sealed(path, due - due[0], done - due[0], 50.0)
    return path


def judged(run: Path) -> Report:
    return judge(open_sealed(run), ASKED)


def found_out(run: Path, text: str) -> None:
    """INVALID for this reason, and nothing that another attempt would mend."""
    report = judged(run)
    assert report.verdict.outcome == "INVALID"
    assert text in report.verdict.reasons[0]
    assert "Restore its files" in report.verdict.reasons[0]
    assert not spoiled(report)


def plan_with(run: Path, **arrays: Any) -> None:
    with np.load(run / "plan.npz") as archive:
        held = {name: archive[name] for name in archive.files}
    for name, change in arrays.items():
        held[name] = change(held[name])
    np.savez_compressed(run / "plan.npz", **held)


def rows_with(run: Path, **columns: Callable[[Any], Any]) -> None:
    held = open_sealed(run).records
    changed = {
        name: columns[name](np.array(column)) if name in columns else column for name, column in held.columns.items()
    }
    write(run, from_arrays(changed, held.chunk_ns, held.chunk_offsets, held.errors, held.timings))


def write(run: Path, held: Records) -> None:
    for name, table in zip(("requests", "chunks"), tables.to_tables(held, [""] * len(held)), strict=True):
        pq.write_table(table, run / f"{name}.parquet")


def at(place: int, value: int) -> Callable[[Any], Any]:
    def change(column: Any) -> Any:
        column[place] = value
        return column

    return change


def facts_with(run: Path, **facts: object) -> None:
    told = json.loads((run / "generator.json").read_text())
    told["facts"] |= facts
    (run / "generator.json").write_text(json.dumps(told))


def test_runs_as_they_were_sealed_agree_with_their_plans(tmp_path: Path) -> None:
    for run in (open_loop(tmp_path / "o"), sealed_run(tmp_path / "c")):
        assert open_sealed(run).facts.plan_faults == ()
        assert judged(run).verdict.outcome == "PASS"


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (
            "due_ns",
            at(399, 10**12),
            "plan.npz does not have the plan_fingerprint that manifest.json names; 1 rows have another due",
        ),
        ("due_ns", at(3, 0), "plan.npz is no plan: plan.due_ns is not sorted"),
        ("payload_ix", at(7, 3), "1 rows carry another payload than planned (first: query 7 sample 0)"),
        ("after", at(7, 3), "does not have the plan_fingerprint"),
        ("sample_ix", at(7, 1), "1 rows are not in the plan (first: query 7 sample 0); 1 planned samples have no row"),
        ("sample_ix", lambda column: column[:0], "plan.npz is no plan: plan.sample_ix has 0 entries"),
        ("scalars", lambda text: np.array(str(text).replace('"min_queries"', '"queries"')), "plan.npz is no plan"),
        (
            "scalars",
            lambda text: np.array(str(text).replace('"seed": ', '"seed": 7')),
            "does not have the plan_fingerprint",
        ),
    ],
)
def test_an_altered_plan_makes_the_run_invalid(
    name: str, change: Callable[[Any], Any], text: str, tmp_path: Path
) -> None:
    run = open_loop(tmp_path / "r")
    plan_with(run, **{name: change})
    found_out(run, text)


def test_the_plan_of_another_run_of_the_same_length_is_not_this_runs(tmp_path: Path) -> None:
    run, other = open_loop(tmp_path / "r"), open_loop(tmp_path / "s", 2)
    (run / "plan.npz").write_bytes((other / "plan.npz").read_bytes())
    found_out(run, "399 rows have another due time than planned (first: query 1 sample 0)")
    # Not even when the manifest says that it is.
    (run / "manifest.json").write_bytes((other / "manifest.json").read_bytes())
    found_out(run, "399 rows have another due time than planned")


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (
            {"due_ns": at(399, 10**12), "ready_ns": at(399, 10**12)},
            "1 rows have another due time than planned (first: query 399",
        ),
        ({"payload_ix": at(0, 99)}, "1 rows carry another payload than planned (first: query 0"),
        (
            {"query_id": at(399, 400)},
            "1 rows are not in the plan (first: query 400 sample 0); 1 planned samples have no row",
        ),
        ({"sample_ix": at(0, 2**63 - 1)}, "1 rows are not in the plan"),
        ({"query_id": at(5, 6)}, "1 planned samples have more than one row; 1 planned samples have no row"),
        ({"phase": at(5, 1)}, "1 planned samples have no row"),
        ({"phase": at(5, 2)}, "1 rows are in the phase cancel, and scenario.yaml cancels nothing"),
    ],
)
def test_altered_rows_of_an_open_loop_make_it_invalid(
    columns: dict[str, Callable[[Any], Any]], text: str, tmp_path: Path
) -> None:
    run = open_loop(tmp_path / "r")
    rows_with(run, **columns)
    found_out(run, text)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"sample_ix": at(5, 1)}, "1 rows are not in the plan (first: query 5 sample 1)"),
        ({"payload_ix": at(5, 10**9)}, "1 rows carry another payload than planned"),
        ({"query_id": at(39, 40)}, "1 rows are not in the plan (first: query 40"),
        ({"query_id": at(0, -2)}, "1 rows are not in the plan (first: query -2"),
        ({"phase": at(5, 2)}, "1 rows are in the phase cancel, and scenario.yaml cancels nothing"),
    ],
)
def test_altered_rows_of_a_closed_loop_make_it_invalid(
    columns: dict[str, Callable[[Any], Any]], text: str, tmp_path: Path
) -> None:
    run = sealed_run(tmp_path / "r")
    rows_with(run, **columns)
    found_out(run, text)


def test_rows_in_another_order_are_the_same_run(tmp_path: Path) -> None:
    run = open_loop(tmp_path / "r")
    write(run, open_sealed(run).records.select(np.arange(400)[::-1]))
    assert open_sealed(run).facts.plan_faults == ()


def test_a_run_of_a_version_whose_plan_had_no_scalars_is_held_against_its_arrays(tmp_path: Path) -> None:
    for run in (open_loop(tmp_path / "o"), sealed_run(tmp_path / "c")):
        with np.load(run / "plan.npz") as archive:
            held = {name: archive[name] for name in archive.files if name != "scalars"}
        np.savez_compressed(run / "plan.npz", **held)
        manifest = json.loads((run / "manifest.json").read_text())
        del manifest["scenario_sha256"]
        (run / "manifest.json").write_text(json.dumps(manifest))
        assert judged(run).verdict.outcome == "PASS"
        rows_with(run, sample_ix=at(5, 1))
        found_out(run, "1 rows are not in the plan")


def test_a_plan_without_its_scalars_is_no_earlier_versions_where_what_was_sent_was_counted(tmp_path: Path) -> None:
    run = open_loop(tmp_path / "r")
    with np.load(run / "plan.npz") as archive:
        held = {name: archive[name] for name in archive.files if name != "scalars"}
    np.savez_compressed(run / "plan.npz", **held)
    facts_with(run, sent=400, recorded=400)
    found_out(run, "plan.npz lacks its scalars")


def test_what_loop_it_was_is_the_plans_to_say(tmp_path: Path) -> None:
    run = open_loop(tmp_path / "r")
    facts_with(run, open_loop=False)
    found_out(run, "plan.npz is of an open loop, generator.json of a closed one")


def test_the_rows_set_apart_are_those_that_the_scenario_drew(tmp_path: Path) -> None:
    due, done = md1(50.0, 400, 1)
    scenario = with_flags(None, kind="server", rate=50.0, queries=400)
    scenario = parse_scenario(scenario.to_mapping() | {"cancel": {"share": 0.2, "after": "1500us"}})
    plan = scenario.build(1)
    made = rows(plan.due_ns, plan.due_ns + done - due, plan.payload_ix)
    drawn = cancellation.chosen(scenario.cancel, scenario.seed, plan, plan.query_id)
    made = cancelled.marked(made, drawn)
    facts = GeneratorFacts(open_loop=True, planned=400, planned_queries=400, elapsed_ns=int(plan.due_ns[-1]))
    manifest = {"run_id": "r", "plan_fingerprint": plan.fingerprint(), "t0_monotonic_ns": 0}
    run = tmp_path / "r"
    run.mkdir()
    rundir._write(Sealed(RunDirectory(run), manifest, scenario.to_mapping(), made, facts), plan, [])
    assert 20 < int(drawn.sum()) < 150
    assert judged(run).verdict.outcome == "PASS"
    rows_with(run, phase=at(int(np.flatnonzero(~drawn)[0]), 2))
    found_out(run, "1 rows are not in the phase that the scenario's cancel drew them for")
    rows_with(run, phase=lambda column: column * 0)
    found_out(run, f"{int(drawn.sum())} rows are not in the phase")


@pytest.mark.parametrize(
    "change", [lambda text: text.replace("rate: 50", "rate: 500"), lambda text: text[: text.index("source:")]]
)
def test_a_scenario_that_is_not_the_sealed_one_makes_the_run_invalid(
    change: Callable[[str], str], tmp_path: Path
) -> None:
    run = open_loop(tmp_path / "r")
    text = (run / "scenario.yaml").read_text()
    assert change(text) != text
    (run / "scenario.yaml").write_text(change(text))
    found_out(run, "scenario.yaml is not the one that was sealed")


def test_a_run_of_an_earlier_version_has_the_fingerprint_of_that_version(tmp_path: Path) -> None:
    scenario = load("smoke")
    plan = scenario.build(len(scenario.source_object()))
    plan_file.save(tmp_path, plan)
    written = "5378e17d52e67aeb6ca5aa25fb512f3b6851835b5d96abe2b8290d5ad6bcc30b"
    assert plan_file.load(tmp_path, {"plan_fingerprint": written}).fingerprint() == plan.fingerprint() != written
    with pytest.raises(ValueError, match="does not have the plan_fingerprint"):
        plan_file.load(tmp_path, {"plan_fingerprint": written[::-1]})


def by_seed(run: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The same run, its plan kept by seed; its scenario's mapping."""
    scenario = with_flags(None, kind="server", rate=50.0, queries=400)
    plan = scenario.blocks(1).survey()
    due = plan.pieces.whole().due_ns
    facts = GeneratorFacts(open_loop=True, planned=400, planned_queries=400, elapsed_ns=int(due[-1]), sent=400)
    manifest = {"run_id": "r", "plan_fingerprint": plan.fingerprint, "t0_monotonic_ns": 0, "source_samples": 1}
    run.mkdir()
    monkeypatch.setattr(plan_file, "MOST", 399)
    made = rows(due, due + 1_000_000, np.zeros(400, np.int64))
    rundir._write(Sealed(RunDirectory(run), manifest, scenario.to_mapping(), made, facts), plan.pieces, [])
    with np.load(run / "plan.npz") as archive:
        assert archive.files == ["scalars"]
    return scenario.to_mapping()


def test_a_large_plan_is_kept_by_seed_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "r"
    by_seed(run, monkeypatch)
    sealed = open_sealed(run)
    assert (sealed.facts.plan_faults, sealed.facts.plan_samples) == ((), 400)
    assert plan_file.load(run, sealed.manifest).fingerprint() == sealed.manifest["plan_fingerprint"]
    rows_with(run, payload_ix=at(7, 3))
    found_out(run, "1 rows carry another payload than planned (first: query 7 sample 0)")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda text: text.replace("rate: 50.0", "rate: 51.0"), "scenario.yaml makes another one now"),
        (lambda text: text.replace("kind: server", "kind: serve"), "scenario.yaml makes no plan any more (scenario."),
        (lambda text: "[]", None),
    ],
)
def test_a_plan_by_seed_that_its_scenario_no_longer_makes_makes_the_run_invalid(
    change: Callable[[str], str], text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "r"
    by_seed(run, monkeypatch)
    written = (run / "scenario.yaml").read_text()
    assert change(written) != written
    (run / "scenario.yaml").write_text(change(written))
    if text is None:
        damaged(run, "scenario.yaml")
        return
    found_out(run, f"plan.npz holds its plan by seed, and {text}")
    with pytest.raises(ValueError, match="by seed"):
        plan_file.load(run, json.loads((run / "manifest.json").read_text()))


def test_a_plan_by_seed_whose_extent_or_scalars_were_changed_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "r"
    by_seed(run, monkeypatch)
    plan_with(run, scalars=lambda text: np.array(str(text).replace('"n_samples": 400', '"n_samples": 401')))
    found_out(run, "scenario.yaml makes another one now")
    plan_with(run, scalars=lambda text: np.array(str(text).replace('"n_samples": 401', '"n_samples": "x"')))
    damaged(run, "by_seed is no mapping of n_queries")


def test_a_plan_that_is_there_already_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load("smoke").blocks(3)
    plan_file.save(tmp_path, plan)
    written = (tmp_path / "plan.npz").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(plan_file, "whole", lambda *given: pytest.fail("written"))
        plan_file.save(tmp_path, plan)
    (tmp_path / "plan.npz").write_bytes(written[:-100])
    plan_file.save(tmp_path, plan)
    assert (tmp_path / "plan.npz").read_bytes() == written


def damaged(run: Path, text: str) -> None:
    with pytest.raises(HarnessFault) as raised:
        open_sealed(run)
    assert raised.value.code == 2
    assert "damaged or from another version" in str(raised.value)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sample_ix", lambda column: np.array(0)),
        ("sample_ix", lambda column: column.reshape(2, -1)),
        ("due_ns", lambda column: column.astype(float)),
        ("query_id", lambda column: column.astype(str)),
        ("after", lambda column: np.array([None])),
        ("scalars", lambda text: np.array("[")),
        ("scalars", lambda text: np.array("[]")),
    ],
)
def test_a_plan_of_other_arrays_is_damaged(name: str, change: Callable[[Any], Any], tmp_path: Path) -> None:
    run = open_loop(tmp_path / "r")
    plan_with(run, **{name: change})
    damaged(run, "plan.npz: ")


def test_bytes_of_a_plan_that_are_corrupt_are_never_a_traceback(tmp_path: Path) -> None:
    run = open_loop(tmp_path / "r")
    whole, rng, opened = (run / "plan.npz").read_bytes(), np.random.default_rng(0), 0
    for _ in range(150):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 3):
            data[place] ^= int(rng.integers(1, 256))
        (run / "plan.npz").write_bytes(bytes(data[: int(rng.integers(len(data) // 2, 2 * len(data)))]))
        try:
            open_sealed(run)
            opened += 1  # bytes of an archive that nobody reads
        except HarnessFault:
            continue
    assert opened < 50


@pytest.mark.parametrize("run_of", [open_loop, sealed_run])
def test_a_run_without_its_plan_is_damaged(run_of: Callable[[Path], Path], tmp_path: Path) -> None:
    run = run_of(tmp_path / "r")
    (run / "plan.npz").unlink()
    damaged(run, "plan.npz: it is missing")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("planned", "a", 'facts.planned is "a", not a whole number'),
        ("planned", 1.5, "facts.planned is 1.5, not a whole number"),
        ("planned", 10**30, "not a whole number"),
        ("elapsed_ns", None, "facts.elapsed_ns is null, not a whole number"),
        ("worker_cpu", "abc", 'facts.worker_cpu is "abc", not a list'),
        ("worker_cpu", [0.5, "b"], 'facts.worker_cpu[1] is "b", not a number'),
        ("worker_cpu", [float("nan")], "facts.worker_cpu[0] is NaN, not a number"),
        ("worker_rss_kb", [1.5], "facts.worker_rss_kb[0] is 1.5, not a whole number"),
        ("worker_faults", [1], "facts.worker_faults[0] is 1, not a text"),
        ("open_loop", "no", 'facts.open_loop is "no", not true or false'),
        ("interrupted", 0, "facts.interrupted is 0, not true or false"),
        ("n_workers", True, "facts.n_workers is true, not a whole number"),
        ("aborted", 5, "facts.aborted is 5, not a text or null"),
    ],
)
def test_a_fact_of_another_type_is_damage(name: str, value: object, text: str, tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    facts_with(run, **{name: value})
    damaged(run, text)


@pytest.mark.parametrize(
    ("file", "column", "values", "text"),
    [
        ("requests", "status", pa.nulls(40, pa.string()), "status has a value that means nothing"),
        ("requests", "status", pa.array([0] * 40), "column status holds int64, not texts"),
        ("requests", "error", pa.array([1] * 40), "column error holds int64, not texts"),
        ("requests", "done_ns", pa.array([float("nan")] * 40), "column done_ns holds double, not whole numbers"),
        ("requests", "done_ns", pa.array([2**62] * 40), "done_ns holds a time a century away"),
        ("requests", "code", pa.array([2**40] * 40), "column code holds numbers that are too large"),
        ("requests", "worker", pa.array([[1]] * 40), "column worker holds list<"),
        ("chunks", "chunk_ns", pa.array([1] * 40), "column chunk_ns holds int64, not lists"),
        ("chunks", "chunk_ns", pa.array([[1.5]] * 40), "column chunk_ns holds double, not whole numbers"),
        ("chunks", "chunk_ns", pa.nulls(40, pa.list_(pa.int64())), "the lists of chunk_ns are not those of 40 rows"),
    ],
)
def test_a_column_of_another_type_is_damage(file: str, column: str, values: Any, text: str, tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    table = pq.read_table(run / f"{file}.parquet")
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, values), run / f"{file}.parquet")
    damaged(run, text)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"target": ["x"]}, "target of manifest.json is "),
        ({"t0_wall_ns": "x"}, "t0_wall_ns of manifest.json is 'x', not a whole number"),
        ({"run_id": 5}, "run_id of manifest.json is '5', not a text"),
        ({"foreseen": [1]}, "foreseen of manifest.json is '[1]', not a list of texts"),
        ({"calibration": {"table": {"host": 1}}}, "calibration.table.host of manifest.json"),
    ],
)
def test_a_manifest_of_another_shape_is_damage(change: dict[str, object], text: str, tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    (run / "manifest.json").write_text(json.dumps(json.loads((run / "manifest.json").read_text()) | change))
    damaged(run, text)


@pytest.mark.parametrize("text", ["target: [1]", "target: {options: [1]}", "objectives: [1]", "kind: 1", "[" * 50_000])
def test_a_scenario_of_another_shape_is_damage(text: str, tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    (run / "scenario.yaml").write_text(text)
    damaged(run, "")


def test_facts_that_are_no_mapping_or_lack_one_are_damage(tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    for document, text in (
        ('{"facts": []}', "facts is no mapping"),
        ("{}", "facts is no mapping"),
        ("[]", "generator.json holds no mapping"),
        ('{"facts": {"planned": 1}}', "facts.open_loop is missing"),
    ):
        (run / "generator.json").write_text(document)
        damaged(run, text)


@pytest.mark.parametrize(
    "attempts",
    [
        {},
        "a",
        [1],
        [{"number": "<b>"}],
        [{"number": 0}],
        [{"number": 1, "outcome": "?"}],
        [{"number": 1, "reasons": "a"}],
    ],
)
def test_attempts_that_are_none_are_damage(attempts: object, tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    noted(run, attempts)
    damaged(
        run, "in manifest.json is no attempt" if isinstance(attempts, list) else "attempts of manifest.json is no list"
    )


def noted(run: Path, attempts: object) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"attempts": attempts}))


def test_only_attempts_that_are_there_are_said_to_be_kept(tmp_path: Path) -> None:
    run = sealed_run(tmp_path / "r")
    earlier = [{"number": n, "outcome": "INVALID", "reasons": ["late"]} for n in (1, 2)]
    noted(run, earlier[:1])
    assert "(late) and is no longer in the run directory; this is attempt 2" in repeated(judged(run).attempts)
    sealed_run(run / "attempts/1")
    assert "(late) and is kept in attempts/1; this" in repeated(judged(run).attempts)
    noted(run, earlier)
    assert "and only attempts/1 of them are still kept; this" in repeated(judged(run).attempts)
    sealed_run(run / "attempts/2")
    assert "and are kept in attempts; this" in repeated(judged(run).attempts)


def test_a_run_whose_last_attempt_was_killed_names_the_whole_one(tmp_path: Path) -> None:
    run = tmp_path / "r"
    sealed_run(run / "attempts/1")
    (run / "segments").mkdir()
    with pytest.raises(HarnessFault) as raised:
        open_sealed(run)
    assert f"attempt 1 is whole. Give {run}/attempts/1" in str(raised.value)
    assert raised.value.code == 2
    assert judged(run / "attempts/1").verdict.outcome == "PASS"


def test_promises_that_were_edited_are_refused_with_the_way_on(tmp_path: Path) -> None:
    run = open_loop(tmp_path / "r")
    made = {"schema": "plimsoll.promises/1", "objectives": ["p99(latency) <= 10s"], "openslo": [], "confidence": "0.95"}
    text = json.dumps({**made, "production_per_s": None, "presets": []})
    (run / "promises.json").write_text(text)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["promises_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert [str(one) for one in kept(open_sealed(run)).objectives] == made["objectives"]
    (run / "promises.json").write_text(text.replace("p99", "p50"))
    with pytest.raises(HarnessFault, match=r"not the one that the run was sealed with .* with --slo"):
        kept(open_sealed(run))


def test_any_seed_that_a_scenario_may_have_can_be_read_again_and_no_larger_one(tmp_path: Path) -> None:
    run = open_loop(tmp_path / "r")
    held = json.loads((run / "manifest.json").read_text())
    for seed, fits in (((1 << 64) - 1, True), (1 << 64, False)):
        (run / "manifest.json").write_text(json.dumps(held | {"seed": seed}))
        if fits:
            assert open_sealed(run).manifest["seed"] == seed
        else:
            with pytest.raises(HarnessFault, match=r"seed of manifest\.json is '18446744073709551616'"):
                open_sealed(run)
