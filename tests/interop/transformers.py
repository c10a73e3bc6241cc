"""``transformers serve`` with a random llama: OpenAI's text protocols, its access log and usage, a kill."""

from __future__ import annotations

import os
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
from tests.interop.driven import SERVERS, Run, answered, becomes, binary, free_ports, holding, run, running

pytestmark = pytest.mark.e2e

ROUTES = {
    "openai-chat": "/v1/chat/completions",
    "openai-completions": "/v1/completions",
    "openai-responses": "/v1/responses",
}


@dataclass(frozen=True)
class Server:
    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    def logged(self, protocol: str) -> int:
        """How often its access log names this route with 200; of a stream it does so at its beginning."""
        return (self.folder / "server.log").read_text().count(f'"POST {ROUTES[protocol]} HTTP/1.1" 200')

    def scenario(self, protocol: str, tokens: int = 12, **options: Any) -> dict[str, Any]:
        source = {"kind": "synthetic_text", "count": 4, "prompt_tokens": 8, "output_tokens": tokens}
        return {
            "source": source,
            "target": {"protocol": protocol, "model": str(self.folder / "tiny"), "options": options},
        }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    python, program = binary("transformers"), binary("transformers", "transformers")
    folder, (port,) = tmp_path_factory.mktemp("transformers"), free_ports(1)
    env = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    made = [python, str(SERVERS / "tiny_llama.py"), "tiny"]
    subprocess.run(made, cwd=folder, env={**os.environ, **env}, check=True, timeout=120, capture_output=True)
    command = [program, "serve", str(folder / "tiny"), "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    log = folder / "server.log"
    with running(command, f"http://127.0.0.1:{port}/health", folder, env, log_file=log) as process:
        yield Server(f"http://127.0.0.1:{port}", folder, process)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", list(ROUTES))
def test_rows_are_the_servers_own_count(server: Server, protocol: str, stream: bool, tmp_path: Path) -> None:
    before = server.logged(protocol)
    found = answered(run(tmp_path, server.url, server.scenario(protocol, stream=stream)))
    becomes(lambda: server.logged(protocol), before + len(found.records))
    assert set(found.records["n_out"]) == {12}
    assert ("ttft" in found.report["metrics"]) is stream


def test_streams_of_a_killed_server_are_no_successes(server: Server, tmp_path: Path) -> None:
    before = {protocol: server.logged(protocol) for protocol in ROUTES}

    def sent(protocol: str) -> Run:
        (folder := tmp_path / protocol).mkdir()
        whole = server.scenario(protocol, 12_000) | {"stop": {"min_queries": 1, "min_duration": "1ms"}}
        return run(folder, server.url, whole, "--timeout", "100s")

    with ThreadPoolExecutor(len(ROUTES)) as pool:
        runs = pool.map(sent, ROUTES)
        for protocol in ROUTES:
            holding(lambda protocol=protocol: server.logged(protocol), before[protocol] + 1)  # type: ignore[misc]
        time.sleep(1.0)  # some tokens
        server.process.send_signal(signal.SIGKILL)
        for found in runs:
            assert found.statuses <= {Status.CONNECT, Status.PROTOCOL}, found.errors
