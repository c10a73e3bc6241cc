"""Labels of whole runs: what a sealed run says of its rows is what the server's log says that it sent, by both engines
and every family of protocols. About half a minute.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from plimsoll.harness.generator import native
from plimsoll.harness.run.rundir import open_sealed
from tests.e2e.plimsoll import Server, plimsoll_here, server
from tests.e2e.test_accuracy import Crowded

pytestmark = pytest.mark.e2e

ENGINES = ["python", *(["native"] if native.available() else [])]
LABELS = {
    "backend": "header x-served-by",
    "version": "trailer x-version",
    "model": "body $.model",
    "slot": "body meta.slot",
    "tenant": "source tenant",
}


class Told(BaseHTTPRequestHandler):
    """Says of each answer who gave it, by the request's id, and keeps that in ``log``. One in seven is refused."""

    protocol_version = "HTTP/1.1"
    log: dict[str, dict[str, Any]]

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = self.headers["x-request-id"]
        drawn = zlib.crc32(name.encode())
        said: dict[str, Any] = {
            "backend": f"pod-{drawn % 3}",
            "model": None,
            "slot": None,
            "version": None,
            "wait": None,
        }
        type(self).log[name] = said
        if drawn % 7 == 0:
            said["wait"] = drawn % 50
            self._begin(503, said["backend"], "content-length: 0", f"retry-after: {said['wait']}")
            return
        said |= {"model": f"m{drawn % 2}", "slot": drawn % 11, "version": f"v{drawn % 4}"}
        events: list[dict[str, Any]] = [{"model": "early", "choices": [{"index": 0, "delta": {"content": "a"}}]}] * 3
        last = {"index": 0, "delta": {}, "finish_reason": "stop"}
        events.append({"model": said["model"], "meta": {"slot": said["slot"]}, "choices": [last]})
        pieces = [b"data: %s\n\n" % json.dumps(event).encode() for event in events] + [b"data: [DONE]\n\n"]
        if not request.get("stream"):
            whole = {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}
            pieces = [json.dumps({**events[-1], "choices": [whole]}, indent=1).encode()]
        media = "text/event-stream" if request.get("stream") else "application/json"
        self._begin(200, said["backend"], f"content-type: {media}", "transfer-encoding: chunked")
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\nx-version: %s\r\n\r\n" % said["version"].encode())

    def _begin(self, code: int, backend: str, *headers: str) -> None:
        lines = [f"HTTP/1.1 {code} said", f"x-served-by: {backend}", *headers]
        self.wfile.write("\r\n".join([*lines, "", ""]).encode())


@contextmanager
def telling() -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    handler = type("Here", (Told,), {"log": {}})
    served = Crowded(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{served.server_address[1]}", handler.log  # type: ignore[attr-defined]
    finally:
        served.shutdown()
        thread.join()
        served.server_close()


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "requests.parquet").to_pylist()
    return found


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("engine", ENGINES)
def test_labels_are_what_the_servers_log_says_it_sent(tmp_path: Path, engine: str, stream: bool) -> None:
    tenants = ["a", "b", None]
    lines = [{"prompt": f"p{i}", **({"tenant": tenant} if tenant else {})} for i, tenant in enumerate(tenants)]
    (tmp_path / "d.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with telling() as (url, log):
        scenario = {
            "kind": "server", "params": {"rate": 200}, "stop": {"min_queries": 120, "min_duration": 0}, "workers": 2,
            "source": {"kind": "jsonl", "path": "d.jsonl"}, "labels": LABELS, "warmup": "100ms",
            "target": {"url": url, "model": "m", "options": {"engine": engine, "stream": stream}},
        }  # fmt: skip
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
        done = plimsoll_here("run", "s.yaml", "--out", "r", cwd=tmp_path)
    found = rows(tmp_path / "r")
    assert len(found) >= 120, done.stderr
    assert {row["phase"] for row in found} == {"measure", "warmup"}
    names = {"backend": "backend", "version": "version", "model": "model", "slot": "slot", "wait": "retry_after"}
    for row in found:
        said = log[row["request_id"]]
        for name, label in names.items():
            wanted = said[name]
            if wanted is None and name in ("slot", "wait"):
                wanted = -1  # columns of numbers
            assert row[f"label_{label}"] == wanted, (row, said)
        assert row["label_tenant"] == tenants[row["payload_ix"]]
    sealed = open_sealed(tmp_path / "r")
    assert sealed.facts.plan_faults == sealed.facts.account_faults == ()


@pytest.fixture(scope="module")
def bundled() -> Iterator[Server]:
    with server("--grpc-port", "0", "--model", "scripted", "--model", "recogniser", "--ttft", "5ms") as running:
        yield running


def run(folder: Path, target: dict[str, Any], source: dict[str, Any], labels: dict[str, str]) -> list[dict[str, Any]]:
    scenario = {
        "kind": "single_stream", "stop": {"min_queries": 4, "min_duration": "1ms", "max_queries": 4},
        "source": source, "target": target, "labels": labels, "timeout": "20s",
    }  # fmt: skip
    (folder / "s.yaml").write_text(yaml.safe_dump(scenario))
    said = plimsoll_here("run", "s.yaml", "--out", "r", cwd=folder).stderr
    assert (folder / "r" / "requests.parquet").is_file(), said
    return rows(folder / "r")


def test_grpc_metadata_trailers_and_messages_are_labels(bundled: Server, tmp_path: Path) -> None:
    options = {
        "method": "inference.GRPCInferenceService/ModelStreamInfer",
        "text_path": "infer_response.outputs[0].contents.bytes_contents[0]",
        "message": {
            "model_name": "{{ model }}",
            "inputs": [{"name": "text", "datatype": "BYTES", "shape": [1],
                        "contents": {"bytes_contents": ["{{ prompt | b64 }}"]}}],
            "parameters": {"max_tokens": {"int64_param": "{{ max_output_tokens }}"}},
        },
    }  # fmt: skip
    found = run(
        tmp_path,
        {"url": f"grpc://{bundled.grpc}", "protocol": "grpc", "model": "scripted", "options": options},
        {"kind": "synthetic_text", "prompt_tokens": 4, "output_tokens": 2},
        {"kind": "header content-type", "ended": "trailer grpc-status",
         "timing": "trailer server-timing", "model": "body infer_response.model_name"},
    )  # fmt: skip
    assert [row["label_kind"] for row in found] == ["application/grpc"] * 4
    assert [row["label_model"] for row in found] == ["scripted"] * 4
    assert [row["label_ended"] for row in found] == [0] * 4
    assert [row["label_timing"][:9] for row in found] == [row["server_timing"][:9] for row in found]


def test_headers_of_an_upgrade_and_messages_of_a_live_session_are_labels(bundled: Server, tmp_path: Path) -> None:
    options = {
        "path": "/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true",
        "closing": ['{"type":"CloseStream"}'], "text_path": "channel.alternatives[0].transcript",
        "final_path": "is_final", "audio": {"frame": "40ms"},
    }  # fmt: skip
    found = run(
        tmp_path,
        {"url": bundled.url, "protocol": "websocket", "model": "recogniser", "options": options},
        {"kind": "audio", "words": 2, "count": 1, "trail": "200ms"},
        {"upgrade": "header upgrade", "rid": "body $.request_id", "final": "body is_final"},
    )
    assert [row["label_upgrade"] for row in found] == ["websocket"] * 4
    assert [row["label_rid"] for row in found] == [row["request_id"] for row in found]
    assert [row["label_final"] for row in found] == ["true"] * 4
