"""Whole runs by either engine: which one ran is said, interrupts and deaths leave what they should. About 40
seconds.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.both_engines import ENGINES
from tests.e2e.plimsoll import ROOT, begin, children, only_late, plimsoll, plimsoll_here, server, wait_for
from tests.e2e.test_validity import loopback

pytestmark = pytest.mark.e2e

FAST = ("--model", "scripted", "--ttft", "10ms", "--itl", "1ms")
CHAT = ("--protocol", "openai-chat", "--kind", "server", "--output-tokens", "8", "--slo", "p50(latency) <= 10s")


def records_of(path: Path) -> Records:
    records = tables.load(path)
    assert contradictions(records) == []
    return records


def engines_of(path: Path) -> set[str]:
    return {client["engine"] for client in json.loads((path / "generator.json").read_text())["clients"]}


def needs(engine: str) -> None:
    if engine == "native":
        pytest.importorskip("plimsoll.harness.generator._engine", reason="the extension is not compiled here")


def absent(tmp_path: Path) -> dict[str, str]:
    """An environment in which no process has the extension."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['plimsoll.harness.generator._engine'] = None\n")
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}


def test_without_the_extension_a_run_works_by_the_python_engine(tmp_path: Path) -> None:
    with server(*FAST) as target:
        done = plimsoll_here(
            "run",
            "--url",
            target.url,
            *CHAT,
            "--rate",
            "50",
            "--queries",
            "50",
            "--out",
            "r",
            cwd=tmp_path,
            env=absent(tmp_path),
        )
    assert done.returncode in (0, 4), done.stderr
    assert engines_of(tmp_path / "r") == {"python"}
    assert (records_of(tmp_path / "r")["status"] == Status.OK).sum() == 50


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--url", "https://127.0.0.1:1", "--protocol", "http"), "speaks no TLS. Give an http:// URL"),
        (("--protocol", "null"), "speaks HTTP only. Leave this option out"),
        (("--url", "http://127.0.0.1:1", "--protocol", "http"), "is not compiled here. Install a C compiler"),
    ],
)
def test_native_where_it_can_not_be_is_an_error_before_any_load(
    flags: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    env = absent(tmp_path) if "compiler" in says else None
    run = plimsoll if env else plimsoll_here
    done = run("run", *flags, "--queries", "5", "--option", "engine=native", "--out", "r", cwd=tmp_path, env=env)
    assert done.returncode == 2, done.stderr
    assert f"--option engine: the native engine {says}" in " ".join(done.stderr.split())
    assert not (tmp_path / "r").exists()


def interrupted(engine: str, tmp_path: Path, ttft: str, times: int) -> dict[str, Any]:
    """6 s at 50/s, interrupted after the first segment."""
    with server("--model", "scripted", "--ttft", ttft, "--itl", "1ms") as target:
        process = begin(
            "run", "--url", target.url, *CHAT, "--rate", "50", "--duration", "6s", "--option", f"engine={engine}", "--out", "r",  # noqa: E501
            "--json", cwd=tmp_path,
        )  # fmt: skip
        wait_for(tmp_path / "r" / "segments" / "w*.seg")
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.4)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    report: dict[str, Any] = json.loads(out)
    return report


@pytest.mark.parametrize("engine", ENGINES)
def test_one_interrupt_waits_for_the_answers_in_flight(engine: str, tmp_path: Path) -> None:
    needs(engine)
    report = interrupted(engine, tmp_path, "300ms", 1)
    records = records_of(tmp_path / "r")
    assert (records["status"] == Status.OK).sum() >= 30
    assert not (records["status"] == Status.UNFINISHED).any()
    assert len(records) == report["validity"]["planned"]


@pytest.mark.parametrize("engine", ENGINES)
def test_two_interrupts_give_up_what_is_in_flight_and_keep_its_rows(engine: str, tmp_path: Path) -> None:
    needs(engine)
    report = interrupted(engine, tmp_path, "1500ms", 2)
    records = records_of(tmp_path / "r")
    given_up = records["status"] == Status.UNFINISHED
    assert given_up.sum() > 10
    errors = {records.errors[int(at)] for at in records["error"][given_up]}
    assert errors == {"interrupted by the user"}
    assert (records["sent_ns"][given_up] >= 0).all()
    assert len(records) == report["validity"]["planned"]


@pytest.mark.parametrize("engine", ENGINES)
def test_kill_9_of_the_endpoint_is_the_endpoints_failure(engine: str, tmp_path: Path) -> None:
    """3 s at 100/s; the server dies in the middle: streams are cut, then connections refused, and the report is
    whole.
    """
    needs(engine)
    with server("--model", "scripted", "--ttft", "50ms", "--itl", "20ms") as target:
        process = begin(
            "run", "--url", target.url, *CHAT, "--slo", "p99(ttft) <= 2s", "--rate", "100", "--duration", "3s", "--option",  # noqa: E501
            f"engine={engine}", "--out", "r", "--json", cwd=tmp_path,
        )  # fmt: skip
        wait_for(tmp_path / "r" / "segments" / "w*.seg")
        target.kill()
        out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert only_late(tmp_path / "r"), report["validity"][
        "reasons"
    ]  # a busy machine may make the generator late as well
    assert process.returncode == (1 if report["validity"]["outcome"] == "VALID" else 4), err
    slowest = report["verdict"]["objectives"][1]
    assert (slowest["outcome"], slowest["observed"]) == ("FAIL", None)  # infinitely slow
    records = records_of(tmp_path / "r")
    assert len(records) == report["validity"]["planned"] == report["counts"]["ok"] + report["counts"]["failed"]
    assert (tmp_path / "r" / "report.html").stat().st_size > 10_000
    assert report["counts"]["by_status"]["CONNECT"] > 30
    cut = (records["status"] == Status.PROTOCOL) & (records["n_chunks"] > 0)
    assert cut.any(), "what had come of the streams is kept"
    texts = {records.errors[int(at)] for at in records["error"] if at >= 0}
    assert texts <= {
        "Connection refused", "Connection reset by peer", "connection closed before any answer",
        "connection closed before any answer: Connection reset by peer", "connection closed in the middle of the response",  # noqa: E501
        "connection closed in the middle of the response: Connection reset by peer",
    }  # fmt: skip


def test_kill_9_of_a_worker_keeps_the_sealed_rows_of_the_python_engine_too(tmp_path: Path) -> None:
    """5 s at 60/s by one worker, which dies after its first segment. The native engine's dies in tests/real."""
    with server(*FAST) as target:
        process = begin(
            "run", "--url", target.url, *CHAT, "--rate", "60", "--duration", "5s", "--option", "engine=python", "--out", "r",  # noqa: E501
            "--json", cwd=tmp_path,
        )  # fmt: skip
        wait_for(tmp_path / "r" / "segments" / "w000*.seg")
        os.kill(children(process.pid, "plimsoll.harness.generator.worker")[0], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 4, err
    report = json.loads(out)
    assert any("SIGKILL" in reason for reason in report["validity"]["reasons"])
    records = records_of(tmp_path / "r")
    assert len(records) == report["validity"]["planned"]
    assert (records["status"] == Status.OK).sum() >= 20
    assert (records["status"] == Status.UNSENT).any()


def test_the_engines_share_of_its_core_is_that_of_the_run_not_of_its_warm_up(tmp_path: Path) -> None:
    """1.5 s of warm-up and 0.5 s of run, both as fast as the cheapest server goes: no share is more than the whole
    core.
    """
    needs("native")
    (tmp_path / "s.yaml").write_text(
        "kind: concurrency\nparams: {concurrency: 16}\nwarmup: 1500ms\nstop: {min_queries: 10, min_duration: 500ms}\n"
    )
    with loopback() as url:
        done = plimsoll_here("run", "s.yaml", "--url", url, "--protocol", "http", "--out", "r", cwd=tmp_path)
    assert done.returncode in (0, 4), done.stderr  # 4: it may be saturated
    facts = json.loads((tmp_path / "r" / "generator.json").read_text())["facts"]
    assert all(0.05 < share < 1.05 for share in (*facts["engine_cpu"], *facts["core_wanted"])), facts
    assert facts["engine_cpu"]
    records = records_of(tmp_path / "r")
    assert (records["phase"] == 1).sum() > 1000
