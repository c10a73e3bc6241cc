"""Clients with habits in whole runs: rows are what the server's log says that came, the books balance with attempts in
them, and what can't be is said before load. About half a minute.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from plimsoll.harness.run.rundir import open_sealed
from plimsoll.slo.records.records import Phase, Records, Status
from tests.e2e.plimsoll import plimsoll_here
from tests.e2e.test_accuracy import Crowded

pytestmark = pytest.mark.e2e


class Flaky(BaseHTTPRequestHandler):
    """Refuses the first attempts of some requests, is slow with the first attempt of others; keeps a log."""

    protocol_version = "HTTP/1.1"
    log: dict[str, list[int]]
    connections: list[list[str]]  # what came on each

    def setup(self) -> None:
        super().setup()
        self.came: list[str] = []
        self.connections.append(self.came)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        name = self.headers["x-request-id"]
        tries = self.log[name]
        drawn = zlib.crc32(name.encode())
        code = 503 if len(tries) < drawn % 5 - 1 else 200
        tries.append(code)
        self.came.append(name)
        if drawn % 7 == 0 and len(tries) == 1:
            time.sleep(0.4)
        choice = {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
        body = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 4, "completion_tokens": 3}}).encode()
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def flaky() -> Iterator[tuple[str, dict[str, list[int]], list[list[str]]]]:
    handler = type("Here", (Flaky,), {"log": defaultdict(list), "connections": []})
    served = Crowded(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{served.server_address[1]}", handler.log, handler.connections  # type: ignore[attr-defined]
    finally:
        served.shutdown()
        thread.join()
        served.server_close()


def ran(folder: Path, url: str, client: dict[str, Any], **more: Any) -> tuple[Records, dict[str, Any]]:
    scenario = {
        "kind": "server", "params": {"rate": 100}, "stop": {"min_queries": 150, "min_duration": 0}, "workers": 2,
        "source": {"kind": "synthetic_text", "prompt_tokens": 4}, "warmup": "200ms", "client": client,
        "target": {"url": url, "model": "m", "options": {"stream": False}}, **more,
    }  # fmt: skip
    (folder / "s.yaml").write_text(yaml.safe_dump(scenario))
    done = plimsoll_here("run", "s.yaml", "--out", "r", cwd=folder)
    assert done.returncode in (0, 4), done.stderr  # a busy host may be late
    sealed = open_sealed(folder / "r")
    report = json.loads((folder / "r/report.json").read_text())
    checks = {check["name"]: check for check in report["validity"]["checks"]}
    for name in ("accounting", "records agree"):
        assert checks[name]["ok"], checks[name]
    return sealed.records, report


RETRY = {"on": [503], "max": 2, "backoff": "5ms..1s"}


@pytest.mark.parametrize(
    "kind",
    [{}, {"kind": "concurrency", "params": {"concurrency": 8}, "stop": {"min_queries": 150, "max_queries": 200}}],
)
def test_rows_of_attempts_are_the_servers_log_and_the_books_balance(tmp_path: Path, kind: dict[str, Any]) -> None:
    with flaky() as (url, log, _):
        records, report = ran(tmp_path, url, {"retry": RETRY}, **kind)
    measured, run = records.measured(), json.loads((tmp_path / "r/manifest.json").read_text())["run_id"]
    attempts = records.select(records["phase"] == Phase.ATTEMPT)
    assert len(measured) >= 150
    seen: dict[str, list[int]] = defaultdict(list)
    for query, code in zip(attempts["query_id"].tolist(), attempts["code"].tolist(), strict=True):
        seen[f"{run}-{query}-0"].append(code)
    for at, tries in enumerate(measured.label("tries").tolist()):
        name = f"{run}-{measured['query_id'][at]}-0"
        assert log[name] == (seen[name] if tries > 1 else [measured["code"][at]])
        assert len(log[name]) == tries
        assert measured["code"][at] == log[name][-1]
        assert measured.label("attempt")[at] == tries - 1
    assert set(measured["status"].tolist()) == {Status.OK, Status.REFUSED}  # three refusals are more than two retries
    found = report["client"]
    assert found["attempts"] == sum(len(codes) for name, codes in log.items() if not name.startswith(f"{run}w"))
    assert found["amplification"] == pytest.approx(found["attempts"] / found["requests"], rel=1e-5)
    assert report["metrics"]["attempts_per_request"]["mean"] == pytest.approx(found["amplification"], rel=1e-5)
    assert plimsoll_here("report", "r", cwd=tmp_path).returncode in (0, 4)


def test_hedges_cut_the_slow_share_off_and_a_fresh_connection_is_opened_for_each_attempt(tmp_path: Path) -> None:
    with flaky() as (url, log, connections):
        client = {"retry": RETRY, "hedge": {"after": "100ms"}, "connections": "fresh"}
        records, report = ran(tmp_path, url, client)
    measured = records.measured()
    slow = [zlib.crc32(name.encode()) % 7 == 0 and codes[-1] == 200 for name, codes in log.items()]
    assert report["client"]["hedge_wins"] > sum(slow) / 3
    won = measured.select(measured.label("hedge") == 1)
    assert np.median(won["done_ns"] - won["ready_ns"]) < 300_000_000  # the first attempt would have taken 400 ms
    lost = records.select((records["phase"] == Phase.ATTEMPT) & (records["status"] == Status.CANCELLED))
    assert len(lost) >= len(won)
    assert max(map(len, connections)) == 1


def test_what_can_not_be_is_said_all_at_once_before_anything_is_sent(tmp_path: Path) -> None:
    scenario: dict[str, Any] = {
        "kind": "single_stream", "timeout": "5s", "target": {"url": "http://127.0.0.1:9"},
        "client": {"hedge": {"after": "6s"}, "patience": "5s"},
    }  # fmt: skip
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
    done = plimsoll_here("run", "s.yaml", cwd=tmp_path)
    assert done.returncode == 2
    for text in ("client.patience: 5s is not below", "client.hedge.after: 6s is not below", "has one slot"):
        assert text in done.stderr
    retry = {"backoff": "10s..1s", "on": ["slow", 302], "budget": "0%"}
    scenario = {"kind": "server", "client": {"retry": retry, "max_amplification": 1}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
    done = plimsoll_here("run", "s.yaml", cwd=tmp_path)
    assert done.returncode == 2
    for text in ("client.retry.backoff", "client.retry.on", "client.retry.budget", "client.max_amplification"):
        assert text in done.stderr
    scenario = {"kind": "server", "client": {"retry": {"on": ["UNAVAILABLE"]}, "hedge": {"after": "200ms"}}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
    done = plimsoll_here("run", "s.yaml", "--url", "http://127.0.0.1:9", cwd=tmp_path)
    assert done.returncode == 2
    assert "client.retry.on: UNAVAILABLE is gRPC's" in done.stderr
    scenario["client"] = {"hedge": {"after": "p100"}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
    assert "'p100' is no percentile" in plimsoll_here("run", "s.yaml", cwd=tmp_path).stderr
    live: dict[str, Any] = {
        "kind": "server", "source": {"kind": "synthetic_text"}, "client": {"retry": {}, "connections": "fresh"},
        "target": {"url": "ws://127.0.0.1:9/x", "protocol": "websocket"},
    }  # fmt: skip
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(live))
    done = plimsoll_here("run", "s.yaml", cwd=tmp_path)
    assert done.returncode == 2
    for text in ("client.retry: an exchange of websocket", "client.connections: an exchange of websocket"):
        assert text in done.stderr
    live["target"] = {"url": "grpc://127.0.0.1:9", "protocol": "riva-asr"}
    live["source"] = {"kind": "audio"}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(live))
    done = plimsoll_here("run", "s.yaml", cwd=tmp_path)
    assert done.returncode == 2
    for text in ("client.retry: an exchange of riva-asr", "client.connections: calls of riva-asr share connections"):
        assert text in done.stderr


def test_where_hedges_go_is_tried_before_load(tmp_path: Path) -> None:
    scenario = {
        "kind": "server", "stop": {"min_queries": 5, "min_duration": 0},
        "client": {"hedge": {"after": "200ms", "to": "http://127.0.0.1:9"}},
    }  # fmt: skip
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
    with flaky() as (url, log, _):
        done = plimsoll_here("run", "s.yaml", "--url", url, cwd=tmp_path)
    assert (done.returncode, dict(log)) == (5, {})
    assert "client.hedge.to: cannot connect to http://127.0.0.1:9" in done.stderr
