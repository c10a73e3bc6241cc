"""Recordings larger than memory: read in blocks and on disk, they say what they said as arrays."""

from __future__ import annotations

import csv
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from plimsoll.scenarios.formats.csv_ import takes
from plimsoll.scenarios.formats.plimsoll import write
from plimsoll.scenarios.kinds import replay
from plimsoll.scenarios.kinds.replay import KIND, ReplayParams
from plimsoll.scenarios.plan.plan import Plan, Stop
from plimsoll.scenarios.samples import recording, rows, traces
from plimsoll.scenarios.samples.csv_blocks import Take, columns
from plimsoll.scenarios.samples.recording import BLOCKS, RUN, Recording
from plimsoll.scenarios.samples.traces import Columns, read
from plimsoll.scenarios.text.document import ScenarioError

_ANY = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, and all but a few bytes on disk."""
    for module, name, value in (
        (recording, "KEPT", 40), (recording, "STEP", 3), (rows, "STEP", 3), (rows, "_PLAIN", 60),
        (replay, "BLOCK", 4),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def by_lines(text: str, unit: traces.Unit) -> list[tuple[int, int, int]] | None:
    """What the reader that goes line by line makes of it; None: it refuses some line."""
    try:
        lines = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
        found = [rows.taken(line, takes(Columns(), traces.UNIT_NS[unit])) for line in lines]
        return [(row["at_ns"], row["n_in"], row["n_out"]) for row in found]
    except (ValueError, csv.Error):
        return None


_SECONDS = st.decimals(0, 10**8, places=9).map(str)
_TIMES = st.one_of(
    st.integers(0, 10**18).map(str),
    _SECONDS,
    st.datetimes().map(str),
    st.datetimes().map(lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.1234567"),
    st.sampled_from(["", " 1", "1.", ".5", "1e3", "-4", "+4", "1_0", "nan", "2026-02-30 00:00:00", "2026-01-31"]),
    st.sampled_from(["\u0661", "1.0000000001", "2026-01-31 23:59:60", "2026-01-31 12:00:00Z", '"7"', "9" * 19]),
)
_COUNTS = st.one_of(st.integers(0, 10**8).map(str), st.sampled_from(["", "-1", "7.0", "x", " 3", "1_0", "null", "NaN"]))


@_ANY
@given(
    times=st.one_of(st.lists(_SECONDS, max_size=5), st.lists(_TIMES, max_size=5)),
    counts=st.lists(st.tuples(_COUNTS, st.integers(0, 90).map(str)), min_size=5, max_size=5),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
)
@example(times=["2023-11-16 18:15:46.6805900"], counts=[("3", "4")] * 5, end="\r\n", unit="s")
@example(times=["12.5", "7"], counts=[("3", "4")] * 5, end="\n", unit="ms")
def test_a_block_read_at_once_has_the_numbers_of_its_lines(
    times: list[str], counts: list[tuple[str, str]], end: str, unit: traces.Unit
) -> None:
    lines = [",".join((at, *some)) + end for at, some in zip(times, counts, strict=False)]
    found = columns(
        "".join(lines).encode(),
        ["time", "input_tokens", "output_tokens"],
        takes(Columns(), traces.UNIT_NS[unit]),
        10_000_000,
        Recording().codes,
    )
    if found is not None:
        told = zip(*(np.asarray(found[name]).tolist() for name in ("at_ns", "n_in", "n_out")), strict=True)
        assert [*told] == by_lines(f"time,input_tokens,output_tokens{end}" + "".join(lines), unit)


def test_plain_blocks_are_read_at_once() -> None:
    """Else the test above would hold of a reader that refuses everything."""
    for time, at_ns in (
        ("12.5", 12_500_000_000),
        ("1700000000.123456789", 1_700_000_000_123_456_789),
        ("2023-11-16 18:15:46.6805900", 1_700_158_546_680_590_000),
    ):
        wanted = {"t": Take("at_ns", "time", 10**9), "n": Take("n_in", "count"), "no": Take("n_out", "count")}
        found = columns(f"{time},3\r\n".encode(), ["t", "n"], wanted, 9, Recording().codes)
        assert found is not None
        assert ([*np.asarray(found["at_ns"])], [*np.asarray(found["n_in"])]) == ([at_ns], [3])
        assert "n_out" not in found


@pytest.mark.usefixtures("small")
def test_a_file_that_stops_being_plain_is_read_on_line_by_line_and_its_errors_keep_their_lines(tmp_path: Path) -> None:
    plain = [f"{i}.5,{i},{2 * i}" for i in range(30)]
    odd = ['"30.5","30","60"', "  31.5, 31,62", '32.5,"32\n",64']
    head = "time,input_tokens,output_tokens"
    (tmp_path / "a.csv").write_text("\n".join((head, *plain, *odd, *plain)))
    trace = read(tmp_path / "a.csv", "x").rows()
    wanted = sorted([*range(30), *range(33)])
    assert (trace.at_ns // 10**9).tolist() == wanted
    assert trace.n_out.tolist() == [2 * i for i in wanted]
    (tmp_path / "b.csv").write_text("\n".join((head, *plain, "x,1,1", "", "7,x,1")))
    with pytest.raises(ScenarioError, match=r"b.csv:32: time is 'x'.*\n.*b.csv:34: input_tokens is 'x'"):
        read(tmp_path / "b.csv", "x")


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time\n0\n1\n")
    assert len(read(path, "x")) == 2
    assert read(path, "params.trace") is read(path, "source.path"), "times and prompts are of one reading"
    path.write_text("time\n0\n1\n2\n")
    assert len(read(path, "x")) == 3


def test_of_many_mistakes_a_few_are_told_and_all_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time\n" + "x\n" * 70)
    with pytest.raises(ScenarioError, match="and 50 more") as failure:
        read(tmp_path / "a.csv", "x")
    assert len(failure.value.errors) == 21


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("step", ["add", "sealed"])
def test_a_full_disk_is_an_error_that_says_where(code: int, step: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time\n" + "1\n" * 70)
    with (
        mock.patch.object(recording.Recording, step, side_effect=OSError(code, os.strerror(code))),
        pytest.raises(
            ScenarioError, match=r"does not take it in order of time \(.*\)\. Make room there, or set TMPDIR"
        ),
    ):
        read(tmp_path / "a.csv", "x")


def test_a_column_whose_name_has_spaces_behind_it_is_that_column(tmp_path: Path) -> None:
    """Found by damaged inputs."""
    (tmp_path / "a.csv").write_text("time ,input_tokens\n1,2\n")
    assert read(tmp_path / "a.csv", "x", "csv").rows().n_in.tolist() == [2]


def test_lines_that_end_in_carriage_returns_alone_are_said_to_be_no_csv(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"time,input_tokens\r1,3\r2,4\r")
    with pytest.raises(ScenarioError, match=r"a.csv:1: not CSV \(.*\)\. End each line with a line feed"):
        read(tmp_path / "a.csv", "x", "csv")


@pytest.mark.parametrize("speed", [1e-300, 1e-12, 1e-8])
def test_a_speed_at_which_nobody_would_see_the_end_is_refused(speed: float, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time\n0\n1\n")
    params = ReplayParams(trace=str(tmp_path / "a.csv"), speed=speed)
    with pytest.raises(ValueError, match=r"params\.speed: at .* the recording lasts .* years\. Give a larger one"):
        next(replay._blocks(params, Stop(min_queries=1), 1, 1))


@pytest.mark.usefixtures("small")
@_ANY
@given(rows=st.lists(st.tuples(st.integers(-9, 9), st.lists(st.integers(0, 10**30), max_size=3)), min_size=1))
def test_rows_of_any_order_come_in_order_of_time_with_their_ids(rows: list[tuple[int, list[int]]]) -> None:
    made = Recording(BLOCKS)
    for begin in range(0, len(rows), 4):
        some = rows[begin : begin + 4]
        made.add({"at_ns": [at for at, _ in some], "n_in": [len(i) for _, i in some], "n_out": 7}, [i for _, i in some])
    made.sealed()
    ordered = sorted(rows, key=lambda row: row[0])
    trace = made.rows()
    assert trace.at_ns.tolist() == [at - ordered[0][0] for at, _ in ordered]
    assert [list(ids) for ids in trace.blocks or [()] * len(rows)] == [ids for _, ids in ordered]
    for at in range(-1, 20):
        assert made.before(at) == int((trace.at_ns < at).sum())
    assert made.rows(len(rows) - 1, len(rows)).at_ns.tolist() == [made.last_ns]


def planned_at_once(table: dict[str, Any], window: tuple[int, int], speed: float, most: int | None) -> Iterator[Any]:
    """The replay of a run's rows, with lists."""
    rows = sorted(zip(table["due_ns"], table["query_id"], table["sample_ix"], table["payload_ix"], strict=True))
    first = rows[0][0]
    chosen = [row for row in rows if window[0] <= row[0] - first < window[1]]
    queries: list[list[Any]] = []
    for row in chosen:
        if queries and queries[-1][-1][1] == row[1]:
            queries[-1].append(row)
        else:
            queries.append([row])
    for k, query in enumerate(queries[:most]):
        due = round((query[0][0] - chosen[0][0]) / speed)
        yield from ((k, due, place, row[3]) for place, row in enumerate(query))


@pytest.mark.usefixtures("small")
@_ANY
@given(
    sizes=st.lists(st.integers(1, 11), min_size=1, max_size=12),
    seed=st.integers(0, 9),
    speed=st.sampled_from([1.0, 3.7]),
    most=st.none() | st.integers(1, 9),
    from_ns=st.integers(0, 20),
)
def test_a_runs_queries_stay_whole_wherever_pieces_are_cut(
    tmp_path: Path, sizes: list[int], seed: int, speed: float, most: int | None, from_ns: int
) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    query = np.repeat(np.arange(len(sizes)), sizes)
    due = np.sort(rng.integers(0, 90, len(sizes)))[query]
    table = {
        "query_id": query, "sample_ix": np.concatenate([np.arange(n) for n in sizes]), "due_ns": due,
        "payload_ix": rng.integers(0, 5, len(query)), "n_in": query, "n_out": query,
    }  # fmt: skip
    order = rng.permutation(len(query))
    table = {name: values[order].tolist() for name, values in table.items()}
    pq.write_table(pa.table({**table, "phase": ["measure"] * len(query)}), tmp_path / "requests.parquet")
    end_ns = from_ns + 60
    window = {"start": f"{from_ns}ns", "end": f"{end_ns}ns"}
    params = ReplayParams.model_validate({"trace": str(tmp_path), "speed": speed, "window": window})
    wanted = [*planned_at_once(table, (from_ns, end_ns), speed, most)]
    stop = Stop(min_queries=5, max_queries=most)
    if not wanted:
        with pytest.raises(ValueError, match="holds no request"):
            KIND.build(params, stop, 5, 1)
        return
    pieces = [*KIND.blocks(params, stop, 5, 1)]
    assert [row for piece in pieces for row in rows_of(piece)] == wanted
    assert all(Plan(**{name: getattr(piece, name) for name in Plan.__slots__}) for piece in pieces), "each is a plan"
    assert pieces[0].stop.min_queries == min(5, len({row[0] for row in wanted}))


def test_single_attempts_of_a_run_are_no_requests_of_their_own(tmp_path: Path) -> None:
    phases = ["measure", "attempt", "attempt", "measure", "warmup"]
    table = {name: [0, 0, 0, 1, 2] for name in ("query_id", "payload_ix", "n_in", "n_out")}
    table |= {"sample_ix": [0] * 5, "due_ns": [0, 0, 7, 50, 0]}
    pq.write_table(pa.table({**table, "phase": phases}), tmp_path / "requests.parquet")
    recorded = read(tmp_path, "x")
    assert recorded.rows(0, len(recorded)).at_ns.tolist() == [0, 50]
    with (tmp_path / "t.jsonl").open("wb") as file:
        write(recorded, file)
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 3


def rows_of(piece: Plan) -> Iterator[tuple[int, int, int, int]]:
    row = np.repeat(np.arange(piece.n_queries), np.diff(piece.offsets))
    columns = piece.query_id[row], piece.due_ns[row], piece.sample_ix, piece.payload_ix
    yield from zip(*(column.tolist() for column in columns), strict=True)


@pytest.mark.usefixtures("small")
def test_samples_drawn_at_random_are_the_same_in_pieces_and_from_a_window(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("time\n" + "".join(f"{i}\n" for i in range(50)))
    trace = str(tmp_path / "a.csv")
    whole = KIND.build(ReplayParams(trace=trace), Stop(), 7, 3)
    part = KIND.build(ReplayParams.model_validate({"trace": trace, "window": {"start": "13s"}}), Stop(), 7, 3)
    assert len(whole.due_ns) == 50
    assert part.payload_ix.tolist() == whole.payload_ix[13:].tolist()
    assert RUN.itemsize == 48
