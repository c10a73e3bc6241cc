"""nginx of the distribution, static and as a proxy: its access log holds every answer once; limits, reloads, kills."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from plimsoll.slo.records.records import Status
from tests.e2e import plimsoll
from tests.interop.driven import answered, becomes, free_ports, holding, run, running

pytestmark = pytest.mark.e2e

CONFIG = """
{user}
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    log_format ids '$status $http_x_request_id $bytes_sent $connection_requests $uri $http_traceparent';
    access_log {folder}/access.log ids;
    client_body_temp_path {folder}/t; proxy_temp_path {folder}/t; fastcgi_temp_path {folder}/t;
    uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;
    limit_req_zone $server_addr zone=few:1m rate=20r/s;
    server {{
        listen 127.0.0.1:{port};
        keepalive_requests 7;
        location = /up {{ access_log off; return 200 "up"; }}
        location = /text {{ alias {folder}/short; }}
        location /few/ {{ limit_req zone=few; alias {folder}/; }}
        location = /slow {{ limit_rate 20k; alias {folder}/long; }}
        location /v1/ {{ proxy_pass http://127.0.0.1:{upstream}; proxy_http_version 1.1; proxy_buffering off; }}
    }}
}}
"""


@dataclass(frozen=True)
class Server:
    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    def logged(self, status: int) -> list[str]:
        """The ids of the requests that it says to have answered with this status, sorted; ``afresh`` empties the
        log.
        """
        lines = [line.split() for line in (self.folder / "access.log").read_text().splitlines()]
        return sorted(line[1] for line in lines if int(line[0]) == status)

    def afresh(self) -> None:
        os.truncate(self.folder / "access.log", 0)  # nginx appends


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not (program := shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")):
        pytest.skip("needs nginx (the distribution's nginx-light)")
    folder, (port, upstream) = tmp_path_factory.mktemp("nginx"), free_ports(2)
    (folder / "short").write_text("some words from nginx")
    (folder / "long").write_text("words " * 100_000)
    user = "user root root;" if os.geteuid() == 0 else ""  # else its workers are nobody, who may not read here
    (folder / "nginx.conf").write_text(CONFIG.format(user=user, folder=folder, port=port, upstream=upstream))
    command = [program, "-p", str(folder), "-c", "nginx.conf"]
    with running(command, f"http://127.0.0.1:{port}/up", folder) as process:
        yield Server(f"http://127.0.0.1:{port}", folder, process)


def get(**load: Any) -> dict[str, Any]:
    source = {"kind": "synthetic_text", "count": 1, "prompt_tokens": 1, "output_tokens": 1}
    return {"source": source, "target": {"protocol": "http", "options": {"method": "GET"}}, **load}


def test_every_request_is_in_the_access_log_once(server: Server, tmp_path: Path) -> None:
    """Each connection is closed after seven requests, so most of the run is opening them again."""
    for load in ({"kind": "single_stream"}, {"kind": "server", "params": {"rate": 100}}):
        server.afresh()
        stop = {"min_queries": 200, "min_duration": "1s"}
        found = answered(run(tmp_path, f"{server.url}/text", get(**load, stop=stop)))
        becomes(lambda found=found: len(server.logged(200)), len(found.records))  # type: ignore[misc]
        assert server.logged(200) == sorted(found.request_ids)
        assert set(found.records["bytes_in"]) != {0}


def test_what_a_limit_refuses_is_refused(server: Server, tmp_path: Path) -> None:
    server.afresh()
    load = {"kind": "server", "params": {"rate": 60}, "stop": {"min_queries": 100, "min_duration": "1s"}}
    found = run(tmp_path, f"{server.url}/few/short", get(**load))
    assert found.statuses == {Status.OK, Status.REFUSED}, set(found.errors)
    assert server.logged(503) == found.ids(Status.REFUSED)
    assert server.logged(200) == found.ids(Status.OK)


def test_each_attempt_of_a_client_that_tries_again_is_in_the_access_log(server: Server, tmp_path: Path) -> None:
    server.afresh()
    load = {"kind": "server", "params": {"rate": 30}, "stop": {"min_queries": 100, "min_duration": "1s"}}
    client = {"retry": {"on": [503], "max": 5, "backoff": "20ms..200ms"}}
    found = run(tmp_path, f"{server.url}/few/short", get(**load, client=client))
    every = sorted(server.logged(200) + server.logged(503))
    measured = found.records.measured()
    becomes(lambda: len(server.logged(200)), (measured["status"] == Status.OK).sum())
    assert found.report["client"]["attempts"] == len(every)
    assert found.report["client"]["retried"] > 10
    assert found.report["client"]["refusals"]["count"] == len(server.logged(503))
    names = dict(zip(measured["query_id"].tolist(), measured.label("tries").tolist(), strict=True))
    ids = {int(one.rsplit("-", 2)[1]): 0 for one in every}
    for one in every:
        ids[int(one.rsplit("-", 2)[1])] += 1
    assert ids == names


def test_the_trace_of_each_row_is_the_one_that_came(server: Server, tmp_path: Path) -> None:
    """Attempts of one request are spans of one trace, each its own; of all traces the share that was asked for is
    marked to be recorded.
    """
    server.afresh()
    load = {"kind": "server", "params": {"rate": 40}, "stop": {"min_queries": 150, "min_duration": "2s"}}
    whole = get(**load, client={"retry": {"on": [503], "max": 2, "backoff": "20ms..200ms"}})
    whole["target"]["options"]["traceparent"] = "50%"
    found = run(tmp_path, f"{server.url}/few/short", whole)
    told = pq.read_table(next(tmp_path.glob("r*/requests.parquet")), columns=["request_id", "trace_id"]).to_pydict()
    traces = dict(zip(told["request_id"], told["trace_id"], strict=True))
    becomes(lambda: len(server.logged(200) + server.logged(503)), found.report["client"]["attempts"])
    lines = [line.split() for line in (server.folder / "access.log").read_text().splitlines()]
    sent = [(line[1], *line[5].split("-")) for line in lines]
    assert {(request, trace) for request, _, trace, _, _ in sent} == set(traces.items())
    assert len({span for *_, span, _ in sent}) == len(sent) > len(traces)
    marked = {trace for _, _, trace, _, flags in sent if flags == "01"}
    assert marked.isdisjoint(trace for _, _, trace, _, flags in sent if flags == "00")
    assert 0.3 < len(marked) / len(traces) < 0.7


def test_a_graceful_reload_loses_nothing(server: Server, tmp_path: Path) -> None:
    server.afresh()
    load = {"kind": "server", "params": {"rate": 100}, "stop": {"min_queries": 100, "min_duration": "5s"}}
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run, tmp_path, f"{server.url}/text", get(**load))
        holding(lambda: len(server.logged(200)), 1)
        for _ in range(4):
            time.sleep(0.8)
            server.process.send_signal(signal.SIGHUP)
        found = answered(going.result())
    assert server.logged(200) == sorted(found.request_ids)


def connections(port: int) -> int:
    """Established connections of this machine whose local port this is."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[1].endswith(f":{port:04X}") and line[3] == "01" for line in lines)


def test_answers_of_a_killed_worker_are_no_successes(server: Server, tmp_path: Path) -> None:
    server.afresh()
    load = {"kind": "server", "params": {"rate": 10}, "stop": {"min_queries": 10, "min_duration": "1s"}}
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run, tmp_path, f"{server.url}/slow", get(**load))
        holding(lambda: connections(int(server.url.rsplit(":", 1)[1])), 10)
        for worker in plimsoll.children(server.process.pid, "worker process"):
            os.kill(worker, signal.SIGKILL)
        found = going.result()
    assert found.statuses <= {Status.CONNECT, Status.PROTOCOL}, found.errors
    assert (found.records["bytes_in"] > 0).any()
    assert server.logged(200) == []


def test_the_log_says_200_of_an_answer_that_nobody_waited_for(server: Server, tmp_path: Path) -> None:
    server.afresh()
    stop = {"min_queries": 2, "min_duration": "1ms"}
    found = run(tmp_path, f"{server.url}/slow", get(stop=stop), "--timeout", "1s")
    assert found.statuses == {Status.TIMEOUT}
    becomes(lambda: len(server.logged(200)), len(found.records))
    assert server.logged(200) == sorted(found.request_ids)


def test_a_stream_whose_upstream_dies_is_no_success_behind_a_proxy(server: Server, tmp_path: Path) -> None:
    """Its access log says 200 of it."""
    scenario = {
        "source": {"kind": "synthetic_text", "count": 4, "prompt_tokens": 8, "output_tokens": 200},
        "target": {"protocol": "openai-chat", "model": "scripted"},
        "stop": {"min_queries": 3, "min_duration": "1ms"},
    }
    with plimsoll.server("--model", "scripted", "--ttft", "20ms", "--itl", "20ms") as upstream:
        conf = server.folder / "nginx.conf"
        conf.write_text(re.sub(r"proxy_pass \S+;", f"proxy_pass {upstream.url};", conf.read_text()))
        server.process.send_signal(signal.SIGHUP)
        server.afresh()
        quick = {**scenario, "source": {**scenario["source"], "output_tokens": 5}}
        found = answered(run(tmp_path, server.url, quick))
        assert server.logged(200) == sorted(found.request_ids)
        assert set(found.records["n_out"]) == {5}
        assert set(upstream.truth()) == set(found.request_ids)
        with ThreadPoolExecutor(1) as pool:
            server.afresh()
            going = pool.submit(run, tmp_path, server.url, scenario)
            holding(lambda: len(upstream.truth()) - len(found.request_ids), 1)
            upstream.kill()
            cut = going.result()
    assert Status.OK not in cut.statuses
    assert cut.ids(Status.PROTOCOL, Status.CONNECT) == server.logged(200)
    assert "502" in str(cut.errors[-1])
