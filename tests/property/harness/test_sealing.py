"""However workers left their rows, and in whatever pieces they are sealed: a run is its rows sorted, and one for each
that is missing.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.harness.generator.segments import dump_segment, segment_name
from plimsoll.harness.run import rundir
from plimsoll.harness.sealing import gathered, planned, sealing
from plimsoll.harness.sealing.workforce import Member
from plimsoll.scenarios.plan.blocks import Blocks
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.slo.records import records as rec
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.validity.accounts import digests, sums
from plimsoll.slo.validity.generator import GeneratorFacts

_WIDE = 3
#: One row: query, sample, phase, chunks.
ROW = st.tuples(
    st.integers(0, 60),
    st.integers(0, _WIDE - 1),
    st.sampled_from([0, 0, 0, 1]),
    st.lists(st.integers(1, 9), max_size=3),
)
Row = tuple[int, int, int, list[int]]


def plan_of(queries: int) -> Plan:
    n = queries * _WIDE
    numbers = np.arange(queries)
    six = np.arange(n) % _WIDE
    return Plan(
        numbers * 10, numbers, np.arange(queries + 1) * _WIDE, six, np.zeros(n, np.int64), np.full(queries, -1), Stop(),
        seed=0, open_loop=True,
    )  # fmt: skip


def rows_of(rows: list[Row], worker: int) -> Records:
    query = np.array([row[0] for row in rows], np.int64)
    return rec.from_columns(
        len(rows),
        query_id=query,
        sample_ix=np.array([row[1] for row in rows], np.int64),
        phase=np.array([row[2] for row in rows], np.int64),
        payload_ix=0,
        due_ns=query * 10,
        sent_ns=query * 10,
        done_ns=np.arange(len(rows)) + 10_000,
        worker=worker,
        status=0,
        errors=[None if len(row[3]) % 2 else f"e{row[0] % 4}" for row in rows],
        chunks=[np.cumsum(row[3]).tolist() for row in rows],
    )


@settings(max_examples=25)  # each is a run on disk
@given(
    workers=st.lists(st.lists(st.lists(ROW, max_size=12), max_size=4), min_size=1, max_size=3),
    queries=st.integers(0, 70),
    block=st.sampled_from([1, 3, 16, 1 << 17]),
    most_ranges=st.sampled_from([2, 1 << 19]),
)
def test_a_run_is_sealed_as_its_rows_sorted(
    workers: list[list[list[Row]]], queries: int, block: int, most_ranges: int
) -> None:
    plan = plan_of(queries)
    with tempfile.TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "BLOCK_ROWS", block)
        patch.setattr(gathered, "BLOCK_CHUNKS", block * 8)
        patch.setattr(gathered, "_MOST_RANGES", most_ranges)
        patch.setattr(gathered, "_FINEST", 0)
        patch.setattr(planned, "_STEP", block)
        directory = rundir.create(Path(path) / "r")
        members, all_rows = [], []
        for worker, segments in enumerate(workers):
            parts = [rows_of(rows, worker) for rows in segments]
            for number, part in enumerate(parts[1:]):
                with (directory.segments / segment_name(worker, number)).open("wb") as file:
                    dump_segment(file, part)
            digest = sum(sum(digests(part).values()) for part in parts) % (1 << 64)
            n = sum(map(len, parts))
            account = {"sent": n, "rows": n, "digest": digest, "segments": len(parts)}
            account["unwritten"] = [len(parts) - 1] if parts else []
            done = {"account": account, "folders": [str(directory.segments)]}
            members.append(Member(worker, done=done, segments=parts[:1]))
            # Rows from files come before those from memory, as they do among equals.
            all_rows += [(1 if not at else 0, worker, row) for at, rows in enumerate(segments) for row in rows]
        manifest = {"run_id": "r", "t0_monotonic_ns": 0, "plan_fingerprint": plan.fingerprint()}
        facts = GeneratorFacts(open_loop=True, planned=0)
        made = rundir.seal(directory, manifest, {"name": "x"}, plan, members, facts)
        again = rundir.open_sealed(directory.path)
    kept = [row for *_, row in sorted(all_rows, key=lambda one: one[:2])]
    seen = {row[:2] for row in kept if row[2] == 0}
    missing = [(query, sample) for query in range(queries) for sample in range(_WIDE) if (query, sample) not in seen]
    wanted = sorted(
        [(-row[2], row[0], row[1], row[3]) for row in kept] + [(0, query, sample, None) for query, sample in missing],
        key=lambda row: row[:3],
    )
    found = made.records
    assert (-found["phase"]).tolist() == [row[0] for row in wanted]
    assert found["query_id"].tolist() == [row[1] for row in wanted]
    assert found["sample_ix"].tolist() == [row[2] for row in wanted]
    assert (found["status"] == Status.UNSENT).tolist() == [row[3] is None for row in wanted]
    times = [found.chunk_ns[begin:end].tolist() for begin, end in pairwise(found.chunk_offsets)]
    assert times == [np.cumsum(row[3] or []).tolist() for row in wanted]
    texts = [found.errors[at] if at >= 0 else None for at in found["error"]]
    for text, (_, query, _, chunks) in zip(texts, wanted, strict=True):
        expected = None if chunks is not None and len(chunks) % 2 else f"e{query % 4}"
        assert text == ("not sent before the run ended" if chunks is None else expected)
    assert sums(found) == sums(again.records)
    assert made.facts.account_faults == ()
    assert made.facts.plan_faults == again.facts.plan_faults
    assert made.facts.planned_queries == len({row[1] for row in wanted if row[0] == 0})
    assert made.facts.plan_samples == plan.n_samples


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=12),
    st.one_of(st.none(), st.integers(0, 40)),
    st.lists(st.tuples(st.integers(-2, 40), st.integers(-1, 3), st.integers(-1, 4)), max_size=40),
    st.integers(1, 7),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_rows_of_a_closed_loop_are_held_against_the_pieces_of_its_plan_as_against_all_of_it(
    widths: list[int], most: int | None, rows: list[tuple[int, int, int]], size: int, ordered: bool
) -> None:
    carried = [[(row + place) % 4 for place in range(width)] for row, width in enumerate(widths)]
    pieces = [_closed(carried[begin : begin + size], begin, most) for begin in range(0, len(carried), size)]
    rows = sorted(rows) if ordered else rows
    query, sample, payload = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    found = planned.Differences(Blocks(lambda: iter(pieces)), _WIDE)
    for part in np.array_split(np.arange(len(rows)), 3):
        found.add((query[part], sample[part], payload[part], query[part]), None)

    def of(q: int, s: int) -> int | None:
        held = carried[q % len(carried)]
        return held[s] if q >= 0 and (most is None or q < most) and 0 <= s < len(held) else None

    strange = [row for row in rows if of(*row[:2]) is None]
    others = [row for row in rows if row[2] not in (of(*row[:2]), -1) and row not in strange]
    kinds = [(strange, "are not in the plan"), (others, "carry another payload than planned")]
    assert found.texts() == [
        f"{len(bad)} rows {what} (first: query {bad[0][0]} sample {bad[0][1]})" for bad, what in kinds if bad
    ]


def _closed(rows: list[list[int]], begin: int, most: int | None) -> Plan:
    n, flat = len(rows), [payload for row in rows for payload in row]
    offsets = np.cumsum([0, *map(len, rows)])
    return Plan(
        np.zeros(n, np.int64), np.arange(begin, begin + n), offsets,
        np.concatenate([np.arange(len(row)) for row in rows]), np.array(flat), np.full(n, -1),
        Stop(max_queries=most), seed=0, open_loop=False, cyclic=True, max_in_flight=2, check=False,
    )  # fmt: skip
