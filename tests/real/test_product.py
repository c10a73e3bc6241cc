"""The product in a dozen real runs: the command line, processes, sockets, against one oracle and one scripted server.

Each run is a second or two. What the whole of ``tests/e2e`` holds in every corner is held here once, for whoever changed something
and has three minutes.
"""  # noqa: E501

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import trustme

from plimsoll.reference_server.oracle.truth_file import OracleRow
from plimsoll.slo.records import tables
from plimsoll.slo.records.records import Records, Status, TokensFrom
from plimsoll.slo.validity.accounts import contradictions
from tests.e2e.both_engines import ENGINES
from tests.e2e.oracle import Oracle, oracle
from tests.e2e.plimsoll import FILES, Server, begin, children, plimsoll, plimsoll_here, plimsoll_valid, server, wait_for
from tests.raw_server import answer, raw_server

pytestmark = pytest.mark.e2e

MS = 1_000_000
#: A kernel's stamp may be so much earlier than the sender's own clock reading.
EARLY_NS = 100_000
CHAT = ("--protocol", "openai-chat", "--output-tokens", "8")
#: An objective that leaves the generator room to be late on a busy host.
EASY = ("--slo", "p50(latency) <= 10s")


@pytest.fixture(scope="module")
def truth() -> Iterator[Oracle]:
    with oracle("--ttft", "20ms", "--itl", "5ms") as running:
        yield running


@pytest.fixture(scope="module")
def scripted() -> Iterator[Server]:
    with server("--grpc-port", "0", "--model", "scripted", "--ttft", "20ms", "--itl", "4ms") as running:
        yield running


def records_of(run: Path) -> Records:
    records = tables.load(run)
    assert contradictions(records) == []
    return records


def report_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "report.json").read_text()))


# -- what is measured ------------------------------------------------------------------------------------------------


def test_both_engines_record_every_token_between_the_oracles_stamps(truth: Oracle, tmp_path: Path) -> None:
    """40 streams of 8 tokens by each engine: the same rows, and each arrival after its own write and before the next
    one.
    """
    load = ("--kind", "concurrency", "--concurrency", "4", "--queries", "40", "--seed", "7")
    runs = {}
    for engine in ENGINES:
        done = plimsoll(
            "run",
            "--url",
            truth.url,
            *CHAT,
            *EASY,
            *load,
            "--option",
            f"engine={engine}",
            "--out",
            engine,
            cwd=tmp_path,
        )
        assert done.returncode in (0, 4), done.stderr  # 4: a busy host
        clients = json.loads((tmp_path / engine / "generator.json").read_text())["clients"]
        assert {client["engine"] for client in clients} == {engine}
        runs[engine] = records_of(tmp_path / engine)
    written = {row.request_id: row for row in truth.rows()}
    for engine, records in runs.items():
        assert (records["status"] == Status.OK).all()
        assert (records["n_chunks"] == 8).all()
        assert np.median(np.concatenate([*errors_of(tmp_path / engine, records, written)])) < 1 * MS
    for column in ("query_id", "payload_ix", "n_out", "tokens_from", "status"):
        one, other = (records[column][np.argsort(records["query_id"])] for records in runs.values())
        assert (one == other).all(), column


def errors_of(
    run: Path, records: Records, written: dict[str, OracleRow]
) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """Arrival less the stamp just before the write, one array a request."""
    t0 = json.loads((run / "manifest.json").read_text())["t0_monotonic_ns"]
    ids = pq.read_table(run / "requests.parquet", columns=["request_id"])["request_id"].to_pylist()
    for at, request_id in enumerate(ids):
        before = np.array(written[request_id].stamps_ns)[0:16:2]
        arrived = records.chunk_ns[records.chunk_offsets[at] : records.chunk_offsets[at + 1]] + t0
        assert (arrived >= before - EARLY_NS).all()
        yield arrived - before


def test_a_run_passes_its_objective_and_leaves_its_whole_directory(scripted: Server, tmp_path: Path) -> None:
    """400 requests over 2.5 s."""
    done = plimsoll_valid(
        "run", "--url", scripted.url, *CHAT, "--kind", "server", "--rate", "160", "--queries", "400", "--slo", "p99(ttft) <= 2s",  # noqa: E501
        "--json", "--format", "junit=gate.xml", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "plimsoll.report/1"
    assert report["validity"]["outcome"] == "VALID"
    assert report["validity"]["stamp"] == "kernel"
    assert (report["validity"]["planned"], report["validity"]["sent"], report["validity"]["unsent"]) == (400, 400, 0)
    assert report["verdict"]["outcome"] == "PASS"
    objective = report["verdict"]["objectives"][0]
    assert (objective["objective"], objective["outcome"], objective["unit"]) == ("p99(ttft) <= 2s", "PASS", "ns")
    assert objective["threshold"] == 2_000_000_000
    assert report["counts"]["by_status"] == {"OK": 400}
    assert {path.name for path in (tmp_path / "r").iterdir()} == FILES
    assert report_of(tmp_path / "r") == report
    assert b"<testcase" in (tmp_path / "gate.xml").read_bytes()
    ids = pq.read_table(tmp_path / "r" / "requests.parquet", columns=["request_id"])["request_id"].to_pylist()
    assert set(ids) <= set(scripted.truth())


# -- every wire ------------------------------------------------------------------------------------------------------


@contextmanager
def tls_endpoint(folder: Path) -> Iterator[str]:
    """Answers anything with "ok" over TLS, in a thread; its authority's certificate is ``folder/ca.pem``."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    url: list[str] = []
    ready, stop = threading.Event(), threading.Event()

    async def say(_request: bytes, _reader: Any, writer: asyncio.StreamWriter, _number: int) -> None:
        writer.write(answer())

    async def serve() -> None:
        async with raw_server(say, tls=context) as where:
            url.append(where)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield url[0]
    finally:
        stop.set()
        thread.join(10)


def test_tls_is_checked_and_spoken(tmp_path: Path) -> None:
    load = ("--protocol", "http", "--kind", "single_stream", "--queries", "20", *EASY)
    with tls_endpoint(tmp_path) as url:
        trusted = plimsoll("run", "--url", url, "--ca-file", "ca.pem", *load, "--out", "r", cwd=tmp_path)
        stranger = plimsoll("run", "--url", url, *load, "--out", "s", cwd=tmp_path)
    assert trusted.returncode in (0, 4), trusted.stderr
    assert report_of(tmp_path / "r")["counts"]["by_status"] == {"OK": 20}
    assert report_of(tmp_path / "r")["validity"]["stamp"] == "kernel"
    assert stranger.returncode == 5
    assert "certificate" in stranger.stderr


def test_grpc_streams_are_counted_by_messages(scripted: Server, tmp_path: Path) -> None:
    load = ("--kind", "single_stream", "--queries", "4", "--output-tokens", "5", "--model", "scripted")
    url = f"grpc://{scripted.grpc}"
    done = plimsoll("run", "--url", url, "--protocol", "triton-stream", *load, "--out", "r", cwd=tmp_path)
    assert (tmp_path / "r" / "report.json").is_file(), done.stderr
    records = records_of(tmp_path / "r")
    assert records["status"].tolist() == [Status.OK] * 4
    assert records["n_out"].tolist() == [5] * 4
    assert set(records["tokens_from"].tolist()) == {int(TokensFrom.CHUNKS)}
    assert set(records["stamp"].tolist()) == {0}
    assert report_of(tmp_path / "r")["metrics"]["ttft"]["min"] >= 20 * MS - EARLY_NS
    gaps = np.diff(records.chunk_ns.reshape(4, 5), axis=1)
    assert 2 * MS < float(np.median(gaps)) < 8 * MS


def test_a_websocket_answers_text_token_by_token(tmp_path: Path) -> None:
    """Three turns of a realtime session, which wants an ear too."""
    (tmp_path / "texts.jsonl").write_text('{"prompt": "mind the gap"}\n' * 3)
    (tmp_path / "s.yaml").write_text(
        "kind: single_stream\nsource: {kind: jsonl, path: texts.jsonl}\n"
        "target: {protocol: openai-realtime, options: {mode: conversation, output: text}}\n"
    )
    load = ("--queries", "3", "--model", "scripted", "--timeout", "8s")
    with server("--model", "scripted", "--model", "recogniser", "--ttft", "20ms", "--itl", "4ms") as target:
        done = plimsoll("run", "s.yaml", "--url", target.url, *load, "--out", "r", cwd=tmp_path)
    assert (tmp_path / "r" / "report.json").is_file(), done.stderr
    records = records_of(tmp_path / "r")
    assert (records["status"] == Status.OK).all()
    assert (records["n_out"] > 0).all()
    assert 3 * MS < report_of(tmp_path / "r")["metrics"]["tpot"]["p50"] < 7 * MS


# -- ends ------------------------------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_was_measured_and_exits_130(scripted: Server, tmp_path: Path) -> None:
    """A minute planned at 50/s, interrupted after about two seconds."""
    load = ("--kind", "server", "--rate", "50", "--duration", "60s")
    process = begin("run", "--url", scripted.url, *CHAT, *EASY, *load, "--out", "r", "--json", cwd=tmp_path)
    wait_for(tmp_path / "r" / "segments" / "w*.seg")
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert time.monotonic() - begun < 15
    assert "Traceback" not in err
    report = json.loads(out)
    assert report["validity"]["outcome"] == "INVALID"
    assert any("interrupt" in reason for reason in report["validity"]["reasons"])
    assert report["counts"]["ok"] > 20
    assert report["counts"]["by_status"]["UNSENT"] > 2000
    again = plimsoll_here("report", "r", "--json", cwd=tmp_path)
    assert again.returncode == 0
    assert json.loads(again.stdout)["counts"] == report["counts"]


def test_a_killed_worker_makes_the_run_invalid_and_its_sealed_segments_count(scripted: Server, tmp_path: Path) -> None:
    """Two workers, 4 s at 60/s; one is killed after its first segment."""
    load = ("--kind", "server", "--rate", "60", "--duration", "4s", "--workers", "2")
    process = begin("run", "--url", scripted.url, *CHAT, *EASY, *load, "--out", "r", "--json", cwd=tmp_path)
    wait_for(tmp_path / "r" / "segments" / "w000*.seg")
    wait_for(tmp_path / "r" / "segments" / "w001*.seg")
    os.kill(children(process.pid, "plimsoll.harness.generator.worker")[0], signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4, err
    report = json.loads(out)
    assert report["validity"]["outcome"] == "INVALID"
    assert any("SIGKILL" in reason for reason in report["validity"]["reasons"])
    records = records_of(tmp_path / "r")
    assert len(records) == report["validity"]["planned"]
    for worker in (0, 1):
        assert ((records["worker"] == worker) & (records["status"] == Status.OK)).any()
    lost = records["status"] == Status.UNFINISHED
    unsent = records["status"] == Status.UNSENT
    assert unsent.any(), "what came due after its death was never sent"
    assert records["due_ns"][unsent].min() > records["due_ns"][lost].max(initial=0)
    assert report["validity"]["unsent"] == unsent.sum()


def test_an_endpoint_that_is_down_before_the_start_is_exit_5_and_leaves_nothing(tmp_path: Path) -> None:
    load = ("--kind", "server", "--rate", "5", "--queries", "5")
    done = plimsoll("run", "--url", "http://127.0.0.1:1", *CHAT, *load, cwd=tmp_path)
    assert done.returncode == 5
    assert done.stdout == ""
    assert "cannot connect to http://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.rglob("*.parquet")) == []
    assert not any((tmp_path / "runs").iterdir())


def test_all_errors_come_at_once_and_exit_2(tmp_path: Path) -> None:
    done = plimsoll(
        "run", "--rate", "-1", "--slo", "p99(x) <= 1ms", "--format", "nope=1", "--timeout", "soon", cwd=tmp_path
    )
    assert done.returncode == 2
    for text in ("rate", "p99(x)", "nope", "soon"):
        assert text in done.stderr


def test_gate_judges_a_run_again_and_exits_by_the_verdict(tmp_path: Path) -> None:
    with server("--model", "scripted", "--ttft", "2200ms", "--itl", "1ms") as slow:
        load = ("--kind", "server", "--rate", "200", "--queries", "320")
        done = plimsoll_valid("run", "--url", slow.url, *CHAT, *load, *EASY, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    (tmp_path / "slo.yaml").write_text("objectives:\n  - p99(ttft) <= 40s\n  - ratio(error) <= 5%\n")
    assert plimsoll("gate", "r", "--slo", "slo.yaml", cwd=tmp_path).returncode == 0
    assert plimsoll_here("gate", "r", "--slo", "p50(ttft) <= 2s", cwd=tmp_path).returncode == 1
    assert plimsoll_here("gate", "r", "--slo", "p99.9(ttft) <= 40s", cwd=tmp_path).returncode == 3
    assert plimsoll_here("gate", "nowhere", "--slo", "slo.yaml", cwd=tmp_path).returncode == 2
    assert plimsoll_here("gate", "r", "--slo", "p50(ttft) <= soon", cwd=tmp_path).returncode == 2


# -- several runs ----------------------------------------------------------------------------------------------------


def test_a_search_that_is_stopped_goes_on_and_finds_the_line_of_a_known_endpoint(tmp_path: Path) -> None:
    """Two slots of 60 ms each answer C requests in flight in 30 C ms."""
    closed = (
        "search", "--over", "concurrency", "--start", "4", "--highest", "8", "--resolution", "50%", "--slo", "p50(latency) <= 210ms",  # noqa: E501
        "--probe", "600ms", "--no-confirm", "--cooldown", "0s", "--prompt-tokens", "8", "--output-tokens", "1", "--out", "s", "--gpus", "2",  # noqa: E501
    )  # fmt: skip
    with server("--model", "scripted", "--ttft", "60ms", "--itl", "0ms", "--fault", "slots=n:2") as target:
        command = (*closed, "--url", target.url)
        process = begin(*command, cwd=tmp_path)
        wait_for(tmp_path / "s/probes/002-bracket/segments", 30)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=30)
        assert process.returncode == 130, errors
        assert "--resume goes on" in said
        made = json.loads((tmp_path / "s/search.json").read_text())["probes"]
        assert [one["run"] for one in made] == ["probes/001-bracket"]
        done = plimsoll(*command, "--resume", "--json", "--format", "junit=gate.xml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["outcome"] == "FOUND"
    assert result["concurrency"] == {"best": 6.0, "interval": [6.0, 8.0]}
    assert [one["outcome"] for one in result["probes"]] == ["PASS", "FAIL", "PASS"]
    assert result["probes"][0] == made[0]
    assert result["answer"]["run"] == result["probes"][2]["run"]
    assert result["answer"]["goodput_per_s_per_gpu"] == pytest.approx(33 / 2, rel=0.25)
    for one in result["probes"]:
        assert (tmp_path / "s" / one["run"] / "report.html").is_file()
    assert b"<svg" in (tmp_path / "s/search.html").read_bytes()
    assert b'failures="0"' in (tmp_path / "gate.xml").read_bytes()


def test_one_endpoint_against_itself_is_no_regression_and_the_false_alarm_rate_is_told(
    scripted: Server, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(
        "kind: concurrency\nparams: {concurrency: 4}\ntimeout: 5s\nstop: {min_queries: 8, min_duration: 400ms}\n"
        "source: {kind: synthetic_text, prompt_tokens: 16, output_tokens: 4, count: 8}\n"
    )
    once = (
        "--arm",
        f"same={scripted.url}",
        "--repeats",
        "4",
        "--aa",
        "--json",
        "--metric",
        "p50(ttft)",
        "--cooldown",
        "0s",
    )
    done = plimsoll("compare", "--interleave", "s.yaml", "--out", "ab", *once, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    result = json.loads(done.stdout)
    assert result["outcome"] in ("INDISTINGUISHABLE", "IMPROVEMENT")
    found = result["false_alarms"]
    assert (found["runs"], found["per_arm"]) == (8, 4)
    assert 0 <= found["interval"][0] <= found["rate"] <= found["interval"][1] <= 1
