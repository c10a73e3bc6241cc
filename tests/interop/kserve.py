"""KServe's Python server: Open Inference over HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.interop.driven import SERVERS, becomes, binary, free_ports, good, metric, run, running, under_load

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    http, grpc = free_ports(2)
    command = [binary("kserve"), str(SERVERS / "kserve_echo.py"), str(http), str(grpc)]
    with running(command, f"http://127.0.0.1:{http}/v2/models/echo/ready", tmp_path_factory.mktemp("kserve")):
        yield http, grpc


def scenario(protocol: str, shape: int) -> dict[str, Any]:
    source = {"kind": "tensors", "count": 4, "inputs": [{"name": "x", "datatype": "FP32", "shape": [shape]}]}
    return {"source": source, "target": {"protocol": protocol, "model": "echo"}}


@pytest.mark.parametrize(("protocol", "status"), [("kserve-v2", Status.HTTP), ("kserve-v2-grpc", Status.GRPC)])
def test_tensors(ports: tuple[int, int], protocol: str, status: Status, tmp_path: Path) -> None:
    url = f"grpc://127.0.0.1:{ports[1]}" if protocol.endswith("grpc") else f"http://127.0.0.1:{ports[0]}"

    good(run(tmp_path, url, scenario(protocol, 4)))
    refused = run(tmp_path, url, scenario(protocol, 13))
    assert refused.statuses == {status}
    assert "thirteen is refused" in str(refused.errors[0])


@pytest.mark.parametrize("protocol", ["kserve-v2", "kserve-v2-grpc"])
def test_under_load_its_page_and_its_counters_and_ours_are_one_count(
    ports: tuple[int, int], protocol: str, tmp_path: Path
) -> None:
    url = f"grpc://127.0.0.1:{ports[1]}" if protocol.endswith("grpc") else f"http://127.0.0.1:{ports[0]}"
    page = f"http://127.0.0.1:{ports[0]}/metrics"
    before = metric(page, "request_predict_seconds_count")
    found = under_load(tmp_path, url, scenario(protocol, 4), page)
    becomes(lambda: metric(page, "request_predict_seconds_count"), before + len(found.records))
    names = found.report["server"]["names"]
    assert names["server.prefill_time"]["mean"] > 0
    assert names["host.rss"]["max"] > 20e6
    assert 0 < names["host.cpu"]["total"] < 60
