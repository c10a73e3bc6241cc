"""vLLM's CPU build with a random llama: its text protocols, held against its own counters; a SIGTERM in mid-answer."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.interop.driven import SERVERS, Run, answered, becomes, binary, free_ports, holding, metric, run, running

pytestmark = pytest.mark.e2e

LONG = 12_000  # tokens: more than a minute of an answer, so that eight can be in the air at once


@dataclass(frozen=True)
class Server:
    url: str
    process: subprocess.Popen[bytes]

    def counted(self, name: str, **labels: str) -> float:
        return metric(f"{self.url}/metrics", f"vllm:{name}", **labels)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    python, folder, (port,) = binary("vllm"), tmp_path_factory.mktemp("vllm"), free_ports(1)
    env = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
    env |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    made = [python, str(SERVERS / "tiny_llama.py"), "tiny"]
    subprocess.run(made, cwd=folder, env={**os.environ, **env}, check=True, timeout=120, capture_output=True)
    # Not the program `vllm`: it asks for the metadata of a distribution of that name, and this one is called vllm-cpu.
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", "tiny", "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", "16384", "--max-num-seqs", "8"]
    with running(command, f"http://127.0.0.1:{port}/health", folder, env, patience_s=240) as process:
        yield Server(f"http://127.0.0.1:{port}", process)


def scenario(protocol: str, tokens: int = 12, **options: Any) -> dict[str, Any]:
    source = {"kind": "synthetic_text", "count": 4, "prompt_tokens": 8, "output_tokens": tokens}
    return {"source": source, "target": {"protocol": protocol, "model": "tiny", "options": options}}


DIALECTS = ["openai-chat", "openai-completions", "openai-responses", "anthropic-messages"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", DIALECTS)
def test_rows_and_tokens_are_the_servers_own_counts(
    server: Server, protocol: str, stream: bool, tmp_path: Path
) -> None:
    names = ("request_success_total", "prompt_tokens_total", "generation_tokens_total")
    before = [server.counted(name) for name in names]
    found = answered(run(tmp_path, server.url, scenario(protocol, stream=stream)))
    rows = found.records
    for name, was, more in zip(names, before, (len(rows), rows["n_in"].sum(), rows["n_out"].sum()), strict=True):
        becomes(lambda name=name: server.counted(name), was + more)  # type: ignore[misc]
    assert set(rows["n_out"]) == {12}
    assert ("ttft" in found.report["metrics"]) is stream
    if stream:
        assert (rows["first_token_ns"] > 0).all()
        assert (rows["n_chunks"] >= 2).all()


def test_for_what_is_cancelled_the_server_stops_working(server: Server, tmp_path: Path) -> None:
    """Of the cancelled it counts hardly any, under ``abort``: what it counts as ended by length is the rows that are
    OK.
    """
    before = {name: server.counted("request_success_total", finished_reason=name) for name in ("length", "abort")}
    tokens = server.counted("generation_tokens_total")
    whole = scenario("openai-chat", 300, exact_output=True)
    whole |= {"cancel": {"share": 0.5, "after": "150ms"}, "stop": {"min_queries": 8, "min_duration": "100ms"}}
    found = run(tmp_path, server.url, whole)
    assert found.statuses == {Status.OK, Status.CANCELLED}, found.errors
    ended = found.records["status"] == Status.OK
    becomes(lambda: server.counted("request_success_total", finished_reason="length"), before["length"] + ended.sum())
    becomes(lambda: server.counted("num_requests_running"), 0)
    assert (found.records["n_out"][ended] == 300).all()
    aborted = server.counted("request_success_total", finished_reason="abort") - before["abort"]
    assert aborted <= (~ended).sum()
    assert server.counted("generation_tokens_total") - tokens < 300 * len(found.records)


def test_a_request_that_it_refuses_keeps_its_words(server: Server, tmp_path: Path) -> None:
    whole = scenario("openai-chat")
    whole["source"]["prompt_tokens"] = 20_000  # longer than the context
    found = run(tmp_path, server.url, whole)
    assert found.statuses == {Status.HTTP}
    assert "context length" in str(found.errors[0])


def test_answers_that_a_sigterm_cuts_are_no_successes(server: Server, tmp_path: Path) -> None:
    """All dialects are in the air when the server is told to go: it says an error, or lies, or goes silent.

    Of a ``response.completed`` that lies the protocol says that it is whole: only the number of its tokens tells.
    """

    def sent(case: tuple[str, bool]) -> Run:
        protocol, stream = case
        folder = tmp_path / f"{protocol}-{stream}"
        folder.mkdir()
        exact = {} if protocol == "anthropic-messages" else {"exact_output": True}
        whole = scenario(protocol, LONG, stream=stream, **exact)
        whole["stop"] = {"min_queries": 1, "min_duration": "1ms"}
        return run(folder, server.url, whole, "--timeout", "45s")

    cases = [*((protocol, True) for protocol in DIALECTS), ("openai-chat", False), ("openai-responses", False)]
    before = server.counted("generation_tokens_total")
    with ThreadPoolExecutor(len(cases)) as pool:
        runs = pool.map(sent, cases)
        holding(lambda: server.counted("num_requests_running"), len(cases))
        holding(lambda: server.counted("generation_tokens_total"), before + 100 * len(cases))
        server.process.send_signal(signal.SIGTERM)
        for case, found in zip(cases, runs, strict=True):
            lied = len(found.ids(Status.OK)) if case[0] == "openai-responses" else 0
            assert lied == len(found.ids(Status.OK)), (case, found.records["n_out"])
            assert found.report["counts"]["short_of_asked"] == lied, (case, found.records["n_out"])
            assert found.records["n_out"][0] < LONG, case
