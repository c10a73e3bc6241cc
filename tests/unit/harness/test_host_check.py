"""What a scenario asks of the generator and of this host, known before its first query."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from test_calibration_table import probe, table

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.worker import connections_ahead
from plimsoll.harness.host.calibration_table import engine_of, save, this_host
from plimsoll.harness.host.limits import HostLimits
from plimsoll.harness.run import host_check
from plimsoll.harness.run.coordinator import Job
from plimsoll.harness.run.job import prepare
from plimsoll.scenarios.spec import with_flags

WIDE = HostLimits(open_files=1 << 20, all_files=1 << 30, ports=(1024, 65535), tw_reuse=2)


@pytest.fixture(autouse=True)
def _no_table_and_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLIMSOLL_CALIBRATION", str(tmp_path / "c.json"))


def job(**flags: Any) -> Job:
    return prepare(None, {"url": "http://127.0.0.1:1", **flags}, [], [], Path("out")).job  # type: ignore[typeddict-item]


def calibrated(tmp_path: Path, asked: Job) -> None:
    host = this_host(engine_of(asked.target))
    save(table(host=host, at=datetime.now(UTC), open_loop=[probe(10)], streams=[probe(4)]), tmp_path / "c.json")


def test_a_run_within_the_calibration_says_nothing_and_carries_the_table_in_its_manifest(tmp_path: Path) -> None:
    asked = job(kind="server", rate=5.0, arrival="constant")
    calibrated(tmp_path, asked)
    found = host_check.check_host(asked, WIDE)
    assert found.warnings == ()
    assert found.manifest["calibration"]["table"]["server"] == "oracle"
    assert found.manifest["calibration"]["beyond"] == []
    json.dumps(found.manifest)


def test_a_run_beyond_the_calibration_is_warned_about_and_its_manifest_says_so(tmp_path: Path) -> None:
    asked = job(kind="server", rate=50.0, arrival="constant", output_tokens=1, workers=1)
    calibrated(tmp_path, asked)
    found = host_check.check_host(asked, WIDE)
    (said,) = found.warnings
    assert said.startswith("50 requests/s from one worker is beyond")
    assert found.manifest["foreseen"] == found.manifest["calibration"]["beyond"] == [said]


@pytest.mark.parametrize(
    ("cores", "rate", "given", "workers"),
    [
        (8, 45.0, None, 5),
        (8, 5.0, None, 1),
        (4, 500.0, None, 3),
        (2, 500.0, None, 1),
        (8, 45.0, 2, None),
        (8, 45.0, 1, None),
    ],
)
def test_as_many_workers_as_the_calibration_asks_for_where_the_user_gave_none(
    cores: int, rate: float, given: int | None, workers: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plimsoll.harness.host.calibration_table.usable_cores", lambda: cores)
    asked = job(kind="server", rate=rate, arrival="constant", output_tokens=1, workers=given)
    calibrated(tmp_path, asked)  # 10 requests/s a worker
    assert host_check.check_host(asked, WIDE).workers == workers


def test_a_scenario_that_says_its_workers_keeps_them_and_one_that_does_not_may_get_more(tmp_path: Path) -> None:
    for said, given in (("workers: 1\n", True), ("", False)):
        (tmp_path / "s.yaml").write_text(f"kind: server\nparams: {{rate: 5}}\n{said}")
        scenario = prepare("s.yaml", {"url": "http://127.0.0.1:1"}, [], [], tmp_path / f"o{given}").job.scenario
        assert ("workers" in scenario.model_fields_set, scenario.workers) == (given, 1)
        assert scenario.to_mapping()["workers"] == 1


def test_without_a_calibration_it_is_one_worker() -> None:
    assert host_check.check_host(job(kind="server", rate=5000.0), WIDE).workers is None


def test_a_machine_without_calibration_is_not_nagged() -> None:
    found = host_check.check_host(job(kind="server", rate=5000.0), WIDE)
    assert found.warnings == ()
    assert "not calibrated" in found.manifest["calibration"]["note"]


def test_streams_are_compared_where_the_protocol_streams(tmp_path: Path) -> None:
    asked = job(kind="concurrency", concurrency=9, workers=1)
    calibrated(tmp_path, asked)
    assert "9 streams at once" in host_check.check_host(asked, WIDE).warnings[0]


def test_a_closed_loop_that_the_host_cannot_hold_is_refused_before_the_run() -> None:
    small = HostLimits(open_files=128, all_files=1 << 20, ports=(1024, 65535), tw_reuse=2)
    with pytest.raises(HarnessFault, match="keeps 65 connections open in one worker") as caught:
        host_check.check_host(job(kind="concurrency", concurrency=65), small)
    assert caught.value.code == 2
    host_check.check_host(prepare(None, {"url": "http://h:1", "kind": "concurrency", "concurrency": 65, "workers": 2},
        [], [], Path("o2")).job, small)  # fmt: skip


def test_connections_are_counted_as_the_clients_open_them() -> None:
    target = job().target

    def sure(**flags: Any) -> tuple[int | None, int]:
        scenario = with_flags(None, **flags)
        workers = flags.get("workers", 1)
        need = host_check.needed(scenario.build(4), target, workers)
        return need.sure, need.workers

    assert sure(kind="concurrency", concurrency=9, workers=2) == (5, 2)
    assert sure(kind="multi_stream") == (8, 1)
    assert sure(kind="offline", queries=3) == (3, 1)
    assert sure(kind="server", rate=5.0) == (None, 1)


def test_every_slot_of_a_closed_loop_has_a_connection_before_its_first_request() -> None:
    def ahead(workers: int = 1, **flags: Any) -> int:
        return connections_ahead(with_flags(None, **flags).build(4).shard(0, workers))

    assert ahead(kind="concurrency", concurrency=2_000) == 2_000, "more than the list of a closed loop has rows"
    assert ahead(kind="concurrency", concurrency=2_000, workers=3) == 667
    assert ahead(kind="concurrency", concurrency=2_000, queries=50) == 50
    assert ahead(kind="multi_stream") == 8, "the samples of a query go out together"
    assert ahead(kind="single_stream") == 1
    assert ahead(kind="server", rate=5.0) == 8
    assert ahead(kind="server", rate=0.1, arrival="constant", queries=20) == 1, "each is used within ten seconds"
    assert ahead(kind="server", rate=1_000.0, duration="20s") == 256


def test_a_peak_counts_as_the_rate_and_chance_does_not() -> None:
    def peak(**parts: Any) -> float:
        return host_check.peak_per_s(with_flags(None, kind="server", **parts).build(1))

    assert peak(rate=100.0, arrival="constant", duration="20s") == pytest.approx(100, rel=0.01)
    assert peak(rate=1000.0, duration="20s") == pytest.approx(1000, rel=0.03)
    assert peak(rate=1.0, queries=1, duration="0s") == 0.0


def test_output_lengths_are_known_on_average_where_the_source_makes_them_up() -> None:
    def tokens(length: Any) -> float | None:
        from plimsoll.scenarios.spec import parse

        return host_check.output_tokens(
            parse({"kind": "server", "source": {"kind": "synthetic_text", "output_tokens": length}}, "s")
        )

    assert tokens(64) == 64
    assert tokens({"dist": "lognormal", "mean": 200, "stdev": 100}) == 200
    assert tokens({"dist": "uniform", "min": 10, "max": 30}) == 20
    assert tokens({"dist": "fixed", "value": 7}) == 7
    assert tokens(None) is None


def test_the_null_protocol_needs_nothing_of_the_host() -> None:
    assert host_check.check_host(job(protocol="null", kind="concurrency", concurrency=90_000)).manifest == {}


def test_tokens_are_expected_only_of_answers_that_stream() -> None:
    def tokens(n: int, **flags: object) -> float | None:
        scenario = prepare(
            None,
            {"url": "http://127.0.0.1:1", "kind": "server", "rate": 10.0, "output_tokens": 8, **flags},  # type: ignore[typeddict-item]
            [],
            [],
            Path(f"streams{n}"),
        ).job.scenario
        return host_check.demand(scenario, scenario.build(4), 1).token_events_per_s

    assert tokens(1) is not None
    assert tokens(2, options={"stream": False}) is None
    assert tokens(3, protocol="http") is None
    assert tokens(4, protocol="http", options={"framing": "sse"}) is not None
