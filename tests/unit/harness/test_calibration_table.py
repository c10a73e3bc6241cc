"""The calibration's table: what is beyond it, and which tables are not believed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.host.calibration_table import (
    SCHEMA,
    Demand,
    Host,
    Probe,
    Spread,
    Table,
    beyond,
    engine_of,
    find,
    save,
    table_path,
    this_host,
    usable_cores,
)
from plimsoll.harness.transport.client import Target

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HERE = Host(hostname="bench-01", cpu="a fast one", cores=4, kernel="Linux 6.1", plimsoll="0.1.0", engine="native")


def probe(asked: float, kept: bool = True, **more: Any) -> Probe:
    return Probe(asked=asked, kept=kept, requests_per_s=asked, token_events_per_s=128 * asked, **more)


def table(host: Host = HERE, at: datetime = NOW, **more: Any) -> Table:
    parts: dict[str, Any] = {
        "measured_at": at, "took_s": 30.0, "host": host, "server": "oracle", "pinned": True, "open_files": 20_000,
        "ports": 28_232, "timer_late_ns": Spread(p50=30_000, p99=60_000), "closed_loop": probe(64),
        "open_loop": [probe(1000), probe(4000, kept=False), probe(2000)], "tokens": [probe(100)],
        "streams": [probe(500), probe(1500, kept=False)], "added": probe(50),
    }  # fmt: skip
    return Table(**(parts | more))


def test_the_figures_are_the_largest_loads_that_were_kept() -> None:
    made = table()
    assert (made.requests_per_s, made.token_events_per_s, made.concurrency) == (2000, 12_800, 500)


def test_a_load_within_the_table_gets_no_warning() -> None:
    assert beyond(table(), Demand(2, rate_per_s=4000, token_events_per_s=25_600)) == []
    assert beyond(table(), Demand(1, streams=500)) == []
    assert beyond(table(), Demand(1)) == []


def test_a_rate_beyond_the_table_names_number_limit_date_and_the_workers_it_takes() -> None:
    (said,) = beyond(table(), Demand(1, rate_per_s=5001))
    for part in ("5,001 requests/s", "one worker", "2,000 a worker", "2026-11-21", "--workers 3"):
        assert part in said


def test_more_workers_are_not_advised_where_there_are_no_cores_for_them() -> None:
    (said,) = beyond(table(), Demand(2, streams=2500))
    for part in ("2,500 streams at once", "2 workers", "takes 5 workers", "4 cores", "stay below 2,000"):
        assert part in said
    assert "--workers" not in said


def test_token_events_are_compared_too() -> None:
    (said,) = beyond(table(), Demand(1, rate_per_s=200, token_events_per_s=25_000))
    assert "25,000 token events/s" in said
    assert "12,800 a worker" in said
    assert "--workers 2" in said


def test_a_limit_that_was_the_servers_is_said_to_be_one() -> None:
    made = table(streams=[probe(500), probe(1500, kept=False, server_limited=True)])
    (said,) = beyond(made, Demand(1, streams=600))
    assert "all that its test server gave" in said


def test_a_machine_that_kept_nothing_is_told_to_calibrate_again() -> None:
    (said,) = beyond(table(open_loop=[probe(10, kept=False)], tokens=[]), Demand(1, rate_per_s=1, token_events_per_s=9))
    assert "too busy" in said
    assert "`plimsoll calibrate` again" in said


def test_a_table_that_was_saved_is_found_again_and_replaces_the_older_one_of_the_same_host_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calibration.json"
    other = HERE.model_copy(update={"hostname": "bench-02"})
    save(table(at=NOW - timedelta(days=9)), path)
    save(table(host=other), path)
    save(table(at=NOW - timedelta(days=1)), path)
    found = find(HERE, NOW, path)
    assert found.table is not None
    assert found.table == table(at=NOW - timedelta(days=1))
    assert find(other, NOW, path).table == table(host=other)
    assert len(json.loads(path.read_text())["tables"]) == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hostname": "else"}, "another machine (bench-01)"),
        ({"kernel": "Linux 7.0"}, "kernel was Linux 6.1, is Linux 7.0"),
        ({"cores": 2, "plimsoll": "0.2.0"}, "cores was 4, is 2, plimsoll was 0.1.0, is 0.2.0"),
        ({"engine": "python"}, "calibrated with the native engine, and this run uses the python one"),
    ],
)
def test_a_table_of_another_machine_is_refused_with_what_differs(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    path = tmp_path / "c.json"
    save(table(), path)
    found = find(HERE.model_copy(update=changed), NOW, path)
    assert found.table is None
    assert said in found.note


def test_a_table_is_good_for_thirty_days(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    save(table(), path)
    assert find(HERE, NOW + timedelta(days=30), path).table is not None
    late = find(HERE, NOW + timedelta(days=30, seconds=1), path)
    assert late.table is None
    assert "2026-11-21 is older than 30 days: run `plimsoll calibrate`" in late.note


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"schema": "plimsoll.calibration/9", "tables": []}',
        json.dumps({"schema": SCHEMA, "tables": [{}]}),
    ],
)
def test_a_damaged_table_is_no_table_and_calibrating_again_replaces_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    found = find(HERE, NOW, path)
    assert found.table is None
    assert "damaged or from another version" in found.note
    assert "`plimsoll calibrate`" in found.note
    save(table(), path)
    assert find(HERE, NOW, path).table == table()


def test_without_a_table_the_note_is_the_next_step(tmp_path: Path) -> None:
    assert find(HERE, NOW, tmp_path / "no.json").note == "not calibrated on this machine: run `plimsoll calibrate`"
    assert "can't be used" in find(HERE, NOW, tmp_path).note


def test_a_table_that_cannot_be_written_is_an_error_with_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessFault, match=r"can't be written to .*Name another file with --out"):
        save(table(), tmp_path / "file" / "c.json")


def test_the_table_lies_in_the_cache_unless_the_environment_names_a_file() -> None:
    assert table_path({"XDG_CACHE_HOME": "/c"}) == Path("/c/plimsoll/calibration.json")
    assert table_path({}) == Path.home() / ".cache/plimsoll/calibration.json"
    assert table_path({"XDG_CACHE_HOME": "/c", "PLIMSOLL_CALIBRATION": "/x.json"}) == Path("/x.json")


def test_tls_and_the_null_protocol_are_sent_by_python() -> None:
    assert engine_of(Target("https://h", "openai-chat")) == "python"
    assert engine_of(Target("http://h", "null")) == "python"
    assert this_host("python").engine == "python"


def test_a_containers_quota_counts_as_its_cores(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("150000 100000\n")
    assert usable_cores(quota) == min(2, usable_cores(tmp_path / "none"))
    quota.write_text("50000 100000\n")
    assert usable_cores(quota) == 1
    quota.write_text("max 100000\n")
    assert usable_cores(quota) == usable_cores(tmp_path / "none")
