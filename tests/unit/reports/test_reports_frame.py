"""Notebooks: frames and the SQL of docs/guide/notebooks.md give the numbers that the report prints."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_reports import records, report

from plimsoll.reports.frame import FrameError, chunk_frame, frame
from plimsoll.slo.records.records import Phase, Records
from plimsoll.slo.records.tables import to_tables

PAGE = (Path(__file__).parents[3] / "docs" / "guide" / "notebooks.md").read_text(encoding="utf-8")
SQL = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def made() -> Records:
    return records(6000, rate=40.0, fail_every=150, warmup=200)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = made()
    tables = to_tables(rows, [f"r-{i}" for i in range(len(rows))])
    for name, table in zip(("requests", "chunks"), tables, strict=True):
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    return tmp_path


def ask(text: str, run: Path) -> list[tuple[Any, ...]]:
    duckdb = pytest.importorskip("duckdb")
    found: list[tuple[Any, ...]] = duckdb.sql(text.replace("RUN/", f"{run}/")).fetchall()
    return found


def nearest_rank(values: np.ndarray[Any, Any], percent: int) -> float:
    return float(np.sort(values)[math.ceil(percent * len(values) / 100) - 1])


def test_the_sql_by_minute_is_the_p99_of_the_report(run: Path) -> None:
    rows = made().measured()
    ttft = np.where(rows.ok, rows["first_token_ns"] - rows["due_ns"], np.inf)
    minute = rows["due_ns"] // 60_000_000_000
    found = ask(SQL[0], run)
    assert [row[0] for row in found] == np.unique(minute).tolist()
    for number, n, failed, p99 in found:
        here = minute == number
        assert (n, failed) == (here.sum(), (here & ~rows.ok).sum())
        assert p99 == pytest.approx(nearest_rank(ttft[here], 99) / 1e6)
    whole = re.sub(r"due_ns // 60_000_000_000 AS minute", "0 AS minute", SQL[0])
    assert ask(whole, run)[0][3] * 1e6 == pytest.approx(report(made()).metrics["ttft"].p99)


def test_the_sql_of_gaps_is_the_itl_of_successful_requests(run: Path) -> None:
    of_ok = report(made()).metrics["itl"].of_ok
    assert of_ok is not None
    ((gaps, p99),) = ask(SQL[1], run)
    assert gaps == of_ok.n
    assert p99 * 1e6 == pytest.approx(of_ok.p99)


def test_the_sql_that_joins_a_log_can_be_run(run: Path) -> None:
    (run / "server.jsonl").write_text('{"request_id": "r-300", "batch": 7}\n{"request_id": "r-4000", "batch": 9}\n')
    found = ask(SQL[2].replace("'server.jsonl'", f"'{run}/server.jsonl'"), run)
    assert {row[0] for row in found} == {"r-300", "r-4000"}


def test_the_python_of_the_page_gives_the_p99_of_the_report(run: Path) -> None:
    pytest.importorskip("pandas")
    names: dict[str, Any] = {}
    for block in PYTHON:
        exec(block.replace("runs/chat-20260311-140512", str(run)), names)
    assert names["p99"] == report(made()).metrics["ttft"].p99
    assert len(names["by_minute"]) == 3
    of_ok = report(made()).metrics["itl"].of_ok
    assert of_ok is not None
    assert len(names["gaps"]) == of_ok.n
    assert set(names["slow"]["status"]) <= {"REFUSED", "TIMEOUT"}  # failures are the slowest of all


def test_what_did_not_happen_is_missing_and_never_minus_one() -> None:
    pytest.importorskip("pandas")
    rows = made()
    table = frame(rows)
    assert len(table) == len(rows)
    assert table["first_token_ns"].isna().sum() == (rows["first_token_ns"] == -1).sum() > 0
    assert table["first_token_ns"].dropna().tolist() == rows["first_token_ns"][rows["first_token_ns"] != -1].tolist()
    assert table["status"].value_counts()["OK"] == rows.ok.sum()
    assert table["error"].dropna().tolist() == [text for text in rows.texts("error") if text is not None]


def test_a_failure_is_infinite_and_the_warm_up_has_no_metric() -> None:
    pytest.importorskip("pandas")
    rows = made()
    ttft = frame(rows)["ttft"].to_numpy()
    warm = rows["phase"] == Phase.WARMUP
    assert np.isnan(ttft[warm]).all()
    assert np.isinf(ttft[~warm & ~rows.ok]).all()
    assert np.isfinite(ttft[~warm & rows.ok]).all()


def test_a_chunk_row_knows_its_request_and_its_gap() -> None:
    pytest.importorskip("pandas")
    rows = made()
    table = chunk_frame(rows)
    assert len(table) == len(rows.chunk_ns)
    assert table["gap_ns"].isna().sum() == (np.diff(rows.chunk_offsets) > 0).sum()
    fifth = table[table["row"] == 5]
    begin, end = rows.chunk_offsets[5:7]
    assert fifth["chunk_ns"].tolist() == rows.chunk_ns[begin:end].tolist()
    assert fifth["gap_ns"].dropna().tolist() == np.diff(rows.chunk_ns[begin:end]).tolist()


@pytest.mark.parametrize(("name", "why"), [("itl", "chunk_frame"), ("speed", "no indicator")])
def test_a_metric_that_can_be_no_column_is_refused_with_what_can(name: str, why: str) -> None:
    pytest.importorskip("pandas")
    with pytest.raises(FrameError, match=rf"(?s){why}.*ttft"):
        frame(made(), metrics=[name])


def test_without_pandas_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FrameError, match=r"plimsoll-slo\[notebook\]"):
        frame(made())
