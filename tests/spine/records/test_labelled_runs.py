"""A sealed run has the labels of its plan, of its payloads and of its answers, and notices when one is altered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plimsoll.harness.generator.segments import SegmentWriter
from plimsoll.harness.run import rundir
from plimsoll.harness.run.rundir import Sealed, open_sealed, seal
from plimsoll.harness.sealing.labelling import Known
from plimsoll.harness.sealing.planned import END, Cursor
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios import spec
from plimsoll.scenarios.plan.blocks import cut
from plimsoll.scenarios.plan.plan import Plan, QueryLabels
from plimsoll.scenarios.samples.payload import PayloadSource
from plimsoll.scenarios.samples.prefixes import Prefixed, Unlimited
from plimsoll.slo.records.labels import NO_LABELS, LabelTable
from plimsoll.slo.records.records import Records, Status, TokensFrom, concat, from_columns
from plimsoll.slo.validity.generator import GeneratorFacts

N, MS = 40, 1_000_000
KINDS = {
    "open": {"kind": "server", "params": {"rate": 100, "arrival": "constant"}},
    "wide": {"kind": "multi_stream", "params": {"samples_per_query": 2, "frame_interval": "20ms"}},
    "closed": {"kind": "concurrency", "params": {"concurrency": 4}},
}
TENANTS = ("a", None, "b")


def planned(kind: str) -> tuple[spec.Scenario, Plan]:
    scenario = spec.parse({**KINDS[kind], "stop": {"min_queries": N, "min_duration": "0s", "max_queries": N}})
    plan = scenario.build(3)
    classes = np.arange(plan.n_queries) % 3 - 1
    labels = QueryLabels({"class": classes, "session": np.arange(plan.n_queries) // 4}, {"class": ("chat", "bulk")})
    return scenario, replace(plan, labels=labels)


def answered(plan: Plan, worker: int, workers: int, said: dict[str, list[str | int | None]]) -> Records:
    """What a worker records of its shard, with what answers said; the last two rows are missing, one is a warm-up's."""
    mine = plan.shard(worker, workers)
    ids = mine.first_id + mine.id_step * np.arange(N // workers) if plan.cyclic else mine.query_id
    lengths = np.diff(plan.offsets)[ids % plan.n_queries]
    query = np.repeat(ids, lengths)
    place = np.arange(len(query)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    at = plan.offsets[query % plan.n_queries] + place
    due = query * MS if plan.cyclic else np.repeat(mine.due_ns, lengths)
    n = len(query) - 2
    rows = from_columns(
        n, query_id=query[:n], sample_ix=place[:n], payload_ix=plan.payload_ix[at][:n], due_ns=due[:n], n_in=100,
        ready_ns=due[:n], sent_ns=due[:n], first_byte_ns=due[:n] + MS, done_ns=due[:n] + 2 * MS, worker=worker,
        n_in_from=int(TokensFrom.USAGE), labels={name: (values * n)[:n] for name, values in said.items()} or None,
    )  # fmt: skip
    warm = from_columns(1, query_id=[worker], phase=1, due_ns=-9, ready_ns=-9, sent_ns=-9, done_ns=-8, worker=worker)
    return concat([warm.with_columns(payload_ix=[2]), rows])


def sealed(
    folder: Path,
    kind: str,
    said: list[dict[str, list[str | int | None]]],
    source: PayloadSource | None = None,
    **more: object,
) -> tuple[Sealed, Plan]:
    scenario, plan = planned(kind)
    directory = rundir.create(folder)
    members = []
    for index, words in enumerate(said):
        rows = answered(plan, index, len(said), words)
        writer = SegmentWriter(directory.segments, index)
        for part in np.array_split(np.arange(len(rows)), 3):
            writer.put(rows.select(part))
        writer.close()
        account = {"sent": len(rows), "rows": len(rows), **writer.account}
        members.append(Member(index, done={"account": account, "folders": writer.folders}))
    manifest = {"schema": "plimsoll.manifest/1", "run_id": "r", "t0_wall_ns": 1, "t0_monotonic_ns": 0, "seed": 1,
                "plan_fingerprint": plan.fingerprint(), "workers": len(said), **more}  # fmt: skip
    planned_rows = 0 if plan.cyclic else plan.n_samples
    facts = GeneratorFacts(open_loop=plan.open_loop, planned=planned_rows, n_workers=len(said), kernel_reads=N)
    tenants = LabelTable.of({"tenant": TENANTS})
    return seal(directory, manifest, scenario.to_mapping(), plan, members, facts, payloads=tenants, source=source), plan


def texts(records: Records, label: str) -> list[str | int | None]:
    table = records.labels
    assert table is not None
    words = table.texts.get(label)
    return [None if i < 0 else words[i] if words else i for i in table.columns[label].tolist()]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_have_the_labels_of_their_query_and_of_their_payload(tmp_path: Path, kind: str) -> None:
    found, plan = sealed(tmp_path / "r", kind, [{"backend": ["x", None, "y"]}, {"backend": ["y"], "hits": ["7", "10"]}])
    records, labels = found.records, plan.labels
    assert labels is not None
    assert found.facts.account_faults == found.facts.plan_faults == ()
    warm, query = records["phase"] == 1, records["query_id"] % plan.n_queries
    classes = [None if i < 0 else ("chat", "bulk")[i] for i in labels.columns["class"][query].tolist()]
    assert texts(records, "class") == [None if w else c for w, c in zip(warm, classes, strict=True)]
    assert texts(records, "session") == [None if w else q // 4 for w, q in zip(warm, query.tolist(), strict=True)]
    assert texts(records, "tenant") == [TENANTS[i] for i in records["payload_ix"].tolist()]
    never = records["status"] == Status.UNSENT
    assert never.any() == (not plan.cyclic)
    assert {one for one, gone in zip(texts(records, "backend"), never, strict=True) if gone} <= {None}
    assert {*texts(records, "hits")} == {None, 7, 10}, "texts that are whole numbers, every one, are numbers"
    again = open_sealed(tmp_path / "r")
    assert again.facts.plan_faults == ()
    assert {name: texts(again.records, name) for name in ("class", "session", "tenant", "backend", "hits")} == {
        name: texts(records, name) for name in ("class", "session", "tenant", "backend", "hits")
    }


def test_numbers_among_other_texts_stay_texts(tmp_path: Path) -> None:
    said: list[dict[str, list[str | int | None]]] = [{"v": [1, 2]}, {"v": ["2", "new"]}]
    found, _ = sealed(tmp_path / "r", "open", said)
    assert {*texts(found.records, "v")} == {None, "1", "2", "new"}
    assert found.facts.account_faults == ()


@pytest.mark.parametrize("column", ["class", "session", "label_tenant", "label_backend", "label_hits"])
def test_an_altered_label_is_noticed(tmp_path: Path, column: str) -> None:
    sealed(tmp_path / "r", "open", [{"backend": ["x", "y"], "hits": ["3", "4"]}])
    path = tmp_path / "r" / "requests.parquet"
    table = pq.read_table(path)
    values = table[column].to_pylist()
    moved = pa.array(values[1:] + values[:1], table.schema.field(column).type)
    pq.write_table(table.set_column(table.column_names.index(column), column, moved), path)
    faults = open_sealed(tmp_path / "r").facts.plan_faults
    assert any(column in text for text in faults), faults


def alike(n: int = 3) -> PayloadSource:
    """A source of prompts of 50 tokens, the first 40 of which are those of one of two groups."""
    source = {"kind": "synthetic_text", "count": n, "prompt_tokens": 10, "shared": {"groups": 2, "tokens": 40}}
    return spec.parse({"kind": "server", "source": source}).source_object()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_say_what_a_cache_without_limit_would_have_had(tmp_path: Path, kind: str) -> None:
    source = alike()
    found, _ = sealed(tmp_path / "r", kind, [{}, {}], source)
    records = found.records
    shares = Unlimited(cast(Prefixed, source)).shares(records["payload_ix"])
    n_in = records["n_in"]
    wanted = [None if tokens < 0 else round(share * tokens) for share, tokens in zip(shares, n_in, strict=True)]
    assert texts(records, "ideal_cached_tokens") == wanted
    assert {*wanted} == {None, 80, 100}  # the warm-up, whose prompt nobody counted, had sent the first
    assert np.array_equal(open_sealed(found.directory.path).records["n_in"], n_in)
    assert open_sealed(found.directory.path).facts == found.facts
    assert not found.facts.plan_faults


def test_the_endpoints_count_of_prompts_is_held_against_the_plans(tmp_path: Path) -> None:
    found, _ = sealed(tmp_path / "r", "open", [{}], alike())
    told = found.records.in_measure & (found.records["n_in_from"] == TokensFrom.USAGE)
    assert (found.facts.planned_tokens, found.facts.told_tokens) == (50 * told.sum(), 100 * told.sum())
    plain, _ = sealed(tmp_path / "p", "open", [{}])
    assert (plain.facts.planned_tokens, plain.facts.told_tokens) == (0, 0)
    assert "told_tokens" not in plain.facts.to_json()
    assert "ideal_cached_tokens" not in (plain.records.labels or NO_LABELS).columns


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_of_the_phase_that_it_was_due_in_and_so_is_one_that_was_never_sent(tmp_path: Path, kind: str) -> None:
    cut_ns = [("", 0), ("before", 5 * MS), ("", 20 * MS), ("after", 30 * MS)]
    found, _ = sealed(tmp_path / "r", kind, [{}, {}], phases=cut_ns)
    due, warm = found.records["due_ns"].tolist(), found.records["phase"] == 1
    names = ["before" if 5 <= at / MS < 20 else "after" if at >= 30 * MS else None for at in due]
    assert texts(found.records, "phase") == [None if w else name for w, name in zip(warm, names, strict=True)]
    assert {"after", None} <= {*names}
    again = open_sealed(tmp_path / "r")
    assert texts(again.records, "phase") == texts(found.records, "phase")
    assert again.facts.plan_faults == ()


def test_a_later_turn_is_longer_than_the_source_knows() -> None:
    params = {"rate": 100, "turns": 4, "think": "none", "arrival": "constant"}
    plan = spec.parse({"kind": "sessions", "params": params, "stop": {"min_queries": N, "min_duration": "0s"}}).build(3)
    assert plan.labels is not None
    turn = plan.labels.columns["turn"]
    known = Known(cut(plan), None, 1, alike())
    rows = from_columns(
        len(turn), query_id=np.arange(len(turn)), payload_ix=plan.payload_ix, due_ns=plan.due_ns, done_ns=plan.due_ns,
        n_in=100 * turn, n_in_from=int(TokensFrom.USAGE),
    )  # fmt: skip
    known.of(rows, Cursor(cut(plan)).until(END))
    first = int((turn == 1).sum())
    assert 0 < first < len(turn)
    assert (known.planned_tokens, known.told_tokens) == (50 * first, 100 * first)
    assert known.names == {"session", "turn"}, "nor does it know what a cache had"
