"""TorchServe with a handler of words: both wires, whole and streamed, its own counters, a full queue, a dead worker."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.interop.driven import SERVERS, answered, becomes, binary, free_ports, metric, run, running, under_load

pytestmark = pytest.mark.e2e

PROTOCOLS = ["torchserve", "torchserve-grpc"]


@dataclass(frozen=True)
class Server:
    ports: tuple[int, ...]
    folder: Path

    def url(self, protocol: str) -> str:
        return f"grpc://127.0.0.1:{self.ports[3]}" if protocol.endswith("grpc") else f"http://127.0.0.1:{self.ports[0]}"

    def asked(self) -> float:
        """What it counts as inference requests, the refused ones too."""
        return metric(f"http://127.0.0.1:{self.ports[2]}/metrics", "ts_inference_requests_total", model_name="words")

    def logged(self, code: int) -> int:
        """Lines of the access log: what was answered so over HTTP."""
        lines = (self.folder / "logs" / "access_log.log").read_text().splitlines()
        return sum(f'"POST /predictions/words HTTP/1.1" {code} ' in line for line in lines)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not shutil.which("java"):
        pytest.skip("TorchServe needs java 17 (the distribution's openjdk-17-jre-headless)")
    program, archiver = binary("torchserve", "torchserve"), binary("torchserve", "torch-model-archiver")
    folder, ports = tmp_path_factory.mktemp("torchserve"), tuple(free_ports(5))
    made = [archiver, "--model-name", "words", "--version", "1.0", "--export-path", str(folder)]
    made += ["--handler", str(SERVERS / "torchserve_words.py")]
    subprocess.run(made, check=True, timeout=60, capture_output=True)
    names = ("inference_address", "management_address", "metrics_address")
    lines = [f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, ports, strict=False)]
    lines += [f"grpc_inference_port={ports[3]}", f"grpc_management_port={ports[4]}"]
    lines += [f"grpc_{name}=127.0.0.1" for name in names[:2]]
    lines += ["metrics_mode=prometheus", "default_workers_per_model=1", "job_queue_size=4", "number_of_netty_threads=2"]
    lines += ["number_of_gpu=0", "vmargs=-Xmx256m -XX:+UseSerialGC"]
    (folder / "config.properties").write_text("\n".join(lines))
    command = [program, "--start", "--foreground", "--ncs", "--disable-token-auth", "--model-store", str(folder)]
    command += ["--models", "words=words.mar", "--ts-config", "config.properties"]
    python = str(Path(binary("torchserve")).parent)  # it starts its workers as `python`; its pid file is in TMPDIR
    env = {"PATH": f"{python}:{os.environ.get('PATH', '')}", "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    ready = f"http://127.0.0.1:{ports[0]}/predictions/words"  # /ping says Healthy before a worker is there
    with running(command, ready, folder, env):
        yield Server(ports, folder)


def texts(folder: Path, protocol: str, prompt: str, **options: Any) -> dict[str, Any]:
    (folder / "prompts.jsonl").write_text(f'{{"prompt": "{prompt}"}}\n')
    source = {"kind": "jsonl", "path": "prompts.jsonl"}
    return {"source": source, "target": {"protocol": protocol, "model": "words", "options": options}}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whole_answers(server: Server, protocol: str, tmp_path: Path) -> None:
    asked, logged = server.asked(), server.logged(200)
    found = answered(run(tmp_path, server.url(protocol), texts(tmp_path, protocol, "one two three")))
    becomes(server.asked, asked + len(found.records))
    if protocol == "torchserve":
        becomes(lambda: server.logged(200), logged + len(found.records))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_streams(server: Server, protocol: str, tmp_path: Path) -> None:
    asked = server.asked()
    whole = texts(tmp_path, protocol, "stream one two three four", stream=True)
    found = answered(run(tmp_path, server.url(protocol), whole))
    becomes(server.asked, asked + len(found.records))
    assert "ttft" in found.report["metrics"]
    # A message is a word over gRPC; over HTTP two words that arrive together are one read.
    assert found.records["n_out"].max() == 4
    assert found.records["n_out"].min() >= (4 if protocol.endswith("grpc") else 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_under_load_its_page_and_its_counters_and_ours_are_one_count(
    server: Server, protocol: str, tmp_path: Path
) -> None:
    """One worker, 20 ms a word, and no more at once than its queue takes: the rest of the time is the wait for it."""
    asked, page = server.asked(), f"http://127.0.0.1:{server.ports[2]}/metrics"
    whole = texts(tmp_path, protocol, "now one")
    found = under_load(tmp_path, server.url(protocol), whole, page, n=100, at_once=4)
    becomes(server.asked, asked + len(found.records))
    names, rows = found.report["server"]["names"], found.records
    if protocol.endswith("grpc"):  # of which it counts no times
        assert names["server.e2e"]["mean"] is None
        return
    waited, took = (names[f"server.{one}"]["mean"] / 1e6 for one in ("queue_time", "e2e"))
    assert took > 20
    assert waited > 20  # three are before each
    assert waited + 20 < float((rows["done_ns"] - rows["sent_ns"]).mean()) / 1e6 + 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_full_job_queue_is_an_overload(server: Server, protocol: str, tmp_path: Path) -> None:
    asked, logged = server.asked(), [server.logged(code) for code in (200, 503)]
    load = {"kind": "server", "params": {"rate": 60}, "stop": {"min_queries": 60, "min_duration": "1s"}}
    found = run(tmp_path, server.url(protocol), {**texts(tmp_path, protocol, "now slowly"), **load})
    assert found.statuses == {Status.OK, Status.REFUSED}, set(found.errors)
    assert any("no worker to serve" in str(error) for error in found.errors)
    becomes(server.asked, asked + len(found.records))
    if protocol == "torchserve":
        well = int((found.records["status"] == Status.OK).sum())
        becomes(lambda: server.logged(200), logged[0] + well)
        becomes(lambda: server.logged(503), logged[1] + len(found.records) - well)


@pytest.mark.parametrize(("protocol", "status"), [("torchserve", Status.HTTP), ("torchserve-grpc", Status.GRPC)])
def test_a_handler_that_raises_is_no_overload(server: Server, protocol: str, status: Status, tmp_path: Path) -> None:
    found = run(tmp_path, server.url(protocol), texts(tmp_path, protocol, "now fail"))
    assert found.statuses == {status}, found.errors[:3]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("how", ["fail", "die"])
def test_streams_that_break_off_are_no_successes(server: Server, protocol: str, how: str, tmp_path: Path) -> None:
    """Its access log says 200 of them."""
    whole = texts(tmp_path, protocol, f"stream one two {how} four", stream=True)
    whole["stop"] = {"min_queries": 1, "min_duration": "1ms"}
    found = run(tmp_path, server.url(protocol), whole)
    assert Status.OK not in found.statuses
    assert found.records["n_chunks"][0] >= 1, found.errors
    if how == "die":  # the next test must find a worker
        load = {"kind": "server", "params": {"rate": 2}, "stop": {"min_queries": 20, "min_duration": "1ms"}}
        back = run(tmp_path, server.url(protocol), {**texts(tmp_path, protocol, "one"), **load})
        assert back.records["status"][-1] == Status.OK, back.errors[-1]
