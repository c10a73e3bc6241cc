"""What a scenario asks of the generator and of this host, known before its first query. What a host can hold open:
foreseen from the plan, explained when it happens. The sysctls are made up.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_calibration_table import probe, table

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.generator.native import available
from plimsoll.harness.generator.segments import dump_segment
from plimsoll.harness.generator.worker import connections_ahead
from plimsoll.harness.host.calibration_table import engine_of, save, this_host
from plimsoll.harness.host.limits import Connections, HostLimits, check, exhaustion, read
from plimsoll.harness.run import host_check
from plimsoll.harness.run.coordinator import Job
from plimsoll.harness.run.job import prepare
from plimsoll.harness.transport.endpoint import explain
from plimsoll.scenarios.spec import with_flags
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import from_columns

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


ENGINES = {
    "kind: sessions\nparams: {think: none, turns: 2}": "python",
    "kind: sessions\nparams: {think: none, turns: 2, concurrency: 2}": "python",
    "kind: sessions\nparams: {think: 1ms, turns: 2}": "native",
    "kind: server\nclient: {retry: {max: 2}}": "python",
    "kind: server\nclient: {connections: fresh}": "python",
    "kind: server": "native",
}


@pytest.mark.skipif(not available(), reason="the extension is not compiled here")
@pytest.mark.parametrize(("text", "engine"), ENGINES.items())
def test_the_calibration_is_that_of_the_engine_that_will_send(tmp_path: Path, text: str, engine: str) -> None:
    save(table(host=this_host(engine), at=datetime.now(UTC)), tmp_path / "c.json")
    Path("s.yaml").write_text(f"name: s\n{text}\ntarget: {{protocol: openai-chat}}\nstop: {{min_queries: 4}}\n")
    asked = prepare("s.yaml", {"url": "http://127.0.0.1:1"}, [], [], Path("out")).job
    calibration = host_check.check_host(asked, WIDE).manifest["calibration"]
    assert calibration["note"] == ""
    assert calibration["table"]["host"]["engine"] == engine


# -- the disk ----------------------------------------------------------------------------------------------------------


def foreseen(free: int, **flags: Any) -> str | None:
    shutil.rmtree("out", ignore_errors=True)
    return host_check.check_disk(job(kind="server", rate=1000.0, arrival="constant", **flags), free)


def test_what_a_run_takes_of_its_disk_is_said_where_it_is_much() -> None:
    assert foreseen(1 << 40, queries=100_000, output_tokens=50) is None
    assert foreseen(100_000_000, queries=100_000, output_tokens=50) is not None  # more than half of what is free
    said = foreseen(1 << 40, duration="1h", output_tokens=50)
    assert said is not None
    # 3.6 million rows of 120 + 40 bytes, 180 million chunk times of 8 + 4; then 40 and 4
    assert "3,600,001 requests with 180,000,050 chunk times take about 2.55 GiB of disk in out" in said
    assert "824 MiB from then on (keep all); 1024 GiB are free" in said


@pytest.mark.parametrize(("kept", "left"), [("none", "137 MiB"), ("sample:50%", "481 MiB"), ("tail", "151 MiB")])
def test_what_stays_of_it_depends_on_what_is_kept(kept: str, left: str) -> None:
    said = foreseen(1 << 40, duration="1h", output_tokens=50, keep=kept)
    assert said is not None
    assert f"{left} from then on (keep {kept})" in said


def test_a_run_that_has_no_room_is_refused_before_anything_is_sent() -> None:
    refused = r"^--out: .* 2\.55 GiB .* 1\.86 GiB are free\. Nothing was sent\. Make room"
    with pytest.raises(HarnessFault, match=refused) as fault:
        foreseen(2_000_000_000, duration="1h", output_tokens=50, keep="none")
    assert fault.value.code == 2
    assert foreseen(1000, queries=60_000, output_tokens=1) is None  # so little goes to another folder, if it must


def test_of_a_closed_loop_that_ends_by_time_nobody_knows() -> None:
    ends = {"kind": "concurrency", "concurrency": 4, "output_tokens": 50}
    assert host_check.check_disk(job(duration="1h", **ends), 1000) is None
    Path("out").rename("other")
    with pytest.raises(HarnessFault, match="100,000 requests with 5,000,000 chunk times"):
        host_check.check_disk(job(queries=100_000, **ends), 1000)


def test_rows_and_chunk_times_take_what_is_foreseen() -> None:
    draw = np.random.default_rng(1)
    n, k = 5_000, 40
    due = np.cumsum(draw.exponential(1e6, n)).astype(np.int64)
    late = [draw.integers(0, most, n) for most in (60_000, 40_000, 50_000_000, 90_000, 200_000)]
    ready, sent, first, _, _ = (due + sum(late[: at + 1]) for at in range(5))
    times = (first + late[3])[:, None] + np.cumsum(draw.lognormal(0, 0.4, (n, k)) * 2e7, axis=1).astype(np.int64)
    made = from_columns(
        n, query_id=np.arange(n), payload_ix=draw.integers(0, 1000, n), due_ns=due, ready_ns=ready, sent_ns=sent,
        headers_ns=first, first_byte_ns=first, first_token_ns=times[:, 0], first_answer_ns=times[:, 0],
        last_token_ns=times[:, -1], done_ns=times[:, -1] + late[4], n_in=draw.integers(150, 250, n), n_out=k, code=200,
        bytes_in=draw.integers(5000, 9000, n), bytes_out=draw.integers(500, 900, n), chunks=times.tolist(),
    )  # fmt: skip
    segment, requests, chunks = io.BytesIO(), io.BytesIO(), io.BytesIO()
    dump_segment(segment, made)
    tables.write([made], "0123456789", requests, chunks)
    (in_segment, of_chunk), (in_file, left) = host_check._IN_SEGMENTS, host_check._SEALED
    assert segment.tell() == pytest.approx(n * (in_segment + k * of_chunk), rel=0.1)
    assert requests.tell() == pytest.approx(n * in_file, rel=0.25)
    assert chunks.tell() == pytest.approx(n * k * left, rel=0.15)


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
    found = host_check.check_host(job(kind="server", rate=5000.0, **{"source.count": 50_000}), WIDE)
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
        need = host_check.needed(scenario.blocks(4).extent(), target, workers)
        return need.sure, need.workers

    assert sure(kind="concurrency", concurrency=9, workers=2) == (5, 2)
    assert sure(kind="multi_stream") == (8, 1)
    assert sure(kind="offline", queries=3) == (3, 1)
    assert sure(kind="server", rate=5.0) == (None, 1)


def test_every_slot_of_a_closed_loop_has_a_connection_before_its_first_request() -> None:
    def ahead(workers: int = 1, **flags: Any) -> int:
        return connections_ahead(with_flags(None, **flags).blocks(4).shard(0, workers))

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
        return host_check.peak_per_s(with_flags(None, kind="server", **parts).blocks(1).extent())

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
        return host_check.demand(scenario, scenario.blocks(4).extent(), 1).token_events_per_s

    assert tokens(1) is not None
    assert tokens(2, options={"stream": False}) is None
    assert tokens(3, protocol="http") is None
    assert tokens(4, protocol="http", options={"framing": "sse"}) is not None


# -- limits ---------------------------------------------------------------------------------------------------------

HOST = HostLimits(open_files=20_064, all_files=1_000_000, ports=(32768, 60999), tw_reuse=2)
USUAL = {"net.ipv4.ip_local_port_range": "32768\t60999\n", "net.ipv4.tcp_tw_reuse": "2\n", "fs.file-max": "1000000\n"}


def host(sysctls: Mapping[str, str], hard: int = 20_064) -> HostLimits:
    def sysctl(name: str) -> str:
        if name not in sysctls:
            raise FileNotFoundError(name)
        return sysctls[name]

    return read(sysctl, hard)


def test_the_limits_are_read_and_what_is_missing_or_garbled_is_the_kernels_default() -> None:
    assert host(USUAL) == HOST
    assert host(USUAL).n_ports == 28_232
    bare = host({"net.ipv4.ip_local_port_range": "all of them"})
    assert (bare.n_ports, bare.tw_reuse) == (28_232, 0)
    assert bare.all_files > 1 << 60
    assert read().n_ports > 0


def test_a_load_that_fits_is_neither_refused_nor_warned_about() -> None:
    assert check(Connections(1, sure=20_000), HOST) == ([], [])
    assert check(Connections(1, rate_per_s=100, timeout_s=60), HOST) == ([], [])


def test_more_slots_than_files_in_one_worker_is_refused_and_says_how_many_workers_would_do() -> None:
    (error,), warnings = check(Connections(1, sure=20_001), HOST)
    for part in ("20,001 connections", "one worker", "20,064 files", "ulimit -Hn", "--workers 2", "max_connections"):
        assert part in error
    assert warnings == []
    assert check(Connections(2, sure=10_001), HOST) == ([], [])


def test_the_files_of_the_whole_host_are_not_helped_by_more_workers() -> None:
    tight = HostLimits(open_files=1 << 20, all_files=5_000, ports=(1024, 65535), tw_reuse=2)
    (error,), _ = check(Connections(10, sure=501), tight)
    assert "fs.file-max" in error
    assert "more workers don't help" in error
    assert check(Connections(10, sure=500), tight) == ([], [])


def test_more_connections_than_local_ports_is_refused_with_the_numbers() -> None:
    (error,), _ = check(Connections(4, sure=7_059), HOST)
    for part in ("28,236 connections", "28,232 local ports", "32768 60999", "more workers don't help", "1024 65535"):
        assert part in error
    assert check(Connections(4, sure=7_058), HOST) == ([], [])


def test_an_open_loop_is_warned_only_when_plausible_answers_would_use_the_ports_up() -> None:
    many = HostLimits(open_files=1 << 20, all_files=1 << 20, ports=(32768, 60999), tw_reuse=2)
    errors, (warning,) = check(Connections(1, rate_per_s=5_000, timeout_s=60), many)
    assert errors == []
    for part in ("5,000 requests/s", "28,232 local ports", "5.6 s", "INVALID", "max_connections"):
        assert part in warning
    assert check(Connections(1, rate_per_s=5_000, timeout_s=5), many) == ([], [])  # given up before
    assert check(Connections(1, rate_per_s=5_000, ceiling=28_232), many) == ([], [])  # never that many
    assert check(Connections(1, rate_per_s=2_000), many) == ([], [])  # answers would have to take 14 s


def test_an_open_loop_that_may_run_out_of_files_is_told_about_workers() -> None:
    _, (warning,) = check(Connections(1, rate_per_s=4_000), HOST)
    assert "20,000 files that one worker may open" in warning
    assert "more than one worker" in warning


def test_ports_that_ran_out_one_connection_a_request_are_explained_with_the_arithmetic() -> None:
    text = explain(OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)))
    (said,) = exhaustion({text: 40}, opened=40_040, seconds=40.0, host=HOST)
    for part in (
        "40 connections failed on this host, not at the endpoint",
        "40,000 connections had been opened in 40 s (1,000/s)",
        "28,232 ports",
        "471 new connections/s",
        "TIME_WAIT",
        "keep connections alive",
        "tcp_tw_reuse is 2",
    ):
        assert part in said


def test_ports_that_are_all_in_use_at_once_are_not_blamed_on_closed_connections() -> None:
    text = explain(OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL)))
    (said,) = exhaustion({text: 3}, opened=19, seconds=1.0, host=host({"net.ipv4.ip_local_port_range": "40000 40015"}))
    assert "16 connections had been opened, and 16 ports" in said
    assert "new connections/s" not in said


def test_other_shortages_keep_their_own_next_step() -> None:
    text = explain(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
    (said,) = exhaustion({text: 7}, opened=20_007, seconds=1.0, host=HOST)
    assert said == f"7 connections failed on this host, not at the endpoint: {text}"
    assert "ulimit -n" in said


# -- the data ----------------------------------------------------------------------------------------------------------


def test_a_run_that_sends_each_prompt_again_and_again_says_that_caches_are_warm(tmp_path: Path) -> None:
    def said(**flags: Any) -> list[str]:
        shutil.rmtree("out", ignore_errors=True)
        flags = {"kind": "server", "arrival": "constant", "rate": 100.0, "protocol": "openai-chat", **flags}
        return [text for text in host_check.check_host(job(**flags), WIDE).warnings if "source.count" in text]

    [text] = said(queries=5120)
    assert text.startswith("source.count: 512 prompts for 5,120 requests: each is sent 10 times")
    assert said(queries=2000) == []
    assert said(queries=5120, **{"source.count": 5000}) == []
    assert len(said(kind="concurrency", rate=None, arrival=None, concurrency=2, queries=5120)) == 1
    assert said(kind="concurrency", rate=None, arrival=None, concurrency=2, duration="1h", queries=1) == []  # who knows
