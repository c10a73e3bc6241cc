"""Rows or segments that are removed, doubled, altered or swapped, before sealing or after it: the run is never VALID,
and says why.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.segments import SegmentWriter, read_segment, write_segment
from plimsoll.harness.run import rundir
from plimsoll.harness.run.rundir import Sealed, open_sealed, seal
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.flags import with_flags
from plimsoll.scenarios.plan.plan import Plan
from plimsoll.scenarios.scenario import parse
from plimsoll.scenarios.spec import Scenario
from plimsoll.slo.records import records as rec
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import COLUMNS, Records, Status, from_arrays
from plimsoll.slo.validity import accounts
from plimsoll.slo.validity.generator import GeneratorFacts
from plimsoll.slo.validity.validity import assess

MS = 1_000_000
N = 60
SEGMENTS = 4
Kind = Literal["server", "concurrency", "offline", "multi_stream"]
KINDS: tuple[Kind, ...] = ("server", "concurrency", "offline", "multi_stream")
OPERATIONS = ("remove", "duplicate", "alter", "chunk", "swap", "text")


@cache
def load(kind: Kind) -> tuple[Scenario, Plan]:
    mapping = with_flags(None, kind="server", rate=100.0, queries=N).to_mapping() | {"kind": kind}
    mapping["params"] = {
        "server": {"rate": 100.0}, "concurrency": {"concurrency": 2}, "multi_stream": {"samples_per_query": 3},
        "offline": {"expected_rate": 2.0},
    }[kind]  # fmt: skip
    scenario = parse(mapping, kind)
    return scenario, scenario.build(7)


def rows_of(plan: Plan, worker: int, workers: int) -> Records:
    """What a worker of a healthy run would have recorded, and two rows of its warm-up."""
    mine = plan.shard(worker, workers)
    if plan.cyclic:
        ids = mine.first_id + mine.id_step * np.arange(N // workers)
        lengths = np.diff(plan.offsets)[ids % plan.n_queries]
        query = np.repeat(ids, lengths)
        place = np.arange(len(query)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        payload = plan.payload_ix[plan.offsets[query % plan.n_queries] + place]
        due = (query // mine.id_step) * 10 * MS
    else:
        lengths = np.diff(mine.offsets)
        query, place, payload = np.repeat(mine.query_id, lengths), mine.sample_ix, mine.payload_ix
        due = np.repeat(mine.due_ns, lengths)
    n = len(query)
    held = np.arange(n) * 10 * MS if not plan.cyclic and plan.n_queries == 1 else np.zeros(n, np.int64)
    sent = due + held
    first = sent + 5 * MS
    made = rec.from_columns(
        n, query_id=query, sample_ix=place, payload_ix=payload, due_ns=due, ready_ns=sent, sent_ns=sent,
        headers_ns=first,
        first_byte_ns=first, first_token_ns=first, last_token_ns=first + 4 * MS, done_ns=first + 4 * MS, n_out=3,
        n_in=2,
        bytes_in=100, code=200, worker=worker, errors=["boom" if i % 20 == 7 else None for i in range(n)],
        timings=["db;dur=3"] * n, status=[1 if i % 20 == 7 else 0 for i in range(n)],
        chunks=[[int(t), int(t) + 2 * MS, int(t) + 4 * MS] for t in first],
    )  # fmt: skip
    before = -50 * MS
    warm = rec.from_columns(
        2, query_id=[worker, worker + 2], phase=1, due_ns=before, ready_ns=before, sent_ns=before,
        first_byte_ns=before + MS,
        done_ns=before + 2 * MS, worker=worker,
    )  # fmt: skip
    return rec.concat([warm, made])


class Run:
    """Two workers that came to their end, their segments on disk, and nothing sealed yet."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self.scenario, self.plan = load(kind)
        self.directory = rundir.create(folder)
        self.workers = 1 if (self.plan.max_in_flight or 2) < 2 else 2
        self.members = []
        for index in range(self.workers):
            rows = rows_of(self.plan, index, self.workers)
            writer = SegmentWriter(self.directory.segments, index)
            for part in np.array_split(np.arange(len(rows)), SEGMENTS):
                writer.put(rows.select(part))
            writer.close()
            account = {"sent": len(rows), "rows": len(rows), **writer.account}
            self.members.append(Member(index, done={"account": account, "folders": writer.folders}))

    def files(self) -> list[Path]:
        return sorted(self.directory.segments.glob("w*.seg"))

    def seal(self) -> Sealed:
        manifest = {"schema": "plimsoll.manifest/1", "run_id": "r", "t0_wall_ns": 1, "t0_monotonic_ns": 0, "seed": 1,
                    "plan_fingerprint": self.plan.fingerprint(), "workers": self.workers}  # fmt: skip
        plan = self.plan
        facts = GeneratorFacts(
            open_loop=plan.open_loop, planned=0 if plan.cyclic else plan.n_samples, n_workers=self.workers,
            planned_queries=0 if plan.cyclic else plan.n_queries, kernel_reads=N,
        )  # fmt: skip
        return seal(self.directory, manifest, self.scenario.to_mapping(), plan, self.members, facts)


@cache
def sealed_once(kind: Kind) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="plimsoll-accounts-"))
    Run(folder / "r", kind).seal()
    return folder / "r"


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "r"


def valid(sealed: Sealed) -> bool:
    return assess(sealed.records, sealed.facts).outcome == "VALID"


def line(sealed: Sealed) -> str:
    return next(check.detail for check in assess(sealed.records, sealed.facts).checks if check.name == "accounting")


def said_why(run: Run, found: Sealed, path: Path) -> None:
    """A segment is gone: the reason names it and, where a later one has query ids of a closed loop, the ids that have
    no row.
    """
    here = int(np.isin(found.records["status"], (0, 1)).sum())
    lost = found.facts.recorded - here
    text = found.facts.account_faults[0]
    assert f"{lost} are gone ({path.name} of its segments is gone" in text
    assert ("query ids have no row" in text) == (run.plan.cyclic and not path.name.endswith("3.seg"))
    assert f"lost {lost};" in line(found)
    assert f"recorded {here - int((found.records['phase'] == 1).sum())};" in line(found)


def changed(rows: Records, operation: str, pick: Callable[[int], int]) -> Records | None:
    """The rows after one operation; None where it would change nothing."""
    n, at = len(rows), pick(len(rows))
    if operation == "remove":
        return rows.select(np.delete(np.arange(n), at))
    if operation == "duplicate":
        return rows.select(np.append(np.arange(n), at))
    columns = {name: np.array(column) for name, column in rows.columns.items()}
    chunks, errors = np.array(rows.chunk_ns), list(rows.errors)
    if operation == "alter":
        name = [*COLUMNS][pick(len(COLUMNS))]
        if name in ("error", "server_timing"):
            columns[name][at] = -1 if columns[name][at] >= 0 else 0
        else:
            columns[name][at] += (
                1 if name not in ("status", "stamp", "phase", "tokens_from") or not columns[name][at] else -1
            )
    elif operation == "swap":
        name, other = ("done_ns", "n_out", "payload_ix", "status")[pick(4)], pick(n)
        if columns[name][at] == columns[name][other]:
            return None
        columns[name][[at, other]] = columns[name][[other, at]]
    elif operation == "chunk" and len(chunks):
        chunks[pick(len(chunks))] += 1
    elif operation == "text" and (used := sorted({*rows["error"].tolist()} - {-1})):
        errors[used[pick(len(used))]] += "!"
    else:
        return None
    return from_arrays(columns, chunks, rows.chunk_offsets, errors, rows.timings)


def test_a_run_that_nobody_touched_is_valid_and_its_line_says_all_the_counts() -> None:
    for kind in KINDS:
        sealed = open_sealed(sealed_once(kind))
        assert valid(sealed), (kind, assess(sealed.records, sealed.facts).reasons)
        mine = sealed.records.measured()
        ok, workers = int(mine.ok.sum()), len(np.unique(mine["worker"]))
        wanted = f"sent {len(mine)} = answered {ok} + failed {len(mine) - ok} + cancelled 0 + lost 0; recorded {len(mine)}; warm-up {2 * workers}; retried 0"  # fmt: skip  # noqa: E501
        assert line(sealed).startswith(wanted)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(OPERATIONS), st.data())
def test_rows_that_change_before_the_run_is_sealed_are_found(kind: Kind, operation: str, data: st.DataObject) -> None:
    with scratch() as folder:
        run = Run(folder, kind)
        files = run.files()
        path = files[data.draw(st.integers(0, len(files) - 1))]
        rows = changed(read_segment(path), operation, lambda n: data.draw(st.integers(0, n - 1)))
        if rows is None:
            return
        write_segment(path, rows)  # whole, and its check sum is right
        found = run.seal()
        assert not valid(found)
        assert found.facts.account_faults
        assert not valid(open_sealed(folder))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(["gone", "copied", "another's", "cut"]), st.data())
def test_segments_that_go_or_come_before_the_run_is_sealed_are_found(kind: Kind, way: str, data: st.DataObject) -> None:
    with scratch() as folder:
        run = Run(folder, kind)
        files = run.files()
        path = files[data.draw(st.integers(0, len(files) - 1))]
        if way == "gone":
            path.unlink()
        elif way == "copied":
            shutil.copy(path, path.with_name(path.name.replace("-0", "-1")))
        elif way == "another's":
            other = data.draw(st.sampled_from([one for one in files if one != path]))
            shutil.copy(other, path)
        else:
            path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, path.stat().st_size - 1))])
        found = run.seal()
        assert not valid(found)
        if way == "gone":
            said_why(run, found, path)
        assert not valid(open_sealed(folder))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(OPERATIONS), st.data())
def test_rows_that_change_after_the_run_was_sealed_are_found(kind: Kind, operation: str, data: st.DataObject) -> None:
    with scratch() as folder:
        shutil.copytree(sealed_once(kind), folder)
        rows = changed(tables.load(folder), operation, lambda n: data.draw(st.integers(0, n - 1)))
        if rows is None:
            return
        ids = rundir.request_ids("r", rows)
        for name, table in zip(("requests", "chunks"), tables.to_tables(rows, ids), strict=True):
            pq.write_table(table, folder / f"{name}.parquet")
        with suppress(HarnessFault):  # the two files don't fit each other: damaged
            assert not valid(open_sealed(folder))


def told_with(folder: Path, change: Callable[[dict[str, Any]], object]) -> list[str]:
    """The reasons of a sealed run whose generator.json was changed so."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sealed_once("concurrency"), folder)
    told = json.loads((folder / "generator.json").read_text())
    change(told)
    (folder / "generator.json").write_text(json.dumps(told))
    sealed = open_sealed(folder)
    return assess(sealed.records, sealed.facts).reasons


def test_what_was_altered_is_named_and_a_run_that_nobody_counted_is_an_earlier_versions(tmp_path: Path) -> None:
    altered = "the rows are not those that were sealed: done_ns of requests.parquet or chunks.parquet were changed"
    assert altered in told_with(tmp_path / "r", lambda told: told["columns"].update(done_ns="0" * 16))[0]

    def earlier(told: dict[str, Any]) -> None:
        del told["columns"]
        for name in ("sent", "recorded", "lost", "account_faults"):
            del told["facts"][name]

    assert not told_with(tmp_path / "r", earlier)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([*COLUMNS, "chunk_ns"]))
def test_rows_whose_sums_are_gone_are_not_taken_for_an_earlier_versions(name: str) -> None:
    with scratch() as folder:
        gone = told_with(folder, lambda told: told["columns"].pop(name))
        assert f"the rows are not those that were sealed: {name} of" in gone[0]
        assert "generator.json has lost columns" in told_with(folder, lambda told: told.pop("columns"))[0]
        assert f"{len(COLUMNS) - 2} more columns" in told_with(folder, lambda told: told.update(columns={}))[0]


def test_rows_of_another_run_of_the_same_plan_are_found(tmp_path: Path) -> None:
    """Its files agree with each other, and with the plan."""
    found = told_with(tmp_path / "r", lambda told: told.update(run_id="another"))
    assert "generator.json and the rows are of another run than manifest.json" in found[0]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_digests_of_parts_in_any_order_add_up_to_that_of_the_whole(data: st.DataObject) -> None:
    rows = rows_of(load("concurrency")[1], 0, 1)
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [rows.select(order[:cut]), rows.select(order[cut:])]
    both = sum(accounts.digests(part).get(0, 0) for part in parts) % (1 << 64)
    assert accounts.digests(rows) == {0: both} == accounts.digests(rec.concat(parts[::-1]))
    assert accounts.sums(rec.concat(parts)) == accounts.sums(rows)


@given(*[st.integers(0, 9)] * 5)
def test_the_figures_of_a_killed_worker_of_sessions_add_up_to_the_plan(
    ok: int, stand_ins: int, unsent: int, never: int, without_row: int
) -> None:
    """It had sent some later turns of whose sessions no row came: those were lost, and not never due."""
    statuses = [0] * ok + [int(Status.UNFINISHED)] * stand_ins + [int(Status.UNSENT)] * unsent
    texts = [None] * ok + [accounts.DIED] * stand_ins + ["not sent before the run ended"] * unsent
    rows = rec.from_columns(len(texts), status=np.array(statuses, np.int8), errors=texts)
    sent = ok + stand_ins + without_row
    facts = GeneratorFacts(
        open_loop=True, planned=len(rows), plan_samples=len(rows), sent=sent, lost=without_row,
        unreached=never + without_row,
    )  # fmt: skip
    said = accounts.check(rows, facts).detail
    figures = {name: int(n) for name, n in re.findall(r"(sent|planned|unsent|never due) (\d+)", said)}
    assert figures["planned"] == figures["sent"] + figures["unsent"] + figures.get("never due", 0)
    assert (figures["sent"], figures.get("never due", 0)) == (sent, never)
