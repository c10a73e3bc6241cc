"""One round of each contestant: run it pinned, read what it did, give plain figures. It compares nothing.

The figures of a round: ``requests_per_s``, ``events_per_s`` and ``queries_per_s``; ``cpu_us`` client processor time a
request or a query; ``events_per_cpu_s`` token events per second of it; ``server`` the server's share of its core.

A rate is what was done within the seconds of the load, divided by them: what is still in flight then is waited for, and
counts for the processor time only.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tests.bench import pinned
from tests.bench.loopback import TOKENS
from tests.bench.servers import Server

Round = dict[str, float]

SMALL = json.dumps({"prompt": "hello", "id": 1})
CHAT = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": TOKENS}
)
CHAT_PATH = "/v1/chat/completions"
NULL_QUERIES = 200_000
_OK = "OK"

_LUA = """wrk.method = "POST"
wrk.body = %s
wrk.headers["Content-Type"] = "application/json"
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\n{"requests": %%d, "bytes": %%d, "us": %%d, "errors": %%d}\\n', summary.requests,
    summary.bytes, summary.duration, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Bench:
    """What every round shares: the cores and how long a load lasts."""

    cores: pinned.Cores
    seconds: float


def missing(contestant: str) -> str | None:
    """How to get a contestant that isn't installed; None when it is."""
    if contestant == "wrk" and shutil.which("wrk") is None:
        return "wrk is not installed: get it from the distribution's packages (Debian: apt-get install wrk)"
    if (
        contestant == "nginx"
        and shutil.which("nginx", path="/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin") is None
    ):
        return "nginx is not installed: get it from the distribution's packages (Debian: apt-get install nginx-light)"
    if contestant == "LoadGen" and importlib.util.find_spec("mlperf_loadgen") is None:
        return "mlcommons-loadgen is not installed: make setup installs it where it has a wheel"
    return None


# -- wrk ------------------------------------------------------------------------------------------------------------


def _wrk(bench: Bench, url: str, body: str, connections: int) -> tuple[dict[str, float], float]:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_LUA % json.dumps(body))
        script.flush()
        command = [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{round(bench.seconds)}",
            "--timeout",
            "20",
            "-s",
            script.name,
            url,
        ]
        done = pinned.run(command, bench.cores.client)
    told = json.loads(done.output.strip().splitlines()[-1])
    if told["errors"] or not told["requests"]:
        raise RuntimeError(f"wrk counted {told['errors']} errors in {told['requests']} requests of {url}")
    return told, done.cpu_s


def wrk_small(bench: Bench, server: Server) -> Round:
    before = server.cpu_s()
    told, cpu_s = _wrk(bench, f"{server.url}/small", SMALL, 64)
    seconds = told["us"] / 1e6
    return {
        "requests_per_s": told["requests"] / seconds,
        "cpu_us": cpu_s / told["requests"] * 1e6,
        "server": (server.cpu_s() - before) / seconds,
    }


def wrk_sse(bench: Bench, server: Server, streams: int, path: str, stream_bytes: int) -> Round:
    """wrk takes the chunks apart and drops them: what C costs without stamps and records.

    Events by the bytes it read.
    """
    before = server.cpu_s()
    told, cpu_s = _wrk(bench, f"{server.url}{path}", CHAT, streams)
    seconds, events = told["us"] / 1e6, told["bytes"] / stream_bytes * TOKENS
    return {
        "events_per_s": events / seconds,
        "events_per_cpu_s": events / cpu_s,
        "server": (server.cpu_s() - before) / seconds,
    }


# -- aiohttp --------------------------------------------------------------------------------------------------------


def _aiohttp(bench: Bench, server: Server, mode: str, path: str, tasks: int) -> tuple[dict[str, float], float]:
    before = server.cpu_s()
    body = {"small": SMALL, "sse": CHAT}[mode]
    spec = {"mode": mode, "url": server.url + path, "body": body, "tasks": tasks, "seconds": bench.seconds}
    done = pinned.run([sys.executable, "-m", "tests.bench.aiohttp_client", json.dumps(spec)], bench.cores.client)
    return json.loads(done.output), server.cpu_s() - before


def aiohttp_small(bench: Bench, server: Server) -> Round:
    told, served_s = _aiohttp(bench, server, "small", "/small", 64)
    rate = told["requests_in_time"] / bench.seconds
    return {
        "requests_per_s": rate,
        "cpu_us": told["cpu_s"] / told["requests"] * 1e6,
        "server": served_s / told["requests"] * rate,
    }


def aiohttp_sse(bench: Bench, server: Server, streams: int, path: str) -> Round:
    told, served_s = _aiohttp(bench, server, "sse", path, streams)
    if told["events"] != told["requests"] * TOKENS:
        raise RuntimeError(f"aiohttp: {told['events']:.0f} events of {told['requests']:.0f} streams")
    rate = told["events_in_time"] / bench.seconds
    return {
        "events_per_s": rate,
        "events_per_cpu_s": told["events"] / told["cpu_s"],
        "server": served_s / told["events"] * rate,
    }


# -- Plimsoll -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run of ours: complete records, and what the worker used from t0 to its end (last segment on disk)."""

    rows: int
    events: int
    rows_in_time: int
    events_in_time: int
    issue_s: float
    worker_s: float
    engine_s: float


def plimsoll(bench: Bench, *arguments: str) -> Run:
    """``plimsoll run`` with one worker, all of its processes on the client's core.

    Raises RuntimeError if a record lacks.
    """
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as folder:
        out = Path(folder, "run")
        command = [sys.executable, "-m", "plimsoll", "run", "--workers", "1", "--out", str(out), "--json", *arguments]
        child = pinned.start(command, bench.cores.client)
        watch = pinned.Watch(child.pid, "plimsoll.harness.generator.worker")
        done = pinned.finish(child)
        if done.code not in (0, 4):  # at full load a run may be INVALID: its speed counts here
            raise RuntimeError(f"plimsoll ended with code {done.code}: {done.output[-500:]}")
        t0_ns = json.loads((out / "manifest.json").read_text())["t0_monotonic_ns"]
        return _read(out, json.loads(done.output), watch.since(t0_ns), round(bench.seconds * 1e9))


def _read(out: Path, report: dict[str, Any], worker_s: float, window_ns: int) -> Run:
    table = pq.read_table(out / "requests.parquet", columns=["status", "due_ns", "sent_ns", "done_ns"])
    sent, done = (np.asarray(table[name]) for name in ("sent_ns", "done_ns"))
    statuses = set(table["status"].unique().to_pylist())
    if len(table) != report["validity"]["sent"] or statuses != {_OK}:
        raise RuntimeError(f"plimsoll: {len(table)} records of {report['validity']['sent']} sent, {statuses}")
    chunks = pq.read_table(out / "chunks.parquet", columns=["chunk_ns"])["chunk_ns"]
    events = np.concatenate([np.empty(0, np.int64), *(np.asarray(part.flatten()) for part in chunks.chunks)])
    facts = json.loads((out / "generator.json").read_text())["facts"]
    engine = sum(facts["engine_cpu"]) * facts["watched_ns"] / 1e9
    in_time, events_in_time = int((done <= window_ns).sum()), int((events <= window_ns).sum())
    return Run(len(table), len(events), in_time, events_in_time, int(np.ptp(sent)) / 1e9, worker_s, engine)


def plimsoll_small(bench: Bench, server: Server) -> Round:
    before = server.cpu_s()
    run = plimsoll(
        bench, "--url", server.url, "--protocol", "http", "--option", f"body_text='{SMALL}'", "--option", "path=/small",
        "--kind", "concurrency", "--concurrency", "64", "--queries", "1", "--duration", f"{bench.seconds}s",
    )  # fmt: skip
    rate = run.rows_in_time / bench.seconds
    return {
        "requests_per_s": rate,
        "cpu_us": run.worker_s / run.rows * 1e6,
        "engine_us": run.engine_s / run.rows * 1e6,
        "server": (server.cpu_s() - before) / run.rows * rate,
    }


def plimsoll_sse(bench: Bench, server: Server, streams: int, path: str) -> Round:
    before = server.cpu_s()
    run = plimsoll(
        bench, "--url", server.url, "--protocol", "openai-chat", "--model", "m", "--option", f"path={path}",
        "--output-tokens", str(TOKENS), "--prompt-tokens", "8", "--kind", "concurrency", "--concurrency", str(streams),
        "--queries", "1", "--duration", f"{bench.seconds}s",
    )  # fmt: skip
    if run.events != run.rows * TOKENS:
        raise RuntimeError(f"plimsoll: {run.events} events of {run.rows} streams")
    rate = run.events_in_time / bench.seconds
    return {
        "events_per_s": rate,
        "events_per_cpu_s": run.events / run.worker_s,
        "engine_events_per_cpu_s": run.events / run.engine_s if run.engine_s else float("nan"),
        "server": (server.cpu_s() - before) / run.events * rate,
    }


# -- issue loops, nothing at the other end --------------------------------------------------------------------------


def plimsoll_null(bench: Bench, kind: str) -> Round:
    rate = ("--rate", "2000000") if kind == "server" else ()
    run = plimsoll(
        bench, "--protocol", "null", "--kind", kind, *rate, "--queries", str(NULL_QUERIES), "--duration", "0s",
    )  # fmt: skip
    return {"queries_per_s": run.rows / run.issue_s, "cpu_us": run.worker_s / run.rows * 1e6}


def loadgen(bench: Bench, scenario: str) -> Round:
    command = [sys.executable, "-m", "tests.bench.loadgen_issue", scenario, str(NULL_QUERIES)]
    told = json.loads(pinned.run(command, bench.cores.client).output)
    return {"queries_per_s": told["queries"] / told["seconds"], "cpu_us": told["cpu_s"] / told["queries"] * 1e6}
