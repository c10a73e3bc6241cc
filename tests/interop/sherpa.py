"""sherpa-onnx's own WebSocket server with a random CTC model: what is heard on the way and at the end, and a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.interop.driven import SERVERS, answered, binary, free_ports, run, running

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Server:
    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    def scenario(self, **load: Any) -> dict[str, Any]:
        source = {"kind": "audio", "manifest": str(self.folder / "manifest.jsonl")}
        target = {"protocol": "sherpa-onnx"}
        stop = {"min_queries": 4, "min_duration": "1ms"}
        params = {"concurrency": 2}
        return {"kind": "concurrency", "params": params, "source": source, "target": target, "stop": stop, **load}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    python, program = binary("sherpa"), binary("sherpa", "sherpa-onnx-online-websocket-server")
    folder, (port,) = tmp_path_factory.mktemp("sherpa"), free_ports(1)
    subprocess.run([python, str(SERVERS / "tiny_ctc.py"), "."], cwd=folder, check=True, timeout=60, capture_output=True)
    command = [program, f"--port={port}", "--tokens=tokens.txt", "--nemo-ctc-model=tiny.onnx", "--num-work-threads=1"]
    command += ["--enable-endpoint=false"]
    with running(command, f"http://127.0.0.1:{port}/", folder) as process:
        yield Server(f"ws://127.0.0.1:{port}", folder, process)


def test_what_is_told_is_what_its_recogniser_hears(server: Server, tmp_path: Path) -> None:
    lines = (server.folder / "manifest.jsonl").read_text().splitlines()
    assert all(len(json.loads(line)["text"].split()) > 3 for line in lines)
    found = answered(run(tmp_path, server.url, server.scenario()))
    assert (found.records["words"] > 3).all()
    assert (found.records["word_errors"] == 0).all()
    assert (found.records["n_partials"] > 1).all()
    assert (found.records["first_partial_ns"] > 0).all()
    assert "finalization" in found.report["metrics"]


def test_sessions_of_a_killed_server_are_no_successes(server: Server, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        load = {"stop": {"min_queries": 400, "min_duration": "1ms"}, "target": {"protocol": "sherpa-onnx"}}
        going = pool.submit(run, tmp_path, server.url, server.scenario(**load), "--max-duration", "15s")
        time.sleep(12)
        server.process.send_signal(signal.SIGKILL)
        found = going.result()
    last = found.records["status"] != Status.OK
    assert last.any()
    assert (found.records["word_errors"][~last] == 0).all()
    assert found.statuses <= {Status.OK, Status.CONNECT, Status.PROTOCOL}, set(found.errors)
