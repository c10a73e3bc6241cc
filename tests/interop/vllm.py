"""vLLM's CPU build with a random llama: its text protocols, held against its own counters; a SIGTERM in mid-answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.metrics.stages import durations
from plimsoll.slo.records.records import Phase, Status
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
    with serving(tmp_path_factory.mktemp("vllm"), "--max-num-seqs", "8") as found:
        yield found


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Server]:
    python, (port,) = binary("vllm"), free_ports(1)
    env = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
    env |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    made = [python, str(SERVERS / "tiny_llama.py"), "tiny"]
    subprocess.run(made, cwd=folder, env={**os.environ, **env}, check=True, timeout=120, capture_output=True)
    # Not the program `vllm`: it asks for the metadata of a distribution of that name, and this one is called vllm-cpu.
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", "tiny", "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", "16384", *flags]
    command += ["--enable-prompt-tokens-details", "--enable-per-request-metrics"]
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
    waited = {one: server.counted(f"request_{one}_time_seconds_sum") for one in ("queue", "prefill", "decode")}
    found = answered(run(tmp_path, server.url, scenario(protocol, stream=stream)))
    rows = found.records
    for name, was, more in zip(names, before, (len(rows), rows["n_in"].sum(), rows["n_out"].sum()), strict=True):
        becomes(lambda name=name: server.counted(name), was + more)  # type: ignore[misc]
    assert set(rows["n_out"]) == {12}
    assert ("ttft" in found.report["metrics"]) is stream
    if stream:
        assert (rows["first_token_ns"] > 0).all()
        assert (rows["n_chunks"] >= 2).all()
    if protocol in ("openai-chat", "openai-completions"):  # what it says of each request, against its own sums
        said = durations(rows, ["queue", "prefill", "decode"])
        assert all((ns >= 0).all() for ns in said.values())
        assert (sum(said.values()) <= rows["done_ns"] - rows["sent_ns"]).all()
        for stage, was in waited.items():
            grown = server.counted(f"request_{stage}_time_seconds_sum") - was
            assert said[stage].sum() / 1e9 == pytest.approx(grown, rel=0.02, abs=0.001)


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


def test_sessions_ask_what_the_server_counts_and_find_their_history_in_its_cache(
    server: Server, tmp_path: Path
) -> None:
    """Its template writes each message and a blank, and every token of its answers is a letter: to the last token a
    turn's prompt is the one before, that one's answer and the new question.
    """
    names = ("request_success_total", "prompt_tokens_total", "generation_tokens_total", "prefix_cache_hits_total")
    before = [server.counted(name) for name in names]
    whole = scenario("openai-chat", 40, exact_output=True)
    whole["source"] |= {"count": 64, "prompt_tokens": 24}
    whole |= {"kind": "sessions", "params": {"rate": 2, "turns": 4, "think": "100ms"}}
    found = answered(run(tmp_path, server.url, whole | {"stop": {"min_queries": 40, "min_duration": "1s"}}))
    rows = found.records
    told = len(rows), rows["n_in"].sum(), rows["n_out"].sum(), rows.label("cached_tokens").sum()
    for name, was, more in zip(names, before, told, strict=True):
        becomes(lambda name=name: server.counted(name), was + more)  # type: ignore[misc]
    session, turn = rows.label("session"), rows.label("turn")
    sent = {(int(session[at]), int(turn[at])): at for at in range(len(rows))}
    later = [(sent[one, number - 1], at) for (one, number), at in sent.items() if number > 1]
    assert len(later) == 3 * len(set(session.tolist()))
    assert len(later) >= 30
    for earlier, at in later:
        assert rows["due_ns"][at] == rows["done_ns"][earlier] + 100_000_000
        own = rows["n_in"][sent[int(session[at]), 1]] + 2  # about as long as the first question
        assert 0 < rows["n_in"][at] - rows["n_in"][earlier] - rows["n_out"][earlier] < 2 * own
        # Whole blocks, of 128 tokens on a CPU, of what the turn before held when it ended.
        held = rows["n_in"][earlier] + rows["n_out"][earlier]
        assert rows["n_in"][earlier] // 128 * 128 <= rows.label("cached_tokens")[at] <= held // 128 * 128
    assert found.report["sessions"]["finished"] == len(set(session.tolist()))


def test_attempts_of_clients_who_give_up_and_hedge_are_the_servers_own_count(server: Server, tmp_path: Path) -> None:
    """It stands still for a second: requests time out and go out again, and some of both are answered in the end."""
    before = server.counted("request_success_total")
    whole = scenario("openai-chat", exact_output=True)
    whole |= {"kind": "server", "params": {"rate": 10}, "stop": {"min_queries": 30, "min_duration": "3s"}}
    whole["client"] = {
        "retry": {"on": ["timeout"], "max": 3, "backoff": "50ms..200ms"}, "hedge": {"after": "300ms", "max": 1}
    }  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run, tmp_path, server.url, whole, "--timeout", "700ms")
        holding(lambda: server.counted("request_success_total"), before + 8)
        os.killpg(server.process.pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.killpg(server.process.pid, signal.SIGCONT)
        found = going.result()
    measured, report = found.records.measured(), found.report["client"]
    assert set(measured["status"]) == {Status.OK}, found.errors
    assert report["retried"] + report["hedges"] > 5
    attempts = found.records.select(found.records["phase"] == Phase.ATTEMPT)
    assert len(attempts) >= report["attempts"] - report["requests"]
    # Each answer that we have, and those that it ended although nobody listened: no more than there were attempts.
    becomes(lambda: server.counted("num_requests_running"), 0)
    assert len(measured) <= server.counted("request_success_total") - before <= report["attempts"]


def test_under_load_its_page_and_its_counters_and_ours_are_one_count(server: Server, tmp_path: Path) -> None:
    """Somebody else asks it five times meanwhile: that is the difference, to the last token."""
    counted = {"requests": "request_success", "prompt tokens": "prompt_tokens", "generated tokens": "generation_tokens"}
    whole = scenario("openai-chat", 150, exact_output=True)
    whole |= {"kind": "concurrency", "params": {"concurrency": 12}, "stop": {"min_queries": 40, "min_duration": "4s"}}
    flags = ["--warmup", "500ms", "--server-metrics", "auto", "--server-pid", str(server.process.pid)]
    body = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 7, "ignore_eos": True}).encode()
    foreign = urllib.request.Request(f"{server.url}/v1/completions", body, {"Content-Type": "application/json"})
    for others in (0, 5):
        before = {what: server.counted(f"{name}_total") for what, name in counted.items()}
        folder = tmp_path / str(others)
        folder.mkdir()
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(run, folder, server.url, whole, *flags)
            holding(lambda: server.counted("num_requests_running"), 8)
            for _ in range(others):
                urllib.request.urlopen(foreign, timeout=20).close()
            found = answered(going.result())
        side, rows = found.report["server"], found.records
        ours = {"requests": len(rows), "prompt tokens": rows["n_in"].sum(), "generated tokens": rows["n_out"].sum()}
        each = {"requests": others, "prompt tokens": 5 * others, "generated tokens": 7 * others}
        for book in side["books"]:
            what = book["what"]
            becomes(lambda what=what: server.counted(f"{counted[what]}_total"), before[what] + book["theirs"])  # type: ignore[misc]
            assert (book["ours"], book["difference"]) == (ours[what], each[what])
        assert len(side["books"]) == 3
        names = side["names"]
        assert names["server.running"]["max"] == 8  # --max-num-seqs
        assert 1 <= names["server.queue"]["max"] <= 5
        assert 0 < names["server.kv_usage"]["max"] < 1
        assert names["host.rss"]["max"] > 500e6
        assert (side["first_token"] is None) == bool(others), "of other answers than ours its mean tells too"
    assert found.records["phase"].max() == Phase.WARMUP


def test_what_it_refuses_is_a_failure_of_its_count_and_a_refusal_of_ours(tmp_path: Path) -> None:
    """Two are answered at once and two wait; whoever else asks is refused, and asks again at once."""
    whole = scenario("openai-chat", 100, exact_output=True)
    whole |= {"kind": "concurrency", "params": {"concurrency": 8}, "stop": {"min_queries": 40, "min_duration": "3s"}}
    (folder := tmp_path / "vllm").mkdir()
    with serving(folder, "--max-num-seqs", "2", "--max-num-queued-reqs", "2") as server:
        found = run(tmp_path, server.url, whole, "--server-metrics", "auto")
    assert found.statuses == {Status.OK, Status.REFUSED}, found.errors[:3]
    side = found.report["server"]
    assert side["names"]["server.failures"]["total"] == (found.records["status"] == Status.REFUSED).sum() > 20
    assert [book["difference"] for book in side["books"]] == [0, 0, 0]
    assert side["absent"] == {}


def test_behind_a_second_name_it_counts_once(server: Server, tmp_path: Path) -> None:
    page = f"{server.url}/metrics"
    flags = ["--server-metrics", page, "--server-metrics", "auto"]
    one = answered(run(tmp_path, server.url, scenario("openai-chat"), *flags))
    assert len(one.report["server"]["sources"]) == 1
    assert {book["difference"] for book in one.report["server"]["books"]} == {0}


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
