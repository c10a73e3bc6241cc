"""llama.cpp's own server, a random llama of two layers behind it: its completions and OpenAI's, its page, its slots."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.plimsoll import plimsoll
from tests.interop.driven import SERVERS, answered, becomes, binary, free_ports, metric, run, running, under_load

pytestmark = pytest.mark.e2e
PROTOCOLS = ["llamacpp-completion", "openai-chat"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("llamaserver"), "metrics", "slots") as found:
        yield found


@contextmanager
def serving(folder: Path, *shown: str) -> Iterator[str]:
    python, (port,) = binary("llamaserver"), free_ports(1)
    subprocess.run([python, str(SERVERS / "tiny_gguf.py"), "tiny.gguf"], cwd=folder, check=True, timeout=60)
    command = [python, str(SERVERS / "llama_server.py"), "tiny.gguf", str(port), *shown]
    with running(command, f"http://127.0.0.1:{port}/health", folder):
        yield f"http://127.0.0.1:{port}"


def scenario(protocol: str, tokens: int = 24) -> dict[str, Any]:
    """After a stream it closes the connection that it said it keeps: each request has one of its own."""
    source = {"kind": "synthetic_text", "count": 4, "prompt_tokens": 8, "output_tokens": tokens}
    target = {"protocol": protocol, "model": "tiny", "options": {"exact_output": True}}
    return {"source": source, "target": target, "client": {"connections": "fresh"}}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tokens_are_the_servers_own_counts(url: str, protocol: str, tmp_path: Path) -> None:
    names = "prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total"
    before = [metric(f"{url}/metrics", f"llamacpp:{name}") for name in names]
    found = answered(run(tmp_path, url, scenario(protocol)))
    asked, cached, made = (
        lambda place=place: metric(f"{url}/metrics", f"llamacpp:{names[place]}") - before[place] for place in range(3)
    )
    becomes(lambda: asked() + cached(), found.records["n_in"].sum())
    becomes(made, found.records["n_out"].sum())
    assert set(found.records["n_out"]) == {24}
    assert "ttft" in found.report["metrics"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_under_load_its_page_its_slots_and_ours_are_one_count(url: str, protocol: str, tmp_path: Path) -> None:
    """Eight ask four slots of 512 tokens, so that some wait, as a sample may see; in a slot are prompt and answer."""
    found = under_load(tmp_path, url, scenario(protocol, 400), "auto")
    side = found.report["server"]
    assert {book["what"].partition(",")[0] for book in side["books"]} == {"prompt tokens", "generated tokens"}
    names = side["names"]
    assert 1 <= names["server.running"]["max"] <= 4
    assert 0 <= names["server.queue"]["max"] <= 4
    assert names["server.cached_tokens"]["total"] > 0
    longest = int((found.records["n_in"] + found.records["n_out"]).max())
    assert 400 / 512 < names["server.kv_usage"]["max"] <= longest / 512
    assert 0 < names["server.itl"]["mean"] < found.records.measured()["done_ns"].max()
    assert 1 <= names["server.batch"]["max"] <= 4


def test_what_it_does_not_show_is_named_with_the_flag_that_does(tmp_path: Path) -> None:
    (folder := tmp_path / "slots").mkdir()
    with serving(folder, "slots") as url:
        side = answered(run(tmp_path, url, scenario("openai-chat"), "--server-metrics", "auto")).report["server"]
    assert set(side["names"]) == {"server.kv_usage"}
    assert side["absent"]["server.queue"] == "not exposed by llama.cpp (start it with --metrics)"
    (folder := tmp_path / "none").mkdir()
    with serving(folder) as url:
        words = ["run", "--url", url, "--protocol", "openai-chat", "--model", "tiny", "--server-metrics", "auto"]
        done = plimsoll(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "shows no metrics at any place that is known. Nothing was sent. Start the server with its" in done.stderr
