"""The tiny language model as a process: the official client, equal answers under load, freed blocks, admission."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from plimsoll.reference_server.transports.http_calls import DEADLINE_HEADER

pytestmark = pytest.mark.e2e

N_BLOCKS = 64
TEXT: dict[str, Any] = {"model": "llm", "max_tokens": 24, "ignore_eos": True}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    pytest.importorskip("torch", reason="the language model needs torch")
    command = [
        sys.executable,
        "-m",
        "plimsoll.reference_server",
        "--http-port",
        "0",
        "--model",
        "llm",
        "--device",
        "cpu",
    ]
    limits = ["--kv-blocks", str(N_BLOCKS), "--queue-limit", "2", "--max-batch", "4", "--threads", "1"]
    with subprocess.Popen(command + limits, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            ready = json.loads(line)
            assert (ready["models"], ready["device"]) == (["llm"], "cpu")
            yield int(ready["url"].rsplit(":", 1)[1])
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=15)
        assert (process.returncode, errors) == (0, "")


def call(port: int, path: str, body: Any = None) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request("GET" if data is None else "POST", path, data)
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def gauge(port: int, name: str, missing: float | None = None) -> float:
    """Of a name, with labels or without; the first where there are several."""
    for line in call(port, "/metrics")[1].decode().splitlines():
        if line.startswith(f"{name} ") or line.startswith(f"{name}{{"):
            return float(line.split()[-1])
    if missing is not None:
        return missing
    raise AssertionError(f"no metric {name}")


def until(port: int, name: str, wanted: float) -> None:
    deadline = time.monotonic() + 10
    while gauge(port, name) != wanted:
        assert time.monotonic() < deadline, f"{name} stays {gauge(port, name)}, not {wanted}"
        time.sleep(0.01)


def test_the_official_client_streams_and_embeds(port: int) -> None:
    openai = pytest.importorskip("openai", reason="the official client is a development dependency")
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
        options = {"stream": True, "stream_options": {"include_usage": True}, "extra_body": {"ignore_eos": True}}
        messages = [{"role": "user", "content": "hello"}]
        chunks = list(client.chat.completions.create(model="llm", messages=messages, max_tokens=20, **options))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert (len(text), text.isprintable(), chunks[-1].usage.completion_tokens) == (20, True, 20)
        pair = client.embeddings.create(model="llm", input=["one thing", "another"]).data
        assert len(pair[0].embedding) == 128
        assert pair[0].embedding != pair[1].embedding


def test_answers_are_the_same_alone_and_under_load(port: int) -> None:
    prompts = [f"{'Read this line. ' * i}What is {i}?" for i in range(6)]

    def ask(prompt: str) -> str:
        raw = call(port, "/v1/completions", {**TEXT, "prompt": prompt})[1]
        return str(json.loads(raw)["choices"][0]["text"])

    alone = [ask(prompt) for prompt in prompts]
    found: dict[int, str] = {}
    threads = [threading.Thread(target=lambda i=i: found.update({i: ask(prompts[i])})) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(6)] == alone


def begin(port: int, prompt: str, max_tokens: int, **fields: Any) -> socket.socket:
    """A request sent, and a connection to read its answer from, or to close."""
    body = json.dumps({**TEXT, "prompt": prompt, "max_tokens": max_tokens, "stream": True, **fields}).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    connection.sendall(head + body)
    return connection


def last_row(port: int) -> dict[str, Any]:
    return dict(json.loads(call(port, "/truth")[1].splitlines()[-1]))


def test_a_client_that_goes_away_while_it_is_answered_frees_its_blocks(port: int) -> None:
    until(port, "reference_kv_blocks_used", 0)
    with begin(port, "x", 900) as plain:
        assert plain.recv(65536)
        assert gauge(port, "reference_kv_blocks_used") > 0
    until(port, "reference_kv_blocks_used", 0)
    assert last_row(port)["outcome"] == "cancelled"
    assert len(last_row(port)["tokens"]) < 900


def test_a_client_that_goes_away_while_its_prompt_is_computed_frees_its_blocks(port: int) -> None:
    until(port, "reference_kv_blocks_used", 0)
    with begin(port, "x" * 1000, 20):
        until(port, "reference_kv_blocks_used", 63)
    until(port, "reference_kv_blocks_used", 0)
    assert last_row(port)["outcome"] == "cancelled"


def test_a_client_that_goes_away_while_it_waits_leaves_the_queue(port: int) -> None:
    until(port, "reference_kv_blocks_used", 0)
    busy = [begin(port, "x", 230) for _ in range(4)]
    try:
        with begin(port, "x", 5):
            until(port, "reference_waiting", 1)
            assert gauge(port, "reference_queue_depth") == 1
            assert gauge(port, "reference_queue_age_seconds") > 0
        until(port, "reference_waiting", 0)
        assert gauge(port, "reference_running") == 4
    finally:
        for connection in busy:
            connection.close()
    until(port, "reference_kv_blocks_used", 0)


def test_the_more_important_is_served_first(port: int) -> None:
    busy = [begin(port, "x", 150) for _ in range(4)]
    until(port, "reference_running", 4)
    waiting = [begin(port, "x", 1, priority=5)]
    until(port, "reference_waiting", 1)
    waiting.append(begin(port, "x", 1, priority=-5))
    until(port, "reference_waiting", 2)
    for connection in (*busy, *waiting):
        while connection.recv(65536):
            pass
        connection.close()
    rows = [json.loads(line) for line in call(port, "/truth")[1].splitlines()]
    by_arrival = sorted(rows, key=lambda row: row["received_ns"])[-2:]
    assert by_arrival[0]["tokens"][0] > by_arrival[1]["tokens"][0]


def test_a_deadline_that_passes_is_a_504_and_frees_the_blocks(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = json.dumps({**TEXT, "prompt": "x", "max_tokens": 900}).encode()
    connection.request("POST", "/v1/completions", body, {DEADLINE_HEADER: "150"})
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["error"]["code"]) == (504, "deadline_exceeded")
    connection.close()
    assert gauge(port, "reference_kv_blocks_used") == 0
    assert gauge(port, 'reference_deadlines_missed_total{model="llm"}') >= 1


def test_a_prompt_that_is_too_long_is_a_400_that_names_the_limit(port: int) -> None:
    response, raw = call(port, "/v1/completions", {**TEXT, "prompt": "x" * 1100})
    error = json.loads(raw)["error"]
    assert (response.status, error["code"]) == (400, "context_length_exceeded")
    assert f"{N_BLOCKS * 16} tokens" in error["message"]


def test_a_full_queue_is_a_503_with_retry_after(port: int) -> None:
    rejected = 'reference_rejected_total{model="llm",reason="queue_full"}'
    before = gauge(port, rejected, 0)
    busy = [begin(port, "x", 220) for _ in range(6)]  # four run, two wait
    try:
        until(port, "reference_waiting", 2)
        response, raw = call(port, "/v1/completions", {**TEXT, "prompt": "x"})
        assert (response.status, 1 <= int(response.headers["retry-after"]) <= 60) == (503, True)
        assert json.loads(raw)["error"]["code"] == "queue_full"
        assert gauge(port, rejected) == before + 1
    finally:
        for connection in busy:
            connection.close()
    until(port, "reference_kv_blocks_used", 0)
    assert call(port, "/v1/completions", {**TEXT, "prompt": "x"})[0].status == 200


def test_the_stages_of_an_answer_add_up_to_its_time(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = json.dumps({**TEXT, "prompt": "x" * 300}).encode()
    connection.request("POST", "/v1/completions", body, {"x-request-id": "stages"})
    response = connection.getresponse()
    assert response.read()
    connection.close()
    parts = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    assert set(parts) == {"queue", "preprocess", "prefill", "decode", "postprocess"}
    assert min(float(parts[name]) for name in ("prefill", "decode")) > 0
    row = json.loads(call(port, "/truth/stages")[1])
    whole_ms = (row["first_write_ns"] - row["received_ns"]) / 1e6
    # What is missing is the way from the parsed request to the queue and from the last token to the reply.
    assert whole_ms - 30 < sum(float(ms) for ms in parts.values()) <= whole_ms


def test_a_timetable_is_refused_where_none_is_kept(port: int) -> None:
    response, raw = call(port, "/v1/completions", {**TEXT, "prompt": "x", "plimsoll": {"ttft_ms": 1}})
    assert (response.status, json.loads(raw)["error"]["param"]) == (400, "plimsoll")


def test_kserve_continues_a_text_tensor(port: int) -> None:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["one", "two"]}
    body = {"inputs": [tensor], "parameters": {"max_tokens": 6, "ignore_eos": True}}
    (output,) = json.loads(call(port, "/v2/models/llm/infer", body)[1])["outputs"]
    assert (output["name"], output["shape"], [len(text) for text in output["data"]]) == ("text", [2], [6, 6])
