"""MLServer: Open Inference over HTTP and gRPC, and its generate_stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.interop.driven import SERVERS, becomes, binary, free_ports, good, metric, run, running, under_load

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int, int]]:
    command = [binary("mlserver", "mlserver"), "start", "."]
    http, grpc, metrics = free_ports(3)
    folder = tmp_path_factory.mktemp("mlserver")
    for path in (SERVERS / "mlserver_echo").iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    settings = {"host": "127.0.0.1", "http_port": http, "grpc_port": grpc, "metrics_port": metrics}
    settings |= {"parallel_workers": 0, "gzip_enabled": False}  # it can't stream otherwise
    (folder / "settings.json").write_text(json.dumps(settings))
    ready = f"http://127.0.0.1:{http}/v2/models/echo/ready"
    with running(command, ready, folder, {"PYTHONPATH": str(folder)}):
        yield http, grpc, metrics


def tensors(protocol: str, shape: int = 4, **options: Any) -> dict[str, Any]:
    source = {"kind": "tensors", "count": 4, "inputs": [{"name": "x", "datatype": "FP32", "shape": [shape]}]}
    return {"source": source, "target": {"protocol": protocol, "model": "echo", "options": options}}


def test_tensors_over_http(ports: tuple[int, ...], tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{ports[0]}"
    good(run(tmp_path, url, tensors("kserve-v2")))
    refused = run(tmp_path, url, tensors("kserve-v2", 13))
    assert refused.statuses == {Status.HTTP}
    assert "thirteen is refused" in str(refused.errors[0])


def test_tensors_over_grpc(ports: tuple[int, ...], tmp_path: Path) -> None:
    url = f"grpc://127.0.0.1:{ports[1]}"
    good(run(tmp_path, url, tensors("kserve-v2-grpc")))
    refused = run(tmp_path, url, tensors("kserve-v2-grpc", 13))
    assert refused.statuses == {Status.GRPC}
    assert "thirteen is refused" in str(refused.errors[0])


def test_text_over_generate_stream(ports: tuple[int, ...], tmp_path: Path) -> None:
    body = '{"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [{{ prompt | tojson }}]}]}'
    options = {"body": body, "framing": "sse", "text_path": "outputs[0].data[0]"}
    scenario = {
        "source": {"kind": "jsonl", "path": "prompts.jsonl"},
        "target": {"protocol": "http", "options": options},
    }
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "one two three four"}\n')
    found = good(run(tmp_path, f"http://127.0.0.1:{ports[0]}/v2/models/echo/infer_stream", scenario))
    assert set(found.records["n_chunks"]) == {4}


@pytest.mark.parametrize("protocol", ["kserve-v2", "kserve-v2-grpc"])
def test_under_load_its_page_and_its_counters_and_ours_are_one_count(
    ports: tuple[int, ...], protocol: str, tmp_path: Path
) -> None:
    url = f"grpc://127.0.0.1:{ports[1]}" if protocol.endswith("grpc") else f"http://127.0.0.1:{ports[0]}"
    page = f"http://127.0.0.1:{ports[2]}/metrics"
    before = metric(page, "model_infer_request_success_total")
    found = under_load(tmp_path, url, tensors(protocol), page)
    becomes(lambda: metric(page, "model_infer_request_success_total"), before + len(found.records))
    side = found.report["server"]
    assert 0 < side["names"]["server.e2e"]["mean"] < found.records.measured()["done_ns"].max()
    assert side["absent"]["server.queue"] == "not exposed by MLServer (start it with parallel_workers above 0)"
