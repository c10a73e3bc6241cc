"""``plimsoll capacity`` over folders of searches, sweeps and runs: what counts as capacity, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.run.judged import judge, write_report
from plimsoll.harness.run.promises import kept
from plimsoll.harness.run.rundir import open_sealed
from plimsoll.harness.series import capacity_plan as plan
from plimsoll.harness.series.capacity_plan import _brings
from plimsoll.slo.records.records import Status, from_columns
from tests.command import invoke
from tests.unit.harness.capacity_folders import md1, rows, sealed, search, sweep
from tests.unit.harness.sealed_runs import Full


def capacity(folder: Path, *flags: str, code: int = 0) -> dict[str, Any]:
    done = invoke("capacity", str(folder), "--target-rate", "1000", "--json", *flags)
    assert done.exit_code == code, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def refused(folder: Path, *flags: str) -> list[str]:
    with pytest.raises(HarnessFault) as caught:
        invoke("capacity", str(folder), "--target-rate", "1000", *flags, catch_exceptions=False)
    assert caught.value.code == 2
    return caught.value.errors


def test_the_lower_end_of_a_search_is_the_capacity_and_the_upper_one_says_what_it_costs(tmp_path: Path) -> None:
    found = capacity(search(tmp_path / "s"), "--price", "3.60")
    assert found["capacity"] == {"low": 110, "best": 117.5, "high": 125}
    assert found["sized"]["replicas"] == 13  # 1000 / (110 * 0.7) = 12.99
    assert found["sized_high"]["replicas"] == 12
    assert found["sized"]["per_hour"] == pytest.approx(46.8)
    per = {cost["per"]: cost for cost in found["costs"]}
    assert per["requests"]["target"] == pytest.approx(13.0)
    assert per["output_tokens"]["target"] == pytest.approx(13.0 / 20)  # 20 tokens in each answer, by the records
    assert per["input_tokens"]["target"] == pytest.approx(13.0 / 50)
    assert per["good_requests"]["target"] == pytest.approx(13.0 / 0.99)
    assert (found["gpus"], found["gpus_in_all"], found["price_per_gpu_hour"]) == (2, 26, 1.8)
    assert found["safe"]["per_s"] == pytest.approx(77)
    assert found["safe"]["slo_of_saturation"] == pytest.approx(110 / 124, rel=0.01)
    page = (tmp_path / "s" / "capacity.html").read_text()
    assert "batch violate all of these" in page
    assert not (tmp_path / "s" / "capacity.json").exists()


def test_a_page_that_can_t_be_written_costs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = search(tmp_path / "s")
    Full(str(folder), monkeypatch).full = True
    done = invoke("capacity", str(folder), "--target-rate", "1000", "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["sized"]["replicas"] == 13
    assert json.loads(done.stdout)["exit_code"] == 2, "the document says what the process does"
    assert "capacity.html could not be written (No space left on device); make room and ask again" in done.stderr


def test_the_overlay_and_littles_law_are_of_the_probes_and_gate_nothing(tmp_path: Path) -> None:
    found = capacity(search(tmp_path / "s"), "--servers", "4")
    assert {law["view"] for law in found["laws"]} == {"response", "service"}
    assert not [law for law in found["laws"] if law["wrong"]]
    assert [queue["model"] for queue in found["queues"]] == ["M/M/1", "M/D/1", "M/M/c"]
    assert [load["pin"] for load in found["loads"]] == [True, False, False, False, False]
    assert [bool(load["against"]) for load in found["loads"]] == [
        True,
        True,
        True,
        True,
        False,
    ]  # the last did not keep up


def test_a_log_that_contradicts_itself_is_a_loud_warning_and_changes_no_number(tmp_path: Path) -> None:
    folder = search(tmp_path / "s")
    before = capacity(folder)
    broken = folder / "probes/002-bracket/requests.parquet"
    table = pq.read_table(broken)
    place = table.column_names.index("done_ns")
    early = [at - 10**12 for at in table.column("done_ns").to_pylist()]
    pq.write_table(table.set_column(place, table.schema.field("done_ns"), [early]), broken)
    done = invoke("capacity", str(folder), "--target-rate", "1000")
    assert done.exit_code == 0
    assert "LITTLE'S LAW IS VIOLATED" in done.stderr
    assert "do not trust these logs" in done.stdout
    assert capacity(folder)["sized"] == before["sized"]


def test_a_run_that_is_gone_is_named_and_costs_only_itself(tmp_path: Path) -> None:
    folder = search(tmp_path / "s")
    (folder / "probes/001-bracket/requests.parquet").unlink()
    found = capacity(folder)
    assert any("001-bracket" in text for text in found["warnings"])
    assert found["sized"]["replicas"] == 13
    assert len(found["loads"]) == 4


def test_a_capacity_that_no_fresh_run_confirmed_is_told_to_be_one(tmp_path: Path) -> None:
    confirmed = search(tmp_path / "s")
    assert not [text for text in capacity(confirmed)["warnings"] if "picked for passing" in text]
    document = json.loads((confirmed / "search.json").read_text())
    unconfirmed: tuple[dict[str, Any], ...] = (
        {"answer": None, "outcome": "INTERRUPTED", "reasons": []},
        {"answer": {**document["answer"], "confirmed": False}},
    )
    for change in unconfirmed:
        (confirmed / "search.json").write_text(json.dumps(document | change))
        assert [text for text in capacity(confirmed)["warnings"] if "picked for passing" in text]


def test_tokens_of_failed_requests_are_paid_for_and_not_delivered() -> None:
    due, done = md1(50, 100, seed=1)
    columns: dict[str, Any] = {**rows(due, done).columns, "status": np.where(np.arange(100) % 2, int(Status.HTTP), 0)}
    assert _brings(from_columns(100, **columns), None).output_tokens == pytest.approx(10)


def test_numbers_beyond_all_sense_are_a_complaint_and_no_traceback(tmp_path: Path) -> None:
    said = refused(search(tmp_path / "s"), "--target-rate", "1e300", "--price", "1e300", "--growth", "1e9")
    assert [text.split()[0] for text in said] == ["--growth", "--target-rate", "--price"]


def test_growth_is_exact(tmp_path: Path) -> None:
    assert plan.Asked(1000, "7/10", "17/20", growth=0.1).peak_per_s == 1100
    assert capacity(search(tmp_path / "s"), "--growth", "10%")["target_per_s"] == 1100


def test_a_search_that_found_nothing_is_exit_3_with_its_reason(tmp_path: Path) -> None:
    found = capacity(search(tmp_path / "s", low=None, high=30), code=3)
    assert found["outcome"] == "NONE"
    assert "the lowest rate fails" in found["reasons"]
    assert found["sized"] is None
    assert found["laws"]  # the logs can be checked all the same
    done = invoke("capacity", str(tmp_path / "s"), "--target-rate", "10")
    assert "No validated capacity" in done.stdout


def test_no_upper_end_has_no_range_and_says_so(tmp_path: Path) -> None:
    found = capacity(search(tmp_path / "s", rates=(30, 110), high=None), "--price", "1")
    assert found["sized_high"] is None
    assert found["costs"][0]["full_range"] is None
    assert any("no load was shown to fail" in text for text in found["warnings"])


def test_a_sweep_gives_the_line_of_the_series_that_is_named(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "w", ("a", "b"))
    assert "'a', 'b'" in refused(folder)[0]
    found = capacity(folder, "--series", "b")
    assert found["capacity"] == {"low": 60, "best": 60, "high": 110}
    assert found["kind"] == "sweep"
    alone = capacity(sweep(tmp_path / "one"))
    assert alone["capacity"]["low"] == 60


def test_a_sweep_over_clients_counts_the_rate_they_came_to(tmp_path: Path) -> None:
    found = capacity(sweep(tmp_path / "w", x="concurrency"))
    assert found["capacity"]["low"] == pytest.approx(59.4)
    assert any("closed loop" in text for text in found["warnings"])
    assert not found["loads"]  # a closed loop offers no rate to lay a curve over
    assert "no load" in refused(sweep(tmp_path / "x", x="output_tokens"))[0]


@pytest.mark.parametrize("kind", ["sweep", "search"])
def test_where_more_at_once_is_answered_more_slowly_the_capacity_is_that_of_less(tmp_path: Path, kind: str) -> None:
    """1, 2 and 4 at a time hold; 24.5, 20.2 and 16.6 a second are answered.

    By the last nine replicas were bought where six do.
    """
    made = sweep(tmp_path / kind, x="concurrency") if kind == "sweep" else search(tmp_path / kind)
    file = made / f"{kind}.json"
    document = json.loads(file.read_text())
    points = document["series"][0]["points"] if kind == "sweep" else document["probes"]
    load, rate = ("x", "achieved_per_s") if kind == "sweep" else ("load", "requests_per_s")
    answered = [(1, 24.5), (2, 20.2), (4, 16.6)]
    points[:] = [points[0] | {load: x, rate: per_s, "outcome": "PASS", "good_fraction": x / 4} for x, per_s in answered]
    if kind == "sweep":
        document["series"][0]["line"] |= {"low": 4, "high": None}
    else:
        document |= {"variable": "concurrency", "outcome": "OPEN"}
        document["concurrency"] = {"best": 4, "interval": [4, None]}
        document.pop("rate_per_s")
    file.write_text(json.dumps(document))
    found = capacity(made, "--price", "1")
    assert found["capacity"]["low"] == 24.5
    assert any("4 at a time hold, and 1 are answered faster" in text for text in found["warnings"])
    per = {cost["per"]: cost["target"] for cost in found["costs"]}
    assert per["good_requests"] == pytest.approx(4 * per["requests"])
    points[0][rate] = points[1][rate] = 17.0  # no more than two runs of one load differ by
    file.write_text(json.dumps(document))
    assert capacity(made)["capacity"]["low"] == 16.6


def test_a_single_run_is_a_lower_bound_if_it_passed(tmp_path: Path) -> None:
    due, done = md1(30, 600, 3)
    sealed(tmp_path / "r", due, done, 30)
    run = open_sealed(tmp_path / "r")
    write_report(judge(run, kept(run)), run.directory)
    assert "no objective" in capacity(tmp_path / "r", code=3)["reasons"][0]
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    report["verdict"] |= {"outcome": "PASS", "objectives": [{"objective": "p99(latency) <= 80ms"}]}
    (tmp_path / "r" / "report.json").write_text(json.dumps(report))
    found = capacity(tmp_path / "r")
    assert found["capacity"]["low"] <= 31
    assert found["capacity"]["high"] is None
    assert any("lower bound" in text for text in found["warnings"])


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    said = refused(
        tmp_path, "--target-rate", "0", "--price", "-1", "--headroom", "120%", "--one-down", "x", "--growth", "-3%",
        "--gpus", "0",
        "--servers", "0", "--format", "pdf=x",
    )  # fmt: skip
    assert len(said) == 8
    assert "neither a search" in refused(tmp_path)[0]
    (tmp_path / "search.json").write_text('{"schema": "plimsoll.search/1"}')
    assert "damaged or from another version" in refused(tmp_path)[0]


def test_shares_may_be_percent_or_decimal() -> None:
    errors: list[str] = []
    assert [plan.share("--headroom", text, errors) for text in ("70%", "0.7", " 70 % ")] == ["7/10"] * 3
    assert not errors
