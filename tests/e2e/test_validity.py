"""Every promise of the generator, broken for real: the run is INVALID, exit code 4, and the reason names what broke.

Real processes, real time; each test states its load and none takes more than about ten seconds. What needs a fake clock
is in tests/unit/harness/test_vitals.py, what needs made-up records in tests/unit/slo.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.plimsoll import ROOT, Server, begin, children, only_late, plimsoll_here, plimsoll_valid, server, wait_for

pytestmark = pytest.mark.e2e

FAST = ("--model", "scripted", "--ttft", "10ms", "--itl", "1ms")
CHAT = ("--protocol", "openai-chat", "--output-tokens", "4")
#: 10 % of 2 s: hiccups of a shared machine stay far below, what these tests do is far above.
LENIENT = ("--slo", "p50(latency) <= 2s")


@pytest.fixture(scope="module")
def fast() -> Iterator[Server]:
    with server(*FAST) as running:
        yield running


def records_of(path: Path) -> Records:
    records = tables.load(path)
    assert contradictions(records) == []
    return records


def facts_of(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "generator.json").read_text())["facts"])


def broken(report: dict[str, Any]) -> set[str]:
    return {check["name"] for check in report["validity"]["checks"] if not check["ok"]}


@contextmanager
def loopback() -> Iterator[str]:
    """The cheapest server there is, in a process of its own, stopped at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.loopback"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def in_worker(tmp_path: Path, code: str) -> dict[str, str]:
    """An environment in which each worker runs ``code`` first, and does without the compiled engine."""
    site = tmp_path / "site"
    site.mkdir()
    body = "".join(
        f"    {line}\n" for line in ("sys.modules['plimsoll.harness.generator._engine'] = None", *code.splitlines())
    )
    (site / "sitecustomize.py").write_text(
        f"import sys\nif 'plimsoll.harness.generator.worker' in ' '.join(sys.orig_argv):\n{body}"
    )
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}


def frozen(fast: Server, tmp_path: Path, *arguments: str, seconds: float = 0.5, code: int = 4) -> dict[str, Any]:
    """Run, stop the worker for some time in the middle, and give the report."""
    process = begin("run", "--url", fast.url, *CHAT, *LENIENT, *arguments, "--out", "r", "--json", cwd=tmp_path)
    wait_for(tmp_path / "r" / "segments" / "w*.seg")
    worker = children(process.pid, "plimsoll.harness.generator.worker")[0]
    os.kill(worker, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(worker, signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, (out[-2000:], err)
    report: dict[str, Any] = json.loads(out)
    return report


def test_a_closed_loop_that_stood_still_is_invalid_though_no_request_was_late(fast: Server, tmp_path: Path) -> None:
    """Single stream for 4 s, the worker stopped for 0.5 s."""
    (tmp_path / "s.yaml").write_text("kind: single_stream\nstop: {min_queries: 1, min_duration: 4s}\n")
    report = frozen(fast, tmp_path, "s.yaml")
    assert broken(report) == {"loop stalls"}
    assert report["validity"]["generator_lag_ns"]["max"] < 100_000_000
    assert facts_of(tmp_path / "r")["loop_stall_max_ns"] > 400_000_000


def test_an_open_loop_that_stood_still_is_invalid_only_where_its_lateness_decides(fast: Server, tmp_path: Path) -> None:
    """50/s for 6 s, the worker stopped for 0.3 s: about 15 of 300 requests left late, 5 % of them. Answers take 13 ms.

    What passes with all of it passes, what fails without it fails, and a limit in between can't be told.
    """
    report = frozen(fast, tmp_path, "--kind", "server", "--rate", "50", "--duration", "6s", seconds=0.3, code=0)
    assert report["verdict"]["outcome"] == "PASS"
    assert report["validity"]["generator_lag_ns"]["max"] > 200_000_000
    ends = report["verdict"]["objectives"][0]["bracket"]
    assert (ends["outcome_lower"], ends["outcome_upper"]) == ("PASS", "PASS")
    assert ends["lateness_ns"] > 200_000_000
    for objective, code in (("p99.9(latency) <= 100ms", 4), ("p50(latency) <= 1ms", 1), ("p99(tpot) <= 100ms", 0)):
        done = plimsoll_here("gate", "r", "--slo", objective, "--json", cwd=tmp_path)
        assert done.returncode == code, (objective, done.stdout[-3000:])
        if code == 4:
            (reason,) = json.loads(done.stdout)["validity"]["reasons"]
            assert reason.startswith("p99.9(latency) <= 100ms: ")
            assert "the generator's own lateness, up to " in reason
            assert only_late(tmp_path / "r")


def test_rows_taken_out_of_a_sealed_run_are_missed_though_its_facts_agree(fast: Server, tmp_path: Path) -> None:
    done = plimsoll_valid("run", "--url", fast.url, *CHAT, *LENIENT, "--rate", "30", "--duration", "4s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "r"
    fewer = records_of(run)
    fewer = fewer.select(np.arange(len(fewer)) % 10 != 3)
    for name, table in zip(("requests", "chunks"), tables.to_tables(fewer, [""] * len(fewer)), strict=True):
        pq.write_table(table, run / f"{name}.parquet")
    facts = json.loads((run / "generator.json").read_text())
    facts["facts"] |= {"planned": len(fewer), "planned_queries": len(fewer), "plan_samples": len(fewer)}
    (run / "generator.json").write_text(json.dumps(facts))
    gate = plimsoll_here("gate", "r", *LENIENT, cwd=tmp_path)
    assert gate.returncode == 4
    assert "plan.npz holds" in gate.stdout


def test_a_collector_that_a_plug_in_calls_is_seen_from_inside_the_worker(fast: Server, tmp_path: Path) -> None:
    """Single stream for 6 s; in its course 600,000 objects are made and collected on another thread."""
    rubbish = (
        "import gc, threading\n"
        "def rubbish():\n"
        "    heap = [[i] for i in range(600_000)]\n"
        "    for _ in range(5): gc.collect()\n"
        "timer = threading.Timer(4.0, rubbish)\n"
        "timer.daemon = True\n"
        "timer.start()\n"
    )
    (tmp_path / "s.yaml").write_text("kind: single_stream\nstop: {min_queries: 1, min_duration: 6s}\n")
    done = plimsoll_here(
        "run", "s.yaml", "--url", fast.url, *CHAT, "--slo", "p50(latency) <= 50ms", "--out", "r", "--json",
        cwd=tmp_path, env=in_worker(tmp_path, rubbish),
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    report = json.loads(done.stdout)
    assert "gc pauses" in broken(report)
    assert any("the garbage collector ran 5 times" in text for text in report["warnings"])


def test_a_closed_loop_against_a_server_that_is_faster_than_we_are_measures_us(tmp_path: Path) -> None:
    """64 connections for 3 s against the cheapest server, which the Python engine's worker can't keep up with."""
    with loopback() as url:
        done = plimsoll_here(
            "run", "--url", url, "--protocol", "http", "--kind", "concurrency", "--concurrency", "64", "--duration",
            "3s",
            "--out", "r", "--json", *LENIENT, cwd=tmp_path, env=in_worker(tmp_path, ""),
        )  # fmt: skip
    assert done.returncode == 4, done.stderr
    report = json.loads(done.stdout)
    assert "generator CPU" in broken(report), facts_of(tmp_path / "r")
    assert any("not the endpoint" in reason and "Add workers" in reason for reason in report["validity"]["reasons"])


def test_the_same_load_on_a_server_that_takes_its_time_is_valid(fast: Server, tmp_path: Path) -> None:
    """8 at once for 2 s, 14 ms each: the counterpart, without which the test above proves nothing."""
    done = plimsoll_valid(
        "run", "--url", fast.url, *CHAT, *LENIENT, "--kind", "concurrency", "--concurrency", "8", "--duration", "2s",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert max(facts_of(tmp_path / "r")["worker_cpu"]) < 0.9


def test_waiting_for_the_pools_limit_is_told_from_the_servers_answering_time(fast: Server, tmp_path: Path) -> None:
    """8 at once over 2 connections for 2 s: most wait for a connection, and none of it is the server's."""
    (tmp_path / "s.yaml").write_text(
        "kind: concurrency\nparams: {concurrency: 8}\nstop: {min_queries: 1, min_duration: 2s}\n"
        "target: {options: {max_connections: 2}}\n"
    )
    done = plimsoll_valid("run", "s.yaml", "--url", fast.url, *CHAT, *LENIENT, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    report, facts = json.loads(done.stdout), facts_of(tmp_path / "r")
    rows = records_of(tmp_path / "r")
    waited = int((rows["sent_ns"] - rows["ready_ns"] > 5_000_000).sum())
    assert waited > 0.8 * len(rows)
    assert waited <= facts["pool_waits"] <= len(rows)
    assert 20_000_000 < facts["pool_wait_p99_ns"] < 1_000_000_000
    about = [text for text in report["warnings"] if "max_connections" in text]
    assert len(about) == 1
    assert not any("opened a connection" in text or "held back by the client" in text for text in report["warnings"])


@pytest.fixture(scope="module")
def overloaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, Any]]:
    """100/s, constant, for 6 s against one slot that takes at least 12 ms: at most 83/s."""
    folder = tmp_path_factory.mktemp("overloaded")
    (folder / "s.yaml").write_text(
        "kind: server\nparams: {rate: 100, arrival: constant}\nstop: {min_queries: 1, min_duration: 6s}\n"
    )
    with server("--model", "scripted", "--ttft", "12ms", "--itl", "0ms", "--fault", "slots=1") as target:
        done = plimsoll_valid(
            "run", "s.yaml", "--url", target.url, "--protocol", "openai-chat", "--output-tokens", "1", "--slo",
            "p50(latency) <= 200ms", "--json", cwd=folder,
        )  # fmt: skip
    return folder, done.returncode, json.loads(done.stdout)


def test_a_pass_on_a_growing_backlog_is_invalid_with_a_reason_of_its_own(
    overloaded: tuple[Path, int, dict[str, Any]],
) -> None:
    folder, *_ = overloaded
    done = plimsoll_here("gate", "r", "--slo", "p50(latency) <= 20s", "--json", cwd=folder)
    report = json.loads(done.stdout)
    assert broken(report) == {"steady"}, report["validity"]["reasons"]
    assert done.returncode == 4
    assert report["validity"]["reasons"][0].startswith("unstable: the backlog grew to the end")


def test_a_failure_on_a_growing_backlog_is_the_endpoints_failure(overloaded: tuple[Path, int, dict[str, Any]]) -> None:
    _, code, report = overloaded
    assert broken(report) == {"steady"}, report["validity"]["reasons"]
    assert code == 1
    assert (report["validity"]["outcome"], report["verdict"]["outcome"]) == ("VALID", "FAIL")
    assert any(reason.startswith("unstable") for reason in report["verdict"]["reasons"])


def test_a_hopeless_overload_is_given_up_at_the_ceiling(tmp_path: Path) -> None:
    """200/s against answers that take 5 s, with at most 60 in flight: over after 0.3 s."""
    (tmp_path / "s.yaml").write_text(
        "kind: server\nparams: {rate: 200, arrival: constant}\nstop: {min_queries: 1, min_duration: 5s}\n"
        "target: {options: {max_outstanding: 60}}\ndrain: 100ms\n"
    )
    with server("--model", "scripted", "--ttft", "5s") as target:
        done = plimsoll_here("run", "s.yaml", "--url", target.url, *CHAT, "--json", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    report = json.loads(done.stdout)
    assert {"not aborted", "all sent"} <= broken(report)
    assert report["validity"]["unsent"] > 800


def test_a_closed_loop_below_loadgens_minimum_of_queries_is_invalid(fast: Server, tmp_path: Path) -> None:
    """LoadGen: queries issued >= min_query_count."""
    (tmp_path / "s.yaml").write_text(
        "kind: single_stream\nstop: {min_queries: 100000, min_duration: 0s, max_duration: 1s}\n"
    )
    done = plimsoll_here("run", "s.yaml", "--url", fast.url, *CHAT, *LENIENT, "--json", "--out", "r", cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert broken(json.loads(done.stdout)) == {"within max_duration", "min_queries"}


def test_a_closed_loop_that_was_ended_early_says_that_it_was_too_short(fast: Server, tmp_path: Path) -> None:
    """LoadGen: the last query is issued at or after min_duration.

    Ctrl-C has its own exit code, the report says INVALID.
    """
    (tmp_path / "s.yaml").write_text("kind: single_stream\nstop: {min_queries: 1, min_duration: 30s}\n")
    process = begin("run", "s.yaml", "--url", fast.url, *CHAT, *LENIENT, "--out", "r", "--json", cwd=tmp_path)
    wait_for(tmp_path / "r" / "segments" / "w*.seg")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert {"finished", "min_duration"} <= broken(json.loads(out))
    assert plimsoll_here("gate", "r", "--slo", "p50(latency) <= 2s", cwd=tmp_path).returncode == 4


@pytest.mark.parametrize(("minimum", "code"), [("10s", 4), ("10ms", 0)])
def test_an_offline_query_must_keep_the_endpoint_busy_for_the_minimum(
    minimum: str, code: int, fast: Server, tmp_path: Path
) -> None:
    """LoadGen: of the one query the longest latency counts, here some 14 ms."""
    (tmp_path / "s.yaml").write_text(
        f"kind: offline\nparams: {{samples: 40}}\nstop: {{min_queries: 1, min_duration: {minimum}}}\n"
    )
    done = plimsoll_here("run", "s.yaml", "--url", fast.url, *CHAT, *LENIENT, "--json", cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert broken(json.loads(done.stdout)) == ({"min_duration"} if code else set())


def test_a_server_run_is_as_long_as_its_last_due_time_and_reaches_both_minimums(fast: Server, tmp_path: Path) -> None:
    """LoadGen's list: one query at or after min_duration and min_query_count of them, counted from the schedule."""
    (tmp_path / "s.yaml").write_text(
        "kind: server\nparams: {rate: 50}\nstop: {min_queries: 60, min_duration: 1s}\nseed: 3\n"
    )
    done = plimsoll_valid("run", "s.yaml", "--url", fast.url, *CHAT, *LENIENT, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    due = records_of(tmp_path / "r")["due_ns"]
    assert len(due) >= 60
    assert due.max() >= 1_000_000_000
    assert facts_of(tmp_path / "r")["elapsed_ns"] == due.max()


def test_a_killed_worker_of_a_closed_loop_makes_the_run_invalid_and_loses_no_written_row(tmp_path: Path) -> None:
    """Two workers, four slots, 5 s; one worker is killed by its pid after its first segments."""
    with server(*FAST) as target:
        process = begin(
            "run", "--url", target.url, *CHAT, *LENIENT, "--kind", "concurrency", "--concurrency", "4", "--workers",
            "2",
            "--duration", "5s", "--out", "r", "--json", cwd=tmp_path,
        )  # fmt: skip
        wait_for(tmp_path / "r" / "segments" / "w001*.seg")
        victim = children(process.pid, "plimsoll.harness.generator.worker")[-1]
        time.sleep(1)
        os.kill(victim, signal.SIGSTOP)
        written = {path.name for path in (tmp_path / "r" / "segments").glob("*.seg")}
        os.kill(victim, signal.SIGKILL)
        out, err = process.communicate(timeout=60)
        truth = target.truth()
    assert process.returncode == 4, err
    report = json.loads(out)
    assert "workers" in broken(report)
    assert any("was killed by SIGKILL" in reason for reason in report["validity"]["reasons"])
    rows = records_of(tmp_path / "r")
    assert len(written) >= 2
    for worker in (0, 1):
        mine = (rows["worker"] == worker) & (rows["status"] == Status.OK)
        assert mine.sum() > 50, "what it had written by then is kept"
    assert len(rows) <= len(truth)
    # A segment is cut each second: no more than that, and what was on the wire, went with the process.
    lost = len(truth) - len(rows)
    assert lost <= 2 * 130, f"{lost} of {len(truth)}"
