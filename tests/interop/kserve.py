"""KServe's Python server: Open Inference over HTTP and gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.interop.driven import SERVERS, binary, free_ports, good, run, running

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    http, grpc = free_ports(2)
    command = [binary("kserve"), str(SERVERS / "kserve_echo.py"), str(http), str(grpc)]
    with running(command, f"http://127.0.0.1:{http}/v2/models/echo/ready", tmp_path_factory.mktemp("kserve")):
        yield http, grpc


@pytest.mark.parametrize(("protocol", "status"), [("kserve-v2", Status.HTTP), ("kserve-v2-grpc", Status.GRPC)])
def test_tensors(ports: tuple[int, int], protocol: str, status: Status, tmp_path: Path) -> None:
    url = f"grpc://127.0.0.1:{ports[1]}" if protocol.endswith("grpc") else f"http://127.0.0.1:{ports[0]}"

    def scenario(shape: int) -> dict[str, Any]:
        source = {"kind": "tensors", "count": 4, "inputs": [{"name": "x", "datatype": "FP32", "shape": [shape]}]}
        return {"source": source, "target": {"protocol": protocol, "model": "echo"}}

    good(run(tmp_path, url, scenario(4)))
    refused = run(tmp_path, url, scenario(13))
    assert refused.statuses == {status}
    assert "thirteen is refused" in str(refused.errors[0])
