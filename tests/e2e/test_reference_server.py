"""The scripted server as a process: its bytes, its refusals, its faults, and how well it keeps its timetable.

Bound: with ten streams of a token each 10 ms, events are written at their due instant, p50 within 0.3 ms and p99
within 5 ms (the best of three tries: the machine has other things to do).
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

MS = 1_000_000
CHAT: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@dataclass
class Server:
    """A running server and a plain client for it."""

    process: subprocess.Popen[str]
    ready: dict[str, Any]

    @property
    def port(self) -> int:
        return int(self.ready["url"].rsplit(":", 1)[1])

    def call(
        self, path: str, body: Any = None, *, method: str = "", **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method or ("GET" if data is None else "POST"), path, data, named)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def truth(self, request_id: str) -> dict[str, Any]:
        """The row once it is closed: the client may see the last byte before the server has noted it."""
        for _ in range(200):
            row = json.loads(self.call(f"/truth/{request_id}")[1])
            if row.get("outcome") != "open":
                return dict(row)
            time.sleep(0.01)
        raise AssertionError(f"request {request_id} never ended")


@contextmanager
def running(*arguments: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "plimsoll.reference_server", "--http-port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            yield Server(process, json.loads(line))
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=15)
        assert (process.returncode, errors) == (0, "")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running("--ttft", "30ms", "--itl", "5ms") as started:
        yield started


def events(body: bytes) -> list[Any]:
    blocks = body.split(b"\n\n")
    assert blocks.pop() == b""
    assert all(block.startswith(b"data: ") for block in blocks)
    return [block[6:].decode() if block == b"data: [DONE]" else json.loads(block[6:]) for block in blocks]


def anatomy(server_timing: str) -> dict[str, float]:
    """Milliseconds by stage, in order."""
    parts = (part.split(";dur=") for part in server_timing.split(", "))
    return {name: float(ms) for name, ms in parts}


def test_the_ready_line_names_url_models_and_device(server: Server) -> None:
    expected = {"ready": True, "url": server.ready["url"], "models": ["scripted"], "device": "cpu", "startup_s": {}}
    assert server.ready == expected
    assert json.loads(server.call("/health")[1])["status"] == "ok"


def test_a_chat_stream_has_the_canonical_frames_in_order(server: Server) -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    response, raw = server.call("/v1/chat/completions", body, x_request_id="run-1-0")
    assert response.status == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["transfer-encoding"] == "chunked"
    assert response.headers["x-request-id"] == "run-1-0"
    begun = anatomy(response.headers["server-timing"])
    assert list(begun) == ["preprocess", "queue", "prefill"]
    assert begun["preprocess"] + begun["prefill"] == pytest.approx(30, abs=0.01)
    role, *tokens, finish, usage, done = events(raw)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [frame["choices"][0]["delta"]["content"] for frame in tokens] == [" the", " line", " is", " painted"]
    assert finish["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 4)
    assert done == "[DONE]"
    assert all(frame["usage"] is None for frame in (role, *tokens, finish))
    whole = anatomy(usage["server_timing"])  # what came after the header is known only now
    assert list(whole) == ["preprocess", "queue", "prefill", "decode", "postprocess"]
    assert whole["decode"] == pytest.approx(15, abs=0.01)
    assert [frame for frame in (role, *tokens, finish) if "server_timing" in frame] == []


def test_each_event_is_one_write(server: Server) -> None:
    body = json.dumps({**CHAT, "stream": True, "plimsoll": {"itl_ms": 20}}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
        plain.sendall(head + body)
        reads: list[bytes] = []
        while not b"".join(reads).endswith(b"\r\n0\r\n\r\n"):
            reads.append(plain.recv(65536))
    tokens = [read for read in reads if b'"content": " ' in read]
    assert len(tokens) == 4
    for read in tokens[:3]:  # the frames that end the answer may follow the last token before it is read
        size, rest = read.split(b"\r\n", 1)
        assert rest[int(size, 16) :] == b"\r\n"
        assert rest.count(b"\n\n") == 1


def test_truth_stamps_every_token_and_is_deleted_on_request(server: Server) -> None:
    server.call("/v1/chat/completions", {**CHAT, "stream": True}, x_request_id="truth-1")
    row = server.truth("truth-1")
    assert (row["status"], row["outcome"], row["model"]) == (200, "ok", "scripted")
    assert row["due_ns"] == [row["received_ns"] + 30 * MS + i * 5 * MS for i in range(4)]
    assert row["received_ns"] <= row["first_write_ns"] <= row["tokens"][0][0]
    for (before, after), due in zip(row["tokens"], row["due_ns"], strict=True):
        assert due <= before <= after <= row["done_ns"]
    rows = [json.loads(line) for line in server.call(f"/truth?since={row['received_ns']}")[1].splitlines()]
    assert [found["request_id"] for found in rows] == ["truth-1"]
    assert server.call("/truth", method="DELETE")[0].status == 204
    assert server.call("/truth")[1] == b""
    assert server.call("/truth/truth-1")[0].status == 404
    assert server.call("/truth?since=x")[0].status == 400


def test_a_request_may_script_its_own_timetable(server: Server) -> None:
    script = {"ttft_ms": 10, "itl_ms": 2, "stall_ms": 50, "stall_at": 2, "tokens_per_event": 2}
    body = {**CHAT, "max_tokens": 5, "stream": True, "plimsoll": script}
    server.call("/v1/chat/completions", body, x_request_id="own")
    row = server.truth("own")
    assert [due - row["received_ns"] for due in row["due_ns"]] == [10 * MS, 62 * MS, 64 * MS]


def test_an_error_in_the_middle_of_a_stream_is_an_event_under_200(server: Server) -> None:
    body = {**CHAT, "stream": True, "plimsoll": {"error_at": 2}}
    response, raw = server.call("/v1/chat/completions", body, x_request_id="broken")
    *_, second, error = events(raw)
    assert response.status == 200
    assert second["choices"][0]["delta"] == {"content": " line"}
    assert error["error"]["message"]
    assert server.truth("broken")["outcome"] == "error"
    assert server.call("/v1/chat/completions", {**CHAT, "plimsoll": {"error_at": 2}})[0].status == 500


@pytest.mark.parametrize("stream", [True, False])
def test_a_cut_connection_ends_without_its_end(server: Server, stream: bool) -> None:
    body = {**CHAT, "stream": stream, "plimsoll": {"cut_at": 2}}
    with pytest.raises((http.client.IncompleteRead, http.client.RemoteDisconnected, ConnectionError)) as caught:
        server.call("/v1/chat/completions", body, x_request_id=f"cut-{stream}")
    if stream:
        assert isinstance(caught.value, http.client.IncompleteRead)
    assert server.truth(f"cut-{stream}")["outcome"] == "cut"


def test_a_request_may_leave_out_done_and_usage(server: Server) -> None:
    body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    frames = events(server.call("/v1/chat/completions", {**body, "plimsoll": {"omit_done": True}})[1])
    assert frames[-1]["usage"]["completion_tokens"] == 4
    frames = events(server.call("/v1/chat/completions", {**body, "plimsoll": {"omit_usage": True}})[1])
    assert frames[-1] == "[DONE]"
    assert frames[-2]["usage"] is None


@pytest.mark.parametrize(
    ("path", "body", "status", "part"),
    [
        ("/v1/chat/completions", b"{", 400, "not JSON"),
        ("/v1/chat/completions", {**CHAT, "n": 3}, 400, "n: must be 1"),
        ("/v1/chat/completions", {**CHAT, "model": "gpt"}, 404, "Served here: scripted"),
        ("/v1/chat/completions", {**CHAT, "max_tokens": 200_000}, 400, "the context of 131072 tokens"),
        ("/v1/completions", {"model": "scripted", "prompt": 5}, 400, "prompt: must be"),
        ("/v1/completions", b" " * (5 << 20), 413, "limit of 4194304 bytes"),
        ("/v1/nothing", {}, 404, "POST /v1/nothing"),
        ("/v1/models", {}, 405, "POST /v1/models"),
    ],
)
def test_refusals_are_openai_errors(server: Server, path: str, body: Any, status: int, part: str) -> None:
    response, raw = server.call(path, body)
    error = json.loads(raw)["error"]
    assert response.status == status
    assert part in error["message"]
    assert set(error) == {"message", "type", "param", "code"}


def test_a_scripted_503_says_when_to_come_back(server: Server) -> None:
    response, _ = server.call("/v1/chat/completions", {**CHAT, "plimsoll": {"status": 503}})
    assert (response.status, response.headers["retry-after"]) == (503, "1")


def test_kserve_echoes_tensors_after_the_scripted_time(server: Server) -> None:
    tensor = {"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2.5], [3, 4]]}
    begun = time.monotonic()
    response, raw = server.call("/v2/models/scripted/infer", {"id": "7", "inputs": [tensor]})
    assert time.monotonic() - begun >= 0.03
    reply = json.loads(raw)
    assert (response.status, reply["id"], reply["model_name"]) == (200, "7", "scripted")
    assert reply["outputs"] == [{**tensor, "data": [1, 2.5, 3, 4]}]
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/scripted", "/v2/models/scripted/ready"):
        assert server.call(path)[0].status == 200
    response, raw = server.call("/v2/models/none/infer", {"inputs": [tensor]})
    assert response.status == 404
    assert isinstance(json.loads(raw)["error"], str)


def test_metrics_count_requests_and_tokens(server: Server) -> None:
    def tokens() -> float:
        text = server.call("/metrics")[1].decode()
        lines = [line for line in text.splitlines() if line.startswith("reference_output_tokens_total")]
        return sum(float(line.split()[-1]) for line in lines)

    before = tokens()
    server.call("/v1/chat/completions", CHAT)
    assert tokens() == before + 4


def test_the_official_client_streams_and_lists_and_embeds(server: Server) -> None:
    openai = pytest.importorskip("openai", reason="the official client is a development dependency")
    with openai.OpenAI(base_url=f"{server.ready['url']}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["scripted"]
        messages = CHAT["messages"]
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(model="scripted", messages=messages, max_tokens=3, **options))
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == " the line is"
        assert chunks[-1].usage.completion_tokens == 3
        parts = list(client.completions.create(model="scripted", prompt="a", max_tokens=2, stream=True))
        assert "".join(part.choices[0].text for part in parts) == " the line"
        whole = client.chat.completions.create(model="scripted", messages=messages, max_tokens=2)
        assert (whole.choices[0].message.content, whole.usage.completion_tokens) == (" the line", 2)
        first, again = client.embeddings.create(model="scripted", input=["a", "a"]).data
        assert first.embedding == again.embedding
        assert sum(x * x for x in first.embedding) == pytest.approx(1.0, abs=1e-5)
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.completions.create(model="other", prompt="a")
        with pytest.raises(openai.APIError, match="the script fails"):
            list(
                client.completions.create(
                    model="scripted", prompt="a", stream=True, extra_body={"plimsoll": {"error_at": 1}}
                )
            )


def together(calls: list[Callable[[], Any]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def lateness_ns(server: Server, attempt: int) -> list[int]:
    body = {**CHAT, "max_tokens": 60, "stream": True, "plimsoll": {"ttft_ms": 50, "itl_ms": 10}}
    ids = [f"late-{attempt}-{i}" for i in range(10)]
    together([lambda i=i: server.call("/v1/chat/completions", body, x_request_id=i) for i in ids])  # type: ignore[misc]
    rows = [server.truth(request_id) for request_id in ids]
    return sorted(before - due for row in rows for due, (before, _) in zip(row["due_ns"], row["tokens"], strict=True))


def test_the_timetable_is_kept(server: Server) -> None:
    seen = []
    for attempt in range(3):
        late = lateness_ns(server, attempt)
        assert len(late) == 600
        assert late[0] >= 0  # never early
        seen.append((late[len(late) // 2], late[len(late) * 99 // 100]))
        if seen[-1][0] < 0.3 * MS and seen[-1][1] < 5 * MS:
            return
    pytest.fail(f"(p50, p99) lateness in ns of three tries: {seen}")


def test_a_stall_freezes_the_whole_server_and_moves_the_timetable() -> None:
    with running("--ttft", "100ms", "--itl", "10ms", "--fault", "stall=at:150ms,for:400ms") as server:
        body = {**CHAT, "max_tokens": 20, "stream": True}
        server.call("/v1/chat/completions", body, x_request_id="frozen")
        row = server.truth("frozen")
    starts = [before - row["received_ns"] for before, _ in row["tokens"]]
    gaps = [after - before for before, after in itertools.pairwise(starts)]
    assert 395 * MS < max(gaps) < 600 * MS
    assert sum(gap > 100 * MS for gap in gaps) == 1
    assert row["due_ns"][-1] - row["received_ns"] == (100 + 19 * 10 + 400) * MS


def test_slots_give_the_scripted_model_a_known_capacity_and_a_queue_limit() -> None:
    arguments = ("--ttft", "200ms", "--itl", "0ms", "--fault", "slots=2", "--queue-limit", "2")
    with running(*arguments) as server:
        statuses: list[int] = []
        body = {**CHAT, "max_tokens": 1}

        def call() -> None:
            response, _ = server.call("/v1/chat/completions", body)
            statuses.append(response.status)
            assert response.status == 200 or response.headers["retry-after"] == "1"

        begun = time.monotonic()
        together([call] * 6)
        assert sorted(statuses) == [200, 200, 200, 200, 503, 503]
        assert 0.4 <= time.monotonic() - begun < 1.5


def test_a_request_beyond_the_limit_is_turned_away_at_once_and_another_taken_when_there_is_room() -> None:
    with running("--ttft", "500ms", "--itl", "1ms", "--in-flight", "1") as server:
        first = threading.Thread(target=server.call, args=("/v1/chat/completions", CHAT), kwargs={"x_request_id": "a"})
        first.start()
        while server.call("/truth/a")[0].status == 404:
            time.sleep(0.02)
        response, body = server.call("/v1/chat/completions", CHAT)
        assert first.is_alive(), "it was not made to wait"
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert json.loads(body)["error"]["code"] == "overloaded"
        first.join()
        assert server.call("/v1/chat/completions", CHAT)[0].status == 200
        assert b"reference_in_flight_limit 1.0" in server.call("/metrics")[1]


def test_a_second_server_on_the_same_port_is_one_line_and_exit_2(server: Server) -> None:
    command = [sys.executable, "-m", "plimsoll.reference_server", "--http-port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "--http-port" in done.stderr


def test_the_ready_line_also_goes_to_a_descriptor_and_sigint_ends_with_0() -> None:
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "plimsoll.reference_server", "--http-port", "0", "--ready-fd", str(write_end)]
    with subprocess.Popen(
        command, pass_fds=(write_end,), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(write_end)
        with os.fdopen(read_end) as pipe:
            line = pipe.read()
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=15)
    assert json.loads(line)["ready"] is True
    assert (process.returncode, printed, errors) == (0, line, "")


def test_sigterm_cancels_what_outlives_the_grace() -> None:
    with running("--ttft", "60s", "--grace", "200ms") as server:
        body = json.dumps({**CHAT, "stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
            plain.sendall(head + body)
            assert plain.recv(65536).startswith(b"HTTP/1.1 200")
            begun = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(10) == 0
            assert time.monotonic() - begun < 5
