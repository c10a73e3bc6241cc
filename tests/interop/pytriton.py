"""Triton, carried by nvidia-pytriton: tensors and decoupled text over both wires, its own counters, overload, kill."""

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
from tests.interop.driven import (
    SERVERS,
    answered,
    becomes,
    binary,
    free_ports,
    holding,
    metric,
    run,
    running,
    under_load,
)

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Server:
    ports: tuple[int, ...]
    folder: Path
    process: subprocess.Popen[bytes]

    def url(self, protocol: str) -> str:
        over_grpc = protocol in ("kserve-v2-grpc", "triton-stream")
        return f"grpc://127.0.0.1:{self.ports[1]}" if over_grpc else f"http://127.0.0.1:{self.ports[0]}"

    def counted(self, name: str, **labels: str) -> float:
        return metric(f"http://127.0.0.1:{self.ports[2]}/metrics", f"nv_inference_request_{name}", **labels)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    python, ports = binary("pytriton"), tuple(free_ports(3))
    # Triton's stub loads libpython by its name: another than this environment's may come first on this machine.
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"]
    libraries = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    command = [python, str(SERVERS / "pytriton_models.py"), *map(str, ports)]
    ready = f"http://127.0.0.1:{ports[0]}/v2/models/slow/ready"  # the last one
    folder = tmp_path_factory.mktemp("pytriton")
    with running(command, ready, folder, {"LD_LIBRARY_PATH": libraries}) as process:
        yield Server(ports, folder, process)


def tensors(protocol: str, *shape: int, model: str = "echo", **options: Any) -> dict[str, Any]:
    source = {"kind": "tensors", "count": 4, "inputs": [{"name": "x", "datatype": "FP32", "shape": shape}]}
    return {"source": source, "target": {"protocol": protocol, "model": model, "options": options}}


def texts(folder: Path, protocol: str, prompt: str, **options: Any) -> dict[str, Any]:
    (folder / "prompts.jsonl").write_text(f'{{"prompt": "{prompt}"}}\n')
    source = {"kind": "jsonl", "path": "prompts.jsonl"}
    return {"source": source, "target": {"protocol": protocol, "model": "words", "options": options}}


@pytest.mark.parametrize(
    ("protocol", "options", "status"),
    [
        ("kserve-v2", {}, Status.HTTP),
        ("kserve-v2", {"binary": True}, Status.HTTP),
        ("kserve-v2-grpc", {}, Status.GRPC),
        ("kserve-v2-grpc", {"contents": "typed"}, Status.GRPC),
        ("triton-stream", {}, Status.GRPC),
    ],
)
def test_tensors(server: Server, protocol: str, options: dict[str, Any], status: Status, tmp_path: Path) -> None:
    counts = server.counted("success", model="echo"), server.counted("failure", model="echo")
    found = answered(run(tmp_path, server.url(protocol), tensors(protocol, 4, **options)))
    becomes(lambda: server.counted("success", model="echo"), counts[0] + len(found.records))
    refused = run(tmp_path, server.url(protocol), tensors(protocol, 13, **options))
    assert refused.statuses == {status}
    assert "Failed to process the request(s) for model 'echo" in str(refused.errors[0])  # then a traceback
    becomes(lambda: server.counted("failure", model="echo"), counts[1] + len(refused.records))


@pytest.mark.parametrize("protocol", ["triton-stream", "triton-generate"])
def test_a_decoupled_model_streams_its_words(server: Server, protocol: str, tmp_path: Path) -> None:
    before = server.counted("success", model="words")
    whole = texts(tmp_path, protocol, "one two three four")
    found = answered(run(tmp_path, server.url(protocol), whole))
    assert set(found.records["n_out"]) == {4}
    assert "ttft" in found.report["metrics"]
    becomes(lambda: server.counted("success", model="words"), before + len(found.records))


def test_generate_in_one_piece(server: Server, tmp_path: Path) -> None:
    before = server.counted("success", model="words")
    whole = texts(tmp_path, "triton-generate", "one", stream=False)
    found = answered(run(tmp_path, server.url("triton-generate"), whole))
    assert "ttft" not in found.report["metrics"]
    becomes(lambda: server.counted("success", model="words"), before + len(found.records))


@pytest.mark.parametrize("protocol", ["kserve-v2", "kserve-v2-grpc"])
def test_under_load_its_page_and_both_its_statistics_and_ours_are_one_count(
    server: Server, protocol: str, tmp_path: Path
) -> None:
    """Each alone, since one of them is enough; its statistics are those of its page in nanoseconds."""
    http, grpc, page = (f"127.0.0.1:{port}" for port in server.ports)
    asked = [f"http://{page}/metrics", f"http://{http}/v2/models/stats", f"grpc://{grpc}"]
    for source in (*asked, "auto") if protocol.endswith("grpc") else asked:
        before = server.counted("success", model="echo")
        (folder := tmp_path / str(len(list(tmp_path.iterdir())))).mkdir()
        found = under_load(folder, server.url(protocol), tensors(protocol, 4), source)
        becomes(lambda: server.counted("success", model="echo"), before + len(found.records))
        side = found.report["server"]
        if source == "auto":
            assert set(side["sources"]) == {grpc}
        names = side["names"]
        assert names["server.batch"]["mean"] == 1
        assert names["server.failures"]["total"] == 0
        times = [names[f"server.{one}"]["mean"] for one in ("queue_time", "prefill_time", "e2e")]
        assert 0 < times[1] < times[2]
        assert times[0] < times[2] < found.records.measured()["done_ns"].max()
        assert ("server.queue" in names) is (source == asked[0])
    if not protocol.endswith("grpc"):
        twice = run(tmp_path, server.url(protocol), tensors(protocol, 4), "--server-metrics", asked[1])
        assert twice.report["server"]["names"]["server.requests"]["total"] == len(twice.records)


@pytest.mark.parametrize("protocol", ["kserve-v2", "kserve-v2-grpc", "triton-stream"])
def test_a_full_queue_is_an_overload(server: Server, protocol: str, tmp_path: Path) -> None:
    """The model takes 0.1 s, its queue four. What it refuses so Triton counts nowhere, not as ``REJECTED`` either."""
    before = server.counted("success", model="slow")
    load = {"kind": "server", "params": {"rate": 60}, "stop": {"min_queries": 60, "min_duration": "1s"}}
    found = run(tmp_path, server.url(protocol), {**tensors(protocol, 1, 4, model="slow"), **load})
    assert found.statuses == {Status.OK, Status.REFUSED}, set(found.errors)
    refused = found.records["status"] == Status.REFUSED
    assert all("Exceeds maximum queue size" in str(found.errors[i]) for i in refused.nonzero()[0])
    becomes(lambda: server.counted("success", model="slow"), before + (~refused).sum())


@pytest.mark.parametrize("protocol", ["triton-generate", "triton-stream"])
def test_streams_that_are_dropped_are_cancelled(server: Server, protocol: str, tmp_path: Path) -> None:
    whole = texts(tmp_path, protocol, "slowly " * 4)
    whole |= {"cancel": {"share": 0.5, "after": "300ms"}, "stop": {"min_queries": 6, "min_duration": "100ms"}}
    found = run(tmp_path, server.url(protocol), whole)
    assert found.statuses == {Status.OK, Status.CANCELLED}, set(found.errors)
    assert set(found.records["n_out"][found.records["status"] == Status.OK]) == {4}
    answered(run(tmp_path, server.url(protocol), texts(tmp_path, protocol, "one two")))  # the server lives on


def test_streams_of_a_killed_server_are_no_successes(server: Server, tmp_path: Path) -> None:
    both = []
    for protocol in ("triton-stream", "triton-generate"):
        (folder := tmp_path / protocol).mkdir()
        whole = texts(folder, protocol, "slowly " * 400) | {"stop": {"min_queries": 1, "min_duration": "100ms"}}
        both.append((folder, server.url(protocol), whole))
    (underway := server.folder / "underway").touch()
    with ThreadPoolExecutor(2) as pool:
        going = pool.map(lambda each: run(*each, "--timeout", "30s"), both)
        holding(lambda: len(underway.read_text().split()), len(both))
        os.killpg(server.process.pid, signal.SIGKILL)
        for found in going:
            assert found.statuses <= {Status.CONNECT, Status.PROTOCOL, Status.GRPC}, found.errors
            assert found.records["n_out"][0] > 0
