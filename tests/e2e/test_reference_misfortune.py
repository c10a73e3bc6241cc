"""Every misfortune of the reference server, seen by a load generator that knows nothing of it.

Each test puts a fault in force on a running server by the admin call, sends it real load with `plimsoll run`, and finds
in the report what an engineer is told to look for (docs/reference/reference-server.md, Faults). Runs last about a
second. Times are compared within a run, or with a run without the fault, and by amounts that a busy host does not make
up.
"""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pyarrow.parquet as pq
import pytest

from tests.e2e.plimsoll import ROOT, Server, plimsoll_here, server

pytestmark = pytest.mark.e2e

MS = 1_000_000
TTFT_MS, ITL_MS = 20, 5
SCRIPTED = """
name: scripted
kind: server
params: {rate: 40, arrival: constant}
target: {model: scripted}
source: {kind: synthetic_text, unit: bytes, prompt_tokens: 16, output_tokens: 8, count: 4}
stop: {min_queries: 1, min_duration: 1s}
warmup: 0s
timeout: 1500ms
"""
LLM = """
name: llm
kind: concurrency
params: {concurrency: 4}
target: {model: llm, options: {exact_output: true}}
source: {kind: synthetic_text, unit: bytes, prompt_tokens: 24, output_tokens: 40, count: 64}
stop: {min_queries: 16, min_duration: 800ms}
warmup: 0s
timeout: 20s
"""


EMBEDDER = """
name: embedder
kind: server
params: {rate: 30, arrival: constant}
target: {model: embedder, protocol: openai-embeddings}
source: {kind: synthetic_text, unit: bytes, prompt_tokens: 24, count: 16}
stop: {min_queries: 1, min_duration: 1s}
warmup: 0s
timeout: 20s
"""
QUALITY = """
name: quality
kind: single_stream
mode: accuracy
target: {model: llm, protocol: openai-completions}
source: {kind: jsonl, path: prompts.jsonl, output_tokens: 24}
timeout: 20s
objectives: [accuracy(exact_match) >= 95%]
"""


@dataclass
class Run:
    """What one run of the load generator says."""

    report: dict[str, Any]
    rows: list[dict[str, Any]]
    folder: Path

    def ms(self, metric: str, quantile: str = "p50") -> float:
        """A quantile of a metric in milliseconds."""
        value = self.report["metrics"][metric][quantile]
        return float("inf") if value is None else value / MS

    @property
    def by_status(self) -> dict[str, int]:
        return dict(self.report["counts"]["by_status"])

    @property
    def errors(self) -> str:
        return " ".join(error["text"] for error in self.report["counts"]["errors"])

    def latencies_ms(self) -> list[float]:
        return [(row["done_ns"] - row["due_ns"]) / MS for row in self.rows if row["status"] == "OK"]


def run(target: Server | str, folder: Path, scenario: str, *arguments: str, out: str = "r") -> Run:
    """One run to its end, whatever its verdict."""
    (folder / f"{out}.yaml").write_text(scenario)
    url = target if isinstance(target, str) else target.url
    done = plimsoll_here("run", f"{out}.yaml", "--url", url, "--out", out, *arguments, cwd=folder)
    assert done.returncode in (0, 1, 3, 4), done.stderr
    report = json.loads((folder / out / "report.json").read_text())
    return Run(report, pq.read_table(folder / out / "requests.parquet").to_pylist(), folder / out)


def admin(target: Server, method: str, path: str = "/admin/faults", body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(target.url + path, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


@contextmanager
def suffering(target: Server, *faults: str) -> Iterator[dict[str, int]]:
    """The faults in force, from the next request on; at the end gone, and how often each struck is filled in."""
    hits: dict[str, int] = {}
    for fault in faults:
        placed = admin(target, "POST", body={"fault": fault, "from": "request"})
        assert placed["fault"].startswith(fault.partition("=")[0])
    try:
        yield hits
        hits.update((fault["fault"].partition("=")[0], fault["hits"]) for fault in admin(target, "GET")["faults"])
    finally:
        admin(target, "DELETE")


def metric(target: Server, name: str) -> float:
    """The sum of a metric of the server's own over its labels."""
    with urllib.request.urlopen(f"{target.url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))


@pytest.fixture(scope="module")
def scripted() -> Iterator[Server]:
    with server("--model", "scripted", "--ttft", f"{TTFT_MS}ms", "--itl", f"{ITL_MS}ms") as found:
        yield found


@pytest.fixture(scope="module")
def llm() -> Iterator[Server]:
    with server(
        "--model", "llm", "--model", "embedder", "--kv-blocks", "96", "--block-size", "8", "--step-tokens", "32"
    ) as found:
        yield found


def test_jitter_shows_in_the_tail_of_itl(scripted: Server, tmp_path: Path) -> None:
    with suffering(scripted, "jitter=15ms") as hits:
        seen = run(scripted, tmp_path, SCRIPTED)
    assert hits["jitter"] == 8 * len(seen.rows)
    assert seen.ms("itl", "p99") - seen.ms("itl") > 15  # the timetable has 5 ms between any two
    assert seen.ms("ttft") > TTFT_MS + 5


def test_broken_connections_are_told_apart(scripted: Server, tmp_path: Path) -> None:
    with suffering(scripted, "cut=0.5", "reset=0.4", "half_open=0.2") as hits:
        seen = run(scripted, tmp_path, SCRIPTED)
    assert set(seen.by_status) == {"OK", "PROTOCOL", "CONNECT", "TIMEOUT"}
    assert seen.by_status["TIMEOUT"] == hits["half_open"] > 0
    for row in seen.rows:
        assert ("reset by peer" in str(row["error"])) is (row["status"] == "CONNECT"), row["error"]


def test_bursts_of_refusals_and_a_wrong_content_type_have_a_status_each(scripted: Server, tmp_path: Path) -> None:
    with suffering(scripted, "reject=for:200ms,every:500ms,status:429", "content_type=0.5") as hits:
        seen = run(scripted, tmp_path, SCRIPTED)
    assert set(seen.by_status) == {"OK", "REFUSED", "PROTOCOL"}
    assert seen.by_status["REFUSED"] == hits["reject"]
    refused = [row["due_ns"] // (100 * MS) % 5 for row in seen.rows if row["status"] == "REFUSED"]
    assert Counter(refused).most_common(1)[0][1] > len(refused) / 4  # they come together
    assert "HTTP 429" in seen.errors
    assert "the body is not JSON: data:" in seen.errors


def test_a_slow_drip_spoils_what_comes_after_the_first_byte(scripted: Server, tmp_path: Path) -> None:
    with suffering(scripted, "slow_drip=p:0.5,bytes:48,by:5ms") as hits:
        seen = run(scripted, tmp_path, SCRIPTED)
    tpot = {row["query_id"]: (row["last_token_ns"] - row["first_token_ns"]) / 7 / MS for row in seen.rows}
    slow = [value for value in tpot.values() if value > 2 * ITL_MS]
    assert len(slow) == pytest.approx(hits["slow_drip"], abs=2)
    assert statistics.median(slow) > 15
    assert seen.ms("ttfb") < TTFT_MS  # the header's first piece is there at once


def test_a_stalled_replica_makes_two_kinds_of_requests_and_a_leak_only_memory(scripted: Server, tmp_path: Path) -> None:
    before = metric(scripted, "reference_resident_bytes")
    with suffering(scripted, "stalled_replica=n:3,by:400ms", "memory_leak=per:4MiB,cap:96MiB") as hits:
        seen = run(scripted, tmp_path, SCRIPTED)
        grown = metric(scripted, "reference_resident_bytes") - before
    assert hits["stalled_replica"] == len(seen.rows) // 3
    latencies = sorted(seen.latencies_ms())
    slow = latencies[-hits["stalled_replica"] :]
    assert slow[0] > 400
    assert statistics.median(latencies[: -len(slow)]) < 300
    assert hits["memory_leak"] == 24  # and no more: the cap
    assert grown > 80 << 20
    assert metric(scripted, "reference_resident_bytes") - before < grown / 2


def test_a_queue_that_builds_up_shows_in_ttft_and_not_in_tpot(scripted: Server, tmp_path: Path) -> None:
    with suffering(scripted, "queue_build_up=slots:1,for:600ms"):
        seen = run(scripted, tmp_path, SCRIPTED)
    by_due = sorted((row["due_ns"], row["first_token_ns"] - row["due_ns"]) for row in seen.rows)
    first, at_its_worst, last = (by_due[i][1] / MS for i in (0, len(by_due) // 4, -1))
    assert at_its_worst > first + 100  # every request of the 600 ms waits longer than the one before
    assert last < at_its_worst - 100  # and it drains
    assert seen.ms("tpot") == pytest.approx(ITL_MS, abs=1)


def impatient(target: Server, until_s: float, n: int) -> tuple[int, int]:
    """n clients that take an answer each and ask anew at once, refused or not: their attempts and answers."""
    attempts, answers = [0] * n, [0] * n

    def client(i: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", int(target.url.rsplit(":", 1)[1]), timeout=10)
        body = json.dumps({"model": "scripted", "prompt": "hi", "max_tokens": 8})
        while time.monotonic() < until_s:
            connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            attempts[i] += 1
            answers[i] += answer.status == 200
            if answer.status == 503:
                assert answer.getheader("Retry-After") == "0"
        connection.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(attempts), sum(answers)


def test_a_retry_storm_multiplies_attempts_and_starves_a_bystander(scripted: Server, tmp_path: Path) -> None:
    attempts, answers = impatient(scripted, time.monotonic() + 0.5, 8)
    assert attempts == answers
    calm_per_s = attempts / 0.5
    with suffering(scripted, "retry_storm=limit:4,cost:3ms"):
        storm: list[tuple[int, int]] = []
        begun_s = time.monotonic()
        ended = threading.Event()
        thread = threading.Thread(target=lambda: storm.append(_until(scripted, ended)))
        thread.start()
        seen = run(scripted, tmp_path, SCRIPTED)
        ended.set()
        thread.join()
        elapsed_s = time.monotonic() - begun_s
    attempts, answers = storm[0]
    assert attempts > 2 * answers
    assert answers / elapsed_s < calm_per_s
    assert seen.by_status.get("REFUSED", 0) > len(seen.rows) / 4
    ok_ms = seen.latencies_ms()
    assert not ok_ms or statistics.median(ok_ms) > TTFT_MS + 7 * ITL_MS


def _until(target: Server, ended: threading.Event) -> tuple[int, int]:
    attempts = answers = 0
    while not ended.is_set():
        more, good = impatient(target, time.monotonic() + 0.25, 8)
        attempts, answers = attempts + more, answers + good
    return attempts, answers


def test_a_slow_start_is_published_and_load_that_comes_meanwhile_is_refused(tmp_path: Path) -> None:
    with server("--model", "scripted", "--fault", "slow_start=weights:300ms,warm_up:200ms") as started:
        with urllib.request.urlopen(f"{started.url}/metrics", timeout=10) as answer:
            page = answer.read().decode()
        phases = {
            phase: float(page.split(f'seconds{{phase="{phase}"}} ')[1].split()[0]) for phase in ("weights", "warm_up")
        }
        assert phases["weights"] >= 0.3
        assert phases["warm_up"] >= 0.2
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "plimsoll.reference_server", "--http-port", str(port), "--model", "scripted"]
    with subprocess.Popen(
        [*command, "--fault", "slow_start=weights:1m"], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_until_it_listens(port)
            seen = run(f"http://127.0.0.1:{port}", tmp_path, SCRIPTED)
        finally:
            process.kill()
    assert seen.by_status == {"REFUSED": len(seen.rows)}
    assert "the server is starting" in seen.errors


def wait_until_it_listens(port: int) -> None:
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server never listened")


def gaps_ms(seen: Run) -> list[float]:
    """The times between tokens of one answer, of all answers."""
    chunks = pq.read_table(seen.folder / "chunks.parquet").to_pylist()
    return [(b - a) / MS for row in chunks for a, b in itertools.pairwise(row["chunk_ns"])]


def test_one_straggler_slows_everyone_in_its_batch(llm: Server, tmp_path: Path) -> None:
    many = LLM.replace("output_tokens: 40", "output_tokens: 16").replace("min_queries: 16", "min_queries: 32")
    with suffering(llm, "straggler=p:0.2,by:40ms") as hits:
        seen = run(llm, tmp_path, many)
    assert hits["straggler"] > 0
    slow = [gap for gap in gaps_ms(seen) if gap > 38]
    assert len(slow) > 1.5 * hits["straggler"]  # a slow step is slow for its company too
    assert seen.ms("tpot", "max") > 38  # and a straggler pays at every token


def test_a_noisy_neighbour_comes_and_goes(llm: Server, tmp_path: Path) -> None:
    with suffering(llm, "noisy_neighbour=factor:15,for:150ms,every:500ms") as hits:
        seen = run(llm, tmp_path, LLM)
    assert hits["noisy_neighbour"] > 0
    long = [gap for gap in gaps_ms(seen) if gap > 6 * seen.ms("itl")]
    assert len(long) >= hits["noisy_neighbour"]
    assert len(long) < len(gaps_ms(seen)) / 4  # most of the time it is quiet


def mixture(folder: Path, *rows: dict[str, Any]) -> str:
    """The scenario with prompts of several lengths, numbered so that no two are alike, each sent once."""
    numbered = [{**row, "prompt": f"{i} {row['prompt']}"} for i, row in enumerate(rows)]
    (folder / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbered))
    source = next(line for line in LLM.splitlines() if line.startswith("source:"))
    scenario = LLM.replace(source, "source: {kind: jsonl, path: mixed.jsonl, output_tokens: 20}")
    return scenario.replace("min_queries: 16", f"min_queries: {len(rows)}")


def test_a_whole_prompt_stalls_everyone_who_decodes(llm: Server, tmp_path: Path) -> None:
    short = [
        {"prompt": "short", "max_output_tokens": n} for n in (20, 35, 50, 65, 80)
    ]  # so that they don't end at one time
    long = {"prompt": "long " * 60, "max_output_tokens": 1}
    with suffering(llm, "prefill_stall") as hits:
        seen = run(llm, tmp_path, mixture(tmp_path, *([*short, long] * 4)))
    assert hits["prefill_stall"] > 0
    # Each of four long prompts stalls up to three others. In pieces of 32 tokens it takes ten steps of about twice the
    # median.
    assert sorted(gaps_ms(seen))[-8] > 5 * seen.ms("itl")


def test_kv_thrash_shows_in_the_pre_emptions_and_in_a_gap_for_each(llm: Server, tmp_path: Path) -> None:
    before, computed = metric(llm, "reference_preempted"), metric(llm, "reference_computed_tokens_total")
    with suffering(llm, "kv_thrash=0.3"):
        seen = run(llm, tmp_path, LLM.replace("prompt_tokens: 24", "prompt_tokens: 160"))
    n_preempted = metric(llm, "reference_preempted") - before
    assert n_preempted > 5
    needed = sum(row["n_in"] + row["n_out"] for row in seen.rows)
    assert metric(llm, "reference_computed_tokens_total") - computed > 2 * needed
    assert seen.by_status == {"OK": len(seen.rows)}  # late, but whole
    long = [gap for gap in gaps_ms(seen) if gap > 4 * seen.ms("itl")]
    assert len(long) > n_preempted / 2


def test_a_long_context_runs_out_of_memory_and_takes_its_company_with_it(llm: Server, tmp_path: Path) -> None:
    short, long = {"prompt": "short"}, {"prompt": "long " * 60}
    with suffering(llm, "long_oom=200") as hits:
        seen = run(llm, tmp_path, mixture(tmp_path, *([*[short] * 5, long] * 5)))
    assert set(seen.by_status) == {"OK", "HTTP"}
    assert seen.by_status["HTTP"] > hits["long_oom"] > 0  # more fail than are too long
    assert "out of memory at a sequence of" in seen.errors


def test_quality_is_lost_on_a_slice_of_prompts_which_is_answered_sooner(llm: Server, tmp_path: Path) -> None:
    prompts = [f"Question {i}: how much is {i} times {i}?" for i in range(40)]
    body = {"model": "llm", "prompt": prompts, "max_tokens": 24}
    rows = []
    for prompt in prompts:
        answer = admin(llm, "POST", "/v1/completions", {**body, "prompt": prompt})
        rows.append({"prompt": prompt, "reference": answer["choices"][0]["text"]})
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with suffering(llm, "quality=slice:0.3") as hits:
        seen = run(llm, tmp_path, QUALITY)
    outputs = pq.read_table(seen.folder / "outputs.parquet").to_pylist()
    wrong = {row["query_id"] for row in outputs if row["text"] != json.loads(row["expected"])}
    assert 4 < len(wrong) == hits["quality"] < 22
    (objective,) = seen.report["verdict"]["objectives"]
    assert objective["observed"] == 1 - len(wrong) / len(prompts)
    tpot: dict[bool, list[float]] = {True: [], False: []}
    for row in seen.rows:
        tpot[row["query_id"] in wrong].append((row["last_token_ns"] - row["first_token_ns"]) / max(1, row["n_out"] - 1))
    wrong_ns, right_ns = (statistics.quantiles(tpot[kind], n=4)[0] for kind in (True, False))
    assert wrong_ns < 0.85 * right_ns


def test_a_batch_window_is_a_tax_on_every_request_at_low_load(llm: Server, tmp_path: Path) -> None:
    with suffering(llm, "batch_window=by:120ms,for:500ms,every:5s") as hits:
        seen = run(llm, tmp_path, EMBEDDER)
    assert hits["batch_window"] > 0
    taxed = [(row["done_ns"] - row["due_ns"]) / MS for row in seen.rows if row["due_ns"] < 300 * MS]
    free = [(row["done_ns"] - row["due_ns"]) / MS for row in seen.rows if row["due_ns"] > 700 * MS]
    assert statistics.median(taxed) > statistics.median(free) + 25
    assert max(taxed[:4]) > 100


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "part"),
    [
        ("POST", "", {"fault": "explode"}, {}, 400, "unknown fault. Known: stall"),
        ("POST", "", {"fault": "cut=p:7"}, {}, 400, "p must lie between 0 and 1"),
        ("POST", "", {"fault": "kv_thrash"}, {}, 400, "strikes only llm; served here: scripted"),
        ("POST", "", {"fault": "slow_start=1s"}, {}, 400, "Give it at start: --fault slow_start=import:0s,weights:1s"),
        ("POST", "", {"fault": "cut", "until": 3}, {}, 400, "until: unknown"),
        ("POST", "", {"fault": "cut", "from": "now"}, {}, 400, "must be call (now) or request"),
        ("POST", "", ["cut"], {}, 400, "must be a JSON object"),
        ("POST", "", {"fault": "x" * 5000}, {}, 413, "limit of 4096 bytes"),
        ("POST", "", {"fault": "cut"}, {"Origin": "http://example.org"}, 403, "not changed from web pages"),
        ("DELETE", "/f99", None, {}, 404, "no fault has the id 'f99'. In force: none"),
        ("PUT", "", {}, {}, 405, "Method Not Allowed"),
    ],
)
def test_a_bad_admin_call_says_what_is_wrong(
    scripted: Server, method: str, path: str, body: Any, headers: dict[str, str], status: int, part: str
) -> None:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{scripted.url}/admin/faults{path}", data, headers, method=method)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    with caught.value as answer:
        assert answer.code == status
        assert part in json.loads(answer.read())["error"]["message"]
    assert admin(scripted, "GET") == {"faults": []}


def test_one_fault_is_taken_away_and_the_others_stay(scripted: Server) -> None:
    with suffering(scripted, "slow_headers=1ms", "cut=0"):
        first, second = admin(scripted, "GET")["faults"]
        assert first["hits"] == second["hits"] == 0
        assert first["acts"] is False  # from the next request on
        assert admin(scripted, "DELETE", f"/admin/faults/{first['id']}")["faults"] == [first]
        assert admin(scripted, "GET")["faults"] == [second]


def test_the_openai_client_honours_retry_after_and_comes_back(scripted: Server) -> None:
    with suffering(scripted, "reject=for:500ms,status:429,retry_after:1s") as hits:
        begun_s = time.monotonic()
        with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=2) as client:
            answer = client.completions.create(model="scripted", prompt="hi", max_tokens=2)
        elapsed_s = time.monotonic() - begun_s
    assert answer.choices[0].text
    assert hits["reject"] == 1  # its second try came after the burst
    assert elapsed_s > 0.9
