"""llama-cpp-python's server, a random llama of two layers behind it:

OpenAI's completions and chat from another's hand.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.slo.records.records import Status
from tests.e2e.plimsoll import plimsoll
from tests.interop.driven import SERVERS, binary, free_ports, good, run, running

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python, folder, (port,) = binary("llamacpp"), tmp_path_factory.mktemp("llamacpp"), free_ports(1)
    subprocess.run([python, str(SERVERS / "tiny_gguf.py"), "tiny.gguf"], cwd=folder, check=True, timeout=60)
    command = [python, "-m", "llama_cpp.server", "--model", "tiny.gguf", "--model_alias", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--n_ctx", "512", "--interrupt_requests", "false"]
    with running(command, f"http://127.0.0.1:{port}/v1/models", folder):
        yield f"http://127.0.0.1:{port}"


def scenario(protocol: str, tokens: int = 12) -> dict[str, Any]:
    source = {"kind": "synthetic_text", "count": 4, "prompt_tokens": 8, "output_tokens": tokens}
    return {"source": source, "target": {"protocol": protocol, "model": "tiny", "options": {"request_id": False}}}


@pytest.mark.parametrize("protocol", ["openai-completions", "openai-chat"])
def test_text_is_streamed(url: str, protocol: str, tmp_path: Path) -> None:
    found = good(run(tmp_path, url, scenario(protocol)))
    assert (found.records["n_chunks"] >= 1).all()
    assert (found.records["first_token_ns"] > 0).all()
    assert "ttft" in found.report["metrics"]


def test_a_model_that_fails_the_request_says_so(url: str, tmp_path: Path) -> None:
    whole = scenario("openai-completions")
    whole["source"]["prompt_tokens"] = 2000  # longer than the context
    found = run(tmp_path, url, whole)
    # It answers 400, or an empty stream under 200, by its version; neither is a success.
    assert Status.OK not in found.statuses


def test_it_shows_no_figures_of_its_own_and_that_is_said_before_anything_is_sent(url: str, tmp_path: Path) -> None:
    for asked, said in (("auto", "shows no metrics at any place that is known"), (f"{url}/metrics", "answered 404")):
        words = ["run", "--url", url, "--protocol", "openai-chat", "--model", "tiny", "--queries", "5"]
        done = plimsoll(*words, "--server-metrics", asked, cwd=tmp_path)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Nothing was sent." in done.stderr
